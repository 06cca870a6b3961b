//! A directory for iPXE: kernel, tiny initramfs, layers as files, and a script that names them; and the stub of which
//! `billetctl netboot serve` makes a UKI for firmware that loads no iPXE.
//!
//! Owns: the script. Its names are relative, so the directory may lie anywhere on an HTTP server: the layers' address is
//! made when it runs, from where it came from.
//! Order: the directory is made anew and takes the place of the one before at once. That one's layers, with a config in one
//! perhaps, shall not be served on; iPXE, which somebody put there, shall.
//! Source: docs/formats/pxe.md; ipxe.org on `initrd=` for kernels that start by EFI, and on the setting `cwduri`.

use std::fs;
use std::path::Path;

use crate::Error;
use crate::output::{self, Directory};
use crate::source::Source;
use crate::system::check_room;

/// Names of the files.
const KERNEL: &str = "vmlinuz";
const INITRAMFS: &str = "initramfs";
const LAYERS: &str = "layers";
const COMMAND_LINE: &str = "cmdline";
const STUB: &str = "stub.efi";
const SCRIPT: &str = "boot.ipxe";
pub(super) const OURS: [&str; 6] = [KERNEL, INITRAMFS, LAYERS, COMMAND_LINE, STUB, SCRIPT];

/// What the script adds to the image's line, with the kernel's name, which iPXE puts before it on UEFI: 181 bytes with
/// `netboot serve` at the longest IPv4 address and port. The rest is for names and mirrors. The config's address stands
/// last, and nobody hears of a part that the kernel cuts off; `netboot serve` counts what it adds.
const ADDED_BYTES: usize = 256;

pub(super) fn write(source: &Source, directory: &Path) -> Result<(), Error> {
    source.system.check_kernel()?;
    let boot = &source.system.boot;
    let command_line = without_volume(&boot.command_line);
    check_room(&command_line, ADDED_BYTES)?;
    let initramfs = source.system.network_initramfs()?.ok_or(Error::NoNetworkDrivers)?;
    let output = Directory::create(directory)?;
    let layers = output.path().join(LAYERS);
    fs::create_dir_all(&layers).map_err(Error::write(&layers))?;
    for layer in &source.system.manifest.layers {
        let to = layers.join(layer.file_name());
        fs::copy(source.layers.join(layer.file_name()), &to).map_err(Error::write(&to))?;
    }
    let script = script(&command_line);
    for (name, content) in [
        (KERNEL, boot.kernel.as_slice()),
        (INITRAMFS, &initramfs),
        (COMMAND_LINE, boot.command_line.as_bytes()),
        (STUB, &boot.stub),
        (SCRIPT, script.as_bytes()),
    ] {
        output::write_file(&output.path().join(name), &[content])?;
    }
    output.keep(&OURS)
}

/// `billet-root` may be set before: to mirrors, or where iPXE is too old to know `cwduri`. `billetctl netboot serve` sets
/// it and the last word, where a machine's config is; without them that is nothing.
/// Kernels that start by EFI find their initramfs by `initrd=`, others by what iPXE hands over.
fn script(command_line: &str) -> String {
    format!(
        "#!ipxe\n\
         isset ${{billet-root}} || set billet-root ${{cwduri}}{LAYERS}\n\
         kernel {KERNEL} initrd={INITRAMFS} {command_line} billet.root=${{billet-root}} \
         BOOTIF=01-${{mac:hexhyp}} ${{billet-args}}\n\
         initrd {INITRAMFS}\n\
         boot\n"
    )
}

/// Nobody looks for a volume with a config: a machine without one waits for it in maintenance mode.
fn without_volume(command_line: &str) -> String {
    let is_volume = |word: &&str| matches!(*word, "billet.config=metal-iso" | "talos.config=metal-iso");
    command_line.split(' ').filter(|word| !is_volume(word)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_has_no_address() {
        let script = script(&without_volume("console=ttyS0 billet.config=metal-iso panic=10"));
        assert!(script.starts_with("#!ipxe\nisset ${billet-root} || set billet-root ${cwduri}layers\n"));
        assert!(script.contains("\nkernel vmlinuz initrd=initramfs console=ttyS0 panic=10 billet.root="));
        assert!(script.contains(" ${billet-args}\n"));
        assert!(!script.contains("://") && script.ends_with("\nboot\n"));
    }

    /// As `netboot serve` fills it in at the longest address.
    #[test]
    fn what_the_script_adds_has_room() {
        let script = script("x");
        let line = script.lines().find_map(|line| line.strip_prefix("kernel ")).unwrap();
        let server = "255.255.255.255:65535";
        let line = line
            .replace("${billet-root}", &format!("https://{server}/bundle/layers"))
            .replace("${mac:hexhyp}", "52-54-00-12-34-56")
            .replace(
                "${billet-args}",
                &format!("billet.config=http://{server}/config?mac=52-54-00-12-34-56"),
            );
        assert!(!line.contains("${"), "{line}");
        assert_eq!(line.len() - 1, 181, "{line}");
        assert!(line.len() - 1 <= ADDED_BYTES);
    }
}
