//! Where an image goes: a disk of this machine, or a file that stands for one.
//!
//! Owns: which target is refused, opening it, the names of notes.
//! Does not: change a target; a file that is not there is made when it is opened.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use ondisk::Digest;

use super::disks::{self, Disk};
use super::{Error, Image};
use crate::device::Direct;

/// A target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A whole disk.
    Disk(Disk),
    /// A file.
    File {
        /// Its path.
        path: PathBuf,
        /// Its length; none: it is made, as long as the image.
        bytes: Option<u64>,
    },
}

impl Target {
    /// Looks at what a path leads to. `root` is `/`, or a directory with `sys` and `proc` of another machine.
    pub fn find(root: &Path, path: &Path) -> Result<Self, Error> {
        if !path.exists() {
            // A misspelt disk must not become a file in memory.
            if path.starts_with("/dev") {
                let reason = "there is no such disk; `billetctl flash IMAGE` lists those that there are";
                return Err(Error::Refused { target: path.display().to_string(), reason: reason.to_owned() });
            }
            let directory = directory(path);
            if !directory.is_dir() {
                let reason = format!("there is no directory {}: make it first", directory.display());
                return Err(Error::Refused { target: path.display().to_string(), reason });
            }
            return Ok(Self::File { path: path.to_owned(), bytes: None });
        }
        if let Some(disk) = disks::at(root, path)? {
            return Ok(Self::Disk(disk));
        }
        let status = fs::metadata(path).map_err(|source| Error::Look { path: path.to_owned(), source })?;
        if !status.is_file() {
            let reason = "it is neither a disk nor a file".to_owned();
            return Err(Error::Refused { target: path.display().to_string(), reason });
        }
        Ok(Self::File { path: path.to_owned(), bytes: Some(status.len()).filter(|bytes| *bytes > 0) })
    }

    /// What it is called.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        match self {
            Self::Disk(disk) => disk.path(),
            Self::File { path, .. } => path.clone(),
        }
    }

    /// Whether it reads as zeros.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        matches!(self, Self::File { bytes: None, .. })
    }

    /// What tells it from other targets.
    #[must_use]
    pub fn identity(&self) -> String {
        match self {
            Self::Disk(disk) => disk.identity(),
            Self::File { path, .. } => match fs::canonicalize(path) {
                Ok(path) => path.display().to_string(),
                // One that is about to be made has the name that it will be found by.
                Err(_) => {
                    let directory = fs::canonicalize(directory(path)).unwrap_or_default();
                    directory.join(path.file_name().unwrap_or_default()).display().to_string()
                }
            },
        }
    }

    /// Says before anything is opened whether the image can be written to it.
    pub fn check(&self, image: &Image, force: bool) -> Result<(), Error> {
        let target = || self.path().display().to_string();
        if let Some(reason) = self.same(image) {
            return Err(Error::Refused { target: target(), reason: reason.to_owned() });
        }
        let (bytes, sectors) = match self {
            Self::Disk(disk) => (Some(disk.bytes), Some(disk.sector_bytes)),
            Self::File { bytes, .. } => (*bytes, None),
        };
        if let Self::Disk(disk) = self
            && let Some(reason) = disk.refusal(force)
        {
            return Err(Error::Refused { target: target(), reason });
        }
        let (path, needed_bytes) = (image.path().to_owned(), image.bytes());
        if let Some(bytes) = bytes.filter(|bytes| *bytes < needed_bytes) {
            return Err(Error::TooSmall { path, target: target(), needed_bytes, bytes });
        }
        match (image.sector_bytes(), sectors) {
            (Some(image_bytes), Some(disk_bytes)) if image_bytes != disk_bytes => {
                Err(Error::Sectors { path, target: target(), image_bytes, disk_bytes })
            }
            _ => Ok(()),
        }
    }

    /// Why writing to it would overwrite the image while that is read.
    fn same(&self, image: &Image) -> Option<&'static str> {
        let (path, reason) = match self {
            Self::File { path, .. } => (path, "it is the image itself: name another file"),
            Self::Disk(disk) => {
                (disk.backing_file.as_ref()?, "it is a loop device over the image itself: name another disk")
            }
        };
        let id = |path: &Path| fs::metadata(path).ok().map(|status| (status.dev(), status.ino()));
        id(path).filter(|found| Some(*found) == id(image.path())).map(|_| reason)
    }

    /// Removes the file that [`Target::open`] made, when nothing can come of it.
    pub fn abandon(&self) {
        if self.is_blank() {
            // Who cannot remove it is told of the failure that led here.
            let _ = fs::remove_file(self.path());
        }
    }

    /// Opens it. `force`: although somebody uses it.
    pub fn open(&self, image: &Image, force: bool) -> Result<Direct, Error> {
        let path = self.path();
        if self.is_blank() {
            let look = |source| Error::Look { path: path.clone(), source };
            let file = File::options().write(true).create(true).truncate(false).open(&path).map_err(look)?;
            file.set_len(image.bytes()).map_err(look)?;
        }
        let shared = force && matches!(self, Self::Disk(disk) if !disk.uses.is_empty());
        Direct::open(&path, image.sector_bytes().unwrap_or(512), shared).map_err(Error::Open)
    }
}

