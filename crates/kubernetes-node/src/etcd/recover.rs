//! A cluster that begins with the content of a snapshot of another one, after all members of that one are lost.
//!
//! Owns: /var/lib/etcd.snapshot, and /var/lib/etcd.restore, in which the tool of etcd's image makes data of it.
//! Order: the snapshot is on the disk under its name; a bootstrap verifies it, and the mark says that data is to be made of it; the data
//! is made beside its place, and then moved there whole; the mark says that a member begins; etcd starts; when it answers, the snapshot
//! and the mark go. Cut off anywhere, the next attempt goes on; data that etcd has written is never replaced.
//! Source: etcd's documentation, "Disaster recovery".

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use containers::Unpacked;
use containers::service::{Mount, Once};
use kubernetes::etcd::Restore;
use kubernetes::snapshot::Verifier;
use kubernetes::{Cluster, Owner, images, paths};
use runtime::beneath;
use tokio::io::{AsyncWriteExt as _, BufWriter};
use tokio::sync::OwnedMutexGuard;
use tokio::task::spawn_blocking;

use super::bootstrap::BootstrapError;
use super::program;
use super::state::{self, Data, Recovery, data, failed};
use crate::{Error, KubernetesNode, facts};

/// What a client sent.
const SNAPSHOT: &str = "/var/lib/etcd.snapshot";
/// While it comes.
const PART: &str = "/var/lib/etcd.snapshot.part";
/// Where data is made.
const RESTORE: &str = "/var/lib/etcd.restore";
/// The data in it: the tool makes the directory itself.
const MADE: &str = "data";
/// As the tool sees them.
const SEEN_SNAPSHOT: &str = "/snapshot";
const SEEN_RESTORE: &str = "/restore";
/// Four times what etcd's documentation takes for the most.
const MOST_BYTES: u64 = 32 << 30;
/// Bytes of one read or write.
const PIECE: usize = 1 << 20;
/// The container in which the tool runs.
const ID: &str = "etcd-restore";
/// Its place in the tree of control groups.
const GROUP: &str = "podruntime/etcd-restore";
/// Below the root: by which its output comes.
const OUTPUT: &str = "run/billet/etcd-restore";
/// How a line begins that says why the tool failed.
const REASONS: [&str; 3] = ["Error:", "panic:", "fatal error:"];
/// Reading and writing a database of some gigabytes on a slow disk.
const RESTORE_DEADLINE: Duration = Duration::from_secs(60 * 60);

/// A snapshot that comes in. Dropped before its end, what came is removed.
pub struct SnapshotUpload {
    root: PathBuf,
    file: BufWriter<tokio::fs::File>,
    bytes: u64,
    _turn: OwnedMutexGuard<()>,
}

impl KubernetesNode {
    /// Begins to take a snapshot; an earlier one goes when this one is whole.
    ///
    /// # Errors
    /// [`BootstrapError`] where a bootstrap would be refused as well.
    pub async fn receive_snapshot(&self) -> Result<SnapshotUpload, BootstrapError> {
        let config = self.refuse_member()?;
        let turn = self.recovering.clone().try_lock_owned().map_err(|_| BootstrapError::UnderWay)?;
        self.may_begin(&config).await?;
        let root = self.runtime.root.clone();
        let (directory, name) = beneath::make_parent(&root, Path::new(PART)).map_err(failed("make", PART))?;
        directory.remove_all(&name).map_err(failed("make", PART))?;
        let file = directory.create_new(&name, 0o600).map_err(failed("make", PART))?;
        // The tool runs as etcd does.
        let owner = Owner::Etcd.id();
        std::os::unix::fs::fchown(&file, Some(owner), Some(owner)).map_err(failed("make", PART))?;
        let file = BufWriter::with_capacity(PIECE, tokio::fs::File::from_std(file));
        Ok(SnapshotUpload { root, file, bytes: 0, _turn: turn })
    }

    /// Has etcd begin a new cluster with the content of the snapshot that was sent. It answers when the request is on the disk.
    ///
    /// # Errors
    /// [`BootstrapError`]; nothing has changed then.
    pub async fn recover(&self, skip_hash_check: bool) -> Result<(), BootstrapError> {
        let config = self.refuse_member()?;
        let turn = self.recovering.try_lock().map_err(|_| BootstrapError::UnderWay)?;
        self.may_begin(&config).await?;
        let root = self.runtime.root.clone();
        let verified = spawn_blocking(move || verify(&root, skip_hash_check));
        let bytes =
            verified.await.map_err(|_| failed("read", SNAPSHOT)(std::io::ErrorKind::Other.into()))??;
        self.mark(Some(Recovery { skip_hash_check }))?;
        drop(turn);
        let checked = if skip_hash_check { "its digest is not looked at" } else { "its digest is right" };
        self.runtime.journal.say(&format!(
            "etcd begins a new cluster from a snapshot of {bytes} bytes: bootstrap was asked for, {checked}"
        ));
        Ok(())
    }

