//! `Copy`: a directory or file of the node as a gzip-compressed tar stream.
//!
//! Owns: the names in the archive (relative to the root, directories with a slash, no entry for the root directory itself).
//! Fails by: an entry that cannot be read is left out; the first such error is the last message's `metadata.error`.
//! Source: crates/api/proto/machine/machine.proto (Copy).

use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use api::proto::common;
use flate2::Compression;
use flate2::write::GzEncoder;
use tonic::{Response, Status};

use super::answers::{Answers, answers};
use super::walks::{Reader, Walk};
use crate::node::Node;

/// Bytes of one message.
const CHUNK: usize = 32 * 1024;
/// Files up to this size are read before their header is written: the kernel's own files lie about their size.
const SMALL_BYTES: u64 = 64 * 1024;

pub(super) fn copy(node: &Node, root: &str, walk: Walk) -> Result<Response<Answers<common::Data>>, Status> {
    if !root.starts_with('/') {
        return Err(Status::invalid_argument(format!("path is not absolute {root}")));
    }
    let path = node.runtime.path(root);
    // As the shell does for `cp dir-link/.`: what is asked for is what the link points to.
    let path = fs::canonicalize(&path).unwrap_or(path);
    let metadata = fs::symlink_metadata(&path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => Status::not_found(format!("copy {root}: {e}")),
        _ => Status::internal(format!("copy {root}: {e}")),
    })?;
    let (sender, answer) = answers();
    walk.run(sender, move |reader| write_archive(&path, &metadata, reader))?;
    Ok(answer)
}

fn write_archive(root: &Path, metadata: &Metadata, reader: &Reader<common::Data>) {
    let out = GzEncoder::new(Chunks { reader, buffer: Vec::with_capacity(CHUNK) }, Compression::fast());
    let mut archive = Archive { tar: tar::Builder::new(out), first_error: None };
    let walked = if metadata.is_dir() {
        archive.directory(root, Path::new(""))
    } else {
        let name = root.file_name().map_or_else(|| PathBuf::from("root"), PathBuf::from);
        archive.entry(root, &name)
    };
    let Archive { tar, first_error } = archive;
    // The reader is gone: there is nobody to tell.
    let Ok(()) = walked.and_then(|()| tar.into_inner()?.finish()?.flush()) else { return };
    if let Some(error) = first_error {
        let metadata = common::Metadata { error, ..Default::default() };
        let _ = reader.send(Ok(common::Data { metadata: Some(metadata), bytes: Vec::new() }));
    }
}

struct Archive<W: Write> {
    tar: tar::Builder<W>,
    first_error: Option<String>,
}

/// Errors of the functions below are those of the output; those of a file are noted and passed over.
impl<W: Write> Archive<W> {
    fn note(&mut self, path: &Path, error: &io::Error) {
        self.first_error.get_or_insert_with(|| format!("{}: {error}", path.display()));
    }

    fn directory(&mut self, real: &Path, name: &Path) -> io::Result<()> {
        let entries = fs::read_dir(real).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let mut entries = match entries {
            Ok(entries) => entries,
            Err(error) => {
                self.note(real, &error);
                return Ok(());
            }
        };
        entries.sort_by_key(fs::DirEntry::file_name);
        entries.iter().try_for_each(|entry| self.entry(&entry.path(), &name.join(entry.file_name())))
    }

    fn entry(&mut self, real: &Path, name: &Path) -> io::Result<()> {
        let metadata = match fs::symlink_metadata(real) {
            Ok(metadata) => metadata,
            Err(error) => {
                self.note(real, &error);
                return Ok(());
            }
        };
        let mut header = tar::Header::new_gnu();
        header.set_metadata(&metadata);
        header.set_size(0);
        let kind = metadata.file_type();
        if kind.is_dir() {
            // The slash at the end survives only in a name that is written with it.
            let with_slash = name.join("");
            self.tar.append_data(&mut header, with_slash, io::empty())?;
            return self.directory(real, name);
        }
        if kind.is_symlink() {
            return match fs::read_link(real) {
                Ok(target) => self.tar.append_link(&mut header, name, target),
                Err(error) => {
                    self.note(real, &error);
                    Ok(())
                }
            };
        }
        if kind.is_socket() {
            // A socket has no form in an archive.
            return Ok(());
        }
        if kind.is_file() {
            return self.file(real, name, &metadata, header);
        }
        self.tar.append_data(&mut header, name, io::empty())
    }

