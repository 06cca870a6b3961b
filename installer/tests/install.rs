//! Installation to an image file as other programs see it, and what is in use.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use common::{noise, text, tool};
use installer::device::{BlockDevice as _, Disk};
use installer::install::{self, Identity, Spec};
use installer::layer;
use installer::upgrade::NewSystem;
use ondisk::fat::File;
use ondisk::manifest::RootManifest;

const LOADER: [File<'static>; 2] = [
    File { path: "EFI/BOOT/BOOTX64.EFI", content: b"the loader" },
    File { path: "loader/loader.conf", content: b"timeout 0\n" },
];

fn identity(path: &Path) -> Identity {
    Identity { path: text(path).into(), model: String::new(), serial: String::new() }
}

fn manifest(directory: &Path) -> RootManifest {
    common::write_host_files(directory);
    let tree = common::tree(directory);
    let base =
        layer::build(&tree, &layer::Spec::new("base", "1.0"), directory, &mut installer::silent).unwrap();
    layer::stack("0.1.0", [base]).unwrap()
}

/// Installs to a new image file of a disk with these sectors, and answers with the plan.
fn install(directory: &Path, image: &Path, sector_bytes: u32) -> (install::Plan, Vec<u8>) {
    let manifest = manifest(directory);
    let uki = noise(3_000_000);
    fs::File::create(image).unwrap().set_len(1 << 30).unwrap();
    let mut disk = Disk::open_with_sectors(image, sector_bytes).unwrap();
    let system = NewSystem { uki: &uki, manifest: &manifest };
    let spec = Spec { efi_bytes: 300 << 20, root_bytes: 8 << 20, ..Spec::new(system, &LOADER, [3; 32]) };
    let plan = install::plan(&mut disk, identity(image), &spec).unwrap();
    let mut source = |layer: &ondisk::manifest::Layer| {
        let file = fs::File::open(directory.join(layer.file_name())).unwrap();
        Ok(Box::new(file) as Box<dyn std::io::Read>)
    };
    let mut steps = Vec::new();
    let mut note = |progress: installer::Progress| {
        assert!(progress.done_bytes <= progress.total_bytes);
        steps.push(progress.step);
    };
    install::apply(&mut disk, &plan, &spec, &mut source, &mut note).unwrap();
    steps.dedup();
    assert_eq!(steps, ["boot files", "write", "verify"]);
    (plan, uki)
}

/// The bytes of the partition `EFI` as a file of its own.
fn efi(plan: &install::Plan, image: &Path, directory: &Path) -> std::path::PathBuf {
    let partition = plan.table.by_name("EFI").unwrap();
    let mebibytes = |bytes: u64| bytes >> 20;
    let copy = directory.join("efi");
    let (from, to) = (format!("if={}", text(image)), format!("of={}", text(&copy)));
    let skip = format!("skip={}", mebibytes(plan.table.offset_bytes(partition)));
    let count = format!("count={}", mebibytes(plan.table.size_bytes(partition)));
    tool("dd", &[&from, &to, "bs=1M", &skip, &count, "conv=sparse"]);
    copy
}

#[test]
fn other_tools_accept_an_installed_disk() {
    for sector_bytes in [512, 4096] {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("disk");
        let (plan, uki) = install(dir.path(), &image, sector_bytes);
        let used = fs::metadata(&image).unwrap().blocks() * 512;
        assert!(used < 16 << 20, "{used} bytes of the image are not holes");
        // Both take every file for a disk of such sectors.
        if sector_bytes == 512 {
            check_table(&plan, &image);
        }
        let efi = efi(&plan, &image, dir.path());
        let verdict = tool("fsck.vfat", &["-n", text(&efi)]);
        assert!(!verdict.contains("differ") && !verdict.contains("rror"), "{verdict}");
        let copy = dir.path().join("copy");
        tool("mcopy", &["-n", "-i", text(&efi), "::EFI/Linux/billet-000001.efi", text(&copy)]);
        assert!(fs::read(copy).unwrap() == uki, "the UKI is another one");
    }
}

fn check_table(plan: &install::Plan, image: &Path) {
    let verdict = tool("sgdisk", &["-v", text(image)]);
    assert!(verdict.contains("No problems found"), "{verdict}");
    let verdict = tool("sfdisk", &["-V", text(image)]);
    assert!(verdict.contains("No errors detected"), "{verdict}");
    let listing = tool("sfdisk", &["-d", text(image)]);
    for partition in &plan.table.partitions {
        let name = format!("name=\"{}\"", partition.name);
        let guid = format!("uuid={}", partition.guid.to_string().to_uppercase());
        assert!(listing.lines().any(|line| line.contains(&name) && line.contains(&guid)), "{listing}");
    }
}

#[test]
fn what_other_tools_write_is_known_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let manifest = manifest(dir.path());
    let image = dir.path().join("disk");
    let system = NewSystem { uki: b"uki", manifest: &manifest };
    let spec = Spec { efi_bytes: 64 << 20, root_bytes: 8 << 20, ..Spec::new(system, &LOADER, [3; 32]) };
    let cases: [(&str, &[&str], &str); 5] = [
        ("sgdisk", &["-n", "1:0:+16M", "-c", "1:pictures"], "a GPT with partitions pictures"),
        (
            "mke2fs",
            &["-q", "-F", "-t", "ext4", "-L", "mine"],
            "ext4 labelled mine, without a partition table, at byte 1080",
        ),
        ("mkfs.vfat", &["-n", "STICK"], "vfat labelled STICK, without a partition table, at byte 0"),
        ("mkswap", &["-L", "swapping"], "swap labelled swapping, without a partition table, at byte 4086"),
        ("sgdisk", &["-n", "1:0:+16M", "-t", "1:fd00"], "a GPT with partitions 1 (no name)"),
    ];
    for (name, arguments, found) in cases {
        // A new file each time: a tool may leave what another one wrote.
        let _ = fs::remove_file(&image);
        fs::File::create(&image).unwrap().set_len(256 << 20).unwrap();
        tool(name, &[arguments, &[text(&image)]].concat());
        let before = fs::read(&image).unwrap();
        let error = install::plan(&mut Disk::open(&image).unwrap(), identity(&image), &spec).unwrap_err();
        let expected = format!("{} holds {found}: choose another disk, or have it wiped", text(&image));
        assert!(error.to_string().starts_with(&expected), "{error}");
        assert!(fs::read(&image).unwrap() == before, "{name}: a plan has written");
    }
}

#[test]
fn a_disk_in_use_or_its_end_cannot_be_written() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("disk");
    fs::write(&image, vec![7; 8192]).unwrap();
    let mut disk = Disk::open(&image).unwrap();
    assert_eq!((disk.bytes(), disk.sector_bytes()), (8192, 512));
    let error = Disk::open(&image).unwrap_err().to_string();
    assert_eq!(error, format!("open {}", text(&image)));
    let error = disk.write_at(8191, b"xx").unwrap_err();
    assert_eq!(error.to_string(), format!("write 2 bytes at 8191 of {}", text(&image)));
    disk.zero(0, 4096).unwrap();
    disk.zero(8192, 0).unwrap();
    disk.flush().unwrap();
    drop(disk);
    let content = fs::read(&image).unwrap();
    assert!(content[..4096].iter().all(|byte| *byte == 0) && content[4096..].iter().all(|byte| *byte == 7));
    let missing = dir.path().join("nothing");
    let error = Disk::open(&missing).unwrap_err();
    assert_eq!(
        std::error::Error::source(&error).unwrap().to_string(),
        "No such file or directory (os error 2)"
    );
}
