//! A folder for iPXE: kernel, small initramfs, the layers as a second initramfs, and a script that names them.
//!
//! Owns: the script. Its names are relative, so the folder may lie anywhere on a TFTP or HTTP server.
//! Source: docs/formats/pxe.md; ipxe.org on `initrd=` for kernels that start by EFI.

use std::fs;
use std::path::Path;

use super::Source;
use crate::{Error, initramfs, output};

/// Names of the files.
const KERNEL: &str = "vmlinuz";
const INITRAMFS: &str = "initramfs";
const LAYERS: &str = "layers.cpio";
const COMMAND_LINE: &str = "cmdline";
const SCRIPT: &str = "boot.ipxe";

pub(super) fn write(source: &Source, folder: &Path) -> Result<(), Error> {
    fs::create_dir_all(folder).map_err(Error::write(folder))?;
    let boot = &source.system.boot;
    let layers = initramfs::layers_segment(&source.system.manifest, &source.layers)?;
    let script = script(&boot.command_line);
    for (name, content) in [
        (KERNEL, boot.kernel.as_slice()),
        (INITRAMFS, &source.system.initramfs()?),
        (LAYERS, &layers),
        (COMMAND_LINE, boot.command_line.as_bytes()),
        // Last: who finds the script finds the rest.
        (SCRIPT, script.as_bytes()),
    ] {
        output::write_file(&folder.join(name), &[content])?;
    }
    Ok(())
}

/// `billetctl netboot serve` sets the last word to where a machine's config is; without it, it is nothing.
/// Kernels that start by EFI find their initramfs by `initrd=`, others by what iPXE hands over.
fn script(command_line: &str) -> String {
    format!(
        "#!ipxe\n\
         kernel {KERNEL} initrd={INITRAMFS} initrd={LAYERS} {command_line} ${{billet-args}}\n\
         initrd {INITRAMFS}\n\
         initrd {LAYERS}\n\
         boot\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_has_no_address() {
        let script = script("console=ttyS0 panic=10");
        assert!(
            script.starts_with("#!ipxe\nkernel vmlinuz initrd=initramfs initrd=layers.cpio console=ttyS0")
        );
        assert!(script.contains(" panic=10 ${billet-args}\n"));
        assert!(!script.contains("://") && script.ends_with("\nboot\n"));
    }
}
