//! An image as one tar file: reading one in OCI's image layout or as `docker save` writes it, and writing a layout of
//! which every byte is known. A directory with a layout in it is read too.
//!
//! Owns: where each blob lies in the file, the comparison of every digest.
//! Does not: compress; layers of ours are compressed file systems already.
//! Source: OCI image specification, "Image Layout"; tar files without times and owners.

mod docker;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek as _, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ondisk::Digest;

pub use docker::write_docker;

use crate::document::{self, Config, Descriptor, Document, Execution, Index, Manifest, Platform, Rootfs};
use crate::error::shown;
use crate::files::Source;
use crate::{Error, Hasher, tarball};

/// What an image in a file is.
const WANTED: &str = "an image is a tar file with an OCI layout, or what `docker save` writes";
const LAYOUT: &str = "oci-layout";
const INDEX: &str = "index.json";
const LAYOUT_TEXT: &str = r#"{"imageLayoutVersion":"1.0.0"}"#;
/// Directories in directories of a layout: `blobs/sha256`.
const LAYOUT_DEPTH: u32 = 2;
/// The end of a tar file: two blocks of zeros.
const END_BYTES: usize = 1024;
/// Label of a name in an index (image specification, annotations).
const NAME: &str = "org.opencontainers.image.ref.name";
/// How much is copied at once.
const CHUNK_BYTES: usize = 256 << 10;

/// An image in a file, or in a directory.
#[derive(Debug)]
pub struct Archive {
    place: Place,
    name: String,
    /// Offset and length of each file.
    entries: BTreeMap<String, (u64, u64)>,
}

#[derive(Debug)]
enum Place {
    Tar(Arc<File>),
    /// Each file is one of its own.
    Directory(PathBuf),
}

impl Archive {
    /// Finds what the file holds.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let name = path.display().to_string();
        let read = |source| Error::ReadArchive { name: name.clone(), source };
        if path.is_dir() {
            let mut entries = BTreeMap::new();
            list(path, "", LAYOUT_DEPTH, &mut entries).map_err(read)?;
            return Ok(Self { place: Place::Directory(path.to_owned()), name, entries });
        }
        let mut file = File::open(path).map_err(read)?;
        let mut head = Vec::new();
        (&file).take(tarball::HEAD_BYTES as u64).read_to_end(&mut head).map_err(read)?;
        tarball::check(&name, &head, WANTED)?;
        file.rewind().map_err(read)?;
        let (watched, failure) = tarball::Watched::new(&file);
        let read = |error| Error::ReadArchive { name: name.clone(), source: failure.of(&error) };
        let mut entries = BTreeMap::new();
        let mut archive = tar::Archive::new(watched);
        for entry in archive.entries_with_seek().map_err(read)? {
            let entry = entry.map_err(read)?;
            let name = String::from_utf8_lossy(&entry.path_bytes()).trim_start_matches("./").to_owned();
            entries.insert(name, (entry.raw_file_position(), entry.size()));
        }
        Ok(Self { place: Place::Tar(Arc::new(file)), name, entries })
    }

    /// Whether it is an image at all, and no other tar file or directory.
    #[must_use]
    pub fn is_image(&self) -> bool {
        is_image(|name| self.entries.contains_key(name), |name| self.small(name).ok())
    }

    /// The file that has an entry.
    fn file(&self, entry: &str) -> io::Result<Arc<File>> {
        match &self.place {
            Place::Tar(file) => Ok(file.clone()),
            Place::Directory(directory) => File::open(directory.join(entry)).map(Arc::new),
        }
    }

    /// The image for machines of this architecture, with its config.
    pub fn image(&self, architecture: &str) -> Result<(Manifest, Config), Error> {
        if self.is_docker() {
            let (manifest, config, _) = docker::image(self)?;
            config.check(&self.name, architecture)?;
            return Ok((manifest, config));
        }
        let index = self.small(INDEX)?;
        let mut document = document::parse(&self.name, &index)?;
        // An index may hold indexes; more than two of them is nobody's image.
        for _ in 0..2 {
            let Document::Index(index) = &document else { break };
            let chosen = index.choose(&self.name, architecture)?.clone();
            document = document::parse(&self.name, &self.content("manifest", &chosen)?)?;
        }
        let Document::Manifest(manifest) = document else {
            return Err(self.bad("manifest", "an index in an index in an index"));
        };
        let config = Config::parse(&self.name, &self.content("config", &manifest.config)?)?;
        config.check(&self.name, architecture)?;
        Ok((manifest, config))
    }

    /// Content of a blob, compared with its digest when its end is read.
    pub fn blob(&self, descriptor: &Descriptor) -> Result<Source, Error> {
        let mut name = blob_path(&descriptor.digest);
        if self.is_docker()
            && let Some(path) = docker::image(self)?.2.remove(&name)
        {
            name = path;
        }
        let (start, length) = self.place(&name)?;
        if length != descriptor.size {
            return Err(Error::Length { what: shown(&name), wanted: descriptor.size });
        }
        let read = |source| Error::ReadArchive { name: self.name.clone(), source };
        let (file, wanted) = (self.file(&name).map_err(read)?, descriptor.digest);
        Ok(Box::new(Piece { file, at: start, end: start + length, hash: Hasher::default(), wanted }))
    }

    /// Newer versions of `docker save` write both forms: the layout counts.
    fn is_docker(&self) -> bool {
        !self.entries.contains_key(INDEX) && self.entries.contains_key(docker::CONTENTS)
    }

    fn place(&self, name: &str) -> Result<(u64, u64), Error> {
        self.entries.get(name).copied().ok_or_else(|| self.bad("archive", format!("it has no {name}")))
    }

    fn content(&self, what: &'static str, descriptor: &Descriptor) -> Result<Vec<u8>, Error> {
        if descriptor.size > document::MAX_BYTES as u64 {
            return Err(self.bad(what, "too long"));
        }
        let mut content = Vec::new();
        let read = |source| Error::ReadArchive { name: self.name.clone(), source };
        self.blob(descriptor)?.read_to_end(&mut content).map_err(read)?;
        Ok(content)
    }

    fn small(&self, name: &str) -> Result<Vec<u8>, Error> {
        let (start, length) = self.place(name)?;
        let length = usize::try_from(length).ok().filter(|length| *length <= document::MAX_BYTES);
        let mut content = vec![0; length.ok_or_else(|| self.bad("archive", format!("{name} is too long")))?];
        let read = |source| Error::ReadArchive { name: self.name.clone(), source };
        self.file(name).and_then(|file| file.read_exact_at(&mut content, start)).map_err(read)?;
        Ok(content)
    }

    fn bad(&self, what: &'static str, reason: impl Into<String>) -> Error {
        // A name or a text of the archive may be in it.
        Error::Document { what, image: self.name.clone(), reason: shown(&reason.into()) }
    }
}

