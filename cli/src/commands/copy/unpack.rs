//! Unpacking a node's archive.
//!
//! Owns: staying inside the target directory whatever the archive says. An absolute name, a `..`, and a name below a
//! symbolic link that leaves the directory are errors; devices and pipes are left out and told.
//! Does not: keep owners; set-user-id bits are dropped.
//! Fails by: naming the entry.

use anyhow::{Context, Result, anyhow};
use flate2::read::GzDecoder;
use std::{
    io::{self, Read},
    path::{Component, Path},
};
use tar::{Archive, Entry, EntryType};
use tokio::sync::mpsc;

/// Pieces of a stream as a reader, for a thread that may block.
pub(super) struct Pieces {
    receiver: mpsc::Receiver<Vec<u8>>,
    piece: io::Cursor<Vec<u8>>,
}

impl Pieces {
    pub(super) fn new(receiver: mpsc::Receiver<Vec<u8>>) -> Self {
        Self { receiver, piece: io::Cursor::default() }
    }
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.piece.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            match self.receiver.blocking_recv() {
                Some(piece) => self.piece = io::Cursor::new(piece),
                None => return Ok(0),
            }
        }
    }
}

/// Writes everything below `target`; answers what was left out.
pub(super) fn into_directory(archive: impl Read, target: &Path) -> Result<Vec<String>> {
    let mut archive = Archive::new(GzDecoder::new(archive));
    let mut skipped = Vec::new();
    // Directories come last, the deepest first: a read-only one could not be filled.
    let mut directories = Vec::new();
    for entry in archive.entries().context("read the archive")? {
        let mut entry = entry.context("read the archive")?;
        let path = entry.path().context("read a name of the archive")?.into_owned();
        check(&path)?;
        match entry.header().entry_type() {
            EntryType::Directory => directories.push((path, entry)),
            EntryType::Regular | EntryType::Continuous | EntryType::Symlink | EntryType::Link => {
                unpack(&mut entry, &path, target)?;
            }
            EntryType::XGlobalHeader => {}
            _ => skipped.push(format!("{} is a device or pipe and was left out", path.display())),
        }
    }
    directories.sort_by(|(a, _), (b, _)| b.cmp(a));
    for (path, mut directory) in directories {
        unpack(&mut directory, &path, target)?;
    }
    Ok(skipped)
}

fn unpack<R: Read>(entry: &mut Entry<'_, R>, path: &Path, target: &Path) -> Result<()> {
    match entry.unpack_in(target).with_context(|| format!("unpack {}", path.display()))? {
        true => Ok(()),
        false => Err(outside(path)),
    }
}

fn outside(path: &Path) -> anyhow::Error {
    anyhow!(
        "the archive names {}, which is not inside the directory; nothing after it was unpacked",
        path.display()
    )
}

fn check(path: &Path) -> Result<()> {
    let is_inside = path.components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
    if is_inside { Ok(()) } else { Err(outside(path)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use std::{fs, os::unix::fs::PermissionsExt};
    use tar::{Builder, Header};

    type Making = Builder<GzEncoder<Vec<u8>>>;

    fn add(builder: &mut Making, name: &str, kind: EntryType, link: Option<&str>, content: &[u8]) {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(if kind == EntryType::Directory { 0o500 } else { 0o4640 });
        header.set_size(u64::try_from(content.len()).unwrap());
        if let Some(link) = link {
            header.set_link_name(link).unwrap();
        }
        // The checked setter refuses what an attacker would write.
        let field = &mut header.as_old_mut().name;
        field[..name.len()].copy_from_slice(name.as_bytes());
        header.set_cksum();
        builder.append(&header, content).unwrap();
    }

    fn archive(fill: impl FnOnce(&mut Making)) -> Vec<u8> {
        let mut builder = Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        fill(&mut builder);
        builder.into_inner().unwrap().finish().unwrap()
    }

    #[test]
    fn files_directories_and_links_arrive() {
        let bytes = archive(|b| {
            add(b, "dir/", EntryType::Directory, None, b"");
            add(b, "dir/file", EntryType::Regular, None, b"content");
            add(b, "dir/link", EntryType::Symlink, Some("/etc/passwd"), b"");
            add(b, "null", EntryType::Char, None, b"");
        });
        let dir = tempfile::tempdir().unwrap();
        let skipped = into_directory(bytes.as_slice(), dir.path()).unwrap();
        assert_eq!(skipped, ["null is a device or pipe and was left out"]);
        assert_eq!(fs::read(dir.path().join("dir/file")).unwrap(), b"content");
        let mode = |name: &str| fs::metadata(dir.path().join(name)).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode("dir"), mode("dir/file")), (0o500, 0o640));
        assert_eq!(fs::read_link(dir.path().join("dir/link")).unwrap(), Path::new("/etc/passwd"));
    }

    #[test]
    fn nothing_is_written_outside() {
        let outside = tempfile::tempdir().unwrap();
        let away = outside.path().to_str().unwrap().to_owned();
        for (name, bytes) in [
            ("..", archive(|b| add(b, "../evil", EntryType::Regular, None, b"x"))),
            ("a/..", archive(|b| add(b, "a/../../evil", EntryType::Regular, None, b"x"))),
            ("absolute", archive(|b| add(b, &format!("{away}/evil"), EntryType::Regular, None, b"x"))),
            (
                "through a link",
                archive(|b| {
                    add(b, "link", EntryType::Symlink, Some(&away), b"");
                    add(b, "link/evil", EntryType::Regular, None, b"x");
                }),
            ),
            (
                "through a relative link",
                archive(|b| {
                    add(b, "link", EntryType::Symlink, Some(".."), b"");
                    add(b, "link/evil", EntryType::Regular, None, b"x");
                }),
            ),
            (
                "hard link to the outside",
                archive(|b| {
                    add(b, "evil", EntryType::Link, Some(&format!("{away}/secret")), b"");
                }),
            ),
        ] {
            let parent = tempfile::tempdir().unwrap();
            let target = parent.path().join("target");
            fs::create_dir(&target).unwrap();
            fs::write(outside.path().join("secret"), "s").unwrap();
            let result = into_directory(bytes.as_slice(), &target);
            assert!(result.is_err(), "{name} is refused");
            assert!(!outside.path().join("evil").exists() && !parent.path().join("evil").exists(), "{name}");
            assert!(!target.join("evil").exists(), "{name}");
        }
    }

    #[test]
    fn a_link_is_not_written_through() {
        let outside = tempfile::tempdir().unwrap();
        let victim = outside.path().join("victim");
        fs::write(&victim, "old").unwrap();
        let bytes = archive(|b| {
            add(b, "f", EntryType::Symlink, Some(victim.to_str().unwrap()), b"");
            add(b, "f", EntryType::Regular, None, b"new");
        });
        let dir = tempfile::tempdir().unwrap();
        into_directory(bytes.as_slice(), dir.path()).unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"old");
        assert_eq!(fs::read(dir.path().join("f")).unwrap(), b"new");
    }

    #[test]
    fn half_an_archive_is_an_error() {
        let bytes = archive(|b| add(b, "f", EntryType::Regular, None, &[7; 4096]));
        let dir = tempfile::tempdir().unwrap();
        assert!(into_directory(&bytes[..bytes.len() / 2], dir.path()).is_err());
    }
}
