//! Real SeaBIOS and the real GRUB on disks of the power-cut certificate.
//!
//! Owns: putting GRUB's images in the place of the certificate's stand-ins, starting a disk and hearing which entry GRUB chose.
//! Does not: make or judge states. Their UKIs hold no kernel, so GRUB says what it starts and then that it cannot.
//! Fails by: the console of a machine on which GRUB said nothing in time.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use installer::certify;
use installer::device::{BlockDevice as _, Memory};

use crate::vm::Vm;
use crate::{Bus, Drive, artifacts};

/// From QEMU's start to GRUB's choice, on the reference machine.
const LIMIT: Duration = Duration::from_secs(20);

/// What GRUB prints before a number.
pub const STARTING: &str = "Billet: starting entry ";

/// Puts the build's GRUB on a disk that has stand-ins for it.
pub fn put(disk: &mut Memory) -> Result<()> {
    let read = |path: &Path| std::fs::read(path).with_context(|| format!("read {}", path.display()));
    let build = artifacts::build();
    let table = certify::table(disk).map_err(|why| anyhow!(why))?;
    let bios = table.by_name("BIOS").context("the disk has no partition BIOS")?;
    let code = ondisk::grub::boot_code(&read(&build.grub_boot)?, bios.first_lba)?;
    let core = ondisk::grub::core_image(&read(&build.grub_core)?, bios.first_lba)?;
    disk.write_at(0, &code)?;
    Ok(disk.write_at(table.offset_bytes(bios), &core)?)
}

/// Starts an image; the number of the entry that GRUB chose.
pub fn start(name: &str, image: &Path) -> Result<u32> {
    let machine = Vm::builder(name).cpus(1).memory_mib(256).no_network();
    let vm = machine.drive(Drive::writable(image, Bus::Sata)).start()?;
    let line = vm.expect(STARTING, LIMIT)?;
    let (_, number) = line.split_once(STARTING).context("invariant: the line was found by this")?;
    let digits = number.get(..6).with_context(|| format!("GRUB said only {line:?}"))?;
    // The entry's kernel is none: by the next line all that GRUB writes is written.
    vm.expect("cannot be started", LIMIT)?;
    vm.quit()?;
    digits.parse().with_context(|| format!("read the number in {line:?}"))
}
