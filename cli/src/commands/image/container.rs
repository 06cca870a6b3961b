//! Installer images that others build on: this program in them, and what it does there.
//!
//! Does not: know what is taken in, and how; `installer::image::container` does.
//! Fails by: a line, which ends the container's build.

use crate::output::bytes_si;
use anyhow::{Context as _, Result, bail};
use installer::image::container::{self, REMOVE};
use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

/// This program, also when its file was replaced.
const SELF: &str = "/proc/self/exe";
/// Offset and length of an ELF file's program headers are in its first bytes, and these are in the first page (elf(5)).
const HEAD_BYTES: u64 = 4096;
/// The interpreter's path stands there.
const LOADER: &[u8] = b"/ld-linux";

/// This program, to be put in an image that has nothing that it could be linked with.
pub(super) fn program() -> Result<PathBuf> {
    let mut head = Vec::new();
    let file = File::open(SELF).with_context(|| format!("open {SELF}"))?;
    file.take(HEAD_BYTES).read_to_end(&mut head).with_context(|| format!("read {SELF}"))?;
    if head.windows(LOADER.len()).any(|window| window == LOADER) {
        bail!(
            "this billetctl is linked with libraries, and the image has none: use the one that `cargo xtask build` makes, \
             target/billet/billetctl"
        );
    }
    Ok(PathBuf::from(SELF))
}

/// In the container of an image that is built on ours.
pub(super) fn take_in() -> Result<()> {
    let words = std::env::var(REMOVE).unwrap_or_default();
    let remove = words.split_whitespace().map(str::to_owned).collect();
    let layers = container::take_in(Path::new("/"), remove, &mut installer::silent)?;
    for layer in layers {
        eprintln!("layer {}: {}", layer.name, bytes_si(layer.total_bytes()));
    }
    Ok(())
}
