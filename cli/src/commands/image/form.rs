//! The forms that `image build` makes, under the names that people give them.
//!
//! Owns: the names, who makes each, which options it takes.
//! Does not: know what is in a form; `installer::image` does.

use anyhow::Result;
use clap::ValueEnum;
use installer::image::{Kind, Packed, Packing, Source};
use std::path::{Path, PathBuf};

use super::convert::Converted;

/// A form of image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Form {
    /// Raw disk, a sparse file
    Disk,
    /// Raw disk, packed by zstd
    #[value(name = "disk.zst")]
    PackedDisk,
    /// Raw disk, packed by gzip
    #[value(name = "disk.gz")]
    GzipDisk,
    /// Raw disk as `disk.raw` in a tar file, packed by gzip
    #[value(name = "disk.tar.gz")]
    TarDisk,
    /// For CD drives and sticks, by UEFI
    Iso,
    /// One EFI program: kernel, initramfs, command line
    Uki,
    /// The UKI's kernel alone
    Kernel,
    /// The UKI's initramfs alone
    Initramfs,
    /// The UKI's command line alone
    Cmdline,
    /// Directory for iPXE
    Pxe,
    /// For `billetctl upgrade --image`, as an OCI layout
    Installer,
    /// The same as `docker save` writes it; a Dockerfile may build on it
    Docker,
    /// Disk for QEMU
    Qcow2,
    /// Disk for Hyper-V and Azure
    Vhd,
    /// The same as `disk.vhd` in a tar file, packed by gzip
    #[value(name = "vhd.tar.gz")]
    TarVhd,
    /// Disk for VMware
    Vmdk,
}

/// How a form comes about.
enum Made {
    Here(Kind),
    Converted(Converted),
    Tarred(Converted),
}

impl From<Packing> for Form {
    fn from(packing: Packing) -> Self {
        match packing {
            Packing::Raw => Self::Disk,
            Packing::Zstd => Self::PackedDisk,
            Packing::Gzip => Self::GzipDisk,
            Packing::TarGzip => Self::TarDisk,
            Packing::Qcow2 => Self::Qcow2,
            Packing::VhdTarGzip => Self::TarVhd,
            Packing::Vmdk => Self::Vmdk,
        }
    }
}

impl Form {
    fn made(self) -> Made {
        match self {
            Self::Disk => Made::Here(Kind::Disk),
            Self::PackedDisk => Made::Here(Kind::PackedDisk),
            Self::GzipDisk => Made::Here(Kind::GzipDisk),
            Self::TarDisk => Made::Here(Kind::TarDisk),
            Self::Iso => Made::Here(Kind::Iso),
            Self::Uki => Made::Here(Kind::Uki),
            Self::Kernel => Made::Here(Kind::Kernel),
            Self::Initramfs => Made::Here(Kind::Initramfs),
            Self::Cmdline => Made::Here(Kind::CommandLine),
            Self::Pxe => Made::Here(Kind::Pxe),
            Self::Installer => Made::Here(Kind::Installer),
            Self::Docker => Made::Here(Kind::DockerInstaller),
            Self::Qcow2 => Made::Converted(Converted::Qcow2),
            Self::Vhd => Made::Converted(Converted::Vhd),
            Self::TarVhd => Made::Tarred(Converted::Vhd),
            Self::Vmdk => Made::Converted(Converted::Vmdk),
        }
    }

    pub(super) fn is_disk(self) -> bool {
        match self {
            Self::Disk | Self::PackedDisk | Self::GzipDisk | Self::TarDisk => true,
            Self::Qcow2 | Self::Vhd | Self::TarVhd | Self::Vmdk => true,
            Self::Iso | Self::Uki | Self::Kernel | Self::Initramfs | Self::Cmdline => false,
            Self::Pxe | Self::Installer | Self::Docker => false,
        }
    }

    /// Whether the root is in it, and not what starts it alone.
    pub(super) fn has_layers(self) -> bool {
        self.is_disk() || matches!(self, Self::Iso | Self::Pxe | Self::Installer | Self::Docker)
    }

    /// Whether there is something in it that firmware checks before it starts it.
    pub(super) fn is_signed(self) -> bool {
        self.has_layers() || self == Self::Uki
    }

    /// Why it cannot be for sectors of more than 512 bytes, if it cannot.
    pub(super) fn needs_small_sectors(self) -> Option<&'static str> {
        match self {
            Self::Iso => Some("an ISO (iso) is for CD drives, and for sticks with sectors of 512 bytes"),
            Self::Vhd | Self::TarVhd => Some("disks of Hyper-V in this form (vhd) have sectors of 512 bytes"),
            Self::Vmdk => Some("disks of VMware (vmdk) have sectors of 512 bytes"),
            _ => None,
        }
    }

    /// Writes it to the directory; where it is. In `work` lies what several forms are made of.
    pub(super) fn write(
        self,
        source: &Source,
        sector_bytes: u32,
        directory: &Path,
        work: &Path,
    ) -> Result<PathBuf> {
        let raw = || -> Result<PathBuf> {
            let raw = work.join("disk.raw");
            if !raw.exists() {
                Kind::Disk.build(source, sector_bytes, &raw, &mut installer::silent)?;
            }
            Ok(raw)
        };
        let path = match self.made() {
            Made::Here(kind) => {
                let path = directory.join(kind.file_name(source));
                kind.build(source, sector_bytes, &path, &mut installer::silent)?;
                path
            }
            Made::Converted(converted) => {
                let path = directory.join(format!("{}.{}", source.name(), converted.ending()));
                converted.write(&raw()?, &path)?;
                path
            }
            Made::Tarred(converted) => {
                let path = directory.join(format!("{}.{}.tar.gz", source.name(), converted.ending()));
                let name = format!("disk.{}", converted.ending());
                let disk = work.join(&name);
                converted.write(&raw()?, &disk)?;
                Packed::TarGzip(&name).write(&disk, &path, &mut installer::silent)?;
                path
            }
        };
        Ok(path)
    }
}
