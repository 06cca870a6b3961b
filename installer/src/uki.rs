//! Unified kernel images: stub, command line, initramfs and kernel in one PE file.
//!
//! Owns: the sections and their order.
//! Order: small sections, `.initrd`, `.linux` last: the kernel may take memory behind its own image.
//! Source: the UAPI group's UKI specification; systemd-stub(7).

use ondisk::pe::{Image, NewSection};

use crate::Error;

/// What a UKI is made of.
#[derive(Debug, Clone, Copy)]
pub struct Parts<'a> {
    /// systemd's `linuxx64.efi.stub`.
    pub stub: &'a [u8],
    /// The kernel, with an EFI entry.
    pub kernel: &'a [u8],
    /// The initramfs, all segments.
    pub initramfs: &'a [u8],
    /// The kernel's command line.
    pub cmdline: &'a str,
    /// The text of os-release that a boot menu reads.
    pub os_release: &'a str,
    /// `uname -r` of the kernel.
    pub kernel_release: &'a str,
}

/// The PE file.
pub fn assemble(parts: &Parts<'_>) -> Result<Vec<u8>, Error> {
    let section = |name, content| NewSection { name, content };
    let sections = [
        section(".osrel", parts.os_release.as_bytes()),
        section(".cmdline", parts.cmdline.as_bytes()),
        section(".uname", parts.kernel_release.as_bytes()),
        section(".initrd", parts.initramfs),
        section(".linux", parts.kernel),
    ];
    Ok(Image::parse(parts.stub)?.append(&sections)?)
}
