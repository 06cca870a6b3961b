//! The survey beside `blkid`: images of every kind (testdata/probe), what tools make now, and two kinds at once.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::string::ToString;

use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

use super::*;

const IMAGES: &str = include_str!("../../testdata/probe/images.txt");
const MIB: u64 = 1 << 20;

/// A packed image: its name, what blkid calls it, its length and what is not zero of it.
struct Image {
    name: &'static str,
    kind: &'static str,
    bytes: u64,
    rows: Vec<(u64, Vec<u8>)>,
}

fn images() -> Vec<Image> {
    let mut images: Vec<Image> = Vec::new();
    for line in IMAGES.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match (line.starts_with(' '), words.as_slice()) {
            (true, [offset, hex]) => {
                let row = (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[i * 2..i * 2 + 2], 16).unwrap());
                let row = (u64::from_str_radix(offset, 16).unwrap(), row.collect());
                images.last_mut().unwrap().rows.push(row);
            }
            (false, [name, kind, bytes]) => {
                images.push(Image { name, kind, bytes: bytes.parse().unwrap(), rows: Vec::new() });
            }
            _ => panic!("{line}"),
        }
    }
    images
}

fn image(name: &str) -> Image {
    images().into_iter().find(|image| image.name == name).unwrap_or_else(|| panic!("no image {name}"))
}

/// A sparse file as a device.
struct Device {
    file: File,
    path: PathBuf,
    _dir: tempfile::TempDir,
}

impl Device {
    fn new(bytes: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("device");
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        file.set_len(bytes).unwrap();
        Self { file, path, _dir: dir }
    }

    fn of(images: &[&Image]) -> Self {
        let device = Self::new(images.iter().map(|image| image.bytes).max().unwrap());
        images.iter().for_each(|image| device.lay(image));
        device
    }

    /// What lies in the second half of an image lies as far from this device's end. A superblock of md 1.0 names its place.
    fn lay(&self, image: &Image) {
        let longer = self.bytes().saturating_sub(image.bytes);
        for (offset, row) in &image.rows {
            let at = if *offset < image.bytes / 2 { *offset } else { offset + longer };
            for (at, byte) in (at..).zip(row).filter(|(_, byte)| **byte != 0) {
                self.file.write_all_at(&[*byte], at).unwrap();
            }
        }
        if image.name == "md-1.0" {
            let at = self.bytes() - 8192;
            self.file.write_all_at(&(at / 512).to_le_bytes(), at + 144).unwrap();
        }
    }

    fn bytes(&self) -> u64 {
        self.file.metadata().unwrap().len()
    }

    fn survey(&self, extent: Extent) -> Survey {
        survey(&mut &*self, self.bytes(), extent).unwrap()
    }

    fn names(&self, extent: Extent) -> Vec<&'static str> {
        self.survey(extent).signatures().iter().map(|one| one.name).collect()
    }

    /// `TYPE`, or of what has none `PTTYPE`; `None` with exit code 2 (nothing) and 8 (several).
    fn blkid(&self) -> Option<std::string::String> {
        let output = run("blkid", &["-p", "-o", "export"], &self.path);
        let text = std::string::String::from_utf8(output).unwrap();
        let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(ToString::to_string);
        value("TYPE=").or_else(|| value("PTTYPE="))
    }
}

impl crate::ReadAt for &Device {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), crate::ReadError> {
        let length = buffer.len();
        self.file.read_exact_at(buffer, offset).map_err(|_| crate::ReadError { offset, length, errno: 0 })
    }
}

