//! The files of tar files and of container images' layers.
//!
//! Owns: unpacking them, however they are packed; whiteouts; refusing what no image can hold.
//! Fails by: the name of the tar file and of the entry in it, never its content.
//! Source: OCI image specification, "Image Layer Filesystem Changeset" (whiteouts); POSIX ustar.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use oci::archive::Archive;
use oci::tarball::{self, Failure, Watched};
use ondisk::Architecture;

use super::below;
use crate::Error;
use crate::tree::{Entry, Node, shown, unfit};

/// How gzip (RFC 1952 §2.3.1) and zstd files (RFC 8878 §3.1.1) begin.
const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];
const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// A name that removes another one, and one that removes all in its directory.
const WHITEOUT: &str = ".wh.";
const OPAQUE: &str = ".wh..wh..opq";

const WHITEOUT_OF_NOTHING: &str =
    "takes away a name without saying which (.wh. alone): leave it out, or name the file behind it";

/// How GNU tar's records of sparse files begin, in all of its versions (tar manual, "Storing Sparse Files").
const SPARSE_RECORD: &[u8] = b"GNU.sparse.";
/// The one that has the name of the file, where the entry's own name is another one.
const SPARSE_NAME: &[u8] = b"GNU.sparse.name";

const SPARSE: &str =
    "is stored as a sparse file, which is not read: make the tar file once more without --sparse (-S)";

/// What to give instead of a file that is none.
const WANTED: &str = "name a directory, a tar file, which gzip or zstd may have packed, or one file with the directory that it goes \
    to (--add FILE:/DIRECTORY; in a profile, file and to)";

/// What a file, or what is in a packed one, begins with; true: that of what is in it. One that cannot be unpacked counts as
/// it is.
pub(super) fn head(path: &Path) -> Result<(Vec<u8>, bool), Error> {
    let file = File::open(path).map_err(Error::read(path))?;
    let (head, data) = peeked(file).map_err(Error::read(path))?;
    let packed: Box<dyn Read> = if head.starts_with(GZIP_MAGIC) {
        Box::new(MultiGzDecoder::new(data))
    } else if head.starts_with(ZSTD_MAGIC) {
        Box::new(zstd::Decoder::new(data).map_err(Error::read(path))?)
    } else {
        return Ok((head, false));
    };
    let mut inner = Vec::new();
    let read = packed.take(tarball::HEAD_BYTES as u64).read_to_end(&mut inner);
    // Of one that is cut off there may be enough to tell.
    Ok(if read.is_err() && inner.is_empty() { (head, false) } else { (inner, true) })
}

/// Files by their paths.
pub(super) type Entries = BTreeMap<String, Entry>;

/// The entries of a tar file as they are added to an image, however it is packed. `path`: what errors call it.
pub fn entries_of_tar(data: impl Read, path: &Path) -> Result<BTreeMap<String, Entry>, Error> {
    let mut entries = Entries::new();
    unpack(data, path, &mut entries)?;
    Ok(entries)
}

/// A tar file of this machine.
pub(super) fn tar_file(path: &Path) -> Result<Entries, Error> {
    let file = File::open(path).map_err(Error::read(path))?;
    entries_of_tar(BufReader::new(file), path)
}

/// All layers of an image, one over the other.
pub(super) fn image(path: &Path, architecture: Architecture) -> Result<Entries, Error> {
    let archive = Archive::open(path)?;
    let (manifest, _) = archive.image(architecture.name()).map_err(|error| match error {
        // Said of nodes elsewhere.
        oci::Error::Architecture { image, wanted, offered } => Error::ForeignImage { image, wanted, offered },
        other => other.into(),
    })?;
    let mut entries = Entries::new();
    for layer in &manifest.layers {
        unpack(archive.blob(layer)?, path, &mut entries)?;
    }
    Ok(entries)
}

/// Data with what was looked at put back in front.
type Whole<R> = io::Chain<Cursor<Vec<u8>>, R>;

/// The first bytes, put back in front of the rest.
fn peeked<R: Read>(mut data: R) -> io::Result<(Vec<u8>, Whole<R>)> {
    let mut head = Vec::new();
    (&mut data).take(tarball::HEAD_BYTES as u64).read_to_end(&mut head)?;
    Ok((head.clone(), Cursor::new(head).chain(data)))
}

/// Puts the entries of a tar file over those that are there. What it is packed by, its first bytes tell: the types that
/// layers are given are often wrong.
fn unpack(data: impl Read, path: &Path, entries: &mut Entries) -> Result<(), Error> {
    let (head, mut data) = peeked(data).map_err(Error::read(path))?;
    let name = path.display().to_string();
    let unpacked = format!("{name}, unpacked,");
    if head.starts_with(GZIP_MAGIC) {
        plain(MultiGzDecoder::new(&mut data), &unpacked, path, entries)?;
    } else if head.starts_with(ZSTD_MAGIC) {
        plain(zstd::Decoder::new(&mut data).map_err(Error::read(path))?, &unpacked, path, entries)?;
    } else {
        plain(&mut data, &name, path, entries)?;
    }
    // What is behind the end: only a blob that was read whole has its digest compared.
    io::copy(&mut data, &mut io::sink()).map_err(Error::read(path))?;
    Ok(())
}

/// `name`: what it is called where it is no tar file.
fn plain(data: impl Read, name: &str, path: &Path, entries: &mut Entries) -> Result<(), Error> {
    let (head, data) = peeked(data).map_err(Error::read(path))?;
    tarball::check(name, &head, WANTED)?;
    let (mut data, failure) = Watched::new(data);
    let read = |error: io::Error| Error::read(path)(failure.of(&error));
    let mut archive = tar::Archive::new(&mut data);
    for item in archive.entries().map_err(read)? {
        put(item.map_err(read)?, path, &failure, entries)?;
    }
    io::copy(&mut data, &mut io::sink()).map_err(read)?;
    Ok(())
}

