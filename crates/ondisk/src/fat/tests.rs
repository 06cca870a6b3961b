//! Volumes against fsck.vfat, mtools and blkid's reading, and against our own reader.

use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use std::path::Path;
use std::process::Command;

use proptest::prelude::*;

use super::*;
use crate::probe::probe;

const MIB: u64 = 1 << 20;

pub(super) fn volume(bytes: u64) -> Volume<'static> {
    Volume { label: "metal-iso", volume_id: 0x1234_ABCD, sector_bytes: 512, bytes }
}

pub(super) fn image(volume: &Volume<'_>, files: &[File<'_>]) -> Vec<u8> {
    let mut image = vec![0; usize::try_from(volume.bytes).unwrap()];
    for extent in format(volume, files).unwrap() {
        let at = usize::try_from(extent.offset).unwrap();
        image[at..at + extent.bytes.len()].copy_from_slice(&extent.bytes);
    }
    image
}

pub(super) fn tool(name: &str, args: &[&str]) -> String {
    let output = Command::new(name)
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("LC_ALL", "C.UTF-8")
        .args(args)
        .output()
        .unwrap_or_else(|e| {
            panic!("this test needs {name} (Debian packages dosfstools, mtools, util-linux): {e}")
        });
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} {args:?}: {text}");
    text
}

pub(super) fn fsck(path: &Path) {
    let verdict = tool("fsck.vfat", &["-n", "-v", path.to_str().unwrap()]);
    for complaint in ["differ", "rror", "invalid", "Wrong", "dirty", "mismatch", "different"] {
        assert!(!verdict.contains(complaint), "{verdict}");
    }
}

/// (mtools knows no letters beyond 16 bits; those are in the property test.)
/// Names that need aliases, that share one, that have the 8.3 form, that fill sectors and clusters.
fn files(big: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut files = vec![
        ("config.yaml".to_string(), b"version: v1alpha1\n".to_vec()),
        ("EFI/BOOT/BOOTX64.EFI".into(), big.to_vec()),
        ("EFI/Linux/billet-000001.efi".into(), vec![1; 5000]),
        ("EFI/Linux/billet-000002+3.efi".into(), vec![2; 4096]),
        ("loader/loader.conf".into(), b"timeout 0\n".to_vec()),
        ("loader/empty.conf".into(), Vec::new()),
        ("deep/a/b/c/d/Größe und noch viel mehr Text.tar.gz".into(), vec![3; 1]),
        (std::format!("names/{}", "x".repeat(195)), vec![4]),
        (std::format!("names/{}", "y".repeat(13)), vec![5]),
    ];
    files.extend((0..200).map(|i| (std::format!("many/a file with number {i}.txt"), vec![6; i])));
    files
}

fn borrow(files: &[(String, Vec<u8>)]) -> Vec<File<'_>> {
    files.iter().map(|(path, content)| File { path, content }).collect()
}

#[test]
fn fsck_finds_nothing_and_mtools_reads_it_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume");
    let image_arg = path.to_str().unwrap();
    let big: Vec<u8> = (0..3_000_000_u32).map(|i| u8::try_from(i % 251).unwrap()).collect();
    let files = files(&big);
    for (bytes, sector_bytes) in [(40 * MIB, 512), (300 * MIB, 512), (300 * MIB, 4096)] {
        let volume = Volume { sector_bytes, ..volume(bytes) };
        std::fs::write(&path, image(&volume, &borrow(&files))).unwrap();
        fsck(&path);
        for (name, content) in files.iter().step_by(20).chain(&files[..9]) {
            let out = dir.path().join("out");
            tool("mcopy", &["-n", "-o", "-i", image_arg, &std::format!("::{name}"), out.to_str().unwrap()]);
            assert!(std::fs::read(&out).unwrap() == *content, "{name}");
        }
        let listed = tool("mdir", &["-b", "-i", image_arg, "::many"]);
        assert_eq!(listed.lines().count(), 200);
        let blkid = tool("blkid", &["-p", "-o", "export", image_arg]);
        assert!(blkid.contains("LABEL=metal-iso\n") && blkid.contains("UUID=1234-ABCD\n"), "{blkid}");
    }
}

