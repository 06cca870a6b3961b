//! GRUB on an installed disk: what lets a machine without UEFI start it.
//!
//! Owns: where GRUB's images come from and which files it has on the ESP; how a UKI is started by it; what it counted.
//! Does not: write; [`crate::install`] puts it on a disk, [`crate::esp`] keeps its files in step with the UKIs. The environment
//! block is GRUB's own: nobody else changes it.
//! Order of trust: the names of the UKIs say what is on trial, as they do for systemd-boot; GRUB adds how many starts are used
//! up. A number is never given twice, so an old count does not hit a new system.
//! Source: docs/formats/grub.md; the GRUB manual, "The list of commands", "The GRUB environment block".

use std::fs;
use std::path::Path;

use ondisk::fat;
use ondisk::gpt::{Partition, Table};
use ondisk::grub::{self, Environment, SECTOR_BYTES, quote};
use ondisk::pe::Image;

use crate::Error;
use crate::entries::{Entry, Trial};
use crate::system::check_whole_line;

/// The directory of a root with the boot parts has the image of the first sector under this name. Kernel layer.
pub const BOOT_NAME: &str = "grub-boot.img";

/// The image of the BIOS boot partition, likewise.
pub const CORE_NAME: &str = "grub-core.img";

/// GRUB's directory on the EFI system partition; the core image knows it as `(,gpt1)/grub`.
pub const DIRECTORY: &str = "grub";

/// What GRUB runs: the choice of the UKI.
pub const CONFIG: &str = include_str!("grub.cfg");

/// Path of [`CONFIG`] on the ESP.
const CONFIG_PATH: &str = "grub/grub.cfg";

/// Path of the environment block on the ESP.
pub const ENVIRONMENT_PATH: &str = "grub/grubenv";

/// On a machine without UEFI nobody says which disk the loader was on, and a medium may still be plugged in.
const FROM_DISK: &str = "billet.root=disk";

/// GRUB's images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parts {
    /// See [`BOOT_NAME`].
    pub boot: Vec<u8>,
    /// See [`CORE_NAME`].
    pub core: Vec<u8>,
}

impl Parts {
    /// Reads the images from the directory of a root with the boot parts.
    pub fn read(directory: &Path) -> Result<Self, Error> {
        let read = |name: &str| {
            let path = directory.join(name);
            fs::read(&path).map_err(Error::read(&path))
        };
        Ok(Self { boot: read(BOOT_NAME)?, core: read(CORE_NAME)? })
    }

    /// The files that a kernel layer brings, by name.
    #[must_use]
    pub fn of_kernel(&self) -> [(&'static str, &[u8]); 2] {
        [(BOOT_NAME, &self.boot), (CORE_NAME, &self.core)]
    }

    /// The first bytes of a disk whose BIOS boot partition is this one.
    pub(crate) fn boot_code(&self, table: &Table, bios: &Partition) -> Result<Vec<u8>, Error> {
        check_sectors(table)?;
        Ok(grub::boot_code(&self.boot, bios.first_lba)?.to_vec())
    }

    /// What the BIOS boot partition begins with.
    pub(crate) fn core_image(&self, table: &Table, bios: &Partition) -> Result<Vec<u8>, Error> {
        check_sectors(table)?;
        Ok(grub::core_image(&self.core, bios.first_lba)?)
    }
}

/// The BIOS interface and GRUB's block lists count in sectors of 512 bytes.
fn check_sectors(table: &Table) -> Result<(), Error> {
    let sector_bytes = table.geometry.sector_bytes;
    let fits = usize::try_from(sector_bytes) == Ok(SECTOR_BYTES);
    if fits { Ok(()) } else { Err(Error::BiosSectors { sector_bytes }) }
}

/// Contents of GRUB's files on a new ESP.
#[derive(Debug)]
pub(crate) struct Files {
    environment: Vec<u8>,
    script: String,
    script_path: String,
}

impl Files {
    /// The files of a disk whose first entry has this UKI.
    pub(crate) fn new(first: Entry, uki: &[u8]) -> Result<Self, Error> {
        let (environment, script) = (Environment::empty_block(), script(uki)?);
        Ok(Self { environment, script, script_path: script_path(first.generation) })
    }

