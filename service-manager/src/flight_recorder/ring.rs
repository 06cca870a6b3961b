//! The ring in META, open for writing.
//!
//! Owns: writes within the ring and nowhere else of the partition; a copy of what earlier boots left.
//! Order: a batch is flushed before [`Ring::append`] returns.

use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use installer::device::{BlockDevice, DeviceError, Disk, Part};
use ondisk::recorder::{
    Boot, MOST_SKIPPED, Packer, RING_BYTES, RING_OFFSET_BYTES, SLOT_BYTES, Writer, boots, newest,
};
use ondisk::{ReadAt, ReadError};

use super::pace::SLOTS_A_PAGE;
use super::queue::Line;

/// Read at once when the newest slot is looked for.
const BUFFER_BYTES: usize = 64 << 10;

/// The ring, and where to go on in it.
#[derive(Debug)]
pub(super) struct Ring<D = Disk> {
    meta: D,
    boot: [u8; 16],
    packer: Packer,
}

impl Ring {
    /// Opens the ring on a partition, which others write elsewhere.
    pub(super) fn open(device: &Path, boot: [u8; 16]) -> Result<Self, String> {
        let meta = Disk::open_shared(device).map_err(|e| format!("{e}: {}", e.source))?;
        Self::on(meta, boot)
    }
}

impl<D: BlockDevice> Ring<D> {
    /// The ring on a device.
    fn on(mut meta: D, boot: [u8; 16]) -> Result<Self, String> {
        let newest = newest(&mut meta, &mut vec![0; BUFFER_BYTES]).map_err(|e| e.to_string())?;
        let number = newest.map_or(0, |head| head.number.wrapping_add(1));
        let sequence = newest.filter(|head| head.boot == boot).map_or(0, |head| head.sequence);
        Ok(Self { meta, boot, packer: Packer::new(boot, Writer::Machined, number, sequence) })
    }

    /// The kernel log record to go on with.
    pub(super) fn sequence(&self) -> u64 {
        self.packer.sequence()
    }

    /// What earlier boots left, the oldest first: as it was when this boot began, which `kept` remembers.
    pub(super) fn earlier(&mut self, kept: &Path) -> Result<Vec<Boot>, String> {
        let found = match std::fs::read(kept) {
            Ok(ring) => boots(&mut Kept(&ring)),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                keep(&mut self.meta, kept)?;
                boots(&mut self.meta)
            }
            Err(error) => return Err(format!("read {}: {error}", kept.display())),
        };
        let mut found = found.map_err(|e| e.to_string())?;
        found.retain(|boot| boot.id != self.boot);
        Ok(found)
    }

    /// Adds lines; they are on the disk when this returns. Says how many pages of the disk that took.
    pub(super) fn append(&mut self, lines: &[Line], started_us: u64) -> Result<u64, String> {
        let mut slots: Vec<Numbered> = Vec::new();
        let mut failed = String::new();
        let mut put = |offset: u64, slot: &[u8; SLOT_BYTES]| {
            slots.push((offset, *slot));
            Ok::<(), String>(())
        };
        self.packer.set_started_us(started_us);
        for line in lines {
            self.packer.line(&line.record(), &mut put)?;
        }
        self.packer.finish(&mut put)?;
        let mut pages = 0;
        for _ in 0..=MOST_SKIPPED {
            let (written, refused) = self.write(&slots);
            pages += written;
            let Some((error, _)) = refused.first() else { return Ok(pages) };
            failed = format!("{error}: {}", error.source);
            // What falls on a bad sector goes behind it.
            let again = refused.iter().flat_map(|(_, slots)| *slots);
            slots = again.filter_map(|(_, slot)| self.packer.renumbered(slot)).collect();
        }
        Err(failed)
    }

    /// Writes slots and flushes; how many pages took them, and those of pages that did not.
    ///
    /// All at once first: which page a flush did not get onto the disk shows when each has one of its own.
    fn write<'s>(&mut self, slots: &'s [Numbered]) -> (u64, Vec<(DeviceError, &'s [Numbered])>) {
        let page = |offset: u64| offset / (SLOTS_A_PAGE * SLOT_BYTES as u64);
        let mut ring = Part::new(&mut self.meta, RING_OFFSET_BYTES, RING_BYTES);
        let pages = || slots.chunk_by(|(a, _), (b, _)| page(*a) == page(*b) && a < b);
        let count = pages().count() as u64;
        if pages().try_for_each(|slots| put_page(&mut ring, slots)).is_ok() && ring.flush().is_ok() {
            return (count, Vec::new());
        }
        let mut refused = Vec::new();
        for together in pages() {
            if let Err(error) = put_page(&mut ring, together).and_then(|()| ring.flush()) {
                refused.push((error, together));
            }
        }
        (count - refused.len() as u64, refused)
    }
}