    /// Makes the data of the snapshot, with the tool of etcd's image.
    pub(super) async fn restore(&self, unpacked: &Unpacked) -> Result<(), Error> {
        let _turn = self.recovering.lock().await;
        let root = self.runtime.root.clone();
        let Data::Recover(recovery) = data(&root)? else { return Ok(()) };
        let config = self.runtime.config().ok_or(Error::NoConfig)?;
        let cluster = Cluster::new(&config)?;
        let node = facts::node(&self.runtime, &cluster, self.is_container)?;
        let begin = tokio::time::Instant::now();
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let token = format!("recovered-{seconds}");
        self.make_data_of_snapshot(unpacked, &cluster, &node, recovery, &token).await?;
        let moved = spawn_blocking(move || move_into_place(&root, &token)).await;
        moved.map_err(|error| failed("move", RESTORE)(std::io::Error::other(error)))??;
        let seconds = begin.elapsed().as_secs();
        self.runtime.journal.say(&format!("etcd: its data is made of the snapshot, in {seconds} s"));
        Ok(())
    }

    async fn make_data_of_snapshot(
        &self,
        unpacked: &Unpacked,
        cluster: &Cluster<'_>,
        node: &kubernetes::Node,
        recovery: Recovery,
        token: &str,
    ) -> Result<(), Error> {
        let root = &self.runtime.root;
        // What an attempt before has left: the tool wants a place without anything.
        state::remove(root, RESTORE)?;
        let directory =
            beneath::make_directory(root, Path::new(RESTORE), 0o700).map_err(failed("make", RESTORE))?;
        directory.set_owner(Owner::Etcd.id()).map_err(failed("make", RESTORE))?;
        let output = root.join(OUTPUT);
        if let Some(parent) = output.parent() {
            std::fs::create_dir_all(parent).map_err(failed("make the directory of", OUTPUT))?;
        }
        let restore = Restore {
            snapshot: SEEN_SNAPSHOT,
            data: &format!("{SEEN_RESTORE}/{MADE}"),
            token,
            skip_hash_check: recovery.skip_hash_check,
        };
        let argv = kubernetes::etcd::restore(cluster, node, &restore)?;
        let tool = argv.first().cloned().unwrap_or_default();
        let path = |path: &str| state::below(root, path).display().to_string();
        let mounts = vec![
            Mount::bind_at(&path(SNAPSHOT), SEEN_SNAPSHOT, &["ro"]),
            Mount::bind_at(&path(RESTORE), SEEN_RESTORE, &["rw"]),
        ];
        let once = Once {
            id: ID,
            image: &images::etcd(cluster),
            unpacked,
            description: &program::description(argv, mounts, GROUP),
            log: &output,
            deadline: RESTORE_DEADLINE,
        };
        let refused = |reason: String| Error::Restore { reason };
        let ended = self.engine.run_once(&once).await.map_err(|error| refused(error.to_string()))?;
        if ended.status == 0 {
            return Ok(());
        }
        Err(refused(format!("{tool} ended with exit status {}: {}", ended.status, reason(&ended.output))))
    }
}

impl SnapshotUpload {
    /// Adds what came.
    ///
    /// # Errors
    /// [`BootstrapError::TooLong`], [`Error::File`].
    pub async fn push(&mut self, bytes: &[u8]) -> Result<(), BootstrapError> {
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        if self.bytes > MOST_BYTES {
            return Err(BootstrapError::TooLong(MOST_BYTES));
        }
        Ok(self.file.write_all(bytes).await.map_err(failed("write", PART))?)
    }

    /// Has the snapshot be there under its name; answers its bytes.
    ///
    /// # Errors
    /// [`Error::File`].
    pub async fn finish(mut self) -> Result<u64, Error> {
        self.file.flush().await.map_err(failed("write", PART))?;
        self.file.get_ref().sync_all().await.map_err(failed("write", PART))?;
        let (directory, name) =
            beneath::make_parent(&self.root, Path::new(SNAPSHOT)).map_err(failed("write", SNAPSHOT))?;
        directory.rename(&last(PART), &name).map_err(failed("write", SNAPSHOT))?;
        directory.sync().map_err(failed("write", SNAPSHOT))?;
        Ok(self.bytes)
    }
}