fn run(tool: &str, args: &[&str], path: &Path) -> Vec<u8> {
    let mut command = Command::new(tool);
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").args(args).arg(path);
    let output = command.output().unwrap_or_else(|e| panic!("this test needs {tool}: {e}"));
    let silent = matches!(output.status.code(), Some(2 | 8)) && tool == "blkid";
    assert!(silent || output.status.success(), "{tool}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn one(survey: &Survey) -> Option<&'static str> {
    match survey.verdict() {
        Verdict::One(one) => Some(one.name),
        Verdict::Unknown | Verdict::Several(_) => None,
    }
}

#[test]
fn every_kind_has_the_name_that_blkid_has_for_it() {
    let images = images();
    assert!(images.len() > 100, "{}", images.len());
    let mut other = Vec::new();
    for image in &images {
        let device = Device::of(&[image]);
        assert_eq!(device.blkid().as_deref(), Some(image.kind), "{}: blkid", image.name);
        let survey = device.survey(Extent::Disk);
        if one(&survey) != Some(image.kind) {
            other.push((image.name, image.kind, survey.signatures().to_vec()));
        }
    }
    assert_eq!(other, []);
}

#[test]
fn no_kind_of_blkid_is_missing() {
    let ours: BTreeSet<_> = images().iter().map(|image| image.kind.to_string()).collect();
    let list = std::string::String::from_utf8(run("blkid", &["-k"], Path::new("/dev/null"))).unwrap();
    let missing: Vec<&str> = list.lines().filter(|name| !ours.contains(*name)).collect();
    assert_eq!(missing, Vec::<&str>::new(), "kinds of the blkid here that have no image");
}

/// What the tools make now, whole: a superblock of one kind has nothing of another's.
#[test]
fn what_tools_make_is_one_kind_and_blkids() {
    let key = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(key.path(), "passphrase").unwrap();
    let key = key.path().to_str().unwrap();
    let luks =
        ["luksFormat", "-q", "--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000", "--key-file", key];
    let luks1 = [&luks[..], &["--type", "luks1"]].concat();
    let luks2 = [&luks[..], &["--type", "luks2"]].concat();
    let recipes: &[(&str, &[&str], u64, &str)] = &[
        ("mkfs.ext4", &["-q", "-t", "ext2"], 8, "ext2"),
        ("mkfs.ext4", &["-q", "-t", "ext3"], 8, "ext3"),
        ("mkfs.ext4", &["-q"], 8, "ext4"),
        ("mkfs.ext4", &["-q", "-O", "journal_dev", "-b", "4096"], 8, "jbd"),
        ("mkfs.vfat", &["-F", "12"], 2, "vfat"),
        ("mkfs.vfat", &["-F", "16"], 20, "vfat"),
        ("mkfs.vfat", &["-F", "32", "--mbr=y"], 64, "vfat"),
        ("mkfs.vfat", &["-F", "32", "-S", "4096"], 300, "vfat"),
        ("mkswap", &["-q"], 4, "swap"),
        ("mkswap", &["-q", "-p", "65536"], 4, "swap"),
        ("mkfs.minix", &["-3"], 4, "minix"),
        ("mkfs.bfs", &[], 4, "bfs"),
        ("cryptsetup", &luks1, 20, "crypto_LUKS"),
        ("cryptsetup", &luks2, 20, "crypto_LUKS"),
        ("sgdisk", &["-n", "1:0:0"], 8, "gpt"),
    ];
    for (tool, args, mib, kind) in recipes {
        let device = Device::new(mib * MIB);
        run(tool, args, &device.path);
        assert_eq!(device.blkid().as_deref(), Some(*kind), "blkid after {tool} {args:?}");
        let survey = device.survey(Extent::Disk);
        assert_eq!(one(&survey), Some(*kind), "{tool} {args:?}: {:?}", survey.signatures());
    }
}

#[test]
fn hybrid_images_are_one_kind() {
    let dir = tempfile::tempdir().unwrap();
    let (source, hybrid) = (dir.path().join("source"), dir.path().join("hybrid"));
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("file"), vec![1; 3 << 20]).unwrap();
    let out = hybrid.to_str().unwrap();
    run("xorriso", &["-as", "mkisofs", "-quiet", "-o", out], &source);
    let file = File::options().read(true).write(true).open(&hybrid).unwrap();
    let device = Device { file, path: hybrid, _dir: dir };
    assert_eq!(device.names(Extent::Disk), ["iso9660"]);
    // As isohybrid does: a table whose partition is the whole image.
    device.lay(&image("dos"));
    assert_eq!((device.names(Extent::Disk), device.blkid().as_deref()), (vec!["iso9660"], Some("iso9660")));
}

/// blkid calls the first of these a RAID's or LVM's member, and exits with 8 for the others.
#[test]
fn two_kinds_at_once_are_named_with_their_places() {
    for (pair, expected) in [
        (["lvm2", "luks2-second"], "LVM2_member at byte 512 and crypto_LUKS at byte 16384"),
        (["md-1.0", "xfs"], "linux_raid_member at byte 314564608 and xfs at byte 0"),
        (["zfs", "ext4"], "zfs_member at byte 66977792 and ext4 at byte 1080"),
        (["md-1.0", "luks2"], "linux_raid_member at byte 20963328 and crypto_LUKS at byte 0"),
        (["ext4", "btrfs"], "ext4 at byte 1080 and btrfs at byte 65600"),
        (["swap", "reiserfs"], "swap at byte 4086 and reiserfs at byte 65588"),
    ] {
        let [first, second] = pair.map(image);
        let survey = Device::of(&[&first, &second]).survey(Extent::Partition);
        let Verdict::Several(several) = survey.verdict() else { panic!("{pair:?}: {:?}", survey.verdict()) };
        let told: Vec<_> = several.iter().map(ToString::to_string).collect();
        assert_eq!(told.join(" and "), expected);
    }
}

#[test]
fn what_a_superblock_has_of_another_kind_is_no_second_one() {
    for (image_name, kind) in
        [("bitlocker-togo", "BitLocker"), ("ntfs", "ntfs"), ("exfat", "exfat"), ("fat-mbr", "vfat")]
    {
        let device = Device::of(&[&image(image_name)]);
        device.lay(&image("dos"));
        assert_eq!(device.names(Extent::Disk), [kind], "{image_name}");
    }
    // The number of free inodes of an ext lies where minix has its magic.
    let ext = Device::of(&[&image("ext4"), &image("minix1")]);
    assert_eq!(ext.names(Extent::Partition), ["ext4"]);
}

