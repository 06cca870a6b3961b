//! What a system is handed out as: disk image, ISO, UKI, network boot bundle, installer image.
//!
//! Owns: where the parts of a system come from ([`Source`]), which forms there are, their names, what goes into each.
//! Does not: fetch or compile anything; call other programs; need root, loop devices or a network.
//! Order: [`Source`] → [`Kind::build`].
//! Fails by: [`Error`], naming the part that is missing; no output is left half.
//! Same inputs, same bytes.

pub mod container;

mod boot_files;
mod disk;
mod installer;
mod iso;
mod pxe;
mod source;

use std::path::Path;

pub use boot_files::UKI_PATH;
pub use iso::LABEL as ISO_LABEL;
pub use source::Source;

pub use ondisk::Architecture;

use crate::{Error, Progress, output};

/// Where an image runs, as in `talos.platform=`.
pub const PLATFORM: &str = "metal";

/// A form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A raw disk with both slots, a sparse file.
    Disk,
    /// The same, packed by zstd.
    PackedDisk,
    /// For CD drives and sticks.
    Iso,
    /// Kernel, initramfs and command line in one PE file.
    Uki,
    /// A folder for iPXE.
    Pxe,
    /// What `upgrade --image` installs, as an OCI layout.
    Installer,
    /// The same as `docker save` writes it.
    DockerInstaller,
}

impl Kind {
    /// All forms.
    pub const ALL: [Self; 7] = [
        Self::Disk,
        Self::PackedDisk,
        Self::Iso,
        Self::Uki,
        Self::Pxe,
        Self::Installer,
        Self::DockerInstaller,
    ];

    /// The file or folder that it is written to.
    #[must_use]
    pub fn file_name(self, architecture: Architecture) -> String {
        let architecture = architecture.name();
        match self {
            Self::Disk => format!("{PLATFORM}-{architecture}.raw"),
            Self::PackedDisk => format!("{PLATFORM}-{architecture}.raw.zst"),
            Self::Iso => format!("{PLATFORM}-{architecture}.iso"),
            Self::Uki => format!("{PLATFORM}-{architecture}-uki.efi"),
            Self::Pxe => format!("{PLATFORM}-{architecture}-pxe"),
            Self::Installer => format!("installer-{architecture}.tar"),
            Self::DockerInstaller => format!("installer-{architecture}-docker.tar"),
        }
    }

    /// Writes it. `sector_bytes` is that of the disk, where there is one.
    pub fn build(
        self,
        source: &Source,
        sector_bytes: u32,
        path: &Path,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), Error> {
        match self {
            Self::Disk => disk::write(source, sector_bytes, path, progress),
            Self::PackedDisk => disk::write_packed(source, sector_bytes, path, progress),
            Self::Iso => iso::write(source, path, progress),
            Self::Uki => output::write_file(path, &[&source.uki()?]),
            Self::Pxe => pxe::write(source, path),
            Self::Installer => installer::write(source, path),
            Self::DockerInstaller => installer::write_docker(source, path),
        }
    }
}
