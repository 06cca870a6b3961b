//! Disk formats of virtual machines: made of the raw disk by qemu-img.
//!
//! Owns: the options that each format is made with.
//! Fails by: naming the program's package when it is not there, else by its own words.
//! Source: qemu-img(1).

use anyhow::{Context as _, Result, bail};
use installer::image::{Architecture, PLATFORM};
use std::{fs, path::Path, process::Command};

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
    pub(super) fn file_name(self, architecture: Architecture) -> String {
        let ending = match self {
            Self::Qcow2 => "qcow2",
            Self::Vhd => "vhd",
            Self::Vmdk => "vmdk",
        };
        format!("{PLATFORM}-{}.{ending}", architecture.name())
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
        let fresh = path.with_extension("partial");
        let words = ["convert", "-f", "raw"];
        let output = Command::new(PROGRAM).args(words).args(self.options()).arg(raw).arg(&fresh).output();
        let output = output.with_context(|| {
            format!("run {PROGRAM} for {}: install it (Debian package {PACKAGE})", path.display())
        })?;
        if !output.status.success() {
            let _ = fs::remove_file(&fresh);
            bail!("{PROGRAM}: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        fs::rename(&fresh, path).with_context(|| format!("write {}", path.display()))
    }
}
