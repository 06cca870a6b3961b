//! The files of an installer image: making one, and reading one from the front to the end.
//!
//! Owns: the order of the files, the limits of what is held in memory, what counts where somebody built on the image.
//! Does not: know what the boot parts are; they go by their names.
//! Source: docs/formats/installer-image.md.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::path::PathBuf;

use ondisk::Architecture;

use super::{
    BOOT_FOLDER, Facts, KERNEL, KERNEL_PATH, LAYER_FOLDER, LAYERS_LABEL, MANIFEST_PATH, PROGRAM_PATH,
    kernel_path_for, labels,
};
use crate::archive::{Bytes, Content, NewImage};
use crate::files::{File, Files};

/// Longest root manifest.
const MAX_MANIFEST_BYTES: u64 = 1 << 20;
/// Longest of all boot parts together: kernel and initramfs segments are about 15 MB, and a signed UKI has them once more.
const MAX_BOOT_BYTES: u64 = 96 << 20;

/// A name that removes another one of a layer below.
const WHITEOUT: &str = ".wh.";
/// Where Talos' images have theirs.
const INITRAMFS_PATH: &str = "usr/install/initramfs.xz";

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
    /// The program for [`super::PROGRAM_PATH`], where there is one.
    pub program: Option<PathBuf>,
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
        let program = |file| vec![Content { path: PROGRAM_PATH.to_owned(), bytes: Bytes::Program(file) }];
        layers.extend(self.program.map(program));
        let (tag, mut labels) = (self.facts.version.clone(), labels(&self.facts));
        labels.insert(LAYERS_LABEL.to_owned(), layers.len().to_string());
        NewImage { architecture: self.architecture, tag, labels, layers }
    }
}

/// An installer image that is read once, from the front. Image layers that somebody added to ours come first: they say
/// what of the rest counts. Where somebody made one layer of theirs and ours, none is ours any more.
pub struct Walk<'o> {
    files: Files<'o>,
    /// Whose kernel counts of those that were added.
    architecture: Architecture,
    /// The first image layer that is not ours; `None`: there are none.
    added_from: Option<usize>,
    added: Added,
    /// Boot parts of ours that lie in one image layer with the root manifest, which was read to its end.
    first: BTreeMap<String, Vec<u8>>,
    /// A file that was come to and not taken yet.
    next: Option<File>,
}

/// What was added, without layer files.
#[derive(Default)]
struct Added {
    manifest: Option<Vec<u8>>,
    boot: BTreeMap<String, Vec<u8>>,
    removed: BTreeSet<String>,
    kernel: Option<Vec<u8>>,
    /// For which other machines there is a kernel.
    foreign: Option<Architecture>,
}

impl Added {
    /// Whether a boot part of ours does not count.
    fn replaces(&self, name: &str) -> bool {
        self.removed.contains(name) || self.boot.contains_key(name)
    }
}

impl<'o> Walk<'o> {
    /// A walk that has not begun, over an image for these machines with so many layers, of which `own` are ours
    /// ([`super::own_layers`]).
    #[must_use]
    pub fn new(files: Files<'o>, architecture: Architecture, layers: usize, own: Option<usize>) -> Self {
        let added_from = own.and_then(|own| match own.cmp(&layers) {
            Ordering::Less => Some(own),
            Ordering::Equal => None,
            Ordering::Greater => Some(0),
        });
        Self { files, architecture, added_from, added: Added::default(), first: BTreeMap::new(), next: None }
    }

    /// The root manifest, which comes first, out of an image layer that was read to its end: its digest was compared, so
    /// what it says is what the image's documents name.
    pub fn manifest(&mut self) -> io::Result<Vec<u8>> {
        if let Some(from) = self.added_from {
            self.files.go_to(from);
            self.read_added()?;
            self.files.go_to(0);
            if from == 0 {
                let manifest = self.added.manifest.take();
                return manifest.ok_or_else(|| wrong(format!("has no {MANIFEST_PATH}")));
            }
        }
        while let Some(file) = self.files.next_file()? {
            if file.path == MANIFEST_PATH {
                let ours = self.held(&file, MAX_MANIFEST_BYTES)?;
                self.finish_first()?;
                return Ok(self.added.manifest.take().unwrap_or(ours));
            }
            if file.path.starts_with(BOOT_FOLDER) || file.path.starts_with(LAYER_FOLDER) {
                break;
            }
        }
        Err(wrong(format!("has no {MANIFEST_PATH} before its other files")))
    }

