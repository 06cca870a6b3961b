//! Where an image goes: a disk of this machine, or a file that stands for one.
//!
//! Owns: which target is refused, opening it, the names of notes.
//! Does not: change a target; a file that is not there is made when it is opened.

use std::fs::{self, File};
use std::io::Read as _;
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
    /// Looks at what a path leads to. `root` is `/`, or a folder with `sys` and `proc` of another machine.
    pub fn find(root: &Path, path: &Path) -> Result<Self, Error> {
        if !path.exists() {
            // A misspelt disk must not become a file in memory.
            if path.starts_with("/dev") {
                let reason = "there is no such disk; `billetctl flash IMAGE` lists those that there are";
                return Err(Error::Refused { target: path.display().to_string(), reason: reason.to_owned() });
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
            Self::File { path, .. } => {
                fs::canonicalize(path).unwrap_or_else(|_| path.clone()).display().to_string()
            }
        }
    }

    /// Says before anything is opened whether the image can be written to it.
    pub fn check(&self, image: &Image, force: bool) -> Result<(), Error> {
        let target = || self.path().display().to_string();
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

/// Where the note for a target is kept, in a folder of such notes.
#[must_use]
pub fn note_path(folder: &Path, target: &Target) -> PathBuf {
    let digest = Digest::sha256(&[target.identity().as_bytes()]).to_string();
    folder.join(format!("flash-{}.json", digest.get(..16).unwrap_or(&digest)))
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

    #[test]
    fn a_file_is_made_as_long_as_the_image_and_an_existing_one_keeps_its_length() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("image");
        fs::write(&source, vec![5; 3 << 20]).unwrap();
        let image = Image::open(&source).unwrap();
        let long = folder.path().join("long");
        fs::write(&long, vec![9; 5 << 20]).unwrap();
        for (path, bytes) in [(folder.path().join("new"), 3 << 20), (long, 5 << 20)] {
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
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("image");
        fs::write(&source, vec![5; 1 << 20]).unwrap();
        let image = Image::open(&source).unwrap();
        let short = folder.path().join("short");
        fs::write(&short, "too short").unwrap();
        let target = Target::find(Path::new("/"), &short).unwrap();
        assert!(target.check(&image, true).unwrap_err().to_string().contains("choose a larger disk"));
        for (path, text) in
            [("/dev/sdzz", "no such disk"), ("/dev/null", "neither"), ("/tmp", "neither a disk nor a file")]
        {
            let error = Target::find(Path::new("/"), Path::new(path)).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
    }
}
