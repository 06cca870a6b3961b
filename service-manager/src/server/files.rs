//! Files of the node: list and read.
//!
//! Source: crates/api/proto/machine/machine.proto.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::file_mode::from_st_mode;
use api::proto::common::Data;
use api::proto::machine as proto;
use api::proto::machine::list_request::Type;
use tonic::{Response, Status};

use super::answers::{Answers, answers, blocking};
use super::walks::{Reader, Walk};
use crate::node::Node;

/// Bytes of one message of Read.
const CHUNK: usize = 32 * 1024;
/// Largest list of names and largest value (XATTR_LIST_MAX, XATTR_SIZE_MAX; linux/limits.h).
const XATTRS_BYTES: usize = 65_536;
/// Directories deeper than this are not entered: a bind mount may contain itself.
const DEEPEST: usize = 64;

pub(super) async fn read(node: &Node, path: &str, walk: Walk) -> Result<Response<Answers<Data>>, Status> {
    let (shown, path) = (path.to_owned(), node.runtime.path(path));
    let file = blocking(move || {
        #[cfg(test)]
        runtime::request::testing::fault("blocking", &shown);
        let fail = |e: std::io::Error| match e.kind() {
            std::io::ErrorKind::NotFound => Status::not_found(format!("open {shown}: {e}")),
            _ => Status::internal(format!("open {shown}: {e}")),
        };
        // Asked before the open: opening a pipe or a device would block or act.
        if !fs::metadata(&path).map_err(fail)?.is_file() {
            return Err(Status::invalid_argument("path must be a regular file"));
        }
        fs::File::open(&path).map_err(fail)
    })
    .await?;
    let (sender, answer) = answers();
    walk.run(sender, move |reader| send_file(file, reader))?;
    Ok(answer)
}

fn send_file(mut file: fs::File, reader: &Reader<Data>) {
    let mut chunk = vec![0; CHUNK];
    loop {
        let message = match file.read(&mut chunk) {
            Ok(0) => return,
            Ok(length) => Ok(Data { metadata: None, bytes: chunk[..length].to_vec() }),
            Err(error) => Err(Status::internal(format!("read: {error}"))),
        };
        let failed = message.is_err();
        if reader.send(message).is_err() || failed {
            return;
        }
    }
}

pub(super) fn list(
    node: &Arc<Node>,
    request: proto::ListRequest,
    walk: Walk,
) -> Result<Response<Answers<proto::FileInfo>>, Status> {
    let (sender, answer) = answers();
    let node = node.clone();
    walk.run(sender, move |reader| {
        #[cfg(test)]
        runtime::request::testing::fault("thread", &request.root);
        Listing::new(&node, &request, reader).run();
    })?;
    Ok(answer)
}

struct Listing<'a> {
    /// What the client asked for, with symlinks resolved.
    shown_root: PathBuf,
    node_root: PathBuf,
    depth: usize,
    types: Vec<Type>,
    xattrs: bool,
    reader: &'a Reader<proto::FileInfo>,
}

impl<'a> Listing<'a> {
    fn new(node: &Node, request: &proto::ListRequest, reader: &'a Reader<proto::FileInfo>) -> Self {
        let asked = Path::new("/").join(&request.root);
        let resolved = fs::canonicalize(node.runtime.path(&asked.to_string_lossy())).ok();
        let inside = resolved.and_then(|path| {
            path.strip_prefix(&node.runtime.root).ok().map(|rest| Path::new("/").join(rest))
        });
        let depth = match (request.recurse, usize::try_from(request.recursion_depth)) {
            (false, _) => 1,
            (true, Ok(depth @ 1..)) => depth.min(DEEPEST),
            (true, _) => DEEPEST,
        };
        let types = request.types.iter().filter_map(|kind| Type::try_from(*kind).ok()).collect();
        let xattrs = request.report_xattrs;
        Self {
            shown_root: inside.unwrap_or(asked),
            node_root: node.runtime.root.clone(),
            depth,
            types,
            xattrs,
            reader,
        }
    }

    fn run(&self) {
        self.visit(&self.shown_root, ".", 0);
    }

