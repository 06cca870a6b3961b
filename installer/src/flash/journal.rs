//! The note of how far the writing of an image got, so that the next attempt need not begin anew.
//!
//! Owns: the note as a file that is replaced whole.
//! Does not: make anybody believe it: what it says is on the disk is compared with the image before it counts.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Error;

const FORMAT: u32 = 1;

/// Which image, which disk, how far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    format: u32,
    image: String,
    target: String,
    done_bytes: u64,
}

/// Says before anything is written whether a note can be kept here.
pub fn check(path: &Path) -> Result<(), Error> {
    let failed = |source| Error::Note { path: path.to_owned(), source };
    let fresh = fresh(path).map_err(failed)?;
    fs::File::create(&fresh).map_err(failed)?;
    fs::remove_file(&fresh).map_err(failed)
}

/// How far the same image got on the same disk.
pub(super) fn read(path: &Path, image: &str, target: &str) -> u64 {
    let note = fs::read(path).ok().and_then(|text| serde_json::from_slice::<Note>(&text).ok());
    let same = note.filter(|note| (note.format, &*note.image, &*note.target) == (FORMAT, image, target));
    same.map_or(0, |note| note.done_bytes)
}

/// Notes that everything before `done_bytes` is on the disk.
pub(super) fn write(path: &Path, image: &str, target: &str, done_bytes: u64) -> Result<(), Error> {
    let failed = |source| Error::Note { path: path.to_owned(), source };
    let note = Note { format: FORMAT, image: image.to_owned(), target: target.to_owned(), done_bytes };
    let text = serde_json::to_vec(&note).map_err(|error| failed(error.into()))?;
    let fresh = fresh(path).map_err(failed)?;
    let mut file = fs::File::create(&fresh).map_err(failed)?;
    file.write_all(&text).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    fs::rename(&fresh, path).map_err(failed)
}

/// The file that takes the note's place, in a directory that is there.
fn fresh(path: &Path) -> io::Result<PathBuf> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    Ok(path.with_extension("new"))
}

/// The image is on the disk: there is nothing to go on with.
pub(super) fn forget(path: &Path) {
    // One that stays counts for nothing: what it says is there is compared first.
    let _ = fs::remove_file(path);
}
