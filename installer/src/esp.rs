//! The EFI system partition of an installed node: the UKIs on it and the changes that choose between them.
//!
//! Owns: the names of [`crate::entries`] as files, and where there is GRUB its script for each; each change is durable when its
//! function returns.
//! Does not: decide which change is due ([`crate::upgrade`] does); mount anything.
//! Order: a script is there before the UKI that it starts, and goes after it.
//! Source: docs/formats/disk.md, docs/formats/grub.md.

use ondisk::fat::{self, Reader};

use crate::boot_volume::MAX_UKI_BYTES;
use crate::device::{BlockDevice, Part, apply};
use crate::entries::{DIRECTORY, Entry};
use crate::grub::{self, Counted};
use crate::{Error, Progress, addon};

/// Longest of GRUB's files that is read.
const MAX_GRUB_BYTES: u32 = 64 << 10;

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

    /// The UKIs of ours, in no order, with the starts that GRUB counted. Other files in the directory are left alone.
    pub fn entries(&mut self) -> Result<Vec<Entry>, Error> {
        let counted = self.counted()?.unwrap_or_default();
        Ok(self.named()?.into_iter().map(|entry| counted.applied_to(entry)).collect())
    }

    /// The entry of the next system: a number that no entry and no count has.
    pub fn new_trial(&mut self) -> Result<Entry, Error> {
        let counted = self.counted()?.unwrap_or_default().generation;
        let mut taken = self.named()?;
        taken.push(Entry { generation: counted, trial: None });
        Entry::new_trial(&taken).ok_or(Error::NoGeneration)
    }

    /// What GRUB counted; `None`: there is no GRUB on this disk.
    pub fn counted(&mut self) -> Result<Option<Counted>, Error> {
        match Reader::open(&mut self.part)?.read(grub::ENVIRONMENT_PATH, MAX_GRUB_BYTES) {
            Ok(block) => Ok(Some(Counted::read(&block))),
            Err(fat::Error::NotFound(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The content of an entry's UKI.
    pub fn read(&mut self, entry: Entry) -> Result<Vec<u8>, Error> {
        let path = self.path(entry)?;
        Ok(Reader::open(&mut self.part)?.read(&path, MAX_UKI_BYTES)?)
    }

    /// GRUB's script for an entry; `None`: there is no GRUB on this disk.
    pub fn script(&mut self, entry: Entry) -> Result<Option<Vec<u8>>, Error> {
        if self.counted()?.is_none() {
            return Ok(None);
        }
        let path = grub::script_path(entry.generation);
        Ok(Some(Reader::open(&mut self.part)?.read(&path, MAX_GRUB_BYTES)?))
    }

    /// Whether this disk can start a UKI: GRUB cannot pass every command line on, and addons may contradict it. Nothing is
    /// written.
    pub fn check(&mut self, uki: &[u8]) -> Result<(), Error> {
        if self.counted()?.is_some() {
            grub::script(uki)?;
        }
        addon::check_beside(&self.addons()?, uki)
    }

    /// The addons that the stub of every UKI takes, by name.
    pub fn addons(&mut self) -> Result<Vec<(String, Vec<u8>)>, Error> {
        addon::of_volume(&mut self.part)
    }

    /// Adds a UKI and reads it back.
    pub fn add(&mut self, entry: Entry, uki: &[u8], progress: &mut dyn FnMut(Progress)) -> Result<(), Error> {
        let total_bytes = uki.len() as u64;
        progress(Progress { step: "boot entry", done_bytes: 0, total_bytes });
        if self.counted()?.is_some() {
            self.forget_scripts()?;
            self.put(&grub::script_path(entry.generation), grub::script(uki)?.as_bytes())?;
        }
        self.put(&path(entry), uki)?;
        if self.read(entry)? != uki {
            return Err(Error::BadUki { name: entry.to_string() });
        }
        progress(Progress { step: "boot entry", done_bytes: total_bytes, total_bytes });
        Ok(())
    }

    /// Gives an entry another name.
    pub fn rename(&mut self, from: Entry, to: Entry) -> Result<(), Error> {
        let path = self.path(from)?;
        let moves = from.generation != to.generation && self.counted()?.is_some();
        if moves {
            self.forget_scripts()?;
            let script = self.script(from)?.unwrap_or_default();
            self.put(&grub::script_path(to.generation), &script)?;
        }
        let steps = Reader::open(&mut self.part)?.rename(&path, &to.to_string())?;
        apply(&mut self.part, 0, &steps)?;
        if moves { self.forget_scripts() } else { Ok(()) }
    }

    /// Removes an entry.
    pub fn remove(&mut self, entry: Entry) -> Result<(), Error> {
        let path = self.path(entry)?;
        self.take_away(&path)?;
        if self.counted()?.is_some() { self.forget_scripts() } else { Ok(()) }
    }

    /// The entries as their names alone have them.
    fn named(&mut self) -> Result<Vec<Entry>, Error> {
        let files = Reader::open(&mut self.part)?.list(DIRECTORY)?;
        Ok(files.iter().filter(|file| !file.is_dir).filter_map(|file| Entry::parse(&file.name)).collect())
    }

    /// The path of an entry's file. With GRUB's count an entry is not called as its file is, but has its number.
    fn path(&mut self, entry: Entry) -> Result<String, Error> {
        let named = self.named()?;
        let exact = named.iter().find(|named| **named == entry);
        let found = exact.or_else(|| named.iter().find(|named| named.generation == entry.generation));
        Ok(path(found.copied().unwrap_or(entry)))
    }

    /// Removes the scripts that start nothing, as a change that was cut off leaves them.
    fn forget_scripts(&mut self) -> Result<(), Error> {
        let named = self.named()?;
        let files = Reader::open(&mut self.part)?.list(grub::DIRECTORY)?;
        for generation in files.iter().filter_map(|file| grub::script_generation(&file.name)) {
            if !named.iter().any(|entry| entry.generation == generation) {
                self.take_away(&grub::script_path(generation))?;
            }
        }
        Ok(())
    }

    fn put(&mut self, path: &str, content: &[u8]) -> Result<(), Error> {
        let steps = Reader::open(&mut self.part)?.add(path, content)?;
        Ok(apply(&mut self.part, 0, &steps)?)
    }

    fn take_away(&mut self, path: &str) -> Result<(), Error> {
        let steps = Reader::open(&mut self.part)?.remove(path)?;
        Ok(apply(&mut self.part, 0, &steps)?)
    }
}

fn path(entry: Entry) -> String {
    format!("{DIRECTORY}/{entry}")
}
