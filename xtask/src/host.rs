//! Programs that the host must have: found by file, installed by package name when they are not there.
//!
//! Does not: change package sources, upgrade anything, or ask questions.
//! Order: look for each file; as root install what is missing, else print it and go through sudo.
//! Fails by: naming the packages.

use std::ffi::OsStr;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

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
    /// Also what only the long run checks.
    LongTest,
}

/// A package, the first command that needs it, and a program or absolute path that it provides.
const PACKAGES: [(&str, Need, &str); 35] = [
    ("apt", Need::Build, "apt-get"),
    ("debian-archive-keyring", Need::Build, "/usr/share/keyrings/debian-archive-keyring.gpg"),
    ("gcc", Need::Build, "cc"),
    ("kmod", Need::Build, "depmod"),
    ("qemu-system-x86", Need::Run, "qemu-system-x86_64"),
    ("ovmf", Need::Run, "/usr/share/OVMF/OVMF_CODE_4M.fd"),
    ("age", Need::Test, "age"),
    ("binutils", Need::Test, "readelf"),
    ("bmap-tools", Need::Test, "bmaptool"),
    ("buildah", Need::Test, "buildah"),
    ("cpio", Need::Test, "cpio"),
    ("cryptsetup-bin", Need::Test, "veritysetup"),
    ("dnsmasq-base", Need::Test, "dnsmasq"),
    ("docker-registry", Need::Test, "docker-registry"),
    ("dosfstools", Need::Test, "fsck.vfat"),
    ("e2fsprogs", Need::Test, "mkfs.ext4"),
    ("etcd-server", Need::Test, "etcd"),
    ("fdisk", Need::Test, "sfdisk"),
    ("gdisk", Need::Test, "sgdisk"),
    ("iproute2", Need::Test, "ip"),
    ("keepalived", Need::Test, "keepalived"),
    ("mtools", Need::Test, "mcopy"),
    ("nftables", Need::Test, "nft"),
    ("openssl", Need::Test, "openssl"),
    ("qemu-utils", Need::Test, "qemu-img"),
    ("runc", Need::Test, "runc"),
    ("sbsigntool", Need::Test, "sbverify"),
    ("skopeo", Need::Test, "skopeo"),
    ("squashfs-tools", Need::Test, "unsquashfs"),
    ("swtpm", Need::Test, "swtpm"),
    ("xorriso", Need::Test, "xorriso"),
    ("zstd", Need::Test, "zstd"),
    ("busybox", Need::LongTest, "busybox"),
    ("kea-dhcp4-server", Need::LongTest, "kea-dhcp4"),
    ("kea-dhcp6-server", Need::LongTest, "kea-dhcp6"),
];

/// What compiling a kernel takes besides, with a program or absolute path of each.
const KERNEL_PACKAGES: [(&str, &str); 9] = [
    ("bc", "bc"),
    ("bison", "bison"),
    ("flex", "flex"),
    ("libelf-dev", "/usr/include/libelf.h"),
    ("libssl-dev", "/usr/include/openssl/ssl.h"),
    ("make", "make"),
    ("perl", "perl"),
    ("xz-utils", "xz"),
    ("zstd", "zstd"),
];

/// What compiling and starting images for 64-bit ARM takes besides, with a program or absolute path of each.
const ARM64_PACKAGES: [(&str, &str); 4] = [
    ("gcc-aarch64-linux-gnu", "aarch64-linux-gnu-gcc"),
    ("libc6-dev-arm64-cross", "/usr/aarch64-linux-gnu/lib/libc.a"),
    ("qemu-efi-aarch64", "/usr/share/AAVMF/AAVMF_CODE.fd"),
    ("qemu-system-arm", "qemu-system-aarch64"),
];

/// What nodes that are containers take, with a program of each.
const CLUSTER_PACKAGES: [(&str, &str); 4] =
    [("iproute2", "ip"), ("mount", "mount"), ("nftables", "nft"), ("runc", "runc")];

/// What networkd is measured beside, with a program of each.
const NETWORK_PACKAGES: [(&str, &str); 6] = [
    ("busybox", "busybox"),
    ("dnsmasq-base", "dnsmasq"),
    ("iproute2", "ip"),
    ("isc-dhcp-client", "dhclient"),
    ("systemd", "/usr/lib/systemd/systemd-networkd"),
    ("util-linux", "unshare"),
];

/// Makes sure that networkd can be measured beside other clients.
pub(crate) fn ensure_network_packages() -> Result<()> {
    ensure(|| absent(&NETWORK_PACKAGES))
}

/// Makes sure that nodes can be containers of this machine.
pub(crate) fn ensure_cluster_packages() -> Result<()> {
    ensure(|| [missing(Need::Build), absent(&CLUSTER_PACKAGES)].concat())
}

/// Makes sure that everything for this need is there.
pub(crate) fn ensure_packages(need: Need) -> Result<()> {
    ensure(|| missing(need))
}

/// Makes sure that a kernel can be compiled.
pub(crate) fn ensure_kernel_packages() -> Result<()> {
    ensure(|| absent(&KERNEL_PACKAGES))
}

/// Makes sure that images for 64-bit ARM can be made and started.
pub(crate) fn ensure_arm64_packages() -> Result<()> {
    ensure(|| absent(&ARM64_PACKAGES))
}

fn absent(packages: &[(&'static str, &str)]) -> Vec<&'static str> {
    packages.iter().filter(|(_, file)| !present(file)).map(|(package, _)| *package).collect()
}

fn ensure(look: impl Fn() -> Vec<&'static str>) -> Result<()> {
    let missing = look();
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.join(" ");
    step::note(&format!("installing host packages: {names}"));
    let install = || {
        let words = ["install", "--yes", "--no-install-recommends"];
        apt()?.args(words).args(&missing).env("DEBIAN_FRONTEND", "noninteractive").run()
    };
    // A new machine has no package lists, an old one may have stale ones.
    let refresh_and_install = |_| apt()?.args(["update"]).run().and_then(|()| install());
    step("install host packages", || install().or_else(refresh_and_install))?;
    let still = look();
    if !still.is_empty() {
        bail!("these packages are installed, but their programs are not found: {}", still.join(" "));
    }
    Ok(())
}

/// `apt-get`, as root.
fn apt() -> Result<Cmd> {
    if rustix::process::geteuid().is_root() {
        return Ok(Cmd::new("apt-get"));
    }
    let sudo = sudo().context("these packages are missing: install them as root, then run again")?;
    Ok(sudo.arg("apt-get"))
}

/// sudo, before the words of a command.
pub(crate) fn sudo() -> Result<Cmd> {
    ensure!(find_program(OsStr::new("sudo")).is_some(), "this needs root, and there is no sudo");
    Ok(Cmd::new("sudo").arg("--"))
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
        assert!(count(Need::Test) < count(Need::LongTest));
        assert_eq!(count(Need::LongTest), PACKAGES.len());
    }

    #[test]
    fn what_is_there_is_found() {
        assert!(present("ls") && present("/etc/passwd"));
        assert!(!present("no-such-program-of-billet") && !present("/no/such/file"));
    }
}
