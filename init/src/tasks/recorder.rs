//! The flight recorder's part in a boot.
//!
//! Owns: which disk it is on: the one that the root is on, or would have been on. A boot from elsewhere has none,
//! whatever disks are there.

use alloc::format;
use alloc::string::String;

use super::disk;
use crate::boot::Boot;
use crate::cmdline::Transport;
use crate::failure::Failure;
use crate::source::Source;

/// Opens the flight recorder of the disk that the root is on and notes that a boot began.
pub fn begin_record(boot: &mut Boot<'_>) -> Result<(), Failure> {
    if let Some(Source::Slot { partition, meta: Some(device), .. }) = boot.source.clone() {
        begin(boot, &device, partition);
    }
    Ok(())
}

/// For a boot that fails before the root is found: the recorder of the disk that it was looked for on.
pub(crate) fn begin_late(boot: &mut Boot<'_>) {
    let elsewhere = matches!(
        boot.parameters.transport,
        Some(Transport::Initramfs | Transport::Label(_) | Transport::Network(_))
    );
    if boot.recorder.is_open() || elsewhere || boot.source.is_some() {
        return;
    }
    if let Some(device) = disk::only_meta(boot) {
        let slot = boot.parameters.slot.map_or("", |slot| slot.partition());
        begin(boot, &device, slot);
    }
}

fn begin(boot: &mut Boot<'_>, device: &str, slot: &str) {
    let facts = facts(boot, slot);
    match boot.recorder.begin(boot.kernel, device, &facts) {
        Ok(()) => boot.report.recorder = Some(device.into()),
        Err(failure) => boot.warn(&format!("{failure}; there is no flight recorder")),
    }
}

fn facts(boot: &Boot<'_>, slot: &str) -> String {
    let (version, kernel) = (&boot.report.version, &boot.report.kernel_release);
    format!("version={version}\nslot={slot}\nkernel={kernel}\n")
}