/// The directory that a file lies in.
fn directory(path: &Path) -> &Path {
    path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Where the note for a target is kept, in a directory of such notes.
#[must_use]
pub fn note_path(directory: &Path, target: &Target) -> PathBuf {
    let digest = Digest::sha256(&[target.identity().as_bytes()]).to_string();
    directory.join(format!("flash-{}.json", digest.get(..16).unwrap_or(&digest)))
}

/// What new GUIDs are made from.
pub fn random_seed() -> Result<[u8; 32], Error> {
    let path = Path::new("/dev/urandom");
    let mut seed = [0; 32];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut seed));
    read.map_err(|source| Error::Look { path: path.to_owned(), source })?;
    Ok(seed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flash::{Request, write};

    /// A file of as many mebibytes, and the same as an image.
    fn image(directory: &Path, mebibytes: usize) -> (PathBuf, Image) {
        let source = directory.join("image");
        fs::write(&source, vec![5; mebibytes << 20]).unwrap();
        let image = Image::open_as_is(&source).unwrap();
        (source, image)
    }

    #[test]
    fn a_file_is_made_as_long_as_the_image_and_an_existing_one_keeps_its_length() {
        let directory = tempfile::tempdir().unwrap();
        let (_, image) = image(directory.path(), 3);
        let long = directory.path().join("long");
        fs::write(&long, vec![9; 5 << 20]).unwrap();
        for (path, bytes) in [(directory.path().join("new"), 3 << 20), (long, 5 << 20)] {
            let target = Target::find(Path::new("/"), &path).unwrap();
            target.check(&image, false).unwrap();
            let mut device = target.open(&image, false).unwrap();
            let name = path.display().to_string();
            let is_blank = target.is_blank();
            let request =
                Request { image: &image, name: &name, identity: "x", note: None, seed: None, is_blank };
            write(&request, &mut device, &mut crate::silent).unwrap();
            let found = fs::read(&path).unwrap();
            assert!(found.len() == bytes && found[..3 << 20].iter().all(|byte| *byte == 5));
        }
    }

    #[test]
    fn wrong_targets_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let (_, image) = image(directory.path(), 1);
        let short = directory.path().join("short");
        fs::write(&short, "too short").unwrap();
        let target = Target::find(Path::new("/"), &short).unwrap();
        assert!(target.check(&image, true).unwrap_err().to_string().contains("choose a larger disk"));
        for (path, text) in
            [("/dev/sdzz", "no such disk"), ("/dev/null", "neither"), ("/tmp", "neither a disk nor a file")]
        {
            let error = Target::find(Path::new("/"), Path::new(path)).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
        let nowhere = directory.path().join("none/disk");
        let error = Target::find(Path::new("/"), &nowhere).unwrap_err().to_string();
        assert!(error.contains("there is no directory") && error.contains("none: make it first"), "{error}");
    }

    /// Under each of its names, as a loop device, and whatever is forced.
    #[test]
    fn the_image_itself_is_no_target() {
        let directory = tempfile::tempdir().unwrap();
        let (source, image) = image(directory.path(), 1);
        let (link, hard) = (directory.path().join("link"), directory.path().join("hard"));
        std::os::unix::fs::symlink(&source, &link).unwrap();
        fs::hard_link(&source, &hard).unwrap();
        for path in [&source, &link, &hard] {
            let target = Target::find(Path::new("/"), path).unwrap();
            let error = target.check(&image, true).unwrap_err().to_string();
            assert!(error.contains("it is the image itself"), "{error}");
        }
        let device = |backing_file| {
            let (name, model, serial, has_twin) = ("loop7".to_owned(), String::new(), String::new(), false);
            let (is_removable, is_read_only, is_system, zeroes_at_once) = (false, false, false, true);
            let (bytes, sector_bytes, uses) = (2 << 20, 512, Vec::new());
            Target::Disk(Disk {
                name,
                bytes,
                sector_bytes,
                model,
                serial,
                has_twin,
                is_removable,
                is_read_only,
                uses,
                is_system,
                zeroes_at_once,
                backing_file,
            })
        };
        let error = device(Some(link)).check(&image, true).unwrap_err().to_string();
        assert!(
            error.contains("/dev/loop7") && error.contains("a loop device over the image itself"),
            "{error}"
        );
        let other = directory.path().join("other");
        fs::write(&other, "x").unwrap();
        device(Some(other)).check(&image, true).unwrap();
        device(None).check(&image, true).unwrap();
    }

    #[test]
    fn a_file_is_the_same_target_before_and_after_it_was_made() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("in")).unwrap();
        let path = directory.path().join("in/../disk");
        let before = Target::find(Path::new("/"), &path).unwrap();
        let (identity, note) = (before.identity(), note_path(directory.path(), &before));
        fs::write(&path, "now it is there").unwrap();
        let after = Target::find(Path::new("/"), &path).unwrap();
        assert_eq!((identity, note), (after.identity(), note_path(directory.path(), &after)));
        assert!(before.is_blank() && !after.is_blank());
        after.abandon();
        assert!(path.exists(), "it was there before");
        before.abandon();
        assert!(!path.exists());
    }
}
