//! The EFI system partition of an installed node: the UKIs on it and the changes that choose between them.
//!
//! Owns: the names of [`crate::entries`] as files; each change is durable when its function returns.
//! Does not: decide which change is due ([`crate::upgrade`] does); mount anything.
//! Source: docs/formats/disk.md.

use ondisk::fat::Reader;

use crate::device::{BlockDevice, Part, apply};
use crate::entries::{Entry, FOLDER};
use crate::{Error, Progress};

/// Longest UKI that is read: kernel and initramfs together are about 20 MB.
const MAX_UKI_BYTES: u32 = 256 << 20;

/// An EFI system partition.
#[derive(Debug)]
pub struct Esp<'d, D: ?Sized> {
    part: Part<'d, D>,
}

impl<'d, D: BlockDevice + ?Sized> Esp<'d, D> {
    /// The partition that lies at these bytes of a disk.
    pub fn new(disk: &'d mut D, start: u64, length: u64) -> Self {
        Self { part: Part::new(disk, start, length) }
    }

    /// The UKIs of ours, in no order. Other files in the folder are left alone.
    pub fn entries(&mut self) -> Result<Vec<Entry>, Error> {
        let files = Reader::open(&mut self.part)?.list(FOLDER)?;
        Ok(files.iter().filter(|file| !file.is_dir).filter_map(|file| Entry::parse(&file.name)).collect())
    }

    /// The content of an entry's UKI.
    pub fn read(&mut self, entry: Entry) -> Result<Vec<u8>, Error> {
        Ok(Reader::open(&mut self.part)?.read(&path(entry), MAX_UKI_BYTES)?)
    }

    /// Adds a UKI and reads it back.
    pub fn add(&mut self, entry: Entry, uki: &[u8], progress: &mut dyn FnMut(Progress)) -> Result<(), Error> {
        let total_bytes = uki.len() as u64;
        progress(Progress { step: "boot entry", done_bytes: 0, total_bytes });
        let steps = Reader::open(&mut self.part)?.add(&path(entry), uki)?;
        apply(&mut self.part, 0, &steps)?;
        if self.read(entry)? != uki {
            return Err(Error::BadUki { name: entry.to_string() });
        }
        progress(Progress { step: "boot entry", done_bytes: total_bytes, total_bytes });
        Ok(())
    }

    /// Gives an entry another name.
    pub fn rename(&mut self, from: Entry, to: Entry) -> Result<(), Error> {
        let steps = Reader::open(&mut self.part)?.rename(&path(from), &to.to_string())?;
        Ok(apply(&mut self.part, 0, &steps)?)
    }

    /// Removes an entry.
    pub fn remove(&mut self, entry: Entry) -> Result<(), Error> {
        let steps = Reader::open(&mut self.part)?.remove(&path(entry))?;
        Ok(apply(&mut self.part, 0, &steps)?)
    }
}

fn path(entry: Entry) -> String {
    format!("{FOLDER}/{entry}")
}