    fn file(&mut self, real: &Path, name: &Path, meta: &Metadata, mut header: tar::Header) -> io::Result<()> {
        // Some of the kernel's files block a reader until something happens.
        let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
        let opened = File::options().read(true).custom_flags(flags).open(real);
        let file = match opened {
            Ok(file) => file,
            Err(error) => {
                self.note(real, &error);
                return Ok(());
            }
        };
        if meta.len() > SMALL_BYTES {
            header.set_size(meta.len());
            // A file that shrinks meanwhile is filled up, one that grows is cut: the header has been written.
            let body = file.chain(io::repeat(0)).take(meta.len());
            return self.tar.append_data(&mut header, name, body);
        }
        let mut content = Vec::new();
        if let Err(error) = (&file).take(SMALL_BYTES * 16).read_to_end(&mut content) {
            self.note(real, &error);
            return Ok(());
        }
        header.set_size(u64::try_from(content.len()).unwrap_or(u64::MAX));
        self.tar.append_data(&mut header, name, content.as_slice())
    }
}

/// Cuts what is written into messages.
struct Chunks<'a> {
    reader: &'a Reader<common::Data>,
    buffer: Vec<u8>,
}

impl Write for Chunks<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= CHUNK {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let bytes = std::mem::take(&mut self.buffer);
        let message = Ok(common::Data { metadata: None, bytes });
        self.reader.send(message).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    async fn unpack(mut stream: Answers<common::Data>) -> (BTreeMap<String, Vec<u8>>, Option<String>) {
        use futures_util::StreamExt;
        let (mut bytes, mut error) = (Vec::new(), None);
        while let Some(message) = stream.next().await {
            let data = message.unwrap();
            bytes.extend(data.bytes);
            error = data.metadata.map(|metadata| metadata.error);
        }
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(bytes.as_slice()));
        let mut found = BTreeMap::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let name = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            if let Some(link) = entry.link_name_bytes() {
                content = link.into_owned();
            }
            found.insert(name, content);
        }
        (found, error)
    }

    fn copied(node: &Node, root: &str) -> Result<Response<Answers<common::Data>>, Status> {
        copy(node, root, crate::server::walks::Walks::default().begin(&tonic::Request::new(())).unwrap())
    }

    #[tokio::test]
    async fn names_are_relative_and_directories_end_in_a_slash() {
        let dir = tempfile::tempdir().unwrap();
        let node = crate::server::tests_node(dir.path().canonicalize().unwrap());
        let data = dir.path().join("data");
        let long = "n".repeat(180);
        fs::create_dir_all(data.join("sub")).unwrap();
        fs::write(data.join("sub/big"), vec![7; 200_000]).unwrap();
        fs::write(data.join(&long), "x").unwrap();
        std::os::unix::fs::symlink("sub/big", data.join("link")).unwrap();
        let (found, error) = unpack(copied(&node, "/data").unwrap().into_inner()).await;
        let names: Vec<_> = found.keys().map(String::as_str).collect();
        assert_eq!(names, ["link", long.as_str(), "sub/", "sub/big"]);
        assert_eq!((found["sub/big"].len(), found["link"].as_slice()), (200_000, &b"sub/big"[..]));
        assert_eq!(error, None);
        let (single, _) = unpack(copied(&node, "/data/sub/big").unwrap().into_inner()).await;
        assert_eq!(single.keys().collect::<Vec<_>>(), ["big"]);
        assert!(copied(&node, "data").unwrap_err().message().contains("not absolute"));
        assert_eq!(copied(&node, "/nothing").unwrap_err().code(), tonic::Code::NotFound);
    }

    #[tokio::test]
    async fn files_of_the_kernel_come_with_their_content_and_errors_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let node = crate::server::tests_node(dir.path().canonicalize().unwrap());
        // Its size is 0 in the file system and a few bytes when read.
        std::os::unix::fs::symlink("/proc/sys/kernel/random", dir.path().join("random")).unwrap();
        let (found, _) = unpack(copied(&node, "/random").unwrap().into_inner()).await;
        assert_eq!(found["boot_id"].len(), 37);
        // Reading the memory of a process at address 0 fails for everyone.
        std::os::unix::fs::symlink("/proc/self/mem", dir.path().join("mem")).unwrap();
        let (found, error) = unpack(copied(&node, "/mem").unwrap().into_inner()).await;
        assert!(found.is_empty());
        assert!(error.unwrap().contains("mem: "));
    }
}
