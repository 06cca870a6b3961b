//! Logs of containers in pods: the files that containerd writes for the kubelet.
//!
//! Owns: which file a name means: of the pod's latest life the container's latest, and the next one when the container starts
//! again. Does not: read files that were turned over; follow links below /var, which workloads write too.
//! Fails by: a status that says what there is.
//! Source: the kubelet's layout, `/var/log/pods/NAMESPACE_POD_UID/CONTAINER/RESTARTS.log`; a line is time, stream, `F` or `P`, text.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use runtime::beneath;
use runtime::logs::{Tail, seek_tail};
use tonic::Status;

use super::query;

const LOGS: &str = "/var/log/pods";
/// Most bytes returned at once.
const CHUNK: u64 = 32 * 1024;
/// Between two looks at a log that is followed.
const PERIOD: Duration = Duration::from_millis(250);
/// Of a file that is a container's log.
const ENDING: &str = ".log";

/// A place in the log of a container.
#[derive(Debug)]
pub(super) struct PodLog {
    root: PathBuf,
    /// Of the container.
    directory: PathBuf,
    /// How often the container had started before.
    number: u64,
    file: File,
}

/// `namespace/pod:container`.
#[derive(Debug, PartialEq, Eq)]
struct Name<'a> {
    namespace: &'a str,
    pod: &'a str,
    container: &'a str,
}

impl<'a> Name<'a> {
    fn parse(id: &'a str) -> Option<Self> {
        let (pod, container) = id.split_once(':')?;
        let (namespace, pod) = pod.split_once('/')?;
        // Kubernetes' names: nothing that could be a path, and no `_`, which parts them in a directory's name.
        let is_name = |text: &str| {
            let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
            (1..=253).contains(&text.len()) && text.bytes().all(fits) && !text.starts_with('.')
        };
        [namespace, pod, container].into_iter().all(is_name).then_some(Self { namespace, pod, container })
    }
}

impl PodLog {
    /// The log of a container, from where `tail` says.
    pub(super) fn open(root: &Path, id: &str, tail: Tail) -> Result<Self, Status> {
        let name = Name::parse(id).ok_or_else(|| {
            Status::invalid_argument(format!(
                "{} is no container of a pod: write namespace/pod:container, as `containers -k` does",
                query::quoted(id)
            ))
        })?;
        let failed = |error: io::Error| Status::internal(format!("read the log of {id}: {error}"));
        let mut log = Self::latest(root, &name).map_err(failed)?.ok_or_else(|| {
            Status::not_found(format!(
                "container {} has no log on this node; `containers -k` lists the containers that it has",
                query::quoted(id)
            ))
        })?;
        if let Tail::Lines(lines) = tail {
            seek_tail(&mut log.file, lines).map_err(failed)?;
        }
        Ok(log)
    }

    /// The one that was written to last: a pod that was made anew has a directory for each life.
    fn latest(root: &Path, name: &Name<'_>) -> io::Result<Option<Self>> {
        let start = format!("{}_{}_", name.namespace, name.pod);
        let pods = names(root, Path::new(LOGS))?;
        let mut latest: Option<(SystemTime, Self)> = None;
        for pod in pods.into_iter().filter(|pod| pod.starts_with(&start)) {
            let directory = Path::new(LOGS).join(pod).join(name.container);
            let Some(number) = newest(root, &directory)? else { continue };
            let Some(file) = file(root, &directory, number)? else { continue };
            let written = file.metadata()?.modified()?;
            if latest.as_ref().is_none_or(|(before, _)| *before < written) {
                latest = Some((written, Self { root: root.to_owned(), directory, number, file }));
            }
        }
        Ok(latest.map(|(_, log)| log))
    }

    /// The next bytes, none when there are none now.
    pub(super) fn read_available(&mut self) -> io::Result<Vec<u8>> {
        loop {
            let mut bytes = Vec::new();
            Read::by_ref(&mut self.file).take(CHUNK).read_to_end(&mut bytes)?;
            if !bytes.is_empty() || !self.go_on()? {
                return Ok(bytes);
            }
        }
    }

    /// Waits until there may be more. Nothing tells when containerd writes.
    pub(super) async fn grown(&mut self) {
        tokio::time::sleep(PERIOD).await;
    }

    /// Opens what follows the file that was read to its end: one of the same name, or of the container's next start.
    fn go_on(&mut self) -> io::Result<bool> {
        if let Some(current) = file(&self.root, &self.directory, self.number)?
            && current.metadata()?.ino() != self.file.metadata()?.ino()
        {
            self.file = current;
            return Ok(true);
        }
        let Some(number) = newest(&self.root, &self.directory)?.filter(|number| *number > self.number) else {
            return Ok(false);
        };
        let Some(next) = file(&self.root, &self.directory, number)? else { return Ok(false) };
        (self.file, self.number) = (next, number);
        Ok(true)
    }
}