/// Whether files are an image's: a layout's, or what `docker save` writes. `has`: whether there is one of this name at the
/// top; `content`: what is in it.
pub fn is_image(has: impl Fn(&str) -> bool, content: impl FnOnce(&str) -> Option<Vec<u8>>) -> bool {
    let is_saved = || content(docker::CONTENTS).is_some_and(|text| docker::names_images(&text));
    [LAYOUT, INDEX].iter().all(|name| has(name)) || has(docker::CONTENTS) && is_saved()
}

/// The files below a directory, by their paths in it.
fn list(
    directory: &Path,
    above: &str,
    depth: u32,
    entries: &mut BTreeMap<String, (u64, u64)>,
) -> io::Result<()> {
    for item in std::fs::read_dir(directory)? {
        let item = item?;
        let path = format!("{above}{}", item.file_name().to_string_lossy());
        // Blobs may be links to where several layouts share them.
        let status = std::fs::metadata(item.path())?;
        if status.is_file() {
            entries.insert(path, (0, status.len()));
        } else if status.is_dir() && depth > 0 {
            list(&item.path(), &format!("{path}/"), depth - 1, entries)?;
        }
    }
    Ok(())
}

/// A range of the file that is hashed on the way.
struct Piece {
    file: Arc<File>,
    at: u64,
    end: u64,
    hash: Hasher,
    wanted: Digest,
}

impl Read for Piece {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = usize::try_from(self.end - self.at).unwrap_or(usize::MAX).min(buffer.len());
        let Some(buffer) = buffer.get_mut(..room).filter(|buffer| !buffer.is_empty()) else {
            let found = self.hash.clone().finish();
            if self.at == self.end && found != self.wanted {
                let what = "a blob of the archive".to_owned();
                return Err(io::Error::other(Error::Digest { what, wanted: self.wanted, found }));
            }
            return Ok(0);
        };
        let count = self.file.read_at(buffer, self.at)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.hash.push(buffer.get(..count).unwrap_or(&[]));
        self.at += count as u64;
        Ok(count)
    }
}

