//! Where the layers of a root are.
//!
//! Owns: the transports that carry the same bytes, and how each is put for a person.
//! Does not: trust any of them; dm-verity checks every block against the manifest.

use alloc::format;
use alloc::string::String;

/// The place the layers were found at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Files, one a layer, in a directory.
    Files {
        /// `/billet/layers`, or that below the mount point of a medium, or where fetched ones lie.
        directory: String,
        /// For people: `initramfs`, `/dev/sr0 (label BILLET)`, `http://10.0.0.1/layers/`.
        described: String,
    },
    /// A partition that holds the layers at their offsets.
    Slot {
        /// `/dev/vda2`
        device: String,
        /// `ROOT-A`
        partition: &'static str,
        /// Size of the partition.
        size_bytes: u64,
        /// The disk: `vda`.
        disk: String,
        /// META of the same disk.
        meta: Option<String>,
    },
}

impl Source {
    /// For the boot report and the log.
    pub fn describe(&self) -> String {
        match self {
            Self::Files { described, .. } => described.clone(),
            Self::Slot { device, partition, .. } => format!("{device} ({partition})"),
        }
    }
}
