//! initramfs, UKI, disk image and config volume as other programs see them; the same bytes on every build.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;

use common::{noise, text, tool};
use installer::layer::{self, Spec};
use installer::{disk, initramfs, uki};
use ondisk::cpio::Reader;
use ondisk::fat::File;
use ondisk::gpt;
use ondisk::manifest::RootManifest;
use ondisk::pe::Image;

/// A PE image by the GNU linker; its recipe is beside it.
const STUB: &[u8] = include_bytes!("../../crates/ondisk/testdata/stub.efi");

/// Everything there is, built in one directory.
struct Built {
    manifest: RootManifest,
    initramfs: Vec<u8>,
    uki: Vec<u8>,
}

fn build(directory: &Path) -> Built {
    common::write_host_files(directory);
    let tree = common::tree(directory);
    let base = layer::build(&tree, &Spec::new("base", "1.0"), directory, &mut installer::silent).unwrap();
    let manifest = layer::stack("0.1.0", [base]).unwrap();

    let mut early = installer::tree::Tree::new();
    early.bytes("init", 0o755, noise(100_001)).unwrap();
    early.bytes("etc/billet/root.json", 0o644, manifest.to_json()).unwrap();
    early.load("lib", &directory.join("lib")).unwrap();
    let main = initramfs::compressed_segment(&early, 3).unwrap();
    let layers = initramfs::layers_segment(&manifest, directory).unwrap();
    let path = directory.join("initramfs");
    initramfs::write(&path, &[&main, &layers]).unwrap();
    let initramfs = fs::read(&path).unwrap();

    let parts = uki::Parts {
        stub: STUB,
        kernel: &noise(50_000),
        initramfs: &main,
        cmdline: "console=ttyS0",
        os_release: "ID=billet\n",
        kernel_release: "6.12.1",
    };
    let uki = uki::assemble(&parts).unwrap();
    fs::write(directory.join("uki"), &uki).unwrap();
    write_disk(directory, &manifest, &uki);
    let config = [File { path: "config.yaml", content: b"version: v1alpha1\n" }];
    installer::config_volume(&directory.join("config"), "metal-iso", &config).unwrap();
    Built { manifest, initramfs, uki }
}

fn write_disk(directory: &Path, manifest: &RootManifest, uki: &[u8]) {
    let files = [
        File { path: "EFI/BOOT/BOOTX64.EFI", content: STUB },
        File { path: "EFI/Linux/billet-000001.efi", content: uki },
        File { path: "loader/loader.conf", content: b"timeout 0\n" },
    ];
    // Smaller than by default: the test below compares every byte.
    let spec = disk::Spec {
        efi_bytes: 64 << 20,
        root_bytes: 8 << 20,
        ..disk::Spec::new(manifest, directory, &files)
    };
    disk::write(&directory.join("disk"), &spec, &mut installer::silent).unwrap();
}

#[test]
fn the_initramfs_unpacks_segment_by_segment() {
    let dir = tempfile::tempdir().unwrap();
    let built = build(dir.path());
    let frame = zstd::zstd_safe::find_frame_compressed_size(&built.initramfs).unwrap();
    let main = zstd::bulk::decompress(&built.initramfs[..frame], 1 << 24).unwrap();
    let entries: Vec<_> = Reader::new(&main).map(Result::unwrap).collect();
    let content = |name: &str| entries.iter().find(|entry| entry.name == name).unwrap().content;
    assert_eq!(content("init"), noise(100_001));
    assert_eq!(RootManifest::parse(content("etc/billet/root.json")), Ok(built.manifest.clone()));
    assert!(entries.iter().all(|entry| entry.mtime == 0 && entry.uid == 0 && entry.gid == 0));

    // The kernel looks for an uncompressed segment at multiples of four only.
    let second = frame.next_multiple_of(4);
    assert!(built.initramfs[frame..second].iter().all(|byte| *byte == 0));
    let layers: Vec<_> = Reader::new(&built.initramfs[second..]).map(Result::unwrap).collect();
    let layer = &built.manifest.layers[0];
    let names: Vec<_> = layers.iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["billet", "billet/layers", &format!("billet/layers/{}", layer.file_name())]);
    assert!(layers[2].content == fs::read(dir.path().join(layer.file_name())).unwrap());
}

#[test]
fn the_uki_has_its_sections_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let built = build(dir.path());
    let image = Image::parse(&built.uki).unwrap();
    let names: Vec<_> = image.sections().iter().map(|section| section.name).collect();
    assert_eq!(names[names.len() - 5..], [".osrel", ".cmdline", ".uname", ".initrd", ".linux"]);
    assert_eq!(image.section(".linux"), Some(&noise(50_000)[..]));
    assert!(tool("objdump", &["-h", text(&dir.path().join("uki"))]).contains(".linux"));
}

