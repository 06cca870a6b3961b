//! The kernel layer: the modules of one kernel with their index, and their bill of materials.

use anyhow::Result;
use installer::tree::Tree;

use crate::kernel::{InstalledModules, Kernel};

/// Where the bill of materials lies in the layer. Its own file: the base layer does not know of kernels.
const SBOM: &str = "usr/share/billet/sbom-kernel.spdx.json";

pub(crate) fn assemble(kernel: &Kernel, modules: &InstalledModules, sbom: &str) -> Result<Tree> {
    let mut tree = Tree::new();
    tree.load(&format!("usr/lib/modules/{}", kernel.release), &modules.folder)?;
    tree.bytes(SBOM, 0o644, sbom)?;
    Ok(tree)
}