/// Names in a directory; none where it is not there.
fn names(root: &Path, directory: &Path) -> io::Result<Vec<String>> {
    // The last name of a path in it is not looked at.
    let opened = match beneath::parent(root, &directory.join("any")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened?.0,
    };
    let listed = fs::read_dir(opened.place())?;
    Ok(listed.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect())
}

/// How often a container had started before its latest start.
fn newest(root: &Path, directory: &Path) -> io::Result<Option<u64>> {
    let names = names(root, directory)?;
    Ok(names.iter().filter_map(|name| name.strip_suffix(ENDING)?.parse().ok()).max())
}

fn file(root: &Path, directory: &Path, number: u64) -> io::Result<Option<File>> {
    match beneath::parent(root, &directory.join(format!("{number}{ENDING}"))) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => {
            let (opened, name) = opened?;
            opened.file(&name)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::symlink;

    use super::*;

    const ID: &str = "kube-system/proxy-1:main";

    fn write(root: &Path, name: &str, text: &str) -> PathBuf {
        let path = root.join("var/log/pods").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
        path
    }

    fn read(log: &mut PodLog) -> String {
        String::from_utf8(log.read_available().unwrap()).unwrap()
    }

    #[test]
    fn a_log_is_read_from_its_last_lines_and_over_restarts() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "kube-system_proxy-1_a/main/0.log", "0 stdout F old\n");
        let path = write(root.path(), "kube-system_proxy-1_a/main/3.log", "1 stderr F one\n2 stderr F two\n");
        write(root.path(), "kube-system_proxy-10_b/main/9.log", "of another pod\n");
        let mut all = PodLog::open(root.path(), ID, Tail::All).unwrap();
        let mut log = PodLog::open(root.path(), ID, Tail::Lines(1)).unwrap();
        assert_eq!(read(&mut all), "1 stderr F one\n2 stderr F two\n");
        assert_eq!((read(&mut log), read(&mut log)), ("2 stderr F two\n".to_owned(), String::new()));
        // The kubelet turns it over.
        fs::rename(&path, path.with_extension("log.20261127")).unwrap();
        write(root.path(), "kube-system_proxy-1_a/main/3.log", "3 stderr F three\n");
        assert_eq!(read(&mut log), "3 stderr F three\n");
        write(root.path(), "kube-system_proxy-1_a/main/4.log", "4 stderr F four\n");
        assert_eq!(read(&mut log), "4 stderr F four\n");
    }

    #[test]
    fn the_latest_life_of_a_pod_counts() {
        let root = tempfile::tempdir().unwrap();
        let old = write(root.path(), "kube-system_proxy-1_a/main/7.log", "old\n");
        File::options().write(true).open(old).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        write(root.path(), "kube-system_proxy-1_b/main/0.log", "new\n");
        assert_eq!(read(&mut PodLog::open(root.path(), ID, Tail::All).unwrap()), "new\n");
    }

    #[test]
    fn other_names_are_refused() {
        let root = tempfile::tempdir().unwrap();
        for id in [
            "kubelet",
            "kube-system/proxy-1",
            "../x:main",
            "a/../../etc:main",
            "a/b:..",
            "a/b_c:main",
            "a/:main",
        ] {
            let status = PodLog::open(root.path(), id, Tail::All).unwrap_err();
            assert_eq!(status.code(), tonic::Code::InvalidArgument, "{id}: {status}");
        }
        let status = PodLog::open(root.path(), ID, Tail::All).unwrap_err();
        assert_eq!(status.code(), tonic::Code::NotFound);
    }

    /// A workload that writes below /var must not have a reader's call read a file of the node for it.
    #[test]
    fn a_planted_link_is_not_read() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("secret"), "secret").unwrap();
        let log = write(root.path(), "kube-system_proxy-1_a/main/0.log", "x\n");
        fs::remove_file(&log).unwrap();
        symlink(root.path().join("secret"), &log).unwrap();
        let status = PodLog::open(root.path(), ID, Tail::All).unwrap_err();
        assert!(status.message().contains("symbolic link"), "{status}");
        let container = log.parent().unwrap();
        fs::remove_dir_all(container).unwrap();
        symlink(root.path(), container).unwrap();
        assert!(PodLog::open(root.path(), ID, Tail::All).is_err());
    }
}
