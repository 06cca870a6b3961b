//! The file allocation table of a volume in use.
//!
//! Owns: which clusters a name leads to and which are free; changes as whole sectors, in every copy of the table.
//! Does not: trust the free count of FSInfo, which it sets to "unknown" with the first change.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

use super::read::{Reader, parse_dir};
use super::{CHAIN_END, ENTRY_MASK, Error, FIRST_CLUSTER};
use crate::field::{bytes, le16, le32, put};
use crate::{Extent, ReadAt, Step};

/// Upper end of a chain, as it is written.
const LAST: u32 = 0x0FFF_FFFF;

/// Entry of a cluster that the medium cannot hold.
const BAD: u32 = 0x0FFF_FFF7;

/// The whole table in memory: 512 KiB for a volume of 512 MiB.
pub(super) struct Table {
    entries: Vec<u8>,
    /// Sectors, counted from the table's start, that some copy on the volume does not have like this.
    changed: BTreeSet<usize>,
    /// Whether any sector ever did.
    touched: bool,
    clusters: u32,
    sector: usize,
    offsets: Vec<u64>,
    cluster_bytes: u64,
    data_offset: u64,
}

impl Table {
    /// Reads the table and frees what no name leads to.
    pub(super) fn read<R: ReadAt>(reader: &mut Reader<R>) -> Result<Self, Error> {
        let length = usize::try_from(reader.fat_bytes).map_err(|_| Error::NotFat32)?;
        let mut entries = vec![0; length];
        reader.volume.read_at(reader.fat_offset, &mut entries).map_err(Error::Read)?;
        let copies = 0..reader.fats;
        let mut table = Self {
            entries,
            changed: BTreeSet::new(),
            touched: false,
            clusters: reader.clusters,
            sector: usize::try_from(reader.sector_bytes).map_err(|_| Error::NotFat32)?,
            offsets: copies.map(|copy| reader.fat_offset + copy * reader.fat_bytes).collect(),
            cluster_bytes: reader.cluster_bytes,
            data_offset: reader.data_offset,
        };
        table.compare_copies(reader)?;
        let used = table.used(reader)?;
        for (cluster, used) in (FIRST_CLUSTER..).zip(used) {
            if !used && !matches!(table.get(cluster), 0 | BAD) {
                table.set(cluster, 0);
            }
        }
        Ok(table)
    }

    /// Has the next change write what the other copies say differently: the first one counts.
    fn compare_copies<R: ReadAt>(&mut self, reader: &mut Reader<R>) -> Result<(), Error> {
        let mut copy = vec![0; self.entries.len()];
        for offset in self.offsets.iter().skip(1) {
            reader.volume.read_at(*offset, &mut copy).map_err(Error::Read)?;
            let pairs = self.entries.chunks(self.sector).zip(copy.chunks(self.sector)).enumerate();
            self.changed.extend(pairs.filter(|(_, (first, other))| first != other).map(|(sector, _)| sector));
        }
        Ok(())
    }

    /// Clusters for so many bytes, chained; in one piece where there is room for that.
    pub(super) fn allocate(&mut self, bytes: u64) -> Result<Vec<u32>, Error> {
        let wanted = usize::try_from(bytes.div_ceil(self.cluster_bytes)).unwrap_or(usize::MAX);
        let all = FIRST_CLUSTER..FIRST_CLUSTER.saturating_add(self.clusters);
        let free: Vec<u32> = all.filter(|cluster| self.get(*cluster) == 0).collect();
        if free.len() < wanted {
            return Err(Error::Full(free.len() as u64 * self.cluster_bytes));
        }
        let mut runs = free.chunk_by(|a, b| a.checked_add(1) == Some(*b));
        let whole = runs.find(|run| run.len() >= wanted).unwrap_or(&free);
        let chain = whole.get(..wanted).unwrap_or(&[]).to_vec();
        for (index, cluster) in chain.iter().enumerate() {
            self.set(*cluster, chain.get(index + 1).copied().unwrap_or(LAST));
        }
        Ok(chain)
    }

    /// Frees a chain.
    pub(super) fn free(&mut self, first: u32) -> Result<(), Error> {
        for cluster in self.chain(first)? {
            self.set(cluster, 0);
        }
        Ok(())
    }

    /// Lets `last`, the end of a chain, be followed by `next`.
    pub(super) fn link(&mut self, last: u32, next: u32) {
        self.set(last, next);
    }

