//! What the boot is to do: command line and root manifest.

use alloc::format;
use alloc::string::{String, ToString};

use ondisk::bundle::{KEPT_KEY_PATH, KEY_BYTES, KEY_PATH};
use ondisk::manifest::{KEPT_PATH, MAX_BYTES, PATH, RootManifest};

use crate::boot::Boot;
use crate::cmdline;
use crate::failure::Failure;
use crate::kernel::Level;
use crate::watchdog::Watchdog;

/// COMMAND_LINE_SIZE is 2048 on x86; other architectures have up to 4096.
const MAX_COMMAND_LINE_BYTES: usize = 64 * 1024;

/// Reads parameters, and first of all how long a failure is to stay readable.
pub fn read_command_line(boot: &mut Boot<'_>) -> Result<(), Failure> {
    let path = "/proc/cmdline";
    let bytes = boot.kernel.read(path, MAX_COMMAND_LINE_BYTES).map_err(Failure::at("read", path))?;
    let line = String::from_utf8_lossy(&bytes);
    if let Some(seconds) = cmdline::panic_seconds(&line) {
        boot.kernel.set_failure_wait(seconds);
    }
    boot.parameters = cmdline::parse(&line)?;
    boot.watchdog = Watchdog::new(boot.parameters.watchdog_seconds);
    for warning in boot.parameters.warnings.clone() {
        boot.warn(&warning);
    }
    if boot.parameters.keep_module_signatures {
        boot.kernel.keep_module_signatures();
    }
    Ok(())
}

/// Has the kernel end RCU grace periods at once instead of within some ticks: mounts, modules and links wait for
/// them dozens of times during a boot. machined takes it back when the boot is over.
pub fn shorten_grace_periods(boot: &mut Boot<'_>) -> Result<(), Failure> {
    let path = "/sys/kernel/rcu_expedited";
    if let Err(errno) = boot.kernel.write(path, b"1") {
        boot.warn(&Failure::errno("write", path, errno).to_string());
    }
    Ok(())
}

/// Reads which layers make the root. It is covered by the signature of the image this runs from.
pub fn read_root_manifest(boot: &mut Boot<'_>) -> Result<(), Failure> {
    let bytes = boot.kernel.read(PATH, MAX_BYTES).map_err(Failure::at("read root manifest", PATH))?;
    let manifest = RootManifest::parse(&bytes)
        .map_err(|e| Failure::reason("read root manifest", PATH, e.to_string()))?;
    boot.kernel.log(Level::Info, &format!("Billet {}, {} layers", manifest.version, manifest.layers.len()));
    boot.report.version.clone_from(&manifest.version);
    boot.manifest = manifest;
    Ok(())
}

/// Leaves the manifest for machined, which installs and upgrades from what runs: the initramfs is gone by then.
pub fn keep_root_manifest(boot: &mut Boot<'_>) -> Result<(), Failure> {
    let kernel = &mut *boot.kernel;
    let kept = kernel
        .make_directory("/run/billet", 0o755)
        .and_then(|()| kernel.read(PATH, MAX_BYTES))
        .and_then(|bytes| kernel.create(KEPT_PATH, 0o444, &bytes));
    if let Err(errno) = kept {
        boot.warn(&Failure::errno("keep root manifest in", KEPT_PATH, errno).to_string());
    }
    Ok(())
}

/// Leaves the key that configs on the boot medium are signed with for machined, if this image has one: the initramfs,
/// which the UKI's signature covers, is the only place that it is taken from.
pub fn keep_config_key(boot: &mut Boot<'_>) -> Result<(), Failure> {
    let kernel = &mut *boot.kernel;
    if kernel.status(KEY_PATH).is_err() {
        return Ok(());
    }
    let kept = kernel.read(KEY_PATH, KEY_BYTES).and_then(|bytes| kernel.create(KEPT_KEY_PATH, 0o444, &bytes));
    if let Err(errno) = kept {
        boot.warn(&Failure::errno("keep config key in", KEPT_KEY_PATH, errno).to_string());
    }
    Ok(())
}

/// Notes which kernel runs.
pub fn read_kernel_release(boot: &mut Boot<'_>) -> Result<(), Failure> {
    boot.report.kernel_release = boot.kernel.kernel_release();
    Ok(())
}

/// Refuses a kernel that the kernel layer's modules were not built for.
pub fn check_kernel_release(boot: &mut Boot<'_>) -> Result<(), Failure> {
    read_kernel_release(boot)?;
    let running = boot.report.kernel_release.clone();
    let Some(layer) = boot.manifest.kernel() else { return Ok(()) };
    match &layer.kernel_release {
        Some(built) if *built != running => {
            let reason = format!("the kernel is {running}, layer {} holds modules for {built}", layer.name);
            Err(Failure::reason("compare kernel release with", PATH, reason))
        }
        _ => Ok(()),
    }
}
