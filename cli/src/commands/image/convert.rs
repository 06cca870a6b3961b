//! Disk formats of virtual machines: made of the raw disk by qemu-img.
//!
//! Owns: the options that each format is made with.
//! Fails by: naming the program's package when it is not there, else the file, with the program's own words.
//! Source: qemu-img(1).

use anyhow::{Context as _, Result, bail};
use installer::UNFINISHED;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The program, and the Debian package that has it.
const PROGRAM: &str = "qemu-img";
const PACKAGE: &str = "qemu-utils";

/// A format that another program makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Converted {
    Qcow2,
    Vhd,
    Vmdk,
}

impl Converted {
    /// The ending of its files.
    pub(super) fn ending(self) -> &'static str {
        match self {
            Self::Qcow2 => "qcow2",
            Self::Vhd => "vhd",
            Self::Vmdk => "vmdk",
        }
    }

    fn options(self) -> &'static [&'static str] {
        match self {
            Self::Qcow2 => &["-O", "qcow2", "-c"],
            // Azure takes fixed disks of exactly the length that they say.
            Self::Vhd => &["-O", "vpc", "-o", "subformat=fixed,force_size"],
            Self::Vmdk => &["-O", "vmdk", "-o", "subformat=streamOptimized"],
        }
    }

    pub(super) fn write(self, raw: &Path, path: &Path) -> Result<()> {
        let mut fresh = path.as_os_str().to_owned();
        fresh.push(format!(".{}{UNFINISHED}", std::process::id()));
        let fresh = Partial(fresh.into());
        let words = ["convert", "-f", "raw"];
        let output = Command::new(PROGRAM).args(words).args(self.options()).arg(raw).arg(&fresh.0).output();
        let output = output.with_context(|| {
            format!("run {PROGRAM} for {}: install it (Debian package {PACKAGE})", path.display())
        })?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("write {}: {PROGRAM}: {}", path.display(), said.trim());
        }
        fs::rename(&fresh.0, path).with_context(|| format!("write {}", path.display()))
    }
}

/// What is being written, under a name of its own; gone unless it was renamed.
struct Partial(PathBuf);

impl Drop for Partial {
    fn drop(&mut self) {
        // What counts is the result, or why there is none.
        let _ = fs::remove_file(&self.0);
    }
}
