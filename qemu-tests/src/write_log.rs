//! Every write and flush that a guest sent to a disk, and the disk that a power cut would have left.
//!
//! Owns: attaching a disk through QEMU's `blklogwrites`, reading its log, replaying a part of it.
//! Does not: know file systems.
//! Order: writes before the last flush of the replayed part are there; of each later one all, nothing or any part may
//! be, since a disk writes its cache back in an order of its own. A physical sector of 4096 bytes is old or new: ext4
//! itself needs that, whose superblock, torn between two sectors of 512, has a wrong checksum and is not mounted.
//! Fails by: the entry of the log that makes no sense.
//! Source: QEMU block/blklogwrites.c and Linux drivers/md/dm-log-writes.c (format of the log, all little-endian):
//! sector 0 u64 magic, u64 version, u64 entries, u32 sector size; an entry is a sector with u64 sector, u64 number of
//! sectors, u64 flags, and the data behind it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use installer::device::BlockDevice;
use serde_json::json;

use crate::settings::Random;
use crate::vm::VmBuilder;

const MAGIC: u64 = 0x6a_7366_7773_6872;
const SECTOR_BYTES: u64 = 512;
/// What a disk writes as one, at a multiple of its size.
const PHYSICAL_BYTES: u64 = 4096;
const FLUSH: u64 = 1;

/// One request, in the order of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    /// Bytes for the disk, which lie in the log at `data`.
    Write {
        offset: u64,
        bytes: u64,
        data: u64,
    },
    Flush,
}

/// A log, read once its VM has ended.
#[derive(Debug)]
pub struct WriteLog {
    file: File,
    /// With the place in the log.
    requests: Vec<(u64, Request)>,
}

/// Adds the disk `image` to a machine and records into `log` what the guest writes to it.
pub fn record(vm: VmBuilder, image: &Path, log: &Path) -> Result<VmBuilder> {
    File::create(log).with_context(|| format!("create {}", log.display()))?;
    let file = |path: &Path, name: &str| json!({ "driver": "file", "filename": path, "node-name": name });
    let recorder =
        json!({ "driver": "blklogwrites", "file": "rec-disk", "log": "rec-log", "node-name": "recorder" });
    let [disk, log, recorder] =
        [file(image, "rec-disk"), file(log, "rec-log"), recorder].map(|node| node.to_string());
    // Neither has a meaning for a power cut that is worth knowing; without them all that is logged is bytes.
    let device = "virtio-blk-pci,drive=recorder,write-cache=on,discard=off,write-zeroes=off";
    let words = ["-blockdev", &disk, "-blockdev", &log, "-blockdev", &recorder, "-device", device];
    Ok(vm.extra(&words))
}

/// How long a log is now: requests that come later lie behind this, requests that were answered before it.
pub fn length(log: &Path) -> Result<u64> {
    Ok(log.metadata().with_context(|| format!("size of {}", log.display()))?.len())
}

impl WriteLog {
    /// Reads a log.
    pub fn read(log: &Path) -> Result<Self> {
        let what = || format!("read the write log {}", log.display());
        let file = File::open(log).with_context(what)?;
        let end = file.metadata().with_context(what)?.len();
        ensure!(numbers::<1>(&file, 0).with_context(what)? == [MAGIC], "{} is no write log", log.display());
        let mut requests = Vec::new();
        let mut at = SECTOR_BYTES;
        while at < end {
            let [sector, sectors, flags] =
                numbers(&file, at).with_context(|| format!("{} at byte {at}", what()))?;
            let bytes = sectors * SECTOR_BYTES;
            let data = at + SECTOR_BYTES;
            let request = match flags {
                FLUSH => Request::Flush,
                0 if sectors > 0 => Request::Write { offset: sector * SECTOR_BYTES, bytes, data },
                _ => bail!("{}: an entry at byte {at} with flags {flags:#x}", what()),
            };
            // A killed QEMU may leave the last one without its data.
            if data + bytes <= end {
                requests.push((at, request));
            }
            at = data + bytes;
        }
        Ok(Self { file, requests })
    }

    /// Number of requests that lie before a place in the log.
    pub fn before(&self, place: u64) -> usize {
        self.requests.partition_point(|(at, _)| *at < place)
    }

    /// Number of all requests.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Where the first `cut` requests begin to be unsure: behind the last flush among them.
    pub fn sure(&self, cut: usize) -> usize {
        let flush = self.requests[..cut].iter().rposition(|(_, request)| *request == Request::Flush);
        flush.map_or(0, |at| at + 1)
    }

    /// The next number of requests, not below `from`, that ends before a flush.
    pub fn before_flush(&self, from: usize) -> usize {
        let behind = self.requests[from..].iter().position(|(_, request)| *request == Request::Flush);
        behind.map_or(self.len(), |more| from + more)
    }

    /// Does all of it again, on a device that was as the disk before.
    pub fn repeat(&self, device: &mut dyn BlockDevice) -> Result<()> {
        for (at, request) in &self.requests {
            let what = || format!("repeat the request at byte {at} of the log");
            match *request {
                Request::Write { offset, bytes, data } => {
                    let mut buffer = vec![0; usize::try_from(bytes).with_context(what)?];
                    self.file.read_exact_at(&mut buffer, data).with_context(what)?;
                    device.write_at(offset, &buffer).with_context(what)?;
                }
                Request::Flush => device.flush().with_context(what)?,
            }
        }
        Ok(())
    }

