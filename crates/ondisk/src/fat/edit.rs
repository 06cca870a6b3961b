//! Single files of a volume that is in use: added, renamed, removed.
//!
//! Owns: the order of writes. Whatever step a power cut falls into, and however many of its writes it lets through,
//! every file is there under its old name or its new one, whole; free slots at a directory's end ([`SPARE_SLOTS`]).
//! Does not: write anything itself; make directories; replace what a file holds (add it under another name, then rename).
//! Order: content and its chain go to free clusters, then one sector of the directory names them; a name goes before
//! its clusters become free. Clusters that no name leads to, as an interrupted change leaves them, count as free.
//! Fails by: refusing a volume whose chains cross or leave it; repairing is fsck's affair.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::name::{self, ShortName};
use super::read::{DirEntry, Reader, find, parse_dir};
use super::table::Table;
use super::{Error, MAX_DIR_BYTES, SLOT_BYTES, attribute};
use crate::field::put;
use crate::{Extent, ReadAt, Step};

/// First byte of a slot that is free, with others behind it.
const DELETED: u8 = 0xE5;

/// First byte of a slot behind which nothing follows.
const END: u8 = 0;

/// Free slots at the end of a directory, for firmware.
///
/// EDK2 renames by appending the new set; free slots between others it leaves alone. Where there is no room it makes the
/// directory longer, and a power cut in the middle of that can lead the directory to a cluster that is free, whereupon
/// firmware finds nothing in it. Nobody can repair this before the loader runs, so there is always room: three starts
/// on trial append three sets of three slots, and this is three times that.
/// Source: edk2 FatPkg/EnhancedFatDxe, `FatNewEntryPos`, `FatGrowEof`, `FatPhysicalDirSize`.
pub(super) const SPARE_SLOTS: usize = 32;

