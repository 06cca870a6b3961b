//! A raw disk: boot loader, UKI, layers in the first slot.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};

use rustix::fs::SeekFrom as Place;

use super::Source;
use super::boot_files::BootFiles;
use crate::output::Output;
use crate::{Error, Progress, disk};

/// zstd level: layers are packed already, the rest is kernel, initramfs and zeros.
const ZSTD_LEVEL: i32 = 3;

/// How much is packed at once.
const CHUNK_BYTES: usize = 1 << 20;

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
    sector_bytes: u32,
    path: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    let mut raw = path.as_os_str().to_owned();
    raw.push(".unpacked");
    let raw = PathBuf::from(raw);
    let written = write(source, sector_bytes, &raw, progress).and_then(|()| {
        let mut file = File::open(&raw).map_err(Error::read(&raw))?;
        let mut output = Output::create(path)?;
        pack(&mut file, &mut output.file, progress).map_err(Error::write(path))?;
        output.keep(path)
    });
    // What counts is the packed one, or why there is none.
    let _ = fs::remove_file(&raw);
    written
}

/// One frame that says how long its content is; holes are not read.
fn pack(raw: &mut File, out: &mut File, progress: &mut dyn FnMut(Progress)) -> io::Result<()> {
    let total_bytes = raw.metadata()?.len();
    let mut packer = zstd::Encoder::new(out, ZSTD_LEVEL)?;
    packer.set_pledged_src_size(Some(total_bytes))?;
    packer.include_checksum(true)?;
    let (zeros, mut chunk) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
    let mut at = 0;
    while at < total_bytes {
        let data = match rustix::fs::seek(&*raw, Place::Data(at)) {
            Ok(data) => data.min(total_bytes),
            Err(sys::Errno::NXIO) => total_bytes,
            Err(_) => at,
        };
        let end =
            if data > at { data } else { rustix::fs::seek(&*raw, Place::Hole(at)).unwrap_or(total_bytes) };
        raw.seek(SeekFrom::Start(at))?;
        while at < end {
            let length = usize::try_from(end - at).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
            let (zeros, chunk) = (zeros.get(..length), chunk.get_mut(..length));
            match chunk {
                Some(chunk) if data == at || data < end => {
                    raw.read_exact(chunk)?;
                    packer.write_all(chunk)?;
                }
                _ => packer.write_all(zeros.unwrap_or(&[]))?,
            }
            at += length as u64;
            progress(Progress { step: "pack", done_bytes: at, total_bytes });
        }
    }
    packer.finish()?;
    Ok(())
}