    /// Makes of the disk before the recording what a power cut after `cut` requests would have left. Without
    /// `random`, nothing survives that was not flushed.
    pub fn replay(&self, image: &Path, cut: usize, mut random: Option<Random>) -> Result<()> {
        let what = || format!("replay {cut} requests into {}", image.display());
        let disk = File::options().write(true).open(image).with_context(what)?;
        let sure = self.sure(cut);
        for (number, (_, request)) in self.requests[..cut].iter().enumerate() {
            let Request::Write { offset, bytes, data } = *request else { continue };
            let mut buffer = vec![0; usize::try_from(bytes).with_context(what)?];
            self.file.read_exact_at(&mut buffer, data).with_context(what)?;
            let mut survives = survivor(number < sure, random.as_mut());
            for (place, piece) in pieces(offset, &buffer) {
                if survives() {
                    disk.write_all_at(piece, place).with_context(what)?;
                }
            }
        }
        Ok(())
    }
}

/// The parts of a write by physical sector, with their places.
fn pieces(offset: u64, mut bytes: &[u8]) -> Vec<(u64, &[u8])> {
    let mut found = Vec::new();
    let mut place = offset;
    while !bytes.is_empty() {
        let room = usize::try_from(PHYSICAL_BYTES - place % PHYSICAL_BYTES).unwrap_or(usize::MAX);
        let (piece, rest) = bytes.split_at(room.min(bytes.len()));
        found.push((place, piece));
        place += PHYSICAL_BYTES - place % PHYSICAL_BYTES;
        bytes = rest;
    }
    found
}

/// Which parts of one write survive: all of it, nothing, or each at random.
fn survivor<'a>(sure: bool, random: Option<&'a mut Random>) -> Box<dyn FnMut() -> bool + 'a> {
    match random {
        _ if sure => Box::new(|| true),
        None => Box::new(|| false),
        Some(random) => match random.below(3) {
            0 => Box::new(|| false),
            1 => Box::new(|| true),
            _ => Box::new(move || random.below(2) == 0),
        },
    }
}

fn numbers<const N: usize>(file: &File, at: u64) -> std::io::Result<[u64; N]> {
    let mut found = [0; N];
    for (number, place) in found.iter_mut().zip((at..).step_by(8)) {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, place)?;
        *number = u64::from_le_bytes(bytes);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log of writes (sector, number of sectors, filled with that byte) and flushes (`None`).
    fn log(path: &Path, requests: &[Option<(u64, u64, u8)>]) {
        let sector = |numbers: &[u64]| {
            let mut bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            bytes.resize(512, 0);
            bytes
        };
        let mut bytes = sector(&[MAGIC, 1, 0, 512]);
        for request in requests {
            let (at, sectors, fill) = request.unwrap_or_default();
            bytes.extend(sector(&[at, sectors, u64::from(request.is_none())]));
            bytes.resize(bytes.len() + usize::try_from(sectors * 512).unwrap(), fill);
        }
        std::fs::write(path, bytes).unwrap();
    }

    fn replayed(log: &WriteLog, dir: &Path, cut: usize, random: Option<Random>) -> Vec<u8> {
        let image = dir.join("image");
        std::fs::write(&image, [0; 8 * 4096]).unwrap();
        log.replay(&image, cut, random).unwrap();
        std::fs::read(image).unwrap().into_iter().step_by(512).collect()
    }

    #[test]
    fn what_was_flushed_is_there_and_nothing_else_is_sure() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        log(&path, &[Some((0, 2, 1)), None, Some((1, 1, 2)), Some((4, 3, 3)), None]);
        let log = WriteLog::read(&path).unwrap();
        assert_eq!((log.len(), log.before(0), log.before(513), log.before(u64::MAX)), (5, 0, 1, 5));
        assert_eq!((log.sure(1), log.sure(4), log.sure(5)), (0, 2, 5));
        assert_eq!((log.before_flush(0), log.before_flush(2), log.before_flush(5)), (1, 4, 5));
        assert_eq!(replayed(&log, dir.path(), 1, None), [0; 64]);
        assert_eq!(replayed(&log, dir.path(), 4, None)[..8], [1, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(replayed(&log, dir.path(), 5, Some(Random::new(1)))[..8], [1, 2, 0, 0, 3, 3, 3, 0]);
    }

    #[test]
    fn unflushed_writes_survive_at_random_and_in_parts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        log(&path, &[Some((1, 60, 1))]);
        let log = WriteLog::read(&path).unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..40 {
            let disk = replayed(&log, dir.path(), 1, Some(Random::new(seed)));
            assert_eq!(disk, replayed(&log, dir.path(), 1, Some(Random::new(seed))), "a seed repeats");
            assert!(
                disk[8..56].chunks(8).all(|sector| sector.iter().all(|byte| *byte == sector[0])),
                "{disk:?}"
            );
            seen.insert(disk.iter().filter(|byte| **byte == 1).count());
        }
        assert!(seen.contains(&0) && seen.contains(&60) && seen.len() > 3, "{seen:?}");
    }

    #[test]
    fn a_request_without_its_data_did_not_happen_and_nonsense_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        log(&path, &[Some((0, 2, 1)), Some((0, 2, 2))]);
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(512 * 5).unwrap();
        assert_eq!(WriteLog::read(&path).unwrap().len(), 1);
        std::fs::write(&path, [1; 1024]).unwrap();
        assert!(WriteLog::read(&path).unwrap_err().to_string().contains("is no write log"));
    }
}
