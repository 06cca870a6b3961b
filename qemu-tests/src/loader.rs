//! Real firmware and the real loader on disks of the power-cut certificate.
//!
//! Owns: the loader's file, starting a state and hearing which entry was chosen.
//! Does not: make or judge states; `installer::certify` does. Its UKIs say who they are and power off.
//! Fails by: the console of a machine whose payload said nothing in time.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use installer::certify::{self, payload};
use installer::device::{BlockDevice, Disk, Memory, Part};
use installer::entries::Entry;
use installer::esp::Esp;
use ondisk::fat::Reader;

use crate::vm::{Vm, VmBuilder};
use crate::{artifacts, write_log};

/// From QEMU's start to the payload's line, on the reference machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Longest loader that is read: systemd-boot has 0.1 MB.
const MAX_LOADER_BYTES: u32 = 4 << 20;

/// What the payload said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// Its version.
    pub version: String,
    /// The loader's identifier of the entry: its file name, mostly without the counters.
    pub entry: String,
}

impl Said {
    /// The generation in the entry's name.
    pub fn generation(&self) -> Option<u32> {
        let digits = self.entry.strip_prefix("billet-")?.get(..6)?;
        digits.parse().ok()
    }
}

/// systemd-boot, as it is on the images that the build made.
pub fn systemd_boot() -> Result<Vec<u8>> {
    let path = &artifacts::build().test.disk;
    let mut disk = Disk::open_shared(path)?;
    let mut table = Memory::new(disk.bytes(), disk.sector_bytes());
    copy_ends(&mut disk, &mut table)?;
    let found = certify::table(&mut table).map_err(|why| anyhow!("{}: {why}", path.display()))?;
    let (start, length) = certify::place(&found, "EFI").map_err(|why| anyhow!(why))?;
    let mut reader = Reader::open(Part::new(&mut disk, start, length))?;
    Ok(reader.read("EFI/BOOT/BOOTX64.EFI", MAX_LOADER_BYTES)?)
}

fn copy_ends(from: &mut dyn BlockDevice, to: &mut Memory) -> Result<()> {
    let mut bytes = vec![0; 1 << 16];
    let last = from.bytes() - bytes.len() as u64;
    for at in [0, last] {
        from.read_at(at, &mut bytes)?;
        to.write_at(at, &bytes)?;
    }
    Ok(())
}

/// Starts an image; what the payload says that the loader started.
pub fn start(name: &str, image: &Path, sector_bytes: u32) -> Result<Said> {
    let image = image.to_str().context("an image path that is not UTF-8")?;
    let drive = format!("if=none,id=esp,format=raw,file={image}");
    let device = format!(
        "virtio-blk-pci,drive=esp,logical_block_size={sector_bytes},physical_block_size={sector_bytes}"
    );
    hear(machine(name).extra(&["-drive", &drive, "-device", &device]))
}

/// The same with a log of what firmware and loader write.
pub fn start_recorded(name: &str, image: &Path, log: &Path) -> Result<Said> {
    hear(write_log::record(machine(name), image, log)?)
}

fn machine(name: &str) -> VmBuilder {
    Vm::builder(name).uefi().cpus(1).memory_mib(256).no_network()
}

fn hear(machine: VmBuilder) -> Result<Said> {
    let vm = machine.start()?;
    let line = vm.expect(payload::SAYS, LIMIT)?;
    // Behind it the machine is off, and the image is complete.
    vm.wait_exit(LIMIT)?;
    let (_, said) = line.split_once(payload::SAYS).context("invariant: the line was found by this")?;
    let mut words = said.split_whitespace();
    let (version, entry) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    ensure!(!entry.is_empty(), "the payload said only {line:?}");
    Ok(Said { version: version.into(), entry: entry.into() })
}

/// The entries on an image.
pub fn entries(image: &Path, sector_bytes: u32, (start, length): (u64, u64)) -> Result<Vec<Entry>> {
    let mut disk = Disk::open_with_sectors(image, sector_bytes)?;
    let mut entries = Esp::new(&mut disk, start, length).entries()?;
    entries.sort_by_key(|entry| entry.generation);
    Ok(entries)
}
