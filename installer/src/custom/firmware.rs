//! Firmware for the initramfs with which a machine starts from the network: some cards send nothing before they have theirs, and
//! without a card there is no root yet.
//!
//! Owns: the segment with the files of `firmware`, and how much of them an initramfs takes; what of firmware a node does nothing
//! with, wherever it comes from.
//! Does not: put them into the root, where nodes that are up have them too.
//! Source: kernel Documentation/driver-api/firmware/fw_search_path.rst.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::FIRMWARE_DIRECTORY;
use super::additions::Sourced;
use crate::system::BootParts;
use crate::tree::{Entry, Node, Tree};
use crate::{Error, initramfs};

/// Where the kernel looks for firmware in the initramfs, which has no links to /usr.
const PLACE: &str = "lib/firmware";

/// Most bytes, packed or not: an initramfs may go through TFTP and lies in memory unpacked, and all boot parts of an installer
/// image together have 96 MB (`oci::installer`). Linux's firmware as a whole has several hundred.
const MOST_BYTES: u64 = 32 << 20;

/// Where the files of processors' microcode lie, links of the root followed or not. Kernels load these only from an archive of
/// its own, not packed, in front of the initramfs, which images have not.
const MICROCODE: [&str; 2] = ["lib/firmware/intel-ucode/", "lib/firmware/amd-ucode/"];

/// zstd level of customisations, as for their layers.
const ZSTD_LEVEL: i32 = 6;

/// Puts the files of these directories behind the firmware that there is. `gone`: what is removed, links followed. `Some`: a warning
/// of what is too much.
pub(super) fn add(
    directories: &[PathBuf],
    gone: &[String],
    boot: &mut BootParts,
) -> Result<Option<String>, Error> {
    if gone.iter().any(|path| path == FIRMWARE_DIRECTORY) {
        boot.firmware.clear();
    }
    let tree = placed(directories)?;
    if tree.iter().all(|(_, entry)| entry.node == Node::Dir) {
        return Ok(None);
    }
    let bytes = tree.content_bytes();
    if bytes > MOST_BYTES {
        return Ok(Some(too_much(bytes)));
    }
    // A later file takes the place of an earlier one when the kernel unpacks them.
    let whole = initramfs::join(&[&boot.firmware, &initramfs::compressed_segment(&tree, ZSTD_LEVEL)?]);
    if whole.len() as u64 > MOST_BYTES {
        return Ok(Some(too_much(whole.len() as u64)));
    }
    boot.firmware = whole;
    Ok(None)
}

/// Whether a file in the root is a processor's microcode.
pub(super) fn is_microcode(path: &str, entry: &Entry) -> bool {
    let path = path.strip_prefix("usr/").unwrap_or(path);
    entry.node != Node::Dir && MICROCODE.iter().any(|directory| path.starts_with(directory))
}

/// What to say of something that brings microcode.
pub(super) fn no_microcode(source: &str) -> String {
    format!("{source}: nodes do not load the processor microcode that it brings; the firmware's counts")
}

/// A warning for each source of additions that brings microcode.
pub(super) fn microcode(additions: &Sourced) -> Vec<String> {
    let bring = additions.iter().filter(|(place, (entry, _))| is_microcode(place, entry));
    let sources: BTreeSet<&str> = bring.map(|(_, (_, source))| source.as_str()).collect();
    sources.into_iter().map(no_microcode).collect()
}

/// The files where the initramfs has them. What two directories have is the same in both.
fn placed(directories: &[PathBuf]) -> Result<Tree, Error> {
    let mut entries: BTreeMap<String, Entry> = BTreeMap::new();
    for directory in directories {
        let mut tree = Tree::new();
        tree.load(PLACE, directory)?;
        entries.extend(tree.iter().map(|(path, entry)| (path.to_owned(), entry.clone())));
    }
    let mut tree = Tree::new();
    for (path, entry) in entries {
        tree.insert(&path, entry)?;
    }
    Ok(tree)
}

fn too_much(bytes: u64) -> String {
    format!(
        "firmware: {} MB are too much for the initramfs of machines that start from the network, which takes {} MB: these files are \
         in the root alone, and a card that needs one before there is a root will not come up. Where that matters name a directory \
         with the files of such cards, and add the others as files (--add DIRECTORY:/{FIRMWARE_DIRECTORY}; [[add]] in a profile)",
        bytes.div_ceil(1 << 20),
        MOST_BYTES >> 20
    )
}
