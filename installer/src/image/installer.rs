//! The installer image of a system: what `upgrade --image` installs.
//!
//! Source: docs/formats/installer-image.md.

use std::io::{BufWriter, Write as _};
use std::path::Path;

use oci::archive;
use oci::installer::{Contents, Facts};

use super::container;
use crate::Error;
use crate::output::Output;
use crate::source::Source;

pub(super) fn write(source: &Source, path: &Path) -> Result<(), Error> {
    written(path, |out| archive::write(out, &contents(source).image()))
}

pub(super) fn write_docker(source: &Source, path: &Path) -> Result<(), Error> {
    let triggers = if source.program.is_some() { container::triggers() } else { Vec::new() };
    let contents = Contents { program: source.program.clone(), ..contents(source) };
    written(path, |out| archive::write_docker(out, &contents.image(), "billet/installer", &triggers))
}

fn written(
    path: &Path,
    write: impl FnOnce(&mut dyn std::io::Write) -> Result<(), oci::Error>,
) -> Result<(), Error> {
    let mut output = Output::create(path)?;
    let mut out = BufWriter::new(&mut output.file);
    write(&mut out)?;
    out.flush().map_err(Error::write(path))?;
    drop(out);
    output.keep(path)
}

fn contents(source: &Source) -> Contents {
    let system = &source.system;
    Contents {
        architecture: system.boot.architecture().name().to_owned(),
        facts: Facts { version: system.manifest.version.clone(), minimum_from: source.minimum_from.clone() },
        manifest: system.manifest.to_json().into_bytes(),
        boot: system.boot.all().map(|(name, bytes)| (name.to_owned(), bytes.to_vec())).collect(),
        layers: system.manifest.layers.iter().map(|layer| source.layers.join(layer.file_name())).collect(),
        program: None,
    }
}