    /// Reads what is left of the root manifest's image layer, whose digest is compared at its end. Tools may have put boot
    /// parts there.
    fn finish_first(&mut self) -> io::Result<()> {
        let mut room = MAX_BOOT_BYTES;
        while let Some(file) = self.files.next_in_layer()? {
            if file.path.starts_with(LAYER_FOLDER) {
                return Err(wrong(format!("has {MANIFEST_PATH} and {} in one image layer", file.path)));
            }
            let Some(name) = file.path.strip_prefix(BOOT_FOLDER) else { continue };
            let name = name.to_owned();
            let content = self.held(&file, room)?;
            room -= file.bytes.min(room);
            self.first.insert(name, content);
        }
        Ok(())
    }

    /// Whether the kernel is one that was added. The layers know nothing of it.
    #[must_use]
    pub fn brings_kernel(&self) -> bool {
        self.added.kernel.is_some()
    }

    /// The boot parts by name, which come next.
    pub fn boot(&mut self) -> io::Result<BTreeMap<String, Vec<u8>>> {
        let mut found = std::mem::take(&mut self.first);
        found.retain(|name, _| !self.added.replaces(name));
        let (mut room, mut last_part) = (MAX_BOOT_BYTES, None);
        // With nothing of ours all was held before, and the layer files may lie anywhere.
        while self.added_from != Some(0)
            && let Some(file) = self.files.next_file()?
        {
            if file.path.starts_with(LAYER_FOLDER) {
                // The digest of the part's image layer is compared at its end, which has to be behind us.
                if last_part == Some(self.files.begun()) {
                    return Err(wrong(format!("has boot parts and {} in one image layer", file.path)));
                }
                self.next = Some(file);
                break;
            }
            let Some(name) = file.path.strip_prefix(BOOT_FOLDER) else { continue };
            last_part = Some(self.files.begun());
            let name = name.to_owned();
            if self.added.replaces(&name) {
                continue;
            }
            let content = self.held(&file, room)?;
            room -= file.bytes.min(room);
            found.insert(name, content);
        }
        found.append(&mut self.added.boot);
        if let Some(kernel) = &mut self.added.kernel {
            found.insert(KERNEL.to_owned(), std::mem::take(kernel));
        }
        Ok(found)
    }

