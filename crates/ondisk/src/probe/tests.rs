//! Volumes made by the reference tools, and arbitrary bytes.

use alloc::vec;
use alloc::vec::Vec;
use std::fs::File;
use std::path::Path;
use std::process::Command;

use proptest::prelude::*;

use super::*;
use crate::field::put;

const UUID: &str = "01234567-89ab-cdef-0123-456789abcdef";

/// What a tool makes of a file of `mib` MiB.
fn made_by(tool: &str, args: &[&str], mib: u64) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume");
    File::create(&path).unwrap().set_len(mib << 20).unwrap();
    run(tool, args, &path);
    std::fs::read(&path).unwrap()
}

fn run(tool: &str, args: &[&str], path: &Path) {
    let output = Command::new(tool)
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .args(args)
        .arg(path)
        .output()
        .unwrap_or_else(|e| panic!("this test needs {tool} (e2fsprogs, util-linux, cryptsetup-bin): {e}"));
    assert!(output.status.success(), "{tool}: {}", String::from_utf8_lossy(&output.stderr));
}

fn expect(start: &[u8], kind: Kind, label: &str) {
    let expected = Filesystem { kind, label: label.into(), uuid: UUID.into() };
    assert_eq!(probe(&start[..PROBE_BYTES.min(start.len())]), Some(expected));
}

#[test]
fn ext4_by_mkfs() {
    expect(&made_by("mkfs.ext4", &["-q", "-L", "some label", "-U", UUID], 2), Kind::Ext4, "some label");
}

#[test]
fn swap_by_mkswap() {
    expect(&made_by("mkswap", &["-L", "swapper", "-U", UUID], 1), Kind::Swap, "swapper");
    expect(&made_by("mkswap", &["-p", "65536", "-L", "swapper", "-U", UUID], 1), Kind::Swap, "swapper");
}

#[test]
fn luks_by_cryptsetup() {
    let cheap = ["--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000", "--uuid", UUID, "-q", "--key-file"];
    let key = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(key.path(), "passphrase").unwrap();
    let format = |extra: &[&str]| {
        let key = [key.path().to_str().unwrap()];
        made_by("cryptsetup", &[&["luksFormat"], &cheap[..], &key, extra].concat(), 20)
    };
    expect(&format(&["--type", "luks2", "--label", "state"]), Kind::Luks2, "state");
    expect(&format(&["--type", "luks1"]), Kind::Luks1, "");
}

/// mkfs.xfs and mkfs.btrfs want volumes of 300 and 110 MB: the fields are written here, at the offsets of the
/// kernel's fs/xfs/libxfs/xfs_format.h and include/uapi/linux/btrfs_tree.h.
#[test]
fn xfs_and_btrfs_by_their_fields() {
    let uuid: Vec<u8> =
        (0..16).map(|i| u8::from_str_radix(&UUID.replace('-', "")[i * 2..i * 2 + 2], 16).unwrap()).collect();
    let mut volume = vec![0; PROBE_BYTES];
    put(&mut volume, 0, b"XFSB");
    put(&mut volume, 32, &uuid);
    put(&mut volume, 108, b"STATE");
    expect(&volume, Kind::Xfs, "STATE");
    let mut volume = vec![0; PROBE_BYTES];
    put(&mut volume, 65536 + 32, &uuid);
    put(&mut volume, 65536 + 64, b"_BHRfS_M");
    put(&mut volume, 65536 + 299, b"data");
    expect(&volume, Kind::Btrfs, "data");
}

#[test]
fn nothing_is_recognised_in_nothing() {
    assert_eq!(probe(&[]), None);
    assert_eq!(probe(&[0; PROBE_BYTES]), None);
    // A boot sector without a FAT volume's numbers: the MBR of a partitioned disk.
    let mut mbr = vec![0; PROBE_BYTES];
    put(&mut mbr, 0, &[0xEB, 0x63, 0x90]);
    put(&mut mbr, 510, &[0x55, 0xAA]);
    assert_eq!(probe(&mbr), None);
}

proptest! {
    #[test]
    fn nothing_panics(mut bytes in proptest::collection::vec(any::<u8>(), 0..70_000), which in 0usize..8, cut in any::<proptest::sample::Index>()) {
        let magics: [(usize, &[u8]); 8] = [
            (0, b"hsqs"), (0, b"LUKS\xba\xbe\0\x02"), (0, b"XFSB"), (32769, b"CD001"),
            (1080, b"\x53\xef"), (65600, b"_BHRfS_M"), (4086, b"SWAPSPACE2"), (510, b"\x55\xaa"),
        ];
        put(&mut bytes, magics[which].0, magics[which].1);
        let _ = probe(&bytes);
        let _ = probe(&bytes[..cut.index(bytes.len() + 1)]);
    }
}
