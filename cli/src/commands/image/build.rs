//! `image build`: images of the system from its parts, without a node.
//!
//! Owns: the order of what is done, which options go together.
//! Fails by: naming the options that do not.

use super::form::Form;
use super::signing::{self, Signing};
use super::{container, customise, work::Work};
use crate::{global::Global, output::bytes_si};
use anyhow::{Context as _, Result, bail};
use installer::image::{self, Source};
use std::{
    fs,
    path::{Path, PathBuf},
};

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// Installer image (a tar file of OCI or `docker save`) or directory with its parts
    #[arg(long, value_name = "PATH")]
    from: PathBuf,
    /// What is made; without it the disk in the form that the platform takes
    #[arg(long, value_enum, value_delimiter = ',')]
    kind: Vec<Form>,
    /// Bytes of a sector of the disk that a disk image is for: 512 or 4096
    #[arg(long, value_name = "BYTES", default_value_t = 512, value_parser = sector_bytes)]
    sector_size: u32,
    /// The billetctl that `--kind docker` puts in: this program, unless the image is for other machines
    #[arg(long, value_name = "FILE")]
    billetctl: Option<PathBuf>,
    /// Put an addon on disk and ISO, whose kernel arguments come behind those of the UKI
    #[arg(long, value_name = "FILE", value_delimiter = ',')]
    addon: Vec<PathBuf>,
    #[command(flatten)]
    signing: Signing,
    #[command(flatten)]
    changes: customise::Changes,
}

/// `image add-layer`.
#[derive(Debug, clap::Args)]
pub(crate) struct AddLayer {
    /// Installer image (a tar file of OCI or `docker save`) or directory with its parts
    image: PathBuf,
    #[command(flatten)]
    changes: customise::Changes,
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
    let size = if path.is_dir() { "a directory".to_owned() } else { bytes_si(bytes) };
    eprintln!("{}: {size}", path.display());
}

pub(crate) fn run(flags: &Flags, global: &Global) -> Result<()> {
    let directory = PathBuf::from(global.output_word.as_deref().unwrap_or("."));
    let work = Work::new(&directory)?;
    let needed_bytes = needed_bytes(&flags.from, flags.kind.len().max(1));
    made(flags, &directory, work.path()).map_err(|error| work.with_room(error, needed_bytes))
}

fn made(flags: &Flags, directory: &Path, work: &Path) -> Result<()> {
    let source = Source::open(&flags.from, work)?;
    let before = source.system.manifest.layers.clone();
    let mut source = flags.changes.apply(source, work)?;
    let forms = flags.forms(&source)?;
    if forms.contains(&Form::Docker) {
        let architecture = source.system.boot.architecture();
        source.program = Some(container::program(flags.billetctl.as_deref(), architecture)?);
    }
    source.addons = signing::addons(&flags.addon, &forms)?;
    flags.signing.apply(&mut source, &forms, &flags.from.display().to_string(), work)?;
    if before != source.system.manifest.layers && !forms.iter().any(|form| form.has_layers()) {
        eprintln!(
            "what was changed lies in layers too, and nothing that is made has layers: make disk, iso, pxe or installer \
             with the same options"
        );
    }
    for form in forms {
        told(&form.write(&source, flags.sector_size, directory, work)?);
    }
    Ok(())
}

impl Flags {
    /// What is made of it, each once.
    fn forms(&self, source: &Source) -> Result<Vec<Form>> {
        let mut forms = self.kind.clone();
        if forms.is_empty() {
            forms.push(source.platform().packing.into());
        }
        forms.sort();
        forms.dedup();
        if self.billetctl.is_some() && !forms.contains(&Form::Docker) {
            bail!("--billetctl is for --kind docker, and no such image is made");
        }
        if self.sector_size != 512 && !forms.iter().any(|form| form.is_disk()) {
            bail!("--sector-size is for disks, and no disk is made");
        }
        let small = forms.iter().find_map(|form| form.needs_small_sectors());
        if let Some(reason) = small.filter(|_| self.sector_size != 512) {
            bail!("--sector-size {}: {reason}: make it without", self.sector_size);
        }
        Ok(forms)
    }
}