impl Drop for SnapshotUpload {
    fn drop(&mut self) {
        // Behind a whole one there is nothing; what stays all the same goes with the next one.
        let _ = state::remove(&self.root, PART);
    }
}

/// Removes the snapshot, and what was made of it elsewhere than in its place.
pub(super) fn remove_snapshot(root: &Path) -> Result<(), Error> {
    [PART, SNAPSHOT, RESTORE].into_iter().try_for_each(|path| state::remove(root, path))
}

/// The line of the tool's output that says why it failed: where a database is broken it panics, and many lines follow.
fn reason(output: &str) -> &str {
    let lines = || output.lines().map(str::trim).filter(|line| !line.is_empty());
    let is_reason = |line: &&str| REASONS.iter().any(|begin| line.starts_with(begin));
    lines().find(is_reason).or_else(|| lines().next_back()).unwrap_or("it said nothing")
}

/// Whether what was sent is a whole snapshot; its bytes. Blocks.
fn verify(root: &Path, skip_hash_check: bool) -> Result<u64, BootstrapError> {
    let read = || failed("read", SNAPSHOT);
    let found = beneath::parent(root, Path::new(SNAPSHOT));
    let file = match found.and_then(|(directory, name)| directory.file(&name)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(read()(error).into()),
        found => found.ok().flatten(),
    };
    let mut file: File = file.ok_or(BootstrapError::NoSnapshot)?;
    let size = file.metadata().map_err(read())?.len();
    if skip_hash_check && size > 0 {
        return Ok(size);
    }
    let (mut verifier, mut piece) = (Verifier::default(), vec![0; PIECE]);
    loop {
        match file.read(&mut piece).map_err(read())? {
            0 => return Ok(verifier.finish()?),
            count => verifier.take(piece.get(..count).unwrap_or_default()),
        }
    }
}

/// Which snapshot the data of this member was made of; `None` where it was made of none.
pub(crate) fn restored(root: &Path) -> Option<Vec<u8>> {
    beneath::read(root, Path::new(state::RESTORED)).ok()
}

/// The data takes its place; from here on it is etcd's. Blocks. That it is other data is noted first: cut off in between, programs
/// start again once more.
fn move_into_place(root: &Path, token: &str) -> Result<(), Error> {
    let data = || failed("move data to", paths::ETCD_DATA);
    let (directory, name) =
        beneath::make_parent(root, Path::new(state::RESTORED)).map_err(failed("write", state::RESTORED))?;
    directory.replace(&name, token.as_bytes(), 0o600).map_err(failed("write", state::RESTORED))?;
    let (directory, name) = beneath::make_parent(root, Path::new(paths::ETCD_DATA)).map_err(data())?;
    directory.remove_all(&name).map_err(data())?;
    directory.rename(&last(RESTORE).join(MADE), &name).map_err(data())?;
    directory.sync().map_err(data())?;
    state::mark(root, None)
}

