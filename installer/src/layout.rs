//! Partitions that images and installed disks have alike: their sizes and what is said of them.
//!
//! Source: docs/formats/disk.md.

use ondisk::gpt::{Guid, Request, Size, attributes, types};

/// Default size of the EFI system partition.
pub const EFI_BYTES: u64 = 512 << 20;

/// Default size of a root slot.
pub const ROOT_BYTES: u64 = 1 << 30;

/// Size of the BIOS boot partition, which only disks for machines without UEFI have.
pub const BIOS_BYTES: u64 = 1 << 20;

/// Size of META.
pub const META_BYTES: u64 = 1 << 20;

/// Size of STATE, which the first boot makes behind META: xfs needs 300 MiB, a LUKS2 header 16.
pub const STATE_BYTES: u64 = 336 << 20;

/// A partition whose GUID is made from a seed.
pub(crate) fn partition(seed: &[u8; 32], name: &str, type_guid: Guid, bytes: u64) -> Request {
    Request {
        name: name.into(),
        type_guid,
        guid: Guid::from_seed(&[seed, name.as_bytes()].concat()),
        attributes: match type_guid {
            // What mounts partitions by their type shall leave these alone.
            types::LINUX => attributes::NO_AUTO,
            types::BIOS_BOOT => attributes::LEGACY_BOOTABLE,
            _ => 0,
        },
        size: Size::Bytes(bytes),
    }
}
