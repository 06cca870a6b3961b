//! Signatures whose place follows from a device's end, or that lie at several places of it.
//!
//! Owns: where they lie, and what proves them: what is encrypted ends in noise, and must not be taken for one of these.
//! Source: include/uapi/linux/raid/md_p.h and Documentation/admin-guide/md.rst; SNIA DDF 2.0 §5; the places that dmraid
//! and mdadm look at, as `blkid -p` has them (testdata/probe); drbd-headers' linux/drbd.h; OpenZFS's vdev labels;
//! include/uapi/linux/nilfs2_ondisk.h.

use super::pieces::Pieces;
use crate::crc32;

/// Looks for one format; the offset of its magic.
pub(super) type Finder = fn(&Pieces) -> Option<u64>;

pub(super) const ENDS: &[(&str, Finder)] = &[
    ("linux_raid_member", md_0_90),
    ("linux_raid_member", md_1_0),
    ("ddf_raid_member", ddf),
    ("drbd", drbd),
    ("zfs_member", zfs),
    ("nilfs2", nilfs2),
];

/// BIOS RAIDs, some with magics of two bytes: only whole disks are members.
pub(super) const WHOLE_DISK_ENDS: &[(&str, Finder)] = &[
    ("isw_raid_member", |on| sector(on, 2).filter(|at| on.has(*at, b"Intel Raid ISM Cfg Sig. "))),
    ("lsi_mega_raid_member", |on| sector(on, 1).filter(|at| on.has(*at, b"$XIDE$"))),
    ("via_raid_member", via),
    ("silicon_medley_raid_member", silicon),
    ("nvidia_raid_member", |on| sector(on, 2).filter(|at| on.has(*at, b"NVIDIA"))),
    ("promise_fasttrack_raid_member", promise),
    ("hpt45x_raid_member", hpt45x),
    ("adaptec_raid_member", adaptec),
    ("jmicron_raid_member", |on| sector(on, 1).filter(|at| on.has(*at, b"JM"))),
];

const MD: u32 = 0xa92b_4efc;

/// The start of a sector of 512 bytes, counted from the end.
fn sector(on: &Pieces, from_end: u64) -> Option<u64> {
    (on.bytes / 512).checked_sub(from_end).map(|sector| sector * 512)
}

/// 64 KiB before the last whole 64 KiB; in the byte order of its machine; major version 0 at 4.
fn md_0_90(on: &Pieces) -> Option<u64> {
    const STEP: u64 = 64 << 10;
    let at = (on.bytes / STEP * STEP).checked_sub(STEP)?;
    let little = on.le32(at) == Some(MD) && on.le32(at + 4) == Some(0);
    let big = on.be32(at) == Some(MD) && on.be32(at + 4) == Some(0);
    (little || big).then_some(at)
}

/// 8 KiB before the end, down to whole 4 KiB; it names its own place.
fn md_1_0(on: &Pieces) -> Option<u64> {
    let at = (on.bytes / 512).checked_sub(16)? / 8 * 8 * 512;
    (on.le32(at) == Some(MD) && super::check::md_1(on, at)).then_some(at)
}

/// In the last sector, or 128 KiB before it; in either byte order.
fn ddf(on: &Pieces) -> Option<u64> {
    const MAGIC: u32 = 0xde11_de11;
    let places = [1, 257].into_iter().filter_map(|from_end| sector(on, from_end));
    places.into_iter().find(|at| on.be32(*at) == Some(MAGIC) || on.le32(*at) == Some(MAGIC))
}

/// In the last 4 KiB, at 60: version 8, the same unclean, version 9; big-endian.
fn drbd(on: &Pieces) -> Option<u64> {
    const BLOCK: u64 = 4096;
    let exact = on.bytes.checked_sub(BLOCK);
    let whole = (on.bytes / BLOCK * BLOCK).checked_sub(BLOCK);
    let places = [exact, whole].into_iter().flatten().map(|block| block + 60);
    places.into_iter().find(|at| matches!(on.be32(*at), Some(0x8374_026b..=0x8374_026d)))
}

