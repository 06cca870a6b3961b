//! Snapshots on the disk: a file each, named by the time, in a directory of EPHEMERAL that root alone reads.
//!
//! Owns: /var/lib/etcd.snapshots.
//! Order: a snapshot comes under a name of no snapshot; it is verified and synced before it has its name; a power cut leaves none or
//! a whole one.
//! Source: etcd's documentation, "Disaster recovery".

use std::fs::File;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use kubernetes::snapshot::Verifier;
use runtime::beneath::{self, Directory};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncWriteExt as _, BufWriter};

use crate::Error;
use crate::etcd::state::failed;

const DIRECTORY: &str = "/var/lib/etcd.snapshots";
/// While one comes.
const PART: &str = "part";
const RECORD: &str = "status.json";
pub(super) const SUFFIX: &str = ".db";
/// Bytes of one write.
const PIECE: usize = 1 << 20;
/// Room that a snapshot leaves on the file system: a tenth of it, at most 1 GiB. Below that the kubelet would end pods.
const RESERVE_SHARE: u64 = 10;
const MOST_RESERVE: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// Name of a snapshot that was taken at a time.
pub(super) fn name(taken: Timestamp) -> String {
    format!("{}{SUFFIX}", taken.strftime("%Y-%m-%dT%H-%M-%SZ"))
}

/// A snapshot on the disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Made {
    /// Its name.
    pub(super) file: String,
    /// When it began.
    pub(super) taken: Timestamp,
    /// Of the file, with the digest at its end.
    pub(super) bytes: u64,
    /// Of the file, hexadecimal.
    pub(super) sha256: String,
}

/// The directory.
pub(super) struct Kept {
    directory: Directory,
}

impl Kept {
    pub(super) fn open(root: &Path) -> Result<Self, Error> {
        let directory =
            beneath::make_directory(root, Path::new(DIRECTORY), 0o700).map_err(failed("make", DIRECTORY))?;
        Ok(Self { directory })
    }

    /// Names of the snapshots, the oldest first.
    pub(super) fn names(&self) -> Result<Vec<String>, Error> {
        let entries = std::fs::read_dir(self.directory.place()).map_err(failed("read", DIRECTORY))?;
        let mut names = Vec::new();
        for entry in entries {
            let name = entry.map_err(failed("read", DIRECTORY))?.file_name();
            names.extend(name.into_string().ok().filter(|name| name.ends_with(SUFFIX)));
        }
        names.sort_unstable();
        Ok(names)
    }

    /// A snapshot to read.
    pub(super) fn file(&self, name: &str) -> Result<File, Error> {
        let file = self.directory.file(Path::new(name)).map_err(failed("read", DIRECTORY))?;
        file.ok_or_else(|| failed("read", DIRECTORY)(std::io::ErrorKind::NotFound.into()))
    }

    /// Removes old ones until one of so many bytes has room; the newest stays.
    pub(super) fn make_room(&self, bytes: u64) -> Result<(), Error> {
        let mut names = self.names()?;
        names.pop();
        let mut old = names.into_iter();
        loop {
            let room = rustix::fs::statvfs(self.directory.place())
                .map_err(|errno| failed("look at", DIRECTORY)(errno.into()))?;
            let (free, total) =
                (room.f_bavail.saturating_mul(room.f_frsize), room.f_blocks.saturating_mul(room.f_frsize));
            let reserve = (total / RESERVE_SHARE).min(MOST_RESERVE);
            if free >= bytes.saturating_add(reserve) {
                return Ok(());
            }
            let Some(name) = old.next() else {
                let text = format!(
                    "a snapshot of {} MiB has no room on /var: {} MiB are free, of which {} MiB stay so",
                    bytes / MIB,
                    free / MIB,
                    reserve / MIB
                );
                return Err(failed("write", DIRECTORY)(std::io::Error::other(text)));
            };
            self.remove(&name)?;
        }
    }

    /// Removes the oldest ones until so many are left.
    pub(super) fn keep(&self, count: usize) -> Result<(), Error> {
        let names = self.names()?;
        names[..names.len().saturating_sub(count)].iter().try_for_each(|name| self.remove(name))
    }

    fn remove(&self, name: &str) -> Result<(), Error> {
        self.directory.remove(Path::new(name)).map_err(failed("remove", DIRECTORY))
    }

    /// Begins to take one.
    pub(super) fn begin(&self, taken: Timestamp) -> Result<Arriving<'_>, Error> {
        // Of an attempt that was cut off.
        self.directory.remove_all(Path::new(PART)).map_err(failed("remove", DIRECTORY))?;
        let file = self.directory.create_new(Path::new(PART), 0o600).map_err(failed("make", DIRECTORY))?;
        let file = BufWriter::with_capacity(PIECE, tokio::fs::File::from_std(file));
        let (verifier, hasher) = (Verifier::default(), Sha256::new());
        Ok(Arriving { kept: self, taken, file: Some(file), bytes: 0, verifier, hasher })
    }

    pub(super) fn record(&self) -> Result<Vec<u8>, Error> {
        self.directory.read(Path::new(RECORD)).map_err(failed("read", DIRECTORY))
    }

    pub(super) fn set_record(&self, text: &[u8]) -> Result<(), Error> {
        self.directory.replace(Path::new(RECORD), text, 0o600).map_err(failed("write", DIRECTORY))
    }
}

