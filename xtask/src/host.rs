//! Programs that the host must have: found by file, installed by package name when they are not there.
//!
//! Does not: change package sources, upgrade anything, or ask questions.
//! Order: look for each file; as root install what is missing, else print it and go through sudo.
//! Fails by: naming the packages.

use std::ffi::OsStr;
use std::path::Path;

use anyhow::{Result, bail, ensure};

use crate::command::{Cmd, find_program};
use crate::step::{self, step};

/// What a command of xtask is going to do on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    /// Make an image.
    Build,
    /// Also start a virtual machine.
    Run,
    /// Also check our formats with the reference tools.
    Test,
}

/// A package, the first command that needs it, and a program or absolute path that it provides.
const PACKAGES: [(&str, Need, &str); 16] = [
    ("apt", Need::Build, "apt-get"),
    ("debian-archive-keyring", Need::Build, "/usr/share/keyrings/debian-archive-keyring.gpg"),
    ("gcc", Need::Build, "cc"),
    ("kmod", Need::Build, "depmod"),
    ("qemu-system-x86", Need::Run, "qemu-system-x86_64"),
    ("ovmf", Need::Run, "/usr/share/OVMF/OVMF_CODE_4M.fd"),
    ("binutils", Need::Test, "readelf"),
    ("cpio", Need::Test, "cpio"),
    ("cryptsetup-bin", Need::Test, "veritysetup"),
    ("dosfstools", Need::Test, "fsck.vfat"),
    ("gdisk", Need::Test, "sgdisk"),
    ("mtools", Need::Test, "mcopy"),
    ("qemu-utils", Need::Test, "qemu-img"),
    ("squashfs-tools", Need::Test, "unsquashfs"),
    ("swtpm", Need::Test, "swtpm"),
    ("xorriso", Need::Test, "xorriso"),
];

/// Makes sure that everything for this need is there.
pub(crate) fn ensure_packages(need: Need) -> Result<()> {
    let missing = missing(need);
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.join(" ");
    step::note(&format!("installing host packages: {names}"));
    let install = if rustix::process::geteuid().is_root() {
        Cmd::new("apt-get")
    } else {
        ensure!(
            find_program(OsStr::new("sudo")).is_some(),
            "install these packages, then run again: {names}"
        );
        Cmd::new("sudo").args(["--", "apt-get"])
    };
    let install = install
        .args(["install", "--yes", "--no-install-recommends"])
        .args(&missing)
        .env("DEBIAN_FRONTEND", "noninteractive");
    step("install host packages", || install.run())?;
    let still = self::missing(need);
    if !still.is_empty() {
        bail!("these packages are installed, but their programs are not found: {}", still.join(" "));
    }
    Ok(())
}

fn missing(need: Need) -> Vec<&'static str> {
    let needed = PACKAGES.iter().filter(|(_, from, _)| *from <= need);
    needed.filter(|(_, _, file)| !present(file)).map(|(package, _, _)| *package).collect()
}

fn present(file: &str) -> bool {
    if file.starts_with('/') { Path::new(file).exists() } else { find_program(OsStr::new(file)).is_some() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_need_includes_the_lesser_ones() {
        let count = |need| PACKAGES.iter().filter(|(_, from, _)| *from <= need).count();
        assert!(count(Need::Build) < count(Need::Run) && count(Need::Run) < count(Need::Test));
        assert_eq!(count(Need::Test), PACKAGES.len());
    }

    #[test]
    fn what_is_there_is_found() {
        assert!(present("ls") && present("/etc/passwd"));
        assert!(!present("no-such-program-of-billet") && !present("/no/such/file"));
    }
}
