//! What is added: the files of folders, tar files and container images, and where they come from.
//!
//! Owns: reading each kind; refusing what no image can hold; finding that two sources want the same path to be different.
//! Does not: know the root that they are added to.
//! Source: OCI image specification, "Image Layer Filesystem Changeset" (whiteouts); POSIX ustar.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use flate2::read::GzDecoder;
use oci::archive::Archive;
use ondisk::Architecture;

use super::profile::{Addition, From};
use crate::Error;
use crate::tree::{Entry, Node, Tree};

/// How a gzip file begins (RFC 1952 §2.3.1).
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// A name that removes another one, and one that removes all in its folder.
const WHITEOUT: &str = ".wh.";
const OPAQUE: &str = ".wh..wh..opq";

type Entries = BTreeMap<String, Entry>;

/// Entries of several sources.
pub(super) struct Additions {
    /// Of container images that are for several architectures.
    architecture: Architecture,
    entries: BTreeMap<String, (Entry, String)>,
    conflicts: Vec<String>,
}

impl Additions {
    /// None yet, for an image of this architecture.
    pub(super) fn for_image(architecture: Architecture) -> Self {
        Self { architecture, entries: BTreeMap::new(), conflicts: Vec::new() }
    }

    /// Reads a source.
    pub(super) fn read(&mut self, addition: &Addition) -> Result<(), Error> {
        let name = addition.from.path().display().to_string();
        let entries = match &addition.from {
            From::Folder(path) => folder(path)?,
            From::Stage(path) => stage(path)?,
            From::Tar(path) => tar_file(path)?,
            From::Image(path) => image(path, self.architecture)?,
        };
        let to = addition.to.trim_matches('/');
        for (path, entry) in entries {
            let path = if to.is_empty() { path } else { format!("{to}/{path}") };
            self.put(&name, &path, entry)?;
        }
        Ok(())
    }

    /// Adds an entry of a source.
    pub(super) fn put(&mut self, source: &str, path: &str, entry: Entry) -> Result<(), Error> {
        if let Some((before, from)) = self.entries.get(path) {
            let both_folders = before.node == Node::Dir && entry.node == Node::Dir;
            if !both_folders && !same(before, &entry)? {
                self.conflicts.push(format!("/{path} is in {from} and, different, in {source}"));
            }
            return Ok(());
        }
        self.entries.insert(path.to_owned(), (entry, source.to_owned()));
        Ok(())
    }

    /// All entries, if no two of them contradict each other.
    pub(super) fn into_entries(self) -> Result<BTreeMap<String, (Entry, String)>, Error> {
        if self.conflicts.is_empty() {
            Ok(self.entries)
        } else {
            Err(Error::Conflicts { list: self.conflicts })
        }
    }
}

fn same(a: &Entry, b: &Entry) -> Result<bool, Error> {
    let is_file = |entry: &Entry| matches!(entry.node, Node::Bytes(_) | Node::File(_));
    if !(is_file(a) && is_file(b)) {
        return Ok(a == b);
    }
    Ok((a.mode, a.uid, a.gid) == (b.mode, b.uid, b.gid) && a.content()? == b.content()?)
}

fn folder(path: &Path) -> Result<Entries, Error> {
    let mut tree = Tree::new();
    tree.load("", path)?;
    Ok(tree.iter().map(|(path, entry)| (path.to_owned(), entry.clone())).collect())
}

/// A folder with its modes, a container image, or another tar file.
pub(super) fn of_any(path: &Path, architecture: Architecture) -> Result<Entries, Error> {
    if path.is_dir() {
        return stage(path);
    }
    match Archive::open(path) {
        Ok(archive) if archive.is_image() => image(path, architecture),
        _ => tar_file(path),
    }
}

/// What a container's build left: all of root, with its own modes.
fn stage(path: &Path) -> Result<Entries, Error> {
    let mut entries = folder(path)?;
    for (name, entry) in entries.iter_mut().filter(|(_, entry)| !matches!(entry.node, Node::Symlink(_))) {
        let host = path.join(name);
        let status = host.symlink_metadata().map_err(Error::read(&host))?;
        entry.mode = status.permissions().mode() & 0o7777;
    }
    Ok(entries)
}

