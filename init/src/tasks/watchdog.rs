//! The hardware watchdog's part in a boot.

use crate::boot::Boot;
use crate::failure::Failure;

/// Arms it before the root is looked for, where its driver is in the initramfs: what hangs from here on restarts.
pub fn arm_watchdog(boot: &mut Boot<'_>) -> Result<(), Failure> {
    boot.watchdog.arm(boot.kernel);
    Ok(())
}
