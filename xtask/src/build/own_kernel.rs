//! A build with the user's kernel: Debian's layer is made, and gives way.
//!
//! Does not: look at the kernel; `installer::custom` does, as for `billetctl image build --kernel-path`.

use anyhow::Result;
use installer::custom::{self, Profile};
use installer::image::Source;
use installer::kernel::Given;
use installer::layer;
use installer::system::{BootParts, System};
use ondisk::manifest::Layer;

use super::output::Output;
use super::version;
use crate::step::{step, warn};

/// Boot parts and layers with this kernel.
pub(super) fn swap(
    kernel: &Given,
    boot: BootParts,
    layers: [Layer; 2],
    output: &Output,
) -> Result<(BootParts, Vec<Layer>)> {
    let source = Source::new(System { manifest: layer::stack(version(), layers)?, boot }, output.layers());
    let profile = Profile { kernel: Some(kernel.clone()), ..Profile::default() };
    let made = step("put the kernel in", || {
        Ok(custom::customise(&source, &profile, &output.layers(), &mut installer::silent)?)
    })?;
    made.warnings.iter().for_each(|warning| warn(warning));
    Ok((made.system.boot, made.system.manifest.layers))
}
