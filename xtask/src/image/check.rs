//! What a production layer must not hold: shells, interpreters, package managers, scripts, dead links.

use std::fs::File;
use std::io::Read as _;

use anyhow::{Context, Result, bail};
use installer::tree::{Node, Tree};

use super::libraries;
use super::list::fits;
use super::paths::resolve;

/// Checks a whole tree; the first fault is named with its path.
pub(super) fn check(files: &Tree, forbidden: &[String], libraries: &str) -> Result<()> {
    for (path, entry) in files.iter() {
        let node = &entry.node;
        let name = path.rsplit('/').next().unwrap_or(path);
        let pattern = forbidden.iter().find(|pattern| fits(pattern, name));
        if let Some(pattern) = pattern.filter(|_| *node != Node::Dir) {
            bail!("/{path} is forbidden in an image ({pattern} in xtask/image/base.toml)");
        }
        if is_script(node).with_context(|| format!("/{path}"))? {
            bail!("/{path} is a script, and an image has nothing that could run it");
        }
        if let Node::Symlink(target) = node {
            check_link(files, path, target)?;
        }
    }
    libraries::check(files, libraries)
}

/// /proc, /run, /system and the like are filled at boot: links into them cannot be followed here.
fn check_link(files: &Tree, path: &str, target: &str) -> Result<()> {
    let at_boot = ["proc/", "run/", "system/", "var/", "dev/"];
    let relative = target.trim_start_matches("../").trim_start_matches('/');
    if at_boot.iter().any(|place| relative.starts_with(place)) || resolve(files, path).is_some() {
        return Ok(());
    }
    bail!("/{path} is a link to {target}, which the image lacks")
}

fn is_script(node: &Node) -> Result<bool> {
    match node {
        Node::Bytes(bytes) => Ok(bytes.starts_with(b"#!")),
        Node::File(from) => {
            let mut start = Vec::new();
            let file = File::open(from).with_context(|| format!("open {}", from.display()))?;
            file.take(2).read_to_end(&mut start).with_context(|| format!("read {}", from.display()))?;
            Ok(start == b"#!")
        }
        _ => Ok(false),
    }
}
