//! Where a volume keeps what makes it readable: headers, key slots, superblocks and their backups.
//!
//! Owns: the places, worked out from what the volume's own start says.
//! Does not: say what the volume is; find a backup whose place only a start that is gone would tell.
//! Fails by: a read that failed. Fields that make no sense add no place.
//! Source: LUKS2 On-Disk Format Specification §2; fs/xfs/libxfs/xfs_format.h (`xfs_dsb`); Documentation/filesystems/ext4
//! (super, blockgroup); fs/btrfs/fs.h (`btrfs_sb_offset`).

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::{ext, pieces, xfs};
use crate::field::{be32, le32};
use crate::{ReadAt, ReadError, luks2};

/// How much of a start the superblocks lie in.
const START_BYTES: u64 = 4096;

/// What is taken of a group's start: its superblock, and what the descriptors or the roots of its trees begin with.
const GROUP_START_BYTES: u64 = 64 << 10;

/// Groups that are shorter are none: mkfs.xfs makes none below 16 MiB, and mke2fs none below 256 blocks of 1 KiB.
const LEAST_GROUP_BYTES: u64 = 256 << 10;

/// Most groups that are looked at; a volume of 1 TiB in the shortest groups of XFS has as many.
const MOST_GROUPS: u64 = 1 << 16;

/// Second and third superblock of btrfs.
const BTRFS_MIRRORS: [u64; 2] = [64 << 20, 256 << 30];

/// Length of a btrfs superblock.
const BTRFS_BYTES: u64 = 4096;

/// ext: backups are in few groups (`sparse_super`, `sparse_super2`).
const EXT_SPARSE: u32 = 1;
const EXT_SPARSE_2: u32 = 0x200;

/// All places of a volume of this length, ascending and without overlap: where signatures lie ([`super::ranges`]), the
/// key slots of a LUKS2 header of which one copy is whole, and the backups that a superblock of XFS or ext tells of.
pub fn essentials(device: &mut dyn ReadAt, bytes: u64) -> Result<Vec<Range<u64>>, ReadError> {
    let mut start = vec![0; usize::try_from(START_BYTES.min(bytes)).unwrap_or(0)];
    device.read_at(0, &mut start)?;
    let mut wanted = pieces::ranges(bytes);
    wanted.extend(BTRFS_MIRRORS.map(|at| at..at + BTRFS_BYTES));
    if let Ok(found) = luks2::read(&mut &mut *device) {
        wanted.push(0..key_slots_end(&found.header));
    }
    let groups = xfs_groups(&start).or_else(|| ext_groups(&start)).unwrap_or_default();
    wanted.extend(groups.into_iter().map(|at| at..at.saturating_add(GROUP_START_BYTES)));
    Ok(pieces::merged(wanted, bytes))
}

/// Behind both copies of the header and all key slots.
fn key_slots_end(header: &luks2::Header) -> u64 {
    let areas = header.metadata.keyslots.values().filter_map(|slot| slot.area.as_ref());
    let ends = areas.map(|area| area.offset.saturating_add(area.size));
    ends.max().unwrap_or(0).max(header.copy_bytes().saturating_mul(2))
}

/// Block size at 4, blocks of a group at 84, number of groups at 88: each group begins with a superblock.
fn xfs_groups(start: &[u8]) -> Option<Vec<u64>> {
    xfs(start)?;
    let bytes = u64::from(be32(start, 4)?).checked_mul(be32(start, 84)?.into())?;
    let count = u64::from(be32(start, 88)?).min(MOST_GROUPS);
    (bytes >= LEAST_GROUP_BYTES).then(|| (1..count).map(|number| number.saturating_mul(bytes)).collect())
}

