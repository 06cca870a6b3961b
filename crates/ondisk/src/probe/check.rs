//! What else a format's superblock says, where its magic alone is too weak or two formats share one.
//!
//! Does not: check a file system: a damaged one is somebody's, too.
//! Source: include/uapi/linux/raid/md_p.h, fs/ext4/ext4.h, include/uapi/linux/{minix_fs,gfs2_ondisk}.h, fs/hfs/hfs.h,
//! fs/befs/befs_fs_types.h, fs/xfs/libxfs/xfs_log_format.h; LUKS2 On-Disk Format Specification; ECMA-167 part 2.

use super::pieces::Pieces;
use crate::fat;

/// Whether the superblock around a magic, which lies at the offset, is one.
pub(super) type Check = fn(&Pieces, u64) -> bool;

pub(super) fn nothing(_: &Pieces, _: u64) -> bool {
    true
}

/// Version 1 at 4; its own place, in sectors of 512 bytes, at 144.
pub(super) fn md_1(on: &Pieces, at: u64) -> bool {
    on.le32(at + 4) == Some(1) && on.le64(at + 144) == Some(at / 512)
}

/// Version at 2.
pub(super) fn lvm1(on: &Pieces, at: u64) -> bool {
    matches!(on.le16(at + 2), Some(1 | 2))
}

/// Version at 6, big-endian.
pub(super) fn luks(on: &Pieces, at: u64) -> bool {
    matches!(on.be16(at + 6), Some(1 | 2))
}

/// The same; there is no second one of version 1.
pub(super) fn second_luks2(on: &Pieces, at: u64) -> bool {
    on.be16(at + 6) == Some(2)
}

/// A boot sector that could be a FAT's, and BitLocker's GUID at 424.
pub(super) fn bitlocker_to_go(on: &Pieces, _: u64) -> bool {
    on.has(424, b"\x3b\xd6\x67\x49\x29\x2e\xd8\x4a\x83\x99\xf6\xa3\x39\xe3\xd0\x01")
}

/// Version 1 at 8 and block type 0x10 at 10 of the header that the magic lies in.
pub(super) fn core_storage(on: &Pieces, _: u64) -> bool {
    on.le16(8) == Some(1) && on.le16(10) == Some(0x10)
}

/// Features of an ext superblock at 1024: compatible, incompatible, read-only; flags.
struct Ext {
    compatible: u32,
    incompatible: u32,
    read_only: u32,
    flags: u32,
}

impl Ext {
    const JOURNAL: u32 = 4;
    const JOURNAL_DEVICE: u32 = 8;
    /// Sparse superblocks, large files, directories as trees.
    const READ_ONLY_OF_2_AND_3: u32 = 1 | 2 | 4;
    /// File types, meta block groups.
    const INCOMPATIBLE_OF_2: u32 = 2 | 0x10;
    /// Those and a journal to recover.
    const INCOMPATIBLE_OF_3: u32 = Self::INCOMPATIBLE_OF_2 | 4;
    const TEST: u32 = 4;

    /// Two bytes are a weak sign: the block size must make sense too.
    fn read(on: &Pieces) -> Option<Self> {
        on.le32(1024 + 24).filter(|log_block_size| *log_block_size <= 6)?;
        Some(Self {
            compatible: on.le32(1024 + 0x5c)?,
            incompatible: on.le32(1024 + 0x60)?,
            read_only: on.le32(1024 + 0x64)?,
            flags: on.le32(1024 + 0x160)?,
        })
    }

    fn name(&self) -> &'static str {
        let has_journal = self.compatible & Self::JOURNAL != 0;
        let within = |incompatible: u32| {
            self.read_only & !Self::READ_ONLY_OF_2_AND_3 == 0 && self.incompatible & !incompatible == 0
        };
        match () {
            () if self.incompatible & Self::JOURNAL_DEVICE != 0 => "jbd",
            () if !has_journal && within(Self::INCOMPATIBLE_OF_2) => "ext2",
            () if has_journal && within(Self::INCOMPATIBLE_OF_3) => "ext3",
            () if self.flags & Self::TEST != 0 => "ext4dev",
            () => "ext4",
        }
    }
}

fn is_ext(on: &Pieces, name: &str) -> bool {
    Ext::read(on).is_some_and(|ext| ext.name() == name)
}

pub(super) fn ext4dev(on: &Pieces, _: u64) -> bool {
    is_ext(on, "ext4dev")
}

pub(super) fn ext4(on: &Pieces, _: u64) -> bool {
    is_ext(on, "ext4")
}

pub(super) fn ext3(on: &Pieces, _: u64) -> bool {
    is_ext(on, "ext3")
}

pub(super) fn ext2(on: &Pieces, _: u64) -> bool {
    is_ext(on, "ext2")
}

pub(super) fn jbd(on: &Pieces, _: u64) -> bool {
    is_ext(on, "jbd")
}

/// An HFS that only wraps an HFS+: the other's magic at 124.
pub(super) fn hfs_wrapper(on: &Pieces, at: u64) -> bool {
    on.has(at + 124, b"H+") || on.has(at + 124, b"HX")
}

