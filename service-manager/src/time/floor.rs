//! The earliest time it can be: when the image was built, and when this node last knew the time.
//!
//! A machine without a clock battery starts in 1970, where no certificate is valid yet. The floor brings it close
//! enough that TLS works before any time server answered.
//!
//! On disk: `/system/state/last-sync`, seconds since 1970 as decimal text, mode 0600, replaced by rename.

use std::fs;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

/// Where the image says when it was built: the `created` field of its bill of materials, near the beginning.
const SBOM: &str = "usr/share/billet/sbom.spdx.json";
const SBOM_BYTES: u64 = 4096;
const STATE: &str = "system/state";
const FILE: &str = "last-sync";
/// After the year 2200 the file is damaged rather than right.
const LATEST: i64 = 7_258_118_400;

/// The floor in seconds since 1970, and where it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Floor {
    pub(super) seconds: i64,
    pub(super) source: &'static str,
}

/// The latest moment that has certainly passed.
pub(super) fn read(root: &Path) -> Option<Floor> {
    let build = build_time(root).map(|seconds| Floor { seconds, source: "the image's build" });
    let sync = last_sync(root).map(|seconds| Floor { seconds, source: "the last synchronisation" });
    [build, sync].into_iter().flatten().max_by_key(|floor| floor.seconds)
}

fn build_time(root: &Path) -> Option<i64> {
    let mut start = Vec::new();
    fs::File::open(root.join(SBOM)).ok()?.take(SBOM_BYTES).read_to_end(&mut start).ok()?;
    let text = String::from_utf8_lossy(&start);
    let (_, rest) = text.split_once("\"created\"")?;
    let value = rest.split('"').nth(1)?;
    value.parse::<Timestamp>().ok().map(Timestamp::as_second)
}

fn last_sync(root: &Path) -> Option<i64> {
    let text = fs::read_to_string(root.join(STATE).join(FILE)).ok()?;
    text.trim().parse().ok().filter(|seconds| (0..LATEST).contains(seconds))
}

/// Remembers that it is at least this late. Does nothing where no STATE is mounted.
pub(super) fn remember(root: &Path, seconds: i64) -> Result<(), String> {
    let state = root.join(STATE);
    if !is_mount_point(&state) {
        return Ok(());
    }
    replace(&state, seconds).map_err(|e| format!("remember the time in {}: {e}", state.join(FILE).display()))
}

fn replace(state: &Path, seconds: i64) -> std::io::Result<()> {
    let (new, path): (PathBuf, PathBuf) = (state.join(format!("{FILE}.new")), state.join(FILE));
    let mut file = fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&new)?;
    std::io::Write::write_all(&mut file, format!("{seconds}\n").as_bytes())?;
    file.sync_all()?;
    fs::rename(new, path)
}

/// Whether something else is mounted here.
fn is_mount_point(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let device = |path: &Path| fs::metadata(path).map(|m| m.dev()).ok();
    path.parent().is_some_and(|parent| device(parent).is_some() && device(parent) != device(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_later_of_build_and_last_sync_counts() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        assert_eq!(read(root), None);
        fs::create_dir_all(root.join("usr/share/billet")).unwrap();
        let sbom = "{\n  \"creationInfo\": {\n    \"created\": \"2026-01-02T03:04:05Z\",\n";
        fs::write(root.join(SBOM), sbom).unwrap();
        assert_eq!(read(root), Some(Floor { seconds: 1_767_323_045, source: "the image's build" }));
        fs::create_dir_all(root.join(STATE)).unwrap();
        replace(&root.join(STATE), 1_800_000_000).unwrap();
        assert_eq!(read(root).unwrap().seconds, 1_800_000_000);
        for damaged in ["", "x", "-5", "99999999999999"] {
            fs::write(root.join(STATE).join(FILE), damaged).unwrap();
            assert_eq!(read(root).unwrap().seconds, 1_767_323_045, "{damaged}");
        }
    }

    #[test]
    fn without_state_nothing_is_written() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join(STATE)).unwrap();
        remember(dir.path(), 1).unwrap();
        assert!(!dir.path().join(STATE).join(FILE).exists());
    }
}
