//! Kernel modules and the devices they drive.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::boot::Boot;
use crate::cmdline::Transport;
use crate::events;
use crate::failure::Failure;
use crate::modules::Modules;

/// Names of the profile's modules, one a line.
const PROFILE: &str = "/etc/billet/modules.load";

/// A profile is a few dozen lines.
const MAX_PROFILE_BYTES: usize = 64 * 1024;

/// Drivers make buses, buses show devices, devices need drivers: deeper nests than this do not exist.
const MAX_ROUNDS: usize = 8;

/// Reads the module index; a kernel with everything built in has none.
pub fn read_module_index(boot: &mut Boot<'_>) -> Result<(), Failure> {
    let release = boot.kernel.kernel_release();
    match Modules::read(boot.kernel, &release) {
        Ok(modules) => boot.modules = modules,
        Err(failure) => boot.warn(&failure.to_string()),
    }
    Ok(())
}

/// Loads what the profile lists, in its order.
pub fn load_profile_modules(boot: &mut Boot<'_>) -> Result<(), Failure> {
    let text = match boot.kernel.read(PROFILE, MAX_PROFILE_BYTES) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(errno) => {
            boot.warn(&Failure::errno("read module list", PROFILE, errno).to_string());
            return Ok(());
        }
    };
    for name in text.lines().map(|l| l.split('#').next().unwrap_or("").trim()).filter(|l| !l.is_empty()) {
        if let Err(failure) = boot.modules.load(boot.kernel, name) {
            boot.warn(&failure.to_string());
        }
    }
    Ok(())
}

/// Starts listening before looking, so that no device is missed in between.
pub fn watch_devices(boot: &mut Boot<'_>) -> Result<(), Failure> {
    boot.kernel.watch_devices().map_err(Failure::at("open", "device event socket"))
}

/// Loads drivers for the devices that are there, until no new ones appear. A root in the initramfs needs none: then
/// machined does this, with all modules of the kernel layer at hand.
pub fn plug_devices(boot: &mut Boot<'_>) -> Result<(), Failure> {
    if boot.parameters.transport == Some(Transport::Initramfs) || boot.source.is_some() {
        return Ok(());
    }
    for _ in 0..MAX_ROUNDS {
        let aliases = device_aliases(boot)?;
        if events::plug(boot, &aliases) == 0 {
            break;
        }
    }
    Ok(())
}

/// The aliases of all devices on all buses.
fn device_aliases(boot: &mut Boot<'_>) -> Result<Vec<String>, Failure> {
    let mut aliases = Vec::new();
    let buses = boot.kernel.list("/sys/bus").map_err(Failure::at("list", "/sys/bus"))?;
    for bus in buses {
        let directory = format!("/sys/bus/{bus}/devices");
        // A bus or device may go away while we look; what is gone needs no driver.
        for device in boot.kernel.list(&directory).unwrap_or_default() {
            let Ok(alias) = boot.kernel.read(&format!("{directory}/{device}/modalias"), 4096) else {
                continue;
            };
            let alias = String::from_utf8_lossy(&alias).trim_end().to_string();
            if !alias.is_empty() && !aliases.contains(&alias) {
                aliases.push(alias);
            }
        }
    }
    Ok(aliases)
}