/// Names have `./`, `/` and `//` as whoever made the file liked them.
fn plain_name(name: &str) -> String {
    name.split('/').filter(|part| !matches!(*part, "" | ".")).collect::<Vec<_>>().join("/")
}

/// Puts an entry over what is there, or takes away what it says is gone.
fn put(
    mut item: tar::Entry<'_, impl Read>,
    path: &Path,
    failure: &Failure,
    entries: &mut Entries,
) -> Result<(), Error> {
    readable(&mut item, path, failure)?;
    let name = utf8(&item.path_bytes(), path)?;
    let plain = plain_name(&name);
    // It would be checked by one path and lie at another one.
    if plain.split('/').any(|part| part == "..") {
        return Err(Error::Climbs { path: path.to_owned(), name: shown(&name) });
    }
    let name = plain;
    if name.is_empty() {
        return Ok(());
    }
    // Before the content is read, and before anything that takes longer for longer paths.
    refuse(unfit(&name, &Node::Dir), path, &name)?;
    let (directory, last) = name.rsplit_once('/').unwrap_or(("", &name));
    if last == OPAQUE {
        forget(entries, directory, false);
        return Ok(());
    }
    if let Some(gone) = last.strip_prefix(WHITEOUT) {
        refuse(gone.is_empty().then_some(WHITEOUT_OF_NOTHING), path, &name)?;
        let gone = if directory.is_empty() { gone.to_owned() } else { format!("{directory}/{gone}") };
        forget(entries, &gone, true);
        return Ok(());
    }
    let entry = entry(&mut item, path, &name, failure, entries)?;
    refuse(unfit(&name, &entry.node), path, &name)?;
    if entry.node != Node::Dir {
        forget(entries, &name, true);
    }
    entries.insert(name, entry);
    Ok(())
}

fn refuse(reason: Option<&'static str>, path: &Path, name: &str) -> Result<(), Error> {
    let refused = |reason| Error::TarEntry { path: path.to_owned(), name: shown(name), reason };
    reason.map_or(Ok(()), |reason| Err(refused(reason)))
}

/// A name as it is: one that another was put in the place of would be another file.
fn utf8(name: &[u8], path: &Path) -> Result<String, Error> {
    let unsupported = |_| Error::Unsupported { path: path.join(shown(&String::from_utf8_lossy(name))) };
    std::str::from_utf8(name).map(str::to_owned).map_err(unsupported)
}

/// Refuses an entry whose content the crate `tar` would hand out wrong: it knows nothing of PAX's sparse files, takes the
/// first of two sizes where others take the last, and takes a size that is no number for none.
fn readable(item: &mut tar::Entry<'_, impl Read>, path: &Path, failure: &Failure) -> Result<(), Error> {
    let read = |error: io::Error| Error::read(path)(failure.of(&error));
    let mut name = String::from_utf8_lossy(&item.path_bytes()).into_owned();
    let (mut sparse, mut sizes, mut numbers) = (item.header().entry_type().is_gnu_sparse(), 0, 0);
    for record in item.pax_extensions().map_err(read)?.into_iter().flatten() {
        let record = record.map_err(read)?;
        sparse |= record.key_bytes().starts_with(SPARSE_RECORD);
        if record.key_bytes() == SPARSE_NAME {
            name = String::from_utf8_lossy(record.value_bytes()).into_owned();
        }
        if record.key_bytes() == b"size" {
            sizes += 1;
            numbers += usize::from(record.value().is_ok_and(|size| size.parse::<u64>().is_ok()));
        }
    }
    let name = plain_name(&name);
    refuse(sparse.then_some(SPARSE), path, &name)?;
    let wrong = sizes > 1 || sizes != numbers;
    refuse(
        wrong.then_some("has two sizes, or one that is no number: make the tar file once more"),
        path,
        &name,
    )
}

fn entry(
    item: &mut tar::Entry<'_, impl Read>,
    path: &Path,
    name: &str,
    failure: &Failure,
    entries: &Entries,
) -> Result<Entry, Error> {
    let read = |error: io::Error| Error::read(path)(failure.of(&error));
    let header = item.header();
    let number = |value: io::Result<u64>| value.ok().and_then(|value| u32::try_from(value).ok());
    let mode = header.mode().map_err(read)? & 0o7777;
    let (uid, gid) = (number(header.uid()).unwrap_or(0), number(header.gid()).unwrap_or(0));
    let kind = header.entry_type();
    let link = || {
        let link = item.link_name_bytes().unwrap_or_default();
        utf8(&link, path)
    };
    let node = match kind {
        tar::EntryType::Directory => Node::Dir,
        tar::EntryType::Symlink => Node::Symlink(link()?),
        tar::EntryType::Link => {
            let target = link()?;
            let there = entries.get(&plain_name(&target));
            return there.cloned().ok_or_else(|| Error::HardLink {
                path: path.to_owned(),
                name: shown(name),
                target: shown(&target),
            });
        }
        tar::EntryType::Regular | tar::EntryType::Continuous => {
            let mut content = Vec::new();
            item.read_to_end(&mut content).map_err(read)?;
            Node::Bytes(content)
        }
        _ => return Err(Error::Unsupported { path: path.join(shown(name)) }),
    };
    let mode = if matches!(node, Node::Symlink(_)) { 0o777 } else { mode };
    Ok(Entry { mode, uid, gid, node })
}

/// Removes what lies in a directory, and the directory itself.
fn forget(entries: &mut Entries, name: &str, itself: bool) {
    below::remove(entries, name);
    if itself {
        entries.remove(name);
    }
}