fn tar_file(path: &Path) -> Result<Entries, Error> {
    let mut file = File::open(path).map_err(Error::read(path))?;
    let mut magic = Vec::new();
    (&file).take(2).read_to_end(&mut magic).map_err(Error::read(path))?;
    file.rewind().map_err(Error::read(path))?;
    let mut entries = Entries::new();
    let file = BufReader::new(file);
    if magic == GZIP_MAGIC {
        unpack(GzDecoder::new(file), path, &mut entries)?;
    } else {
        unpack(file, path, &mut entries)?;
    }
    Ok(entries)
}

/// All layers of an image, one over the other.
fn image(path: &Path, architecture: Architecture) -> Result<Entries, Error> {
    let archive = Archive::open(path)?;
    let (manifest, _) = archive.image(architecture.name())?;
    let mut entries = Entries::new();
    for layer in &manifest.layers {
        let blob = archive.blob(layer)?;
        if layer.media_type.ends_with("gzip") {
            unpack(GzDecoder::new(blob), path, &mut entries)?;
        } else {
            unpack(blob, path, &mut entries)?;
        }
    }
    Ok(entries)
}

/// Puts the entries of a tar file over those that are there.
fn unpack(data: impl Read, path: &Path, entries: &mut Entries) -> Result<(), Error> {
    let mut data = data;
    let mut archive = tar::Archive::new(&mut data);
    for item in archive.entries().map_err(Error::read(path))? {
        let mut item = item.map_err(Error::read(path))?;
        let name = String::from_utf8_lossy(&item.path_bytes()).into_owned();
        let name = name.trim_start_matches("./").trim_matches('/').to_owned();
        if name.is_empty() || name == "." {
            continue;
        }
        let (folder, last) = name.rsplit_once('/').unwrap_or(("", &name));
        if last == OPAQUE {
            forget(entries, folder, false);
            continue;
        }
        if let Some(gone) = last.strip_prefix(WHITEOUT) {
            let gone = if folder.is_empty() { gone.to_owned() } else { format!("{folder}/{gone}") };
            forget(entries, &gone, true);
            continue;
        }
        let entry = entry(&mut item, path, &name, entries)?;
        if entry.node != Node::Dir {
            forget(entries, &name, true);
        }
        entries.insert(name, entry);
    }
    // What is behind the end: only a blob that was read whole has its digest compared.
    std::io::copy(&mut data, &mut std::io::sink()).map_err(Error::read(path))?;
    Ok(())
}

fn entry(
    item: &mut tar::Entry<'_, impl Read>,
    path: &Path,
    name: &str,
    entries: &Entries,
) -> Result<Entry, Error> {
    let header = item.header();
    let number = |value: std::io::Result<u64>| value.ok().and_then(|value| u32::try_from(value).ok());
    let mode = header.mode().map_err(Error::read(path))? & 0o7777;
    let (uid, gid) = (number(header.uid()).unwrap_or(0), number(header.gid()).unwrap_or(0));
    let kind = header.entry_type();
    let link = || {
        let link = item.link_name_bytes().unwrap_or_default();
        String::from_utf8_lossy(&link).into_owned()
    };
    let node = match kind {
        tar::EntryType::Directory => Node::Dir,
        tar::EntryType::Symlink => Node::Symlink(link()),
        tar::EntryType::Link => {
            let target = link();
            let target = target.trim_start_matches("./").trim_start_matches('/');
            return entries.get(target).cloned().ok_or_else(|| unsupported(path, name));
        }
        tar::EntryType::Regular | tar::EntryType::Continuous => {
            let mut content = Vec::new();
            item.read_to_end(&mut content).map_err(Error::read(path))?;
            Node::Bytes(content)
        }
        _ => return Err(unsupported(path, name)),
    };
    let mode = if matches!(node, Node::Symlink(_)) { 0o777 } else { mode };
    Ok(Entry { mode, uid, gid, node })
}

fn unsupported(path: &Path, name: &str) -> Error {
    Error::Unsupported { path: path.join(name) }
}

/// Removes what lies in a folder, and the folder itself.
fn forget(entries: &mut Entries, name: &str, itself: bool) {
    let below = if name.is_empty() { String::new() } else { format!("{name}/") };
    entries.retain(|path, _| !(path.starts_with(&below) && path != name || itself && path == name));
}