impl<R: ReadAt> Reader<R> {
    /// The steps that add a file to a directory that is there. Case of names does not matter.
    pub fn add<'a>(&mut self, path: &str, content: &'a [u8]) -> Result<Vec<Step<'a>>, Error> {
        let (mut dir, name) = self.directory_of(path)?;
        if find(&dir.entries(), name).is_some() {
            return Err(Error::Conflict(path.into()));
        }
        let bytes = u32::try_from(content.len()).map_err(|_| Error::TooLarge(path.into()))?;
        let mut table = Table::read(self)?;
        // Where the content begins is not known yet, but how many slots there are.
        let slots = dir.new_set(name, 0, bytes, None, path)?.len() / SLOT_BYTES;
        let mut steps = dir.clean();
        steps.extend(dir.lengthen(slots, &mut table)?);
        let chain = table.allocate(content.len() as u64)?;
        let set = dir.new_set(name, chain.first().copied().unwrap_or(0), bytes, None, path)?;
        let placed = dir.place(&set, path)?;
        let mut prepare = self.content_extents(&chain, content);
        prepare.extend(placed.before);
        prepare.extend(table.changes());
        steps.extend([prepare, vec![placed.naming]]);
        steps[0].extend(table.forget_free_count(self)?);
        Ok(steps)
    }

    /// The steps that give a file another name in its directory: one write of one sector, where its set lies in one.
    ///
    /// Else it has both names for a moment; the same call again ends a renaming that was cut off there.
    pub fn rename<'a>(&mut self, path: &str, to: &str) -> Result<Vec<Step<'a>>, Error> {
        let (mut dir, name) = self.directory_of(path)?;
        let entries = dir.entries();
        let old = find(&entries, name).ok_or_else(|| Error::NotFound(path.into()))?.clone();
        if old.is_dir {
            return Err(Error::WrongKind(path.into()));
        }
        if let Some(other) = find(&entries, to).filter(|other| other.slots != old.slots) {
            // Both names for one chain: an earlier renaming was cut off, all that is left is the old name.
            let begun = other.cluster == old.cluster && old.bytes > 0;
            return if begun { Ok(dir.delete(&old.slots)) } else { Err(Error::Conflict(to.into())) };
        }
        let set = dir.new_set(to, old.cluster, old.bytes, Some(&old), to)?;
        let mut steps = dir.clean();
        let slots = set.len() / SLOT_BYTES;
        if dir.lacks_room(slots) {
            let mut table = Table::read(self)?;
            let mut longer = dir.lengthen(slots, &mut table)?;
            if let Some(first) = longer.first_mut() {
                first.extend(table.forget_free_count(self)?);
            }
            steps.extend(longer);
        }
        if let Some(sector) = dir.rename_within_sector(&old.slots, &set) {
            steps.push(vec![sector]);
            return Ok(steps);
        }
        // Both names for a moment, never none.
        let placed = dir.place(&set, to)?;
        steps.extend([placed.before, vec![placed.naming]]);
        steps.retain(|step| !step.is_empty());
        steps.extend(dir.delete(&old.slots));
        Ok(steps)
    }

    /// The steps that remove a file.
    pub fn remove<'a>(&mut self, path: &str) -> Result<Vec<Step<'a>>, Error> {
        let (mut dir, name) = self.directory_of(path)?;
        let entries = dir.entries();
        let old = find(&entries, name).ok_or_else(|| Error::NotFound(path.into()))?.clone();
        if old.is_dir {
            return Err(Error::WrongKind(path.into()));
        }
        let mut steps = dir.delete(&old.slots);
        let shared = entries.iter().any(|other| other.cluster == old.cluster && other.slots != old.slots);
        if old.bytes > 0 && !shared {
            let mut table = Table::read(self)?;
            table.free(old.cluster)?;
            let mut step = table.changes();
            step.extend(table.forget_free_count(self)?);
            steps.push(step);
        }
        Ok(steps)
    }

    /// The directory that a path names a file in, and the file's own name.
    fn directory_of<'p>(&mut self, path: &'p str) -> Result<(Directory, &'p str), Error> {
        let path = path.trim_matches('/');
        let (parent, last) = path.rsplit_once('/').unwrap_or(("", path));
        let mut first = self.root;
        for part in parent.split('/').filter(|part| !part.is_empty()) {
            let (_, bytes) = self.dir_bytes(first)?;
            let entries = parse_dir(&bytes);
            let entry = find(&entries, part).ok_or_else(|| Error::NotFound(parent.into()))?;
            if !entry.is_dir {
                return Err(Error::WrongKind(parent.into()));
            }
            first = entry.cluster;
        }
        let (clusters, bytes) = self.dir_bytes(first)?;
        let places = clusters.iter().map(|cluster| self.cluster_offset(*cluster)).collect();
        let sector = usize::try_from(self.sector_bytes).map_err(|_| Error::NotFat32)?;
        let cluster_bytes = usize::try_from(self.cluster_bytes).map_err(|_| Error::NotFat32)?;
        Ok((
            Directory { clusters, places, bytes, sector, cluster_bytes, stale: Vec::new() }
                .ending_at_its_mark(),
            last,
        ))
    }

    /// Where a cluster lies, in bytes from the volume's start.
    pub(super) fn cluster_offset(&self, cluster: u32) -> u64 {
        self.data_offset + u64::from(cluster.saturating_sub(super::FIRST_CLUSTER)) * self.cluster_bytes
    }

    /// A file's content in its clusters, neighbours in one piece.
    fn content_extents<'a>(&self, chain: &[u32], content: &'a [u8]) -> Vec<Extent<'a>> {
        let mut extents = Vec::new();
        let mut rest = content;
        for run in chain.chunk_by(|a, b| a.checked_add(1) == Some(*b)) {
            let length = self.cluster_bytes.saturating_mul(run.len() as u64);
            let length = usize::try_from(length).unwrap_or(usize::MAX).min(rest.len());
            let (piece, behind) = rest.split_at(length);
            if let Some(first) = run.first() {
                extents.push(Extent::new(self.cluster_offset(*first), piece));
            }
            rest = behind;
        }
        extents
    }
}

/// A directory in memory, as it is changed.
struct Directory {
    clusters: Vec<u32>,
    /// Where each cluster lies on the volume.
    places: Vec<u64>,
    bytes: Vec<u8>,
    sector: usize,
    cluster_bytes: usize,
    /// Sectors with something behind the end mark on the volume, which are zeros here.
    stale: Vec<usize>,
}

/// Where a new entry set goes.
struct Placed {
    /// Writes that show nothing yet.
    before: Step<'static>,
    /// The one sector that makes the set appear.
    naming: Extent<'static>,
}

