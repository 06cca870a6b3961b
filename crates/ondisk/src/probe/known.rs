//! Signatures at a fixed distance from a device's start.
//!
//! Owns: names, offsets, magics; which of them need a second look.
//! Source: names and places as libblkid 2.38 has them (`blkid -k`, and `blkid -p` of an image of each: testdata/probe);
//! the kernel's uapi headers and fs/*/; lvm2's and cryptsetup's own descriptions of their formats.

use super::check::{self, Check};

/// Bytes at an offset that name a format.
pub(super) struct Known {
    /// As `blkid` calls it.
    pub(super) name: &'static str,
    /// Where the magic may lie, in bytes from the start.
    pub(super) at: &'static [u64],
    /// What lies there.
    pub(super) magic: &'static [u8],
    /// What else must be so; the offset is the magic's.
    pub(super) check: Check,
}

const fn known(name: &'static str, at: &'static [u64], magic: &'static [u8]) -> Known {
    Known { name, at, magic, check: check::nothing }
}

const fn checked(name: &'static str, at: &'static [u64], magic: &'static [u8], check: Check) -> Known {
    Known { name, at, magic, check }
}

/// Last ten bytes of a page of 4 to 64 KiB.
const PAGE_ENDS: &[u64] = &[0xff6, 0x1ff6, 0x3ff6, 0x7ff6, 0xfff6];
/// Where cryptsetup looks for a second LUKS2 header.
const SECOND_LUKS2: &[u64] =
    &[0x4000, 0x8000, 0x1_0000, 0x2_0000, 0x4_0000, 0x8_0000, 0x10_0000, 0x20_0000, 0x40_0000];
const BTRFS: &[u64] = &[(64 << 10) + 64];
const MINIX: &[u64] = &[0x410];
const MINIX_3: &[u64] = &[0x418];
/// A superblock of ufs begins at one of four places; its magic is the last word.
const UFS: &[u64] = &[0x55c, (8 << 10) + 0x55c, (64 << 10) + 0x55c, (256 << 10) + 0x55c];
/// In the second half of a block of 1 KiB: 0, 9, 15, 18.
const SYSV: &[u64] = &[1016, 9 * 1024 + 1016, 15 * 1024 + 1016, 18 * 1024 + 1016];
const REISER: &[u64] = &[(8 << 10) + 0x34, (8 << 10) + 0x14, (64 << 10) + 0x34];