    /// Goes to the layer file of this name, which has not been passed yet. Its content is what reading gives then.
    pub fn layer(&mut self, name: &str) -> io::Result<u64> {
        let path = format!("{LAYER_FOLDER}{name}");
        // Who added layers did so in the order of their names: those are looked through once more.
        let mut again = self.added_from;
        loop {
            let file = match self.next.take() {
                Some(file) => Some(file),
                None => self.files.next_file()?,
            };
            match (file, again) {
                (Some(file), _) if file.path == path => return Ok(file.bytes),
                (Some(_), _) => {}
                (None, Some(from)) => {
                    again = None;
                    self.files.go_to(from);
                }
                (None, None) => {
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

    /// Image layers that were added, to their end. A later one replaces what an earlier one has.
    fn read_added(&mut self) -> io::Result<()> {
        let mut room = MAX_BOOT_BYTES;
        while let Some(file) = self.files.next_file()? {
            if file.path == MANIFEST_PATH {
                self.added.manifest = Some(self.held(&file, MAX_MANIFEST_BYTES)?);
            } else if file.path == KERNEL_PATH || file.path == kernel_path_for(self.architecture) {
                self.added.kernel = Some(self.held(&file, MAX_BOOT_BYTES)?);
            } else if let Some(foreign) = named_for(&file.path) {
                self.added.foreign = Some(foreign);
            } else if file.path == INITRAMFS_PATH {
                return Err(wrong(format!(
                    "has a {INITRAMFS_PATH}, which nothing starts: a node's initramfs is made of the image's parts; add files by \
                     the stage `customization`"
                )));
            } else if let Some(name) = file.path.strip_prefix(BOOT_FOLDER) {
                if let Some(gone) = name.strip_prefix(WHITEOUT) {
                    self.added.boot.remove(gone);
                    self.added.removed.insert(gone.to_owned());
                    continue;
                }
                let name = name.to_owned();
                let content = self.held(&file, room)?;
                room -= file.bytes.min(room);
                self.added.boot.insert(name, content);
            }
        }
        match (self.added.foreign, &self.added.kernel) {
            // One Dockerfile may serve both kinds of machines, and copy both kernels.
            (Some(foreign), None) => Err(self.not_ours(foreign)),
            _ => Ok(()),
        }
    }

    /// A kernel for other machines alone, which would be passed over without a word.
    fn not_ours(&self, foreign: Architecture) -> io::Error {
        let (name, there, own) =
            (self.architecture.name(), kernel_path_for(foreign), kernel_path_for(self.architecture));
        wrong(format!(
            "is for {name} and has a kernel for {} alone, {there}: COPY one for {name} to /{KERNEL_PATH} or /{own} behind FROM",
            foreign.name()
        ))
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

/// The machines whose kernel lies at this path.
fn named_for(path: &str) -> Option<Architecture> {
    Architecture::ALL.into_iter().find(|one| path == kernel_path_for(*one))
}

fn wrong(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the installer image {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::{Archive, write};

    fn contents(directory: &std::path::Path) -> Contents {
        let layers = ["one", "two"].map(|name| {
            let path = directory.join(name);
            std::fs::write(&path, name.repeat(1000)).unwrap();
            path
        });
        Contents {
            architecture: "amd64".into(),
            facts: Facts { version: "0.2.0".into(), minimum_from: "0.1.0".into() },
            manifest: b"{}".to_vec(),
            boot: vec![("vmlinuz".into(), vec![1; 5000]), ("cmdline".into(), b"quiet".to_vec())],
            layers: layers.to_vec(),
            program: None,
        }
    }

    fn walk(image: &NewImage, directory: &std::path::Path, then: impl FnOnce(&mut Walk<'_>)) {
        walk_of(Architecture::Amd64, image, directory, then);
    }

    fn walk_of(
        architecture: Architecture,
        image: &NewImage,
        directory: &std::path::Path,
        then: impl FnOnce(&mut Walk<'_>),
    ) {
        let path = directory.join("image.tar");
        write(&mut std::fs::File::create(&path).unwrap(), image).unwrap();
        let archive = Archive::open(&path).unwrap();
        let (manifest, config) = archive.image(architecture.name()).unwrap();
        let open = |number: usize| match manifest.layers.get(number) {
            Some(layer) => archive.blob(layer).map(Some).map_err(io::Error::other),
            None => Ok(None),
        };
        let own = super::super::own_layers(&config);
        then(&mut Walk::new(Files::new(Box::new(open)), architecture, manifest.layers.len(), own));
    }

    #[test]
    fn what_was_put_in_comes_out_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let image = contents(directory.path()).image();
        assert_eq!(super::super::facts("i", &config_of(&image), "0.1.0").unwrap().version, "0.2.0");
        walk(&image, directory.path(), |walk| {
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

    /// What a registry sends in the place of what the image's documents name.
    #[test]
    fn nothing_counts_before_its_digest_was_compared() {
        let directory = tempfile::tempdir().unwrap();
        let read = |from: &str, to: &str| {
            let image = Contents { manifest: b"{original}".to_vec(), ..contents(directory.path()) }.image();
            let path = directory.path().join("image.tar");
            write(&mut std::fs::File::create(&path).unwrap(), &image).unwrap();
            let mut bytes = std::fs::read(&path).unwrap();
            let at = bytes.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
            bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
            std::fs::write(&path, bytes).unwrap();
            let archive = Archive::open(&path).unwrap();
            let (manifest, config) = archive.image("amd64").unwrap();
            let open = |number: usize| match manifest.layers.get(number) {
                Some(layer) => archive.blob(layer).map(Some).map_err(io::Error::other),
                None => Ok(None),
            };
            let (count, own) = (manifest.layers.len(), super::super::own_layers(&config));
            Walk::new(Files::new(Box::new(open)), Architecture::Amd64, count, own).manifest()
        };
        assert_eq!(read("{original}", "{original}").unwrap(), b"{original}");
        assert!(read("{original}", "{tampered}").is_err());
    }

    /// Boot parts beside the manifest count, and what would be read before its digest was compared is refused.
    #[test]
    fn the_manifests_image_layer_is_read_to_its_end() {
        let directory = tempfile::tempdir().unwrap();
        let mut image = contents(directory.path()).image();
        let part = image.layers.remove(1);
        image.layers[0].extend(part);
        image.labels.insert(LAYERS_LABEL.to_owned(), image.layers.len().to_string());
        walk(&image, directory.path(), |walk| {
            assert_eq!(walk.manifest().unwrap(), b"{}");
            let boot = walk.boot().unwrap();
            assert_eq!(boot.keys().collect::<Vec<_>>(), ["cmdline", "vmlinuz"]);
            assert_eq!(walk.layer("one").unwrap(), 3000);
        });
        let first = image.layers.remove(2);
        image.layers[0].extend(first);
        image.labels.insert(LAYERS_LABEL.to_owned(), image.layers.len().to_string());
        walk(&image, directory.path(), |walk| {
            let error = walk.manifest().unwrap_err().to_string();
            assert!(error.contains("billet/root.json and billet/layers/one in one image layer"), "{error}");
        });
    }

    #[test]
    fn a_boot_part_shares_no_image_layer_with_layer_files() {
        let directory = tempfile::tempdir().unwrap();
        let mut image = contents(directory.path()).image();
        let first = image.layers.remove(3);
        image.layers[2].extend(first);
        image.labels.insert(LAYERS_LABEL.to_owned(), image.layers.len().to_string());
        walk(&image, directory.path(), |walk| {
            walk.manifest().unwrap();
            let error = walk.boot().unwrap_err().to_string();
            assert!(error.contains("boot parts and billet/layers/one in one image layer"), "{error}");
        });
    }

    #[test]
    fn a_missing_file_and_another_order_are_said() {
        let directory = tempfile::tempdir().unwrap();
        let image = contents(directory.path()).image();
        walk(&image, directory.path(), |walk| {
            walk.manifest().unwrap();
            walk.boot().unwrap();
            walk.layer("two").unwrap();
            assert!(walk.layer("one").unwrap_err().to_string().contains("has no billet/layers/one"));
        });
        let mut headless = image.clone();
        headless.layers.remove(0);
        walk(&headless, directory.path(), |walk| {
            assert!(walk.manifest().unwrap_err().to_string().contains("has no billet/root.json"));
        });
    }

    /// What buildah or Docker put above our layers: files by name, a removed one as an empty file.
    fn built_on(mut image: NewImage, files: &[(&str, &str)]) -> NewImage {
        let content = |(path, text): &(&str, &str)| Content {
            path: (*path).to_owned(),
            bytes: Bytes::Here(text.as_bytes().to_vec()),
        };
        image.layers.push(files.iter().map(content).collect());
        image
    }

    #[test]
    fn what_was_added_counts_wherever_it_lies() {
        let directory = tempfile::tempdir().unwrap();
        let image = built_on(
            contents(directory.path()).image(),
            &[
                ("billet/boot/.wh.vmlinuz", ""),
                ("billet/boot/modules", "new"),
                ("billet/layers/.wh.one", ""),
                ("billet/layers/four", "4"),
                ("billet/layers/three", "3"),
                ("billet/root.json", "{new}"),
                ("rootfs/left/over", "x"),
            ],
        );
        let kernel = built_on(image.clone(), &[("usr/install/vmlinuz", "kernel")]);
        walk(&image, directory.path(), |walk| {
            assert_eq!(walk.manifest().unwrap(), b"{new}");
            assert!(!walk.brings_kernel());
            let boot = walk.boot().unwrap();
            assert_eq!(boot.keys().collect::<Vec<_>>(), ["cmdline", "modules"]);
        });
        walk(&kernel, directory.path(), |walk| {
            walk.manifest().unwrap();
            assert!(walk.brings_kernel());
            assert_eq!(walk.boot().unwrap()["vmlinuz"], b"kernel");
            // Its own order is that of names.
            for (name, bytes) in [("two", 3000), ("three", 1), ("four", 1)] {
                assert_eq!(walk.layer(name).unwrap(), bytes);
                let mut text = String::new();
                walk.read_to_string(&mut text).unwrap();
                assert_eq!(text.len() as u64, bytes);
            }
            walk.finish().unwrap();
            assert!(walk.layer("five").is_err());
        });
        let initramfs = built_on(image, &[("usr/install/initramfs.xz", "x")]);
        walk(&initramfs, directory.path(), |walk| {
            assert!(walk.manifest().unwrap_err().to_string().contains("the stage `customization`"));
        });
    }

    #[test]
    fn a_kernel_counts_in_images_for_its_machines() {
        let directory = tempfile::tempdir().unwrap();
        let (amd64, arm64) = (("usr/install/amd64/vmlinuz", "x86"), ("usr/install/arm64/vmlinuz", "arm"));
        for (architecture, own, foreign) in
            [(Architecture::Amd64, amd64, arm64), (Architecture::Arm64, arm64, amd64)]
        {
            let name = architecture.name();
            let image = Contents { architecture: name.to_owned(), ..contents(directory.path()) }.image();
            let kernel = |added: &[(&str, &str)]| {
                let mut found = Err(String::new());
                walk_of(architecture, &built_on(image.clone(), added), directory.path(), |walk| {
                    found = walk.manifest().map_err(|error| error.to_string()).map(|_| {
                        assert!(walk.brings_kernel());
                        walk.boot().unwrap().remove("vmlinuz").unwrap()
                    });
                });
                found
            };
            let wanted = Ok(own.1.as_bytes().to_vec());
            assert_eq!(kernel(&[own]), wanted, "{name}");
            // Of both, in whichever order.
            assert_eq!(kernel(&[amd64, arm64]), wanted, "{name}");
            assert_eq!(kernel(&[arm64, amd64]), wanted, "{name}");
            assert_eq!(kernel(&[("usr/install/vmlinuz", "any"), foreign]), Ok(b"any".to_vec()), "{name}");
            let other = if name == "amd64" { "arm64" } else { "amd64" };
            assert_eq!(
                kernel(&[foreign]).unwrap_err(),
                format!(
                    "the installer image is for {name} and has a kernel for {other} alone, {}: COPY one for {name} to \
                     /usr/install/vmlinuz or /{} behind FROM",
                    foreign.0, own.0
                )
            );
        }
    }

    /// `buildah bud --squash`: one layer, in the order of names.
    #[test]
    fn an_image_of_one_layer_is_read_as_well() {
        let directory = tempfile::tempdir().unwrap();
        let mut image = contents(directory.path()).image();
        image.layers.push(vec![Content {
            path: "usr/install/vmlinuz".into(),
            bytes: Bytes::Here(b"kernel".to_vec()),
        }]);
        let mut files: Vec<Content> = image.layers.drain(..).flatten().collect();
        files.sort_by(|one, other| one.path.cmp(&other.path));
        image.layers.push(files);
        walk(&image, directory.path(), |walk| {
            assert_eq!(walk.manifest().unwrap(), b"{}");
            assert!(walk.brings_kernel());
            let boot = walk.boot().unwrap();
            assert_eq!(
                (boot["cmdline"].as_slice(), boot["vmlinuz"].as_slice()),
                (&b"quiet"[..], &b"kernel"[..])
            );
            // Whatever order the manifest has.
            for name in ["two", "one"] {
                assert_eq!(walk.layer(name).unwrap(), 3000);
                let mut text = String::new();
                walk.read_to_string(&mut text).unwrap();
                assert_eq!(text, name.repeat(1000));
            }
            walk.finish().unwrap();
        });
        image.layers[0].retain(|file| file.path != MANIFEST_PATH);
        walk(&image, directory.path(), |walk| {
            let error = walk.manifest().unwrap_err().to_string();
            assert_eq!(error, "the installer image has no billet/root.json");
        });
    }

    fn config_of(image: &NewImage) -> crate::document::Config {
        let execution = crate::document::Execution { labels: image.labels.clone(), ..Default::default() };
        crate::document::Config { config: execution, ..Default::default() }
    }
}