/// A file of an image to be written.
#[derive(Debug, Clone)]
pub struct Content {
    /// Where it lies in the image, without `/` before it.
    pub path: String,
    /// Its bytes, or the file of this machine that has them.
    pub bytes: Bytes,
}

/// Where content comes from.
#[derive(Debug, Clone)]
pub enum Bytes {
    /// Here they are.
    Here(Vec<u8>),
    /// In a file.
    File(PathBuf),
    /// In a file that can be run.
    Program(PathBuf),
    /// There are none: it is a symbolic link to this path.
    Link(String),
}

/// An image to be written.
#[derive(Debug, Clone)]
pub struct NewImage {
    /// `amd64`, …
    pub architecture: String,
    /// The tag that tools give it when they load it.
    pub tag: String,
    /// Labels of the config.
    pub labels: BTreeMap<String, String>,
    /// One layer each, in this order.
    pub layers: Vec<Vec<Content>>,
}

/// Something with a length and a digest, that is written as often as needed.
struct Blob {
    pieces: Vec<Bytes>,
    digest: Digest,
    size: u64,
}

/// Writes an image layout; the same image is the same bytes.
pub fn write(out: &mut dyn Write, image: &NewImage) -> Result<(), Error> {
    write_runnable(out, image, &[], &[])
}

/// The same for an image that is run as a container: its program, and the arguments where who runs it gives none.
pub fn write_runnable(
    out: &mut dyn Write,
    image: &NewImage,
    entrypoint: &[String],
    arguments: &[String],
) -> Result<(), Error> {
    let failed = |source| Error::Archive { operation: "write", source };
    let layers = image.layers.iter().map(|layer| layer_blob(layer)).collect::<io::Result<Vec<_>>>();
    let layers = layers.map_err(failed)?;
    let digests = layers.iter().map(|layer| format!("sha256:{}", layer.digest)).collect();
    let config = Config {
        architecture: image.architecture.clone(),
        os: "linux".into(),
        config: Execution {
            entrypoint: entrypoint.to_vec(),
            cmd: arguments.to_vec(),
            labels: image.labels.clone(),
        },
        rootfs: Rootfs { diff_ids: digests, ..Rootfs::default() },
    };
    let config = json(&config).map_err(failed)?;
    let manifest = Manifest {
        schema_version: 2,
        media_type: Some(document::MANIFEST.into()),
        config: config.descriptor(document::CONFIG),
        layers: layers.iter().map(|layer| layer.descriptor(document::LAYER)).collect(),
        annotations: BTreeMap::new(),
    };
    let manifest = json(&manifest).map_err(failed)?;
    let platform = Platform { architecture: image.architecture.clone(), os: "linux".into() };
    let entry = Descriptor {
        platform: Some(platform),
        annotations: [(NAME.to_owned(), image.tag.clone())].into(),
        ..manifest.descriptor(document::MANIFEST)
    };
    let index = Index { schema_version: 2, media_type: Some(document::INDEX.into()), manifests: vec![entry] };
    let index = json(&index).map_err(failed)?;
    let layout = Blob::of(vec![Bytes::Here(LAYOUT_TEXT.into())]).map_err(failed)?;
    let mut write = || {
        put(out, LAYOUT, &layout)?;
        put(out, INDEX, &index)?;
        for blob in [&manifest, &config].into_iter().chain(&layers) {
            put(out, &blob_path(&blob.digest), blob)?;
        }
        out.write_all(&[0; END_BYTES])
    };
    write().map_err(failed)
}

fn blob_path(digest: &Digest) -> String {
    format!("blobs/sha256/{digest}")
}

fn json<T: serde::Serialize>(value: &T) -> io::Result<Blob> {
    Blob::of(vec![Bytes::Here(serde_json::to_vec(value).map_err(io::Error::other)?)])
}

/// A layer as a tar file.
fn layer_blob(contents: &[Content]) -> io::Result<Blob> {
    let mut pieces = Vec::new();
    for content in contents {
        let length = content.bytes.length()?;
        let header = match &content.bytes {
            Bytes::Link(target) => link_header(&content.path, target)?,
            Bytes::Program(_) => header(&content.path, length, 0o755)?,
            Bytes::Here(_) | Bytes::File(_) => header(&content.path, length, 0o644)?,
        };
        pieces.push(Bytes::Here(header));
        pieces.push(content.bytes.clone());
        pieces.push(Bytes::Here(vec![0; padding(length)]));
    }
    pieces.push(Bytes::Here(vec![0; END_BYTES]));
    Blob::of(pieces)
}

