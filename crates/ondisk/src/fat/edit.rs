//! Single files of a volume that is in use: added, renamed, removed.
//!
//! Owns: the order of writes. Whatever step a power cut falls into, and however many of its writes it lets through,
//! every file is there under its old name or its new one, whole.
//! Does not: write anything itself; make folders; replace what a file holds (add it under another name, then rename).
//! Order: content and its chain go to free clusters, then one sector of the folder names them; a name goes before
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

impl<R: ReadAt> Reader<R> {
    /// The steps that add a file to a folder that is there. Case of names does not matter.
    pub fn add<'a>(&mut self, path: &str, content: &'a [u8]) -> Result<Vec<Step<'a>>, Error> {
        let (mut dir, name) = self.folder_of(path)?;
        if find(&dir.entries(), name).is_some() {
            return Err(Error::Conflict(path.into()));
        }
        let bytes = u32::try_from(content.len()).map_err(|_| Error::TooLarge(path.into()))?;
        let mut table = Table::read(self)?;
        let chain = table.allocate(content.len() as u64)?;
        let set = dir.new_set(name, chain.first().copied().unwrap_or(0), bytes, None, path)?;
        let placed = dir.place(&set, &mut table, path)?;
        let mut prepare = self.content_extents(&chain, content);
        prepare.extend(placed.before);
        let mut steps = vec![prepare];
        match placed.link {
            // The new cluster holds the name already: linking it to the folder is what makes the file appear.
            Some((last, new)) => {
                steps[0].extend(table.changes());
                table.link(last, new);
                steps.push(table.changes());
            }
            None => {
                steps[0].extend(table.changes());
                steps.push(placed.naming);
            }
        }
        steps[0].extend(table.forget_free_count(self)?);
        Ok(steps)
    }

    /// The steps that give a file another name in its folder: one write of one sector, where its set lies in one.
    ///
    /// Else it has both names for a moment; the same call again ends a renaming that was cut off there.
    pub fn rename<'a>(&mut self, path: &str, to: &str) -> Result<Vec<Step<'a>>, Error> {
        let (mut dir, name) = self.folder_of(path)?;
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
        if let Some(sector) = dir.rename_within_sector(&old.slots, &set) {
            return Ok(vec![vec![sector]]);
        }
        // Both names for a moment, never none.
        let mut table = Table::read(self)?;
        let placed = dir.place(&set, &mut table, to)?;
        let mut steps = vec![placed.before];
        match placed.link {
            Some((last, new)) => {
                steps[0].extend(table.changes());
                table.link(last, new);
                steps.push(table.changes());
                steps[0].extend(table.forget_free_count(self)?);
            }
            None => steps.push(placed.naming),
        }
        steps.retain(|step| !step.is_empty());
        steps.extend(dir.delete(&old.slots));
        Ok(steps)
    }

    /// The steps that remove a file.
    pub fn remove<'a>(&mut self, path: &str) -> Result<Vec<Step<'a>>, Error> {
        let (mut dir, name) = self.folder_of(path)?;
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

    /// The folder that a path names a file in, and the file's own name.
    fn folder_of<'p>(&mut self, path: &'p str) -> Result<(Folder, &'p str), Error> {
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
        Ok((Folder { clusters, places, bytes, sector, cluster_bytes }, last))
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

/// A folder in memory, as it is changed.
struct Folder {
    clusters: Vec<u32>,
    /// Where each cluster lies on the volume.
    places: Vec<u64>,
    bytes: Vec<u8>,
    sector: usize,
    cluster_bytes: usize,
}

/// Where a new entry set goes.
struct Placed {
    /// Writes that show nothing yet.
    before: Step<'static>,
    /// The one sector that makes the set appear, unless a link does.
    naming: Step<'static>,
    /// A cluster that was added to the folder: its last one until now, and the new one.
    link: Option<(u32, u32)>,
}

impl Folder {
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

    /// Finds room for a set: in a sector that has enough free slots in a row, else behind the last entry, else in a
    /// new cluster.
    fn place(&mut self, set: &[u8], table: &mut Table, path: &str) -> Result<Placed, Error> {
        let wanted = set.len() / SLOT_BYTES;
        let end = self.end();
        let mut sectors =
            (0..self.bytes.len() / self.sector).filter(|sector| sector * self.slots_per_sector() < end);
        if let Some(start) = sectors.find_map(|sector| self.gap(sector, wanted)) {
            self.fill_up_to(start);
            put(&mut self.bytes, start * SLOT_BYTES, set);
            let naming = vec![self.sector_of(start)];
            return Ok(Placed { before: Vec::new(), naming, link: None });
        }
        let start = end.next_multiple_of(self.slots_per_sector());
        if (start + wanted) * SLOT_BYTES <= self.bytes.len() {
            return Ok(self.place_behind(start, set));
        }
        self.place_in_new_cluster(set, table, path)
    }

    /// The set goes into the sector behind the end, which nobody looks at before the end is moved.
    fn place_behind(&mut self, start: usize, set: &[u8]) -> Placed {
        let from = start * SLOT_BYTES;
        if let Some(unused) = self.bytes.get_mut(from..) {
            unused.fill(0);
        }
        put(&mut self.bytes, from, set);
        let behind: Vec<usize> = (from..self.bytes.len()).step_by(self.sector).collect();
        let sectors: Step<'static> = behind.into_iter().map(|at| self.sector_of(at / SLOT_BYTES)).collect();
        let end = self.end_before(start);
        if end == start {
            // The end lies at this sector's start: the sector itself is what shows the set. Others before it.
            let mut sectors = sectors;
            let naming = sectors.drain(..1).collect();
            return Placed { before: sectors, naming, link: None };
        }
        self.fill_up_to(start);
        Placed { before: sectors, naming: vec![self.sector_of(end)], link: None }
    }

    fn place_in_new_cluster(&mut self, set: &[u8], table: &mut Table, path: &str) -> Result<Placed, Error> {
        if self.bytes.len() + self.cluster_bytes > MAX_DIR_BYTES {
            return Err(Error::DirFull(path.into()));
        }
        let new = table.allocate(1)?.first().copied();
        let (last, new) =
            self.clusters.last().copied().zip(new).ok_or_else(|| Error::DirFull(path.into()))?;
        let mut cluster = vec![0; self.cluster_bytes];
        put(&mut cluster, 0, set);
        let mut before = vec![Extent::new(table.cluster_offset(new), cluster)];
        // Free slots at the end of the old cluster would end the folder there. Nothing follows yet, so filling them
        // shows nothing.
        let end = self.end();
        if end * SLOT_BYTES < self.bytes.len() {
            let first = end * SLOT_BYTES / self.sector * self.sector;
            self.fill_up_to(self.bytes.len() / SLOT_BYTES);
            before.extend(
                (first..self.bytes.len()).step_by(self.sector).map(|at| self.sector_of(at / SLOT_BYTES)),
            );
        }
        Ok(Placed { before, naming: Vec::new(), link: Some((last, new)) })
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

    /// The first slot behind the last entry.
    fn end(&self) -> usize {
        self.end_before(self.bytes.len() / SLOT_BYTES)
    }

    fn end_before(&self, limit: usize) -> usize {
        (0..limit).find(|slot| self.slot(*slot).is_some_and(|s| s.first() == Some(&END))).unwrap_or(limit)
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