/// In the superblock: first block at 20, size of a block at 24 as a power, blocks of a group at 32, features at 92 and
/// 100, the two groups of `sparse_super2` at 588.
fn ext_groups(start: &[u8]) -> Option<Vec<u64>> {
    const AT: usize = 1024;
    ext(start)?;
    let block = 1024_u64 << le32(start, AT + 24)?;
    let bytes = block.checked_mul(le32(start, AT + 32)?.into())?;
    let first = block.checked_mul(le32(start, AT + 20)?.into())?;
    if bytes < LEAST_GROUP_BYTES {
        return None;
    }
    let features = (le32(start, AT + 92)?, le32(start, AT + 100)?);
    let is_sparse = features.0 & EXT_SPARSE_2 != 0 || features.1 & EXT_SPARSE != 0;
    let mut numbers: Vec<u64> = if is_sparse { sparse() } else { (1..MOST_GROUPS).collect() };
    numbers.push(le32(start, AT + 588)?.into());
    numbers.push(le32(start, AT + 592)?.into());
    Some(numbers.into_iter().map(|number| number.saturating_mul(bytes).saturating_add(first)).collect())
}

/// One and the powers of three, five and seven, as far as an ext file system numbers its groups.
fn sparse() -> Vec<u64> {
    let powers = |base: u64| {
        core::iter::successors(Some(base), move |power| power.checked_mul(base))
            .take_while(|power| *power <= u64::from(u32::MAX))
    };
    [1].into_iter().chain([3, 5, 7].into_iter().flat_map(powers)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = 400 << 20;

    fn places(start: &[u8]) -> Vec<Range<u64>> {
        let mut device = vec![0; 8 << 20];
        device[..start.len()].copy_from_slice(start);
        device.resize(usize::try_from(BYTES).unwrap(), 0);
        essentials(&mut device.as_slice(), BYTES).unwrap()
    }

    fn has(places: &[Range<u64>], at: u64) -> bool {
        places.iter().any(|place| place.contains(&at))
    }

    #[test]
    fn every_group_of_xfs_begins_with_a_superblock() {
        let mut start = vec![0; 512];
        start[..4].copy_from_slice(b"XFSB");
        start[4..8].copy_from_slice(&4096_u32.to_be_bytes());
        start[84..88].copy_from_slice(&(100_u32 << 8).to_be_bytes());
        start[88..92].copy_from_slice(&4_u32.to_be_bytes());
        let found = places(&start);
        assert!([100, 200, 300].iter().all(|mib| has(&found, mib << 20)), "{found:?}");
        assert!(!has(&found, 150 << 20), "{found:?}");
        // Groups of a byte are none.
        start[84..88].copy_from_slice(&0_u32.to_be_bytes());
        assert!(!has(&places(&start), 100 << 20));
    }

    #[test]
    fn backups_of_ext_lie_in_few_groups_or_in_all() {
        let mut start = vec![0; 2048];
        let mut put =
            |at: usize, value: u32| start[1024 + at..1028 + at].copy_from_slice(&value.to_le_bytes());
        put(20, 1);
        put(32, 8192);
        put(56, 0xef53);
        put(100, EXT_SPARSE);
        let group = |number: u64| 1024 + number * (8 << 20);
        let sparse = places(&start);
        assert!([1, 3, 5, 7, 9, 25, 27, 49].iter().all(|number| has(&sparse, group(*number))), "{sparse:?}");
        assert!(!has(&sparse, group(6)) && !has(&sparse, group(10)), "{sparse:?}");
        start[1024 + 100] = 0;
        let all = places(&start);
        assert!((1..50).all(|number| has(&all, group(number))), "{all:?}");
    }

    #[test]
    fn places_end_with_the_device_and_the_mirrors_of_btrfs_are_among_them() {
        let found = places(&[]);
        assert!(has(&found, 64 << 20) && has(&found, 0) && has(&found, BYTES - 1), "{found:?}");
        assert!(found.iter().all(|place| place.start < place.end && place.end <= BYTES), "{found:?}");
        assert_eq!(essentials(&mut [0_u8; 0].as_slice(), 0).unwrap(), []);
    }
}
