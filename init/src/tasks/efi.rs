//! What the boot loader left in the firmware's variables.
//!
//! Owns: `LoaderDevicePartUUID`, the partition that systemd-boot or the stub was started from.
//! Source: systemd Boot Loader Interface; Documentation/filesystems/efivarfs.rst (four bytes of attributes first).

use alloc::vec::Vec;

use ondisk::gpt::Guid;

use crate::boot::Boot;
use crate::kernel::Options;

const DIRECTORY: &str = "/sys/firmware/efi/efivars";
const VARIABLE: &str = "/sys/firmware/efi/efivars/LoaderDevicePartUUID-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f";
const OPTIONS: Options = Options { read_only: false, no_suid: true, no_dev: true, no_exec: true };

/// `None` on machines without UEFI and with loaders that do not say.
pub(super) fn loader_partition(boot: &mut Boot<'_>) -> Option<Guid> {
    boot.kernel.status(DIRECTORY).ok()?;
    if boot.modules.knows("efivarfs")
        && let Err(failure) = boot.modules.load(boot.kernel, "efivarfs")
    {
        boot.warn(&alloc::format!("{failure}"));
    }
    // A second attempt, or firmware whose variables are off at run time: then the disks must tell.
    let _ = boot.kernel.mount("efivarfs", DIRECTORY, "efivarfs", OPTIONS, "");
    let bytes = boot.kernel.read(VARIABLE, 4096).ok()?;
    parse(&bytes)
}

/// Attributes (u32), then the GUID's text in UTF-16, little endian, with a closing zero.
fn parse(bytes: &[u8]) -> Option<Guid> {
    let units = bytes.get(4..)?.chunks_exact(2).map(|c| u16::from_le_bytes([c[0], c[1]]));
    let text: Vec<u8> = units.take_while(|u| *u != 0).map(|u| u8::try_from(u).unwrap_or(b'?')).collect();
    Guid::parse(core::str::from_utf8(&text).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_is_utf16_behind_attributes() {
        let text = "0FC63DAF-8483-4772-8E79-3D69D8477DE4";
        let mut bytes = vec![6, 0, 0, 0];
        bytes.extend(text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes));
        assert_eq!(parse(&bytes), Guid::parse(text));
        assert!(parse(&bytes).is_some());
        assert_eq!(parse(&bytes[..3]), None);
        assert_eq!(parse(&[0; 8]), None);
    }
}