/// A snapshot that comes. Dropped before its end, what came is removed.
pub(super) struct Arriving<'a> {
    kept: &'a Kept,
    taken: Timestamp,
    file: Option<BufWriter<tokio::fs::File>>,
    bytes: u64,
    verifier: Verifier,
    hasher: Sha256,
}

impl Arriving<'_> {
    /// Its next bytes.
    pub(super) async fn take(&mut self, part: &[u8]) -> Result<(), Error> {
        self.verifier.take(part);
        self.hasher.update(part);
        self.bytes = self.bytes.saturating_add(part.len() as u64);
        let Some(file) = &mut self.file else { return Ok(()) };
        file.write_all(part).await.map_err(failed("write", DIRECTORY))
    }

    /// Verifies it and gives it its name.
    pub(super) async fn finish(mut self) -> Result<Made, Error> {
        let verified = std::mem::take(&mut self.verifier).finish();
        verified.map_err(|error| failed("verify", DIRECTORY)(std::io::Error::other(error)))?;
        if let Some(mut file) = self.file.take() {
            file.flush().await.map_err(failed("write", DIRECTORY))?;
            file.into_inner().sync_all().await.map_err(failed("write", DIRECTORY))?;
        }
        let file = name(self.taken);
        let directory = &self.kept.directory;
        directory.rename(Path::new(PART), &PathBuf::from(&file)).map_err(failed("write", DIRECTORY))?;
        directory.sync().map_err(failed("write", DIRECTORY))?;
        let digest = std::mem::take(&mut self.hasher).finalize();
        let sha256 = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Made { file, taken: self.taken, bytes: self.bytes, sha256 })
    }
}

impl Drop for Arriving<'_> {
    fn drop(&mut self) {
        // After the end nothing has the name.
        let _ = self.kept.directory.remove_all(Path::new(PART));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(byte: u8) -> Vec<u8> {
        let database = vec![byte; 4096];
        let digest = Sha256::digest(&database);
        [database.as_slice(), digest.as_slice()].concat()
    }

    async fn take(kept: &Kept, second: i64, bytes: &[u8]) -> Result<Made, Error> {
        let mut arriving = kept.begin(Timestamp::from_second(second).unwrap())?;
        for part in bytes.chunks(1000) {
            arriving.take(part).await?;
        }
        arriving.finish().await
    }

    #[tokio::test]
    async fn a_whole_snapshot_is_kept_and_the_oldest_ones_go() {
        let root = tempfile::tempdir().unwrap();
        let kept = Kept::open(root.path()).unwrap();
        for second in [1, 2, 3, 4] {
            let made = take(&kept, second * 3600, &snapshot(7)).await.unwrap();
            assert_eq!((made.bytes, made.sha256.len()), (4096 + 32, 64));
            assert_eq!(made.file, format!("1970-01-01T0{second}-00-00Z.db"));
        }
        kept.keep(2).unwrap();
        assert_eq!(kept.names().unwrap(), ["1970-01-01T03-00-00Z.db", "1970-01-01T04-00-00Z.db"]);
        let directory = root.path().join("var/lib/etcd.snapshots");
        let mode = |path: &Path| {
            use std::os::unix::fs::PermissionsExt as _;
            std::fs::metadata(path).unwrap().permissions().mode() & 0o777
        };
        assert_eq!(mode(&directory), 0o700);
        assert_eq!(mode(&directory.join("1970-01-01T04-00-00Z.db")), 0o600);
        kept.make_room(0).unwrap();
        let error = kept.make_room(1 << 60).unwrap_err().to_string();
        assert!(error.contains("has no room on /var"), "{error}");
        assert_eq!(kept.names().unwrap(), ["1970-01-01T04-00-00Z.db"], "the newest stays");
    }

    #[tokio::test]
    async fn one_that_was_cut_off_or_altered_leaves_nothing() {
        let root = tempfile::tempdir().unwrap();
        let kept = Kept::open(root.path()).unwrap();
        let mut altered = snapshot(7);
        altered[9] ^= 1;
        let error = take(&kept, 1, &altered).await.unwrap_err();
        let text = runtime::errors::chain(&error);
        assert!(text.contains("altered"), "{text}");
        assert!(take(&kept, 1, &snapshot(7)[..4000]).await.is_err());
        let mut arriving = kept.begin(Timestamp::from_second(9).unwrap()).unwrap();
        arriving.take(&[7; 100]).await.unwrap();
        drop(arriving);
        assert_eq!(std::fs::read_dir(root.path().join("var/lib/etcd.snapshots")).unwrap().count(), 0);
        // One that a power cut left.
        std::fs::write(root.path().join("var/lib/etcd.snapshots/part"), "x").unwrap();
        take(&kept, 1, &snapshot(8)).await.unwrap();
    }
}
