//! `image build`: images of the system from its parts, without a node.
//!
//! Owns: the forms that may be asked for, their names in the output folder.
//! Does not: know what is in a form; `installer::image` does.

use super::signing::{self, Signing};
use super::{container, convert::Converted, customise, work::Work};
use crate::{args::Global, output::bytes_si};
use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;
use installer::image::{self, Source};
use std::{
    fs,
    path::{Path, PathBuf},
};

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// Installer image (a tar file of OCI or `docker save`) or folder with its parts
    #[arg(long, value_name = "PATH")]
    from: PathBuf,
    /// What is made
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Form::Disk])]
    kind: Vec<Form>,
    /// Bytes of a sector of the disk that a disk image is for: 512 or 4096
    #[arg(long, value_name = "BYTES", default_value_t = 512, value_parser = sector_bytes)]
    sector_size: u32,
    /// The billetctl that `--kind docker` puts in: this program, unless the image is for other machines
    #[arg(long, value_name = "FILE")]
    billetctl: Option<PathBuf>,
    #[command(flatten)]
    signing: Signing,
    #[command(flatten)]
    changes: customise::Changes,
}

/// `image add-layer`.
#[derive(Debug, clap::Args)]
pub(crate) struct AddLayer {
    /// Installer image (a tar file of OCI or `docker save`) or folder with its parts
    image: PathBuf,
    #[command(flatten)]
    changes: customise::Changes,
}

/// A form of image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Form {
    /// Raw disk, a sparse file
    Disk,
    /// Raw disk, packed by zstd
    #[value(name = "disk.zst")]
    PackedDisk,
    /// For CD drives and sticks, by UEFI
    Iso,
    /// One EFI program: kernel, initramfs, command line
    Uki,
    /// Folder for iPXE
    Pxe,
    /// For `billetctl upgrade --image`, as an OCI layout
    Installer,
    /// The same as `docker save` writes it; a Dockerfile may build on it
    Docker,
    /// Disk for QEMU
    Qcow2,
    /// Disk for Hyper-V and Azure
    Vhd,
    /// Disk for VMware
    Vmdk,
}

/// How a form comes about.
enum Made {
    Here(image::Kind),
    Converted(Converted),
}

impl Form {
    fn made(self) -> Made {
        use image::Kind;
        match self {
            Self::Disk => Made::Here(Kind::Disk),
            Self::PackedDisk => Made::Here(Kind::PackedDisk),
            Self::Iso => Made::Here(Kind::Iso),
            Self::Uki => Made::Here(Kind::Uki),
            Self::Pxe => Made::Here(Kind::Pxe),
            Self::Installer => Made::Here(Kind::Installer),
            Self::Docker => Made::Here(Kind::DockerInstaller),
            Self::Qcow2 => Made::Converted(Converted::Qcow2),
            Self::Vhd => Made::Converted(Converted::Vhd),
            Self::Vmdk => Made::Converted(Converted::Vmdk),
        }
    }
}

fn sector_bytes(text: &str) -> Result<u32, String> {
    match text {
        "512" => Ok(512),
        "4096" => Ok(4096),
        _ => Err("sectors have 512 or 4096 bytes".to_owned()),
    }
}

/// An installer image with another layer, at the path behind `--output`.
pub(crate) fn add_layer(flags: &AddLayer, global: &Global) -> Result<()> {
    let path =
        global.output_word.as_deref().context("add --output FILE: the image is not changed in place")?;
    let path = Path::new(path);
    if flags.changes.is_empty() {
        bail!("nothing is changed: name a profile, or files to add or paths to remove");
    }
    let work = Work::new(path.parent().unwrap_or(Path::new("")))?;
    let made = || {
        let source = Source::open(&flags.image, work.path())?;
        let source = flags.changes.apply(source, work.path())?;
        signing::tell_of_lost_signature(&source, &flags.image.display().to_string());
        Ok(image::Kind::Installer.build(&source, 512, path, &mut installer::silent)?)
    };
    made().map_err(|error| work.with_room(error, needed_bytes(&flags.image, 1)))?;
    told(path);
    Ok(())
}

/// What so many forms of an image take, and what is unpacked for them. Additions are small beside that.
fn needed_bytes(from: &Path, forms: usize) -> u64 {
    bytes_below(from) * (forms as u64 + 1)
}

fn bytes_below(path: &Path) -> u64 {
    if !path.is_dir() {
        return fs::metadata(path).map_or(0, |status| status.len());
    }
    let items = fs::read_dir(path).into_iter().flatten().flatten();
    items.filter(|item| !item.path().is_symlink()).map(|item| bytes_below(&item.path())).sum()
}

fn told(path: &Path) {
    let bytes = fs::metadata(path).map_or(0, |status| status.len());
    let size = if path.is_dir() { "a folder".to_owned() } else { bytes_si(bytes) };
    eprintln!("{}: {size}", path.display());
}

pub(crate) fn run(flags: &Flags, global: &Global) -> Result<()> {
    let folder = PathBuf::from(global.output_word.as_deref().unwrap_or("."));
    let work = Work::new(&folder)?;
    let needed_bytes = needed_bytes(&flags.from, flags.kind.len());
    made(flags, &folder, work.path()).map_err(|error| work.with_room(error, needed_bytes))
}

fn made(flags: &Flags, folder: &Path, work: &Path) -> Result<()> {
    let source = Source::open(&flags.from, work)?;
    let mut source = flags.changes.apply(source, work)?;
    let architecture = source.system.boot.architecture();
    if flags.kind.contains(&Form::Docker) {
        source.program = Some(container::program(flags.billetctl.as_deref(), architecture)?);
    } else if flags.billetctl.is_some() {
        bail!("--billetctl is for --kind docker, and no such image is made");
    }
    flags.signing.apply(&mut source, &flags.kind, &flags.from.display().to_string())?;
    let mut forms = flags.kind.clone();
    forms.sort();
    forms.dedup();
    if flags.sector_size != 512 && forms.iter().all(|form| !form.is_disk()) {
        bail!("--sector-size is for disks, and no disk is made");
    }
    for form in forms {
        let path = match form.made() {
            Made::Here(kind) => {
                let path = folder.join(kind.file_name(architecture));
                kind.build(&source, flags.sector_size, &path, &mut installer::silent)?;
                path
            }
            Made::Converted(converted) => {
                let raw = work.join("disk.raw");
                if !raw.exists() {
                    image::Kind::Disk.build(&source, flags.sector_size, &raw, &mut installer::silent)?;
                }
                let path = folder.join(converted.file_name(architecture));
                converted.write(&raw, &path)?;
                path
            }
        };
        told(&path);
    }
    Ok(())
}

impl Form {
    pub(super) fn is_disk(self) -> bool {
        matches!(self, Self::Disk | Self::PackedDisk | Self::Qcow2 | Self::Vhd | Self::Vmdk)
    }
}
