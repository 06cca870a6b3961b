//! The files of an installer image: making one, and reading one from the front to the end.
//!
//! Owns: the order of the files, the limits of what is held in memory.
//! Does not: know what the boot parts are; they go by their names.
//! Source: docs/formats/installer-image.md.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::PathBuf;

use super::{BOOT_FOLDER, Facts, LAYER_FOLDER, MANIFEST_PATH, labels};
use crate::archive::{Bytes, Content, NewImage};
use crate::files::{File, Files};

/// Longest root manifest.
const MAX_MANIFEST_BYTES: u64 = 1 << 20;
/// Longest of all boot parts together: kernel and initramfs segments are about 15 MB.
const MAX_BOOT_BYTES: u64 = 48 << 20;

/// What an installer image is made of.
#[derive(Debug, Clone)]
pub struct Contents {
    /// For which machines: `amd64`.
    pub architecture: String,
    /// What its labels say.
    pub facts: Facts,
    /// The root manifest.
    pub manifest: Vec<u8>,
    /// The boot parts by name.
    pub boot: Vec<(String, Vec<u8>)>,
    /// The layer files, lowest first.
    pub layers: Vec<PathBuf>,
}

impl Contents {
    /// The image, to be written by [`crate::archive::write`].
    #[must_use]
    pub fn image(self) -> NewImage {
        let here = |path: String, bytes| vec![Content { path, bytes: Bytes::Here(bytes) }];
        let mut layers = vec![here(MANIFEST_PATH.to_owned(), self.manifest)];
        layers.extend(self.boot.into_iter().map(|(name, bytes)| here(format!("{BOOT_FOLDER}{name}"), bytes)));
        layers.extend(self.layers.into_iter().map(|file| {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            vec![Content { path: format!("{LAYER_FOLDER}{name}"), bytes: Bytes::File(file) }]
        }));
        let (tag, labels) = (self.facts.version.clone(), labels(&self.facts));
        NewImage { architecture: self.architecture, tag, labels, layers }
    }
}

/// An installer image that is read once, from the front.
pub struct Walk<'o> {
    files: Files<'o>,
    /// A file that was come to and not taken yet.
    next: Option<File>,
}

impl<'o> Walk<'o> {
    /// A walk that has not begun.
    #[must_use]
    pub fn new(files: Files<'o>) -> Self {
        Self { files, next: None }
    }

    /// The root manifest, which comes first.
    pub fn manifest(&mut self) -> io::Result<Vec<u8>> {
        while let Some(file) = self.files.next_file()? {
            if file.path == MANIFEST_PATH {
                return self.held(&file, MAX_MANIFEST_BYTES);
            }
            if file.path.starts_with(BOOT_FOLDER) || file.path.starts_with(LAYER_FOLDER) {
                break;
            }
        }
        Err(wrong(format!("has no {MANIFEST_PATH} before its other files")))
    }

    /// The boot parts by name, which come next.
    pub fn boot(&mut self) -> io::Result<BTreeMap<String, Vec<u8>>> {
        let (mut found, mut room) = (BTreeMap::new(), MAX_BOOT_BYTES);
        while let Some(file) = self.files.next_file()? {
            if file.path.starts_with(LAYER_FOLDER) {
                self.next = Some(file);
                break;
            }
            let Some(name) = file.path.strip_prefix(BOOT_FOLDER) else { continue };
            found.insert(name.to_owned(), self.held(&file, room)?);
            room -= file.bytes.min(room);
        }
        Ok(found)
    }

    /// Goes to the layer file of this name, which has not been passed yet. Its content is what reading gives then.
    pub fn layer(&mut self, name: &str) -> io::Result<u64> {
        let path = format!("{LAYER_FOLDER}{name}");
        loop {
            let file = match self.next.take() {
                Some(file) => Some(file),
                None => self.files.next_file()?,
            };
            match file {
                Some(file) if file.path == path => return Ok(file.bytes),
                Some(_) => {}
                None => {
                    return Err(wrong(format!(
                        "has no {path}, or it is not where the manifest's order has it"
                    )));
                }
            }
        }
    }

    /// Reads everything that is left, so that every blob's digest is compared.
    pub fn finish(&mut self) -> io::Result<()> {
        self.files.finish()
    }

    fn held(&mut self, file: &File, limit: u64) -> io::Result<Vec<u8>> {
        if file.bytes > limit {
            return Err(wrong(format!("has a file {} that is too long: {} bytes", file.path, file.bytes)));
        }
        let mut content = Vec::new();
        self.files.read_to_end(&mut content)?;
        Ok(content)
    }
}

impl Read for Walk<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.files.read(buffer)
    }
}

fn wrong(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the installer image {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::{Archive, write};

    fn contents(folder: &std::path::Path) -> Contents {
        let layers = ["one", "two"].map(|name| {
            let path = folder.join(name);
            std::fs::write(&path, name.repeat(1000)).unwrap();
            path
        });
        Contents {
            architecture: "amd64".into(),
            facts: Facts { version: "0.2.0".into(), minimum_from: "0.1.0".into() },
            manifest: b"{}".to_vec(),
            boot: vec![("vmlinuz".into(), vec![1; 5000]), ("cmdline".into(), b"quiet".to_vec())],
            layers: layers.to_vec(),
        }
    }

    fn walk(image: &NewImage, folder: &std::path::Path, then: impl FnOnce(&mut Walk<'_>)) {
        let path = folder.join("image.tar");
        write(&mut std::fs::File::create(&path).unwrap(), image).unwrap();
        let archive = Archive::open(&path).unwrap();
        let (manifest, _) = archive.image("amd64").unwrap();
        let open = |number: usize| match manifest.layers.get(number) {
            Some(layer) => archive.blob(layer).map(Some).map_err(io::Error::other),
            None => Ok(None),
        };
        then(&mut Walk::new(Files::new(Box::new(open))));
    }

    #[test]
    fn what_was_put_in_comes_out_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let image = contents(folder.path()).image();
        assert_eq!(super::super::facts("i", &config_of(&image), "0.1.0").unwrap().version, "0.2.0");
        walk(&image, folder.path(), |walk| {
            assert_eq!(walk.manifest().unwrap(), b"{}");
            let boot = walk.boot().unwrap();
            assert_eq!((boot.len(), boot["cmdline"].as_slice()), (2, &b"quiet"[..]));
            for name in ["one", "two"] {
                assert_eq!(walk.layer(name).unwrap(), 3000);
                let mut text = String::new();
                walk.read_to_string(&mut text).unwrap();
                assert_eq!(text, name.repeat(1000));
            }
            walk.finish().unwrap();
        });
    }

    #[test]
    fn a_missing_file_and_another_order_are_said() {
        let folder = tempfile::tempdir().unwrap();
        let image = contents(folder.path()).image();
        walk(&image, folder.path(), |walk| {
            walk.manifest().unwrap();
            walk.boot().unwrap();
            walk.layer("two").unwrap();
            assert!(walk.layer("one").unwrap_err().to_string().contains("has no billet/layers/one"));
        });
        let mut headless = image.clone();
        headless.layers.remove(0);
        walk(&headless, folder.path(), |walk| {
            assert!(walk.manifest().unwrap_err().to_string().contains("has no billet/root.json"));
        });
    }

    fn config_of(image: &NewImage) -> crate::document::Config {
        let execution = crate::document::Execution { entrypoint: Vec::new(), labels: image.labels.clone() };
        crate::document::Config { config: execution, ..Default::default() }
    }
}
