//! Device events while booting.
//!
//! Owns: reading them, loading drivers for new devices, noticing corrupt blocks, and waiting for a device with a
//! named deadline.
//! Does not: sleep: every wait ends with an event or with its deadline, which is printed.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use sys::uevent::{MAX_BYTES, field};

use crate::boot::Boot;
use crate::corruption::Corruption;
use crate::failure::{Cause, Failure};

/// How long a device may take to appear: slow USB bridges and RAID controllers need half a minute.
pub const DEVICE_DEADLINE_NS: u64 = 45 * 1_000_000_000;

/// A machine whose disks do not say which one was booted is asked until no device event came for so long.
pub const QUIET_NS: u64 = 300 * 1_000_000;

/// Reads all waiting events. Returns how many there were.
pub fn drain(boot: &mut Boot<'_>) -> usize {
    let mut buffer = sys::fs::buffer(MAX_BYTES);
    let mut aliases: Vec<String> = Vec::new();
    let mut count = 0;
    while let Ok(len) = boot.kernel.next_device_event(&mut buffer) {
        let event = &buffer[..len];
        count += 1;
        if boot.corruption.is_none() {
            boot.corruption = Corruption::from_event(event, &boot.report.layers);
        }
        if let (Some("add"), Some(alias)) = (field(event, "ACTION"), field(event, "MODALIAS")) {
            aliases.push(alias.to_string());
        }
    }
    plug(boot, &aliases);
    count
}

/// Loads drivers for devices; what does not load is a warning. Returns how many module files were new.
pub fn plug(boot: &mut Boot<'_>, aliases: &[String]) -> usize {
    if aliases.is_empty() {
        return 0;
    }
    match boot.modules.load_for(boot.kernel, aliases) {
        Ok(count) => count,
        Err(failure) => {
            boot.warn(&failure.to_string());
            0
        }
    }
}

/// Looks, and looks again after every device event, until it is found or the deadline has passed.
pub fn wait_for<T>(
    boot: &mut Boot<'_>,
    what: &str,
    mut look: impl FnMut(&mut Boot<'_>) -> Result<Option<T>, Failure>,
) -> Result<T, Failure> {
    let deadline = boot.kernel.now_ns() + DEVICE_DEADLINE_NS;
    loop {
        drain(boot);
        if let Some(found) = look(boot)? {
            return Ok(found);
        }
        if boot.kernel.now_ns() >= deadline {
            let cause = Cause::NotThere(DEVICE_DEADLINE_NS / 1_000_000_000);
            return Err(Failure { operation: "wait for", object: what.to_string(), cause });
        }
        let until = boot.watchdog.next_ns().map_or(deadline, |next| deadline.min(next));
        boot.kernel.wait(Some(until), false).map_err(Failure::at("wait for", what))?;
        boot.watchdog.feed(boot.kernel);
    }
}

/// Waits until no event came for [`QUIET_NS`], at most until the deadline of a device.
pub fn wait_until_quiet(boot: &mut Boot<'_>) -> Result<(), Failure> {
    let deadline = boot.kernel.now_ns() + DEVICE_DEADLINE_NS;
    loop {
        let until = (boot.kernel.now_ns() + QUIET_NS).min(deadline);
        boot.kernel.wait(Some(until), false).map_err(Failure::at("wait for", "devices to settle"))?;
        boot.watchdog.feed(boot.kernel);
        if drain(boot) == 0 || boot.kernel.now_ns() >= deadline {
            return Ok(());
        }
    }
}
