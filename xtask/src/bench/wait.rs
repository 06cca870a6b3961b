//! How benches of clusters wait.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

const LOOK: Duration = Duration::from_millis(50);
/// Far beyond what is hoped for: a machine that has much else to do.
pub(super) const LIMIT: Duration = Duration::from_secs(600);

/// Looks again and again.
pub(super) fn until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + LIMIT;
    while !holds()? {
        if Instant::now() > end {
            bail!("not within {} s: {what}", LIMIT.as_secs());
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}