/// Members of a RAID, of a volume group or a cache, and what is encrypted.
pub(super) const CONTAINERS: &[Known] = &[
    checked("linux_raid_member", &[0, 4096], &0xa92b_4efc_u32.to_le_bytes(), check::md_1),
    known("bcache", &[0x1018], b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"),
    // Since libblkid 2.39.
    known("bcachefs", &[0x1018], b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef"),
    known("ceph_bluestore", &[0], b"bluestore block device"),
    known("drbdmanage_control_volume", &[0], b"$DRBDmgr=q"),
    known("drbdproxy_datalog", &[0], b"DRBDdlh*"),
    // In one of the first four sectors; the type is 24 bytes behind.
    known("LVM2_member", &[0, 512, 1024, 1536], b"LABELONE"),
    checked("LVM1_member", &[0], b"HM", check::lvm1),
    known("DM_snapshot_cow", &[0], b"SnAp"),
    known("DM_verity_hash", &[0], b"verity\0\0"),
    known("DM_integrity", &[0], b"integrt\0"),
    checked("crypto_LUKS", &[0], b"LUKS\xba\xbe", check::luks),
    checked("crypto_LUKS", SECOND_LUKS2, b"SKUL\xba\xbe", check::second_luks2),
    known("VMFS_volume_member", &[1 << 20], b"\x0d\xd0\x01\xc0"),
    known("ubi", &[0], b"UBI#"),
    known("vdo", &[0], b"dmvdo001"),
    known("stratis", &[0x204, 0x1204], b"!Stra0tis\x86\xff\x02^\x41rh"),
    known("BitLocker", &[3], b"-FVE-FS-"),
    checked("BitLocker", &[3], b"MSWIN4.1", check::bitlocker_to_go),
    // Since libblkid 2.39.
    checked("cs_fvault2", &[88], b"CS", check::core_storage),
];

/// BIOS RAID of HighPoint, looked for on whole disks alone, as libblkid does.
pub(super) const WHOLE_DISKS: &[Known] = &[
    known("hpt37x_raid_member", &[0x1220], &0x5a78_16f0_u32.to_le_bytes()),
    known("hpt37x_raid_member", &[0x1220], &0x5a78_16fd_u32.to_le_bytes()),
];

/// File systems, swap areas and journals.
pub(super) const FILE_SYSTEMS: &[Known] = &[
    known("swsuspend", &[0], b"\xed\xc3\x02\xe9\x98\x56\xe5\x0c"),
    known("swsuspend", PAGE_ENDS, b"S1SUSPEND"),
    known("swsuspend", PAGE_ENDS, b"S2SUSPEND"),
    known("swsuspend", PAGE_ENDS, b"ULSUSPEND"),
    known("swsuspend", PAGE_ENDS, b"LINHIB0001"),
    known("swap", PAGE_ENDS, b"SWAP-SPACE"),
    known("swap", PAGE_ENDS, b"SWAPSPACE2"),
    known("xfs", &[0], b"XFSB"),
    known("exfs", &[0], b"EXFS"),
    checked("ext4dev", &[0x438], b"\x53\xef", check::ext4dev),
    checked("ext4", &[0x438], b"\x53\xef", check::ext4),
    checked("ext3", &[0x438], b"\x53\xef", check::ext3),
    checked("ext2", &[0x438], b"\x53\xef", check::ext2),
    checked("jbd", &[0x438], b"\x53\xef", check::jbd),
    known("reiserfs", REISER, b"ReIsErFs"),
    known("reiserfs", REISER, b"ReIsEr2Fs"),
    known("reiserfs", REISER, b"ReIsEr3Fs"),
    known("reiser4", &[64 << 10], b"ReIsEr4"),
    known("jfs", &[32 << 10], b"JFS1"),
    known("iso9660", &[0x8001], b"CD001"),
    known("iso9660", &[0x8009], b"CDROM"),
    known("hfsplus", &[0x400], b"H+"),
    known("hfsplus", &[0x400], b"HX"),
    checked("hfsplus", &[0x400], b"BD", check::hfs_wrapper),
    checked("hfs", &[0x400], b"BD", check::hfs),
    known("ufs", UFS, &0x1954_0119_u32.to_le_bytes()),
    known("ufs", UFS, &0x0001_1954_u32.to_le_bytes()),
    known("ufs", UFS, &0x0019_5612_u32.to_le_bytes()),
    known("ufs", UFS, &0x0009_5014_u32.to_le_bytes()),
    known("ufs", UFS, &0x0061_2195_u32.to_le_bytes()),
    known("ufs", UFS, &0x0523_1994_u32.to_le_bytes()),
    known("ufs", UFS, &0x1954_0119_u32.to_be_bytes()),
    known("ufs", UFS, &0x0001_1954_u32.to_be_bytes()),
    known("ufs", UFS, &0x0019_5612_u32.to_be_bytes()),
    known("ufs", UFS, &0x0009_5014_u32.to_be_bytes()),
    known("ufs", UFS, &0x0061_2195_u32.to_be_bytes()),
    known("ufs", UFS, &0x0523_1994_u32.to_be_bytes()),
    known("hpfs", &[0x2000], b"\x49\xe8\x95\xf9"),
    known("sysv", SYSV, &0xfd18_7e20_u32.to_le_bytes()),
    known("sysv", SYSV, &0xfd18_7e20_u32.to_be_bytes()),
    known("xenix", &[0x800], b"\x2b\x55\x44"),
    known("xenix", &[0x800], b"\x44\x55\x2b"),
    known("ntfs", &[3], b"NTFS    "),
    known("ReFS", &[0], b"\0\0\0ReFS\0"),
    known("exfat", &[3], b"EXFAT   "),
    known("cramfs", &[0], b"\x45\x3d\xcd\x28"),
    known("cramfs", &[0], b"\x28\xcd\x3d\x45"),
    known("romfs", &[0], b"-rom1fs-"),
    checked("minix", MINIX, &0x137f_u16.to_le_bytes(), check::minix),
    checked("minix", MINIX, &0x138f_u16.to_le_bytes(), check::minix),
    checked("minix", MINIX, &0x2468_u16.to_le_bytes(), check::minix),
    checked("minix", MINIX, &0x2478_u16.to_le_bytes(), check::minix),
    checked("minix", MINIX, &0x137f_u16.to_be_bytes(), check::minix),
    checked("minix", MINIX, &0x138f_u16.to_be_bytes(), check::minix),
    checked("minix", MINIX, &0x2468_u16.to_be_bytes(), check::minix),
    checked("minix", MINIX, &0x2478_u16.to_be_bytes(), check::minix),
    checked("minix", MINIX_3, &0x4d5a_u16.to_le_bytes(), check::minix_3),
    checked("minix", MINIX_3, &0x4d5a_u16.to_be_bytes(), check::minix_3),
    checked("gfs2", &[64 << 10], b"\x01\x16\x19\x70", check::gfs2),
    checked("gfs", &[64 << 10], b"\x01\x16\x19\x70", check::gfs),
    known("ocfs2", &[0x400, 0x800, 0x1000, 0x2000], b"OCFSV2"),
    known("ocfs", &[0x2000], b"OracleCFS"),
    known("oracleasm", &[32], b"ORCLDISK"),
    known("vxfs", &[0x400], b"\xf5\xfc\x01\xa5"),
    known("vxfs", &[0x2000], b"\xa5\x01\xfc\xf5"),
    checked("squashfs", &[0], b"hsqs", check::squashfs),
    checked("squashfs3", &[0], b"hsqs", check::squashfs_3),
    known("squashfs3", &[0], b"sqsh"),
    known("nss", &[0x1000], b"SPB5"),
    known("btrfs", BTRFS, b"_BHRfS_M"),
    known("ubifs", &[0], b"\x31\x18\x10\x06"),
    known("bfs", &[0], b"\xce\xfa\xad\x1b"),
    known("VMFS", &[2 << 20], b"\x5e\xf1\xab\x2f"),
    checked("befs", &[0x20, 0x220], b"BFS1", check::befs),
    checked("befs", &[0x20, 0x220], b"1SFB", check::befs),
    known("f2fs", &[0x400], b"\x10\x20\xf5\xf2"),
    known("mpool", &[0], b"mpoolDev"),
    known("apfs", &[32], b"NXSB"),
    known("zonefs", &[0], b"SFOZ"),
    known("erofs", &[0x400], b"\xe2\xe1\xf5\xe0"),
];
