//! The kernel layer: the modules of one kernel with their index, what boots that kernel, and their bill of materials.

use anyhow::Result;
use installer::grub;
use installer::system::{self, BootParts};
use installer::tree::Tree;

use crate::kernel::{InstalledModules, Kernel};

/// Where the bill of materials lies in the layer. Its own file: the base layer does not know of kernels.
const SBOM: &str = "usr/share/billet/sbom-kernel.spdx.json";

pub(crate) fn assemble(
    kernel: &Kernel,
    modules: &InstalledModules,
    sbom: &str,
    boot: &BootParts,
    grub: Option<&grub::Parts>,
) -> Result<Tree> {
    let mut tree = Tree::new();
    tree.load(&format!("usr/lib/modules/{}", kernel.release), &modules.directory)?;
    tree.bytes(SBOM, 0o644, sbom)?;
    for (name, content) in
        boot.of_kernel().into_iter().chain(grub.into_iter().flat_map(grub::Parts::of_kernel))
    {
        tree.bytes(&format!("{}/{name}", system::DIRECTORY), 0o644, content)?;
    }
    Ok(tree)
}
