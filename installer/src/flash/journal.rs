//! The note of how far the writing of an image got, so that the next attempt need not begin anew.
//!
//! Owns: the note as a file that is replaced whole.
//! Does not: make anybody believe it: what it says is on the disk is compared with the image before it counts.

use std::fs;
use std::io::Write as _;
use std::path::Path;

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
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    let fresh = path.with_extension("new");
    let mut file = fs::File::create(&fresh).map_err(failed)?;
    file.write_all(&text).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    fs::rename(&fresh, path).map_err(failed)
}

/// The image is on the disk: there is nothing to go on with.
pub(super) fn forget(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::Note { path: path.to_owned(), source: error })
        }
        _ => Ok(()),
    }
}
