//! `cargo xtask bench`: what a boot costs, beside two others on the same kernel.

mod guest;
mod klog;
mod measure;
mod peers;
mod schedule;

use anyhow::Result;

use crate::cache::Cache;
use crate::inputs::{Freshness, Inputs};
use crate::kernel::{Debian, Provider as _};
use crate::place;

pub(crate) fn run() -> Result<()> {
    let cache = Cache::open(&place::cache()?)?;
    let mut inputs = Inputs::open(&cache, Freshness::Day)?;
    let kernel = Debian.kernel(&mut inputs)?;
    let folder = place::target().join("bench");
    std::fs::create_dir_all(&folder)?;
    let parts = peers::Parts::collect(&cache, &kernel, &folder)?;
    for guest in [parts.busybox(&mut inputs, "")?, parts.systemd(&mut inputs, "")?] {
        let cost = measure::cost(&guest, &folder, 3)?;
        println!("{cost:#?}");
    }
    Ok(())
}
