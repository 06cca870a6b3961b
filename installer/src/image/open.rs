//! Opening a system: its parts as files, or an installer image.
//!
//! Owns: finding all parts, each by its name, before anything is made of them.
//! Does not: change them; of an installer image the layers go to a directory of the caller's.
//! Source: docs/formats/installer-image.md, whose files a directory of parts has under the same names.

use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::path::Path;

use oci::archive::Archive;
use oci::document::{Config, Manifest};
use oci::files::Files;
use oci::installer::{self as format, MINIMUM_FROM_LABEL, Walk};
use ondisk::Architecture;
use ondisk::manifest::RootManifest;

use crate::output::Output;
use crate::source::{MINIMUM_FROM, Source};
use crate::system::{BootParts, System, names};
use crate::{Error, custom, layer};

/// How much of a layer is copied at once.
const CHUNK_BYTES: usize = 1 << 20;

/// What a directory with an OCI layout has.
const LAYOUT: &str = "oci-layout";
/// The installer image in the directory of a build.
const BUILT: &str = "installer.oci.tar";

impl Source {
    /// Reads a directory of parts or an installer image, also as a directory with an OCI layout; what has to be unpacked goes
    /// to `work`, which must be there.
    pub fn open(path: &Path, work: &Path) -> Result<Self, Error> {
        let status = fs::metadata(path).map_err(Error::read(path))?;
        let is_layout = path.join(LAYOUT).is_file();
        if status.is_dir() && !is_layout { Self::directory(path) } else { Self::image(path, work) }
    }

    /// `root.json`, `boot/` and `layers/`, there or in a directory `billet`.
    fn directory(path: &Path) -> Result<Self, Error> {
        let inner = path.join("billet");
        let directory = if inner.join("root.json").is_file() { inner } else { path.to_owned() };
        let missing = |part: String| Error::MissingPart { from: directory.display().to_string(), part };
        let built = directory.join(BUILT);
        if !directory.join("boot").is_dir() && built.is_file() {
            return Err(Error::BuildDirectory { directory, image: built });
        }
        let manifest = directory.join("root.json");
        if !manifest.is_file() {
            return Err(missing("root.json".into()));
        }
        let manifest = RootManifest::parse(&fs::read(&manifest).map_err(Error::read(&manifest))?)?;
        let boot = BootParts::by_name(|name| {
            let path = directory.join("boot").join(name);
            match fs::read(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Err(missing(format!("boot/{name}"))),
                other => other.map_err(Error::read(&path)),
            }
        })?;
        let layers = directory.join("layers");
        for layer in &manifest.layers {
            if !layers.join(layer.file_name()).is_file() {
                return Err(missing(format!("layers/{} (layer {})", layer.file_name(), layer.name)));
            }
            layer::check(layer, &layers)?;
        }
        Ok(Self::new(System { manifest, boot }, layers).settled())
    }

    fn image(path: &Path, work: &Path) -> Result<Self, Error> {
        let name = path.display().to_string();
        let missing = |part: String| Error::MissingPart { from: name.clone(), part };
        let archive = Archive::open(path)?;
        let (document, config) = image_of(&archive)?;
        let label = |label: &str| config.config.labels.get(label).cloned();
        if label(format::FORMAT_LABEL).as_deref() != Some(format::FORMAT) {
            return Err(missing(format!(
                "label {}={}: it is no installer image",
                format::FORMAT_LABEL,
                format::FORMAT
            )));
        }
        let open = |number: usize| match document.layers.get(number) {
            Some(layer) => archive.blob(layer).map(Some).map_err(io::Error::other),
            None => Ok(None),
        };
        let own = format::own_layers(&config);
        // An image that says nothing of machines is one for those like this.
        let architecture = Architecture::named(&config.architecture).unwrap_or(Architecture::OWN);
        let files = Files::new(Box::new(open));
        let mut walk = Walk::new(files, architecture, document.layers.len(), own);
        let read = |source| Error::Read { path: path.to_owned(), source };
        let manifest = RootManifest::parse(&walk.manifest().map_err(read)?)?;
        let mut parts = walk.boot().map_err(read)?;
        let boot = BootParts::by_name(|part| match parts.remove(part) {
            None if part == names::KERNEL => Err(Error::NoKernel { system: name.clone() }),
            found => found.ok_or_else(|| missing(format!("billet/boot/{part}"))),
        })?;
        let mut outputs = Vec::new();
        for layer in &manifest.layers {
            let bytes = walk.layer(&layer.file_name()).map_err(read)?;
            let to = work.join(layer.file_name());
            let mut output = Output::create(&to)?;
            let copied = copy(&mut walk, path, &mut output.file, &to)?;
            if copied != bytes || bytes != layer.total_bytes() {
                let reason = "its length is not that of the layer".into();
                return Err(Error::WrongLayer { path: to, reason });
            }
            outputs.push((output, to));
        }
        // Every blob's digest counts, also of what is passed over; before that no layer has its name.
        walk.finish().map_err(read)?;
        for (output, to) in outputs {
            output.keep(&to)?;
        }
        let minimum_from = label(MINIMUM_FROM_LABEL).unwrap_or_else(|| MINIMUM_FROM.to_owned());
        let brings_kernel = walk.brings_kernel();
        let system = System { manifest, boot };
        let source = Self { minimum_from, ..Self::new(system, work.to_owned()) };
        source.system.check_kernel()?;
        if brings_kernel { custom::settle_kernel(source) } else { Ok(source.settled()) }
    }
}

/// Copies to a file; an error is of the one that it came from.
fn copy(from: &mut impl Read, path: &Path, file: &mut File, to: &Path) -> Result<u64, Error> {
    let (mut done_bytes, mut chunk) = (0, vec![0; CHUNK_BYTES]);
    loop {
        let count = from.read(&mut chunk).map_err(Error::read(path))?;
        if count == 0 {
            return Ok(done_bytes);
        }
        file.write_all(chunk.get(..count).unwrap_or_default()).map_err(Error::write(to))?;
        done_bytes += count as u64;
    }
}

/// The image for machines like this one, else the one for others: what is made of it runs nowhere here.
fn image_of(archive: &Archive) -> Result<(Manifest, Config), Error> {
    let others = Architecture::ALL.into_iter().filter(|one| *one != Architecture::OWN);
    match archive.image(Architecture::OWN.name()) {
        Ok(found) => Ok(found),
        Err(error) => others.into_iter().find_map(|one| archive.image(one.name()).ok()).ok_or(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_of_the_file_that_is_written() {
        let mut full = File::options().write(true).open("/dev/full").unwrap();
        let (from, to) = (Path::new("image.tar"), Path::new("out/layer"));
        let error = copy(&mut &[1; 5000][..], from, &mut full, to).unwrap_err();
        assert_eq!(error.to_string(), "write out/layer");
        let mut directory = File::open(".").unwrap();
        let error = copy(&mut directory, from, &mut full, to).unwrap_err();
        assert_eq!(error.to_string(), "read image.tar");
    }
}
