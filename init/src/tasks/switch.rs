//! From the initramfs into the root.

use alloc::format;

use super::mapping::NEW_ROOT;
use crate::boot::Boot;
use crate::failure::Failure;
use crate::kernel::Level;

/// Takes the pseudo file systems along.
pub fn move_mounts(boot: &mut Boot<'_>) -> Result<(), Failure> {
    for mount in ["/dev", "/proc", "/sys", "/run"] {
        let target = format!("{NEW_ROOT}{mount}");
        boot.kernel.move_mount(mount, &target).map_err(Failure::at("move mount to", &target))?;
    }
    Ok(())
}

/// Makes the stacked layers the root of this process and of all that it starts.
pub fn switch_root(boot: &mut Boot<'_>) -> Result<(), Failure> {
    boot.kernel.switch_root(NEW_ROOT).map_err(Failure::at("switch root to", NEW_ROOT))
}

/// Gives the initramfs's memory back. Layers in it stay as long as their loop devices hold them.
pub fn free_initramfs(boot: &mut Boot<'_>) -> Result<(), Failure> {
    match boot.kernel.free_initramfs() {
        Ok(count) => boot.kernel.log(Level::Info, &format!("initramfs freed, {count} entries")),
        Err(errno) => boot.warn(&format!("{}", Failure::errno("free", "initramfs", errno))),
    }
    Ok(())
}
