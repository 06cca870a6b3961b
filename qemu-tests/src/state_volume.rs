//! A disk with the partition STATE: what the installer will make, for tests that come before it.
//!
//! Owns: a GPT with one partition and an ext4 in it, made by sfdisk and mke2fs without root; looking into it after a
//! power cut.
//! Source: docs/formats/disk.md.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// Where the partition begins: one alignment into the disk.
const START_BYTES: u64 = 1 << 20;
/// Room for a journal; nearly all of it is a hole.
const STATE_BYTES: u64 = 32 << 20;
/// For the backup table.
const END_BYTES: u64 = 1 << 20;

/// Makes the disk.
pub fn write(image: &Path) -> Result<()> {
    write_several(image, 1)
}

/// Makes a disk with this many such partitions. The kernel tells of all partitions of a disk at once.
pub fn write_several(image: &Path, count: u64) -> Result<()> {
    let file = File::create(image).with_context(|| format!("create {}", image.display()))?;
    file.set_len(START_BYTES + count * STATE_BYTES + END_BYTES).context("size the STATE disk")?;
    let starts: Vec<u64> = (0..count).map(|number| START_BYTES + number * STATE_BYTES).collect();
    let rows =
        starts.iter().map(|start| format!("start={}, size={}, name=STATE\n", start / 512, STATE_BYTES / 512));
    partition(image, &format!("label: gpt\n{}", rows.collect::<String>()))?;
    for start in starts {
        let output = Command::new("mke2fs")
            .args(["-q", "-F", "-t", "ext4", "-L", "STATE", "-E", &format!("offset={start}")])
            .arg(image)
            .arg(format!("{}k", STATE_BYTES / 1024))
            .output()
            .context("run mke2fs; install it with: apt-get install e2fsprogs")?;
        ensure!(output.status.success(), "mke2fs failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// Does what the kernel does with a file system that was not unmounted, and checks the rest of it. Works on a copy of
/// the partition, which it returns.
pub fn recover(image: &Path) -> Result<PathBuf> {
    let what = || format!("copy STATE out of {}", image.display());
    // e2fsck opens the file system anew behind the journal, and forgets an offset then.
    let volume = image.with_extension("volume");
    let mut bytes = vec![0; usize::try_from(STATE_BYTES).with_context(what)?];
    let disk = File::open(image).with_context(what)?;
    disk.read_exact_at(&mut bytes, START_BYTES).with_context(what)?;
    std::fs::write(&volume, bytes).with_context(what)?;
    let output = Command::new("e2fsck").args(["-f", "-p"]).arg(&volume).output().context("run e2fsck")?;
    // 1: repaired; a replayed journal and files that were open count as that.
    let fine = output.status.code().is_some_and(|code| code <= 1);
    ensure!(fine, "e2fsck ended with {}: {}", output.status, String::from_utf8_lossy(&output.stdout));
    Ok(volume)
}

/// A file in the root directory of a file system; `None` if it is not there.
pub fn read(volume: &Path, name: &str) -> Result<Option<Vec<u8>>> {
    let command = format!("cat /{name}");
    let output =
        Command::new("debugfs").args(["-R", &command]).arg(volume).output().context("run debugfs")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "debugfs failed: {errors}");
    Ok((!errors.contains("File not found")).then_some(output.stdout))
}

fn partition(image: &Path, table: &str) -> Result<()> {
    let mut sfdisk = Command::new("sfdisk")
        .args(["-q", "--no-reread", "--no-tell-kernel"])
        .arg(image)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("run sfdisk; install it with: apt-get install fdisk")?;
    sfdisk
        .stdin
        .take()
        .context("sfdisk's input")?
        .write_all(table.as_bytes())
        .context("tell sfdisk the table")?;
    let output = sfdisk.wait_with_output().context("wait for sfdisk")?;
    ensure!(output.status.success(), "sfdisk failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_holds_an_ext4_behind_a_table() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("state.img");
        write(&image).unwrap();
        let bytes = std::fs::read(&image).unwrap();
        assert_eq!(&bytes[512..520], b"EFI PART");
        let volume = &bytes[usize::try_from(START_BYTES).unwrap()..];
        let found = ondisk::probe::probe(volume).unwrap();
        assert_eq!((found.kind, found.label.as_str()), (ondisk::probe::Kind::Ext4, "STATE"));
        let volume = recover(&image).unwrap();
        assert_eq!(read(&volume, "config.yaml").unwrap(), None);
        let file = dir.path().join("config.yaml");
        std::fs::write(&file, "a: 1\n").unwrap();
        let add = format!("write {} config.yaml", file.display());
        let added = Command::new("debugfs").args(["-w", "-R", &add]).arg(&volume).output().unwrap();
        assert!(added.status.success(), "{added:?}");
        assert_eq!(read(&volume, "config.yaml").unwrap().unwrap(), b"a: 1\n");
    }
}
