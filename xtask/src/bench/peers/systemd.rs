//! A minimal Debian: what debootstrap's minbase has at run time, with systemd, networkd, D-Bus, udev and sshd.
//!
//! Owns: which packages, and what their maintainer scripts would have written.
//! Does not: run those scripts; [`made`] has what programs have to make. Documentation and translations are left out,
//! as no boot reads them.

mod made;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use installer::tree::{Node, Tree};

use super::{Parts, read};
use crate::inputs::{Inputs, Package};

/// One name a line.
const PACKAGES: &str = include_str!("systemd/packages");

/// Below these no boot reads anything.
const LEFT_OUT: [&str; 6] = [
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "usr/share/info",
    "usr/share/lintian",
    "usr/share/bug",
];

const UNITS: &str = "usr/lib/systemd/system";

const HOST_KEY: &str = "etc/ssh/ssh_host_ed25519_key";

/// Users and groups that the packages' scripts add to base-passwd's.
const USERS: &str = "\
messagebus:x:101:101::/nonexistent:/usr/sbin/nologin
sshd:x:102:65534::/run/sshd:/usr/sbin/nologin
systemd-network:x:103:103::/:/usr/sbin/nologin
";
const GROUPS: &str = "messagebus:x:101:\nsystemd-network:x:103:\nsystemd-journal:x:104:\ninput:x:105:\nsgx:x:106:\n\
    clock:x:107:\nkvm:x:108:\nrender:x:109:\n";

const NETWORK: &str = "[Match]\nName=e*\n[Network]\nDHCP=ipv4\n";

/// ssh.service counts as started when sshd says that it listens.
const PROBE_UNIT: &str = "[Unit]\nAfter=ssh.service\n[Service]\nType=oneshot\n\
    ExecStart=/usr/bin/bench-probe 127.0.0.1:22\n[Install]\nWantedBy=multi-user.target\n";

pub(super) fn files(parts: &Parts<'_>, inputs: &mut Inputs<'_>) -> Result<Tree> {
    let names: Vec<&str> = PACKAGES.lines().filter(|line| !line.is_empty()).collect();
    let packages = inputs.resolve(&names)?;
    let directories = inputs.unpack(&packages)?;
    let directories: Vec<(&Package, PathBuf)> = packages
        .iter()
        .map(|package| {
            Ok((package, directories.get(&package.name).context("a package was not unpacked")?.clone()))
        })
        .collect::<Result<_>>()?;
    let mut files = Tree::new();
    for (package, directory) in &directories {
        add_package(&mut files, directory).with_context(|| format!("package {}", package.name))?;
    }
    settings(&mut files, &directories)?;
    services(&mut files)?;
    let key = made::host_key(parts, &directories)?;
    // sshd refuses keys that others may read.
    files.file(HOST_KEY, 0o600, key.join("key"))?;
    files.file(&format!("{HOST_KEY}.pub"), 0o644, key.join("key.pub"))?;
    files.file("usr/bin/bench-probe", 0o755, &parts.probe)?;
    files.load("usr/lib/modules", &made::module_tree(parts)?.join("modules"))?;
    let cache = made::linker_cache(parts, &files, directory_of(&directories, "libc-bin")?)?;
    files.file("etc/ld.so.cache", 0o644, cache.join("ld.so.cache"))?;
    Ok(files)
}

fn add_package(files: &mut Tree, directory: &Path) -> Result<()> {
    let mut package = Tree::new();
    package.load("", directory)?;
    for (path, entry) in package.iter() {
        let left_out = LEFT_OUT.iter().any(|directory| Path::new(path).starts_with(directory));
        // Directories may come with several packages, or with none that gives them a mode of its own.
        let known_directory = entry.node == Node::Dir && files.get(path).is_some();
        // The cache's own list of an entry is no part of the package.
        if !left_out && !known_directory && path != ".checksums" {
            files.insert(path, entry.clone())?;
        }
    }
    Ok(())
}

/// What base-passwd's, systemd's and sshd's scripts write.
fn settings(files: &mut Tree, directories: &[(&Package, PathBuf)]) -> Result<()> {
    let masters = directory_of(directories, "base-passwd")?.join("usr/share/base-passwd");
    files.bytes("etc/passwd", 0o644, read(&masters.join("passwd.master"))? + USERS)?;
    files.bytes("etc/group", 0o644, read(&masters.join("group.master"))? + GROUPS)?;
    files.bytes("etc/fstab", 0o644, "")?;
    files.bytes("etc/hostname", 0o644, "debian\n")?;
    files.bytes("etc/machine-id", 0o644, "0123456789abcdef0123456789abcdef\n")?;
    let sshd = directory_of(directories, "openssh-server")?.join("usr/share/openssh/sshd_config");
    files.file("etc/ssh/sshd_config", 0o644, sshd)?;
    files.bytes("etc/systemd/network/10.network", 0o644, NETWORK)?;
    files.symlink("init", "usr/lib/systemd/systemd")?;
    Ok(())
}

fn services(files: &mut Tree) -> Result<()> {
    let etc = "etc/systemd/system";
    files.bytes(&format!("{etc}/bench-probe.service"), 0o644, PROBE_UNIT)?;
    files.symlink(&format!("{etc}/default.target"), format!("/{UNITS}/multi-user.target"))?;
    let wants = format!("{etc}/multi-user.target.wants");
    files.symlink(&format!("{wants}/bench-probe.service"), "../bench-probe.service")?;
    for name in ["ssh.service", "systemd-networkd.service"] {
        files.symlink(&format!("{wants}/{name}"), format!("/{UNITS}/{name}"))?;
    }
    Ok(())
}

/// The files of a package.
fn directory_of<'a>(directories: &'a [(&Package, PathBuf)], name: &str) -> Result<&'a Path> {
    let found = directories.iter().find(|(package, _)| package.name == name);
    found
        .map(|(_, directory)| directory.as_path())
        .with_context(|| format!("{name} is not in the list of packages"))
}