/// A slot and its place in META.
type Numbered = (u64, [u8; SLOT_BYTES]);

/// Writes slots that follow each other.
fn put_page<D: BlockDevice>(ring: &mut Part<'_, D>, slots: &[Numbered]) -> Result<(), DeviceError> {
    let start = slots.first().map_or(0, |(offset, _)| offset - RING_OFFSET_BYTES);
    let bytes: Vec<u8> = slots.iter().flat_map(|(_, slot)| slot).copied().collect();
    ring.write_at(start, &bytes)
}

/// Writes a copy of the ring that only root reads.
fn keep(meta: &mut impl ReadAt, kept: &Path) -> Result<(), String> {
    let mut ring = vec![0; usize::try_from(RING_BYTES).unwrap_or(0)];
    // One that cannot be read whole is not kept: what can be read of it is on the disk.
    if meta.read_at(RING_OFFSET_BYTES, &mut ring).is_err() {
        return Ok(());
    }
    let failed = |error: std::io::Error| format!("write {}: {error}", kept.display());
    let new = kept.with_extension("new");
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new).map_err(failed)?;
    std::io::Write::write_all(&mut file, &ring).map_err(failed)?;
    std::fs::rename(&new, kept).map_err(failed)
}

/// The kept ring, where META has it.
struct Kept<'r>(&'r [u8]);

