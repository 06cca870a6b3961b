//! `DiskUsage`: sizes of directories, added up from the leaves.
//!
//! Owns: what is counted and what is reported. Does not: count the kernel's pseudo file systems, whose sizes mean
//! nothing. Source: crates/api/proto/machine/machine.proto.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use api::proto::machine as proto;
use tonic::{Response, Status};

use super::answers::{Answers, answers};
use super::walks::{Reader, Walk};
use crate::node::Node;

/// Directories deeper than this are not entered: a bind mount may contain itself.
const DEEPEST: usize = 64;
/// File systems whose files hold no bytes: proc, sysfs (linux/magic.h).
const PSEUDO: [i64; 2] = [0x9fa0, 0x6265_6572];

pub(super) fn disk_usage(
    node: &Arc<Node>,
    request: proto::DiskUsageRequest,
    walk: Walk,
) -> Result<Response<Answers<proto::DiskUsageInfo>>, Status> {
    let (sender, answer) = answers();
    let node = node.clone();
    walk.run(sender, move |reader| {
        let paths = if request.paths.is_empty() { vec!["/".to_owned()] } else { request.paths.clone() };
        for path in paths {
            let shown = Path::new("/").join(&path);
            let sums = Sums {
                node: &node,
                depth: usize::try_from(request.recursion_depth).ok().filter(|depth| *depth > 0),
                all: request.all,
                threshold: request.threshold,
                reader,
            };
            if sums.visit(&shown, ".", 0, None).is_none() {
                return;
            }
        }
    })?;
    Ok(answer)
}

struct Sums<'a> {
    node: &'a Node,
    depth: Option<usize>,
    all: bool,
    threshold: i64,
    reader: &'a Reader<proto::DiskUsageInfo>,
}

impl Sums<'_> {
    /// The bytes of a path, or `None` when the reader is gone. `device` is the parent's, with whether it is real.
    fn visit(&self, path: &Path, relative: &str, depth: usize, device: Option<(u64, bool)>) -> Option<i64> {
        if self.reader.is_gone() {
            return None;
        }
        let real = self.node.runtime.path(&path.to_string_lossy());
        let metadata = match fs::symlink_metadata(&real) {
            Ok(metadata) => metadata,
            Err(error) => return self.fail(path, relative, &error),
        };
        let device = match device {
            Some((number, counts)) if number == metadata.dev() => (number, counts),
            _ => (metadata.dev(), counts(&real)),
        };
        let own = if device.1 { i64::try_from(metadata.size()).unwrap_or(i64::MAX) } else { 0 };
        if !metadata.is_dir() {
            let shown = self.all || depth == 0;
            return self.report(shown, path, relative, depth, own);
        }
        let mut sum = own;
        match names(&real) {
            Ok(_) if depth >= DEEPEST => {}
            Ok(names) => {
                for name in names {
                    let below = if relative == "." { name.clone() } else { format!("{relative}/{name}") };
                    let size =
                        self.visit(&path.join(&name), &below, depth.saturating_add(1), Some(device))?;
                    sum = sum.saturating_add(size);
                }
            }
            Err(error) => {
                self.fail(path, relative, &error)?;
            }
        }
        self.report(true, path, relative, depth, sum)
    }

    fn report(&self, wanted: bool, path: &Path, relative: &str, depth: usize, size: i64) -> Option<i64> {
        // One level is what the path itself is.
        let deep_enough = self.depth.is_none_or(|levels| depth < levels);
        if wanted && deep_enough && self.passes(size) {
            self.send(proto::DiskUsageInfo {
                metadata: None,
                name: path.display().to_string(),
                size,
                error: String::new(),
                relative_name: relative.to_owned(),
            })?;
        }
        Some(size)
    }

    /// A positive threshold is a least size, a negative one a largest.
    fn passes(&self, size: i64) -> bool {
        match self.threshold {
            0 => true,
            least @ 1.. => size >= least,
            most => size <= most.saturating_neg(),
        }
    }

    fn fail(&self, path: &Path, relative: &str, error: &std::io::Error) -> Option<i64> {
        self.send(proto::DiskUsageInfo {
            name: path.display().to_string(),
            // Clients print nothing else.
            error: format!("{}: {error}", path.display()),
            relative_name: relative.to_owned(),
            ..Default::default()
        })?;
        Some(0)
    }

    fn send(&self, info: proto::DiskUsageInfo) -> Option<()> {
        self.reader.send(Ok(info)).ok()
    }
}