impl Directory {
    /// Nothing behind the end mark is an entry: what would become one when the end moves is told apart.
    fn ending_at_its_mark(mut self) -> Self {
        let end = self.end() * SLOT_BYTES;
        let unused = self.bytes.get_mut(end..).unwrap_or_default();
        let marks = unused.iter().enumerate().filter(|(_, byte)| **byte != 0);
        self.stale = marks.map(|(at, _)| (end + at) / self.sector).collect();
        self.stale.dedup();
        unused.fill(0);
        self
    }

    /// The steps before an end that moves: zeros behind it.
    fn clean(&mut self) -> Vec<Step<'static>> {
        let stale = core::mem::take(&mut self.stale);
        let step: Step<'static> =
            stale.into_iter().map(|sector| self.sector_of(sector * self.slots_per_sector())).collect();
        if step.is_empty() { Vec::new() } else { vec![step] }
    }

    fn entries(&self) -> Vec<DirEntry> {
        parse_dir(&self.bytes)
    }

    /// The slots of a file's set; its short name differs from all others but `replaced`'s.
    fn new_set(
        &self,
        name: &str,
        cluster: u32,
        bytes: u32,
        replaced: Option<&DirEntry>,
        path: &str,
    ) -> Result<Vec<u8>, Error> {
        if !name::is_possible(name, self.slots_per_sector()) || matches!(name, "." | "..") {
            return Err(Error::Path(path.into()));
        }
        let taken: Vec<ShortName> = self
            .entries()
            .iter()
            .filter(|entry| replaced.is_none_or(|replaced| entry.slots != replaced.slots))
            .filter_map(|entry| self.slot(entry.slots.end.checked_sub(1)?)?.get(..11)?.try_into().ok())
            .collect();
        let exact = name::exact_short(name).filter(|short| !taken.contains(short));
        let mut set = Vec::new();
        let short = match exact {
            Some(short) => short,
            None => {
                let short = name::make_short(name, &taken).ok_or_else(|| Error::DirFull(path.into()))?;
                set = name::long_slots(name, &short);
                short
            }
        };
        set.extend(name::short_slot(&short, attribute::ARCHIVE, cluster, bytes));
        Ok(set)
    }

    /// How many slots the directory must have for a set of so many, and for firmware behind it.
    fn slots_for(&self, set: usize) -> usize {
        self.end().max(self.room(set) + set) + SPARE_SLOTS
    }

    fn lacks_room(&self, set: usize) -> bool {
        self.slots() < self.slots_for(set)
    }

    /// The steps that add clusters of free slots to a directory that has no room for a set and for firmware: they are
    /// chained to each other first, then one sector of the table links them to the directory.
    ///
    /// Where the volume or the directory cannot have more, the set itself comes first.
    fn lengthen(&mut self, set: usize, table: &mut Table) -> Result<Vec<Step<'static>>, Error> {
        let missing = self.slots_for(set).saturating_sub(self.slots()) * SLOT_BYTES;
        let fits = self.room(set) + set <= self.slots();
        if missing == 0 || self.bytes.len() + missing > MAX_DIR_BYTES {
            return Ok(Vec::new());
        }
        let new = match table.allocate(missing as u64) {
            Err(Error::Full(_)) if fits => return Ok(Vec::new()),
            new => new?,
        };
        let (Some(last), Some(first)) = (self.clusters.last().copied(), new.first().copied()) else {
            return Ok(Vec::new());
        };
        let mut prepare: Step<'static> = Vec::new();
        for cluster in &new {
            let place = table.cluster_offset(*cluster);
            prepare.push(Extent::new(place, vec![0; self.cluster_bytes]));
            self.places.push(place);
        }
        self.bytes.resize(self.bytes.len() + new.len() * self.cluster_bytes, 0);
        self.clusters.extend(new);
        prepare.extend(table.changes());
        table.link(last, first);
        Ok(vec![prepare, table.changes()])
    }

    /// Where a set of so many slots goes: into a sector that has enough free ones in a row, else behind the last entry,
    /// which may be behind the directory.
    fn room(&self, set: usize) -> usize {
        let end = self.end();
        let mut sectors = (0..self.slots().div_ceil(self.slots_per_sector()))
            .filter(|sector| sector * self.slots_per_sector() < end);
        let gap = sectors.find_map(|sector| self.gap(sector, set));
        gap.unwrap_or_else(|| end.next_multiple_of(self.slots_per_sector()))
    }

    fn place(&mut self, set: &[u8], path: &str) -> Result<Placed, Error> {
        let start = self.room(set.len() / SLOT_BYTES);
        if start * SLOT_BYTES + set.len() > self.bytes.len() {
            return Err(Error::DirFull(path.into()));
        }
        // Slots up to the next sector become free ones, which shows nothing: that sector begins with an end mark.
        let end = self.end();
        let own = start / self.slots_per_sector() * self.slots_per_sector();
        let filled = end < own;
        self.fill_up_to(start);
        put(&mut self.bytes, start * SLOT_BYTES, set);
        let before = if filled { vec![self.sector_of(end)] } else { Vec::new() };
        Ok(Placed { before, naming: self.sector_of(start) })
    }

    /// The one sector with the old set gone and the new one there, if both fit.
    fn rename_within_sector(&mut self, old: &Range<usize>, set: &[u8]) -> Option<Extent<'static>> {
        let per_sector = self.slots_per_sector();
        let sector = old.start / per_sector;
        if old.end.checked_sub(1)? / per_sector != sector {
            return None;
        }
        let before = self.bytes.clone();
        self.mark_deleted(old);
        let Some(start) = self.gap(sector, set.len() / SLOT_BYTES) else {
            self.bytes = before;
            return None;
        };
        self.fill_up_to(start);
        put(&mut self.bytes, start * SLOT_BYTES, set);
        Some(self.sector_of(start))
    }

    /// Marks a set as deleted: the sector with the short entry first, for it alone makes the file.
    fn delete(&mut self, set: &Range<usize>) -> Vec<Step<'static>> {
        self.mark_deleted(set);
        let per_sector = self.slots_per_sector();
        let mut sectors: Vec<usize> = set.clone().map(|slot| slot / per_sector).collect();
        sectors.dedup();
        sectors.iter().rev().map(|sector| vec![self.sector_of(sector * per_sector)]).collect()
    }

    fn mark_deleted(&mut self, slots: &Range<usize>) {
        for slot in slots.clone() {
            put(&mut self.bytes, slot * SLOT_BYTES, &[DELETED]);
        }
    }

    /// The first of `wanted` slots in a row that are free, within one sector.
    fn gap(&self, sector: usize, wanted: usize) -> Option<usize> {
        let (per_sector, end) = (self.slots_per_sector(), self.end());
        let first = sector * per_sector;
        let is_free =
            |slot: usize| slot >= end || self.slot(slot).is_some_and(|s| s.first() == Some(&DELETED));
        (first..(first + per_sector + 1).checked_sub(wanted)?)
            .find(|start| (*start..start + wanted).all(is_free))
    }

    /// Makes free what lies unused before a slot: an end mark there would hide it.
    fn fill_up_to(&mut self, slot: usize) {
        for unused in self.end()..slot {
            put(&mut self.bytes, unused * SLOT_BYTES, &[0; SLOT_BYTES]);
            put(&mut self.bytes, unused * SLOT_BYTES, &[DELETED]);
        }
    }

    fn slots(&self) -> usize {
        self.bytes.len() / SLOT_BYTES
    }

    /// The first slot behind the last entry.
    fn end(&self) -> usize {
        let is_end = |slot: &usize| self.slot(*slot).is_some_and(|slot| slot.first() == Some(&END));
        (0..self.slots()).find(is_end).unwrap_or(self.slots())
    }

    fn slot(&self, index: usize) -> Option<&[u8]> {
        self.bytes.get(index * SLOT_BYTES..(index + 1) * SLOT_BYTES)
    }

    fn slots_per_sector(&self) -> usize {
        self.sector / SLOT_BYTES
    }

    /// The sector that a slot lies in, as it is now.
    fn sector_of(&self, slot: usize) -> Extent<'static> {
        let at = slot * SLOT_BYTES / self.sector * self.sector;
        let place = self.places.get(at / self.cluster_bytes).copied().unwrap_or(0);
        let bytes = self.bytes.get(at..at + self.sector).unwrap_or(&[]).to_vec();
        Extent::new(place + (at % self.cluster_bytes) as u64, bytes)
    }
}

#[cfg(test)]
mod tests;
