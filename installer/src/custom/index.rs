//! The kernel's index with the modules of a system extension.
//!
//! Owns: which of an extension's files are depmod's, and what becomes of them: lines for its own modules, where these
//! cannot be read.
//! Does not: make the index where an extension brings none: `kernel` does that, as for all modules that are added.
//! Source: man depmod(8). `make modules_install` leaves an index of nothing but what it installed, without what that needs of
//! the rest: in the place of the image's it would take all other modules away.

use ondisk::kmod::Texts;

use super::lower::Lower;
use crate::Error;
use crate::kernel::{self, Files};
use crate::tree::{Entry, Node};

/// Where modules lie, with links followed.
const MODULES: &str = "usr/lib/modules";
/// Without this one there is no index.
const FIRST: &str = "modules.dep";
/// What a module's path ends in that is not unpacked here.
const UNREAD: &str = ".ko.xz";

/// The name of one of depmod's files, which lie in the folder of the release.
pub(super) fn name<'p>(path: &'p str, entry: &Entry) -> Option<&'p str> {
    let name = of_release(path).filter(|name| !name.contains('/') && name.starts_with("modules."));
    name.filter(|_| matches!(entry.node, Node::Bytes(_) | Node::File(_)))
}

/// The path below the folder of the release.
fn of_release(path: &str) -> Option<&str> {
    let path = path.strip_prefix("usr/").unwrap_or(path);
    path.strip_prefix("lib/modules/")?.split_once('/').map(|(_, path)| path)
}

/// Index files with all that the image has and these modules, by their paths in the image; none where they brought no index.
pub(super) fn with<'e>(
    brought: &Files,
    entries: impl Iterator<Item = (&'e String, &'e Entry)>,
    release: &str,
    lower: &Lower,
) -> Result<Vec<(String, Entry)>, Error> {
    if !brought.contains_key(FIRST) {
        return Ok(Vec::new());
    }
    let place = |name: &str| format!("{MODULES}/{release}/{name}");
    let file = |text: &str| Entry::new(0o644, Node::Bytes(text.as_bytes().to_vec()));
    let mut before = Files::new();
    for (name, _) in kernel::index_files(&Texts::default()) {
        let content = lower.content(&place(name))?.unwrap_or_default();
        before.insert(name.to_owned(), Entry::new(0o644, Node::Bytes(content)));
    }
    let modules = entries.filter_map(|(path, entry)| Some((of_release(path)?, entry)));
    let mut modules: Files = modules.map(|(path, entry)| (path.to_owned(), entry.clone())).collect();
    let unread: Vec<&str> =
        modules.keys().map(String::as_str).filter(|path| path.ends_with(UNREAD)).collect();
    let own = kernel::given(brought)?.only(&unread);
    let has = |path: &str| own.dep.lines().any(|line| line.split(':').next() == Some(path));
    modules.retain(|path, _| !(path.ends_with(UNREAD) && has(path)));
    let texts = kernel::made(release, &modules, &kernel::given(&before)?.with(&own))?;
    Ok(kernel::index_files(&texts).map(|(name, text)| (place(name), file(text))).into())
}