/// The last name of a path: all of them are in one directory.
fn last(path: &str) -> PathBuf {
    Path::new(path).file_name().map(PathBuf::from).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use containers::Client;
    use containers::service::Fetch;
    use kubernetes::snapshot::SnapshotError;
    use runtime::services::Definition;
    use runtime::store::{Spec, TIME_STATUS, TimeStatus};

    use super::*;
    use crate::etcd::record::{self, Record, Stage};
    use crate::samples;

    /// A control plane node whose etcd waits.
    async fn node(root: &Path) -> KubernetesNode {
        let config = samples::control_plane("v1.34.10", "v3.6.4");
        let fetch: Fetch = Arc::new(|_, _| Box::pin(async { Ok(()) }));
        let runtime = samples::known(root, &config);
        let status = TimeStatus { synced: true, epoch: 1, sync_disabled: false };
        runtime.store.put(TIME_STATUS.writer, &TIME_STATUS, "node", Spec::TimeStatus(status)).unwrap();
        let node = KubernetesNode::new(runtime.clone(), Client::new(root, "system"), fetch, false);
        let etcd: Definition = node.etcd();
        runtime.services.define(etcd);
        runtime.services.start(crate::etcd::ID);
        let begin = std::time::Instant::now();
        while matches!(node.may_begin(&config).await, Err(BootstrapError::NotYet(_))) {
            assert!(begin.elapsed() < Duration::from_secs(60), "etcd does not get ready");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        node
    }

    fn snapshot() -> Vec<u8> {
        let database = vec![7; 3 * 4096];
        let digest = ondisk::Digest::sha256(&[&database]);
        [database, digest.as_bytes().to_vec()].concat()
    }

    async fn send(node: &KubernetesNode, bytes: &[u8]) -> Result<u64, BootstrapError> {
        let mut upload = node.receive_snapshot().await?;
        for part in bytes.chunks(4096) {
            upload.push(part).await?;
        }
        Ok(upload.finish().await?)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_whole_snapshot_is_asked_for_and_another_may_take_its_place() {
        let root = tempfile::tempdir().unwrap();
        let node = node(root.path()).await;
        let at = |path: &str| state::below(root.path(), path);
        assert!(matches!(node.recover(false).await, Err(BootstrapError::NoSnapshot)));

        // One that is cut off leaves nothing behind, and another cannot come meanwhile.
        let mut upload = node.receive_snapshot().await.unwrap();
        upload.push(b"part").await.unwrap();
        assert!(matches!(node.receive_snapshot().await, Err(BootstrapError::UnderWay)));
        assert!(matches!(node.recover(false).await, Err(BootstrapError::UnderWay)));
        drop(upload);
        assert!(!at(PART).exists() && !at(SNAPSHOT).exists());

        let (whole, mut altered) = (snapshot(), snapshot());
        altered[9] ^= 1;
        assert_eq!(send(&node, &altered).await.unwrap(), altered.len() as u64);
        let error = node.recover(false).await.unwrap_err();
        assert!(matches!(error, BootstrapError::Snapshot(SnapshotError::Digest(_))), "{error}");
        assert_eq!(data(root.path()).unwrap(), Data::None, "a refused one changes nothing");
        assert!(matches!(send(&node, &[]).await, Ok(0)));
        let error = node.recover(true).await.unwrap_err();
        assert!(matches!(error, BootstrapError::Snapshot(SnapshotError::Empty)), "{error}");

        // Before its data is made, another one may be sent; an empty cluster is not begun by the way.
        send(&node, &altered).await.unwrap();
        node.recover(true).await.unwrap();
        assert_eq!(data(root.path()).unwrap(), Data::Recover(Recovery { skip_hash_check: true }));
        assert!(matches!(node.bootstrap().await, Err(BootstrapError::UnderWay)));
        send(&node, &whole).await.unwrap();
        node.recover(false).await.unwrap();
        assert_eq!(data(root.path()).unwrap(), Data::Recover(Recovery { skip_hash_check: false }));
        assert_eq!(std::fs::read(at(SNAPSHOT)).unwrap(), whole);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_member_takes_no_snapshot() {
        let root = tempfile::tempdir().unwrap();
        let node = node(root.path()).await;
        let taken = Record { cluster: 1, member: 2, endpoints: Vec::new(), stage: Stage::Joining };
        record::keep(root.path(), &taken).unwrap();
        assert!(matches!(send(&node, b"x").await, Err(BootstrapError::Joins)));
        std::fs::create_dir_all(state::below(root.path(), paths::ETCD_DATA).join("member")).unwrap();
        assert!(matches!(send(&node, b"x").await, Err(BootstrapError::HasData)));
        assert!(matches!(node.recover(false).await, Err(BootstrapError::HasData)));
    }

    #[test]
    fn the_tool_s_reason_is_found_in_its_output() {
        let panicked =
            "{\"level\":\"info\"}\npanic: file size too small 100\n\ngoroutine 1 [running]:\nmain.main()\n";
        assert_eq!(reason(panicked), "panic: file size too small 100");
        let refused = "deprecated\nError: data-dir \"n1\" not empty or could not be read\n\n";
        assert_eq!(reason(refused), "Error: data-dir \"n1\" not empty or could not be read");
        assert_eq!(reason("one\ntwo\n"), "two");
        assert_eq!(reason("\n"), "it said nothing");
    }

    #[test]
    fn made_data_takes_its_place_once() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| state::below(root.path(), path);
        for path in [paths::ETCD_DATA.to_owned(), format!("{RESTORE}/{MADE}/member")] {
            std::fs::create_dir_all(at(&path)).unwrap();
        }
        std::fs::write(at(paths::ETCD_DATA).join("old"), "").unwrap();
        std::fs::write(at(SNAPSHOT), "x").unwrap();
        state::mark(root.path(), Some(Recovery { skip_hash_check: false })).unwrap();
        assert_eq!(restored(root.path()), None);
        move_into_place(root.path(), "recovered-1").unwrap();
        assert_eq!(restored(root.path()), Some(b"recovered-1".to_vec()));
        assert_eq!(data(root.path()).unwrap(), Data::Asked);
        let names = std::fs::read_dir(at(paths::ETCD_DATA)).unwrap();
        let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["member"]);
        remove_snapshot(root.path()).unwrap();
        let left: Vec<_> =
            std::fs::read_dir(at("/var/lib")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left.len(), 3, "{left:?}");
    }
}