fn put(out: &mut dyn Write, path: &str, blob: &Blob) -> io::Result<()> {
    out.write_all(&header(path, blob.size, 0o644)?)?;
    for piece in &blob.pieces {
        piece.each(&mut |bytes| out.write_all(bytes))?;
    }
    out.write_all(&vec![0; padding(blob.size)])
}

/// A file of root, of 1970.
fn header(path: &str, length: u64, mode: u32) -> io::Result<Vec<u8>> {
    let mut header = of_root(path, mode)?;
    header.set_size(length);
    header.set_entry_type(tar::EntryType::Regular);
    header.set_cksum();
    Ok(header.as_bytes().to_vec())
}

fn link_header(path: &str, target: &str) -> io::Result<Vec<u8>> {
    let mut header = of_root(path, 0o777)?;
    header.set_size(0);
    header.set_link_name_literal(target)?;
    header.set_entry_type(tar::EntryType::Symlink);
    header.set_cksum();
    Ok(header.as_bytes().to_vec())
}

fn of_root(path: &str, mode: u32) -> io::Result<tar::Header> {
    let mut header = tar::Header::new_ustar();
    header.set_path(path)?;
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    Ok(header)
}

fn padding(length: u64) -> usize {
    // Less than 512.
    usize::try_from(length.next_multiple_of(512) - length).unwrap_or(0)
}

impl Bytes {
    fn length(&self) -> io::Result<u64> {
        match self {
            Self::Here(bytes) => Ok(bytes.len() as u64),
            Self::Link(_) => Ok(0),
            Self::File(path) | Self::Program(path) => {
                Ok(std::fs::metadata(path).map_err(|e| named(path, &e))?.len())
            }
        }
    }

    fn each(&self, each: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let path = match self {
            Self::Here(bytes) => return each(bytes),
            Self::Link(_) => return Ok(()),
            Self::File(path) | Self::Program(path) => path,
        };
        let mut file = File::open(path).map_err(|e| named(path, &e))?;
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            match file.read(&mut chunk).map_err(|e| named(path, &e))? {
                0 => return Ok(()),
                count => each(chunk.get(..count).unwrap_or(&[]))?,
            }
        }
    }
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

impl Blob {
    fn of(pieces: Vec<Bytes>) -> io::Result<Self> {
        let mut hash = Hasher::default();
        for piece in &pieces {
            piece.each(&mut |bytes| {
                hash.push(bytes);
                Ok(())
            })?;
        }
        let size = hash.bytes();
        Ok(Self { pieces, digest: hash.finish(), size })
    }

