//! Files that the machine config asks for.
//!
//! Owns: what `machine.files` and the generated parts of the configuration mean, and their way to the disk; new files below
//! /etc ([`etc`]).
//! Order: everything is computed from the image's own files first ([`plan`]), then written ([`place`]); a mistake
//! anywhere writes nothing.
//! Does not: know who uses a file.
//! Fails by: every mistake at once, in the words of docs/users/files.md.
//! Source: docs/users/files.md.

mod etc;
mod image;
mod place;
mod plan;
mod wanted;

use std::path::Path;

pub(crate) use etc::{EtcFile, show as show_in_etc};
pub(crate) use image::Image;
pub(crate) use plan::Target;
pub(crate) use wanted::{Operation, Wanted};

/// Writes all files below `root`, in this order. Says where each one went.
pub(crate) fn write(root: &Path, image: &Image, wanted: &[Wanted]) -> Result<Vec<Target>, Vec<String>> {
    let targets = plan::plan(wanted, image, root)?;
    let errors: Vec<String> = targets.iter().filter_map(|target| place::place(root, target).err()).collect();
    if errors.is_empty() { Ok(targets) } else { Err(errors) }
}