fn counts(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|stat| !PSEUDO.contains(&stat.f_type))
}

fn names(directory: &Path) -> std::io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;

    use super::*;

    async fn answers(node: &Arc<Node>, request: proto::DiskUsageRequest) -> Vec<proto::DiskUsageInfo> {
        let walk = crate::server::walks::Walks::default().begin(&tonic::Request::new(())).unwrap();
        let stream = disk_usage(node, request, walk).unwrap().into_inner();
        stream.map(Result::unwrap).collect().await
    }

    async fn usage(node: &Arc<Node>, request: proto::DiskUsageRequest) -> Vec<(String, i64, bool)> {
        let found = answers(node, request).await.into_iter();
        found.map(|info| (info.relative_name, info.size, info.error.is_empty())).collect()
    }

    #[tokio::test]
    async fn directories_are_sums_and_filters_drop_what_they_should() {
        let dir = tempfile::tempdir().unwrap();
        let node = crate::server::tests_node(dir.path().canonicalize().unwrap());
        let data = dir.path().join("data");
        fs::create_dir_all(data.join("a/b")).unwrap();
        fs::write(data.join("a/b/deep"), vec![0; 1000]).unwrap();
        fs::write(data.join("a/top"), vec![0; 500]).unwrap();
        let directory =
            |path: &str| i64::try_from(fs::symlink_metadata(data.join(path)).unwrap().size()).unwrap();
        let request = |paths: &[&str]| proto::DiskUsageRequest {
            paths: paths.iter().map(ToString::to_string).collect(),
            ..Default::default()
        };
        let (root, a, b) = (directory(""), directory("a"), directory("a/b"));
        let all = usage(&node, request(&["/data"])).await;
        let expected = [
            ("a/b".to_owned(), b + 1000, true),
            ("a".to_owned(), a + b + 1500, true),
            (".".to_owned(), root + a + b + 1500, true),
        ];
        assert_eq!(all, expected);
        let files = usage(&node, proto::DiskUsageRequest { all: true, ..request(&["/data/a"]) }).await;
        let names: Vec<_> = files.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(names, ["b/deep", "b", "top", "."]);
        for (recursion_depth, count) in [(1, 1), (2, 2), (3, 3), (0, 3)] {
            let shallow = proto::DiskUsageRequest { recursion_depth, ..request(&["/data"]) };
            assert_eq!(usage(&node, shallow).await.len(), count, "{recursion_depth}");
        }
        let large = proto::DiskUsageRequest { threshold: root + a + b + 1500, ..request(&["/data"]) };
        assert_eq!(usage(&node, large).await.len(), 1);
        let missing = usage(&node, request(&["/nothing", "/data/a/top"])).await;
        assert_eq!(missing, [(".".to_owned(), 0, false), (".".to_owned(), 500, true)]);
        let error = &answers(&node, request(&["/nothing"])).await[0].error;
        assert!(error.starts_with("/nothing: No such file"), "{error}");
    }

    /// No size reaches what was asked for: no message tells that the client hung up.
    #[tokio::test]
    async fn sums_with_nothing_to_send_end_with_their_client() {
        let dir = tempfile::tempdir().unwrap();
        let node = crate::server::tests_node(dir.path().canonicalize().unwrap());
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        let (told, sum) = tokio::sync::oneshot::channel();
        drop(receiver);
        let walk = crate::server::walks::Walks::default().begin(&tonic::Request::new(())).unwrap();
        let work = move |reader: &Reader<proto::DiskUsageInfo>| {
            let sums = Sums { node: &node, depth: None, all: true, threshold: i64::MAX, reader };
            told.send(sums.visit(Path::new("/"), ".", 0, None)).unwrap();
        };
        walk.run(sender, work).unwrap();
        assert_eq!(sum.await.unwrap(), None);
    }

    #[test]
    fn the_kernels_files_have_no_size() {
        assert!(!counts(Path::new("/proc")) && !counts(Path::new("/sys")));
    }
}
