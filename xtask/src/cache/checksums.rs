//! The checksum list of a cache entry: one line a file or link, sorted by path.
//!
//! A line is `data <sha256>`, `program <sha256>` (a file with an execute bit) or `link <target>`, a tab, and the
//! path relative to the entry. Directories are not listed.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use super::CHECKSUMS;

pub(super) fn write(entry: &Path) -> Result<()> {
    let path = entry.join(CHECKSUMS);
    fs::write(&path, list(entry)?).with_context(|| format!("write {}", path.display()))
}

/// Compares an entry with its list; the error names the first difference.
pub(super) fn verify(entry: &Path) -> Result<()> {
    let path = entry.join(CHECKSUMS);
    let wanted = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let found = list(entry)?;
    if wanted == found {
        return Ok(());
    }
    let wanted: Vec<&str> = wanted.lines().collect();
    let found: Vec<&str> = found.lines().collect();
    let lost = wanted.iter().find(|line| !found.contains(line));
    let added = found.iter().find(|line| !wanted.contains(line));
    bail!("listed {}, found {}", lost.unwrap_or(&"nothing"), added.unwrap_or(&"nothing"))
}

/// SHA-256 of a file's content, as lower-case hex.
pub(crate) fn file_digest(path: &Path) -> Result<String> {
    let mut file = File::open(path).with_context(|| format!("open {}", path.display()))?;
    let mut hasher = Sha256::new();
    let mut block = vec![0; 1 << 17];
    loop {
        let count = file.read(&mut block).with_context(|| format!("read {}", path.display()))?;
        match block.get(..count) {
            Some([]) | None => return Ok(hex(&hasher.finalize())),
            Some(bytes) => hasher.update(bytes),
        }
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing into a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn list(entry: &Path) -> Result<String> {
    let mut paths = Vec::new();
    walk(entry, &mut paths)?;
    paths.sort();
    let mut lines = String::new();
    for path in paths {
        let name = path.strip_prefix(entry).unwrap_or(&path).to_string_lossy().into_owned();
        if name == CHECKSUMS {
            continue;
        }
        if path.is_symlink() {
            let target = fs::read_link(&path).with_context(|| format!("read link {}", path.display()))?;
            let _ = writeln!(lines, "link {}\t{name}", target.display());
        } else {
            let mode = fs::metadata(&path)
                .with_context(|| format!("inspect {}", path.display()))?
                .permissions()
                .mode();
            let kind = if mode & 0o111 == 0 { "data" } else { "program" };
            let _ = writeln!(lines, "{kind} {}\t{name}", file_digest(&path)?);
        }
    }
    Ok(lines)
}

fn walk(directory: &Path, paths: &mut Vec<PathBuf>) -> Result<()> {
    for item in fs::read_dir(directory).with_context(|| format!("list {}", directory.display()))? {
        let item = item.with_context(|| format!("list {}", directory.display()))?;
        if item.file_type().with_context(|| format!("inspect {}", item.path().display()))?.is_dir() {
            walk(&item.path(), paths)?;
        } else {
            paths.push(item.path());
        }
    }
    Ok(())
}
