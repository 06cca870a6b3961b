//! A minimal Debian: what debootstrap's minbase has at run time, with systemd, networkd, D-Bus, udev and sshd.
//!
//! Owns: which packages, and what their maintainer scripts would have written.
//! Does not: run those scripts. Documentation and translations are left out, as no boot reads them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use installer::tree::{Node, Tree};

use super::{Parts, read};
use crate::cache::{Key, KeyBuilder};
use crate::command::Cmd;
use crate::inputs::{Inputs, Package};

/// One name a line.
const PACKAGES: &str = include_str!("systemd.packages");

/// Below these no boot reads anything.
const LEFT_OUT: [&str; 6] =
    ["usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "usr/share/lintian", "usr/share/bug"];

const UNITS: &str = "usr/lib/systemd/system";

/// In the order of Debian's libraries: where ssh-keygen finds its own.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

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
    let folders = inputs.unpack(&packages)?;
    let folders: Vec<(&Package, PathBuf)> = packages
        .iter()
        .map(|package| Ok((package, folders.get(&package.name).context("a package was not unpacked")?.clone())))
        .collect::<Result<_>>()?;
    let mut files = Tree::new();
    for (package, folder) in &folders {
        add_package(&mut files, folder).with_context(|| format!("package {}", package.name))?;
    }
    settings(&mut files, &folders)?;
    services(&mut files)?;
    let key = host_key(parts, &folders)?;
    // sshd refuses keys that others may read.
    files.file(HOST_KEY, 0o600, key.join("key"))?;
    files.file(&format!("{HOST_KEY}.pub"), 0o644, key.join("key.pub"))?;
    files.file("usr/bin/bench-probe", 0o755, &parts.probe)?;
    let modules = module_tree(parts)?;
    files.load("usr/lib/modules", &modules.join("modules"))?;
    Ok(files)
}

fn add_package(files: &mut Tree, folder: &Path) -> Result<()> {
    let mut package = Tree::new();
    package.load("", folder)?;
    for (path, entry) in package.iter() {
        let left_out = LEFT_OUT.iter().any(|folder| Path::new(path).starts_with(folder));
        // Folders may come with several packages, or with none that gives them a mode of its own.
        let known_folder = entry.node == Node::Dir && files.get(path).is_some();
        // The cache's own list of an entry is no part of the package.
        if !left_out && !known_folder && path != ".checksums" {
            files.insert(path, entry.clone())?;
        }
    }
    Ok(())
}

/// What base-passwd's, systemd's and sshd's scripts write.
fn settings(files: &mut Tree, folders: &[(&Package, PathBuf)]) -> Result<()> {
    let masters = folder_of(folders, "base-passwd")?.join("usr/share/base-passwd");
    files.bytes("etc/passwd", 0o644, read(&masters.join("passwd.master"))? + USERS)?;
    files.bytes("etc/group", 0o644, read(&masters.join("group.master"))? + GROUPS)?;
    files.bytes("etc/fstab", 0o644, "")?;
    files.bytes("etc/hostname", 0o644, "debian\n")?;
    files.bytes("etc/machine-id", 0o644, "0123456789abcdef0123456789abcdef\n")?;
    let sshd = folder_of(folders, "openssh-server")?.join("usr/share/openssh/sshd_config");
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

fn folder_of<'a>(folders: &'a [(&Package, PathBuf)], name: &str) -> Result<&'a Path> {
    let found = folders.iter().find(|(package, _)| package.name == name);
    found.map(|(_, folder)| folder.as_path()).with_context(|| format!("{name} is not in the list of packages"))
}

/// Debian's ssh-keygen makes the key, with Debian's libraries; the host may have neither.
fn host_key(parts: &Parts<'_>, folders: &[(&Package, PathBuf)]) -> Result<PathBuf> {
    let client = folder_of(folders, "openssh-client")?;
    let key = KeyBuilder::new("bench host key 1").file(&client.join("usr/bin/ssh-keygen"))?.finish();
    parts.cache.entry("bench-key", &key, |entry| {
        let libraries: Vec<PathBuf> = folders.iter().map(|(_, folder)| folder.join(LIBRARIES)).collect();
        let libraries = std::env::join_paths(libraries).context("join library folders")?;
        let loader = folder_of(folders, "libc6")?.join(LIBRARIES).join("ld-linux-x86-64.so.2");
        let keygen = Cmd::new(loader).arg("--library-path").arg(libraries).arg(client.join("usr/bin/ssh-keygen"));
        keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", "root@debian", "-f"]).arg(entry.join("key")).run()
    })
}

/// udev's kmod reads depmod's binary index only.
fn module_tree(parts: &Parts<'_>) -> Result<PathBuf> {
    let release = &parts.kernel.release;
    let key: Key = KeyBuilder::new("bench modules 1").part(&parts.modules.identity).part(release).finish();
    parts.cache.entry("bench-modules", &key, |entry| {
        let base = tempfile::tempdir_in(entry).context("create a folder")?;
        let tree = base.path().join("usr/lib/modules").join(release);
        copy_folder(&parts.modules.folder.join("kernel"), &tree.join("kernel"))?;
        for name in ["modules.builtin", "modules.builtin.modinfo", "modules.order"] {
            let from = parts.kernel.modules.join(name);
            fs::copy(&from, tree.join(name)).with_context(|| format!("copy {}", from.display()))?;
        }
        std::os::unix::fs::symlink("usr/lib", base.path().join("lib")).context("link lib")?;
        Cmd::new("depmod").arg("-b").arg(base.path()).arg(release).run()?;
        fs::rename(base.path().join("usr/lib/modules"), entry.join("modules")).context("move the modules")
    })
}

fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("create {}", to.display()))?;
    for item in fs::read_dir(from).with_context(|| format!("list {}", from.display()))? {
        let path = item.with_context(|| format!("list {}", from.display()))?.path();
        let to = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            copy_folder(&path, &to)?;
        } else {
            fs::copy(&path, &to).with_context(|| format!("copy {}", path.display()))?;
        }
    }
    Ok(())
}
