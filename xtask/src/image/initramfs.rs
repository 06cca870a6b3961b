//! The initramfs in segments, so that what changes often is small: modules, init; the root manifest is the installer's.
//!
//! Order: modules first, since they are the same for every build of one kernel; then, for a root from the network alone,
//! what reaches it; the manifest last.

use std::path::Path;

use anyhow::Result;
use installer::tree::{Node, Tree};

/// Names of modules that init loads without being asked by a device.
const LOAD_LIST: &str = "etc/billet/modules.load";

/// The modules' segment with the directories that init mounts on.
pub(crate) fn modules(release: &str, directory: &Path, load_list: &str) -> Result<Tree> {
    let mut tree = Tree::new();
    for mount_point in ["dev", "proc", "run", "sys", "sysroot"] {
        tree.dir(mount_point, 0o755)?;
    }
    tree.load(&format!("lib/modules/{release}"), directory)?;
    tree.bytes(LOAD_LIST, 0o644, load_list)?;
    Ok(tree)
}

/// The segment behind the modules' with those of `whole` that are not in `base`, and the index of all, which replaces
/// the other one.
pub(crate) fn network(release: &str, base: &Path, whole: &Path) -> Result<Tree> {
    let mut all = Tree::new();
    all.load("", whole)?;
    let mut tree = Tree::new();
    for (path, entry) in all.iter() {
        let is_new = !path.ends_with(".ko") || !base.join(path).exists();
        if is_new && matches!(entry.node, Node::File(_)) {
            tree.insert(&format!("lib/modules/{release}/{path}"), entry.clone())?;
        }
    }
    Ok(tree)
}

/// init's segment.
pub(crate) fn init(program: &Path) -> Result<Tree> {
    let mut tree = Tree::new();
    tree.file("init", 0o755, program)?;
    Ok(tree)
}
