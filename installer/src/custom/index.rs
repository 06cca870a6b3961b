//! The kernel's index when modules are added to those of an image.
//!
//! Owns: which files are depmod's, and what becomes of those that came with the modules: lines for modules that cannot be read
//! here.
//! Does not: know modules; `kernel` reads them.
//! Source: man depmod(8). `make modules_install` leaves an index of nothing but what it installed, without what that needs of
//! the rest: in the place of the image's it would take all other modules away.

use ondisk::Architecture;
use ondisk::kmod::Texts;

use crate::Error;
use crate::kernel::{self, Files};
use crate::tree::{Entry, Node};

/// What a module's path ends in that is not unpacked here.
const UNREAD: &str = ".ko.xz";

/// The name of one of depmod's files, which lie in the directory of the release.
pub(super) fn name<'p>(path: &'p str, entry: &Entry) -> Option<&'p str> {
    let path = path.strip_prefix("usr/").unwrap_or(path);
    let (_, name) = path.strip_prefix("lib/modules/")?.split_once('/')?;
    let is_name = !name.contains('/') && name.starts_with("modules.");
    (is_name && matches!(entry.node, Node::Bytes(_) | Node::File(_))).then_some(name)
}

/// The index of before with the modules among these files, which are below the directory of the release. Those for other
/// processors are refused.
pub(super) fn with(
    before: &Texts,
    release: &str,
    files: &Files,
    architecture: Architecture,
) -> Result<Texts, Error> {
    kernel::check_machines(release, files, architecture)?;
    let unread: Vec<&str> = files.keys().map(String::as_str).filter(|path| path.ends_with(UNREAD)).collect();
    let told = kernel::given(files)?.only(&unread);
    let is_told = |path: &str| told.dep.lines().any(|line| line.split(':').next() == Some(path));
    let mut read = files.clone();
    read.retain(|path, _| !(path.ends_with(UNREAD) && is_told(path)));
    kernel::joined(release, &read, &told, before)
}
