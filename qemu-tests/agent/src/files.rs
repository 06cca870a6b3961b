//! Files: read, written, filled up, fingerprinted.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

/// Largest file that is sent as text.
const READ_LIMIT: u64 = 4 << 20;

/// What is mounted where. Source: proc_pid_mountinfo(5).
const MOUNTS: &str = "/proc/self/mountinfo";

/// One write of a fill, and one read of a fingerprint.
const CHUNK_BYTES: usize = 1 << 16;

pub(crate) fn read(path: &str) -> Result<Value, String> {
    let failed = |error: io::Error| format!("read {path}: {error}");
    let mut bytes = Vec::new();
    File::open(path).map_err(failed)?.take(READ_LIMIT).read_to_end(&mut bytes).map_err(failed)?;
    Ok(json!({ "text": String::from_utf8_lossy(&bytes), "bytes": bytes.len() }))
}

pub(crate) fn write(path: &str, text: &str) -> Result<Value, String> {
    fs::write(path, text).map_err(|error| format!("write {path}: {error}"))?;
    Ok(json!({}))
}

pub(crate) fn remove(path: &str) -> Result<Value, String> {
    fs::remove_file(path).map_err(|error| format!("remove {path}: {error}"))?;
    Ok(json!({}))
}

/// Answers how many bytes fitted and whether the file system was the limit.
pub(crate) fn fill(path: &str, bytes: Option<u64>) -> Result<Value, String> {
    let mut file = File::create(path).map_err(|error| format!("create {path}: {error}"))?;
    let (limit, mut written) = (bytes.unwrap_or(u64::MAX), 0);
    let chunk = vec![0xa5; CHUNK_BYTES];
    while written < limit {
        let size = usize::try_from(limit - written).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
        match file.write(&chunk[..size]) {
            Ok(more) => written += u64::try_from(more).unwrap_or(0),
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                return Ok(json!({ "bytes": written, "full": true }));
            }
            Err(error) => return Err(format!("write {path}: {error}")),
        }
    }
    Ok(json!({ "bytes": written, "full": false }))
}

/// `files`: path below the root -> fingerprint; `errors`: path -> errno. What is mounted below it is left out.
///
/// Mounts are told apart by their places: on overlayfs a file's device number is not its directory's.
pub(crate) fn fingerprints(root: &str) -> Result<Value, String> {
    let mounted = mount_points().map_err(|error| format!("read {MOUNTS}: {error}"))?;
    let (mut files, mut errors) = (Map::new(), Map::new());
    let mut directories = vec![PathBuf::from(root)];
    while let Some(directory) = directories.pop() {
        if let Err(error) = one_directory(&directory, &mounted, &mut directories, &mut files, &mut errors) {
            errors.insert(directory.display().to_string(), number(&error));
        }
    }
    Ok(json!({ "files": files, "errors": errors }))
}

fn one_directory(
    directory: &Path,
    mounted: &HashSet<PathBuf>,
    directories: &mut Vec<PathBuf>,
    files: &mut Map<String, Value>,
    errors: &mut Map<String, Value>,
) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if mounted.contains(&path) {
            continue;
        }
        let name = path.display().to_string();
        match fs::symlink_metadata(&path).map(|metadata| metadata.file_type()) {
            Err(error) => drop(errors.insert(name, number(&error))),
            Ok(kind) if kind.is_dir() => directories.push(path),
            Ok(kind) if kind.is_file() => match fingerprint(&path) {
                Ok(print) => drop(files.insert(name, json!(format!("{print:016x}")))),
                Err(error) => drop(errors.insert(name, number(&error))),
            },
            Ok(_) => {}
        }
    }
    Ok(())
}

/// The fifth field of each line; spaces in it are written as octal, which no path of an image holds.
fn mount_points() -> io::Result<HashSet<PathBuf>> {
    let text = fs::read_to_string(MOUNTS)?;
    Ok(text.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from).collect())
}

fn number(error: &io::Error) -> Value {
    json!(error.raw_os_error().unwrap_or(0))
}

/// A 64-bit multiply-and-rotate hash over words: every flipped bit changes it, and an emulated processor is quick at it.
fn fingerprint(path: &Path) -> io::Result<u64> {
    let mut file = File::open(path)?;
    let (mut state, mut total) = (0x9e37_79b9_7f4a_7c15_u64, 0_u64);
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let filled = fill_buffer(&mut file, &mut buffer)?;
        for word in buffer[..filled].chunks(8) {
            let mut bytes = [0; 8];
            bytes[..word.len()].copy_from_slice(word);
            // Multiplying by an odd number and rotating are both reversible: two contents that differ in one word
            // cannot meet again in the state.
            state = (state ^ u64::from_le_bytes(bytes)).wrapping_mul(0xd6e8_feb8_6659_fd93).rotate_left(29);
        }
        total += u64::try_from(filled).unwrap_or(0);
        if filled < buffer.len() {
            return Ok(state ^ total);
        }
    }
}

/// Short reads must not shift the words.
fn fill_buffer(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_flipped_bit_changes_the_fingerprint() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let mut bytes = vec![7; CHUNK_BYTES + 5];
        fs::write(&path, &bytes).unwrap();
        let intact = fingerprint(&path).unwrap();
        for at in [0, 9, CHUNK_BYTES - 1, CHUNK_BYTES + 4] {
            bytes[at] ^= 0x10;
            fs::write(&path, &bytes).unwrap();
            assert_ne!(fingerprint(&path).unwrap(), intact, "byte {at}");
            bytes[at] ^= 0x10;
        }
        fs::write(&path, &bytes).unwrap();
        assert_eq!(fingerprint(&path).unwrap(), intact);
    }

    #[test]
    fn directories_are_entered_and_links_are_not() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        fs::write(dir.path().join("a/f"), "x").unwrap();
        std::os::unix::fs::symlink("/nowhere", dir.path().join("a/l")).unwrap();
        let found = fingerprints(dir.path().to_str().unwrap()).unwrap();
        assert_eq!(found["files"].as_object().unwrap().len(), 1);
        assert_eq!(found["errors"].as_object().unwrap().len(), 0);
    }

    #[test]
    fn a_fill_stops_at_its_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let done = fill(path.to_str().unwrap(), Some(100_000)).unwrap();
        assert_eq!(done, json!({ "bytes": 100_000, "full": false }));
        assert_eq!(fs::metadata(&path).unwrap().len(), 100_000);
    }
}
