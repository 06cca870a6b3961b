//! A raw disk: boot loader, UKI, layers in the first slot.

use std::fs;
use std::path::{Path, PathBuf};

use super::boot_files::BootFiles;
use super::packed::Packed;
use crate::output::UNFINISHED;
use crate::source::Source;
use crate::{Error, Progress, disk};

pub(super) fn write(
    source: &Source,
    sector_bytes: u32,
    path: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    let esp = BootFiles::new(source)?;
    let files = esp.with_loader();
    let spec =
        disk::Spec { sector_bytes, ..disk::Spec::new(&source.system.manifest, &source.layers, &files) };
    disk::write(path, &spec, progress)?;
    Ok(())
}

/// Packs the raw disk, which lies beside the result meanwhile.
pub(super) fn write_packed(
    source: &Source,
    packed: Packed<'_>,
    sector_bytes: u32,
    path: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    let mut raw = path.as_os_str().to_owned();
    raw.push(format!(".{}{UNFINISHED}", std::process::id()));
    let raw = PathBuf::from(raw);
    let written =
        write(source, sector_bytes, &raw, progress).and_then(|()| packed.write(&raw, path, progress));
    // What counts is the packed one, or why there is none.
    let _ = fs::remove_file(&raw);
    written
}