    /// Says whether the reader is still there.
    fn visit(&self, path: &Path, relative: &str, depth: usize) -> bool {
        if self.reader.is_gone() {
            return false;
        }
        let real = self.node_root.join(path.strip_prefix("/").unwrap_or(path));
        let mut info = match fs::symlink_metadata(&real) {
            Ok(metadata) => describe(&real, path, relative, &metadata),
            Err(error) => failed(path, relative, &error),
        };
        if self.xattrs {
            info.xattrs = xattrs(&real);
        }
        let (is_dir, matches) = (info.is_dir, self.matches(&info));
        if matches && self.reader.send(Ok(info)).is_err() {
            return false;
        }
        if !is_dir || depth >= self.depth {
            return true;
        }
        let names = match names(&real) {
            Ok(names) => names,
            Err(error) => return self.reader.send(Ok(failed(path, relative, &error))).is_ok(),
        };
        names.iter().all(|name| {
            let below = if relative == "." { name.clone() } else { format!("{relative}/{name}") };
            self.visit(&path.join(name), &below, depth.saturating_add(1))
        })
    }

    fn matches(&self, info: &proto::FileInfo) -> bool {
        let kind = if info.is_dir {
            Some(Type::Directory)
        } else if info.mode & api::file_mode::go::SYMLINK != 0 {
            Some(Type::Symlink)
        } else if info.mode >> 19 == 0 {
            Some(Type::Regular)
        } else {
            None
        };
        !info.error.is_empty() || self.types.is_empty() || kind.is_some_and(|kind| self.types.contains(&kind))
    }
}

fn names(directory: &Path) -> std::io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

fn describe(real: &Path, path: &Path, relative: &str, metadata: &fs::Metadata) -> proto::FileInfo {
    let link = fs::read_link(real).map_or_else(|_| String::new(), |target| target.display().to_string());
    let is_file_root = relative == "." && !metadata.is_dir();
    let base = || path.file_name().map_or_else(|| "/".to_owned(), |name| name.to_string_lossy().into_owned());
    proto::FileInfo {
        metadata: None,
        name: path.display().to_string(),
        size: i64::try_from(metadata.size()).unwrap_or(i64::MAX),
        mode: from_st_mode(metadata.mode()),
        modified: metadata.mtime(),
        is_dir: metadata.is_dir(),
        error: String::new(),
        link,
        relative_name: if is_file_root { base() } else { relative.to_owned() },
        uid: metadata.uid(),
        gid: metadata.gid(),
        xattrs: Vec::new(),
    }
}

/// The extended attributes that can be read; a file system without any has none.
fn xattrs(real: &Path) -> Vec<proto::Xattr> {
    let mut list = vec![0; XATTRS_BYTES];
    let Ok(length) = rustix::fs::llistxattr(real, list.as_mut_slice()) else { return Vec::new() };
    let names = list[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let mut value = vec![0; XATTRS_BYTES];
    names
        .filter_map(|name| {
            let length = rustix::fs::lgetxattr(real, name, value.as_mut_slice()).ok()?;
            let name = String::from_utf8_lossy(name).into_owned();
            Some(proto::Xattr { name, data: value[..length].to_vec() })
        })
        .collect()
}

fn failed(path: &Path, relative: &str, error: &std::io::Error) -> proto::FileInfo {
    proto::FileInfo {
        name: path.display().to_string(),
        error: error.to_string(),
        relative_name: relative.to_owned(),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::walks::Walks;
    use super::*;

    /// No file is of the type that was asked for: no message tells that the client hung up.
    #[tokio::test]
    async fn a_list_with_nothing_to_send_ends_with_its_client() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let node = crate::server::tests_node(dir.path().canonicalize().unwrap());
        let request = proto::ListRequest {
            root: "/".into(),
            recurse: true,
            types: vec![Type::Symlink.into()],
            ..Default::default()
        };
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        let (told, went_on) = tokio::sync::oneshot::channel();
        drop(receiver);
        let walk = Walks::default().begin(&tonic::Request::new(())).unwrap();
        let work = move |reader: &Reader<proto::FileInfo>| {
            let listing = Listing::new(&node, &request, reader);
            told.send(listing.visit(Path::new("/"), ".", 0)).unwrap();
        };
        walk.run(sender, work).unwrap();
        assert!(!went_on.await.unwrap());
    }

    #[test]
    fn extended_attributes_are_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let flags = rustix::fs::XattrFlags::empty();
        match rustix::fs::setxattr(file.path(), "user.billet", b"value", flags) {
            Ok(()) => {
                let found = xattrs(file.path());
                assert!(found.iter().any(|x| x.name == "user.billet" && x.data == b"value"), "{found:?}");
            }
            // A file system without attributes must answer so.
            Err(error) => assert_eq!((error, xattrs(file.path()).len()), (rustix::io::Errno::OPNOTSUPP, 0)),
        }
        assert!(xattrs(Path::new("/nonexistent")).is_empty());
    }
}