/// Allocation blocks, whose size is at 20, are whole sectors.
pub(super) fn hfs(on: &Pieces, at: u64) -> bool {
    let blocks = on.be32(at + 20).is_some_and(|bytes| bytes != 0 && bytes % 512 == 0);
    blocks && !hfs_wrapper(on, at)
}

/// Two bytes are a weak sign, and may be part of an ext superblock: maps, and zones behind them, must make sense too.
pub(super) fn minix(on: &Pieces, at: u64) -> bool {
    let little = matches!(on.le16(at), Some(0x137f | 0x138f | 0x2468 | 0x2478));
    let number = |offset: u64| if little { on.le16(1024 + offset) } else { on.be16(1024 + offset) };
    plausible_minix(on, number(0).map(u32::from), number(4), number(6), number(8))
}

/// The third version has its fields two bytes further.
pub(super) fn minix_3(on: &Pieces, at: u64) -> bool {
    let little = on.le16(at) == Some(0x4d5a);
    let number = |offset: u64| if little { on.le16(1024 + offset) } else { on.be16(1024 + offset) };
    let inodes = if little { on.le32(1024) } else { on.be32(1024) };
    plausible_minix(on, inodes, number(6), number(8), number(10))
}

fn plausible_minix(
    on: &Pieces,
    inodes: Option<u32>,
    inode_maps: Option<u16>,
    zone_maps: Option<u16>,
    first_zone: Option<u16>,
) -> bool {
    let is_set = |number: Option<u16>| number.is_some_and(|number| number != 0);
    inodes.is_some_and(|count| count != 0)
        && [inode_maps, zone_maps, first_zone].into_iter().all(is_set)
        && !(on.has(0x438, b"\x53\xef") && Ext::read(on).is_some())
}

/// Format of the file system at 24: GFS2 has 1801 to 1899.
pub(super) fn gfs2(on: &Pieces, at: u64) -> bool {
    on.be32(at + 24).is_some_and(|format| (1800..1900).contains(&format))
}

/// GFS has 1309.
pub(super) fn gfs(on: &Pieces, at: u64) -> bool {
    on.be32(at + 24).is_some_and(|format| (1300..1400).contains(&format))
}

/// Major version at 28.
pub(super) fn squashfs(on: &Pieces, at: u64) -> bool {
    on.le16(at + 28).is_some_and(|major| major >= 4)
}

pub(super) fn squashfs_3(on: &Pieces, at: u64) -> bool {
    on.le16(at + 28).is_some_and(|major| major < 4)
}

/// The second magic, 36 bytes behind the first.
pub(super) fn befs(on: &Pieces, at: u64) -> bool {
    const SECOND: u32 = 0xdd12_1031;
    on.le32(at + 36) == Some(SECOND) || on.be32(at + 36) == Some(SECOND)
}

/// Where a FAT begins: there is no magic in it that every tool writes, but many write a name, at 0x36 or 0x52.
pub(super) fn vfat(on: &Pieces) -> Option<u64> {
    const NAMES: [(u64, &[u8]); 6] = [
        (0x36, b"MSDOS"),
        (0x36, b"FAT12   "),
        (0x36, b"FAT16   "),
        (0x36, b"FAT     "),
        (0x52, b"MSWIN"),
        (0x52, b"FAT32   "),
    ];
    let is_other = [&b"NTFS    "[..], b"EXFAT   ", b"-FVE-FS-"].into_iter().any(|name| on.has(3, name));
    let boot_sector = on.bytes(0, 4096).or_else(|| on.bytes(0, 512))?;
    // Bytes of a sector at 11, sectors of a cluster at 13, number of tables at 16.
    let has_name = NAMES.iter().any(|(at, name)| on.has(*at, name));
    let fits = matches!(on.le16(11), Some(512 | 1024 | 2048 | 4096))
        && on.u8(13).is_some_and(u8::is_power_of_two)
        && on.u8(16).is_some_and(|tables| tables != 0);
    (!is_other && (fat::identify(boot_sector).is_some() || has_name && fits)).then_some(0)
}

/// The volume recognition sequence from 32 KiB, in descriptors of 2048 bytes: one of them names ECMA-167.
pub(super) fn udf(on: &Pieces) -> Option<u64> {
    let names = (0..64).map(|number| (32 << 10) + number * 2048 + 1);
    names.into_iter().find(|at| on.has(*at, b"NSR02") || on.has(*at, b"NSR03"))
}

/// A record of a log of its own among the first 256 KiB: cycle at 4, version 8, length 12, format 300, big-endian.
pub(super) fn xfs_log(on: &Pieces) -> Option<u64> {
    let is_record = |at: &u64| {
        on.has(*at, b"\xfe\xed\xba\xbe")
            && on.be32(at + 4).is_some_and(|cycle| cycle != 0)
            && matches!(on.be32(at + 8), Some(1..=3))
            && on.be32(at + 12).is_some_and(|bytes| bytes != 0 && bytes % 4 == 0)
            && matches!(on.be32(at + 300), Some(0..=3))
    };
    let is_alone = !on.has(0, b"XFSB");
    (0..512).map(|sector| sector * 512).find(|at| is_alone && is_record(at))
}