#[test]
fn a_volume_that_is_exactly_full_and_an_empty_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume");
    std::fs::write(&path, image(&volume(34 * MIB), &[])).unwrap();
    fsck(&path);
    let Err(Error::Full(room)) =
        format(&volume(34 * MIB), &[File { path: "F", content: &vec![0; 40 << 20] }])
    else {
        panic!("40 MiB fit 34 MiB")
    };
    // The root directory takes three clusters: the label, the file and 32 free slots.
    let content = vec![9; usize::try_from(room).unwrap() - 3 * 512];
    std::fs::write(&path, image(&volume(34 * MIB), &[File { path: "F", content: &content }])).unwrap();
    fsck(&path);
    let over = vec![9; content.len() + 1];
    assert_eq!(format(&volume(34 * MIB), &[File { path: "F", content: &over }]), Err(Error::Full(room)));
}

#[test]
fn our_reader_reads_ours_and_that_of_mkfs() {
    let files = files(&[8; 10_000]);
    let mut ours = image(&volume(40 * MIB), &borrow(&files));
    check_reader(&mut ours, &files);

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume");
    let image_arg = path.to_str().unwrap();
    std::fs::File::create(&path).unwrap().set_len(40 * MIB).unwrap();
    tool("mkfs.vfat", &["-F", "32", "-n", "EFI", image_arg]);
    let source = dir.path().join("source");
    for (name, content) in &files {
        std::fs::create_dir_all(source.join(name).parent().unwrap()).unwrap();
        std::fs::write(source.join(name), content).unwrap();
    }
    for top in std::fs::read_dir(&source).unwrap() {
        tool("mcopy", &["-s", "-i", image_arg, top.unwrap().path().to_str().unwrap(), "::"]);
    }
    check_reader(&mut std::fs::read(&path).unwrap(), &files);
}

fn check_reader(image: &mut [u8], files: &[(String, Vec<u8>)]) {
    let mut reader = Reader::open(&*image).unwrap();
    for (path, content) in files {
        assert!(reader.read(path, u32::MAX).unwrap() == *content, "{path}");
    }
    let upper = reader.read("efi/boot/bootx64.efi", u32::MAX).unwrap();
    assert_eq!(upper.len(), 10_000);
    assert_eq!(reader.read("CONFIG.YAML", 5), Err(Error::TooLong(18)));
    assert_eq!(reader.read("EFI", 5), Err(Error::WrongKind("EFI".into())));
    assert_eq!(reader.read("config.yaml/x", 5), Err(Error::WrongKind("config.yaml".into())));
    assert_eq!(reader.read("none", 5), Err(Error::NotFound("none".into())));
    let mut names: Vec<_> = reader.list("EFI/Linux").unwrap().into_iter().map(|e| e.name).collect();
    names.sort();
    assert_eq!(names, ["billet-000001.efi", "billet-000002+3.efi"]);
}

#[test]
fn no_entry_set_straddles_a_sector() {
    let files = files(&[]);
    for sector_bytes in [512_u32, 4096] {
        let volume = Volume { sector_bytes, ..volume(300 * MIB) };
        for extent in format(&volume, &borrow(&files)).unwrap().into_iter().skip(3).take(10) {
            for sector in extent.bytes.chunks(sector_bytes as usize) {
                let kind = |slot: Option<&[u8]>| slot.map(|slot| (slot[0], slot[11]));
                let slots = || sector.chunks_exact(SLOT_BYTES);
                let first =
                    kind(slots().next()).filter(|slot| slot.1 == attribute::LONG_NAME && slot.0 != 0xE5);
                assert!(first.is_none_or(|slot| slot.0 & 0x40 != 0), "a sector starts inside a set");
                let last = kind(slots().last()).filter(|slot| slot.0 != 0xE5);
                assert!(last.is_none_or(|slot| slot.1 != attribute::LONG_NAME), "a sector ends inside a set");
            }
        }
    }
}

#[test]
fn the_order_of_files_does_not_matter() {
    let mut files = files(&[1; 100]);
    let first = image(&volume(40 * MIB), &borrow(&files));
    files.reverse();
    assert!(first == image(&volume(40 * MIB), &borrow(&files)));
}

