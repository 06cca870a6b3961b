//! Files of a Debian system that programs make when it is installed: host key, module index, linker cache.
//!
//! Owns: running Debian's own programs for that, out of their unpacked packages; the results are cache entries.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use installer::tree::{Entry, Node, Tree};

use super::{Package, Parts, directory_of};
use crate::cache::{Key, KeyBuilder};
use crate::command::Cmd;

/// Where Debian's libraries lie.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// What ldconfig reads: its settings, the libraries, and the links by which they are reached.
const FOR_LDCONFIG: [&str; 6] =
    ["etc/ld.so.conf", "etc/ld.so.conf.d", LIBRARIES, "usr/lib64", "lib", "lib64"];

/// Debian's ssh-keygen makes the key, with Debian's libraries; the host may have neither.
pub(super) fn host_key(parts: &Parts<'_>, directories: &[(&Package, PathBuf)]) -> Result<PathBuf> {
    let client = directory_of(directories, "openssh-client")?;
    let key = KeyBuilder::new("bench host key 1").file(&client.join("usr/bin/ssh-keygen"))?.finish();
    parts.cache.entry("bench-key", &key, |entry| {
        let libraries: Vec<PathBuf> =
            directories.iter().map(|(_, directory)| directory.join(LIBRARIES)).collect();
        let libraries = std::env::join_paths(libraries).context("join library directories")?;
        let loader = directory_of(directories, "libc6")?.join(LIBRARIES).join("ld-linux-x86-64.so.2");
        let keygen =
            Cmd::new(loader).arg("--library-path").arg(libraries).arg(client.join("usr/bin/ssh-keygen"));
        keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", "root@debian", "-f"]).arg(entry.join("key")).run()
    })
}

/// udev's kmod reads depmod's binary index only.
pub(super) fn module_tree(parts: &Parts<'_>) -> Result<PathBuf> {
    let release = &parts.kernel.release;
    let index = parts.modules.directory.join("modules.dep");
    let key: Key =
        KeyBuilder::new("bench modules 1").part(&parts.kernel.identity).file(&index)?.part(release).finish();
    parts.cache.entry("bench-modules", &key, |entry| {
        let base = tempfile::tempdir_in(entry).context("create a directory")?;
        let tree = base.path().join("usr/lib/modules").join(release);
        copy_directory(&parts.modules.directory.join("kernel"), &tree.join("kernel"))?;
        for name in ["modules.builtin", "modules.builtin.modinfo", "modules.order"] {
            let from = parts.kernel.modules.join(name);
            fs::copy(&from, tree.join(name)).with_context(|| format!("copy {}", from.display()))?;
        }
        symlink("usr/lib", base.path().join("lib")).context("link lib")?;
        Cmd::new("depmod").arg("-b").arg(base.path()).arg(release).run()?;
        fs::rename(base.path().join("usr/lib/modules"), entry.join("modules")).context("move the modules")
    })
}

/// Without it every program would look for its libraries in a dozen directories, and a service would make it at each boot.
pub(super) fn linker_cache(parts: &Parts<'_>, files: &Tree, libc_bin: &Path) -> Result<PathBuf> {
    let wanted = |path: &str| FOR_LDCONFIG.iter().any(|directory| Path::new(path).starts_with(directory));
    let entries: Vec<(&str, &Entry)> = files.iter().filter(|(path, _)| wanted(path)).collect();
    let mut key = KeyBuilder::new("bench linker cache 1").part(libc_bin.to_string_lossy().as_bytes());
    for (path, entry) in &entries {
        // Files lie in directories of the cache that are named by their package's hash.
        key = key.part(path).part(format!("{:?}", entry.node));
    }
    parts.cache.entry("bench-linker-cache", &key.finish(), |directory| {
        let root = tempfile::tempdir_in(directory).context("create a directory")?;
        entries.iter().try_for_each(|(path, entry)| write(&root.path().join(path), entry))?;
        Cmd::new(libc_bin.join("usr/sbin/ldconfig")).arg("-X").arg("-r").arg(root.path()).run()?;
        fs::rename(root.path().join("etc/ld.so.cache"), directory.join("ld.so.cache"))
            .context("move ld.so.cache")
    })
}

fn write(path: &Path, entry: &Entry) -> Result<()> {
    match &entry.node {
        Node::Dir => fs::create_dir_all(path),
        Node::Symlink(target) => {
            fs::create_dir_all(path.parent().unwrap_or(path)).and_then(|()| symlink(target, path))
        }
        _ => {
            let content = entry.content().context("read a library")?;
            fs::create_dir_all(path.parent().unwrap_or(path)).and_then(|()| fs::write(path, content))
        }
    }
    .with_context(|| format!("write {}", path.display()))
}

fn copy_directory(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("create {}", to.display()))?;
    for item in fs::read_dir(from).with_context(|| format!("list {}", from.display()))? {
        let path = item.with_context(|| format!("list {}", from.display()))?.path();
        let to = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            copy_directory(&path, &to)?;
        } else {
            fs::copy(&path, &to).with_context(|| format!("copy {}", path.display()))?;
        }
    }
    Ok(())
}