#[test]
fn bios_raids_and_tables_are_on_disks_only() {
    for kind in ["jmicron", "via", "isw", "hpt37x", "dos", "gpt"] {
        let device = Device::of(&[&image(kind)]);
        assert_eq!(device.names(Extent::Partition), Vec::<&str>::new(), "{kind}");
        assert_eq!(device.names(Extent::Disk).len(), 1, "{kind}");
    }
}

/// A workload that fills a file system with superblocks must not keep its node from mounting it, and a member of a RAID
/// ends with a superblock that the file system does not reach.
#[test]
fn files_cannot_make_their_file_system_foreign() {
    let device = Device::of(&[&image("xfs"), &image("zfs"), &image("md-1.0"), &image("btrfs")]);
    let length = |blocks: u64| {
        device.file.write_all_at(&4096_u32.to_be_bytes(), 4).unwrap();
        device.file.write_all_at(&blocks.to_be_bytes(), 8).unwrap();
    };
    length(device.bytes() / 4096);
    assert_eq!(device.names(Extent::Partition), ["linux_raid_member", "zfs_member", "xfs", "btrfs"]);
    let survey = device.survey(Extent::Partition).without_data_of_files();
    assert_eq!(one(&survey), Some("xfs"));
    // The same, but the file system ends where the RAID's superblock begins.
    length(device.bytes() / 4096 - 2);
    let survey = device.survey(Extent::Partition).without_data_of_files();
    let names: Vec<_> = survey.signatures().iter().map(|one| one.name).collect();
    assert_eq!(names, ["linux_raid_member", "xfs"]);
    // ZFS's list of names lies where a file never does.
    length(device.bytes() / 4096);
    device.file.write_all_at(&[1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], 16 << 10).unwrap();
    let survey = device.survey(Extent::Partition).without_data_of_files();
    let names: Vec<_> = survey.signatures().iter().map(|one| one.name).collect();
    assert_eq!(names, ["zfs_member", "xfs"]);
}

/// The end of an encrypted volume is noise, and so is most of its start.
#[test]
fn noise_has_no_signature() {
    let device = Device::new(6 * MIB);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..8 {
        let noise: Vec<u8> = (0..6 * MIB / 8)
            .flat_map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state.to_le_bytes()
            })
            .collect();
        device.file.write_all_at(&noise, 0).unwrap();
        assert_eq!(device.survey(Extent::Partition).verdict(), Verdict::Unknown, "round {round}");
    }
}

#[test]
fn what_is_read_is_aligned_within_the_device_and_bounded() {
    for bytes in [0, 1, 511, 512, 4096, 65_536, MIB, MIB + 512, 3 * MIB, 40 * MIB, 1 << 40, u64::MAX] {
        let ranges = ranges(bytes);
        let mut last = 0;
        for range in &ranges {
            assert!(
                range.start % 4096 == 0 && (range.end % 4096 == 0 || range.end == bytes),
                "{bytes}: {range:?}"
            );
            assert!(
                range.start < range.end && range.end <= bytes && range.start >= last,
                "{bytes}: {range:?}"
            );
            last = range.end;
        }
        let sum: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        assert!(sum <= 1_700_000 && (bytes == 0 || last == bytes), "{bytes}: {sum}");
    }
}

#[test]
fn a_device_that_cannot_be_read_is_an_error() {
    let device = Device::new(MIB);
    let error = survey(&mut &device, 2 * MIB, Extent::Disk).unwrap_err();
    assert!(error.to_string().ends_with("end of device"), "{error}");
    let nothing = survey(&mut [].as_slice(), 0, Extent::Disk).unwrap();
    assert!(nothing.is_blank() && nothing.verdict() == Verdict::Unknown);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Every image with some bytes changed, and cut anywhere.
    #[test]
    fn nothing_panics_in_a_survey(which in any::<prop::sample::Index>(), changes in prop::collection::vec((any::<prop::sample::Index>(), 0_u64..600, any::<u8>()), 0..20), cut in 0_u64..9) {
        let images = images();
        let image = &images[which.index(images.len())];
        let mut bytes = vec![0; usize::try_from(image.bytes.min(8 * MIB)).unwrap()];
        for (offset, row) in &image.rows {
            crate::field::put(&mut bytes, usize::try_from(*offset).unwrap(), row);
        }
        for (row, at, value) in changes {
            let offset = image.rows[row.index(image.rows.len())].0 + at;
            crate::field::put(&mut bytes, usize::try_from(offset).unwrap(), &[value]);
        }
        for length in [bytes.len(), bytes.len() >> cut, (bytes.len() >> cut) + 1, 1537] {
            let device = &bytes[..length.min(bytes.len())];
            for extent in [Extent::Disk, Extent::Partition] {
                let found = survey(&mut &*device, device.len() as u64, extent).unwrap();
                let _ = (found.verdict(), found.filesystem(), found.clone().without_data_of_files());
            }
        }
    }
}
