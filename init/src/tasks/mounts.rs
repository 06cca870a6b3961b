//! Pseudo file systems.
//!
//! Owns: the four that init needs and hands to the new root.
//! Source: the options of Talos' mounts; mount(8).

use crate::boot::Boot;
use crate::failure::Failure;
use crate::kernel::Options;

const DEVICES: Options = Options { read_only: false, no_suid: true, no_dev: false, no_exec: false };
const STRICT: Options = Options { read_only: false, no_suid: true, no_dev: true, no_exec: true };
/// Programs run from /run: container runtimes keep their sockets and bundles there.
const RUN: Options = Options { read_only: false, no_suid: true, no_dev: true, no_exec: false };

/// Device nodes, which the kernel makes itself.
pub fn mount_devices(boot: &mut Boot<'_>) -> Result<(), Failure> {
    pseudo(boot, "devtmpfs", "/dev", DEVICES, "mode=0755")
}

/// Processes.
pub fn mount_processes(boot: &mut Boot<'_>) -> Result<(), Failure> {
    pseudo(boot, "proc", "/proc", STRICT, "")
}

/// Devices and drivers.
pub fn mount_system(boot: &mut Boot<'_>) -> Result<(), Failure> {
    pseudo(boot, "sysfs", "/sys", STRICT, "")
}

/// Run-time state, gone at the next boot.
pub fn mount_run(boot: &mut Boot<'_>) -> Result<(), Failure> {
    pseudo(boot, "tmpfs", "/run", RUN, "mode=0755")
}

fn pseudo(
    boot: &mut Boot<'_>,
    kind: &str,
    target: &str,
    options: Options,
    data: &str,
) -> Result<(), Failure> {
    boot.kernel.make_directory(target, 0o755).map_err(Failure::at("make directory", target))?;
    match boot.kernel.mount(kind, target, kind, options, data) {
        // A kernel with CONFIG_DEVTMPFS_MOUNT does that itself on some paths.
        Err(sys::Errno::BUSY) if kind == "devtmpfs" => Ok(()),
        other => other.map_err(Failure::at("mount", target)),
    }
}
