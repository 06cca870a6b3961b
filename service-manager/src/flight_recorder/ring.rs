//! The ring in META, open for writing.
//!
//! Owns: writes within the ring and nowhere else of the partition; a copy of what earlier boots left.
//! Order: a batch is flushed before [`Ring::append`] returns.

use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use installer::device::{BlockDevice, Disk, Part};
use ondisk::recorder::{Boot, Packer, RING_BYTES, RING_OFFSET_BYTES, SLOT_BYTES, Writer, boots, newest};
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
        let mut slots: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut put = |offset: u64, slot: &[u8; SLOT_BYTES]| {
            match slots.last_mut() {
                Some((start, bytes)) if *start + bytes.len() as u64 == offset => bytes.extend(slot),
                _ => slots.push((offset, slot.to_vec())),
            }
            Ok::<(), String>(())
        };
        self.packer.set_started_us(started_us);
        for line in lines {
            self.packer.line(&line.record(), &mut put)?;
        }
        self.packer.finish(&mut put)?;
        let mut ring = Part::new(&mut self.meta, RING_OFFSET_BYTES, RING_BYTES);
        let failed = |e: installer::device::DeviceError| format!("{e}: {}", e.source);
        let mut pages = 0;
        for (offset, bytes) in &slots {
            ring.write_at(offset - RING_OFFSET_BYTES, bytes).map_err(failed)?;
            let page = SLOTS_A_PAGE * SLOT_BYTES as u64;
            pages += (offset + bytes.len() as u64).div_ceil(page) - offset / page;
        }
        ring.flush().map_err(failed)?;
        Ok(pages)
    }
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
