//! Reading a FAT32 volume: directories and whole files.
//!
//! Owns: following chains that may be damaged; every walk is bounded by the number of clusters.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::{
    CHAIN_END, CLUSTERS, ENTRY_MASK, Error, FIRST_CLUSTER, MAX_DIR_BYTES, SLOT_BYTES, attribute, name,
};
use crate::ReadAt;
use crate::field::{le16, le32, u8_at};

/// What a directory holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// The long name, or the short one where there is none.
    pub name: String,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// Length of a file in bytes.
    pub bytes: u32,
    pub(super) cluster: u32,
    /// The slots of its set, counted from the directory's start.
    pub(super) slots: Range<usize>,
}

/// An opened volume.
#[derive(Debug)]
pub struct Reader<R> {
    pub(super) volume: R,
    pub(super) sector_bytes: u64,
    pub(super) cluster_bytes: u64,
    pub(super) fat_offset: u64,
    pub(super) fat_bytes: u64,
    pub(super) fats: u64,
    pub(super) data_offset: u64,
    pub(super) clusters: u32,
    pub(super) root: u32,
}

impl<R: ReadAt> Reader<R> {
    /// Reads the boot sector.
    pub fn open(mut volume: R) -> Result<Self, Error> {
        let mut boot = [0; 512];
        volume.read_at(0, &mut boot).map_err(Error::Read)?;
        Self::from_boot(volume, &boot).ok_or(Error::NotFat32)
    }

    fn from_boot(volume: R, boot: &[u8]) -> Option<Self> {
        super::identify(boot)?;
        let sector_bytes = u64::from(le16(boot, 11)?);
        let cluster_sectors = u64::from(u8_at(boot, 13)?);
        let reserved = u64::from(le16(boot, 14)?);
        let fats = u64::from(u8_at(boot, 16)?);
        let fat_sectors = u64::from(le32(boot, 36)?);
        let data = reserved + fats * fat_sectors;
        let clusters = u64::from(le32(boot, 32)?).checked_sub(data)? / cluster_sectors;
        let entries = (fat_sectors * sector_bytes / 4).checked_sub(u64::from(FIRST_CLUSTER))?;
        // Sixteen-bit FATs have their length elsewhere.
        let fat32 = le16(boot, 22)? == 0 && clusters < CLUSTERS.end && clusters <= entries;
        fat32.then_some(Self {
            volume,
            sector_bytes,
            cluster_bytes: cluster_sectors * sector_bytes,
            fat_offset: reserved * sector_bytes,
            fat_bytes: fat_sectors * sector_bytes,
            fats,
            data_offset: data * sector_bytes,
            clusters: u32::try_from(clusters).ok()?,
            root: le32(boot, 44)?,
        })
    }

    /// What the directory at this path holds; the empty path is the root directory. Case does not matter.
    pub fn list(&mut self, path: &str) -> Result<Vec<DirEntry>, Error> {
        let mut entries = self.dir(self.root)?;
        for part in path.split('/').filter(|part| !part.is_empty()) {
            let entry = find(&entries, part).ok_or_else(|| Error::NotFound(path.into()))?;
            if !entry.is_dir {
                return Err(Error::WrongKind(path.into()));
            }
            entries = self.dir(entry.cluster)?;
        }
        Ok(entries)
    }

    /// The content of the file at this path, if it is at most `limit` bytes long.
    pub fn read(&mut self, path: &str, limit: u32) -> Result<Vec<u8>, Error> {
        let (parent, last) = path.trim_matches('/').rsplit_once('/').unwrap_or(("", path));
        let entries = self.list(parent)?;
        let last = last.trim_matches('/');
        let entry = find(&entries, last).ok_or_else(|| Error::NotFound(path.into()))?;
        if entry.is_dir {
            return Err(Error::WrongKind(path.into()));
        }
        if entry.bytes > limit {
            return Err(Error::TooLong(u64::from(entry.bytes)));
        }
        self.content(entry)
    }

    fn content(&mut self, entry: &DirEntry) -> Result<Vec<u8>, Error> {
        let bytes = usize::try_from(entry.bytes).map_err(|_| Error::TooLong(entry.bytes.into()))?;
        let mut content = Vec::new();
        let mut next = Some(entry.cluster).filter(|_| bytes > 0);
        while content.len() < bytes {
            let cluster = next.ok_or(Error::BadChain(entry.cluster))?;
            self.append(cluster, &mut content)?;
            next = self.next(cluster)?;
        }
        content.truncate(bytes);
        Ok(content)
    }

    fn dir(&mut self, first: u32) -> Result<Vec<DirEntry>, Error> {
        self.dir_bytes(first).map(|(_, bytes)| parse_dir(&bytes))
    }