/// Four labels of 256 KiB, two at each end: a list of names and values at 16 KiB of each, uberblocks from 128 KiB on, one
/// a KiB. A first label that has its list is told by that.
fn zfs(on: &Pieces) -> Option<u64> {
    const LABEL: u64 = 256 << 10;
    const UBERBLOCK: u64 = 0x00ba_b10c;
    let end = on.bytes / LABEL * LABEL;
    let labels = [Some(0), Some(LABEL), end.checked_sub(2 * LABEL), end.checked_sub(LABEL)];
    let mut uberblocks =
        labels.into_iter().flatten().flat_map(|label| (0..128).map(move |n| label + (128 << 10) + n * 1024));
    let found = uberblocks.find(|at| on.le64(*at) == Some(UBERBLOCK) || on.be64(*at) == Some(UBERBLOCK))?;
    // As XDR: encoding 1, byte order, then version 0 and the flag for unique names.
    let has_list =
        matches!(on.bytes(16 << 10, 2), Some([1, 0 | 1])) && on.has((16 << 10) + 4, b"\0\0\0\0\0\0\0\x01");
    Some(if has_list { 16 << 10 } else { found })
}

/// At 1024, and in the last whole 4 KiB; both have a checksum.
fn nilfs2(on: &Pieces) -> Option<u64> {
    let last = (on.bytes / 4096).checked_sub(1).map(|block| block * 4096);
    [Some(1024), last].into_iter().flatten().find(|at| is_nilfs2(on, *at) == Some(true)).map(|at| at + 6)
}

/// Magic at 6, length 8, seed of the checksum 12, checksum 16.
fn is_nilfs2(on: &Pieces, at: u64) -> Option<bool> {
    let length = usize::from(on.le16(at + 8)?);
    if on.le16(at + 6)? != 0x3434 || !(20..=1024).contains(&length) {
        return Some(false);
    }
    let mut block = on.bytes(at, length)?.to_vec();
    crate::field::put(&mut block, 16, &[0; 4]);
    Some(crc32::seeded(on.le32(at + 12)?, &block) == on.le32(at + 16)?)
}

/// Version at 2; the sum of the first 50 bytes at 50.
fn via(on: &Pieces) -> Option<u64> {
    let at = sector(on, 1)?;
    let sum = on.bytes(at, 50)?.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    (on.le16(at) == Some(0xaa55) && on.u8(at + 2)? <= 2 && on.u8(at + 50) == Some(sum)).then_some(at)
}

/// Magic at 0x60; number of the disk 0x11a; all 160 words up to the checksum at 0x13e sum up to zero.
fn silicon(on: &Pieces) -> Option<u64> {
    let at = sector(on, 1)?;
    let words = on.bytes(at, 320)?.chunks_exact(2);
    let sum = words.fold(0_u16, |sum, word| sum.wrapping_add(word.try_into().map_or(0, u16::from_le_bytes)));
    (on.le32(at + 0x60) == Some(0x2f00_0000) && on.u8(at + 0x11a)? < 8 && sum == 0).then_some(at + 0x60)
}

/// Somewhere before the end, by the disk's size.
fn promise(on: &Pieces) -> Option<u64> {
    const SECTORS: [u64; 13] = [63, 255, 256, 16, 399, 591, 675, 735, 911, 974, 991, 951, 3087];
    let places = SECTORS.into_iter().filter_map(|from_end| sector(on, from_end));
    places.into_iter().find(|at| on.has(*at, b"Promise Technology, Inc."))
}

/// One that is whole, or one that is broken.
fn hpt45x(on: &Pieces) -> Option<u64> {
    sector(on, 11).filter(|at| matches!(on.le32(*at), Some(0x5a78_16f3 | 0x5a78_16fd)))
}

/// Its name lies at 256.
fn adaptec(on: &Pieces) -> Option<u64> {
    sector(on, 1).filter(|at| on.be32(*at) == Some(0x37fc_4d1e) && on.has(at + 256, b"DPTM"))
}