#[test]
fn impossible_requests_are_refused() {
    let refuse = |paths: &[&str]| {
        let files: Vec<_> = paths.iter().map(|path| File { path, content: b"x" }).collect();
        format(&volume(40 * MIB), &files).unwrap_err()
    };
    for path in ["", "/", "a//b", "/a", "a/../b", "a:b", "a\0", "trailing.", "trailing ", &"x".repeat(196)] {
        assert!(matches!(refuse(&[path]), Error::Path(_)), "{path}");
    }
    assert_eq!(refuse(&[&"d/".repeat(80)]), Error::Path("d/".repeat(79) + "d"));
    assert_eq!(refuse(&["a", "A"]), Error::Conflict("a".into()));
    assert_eq!(refuse(&["a", "a/b"]), Error::Conflict("a".into()));
    assert_eq!(refuse(&["EFI/x", "efi/y"]), Error::Conflict("efi".into()));
    let none: &[File<'_>] = &[];
    let label = |label| format(&Volume { label, ..volume(40 * MIB) }, none);
    for bad in ["", "twelve-chars", "a.b", " a", "größe"] {
        assert_eq!(label(bad), Err(Error::Label(bad.into())));
    }
    assert_eq!(format(&volume(MIB), none), Err(Error::VolumeSize(MIB)));
    let odd = Volume { sector_bytes: 513, ..volume(40 * MIB) };
    assert_eq!(format(&odd, none), Err(Error::SectorSize(513)));
}

#[test]
fn identity_of_every_width_by_mkfs() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume");
    let image_arg = path.to_str().unwrap();
    for (width, mib) in [("12", 2), ("16", 20), ("32", 40)] {
        for (args, label) in [(&["-n", "BILLET"][..], "BILLET"), (&[][..], "")] {
            let _ = std::fs::remove_file(&path);
            std::fs::File::create(&path).unwrap().set_len(mib * MIB).unwrap();
            tool("mkfs.vfat", &[&["-F", width, "-i", "0badcafe"], args, &[image_arg]].concat());
            let found = probe(&std::fs::read(&path).unwrap()[..crate::probe::PROBE_BYTES]).unwrap();
            assert_eq!((found.label.as_str(), found.uuid.as_str()), (label, "0BAD-CAFE"), "FAT{width}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_names_survive_the_round_trip(names in proptest::collection::btree_map("[a-z0-9 _ß~.😀]{0,30}[a-z]", proptest::collection::vec(any::<u8>(), 0..2000), 0..40)) {
        let files: Vec<_> = names.into_iter().filter(|(name, _)| !name.starts_with(' ')).collect();
        let image = image(&volume(34 * MIB), &borrow(&files));
        let mut reader = Reader::open(image.as_slice()).unwrap();
        prop_assert_eq!(reader.list("").unwrap().len(), files.len());
        for (name, content) in &files {
            prop_assert_eq!(&reader.read(name, 4000).unwrap(), content);
        }
    }

    /// Every number of a boot sector at its limits, in volumes that are otherwise plausible: an overflow is a panic
    /// here.
    #[test]
    fn numbers_at_their_limits_never_panic(numbers in proptest::collection::vec((0_usize..9, prop::sample::select(vec![0, 1, 2, 3, 0x7f, 0x80, 0xff, 0xffff, 0x0fff_fff7, 0x7fff_ffff, u32::MAX - 1, u32::MAX])), 0..9), cluster in 0_u32..8) {
        let mut image = image(&volume(34 * MIB), &[]);
        image[13] = 1 << cluster;
        // Offset and width of: sector, reserved, tables, root entries, sectors (16), sectors a table (16), sectors,
        // sectors a table, root cluster.
        let fields = [(11, 2), (14, 2), (16, 1), (17, 2), (19, 2), (22, 2), (32, 4), (36, 4), (44, 4)];
        for (field, number) in numbers {
            let (at, width) = fields[field];
            image[at..at + width].copy_from_slice(&u32::to_le_bytes(number)[..width]);
        }
        let _ = identify(&image);
        let _ = identify(&image[..512]);
        if let Ok(mut reader) = Reader::open(image.as_slice()) {
            let _ = (reader.list(""), reader.read("config.yaml", 1 << 20));
        }
    }

    #[test]
    fn damaged_volumes_never_panic(changes in proptest::collection::vec((0usize..4000, any::<u8>()), 1..30)) {
        let mut image = image(&volume(34 * MIB), &borrow(&files(&[1; 600])[..20]));
        let fat = 32 * 512;
        let data = usize::try_from(Reader::open(image.as_slice()).unwrap().data_offset).unwrap();
        for (index, (at, with)) in changes.into_iter().enumerate() {
            let area = [0, fat, data, data + 2048][index % 4];
            let span = if area == 0 { 96 } else { 4000 };
            image[area + at % span] = with;
        }
        if let Ok(mut reader) = Reader::open(image.as_slice()) {
            for dir in ["", "EFI", "EFI/Linux", "many", "loader"] {
                let _ = reader.list(dir);
            }
            let _ = reader.read("EFI/BOOT/BOOTX64.EFI", 1 << 20);
        }
    }
}
