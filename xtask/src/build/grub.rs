//! GRUB's images for machines without UEFI: Debian's modules, put together by Debian's own grub-mkimage.
//!
//! Owns: which modules the core image has, where it looks for its files.
//! Does not: use the host's GRUB: another version's program does not fit these modules. The program runs with the libraries of
//! its own release, by their loader, without being root.
//! Same inputs, same bytes: the image has no time and no path of this machine in it.
//! Source: grub-mkimage(1); docs/formats/grub.md.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use installer::grub::Parts;

use crate::cache::{Cache, KeyBuilder};
use crate::command::Cmd;
use crate::inputs::Package;
use crate::step::step;

/// Carries the modules and the boot image: what of GRUB lies on a disk.
pub(super) const PACKAGE: &str = "grub-pc-bin";

/// Carries grub-mkimage.
const TOOLS: &str = "grub-common";

/// Carries the loader that starts it.
const C_LIBRARY: &str = "libc6";

/// What else grub-mkimage is linked with.
const LIBRARIES: [&str; 6] =
    ["libcap2", "libdevmapper1.02.1", "liblzma5", "libpcre2-8-0", "libselinux1", "libudev1"];

/// Modules of the core image. There are no others on a disk: what `installer/src/grub/grub.cfg` uses is here.
const MODULES: [&str; 14] = [
    "biosdisk",
    "part_gpt",
    "fat", // Where the files are.
    "normal",
    "configfile",
    "loadenv",
    "test",
    "regexp",
    "echo",
    "sleep",
    "reboot", // What the script says.
    "loopback",
    "linux", // What it starts.
    "serial",
];

/// The same disk's first partition: the EFI system partition.
const PREFIX: &str = "(,gpt1)/grub";

/// Most bytes of the core image: the BIOS boot partition has a mebibyte, and the code that loads the image stops earlier.
const MAX_CORE_BYTES: usize = 480 << 10;

/// All packages that are needed to make the images.
pub(super) fn packages() -> Vec<&'static str> {
    [PACKAGE, TOOLS, C_LIBRARY].into_iter().chain(LIBRARIES).collect()
}

/// The images, made of these packages, which are unpacked in these directories.
pub(super) fn parts(
    cache: &Cache,
    packages: &[Package],
    directories: &BTreeMap<String, PathBuf>,
) -> Result<Parts> {
    let directory = |name: &str| directories.get(name).with_context(|| format!("{name} was not unpacked"));
    let images = directory(PACKAGE)?.join("usr/lib/grub/i386-pc");
    let mut key = KeyBuilder::new("grub core image 1").part(PREFIX);
    for package in packages {
        key = key.part(&package.sha256);
    }
    let key = MODULES.iter().fold(key, |key, module| key.part(module)).finish();
    let entry = cache.entry("grub", &key, |entry| {
        step("make GRUB's core image", || make(&directory, &images, &entry.join("core.img")))
    })?;
    let read = |path: PathBuf| std::fs::read(&path).with_context(|| format!("read {}", path.display()));
    let parts = Parts { boot: read(images.join("boot.img"))?, core: read(entry.join("core.img"))? };
    let bytes = parts.core.len();
    ensure!(bytes <= MAX_CORE_BYTES, "GRUB's core image has {bytes} bytes, {MAX_CORE_BYTES} are the most");
    Ok(parts)
}

fn make<'f>(directory: &impl Fn(&str) -> Result<&'f PathBuf>, images: &Path, output: &Path) -> Result<()> {
    let mut path = directory(C_LIBRARY)?.join("usr/lib/x86_64-linux-gnu").into_os_string();
    for name in LIBRARIES {
        path.push(":");
        path.push(directory(name)?.join("usr/lib/x86_64-linux-gnu"));
    }
    let loader = directory(C_LIBRARY)?.join("usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2");
    Cmd::new(loader)
        .arg("--library-path")
        .arg(path)
        .arg(directory(TOOLS)?.join("usr/bin/grub-mkimage"))
        .args(["--format", "i386-pc", "--prefix", PREFIX, "--directory"])
        .arg(images)
        .arg("--output")
        .arg(output)
        .args(MODULES)
        .run()
}