impl ReadAt for Kept<'_> {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let missing = ReadError { offset, length: buffer.len(), errno: 0 };
        self.0.read_at(offset.checked_sub(RING_OFFSET_BYTES).ok_or(missing)?, buffer)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use installer::device::{Memory, Recorder};
    use ondisk::kmsg::Record;

    use super::super::queue::Queue;
    use super::*;

    const META_BYTES: u64 = 1 << 20;

    fn lines(texts: &[&str], first: u64) -> Vec<Line> {
        let mut queue = Queue::new(0);
        for (text, sequence) in texts.iter().zip(first..) {
            queue.push(&Record { prefix: 6, sequence, stamp_us: sequence * 10, text }, Duration::ZERO);
        }
        queue.take(100)
    }

    fn texts(boots: &[Boot]) -> Vec<&str> {
        boots.iter().flat_map(|boot| &boot.lines).map(|line| line.text.as_str()).collect()
    }

    #[test]
    fn a_later_boot_sees_the_earlier_ones_and_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let kept = dir.path().join("kept");
        let mut first = Ring::on(Memory::new(META_BYTES, 512), [1; 16]).unwrap();
        assert_eq!(first.earlier(&dir.path().join("first")).unwrap(), []);
        assert_eq!(first.append(&lines(&["one", "two"], 0), 77).unwrap(), 1);
        let mut second = Ring::on(first.meta, [2; 16]).unwrap();
        assert_eq!((second.sequence(), second.packer.number()), (0, 1));
        assert_eq!(texts(&second.earlier(&kept).unwrap()), ["one", "two"]);
        // So much that the first boot's slots are gone.
        let text = "x".repeat(400);
        for batch in 0..30 {
            second.append(&lines(&[text.as_str(); 40], batch * 40), 88).unwrap();
        }
        assert_eq!(boots(&mut second.meta).unwrap().len(), 1);
        let mut again = Ring::on(second.meta, [2; 16]).unwrap();
        assert_eq!(again.sequence(), 1200, "a later machined of the same boot goes on");
        assert_eq!(
            texts(&again.earlier(&kept).unwrap()),
            ["one", "two"],
            "and shows what the first one found"
        );
    }

    /// A disk whose second page of the ring cannot be written, which shows at the write or at the flush.
    struct BadPage {
        disk: Memory,
        at_flush: bool,
        dirty: bool,
    }

    const BAD: std::ops::Range<u64> = RING_OFFSET_BYTES + 4096..RING_OFFSET_BYTES + 8192;

    impl BadPage {
        fn refuse(&self) -> DeviceError {
            let source = std::io::Error::from_raw_os_error(5);
            DeviceError { operation: "write", device: "the disk".into(), offset: 0, length: 0, source }
        }
    }

    impl ReadAt for BadPage {
        fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
            if offset < BAD.end && BAD.start < offset + buffer.len() as u64 {
                return Err(ReadError { offset, length: buffer.len(), errno: 5 });
            }
            self.disk.read_at(offset, buffer)
        }
    }

    impl BlockDevice for BadPage {
        fn bytes(&self) -> u64 {
            self.disk.bytes()
        }

        fn sector_bytes(&self) -> u32 {
            512
        }

        fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
            let bad = offset < BAD.end && BAD.start < offset + bytes.len() as u64;
            match bad {
                true if self.at_flush => self.dirty = true,
                true => return Err(self.refuse()),
                false => self.disk.write_at(offset, bytes)?,
            }
            Ok(())
        }

        fn zero(&mut self, offset: u64, length: u64) -> Result<(), DeviceError> {
            self.disk.zero(offset, length)
        }

        fn flush(&mut self) -> Result<(), DeviceError> {
            if std::mem::take(&mut self.dirty) { Err(self.refuse()) } else { Ok(()) }
        }
    }

    #[test]
    fn what_a_bad_sector_does_not_take_goes_behind_it() {
        for at_flush in [false, true] {
            let device = BadPage { disk: Memory::new(META_BYTES, 512), at_flush, dirty: false };
            let mut ring = Ring::on(device, [1; 16]).unwrap();
            // Each takes a slot: eight pages.
            let text = "x".repeat(400);
            let all: Vec<String> = (0..60).map(|n| format!("{n} {text}")).collect();
            for (batch, first) in all.chunks(20).zip([0, 20, 40]) {
                let batch: Vec<&str> = batch.iter().map(String::as_str).collect();
                ring.append(&lines(&batch, first), 5).unwrap();
            }
            let mut found = boots(&mut ring.meta).unwrap();
            // Those of the bad page come after the rest of their batch.
            found[0].lines.sort_by_key(|line| line.time_us);
            assert_eq!(texts(&found), all);
            let mut again = Ring::on(ring.meta, [1; 16]).unwrap();
            assert_eq!(again.packer.number(), 68);
            again.meta.disk = Memory::new(0, 512);
            assert!(again.append(&lines(&["no disk"], 60), 5).is_err());
        }
    }

    /// Wherever the power goes: all batches that were appended are there, and no byte outside of the ring is touched.
    #[test]
    fn a_power_cut_costs_no_batch_that_was_appended() {
        let mut ring = Ring::on(Recorder::new(Memory::new(META_BYTES, 512)), [1; 16]).unwrap();
        let batches = [vec!["one", "two"], vec!["three"; 30], vec!["four"]];
        for (batch, first) in batches.iter().zip([0, 2, 32]) {
            ring.append(&lines(batch, first), 5).unwrap();
            ring.meta.acknowledge("appended");
        }
        let (recording, _) = ring.meta.finish();
        let all: Vec<&str> = batches.concat();
        let states = recording.each_state(&|_| true, |mut state| {
            let promised: usize = batches.iter().take(state.promises.len()).map(Vec::len).sum();
            let found = boots(&mut state.disk).unwrap();
            assert!(texts(&found).starts_with(&all[..promised]), "{promised} lines of {found:?}");
            let mut values = vec![0; usize::try_from(RING_OFFSET_BYTES).unwrap()];
            state.disk.read_at(0, &mut values).unwrap();
            assert!(values.iter().all(|byte| *byte == 0));
        });
        assert!(states > 10, "{states}");
    }
}
