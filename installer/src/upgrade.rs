//! Upgrade, blessing and rollback of an installed node.
//!
//! Owns: which writes make a new system bootable, in which order, and what is never written: the slot and the entry
//! of the running system.
//! Does not: fetch images; decide when a system has proved itself; restart.
//! Order of an upgrade: what boots the other slot goes; the slot is written and proved; the new UKI appears, on trial.
//! A power cut before the last step leaves the running system alone, one after it tries the new system.

use ondisk::gpt::Table;
use ondisk::manifest::RootManifest;

use crate::device::{BlockDevice, Part};
use crate::entries::Entry;
use crate::esp::Esp;
use crate::{Error, Progress, slot};

/// One of the two root slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// `ROOT-A`
    A,
    /// `ROOT-B`
    B,
}

/// An installed disk.
#[derive(Debug)]
pub struct Installed<'d, D: ?Sized> {
    /// The whole disk.
    pub disk: &'d mut D,
    /// Its partitions.
    pub table: Table,
}

/// What runs now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Running {
    /// Its slot.
    pub slot: Slot,
    /// Its UKI.
    pub entry: Entry,
}

/// A system to install.
#[derive(Debug, Clone, Copy)]
pub struct NewSystem<'s> {
    /// Its UKI, which carries the manifest.
    pub uki: &'s [u8],
    /// Its layers.
    pub manifest: &'s RootManifest,
}

impl Slot {
    /// The name of its partition.
    #[must_use]
    pub fn partition(self) -> &'static str {
        match self {
            Self::A => "ROOT-A",
            Self::B => "ROOT-B",
        }
    }

    /// The other one.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

impl<D: BlockDevice + ?Sized> Installed<'_, D> {
    /// The entry that the next upgrade will have.
    pub fn next_entry(&mut self) -> Result<Entry, Error> {
        self.esp()?.new_trial()
    }

    /// Puts a system into the slot that does not run and lets the loader try it. Returns its entry.
    pub fn upgrade(
        &mut self,
        running: Running,
        new: NewSystem<'_>,
        source: &mut slot::Source<'_>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Entry, Error> {
        if running.entry.trial.is_some() {
            return Err(Error::OnTrial { name: running.entry.to_string() });
        }
        let entries = self.esp()?.entries()?;
        let entry = self.esp()?.new_trial()?;
        self.esp()?.check(new.uki)?;
        let target = self.part(running.slot.other().partition())?;
        slot::check_room(&target, new.manifest)?;
        for other in entries.into_iter().filter(|other| *other != running.entry) {
            self.esp()?.remove(other)?;
        }
        slot::write(&mut self.part(running.slot.other().partition())?, new.manifest, source, progress)?;
        self.esp()?.add(entry, new.uki, progress)?;
        self.disk.acknowledge("upgrade");
        Ok(entry)
    }

    /// Keeps the running system. Nothing happens when it was kept before.
    pub fn bless(&mut self, running: Entry) -> Result<Entry, Error> {
        let blessed = running.blessed();
        if blessed != running {
            self.esp()?.rename(running, blessed)?;
        }
        self.disk.acknowledge("bless");
        Ok(blessed)
    }

    /// Has the loader start the other system from now on. Returns its entry.
    pub fn roll_back(&mut self, running: Entry) -> Result<Entry, Error> {
        let entries = self.esp()?.entries()?;
        let mut others = entries.iter().filter(|entry| **entry != running && !entry.is_exhausted());
        let other = *others.next().ok_or(Error::NothingToRollBackTo)?;
        let next = other.rolled_back_to(&entries).ok_or(Error::NoGeneration)?;
        self.esp()?.rename(other, next)?;
        self.disk.acknowledge("rollback");
        Ok(next)
    }

    fn esp(&mut self) -> Result<Esp<'_, D>, Error> {
        let (start, length) = self.place("EFI")?;
        Ok(Esp::new(self.disk, start, length))
    }

    fn part(&mut self, name: &'static str) -> Result<Part<'_, D>, Error> {
        let (start, length) = self.place(name)?;
        Ok(Part::new(self.disk, start, length))
    }

    fn place(&self, name: &'static str) -> Result<(u64, u64), Error> {
        let partition = self.table.by_name(name).ok_or(Error::NoPartition { name })?;
        Ok((self.table.offset_bytes(partition), self.table.size_bytes(partition)))
    }
}

#[cfg(test)]
mod fault_tests;
#[cfg(test)]
mod tests;