    /// The clusters of a directory and what they hold.
    pub(super) fn dir_bytes(&mut self, first: u32) -> Result<(Vec<u32>, Vec<u8>), Error> {
        let (mut clusters, mut bytes) = (Vec::new(), Vec::new());
        let mut next = Some(first);
        while let Some(cluster) = next {
            if bytes.len() >= MAX_DIR_BYTES {
                return Err(Error::BadChain(first));
            }
            self.append(cluster, &mut bytes)?;
            clusters.push(cluster);
            next = self.next(cluster)?;
        }
        Ok((clusters, bytes))
    }

    fn append(&mut self, cluster: u32, to: &mut Vec<u8>) -> Result<(), Error> {
        let index = cluster.checked_sub(FIRST_CLUSTER).filter(|index| *index < self.clusters);
        let index = index.ok_or(Error::BadChain(cluster))?;
        let mut bytes = vec![0; usize::try_from(self.cluster_bytes).map_err(|_| Error::NotFat32)?];
        let offset = self.data_offset + u64::from(index) * self.cluster_bytes;
        self.volume.read_at(offset, &mut bytes).map_err(Error::Read)?;
        to.append(&mut bytes);
        Ok(())
    }

    /// The cluster behind this one; `None` at the end of the chain.
    fn next(&mut self, cluster: u32) -> Result<Option<u32>, Error> {
        let mut entry = [0; 4];
        let offset = self.fat_offset + u64::from(cluster) * 4;
        self.volume.read_at(offset, &mut entry).map_err(Error::Read)?;
        match u32::from_le_bytes(entry) & ENTRY_MASK {
            next if next >= CHAIN_END => Ok(None),
            next if next < FIRST_CLUSTER => Err(Error::BadChain(cluster)),
            next => Ok(Some(next)),
        }
    }

    /// Length of a sector of the volume in bytes.
    #[must_use]
    pub fn sector_bytes(&self) -> u64 {
        self.sector_bytes
    }
}

pub(super) fn find<'e>(entries: &'e [DirEntry], name: &str) -> Option<&'e DirEntry> {
    let wanted = name.to_lowercase();
    entries.iter().find(|entry| entry.name.to_lowercase() == wanted)
}

/// The pieces of a long name as they come, last one first.
#[derive(Default)]
struct LongName {
    /// Slot of the first piece.
    start: usize,
    /// Number of the piece that must come next, or 0.
    expected: u8,
    checksum: u8,
    units: Vec<u16>,
}

impl LongName {
    fn push(&mut self, index: usize, slot: &[u8]) {
        let (number, checksum) = (u8_at(slot, 0).unwrap_or(0), u8_at(slot, 13).unwrap_or(0));
        if number & 0x40 != 0 {
            *self = Self { start: index, expected: number & 0x3F, checksum, units: Vec::new() };
        }
        if self.expected == 0 || number & 0x3F != self.expected || checksum != self.checksum {
            *self = Self::default();
            return;
        }
        let mut units: Vec<_> = name::UNIT_OFFSETS.iter().filter_map(|at| le16(slot, *at)).collect();
        units.append(&mut self.units);
        self.units = units;
        self.expected -= 1;
    }

    /// The name and its first slot, if all pieces came and belong to this short entry.
    fn take(&mut self, short: &[u8]) -> Option<(usize, String)> {
        let long = core::mem::take(self);
        let whole = long.expected == 0 && !long.units.is_empty() && name::checksum(short) == long.checksum;
        let units = long.units.into_iter().take_while(|unit| *unit != 0);
        let letters = char::decode_utf16(units).map(|letter| letter.unwrap_or(char::REPLACEMENT_CHARACTER));
        whole.then(|| (long.start, letters.collect()))
    }
}

pub(super) fn parse_dir(bytes: &[u8]) -> Vec<DirEntry> {
    let mut long = LongName::default();
    let slots = bytes.chunks_exact(SLOT_BYTES).take_while(|slot| slot.first() != Some(&0));
    slots.enumerate().filter_map(|(index, slot)| parse_slot(index, slot, &mut long)).collect()
}

fn parse_slot(index: usize, slot: &[u8], long: &mut LongName) -> Option<DirEntry> {
    let kind = u8_at(slot, 11)? & 0x3F;
    if slot.first() == Some(&0xE5) {
        *long = LongName::default();
        return None;
    }
    if kind == attribute::LONG_NAME {
        long.push(index, slot);
        return None;
    }
    let short = slot.get(..11)?;
    let (start, name) =
        long.take(short).unwrap_or_else(|| (index, name::unpack(short, u8_at(slot, 12).unwrap_or(0))));
    if kind & attribute::VOLUME_LABEL != 0 || matches!(name.as_str(), "." | "..") {
        return None;
    }
    let cluster = u32::from(le16(slot, 20)?) << 16 | u32::from(le16(slot, 26)?);
    let is_dir = kind & attribute::DIR != 0;
    Some(DirEntry { name, is_dir, bytes: le32(slot, 28)?, cluster, slots: start..index + 1 })
}