    fn descriptor(&self, media_type: &str) -> Descriptor {
        Descriptor {
            media_type: media_type.into(),
            digest: self.digest,
            size: self.size,
            platform: None,
            annotations: BTreeMap::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Files;

    fn image(file: PathBuf) -> NewImage {
        let here =
            |path: &str, bytes: &[u8]| Content { path: path.into(), bytes: Bytes::Here(bytes.to_vec()) };
        NewImage {
            architecture: "amd64".into(),
            tag: "1.0".into(),
            labels: [("a".to_owned(), "b".to_owned())].into(),
            layers: vec![
                vec![here("billet/root.json", b"{}"), here("billet/empty", b"")],
                vec![Content { path: "billet/layers/x".into(), bytes: Bytes::File(file) }],
            ],
        }
    }

    fn written(directory: &Path) -> (PathBuf, Vec<u8>) {
        let (file, out) = (directory.join("x"), directory.join("image.tar"));
        std::fs::write(&file, vec![5; 700_000]).unwrap();
        let mut bytes = Vec::new();
        write(&mut bytes, &image(file)).unwrap();
        std::fs::write(&out, &bytes).unwrap();
        (out, bytes)
    }

    #[test]
    fn what_was_written_is_read_and_is_the_same_every_time() {
        let directory = tempfile::tempdir().unwrap();
        let (path, bytes) = written(directory.path());
        assert_eq!(written(directory.path()).1, bytes);
        let archive = Archive::open(&path).unwrap();
        let (manifest, config) = archive.image("amd64").unwrap();
        assert_eq!(config.config.labels.get("a").map(String::as_str), Some("b"));
        let open = |number: usize| match manifest.layers.get(number) {
            Some(layer) => archive.blob(layer).map(Some).map_err(io::Error::other),
            None => Ok(None),
        };
        let mut files = Files::new(Box::new(open));
        let mut found = Vec::new();
        while let Some(file) = files.next_file().unwrap() {
            let mut content = Vec::new();
            files.read_to_end(&mut content).unwrap();
            found.push((file.path, content.len()));
        }
        let wanted = [("billet/root.json", 2), ("billet/empty", 0), ("billet/layers/x", 700_000)];
        assert_eq!(found, wanted.map(|(path, length)| (path.to_owned(), length)));
    }

    #[test]
    fn an_image_that_runs_says_what_and_has_links() {
        let directory = tempfile::tempdir().unwrap();
        let (program, out) = (directory.path().join("program"), directory.path().join("image.tar"));
        std::fs::write(&program, "all of them").unwrap();
        let content = |path: &str, bytes| Content { path: path.into(), bytes };
        let image = NewImage {
            layers: vec![vec![
                content("bin/all", Bytes::Program(program.clone())),
                content("bin/one", Bytes::Link("all".into())),
            ]],
            ..image(program)
        };
        let words = |text: &str| vec![text.to_owned()];
        write_runnable(&mut File::create(&out).unwrap(), &image, &words("/bin/one"), &words("serve"))
            .unwrap();
        let archive = Archive::open(&out).unwrap();
        let (manifest, config) = archive.image("amd64").unwrap();
        assert_eq!((config.config.entrypoint, config.config.cmd), (words("/bin/one"), words("serve")));
        let mut layer = tar::Archive::new(archive.blob(&manifest.layers[0]).unwrap());
        let mut entries = layer.entries().unwrap().map(Result::unwrap);
        let file = entries.next().unwrap();
        assert_eq!((file.header().mode().unwrap(), file.size()), (0o755, 11));
        let link = entries.next().unwrap();
        assert_eq!(link.header().entry_type(), tar::EntryType::Symlink);
        assert_eq!(link.link_name().unwrap().unwrap().to_str(), Some("all"));
        assert!(entries.next().is_none());
    }

    #[test]
    fn a_directory_with_a_layout_is_read_as_its_tar_file_is() {
        let directory = tempfile::tempdir().unwrap();
        let (path, _) = written(directory.path());
        let unpacked = directory.path().join("layout");
        std::fs::create_dir(&unpacked).unwrap();
        tar::Archive::new(File::open(&path).unwrap()).unpack(&unpacked).unwrap();
        let (one, other) = (Archive::open(&path).unwrap(), Archive::open(&unpacked).unwrap());
        assert!(one.is_image() && other.is_image());
        let (manifest, _) = other.image("amd64").unwrap();
        assert_eq!(manifest, one.image("amd64").unwrap().0);
        let mut content = Vec::new();
        other.blob(&manifest.layers[1]).unwrap().read_to_end(&mut content).unwrap();
        assert!(content.len() > 700_000);
        assert!(!Archive::open(directory.path()).unwrap().is_image(), "a directory with something else");
    }

    #[test]
    fn another_architecture_and_changed_bytes_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let (path, mut bytes) = written(directory.path());
        let error = Archive::open(&path).unwrap().image("arm64").unwrap_err().to_string();
        assert!(error.contains("is for linux/amd64, and this node is linux/arm64"), "{error}");
        let at = bytes.len() - 300_000;
        bytes[at] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let archive = Archive::open(&path).unwrap();
        let (manifest, _) = archive.image("amd64").unwrap();
        let mut content = Vec::new();
        let error = archive.blob(&manifest.layers[1]).unwrap().read_to_end(&mut content).unwrap_err();
        assert!(error.to_string().contains("it was changed on the way"), "{error}");
    }

    /// GNU tar and, where they are there, tools for images agree.
    #[test]
    fn tar_lists_it() {
        let directory = tempfile::tempdir().unwrap();
        let (path, _) = written(directory.path());
        let listed = std::process::Command::new("tar").arg("-tvf").arg(&path).output().unwrap();
        assert!(listed.status.success(), "{listed:?}");
        let text = String::from_utf8(listed.stdout).unwrap();
        assert!(
            text.lines().count() == 6 && text.contains("index.json") && !text.contains("root/root 0 "),
            "{text}"
        );
    }
}