    /// For [`fat::format`].
    pub(crate) fn list(&self) -> [fat::File<'_>; 3] {
        [
            fat::File { path: CONFIG_PATH, content: CONFIG.as_bytes() },
            fat::File { path: ENVIRONMENT_PATH, content: &self.environment },
            fat::File { path: &self.script_path, content: self.script.as_bytes() },
        ]
    }
}

/// Path of the script that starts the UKI of this number.
#[must_use]
pub fn script_path(generation: u32) -> String {
    format!("{DIRECTORY}/{generation:06}.cfg")
}

/// The number in a script's file name.
pub(crate) fn script_generation(name: &str) -> Option<u32> {
    let digits = name.to_ascii_lowercase().strip_suffix(".cfg")?.to_owned();
    let whole = digits.len() == 6 && digits.bytes().all(|byte| byte.is_ascii_digit());
    whole.then(|| digits.parse().ok())?
}

/// The script that loads kernel and initramfs out of a UKI, which GRUB sees as the disk `uki`.
pub fn script(uki: &[u8]) -> Result<String, Error> {
    let image = Image::parse(uki)?;
    let place = |name: &'static str| {
        let section = image.sections().iter().find(|section| section.name == name);
        let place = section.and_then(|section| {
            let offset = usize::try_from(section.file_offset).ok()?;
            let whole = offset.is_multiple_of(SECTOR_BYTES);
            whole.then(|| (offset / SECTOR_BYTES, section.content.len().div_ceil(SECTOR_BYTES)))
        });
        place.map(|(first, count)| format!("(uki){first}+{count}")).ok_or(Error::UkiSection { name })
    };
    let line = image.section(".cmdline").and_then(|line| std::str::from_utf8(line).ok());
    let line = line.ok_or(Error::UkiSection { name: ".cmdline" })?.trim_end_matches('\0');
    let (kernel, initramfs, line) = (place(".linux")?, place(".initrd")?, arguments(line)?);
    Ok(format!("linux {kernel} {line}\ninitrd {initramfs}\n"))
}

/// A command line as GRUB passes it on unchanged.
fn arguments(line: &str) -> Result<String, Error> {
    let mut words: Vec<&str> = line.split_ascii_whitespace().collect();
    // GRUB puts a backslash before these, and the kernel does not take it away.
    if let Some(bad) = words.iter().find(|word| word.contains(['"', '\'', '\\'])) {
        return Err(Error::GrubArgument { argument: (*bad).to_owned() });
    }
    if !words.iter().any(|word| word.starts_with("billet.root=") || word.starts_with("talos.root=")) {
        // What follows a lone `--` is not the kernel's.
        let end = words.iter().position(|word| *word == "--").unwrap_or(words.len());
        words.insert(end, FROM_DISK);
    }
    check_whole_line(&words.join(" "))?;
    Ok(words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" "))
}

/// What GRUB counted last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    /// Of which entry; 0: nothing was counted yet.
    pub generation: u32,
    /// How often it was started.
    pub starts: u32,
}

impl Counted {
    /// Reads an environment block. One that GRUB does not take counts nothing, and GRUB starts no trial then.
    #[must_use]
    pub fn read(block: &[u8]) -> Self {
        let values = Environment::parse(block).unwrap_or_default();
        let number = |name| values.get(name).and_then(|value| value.parse().ok()).unwrap_or(0);
        Self { generation: number("generation"), starts: number("starts") }
    }

    /// An entry as its name and the count together say.
    #[must_use]
    pub fn applied_to(self, entry: Entry) -> Entry {
        let used = if entry.generation == self.generation { self.starts } else { 0 };
        let trial = entry.trial.map(|trial| Trial {
            left: trial.left.saturating_sub(used),
            done: trial.done.saturating_add(used),
        });
        Entry { trial, ..entry }
    }
}

#[cfg(test)]
mod tests;
