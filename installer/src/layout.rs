//! Partitions that images and installed disks have alike: their sizes and what is said of them.
//!
//! Source: docs/formats/disk.md.

use ondisk::gpt::{Guid, Request, Size, attributes, types};

/// Default size of the EFI system partition.
pub const EFI_BYTES: u64 = 512 << 20;

/// Default size of a root slot.
pub const ROOT_BYTES: u64 = 1 << 30;

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
        // What mounts partitions by their type shall leave these alone.
        attributes: if type_guid == types::LINUX { attributes::NO_AUTO } else { 0 },
        size: Size::Bytes(bytes),
    }
}