    /// The sectors that changed since this was asked last, for every copy of the table.
    pub(super) fn changes(&mut self) -> Step<'static> {
        let changed = core::mem::take(&mut self.changed);
        let mut step = Vec::new();
        for offset in &self.offsets {
            for at in changed.iter().map(|sector| sector * self.sector) {
                let bytes = self.entries.get(at..at + self.sector).unwrap_or(&[]).to_vec();
                step.push(Extent::new(offset + at as u64, bytes));
            }
        }
        step
    }

    /// FSInfo without a free count, unless nothing changed or it has none: a count that a power cut leaves wrong is
    /// worse than none.
    pub(super) fn forget_free_count<R: ReadAt>(
        &self,
        reader: &mut Reader<R>,
    ) -> Result<Option<Extent<'static>>, Error> {
        if !self.touched {
            return Ok(None);
        }
        let mut boot = [0; 512];
        reader.volume.read_at(0, &mut boot).map_err(Error::Read)?;
        let Some(place) = le16(&boot, 48).filter(|sector| !matches!(sector, 0 | 0xFFFF)) else {
            return Ok(None);
        };
        let offset = u64::from(place) * reader.sector_bytes;
        let mut info = vec![0; self.sector];
        reader.volume.read_at(offset, &mut info).map_err(Error::Read)?;
        let unknown = bytes(&info, 488, 8) == Some(&[0xFF; 8]);
        if unknown || bytes(&info, 0, 4) != Some(b"RRaA") || bytes(&info, 484, 4) != Some(b"rrAa") {
            return Ok(None);
        }
        put(&mut info, 488, &[0xFF; 8]);
        Ok(Some(Extent::new(offset, info)))
    }

    /// Where a cluster lies, in bytes from the volume's start.
    pub(super) fn cluster_offset(&self, cluster: u32) -> u64 {
        self.data_offset + u64::from(cluster.saturating_sub(FIRST_CLUSTER)) * self.cluster_bytes
    }

    /// For every cluster whether a name leads to it.
    fn used<R: ReadAt>(&self, reader: &mut Reader<R>) -> Result<Vec<bool>, Error> {
        let mut used = vec![false; usize::try_from(self.clusters).map_err(|_| Error::NotFat32)?];
        let mut starts = BTreeSet::new();
        let mut directories = vec![reader.root];
        self.mark(reader.root, &mut starts, &mut used)?;
        while let Some(directory) = directories.pop() {
            for entry in parse_dir(&reader.dir_bytes(directory)?.1) {
                if entry.cluster == 0 {
                    continue;
                }
                // An interrupted renaming leaves two names for one chain.
                if self.mark(entry.cluster, &mut starts, &mut used)? && entry.is_dir {
                    directories.push(entry.cluster);
                }
            }
        }
        Ok(used)
    }

    /// Marks a chain as used; `false` if it was already known by its start.
    fn mark(&self, first: u32, starts: &mut BTreeSet<u32>, used: &mut [bool]) -> Result<bool, Error> {
        if !starts.insert(first) {
            return Ok(false);
        }
        for cluster in self.chain(first)? {
            match used.get_mut((cluster - FIRST_CLUSTER) as usize) {
                Some(used) if !*used => *used = true,
                _ => return Err(Error::BadChain(first)),
            }
        }
        Ok(true)
    }

    /// The clusters of a chain.
    fn chain(&self, first: u32) -> Result<Vec<u32>, Error> {
        let mut chain = Vec::new();
        let mut next = first;
        while next < CHAIN_END {
            let inside = next.checked_sub(FIRST_CLUSTER).is_some_and(|index| index < self.clusters);
            if !inside || chain.len() >= self.clusters as usize {
                return Err(Error::BadChain(first));
            }
            chain.push(next);
            next = self.get(next);
        }
        Ok(chain)
    }

    fn get(&self, cluster: u32) -> u32 {
        le32(&self.entries, cluster as usize * 4).unwrap_or(LAST) & ENTRY_MASK
    }

    /// Sets an entry; its upper four bits are not ours.
    fn set(&mut self, cluster: u32, value: u32) {
        let at = cluster as usize * 4;
        let kept = le32(&self.entries, at).unwrap_or(0) & !ENTRY_MASK;
        put(&mut self.entries, at, &(kept | value).to_le_bytes());
        self.changed.insert(at / self.sector);
        self.touched = true;
    }
}