#[test]
fn the_disk_is_valid_and_holds_uki_and_root() {
    let dir = tempfile::tempdir().unwrap();
    let built = build(dir.path());
    let path = dir.path().join("disk");
    let status = fs::metadata(&path).unwrap();
    assert!(status.blocks() * 512 < 16 << 20, "{} KiB of the image are not sparse", status.blocks() / 2);
    let verdict = tool("sgdisk", &["-v", text(&path)]);
    assert!(verdict.contains("No problems found"), "{verdict}");
    let verdict = tool("sfdisk", &["-V", text(&path)]);
    assert!(verdict.contains("No errors detected"), "{verdict}");

    let mut disk = FileAt(fs::File::open(&path).unwrap());
    let found = gpt::read(&mut disk, gpt::Geometry::new(512, status.len()).unwrap()).unwrap();
    assert_eq!(found.copy, gpt::Copy::Primary);
    let names: Vec<_> = found.table.partitions.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names, ["EFI", "ROOT-A", "ROOT-B", "META"]);
    let efi = found.table.by_name("EFI").unwrap();
    check_efi(&path, found.table.offset_bytes(efi), dir.path(), &built.uki);
    let root = found.table.offset_bytes(found.table.by_name("ROOT-A").unwrap());
    let layer = &built.manifest.layers[0];
    let mut bytes = vec![0; usize::try_from(layer.total_bytes()).unwrap()];
    ondisk::ReadAt::read_at(&mut disk, root, &mut bytes).unwrap();
    assert!(bytes == fs::read(dir.path().join(layer.file_name())).unwrap());
}

fn check_efi(disk: &Path, offset: u64, directory: &Path, uki: &[u8]) {
    let efi = directory.join("efi");
    let skip = format!("skip={}", offset >> 20);
    let (from, to) = (format!("if={}", text(disk)), format!("of={}", text(&efi)));
    tool("dd", &[&from, &to, "bs=1M", &skip, "count=64", "conv=sparse"]);
    let verdict = tool("fsck.vfat", &["-n", text(&efi)]);
    assert!(!verdict.contains("differ") && !verdict.contains("rror"), "{verdict}");
    let copy = directory.join("copy");
    tool("mcopy", &["-n", "-i", text(&efi), "::EFI/Linux/billet-000001.efi", text(&copy)]);
    assert!(fs::read(copy).unwrap() == uki);
}

struct FileAt(fs::File);

impl ondisk::ReadAt for FileAt {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), ondisk::ReadError> {
        let length = buffer.len();
        let failed = |error: std::io::Error| ondisk::ReadError {
            offset,
            length,
            errno: error.raw_os_error().unwrap_or(0),
        };
        std::os::unix::fs::FileExt::read_exact_at(&self.0, buffer, offset).map_err(failed)
    }
}

#[test]
fn a_root_that_does_not_fit_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let built = build(dir.path());
    let spec = disk::Spec { root_bytes: 4096, ..disk::Spec::new(&built.manifest, dir.path(), &[]) };
    let path = dir.path().join("small");
    let error = disk::write(&path, &spec, &mut installer::silent).unwrap_err();
    let expected = format!("the layers take {} bytes, a slot has 4096", built.manifest.slot_bytes());
    assert_eq!(error.to_string(), expected);
    assert!(!path.exists());
}

#[test]
fn the_config_volume_is_found_by_its_label() {
    let dir = tempfile::tempdir().unwrap();
    build(dir.path());
    let path = dir.path().join("config");
    let start = fs::read(&path).unwrap()[..ondisk::probe::PROBE_BYTES].to_vec();
    assert_eq!(ondisk::probe::probe(&start).unwrap().label, "metal-iso");
    let config = tool("mtype", &["-i", text(&path), "::config.yaml"]);
    assert_eq!(config, "version: v1alpha1\n");
}

/// The directory that the child below builds in.
const DIRECTORY: &str = "BILLET_TEST_DIRECTORY";

/// Run by the test below with another working directory, umask, locale and time zone.
#[test]
#[ignore = "a child of builds_in_different_environments_are_identical"]
fn child_that_builds() {
    // Nothing to do when somebody runs all ignored tests.
    if let Ok(directory) = std::env::var(DIRECTORY) {
        build(Path::new(&directory));
    }
}

#[test]
fn builds_in_different_environments_are_identical() {
    let dir = tempfile::tempdir().unwrap();
    let directories = ["a", "another/much longer/directory"].map(|name| dir.path().join(name));
    for (directory, umask, zone) in [(&directories[0], "022", "UTC"), (&directories[1], "077", "Asia/Tokyo")]
    {
        fs::create_dir_all(directory).unwrap();
        let output = Command::new("sh")
            .args(["-c", "umask $1; exec \"$2\" --exact child_that_builds --ignored", "sh", umask])
            .arg(std::env::current_exe().unwrap())
            .current_dir(directory)
            .env(DIRECTORY, directory)
            .env("TZ", zone)
            .env("LC_ALL", if umask == "022" { "C" } else { "de_DE.UTF-8" })
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    let mut names: Vec<_> =
        fs::read_dir(&directories[0]).unwrap().map(|item| item.unwrap().file_name()).collect();
    names.retain(|name| name != "lib");
    assert_eq!(names.len(), 5, "{names:?}");
    for name in names {
        let [first, second] = [0, 1].map(|i| fs::read(directories[i].join(&name)).unwrap());
        assert!(first == second, "{name:?} differs");
    }
}
