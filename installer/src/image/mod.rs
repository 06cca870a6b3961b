//! What a system is handed out as: disk image, ISO, UKI, network boot bundle, installer image.
//!
//! Owns: opening and signing a [`Source`], which forms there are, their names, what goes into each.
//! Does not: fetch or compile anything; call other programs; need root, loop devices or a network.
//! Order: [`Source`] → [`Kind::build`].
//! Fails by: [`Error`], naming the part that is missing; no output is left half.
//! Same inputs, same bytes.

pub mod container;

mod boot_files;
mod disk;
mod installer;
mod iso;
mod open;
mod packed;
mod pxe;
mod sign;

use std::io;
use std::path::Path;

pub use boot_files::UKI_PATH;
pub use iso::LABEL as ISO_LABEL;
pub use packed::Packed;

pub use ondisk::Architecture;

pub use crate::platform::{Packing, Platform};
pub use crate::source::Source;
use crate::{Error, Progress, output, system};

/// Name of the disk in a tar file: what Google's cloud looks for.
const TAR_NAME: &str = "disk.raw";

/// Removes a file or directory that a build has not finished, by its temporary name. Directories that are none of ours, which were
/// beside the one before, stay, and so does what they lie in.
///
/// # Errors
/// What cannot be removed, or stays.
pub fn remove_unfinished(path: &Path) -> io::Result<()> {
    output::remove(path, &pxe::OURS)
}

/// A form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A raw disk with both slots, a sparse file.
    Disk,
    /// The same, packed by zstd.
    PackedDisk,
    /// The same, packed by gzip.
    GzipDisk,
    /// The same, `disk.raw` in a tar file that is packed by gzip.
    TarDisk,
    /// For CD drives and sticks.
    Iso,
    /// Kernel, initramfs and command line in one PE file.
    Uki,
    /// The UKI's kernel.
    Kernel,
    /// The UKI's initramfs.
    Initramfs,
    /// The UKI's command line.
    CommandLine,
    /// A directory for iPXE.
    Pxe,
    /// What `upgrade --image` installs, as an OCI layout.
    Installer,
    /// The same as `docker save` writes it.
    DockerInstaller,
}

impl Kind {
    /// All forms.
    pub const ALL: [Self; 12] = [
        Self::Disk,
        Self::PackedDisk,
        Self::GzipDisk,
        Self::TarDisk,
        Self::Iso,
        Self::Uki,
        Self::Kernel,
        Self::Initramfs,
        Self::CommandLine,
        Self::Pxe,
        Self::Installer,
        Self::DockerInstaller,
    ];

    /// The file or directory that it is written to.
    #[must_use]
    pub fn file_name(self, source: &Source) -> String {
        let (name, architecture) = (source.name(), source.system.boot.architecture().name());
        match self {
            Self::Disk => format!("{name}.raw"),
            Self::PackedDisk => format!("{name}.raw.zst"),
            Self::GzipDisk => format!("{name}.raw.gz"),
            Self::TarDisk => format!("{name}.tar.gz"),
            Self::Iso => format!("{name}.iso"),
            Self::Uki => format!("{name}-uki.efi"),
            Self::Kernel => format!("kernel-{architecture}"),
            Self::Initramfs => format!("initramfs-{name}"),
            Self::CommandLine => format!("cmdline-{name}"),
            Self::Pxe => format!("{name}-pxe"),
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
        system::check_image_line(&source.system.boot.command_line)?;
        let mut packed = |packed| disk::write_packed(source, packed, sector_bytes, path, &mut *progress);
        match self {
            Self::Disk => disk::write(source, sector_bytes, path, progress),
            Self::PackedDisk => packed(Packed::Zstd),
            Self::GzipDisk => packed(Packed::Gzip),
            Self::TarDisk => packed(Packed::TarGzip(TAR_NAME)),
            Self::Iso => iso::write(source, path, progress),
            Self::Uki => output::write_file(path, &[&source.uki()?]),
            Self::Kernel => {
                source.system.check_kernel()?;
                output::write_file(path, &[&source.system.boot.kernel])
            }
            Self::Initramfs => output::write_file(path, &[&source.system.initramfs()?]),
            Self::CommandLine => output::write_file(path, &[source.system.boot.command_line.as_bytes()]),
            Self::Pxe => pxe::write(source, path),
            Self::Installer => installer::write(source, path),
            Self::DockerInstaller => installer::write_docker(source, path),
        }
    }
}
