//! Finding the layers.
//!
//! Owns: the choice of a transport. A parameter may choose one, never other bytes: the manifest says which layers.
//! Order: parameter (a root from the network was fetched before); else files in the initramfs; else a disk slot that holds exactly these layers; else a medium
//! labelled `BILLET`.

use alloc::format;
use alloc::string::{String, ToString};

use ondisk::manifest::{LAYER_DIR, Layer};

use super::{disk, medium};
use crate::boot::Boot;
use crate::cmdline::Transport;
use crate::events;
use crate::failure::Failure;
use crate::kernel::Level;
use crate::source::Source;

/// Label of a boot medium when the command line names none.
const LABEL: &str = "BILLET";

/// Takes the layers from the initramfs if they are there and nothing else was asked for.
pub fn look_in_initramfs(boot: &mut Boot<'_>) -> Result<(), Failure> {
    let asked = match &boot.parameters.transport {
        Some(Transport::Initramfs) => true,
        None => false,
        Some(_) => return Ok(()),
    };
    let Some(first) = boot.manifest.layers.first() else { return Ok(()) };
    let path = format!("{LAYER_DIR}/{}", first.file_name());
    match boot.kernel.status(&path) {
        Ok(_) => {
            boot.source =
                Some(Source::Files { directory: LAYER_DIR.to_string(), described: "initramfs".to_string() });
            Ok(())
        }
        Err(errno) if asked => Err(Failure::errno("find layer file", &path, errno)),
        Err(_) => Ok(()),
    }
}

/// Waits for a disk or medium with the layers.
pub fn find_layers(boot: &mut Boot<'_>) -> Result<(), Failure> {
    let source = match (boot.source.take(), boot.parameters.transport.clone()) {
        (Some(source), _) => source,
        (None, Some(Transport::Disk)) => disk::find(boot)?,
        (None, Some(Transport::Label(label))) => medium::find(boot, &label)?,
        (None, _) => find_anywhere(boot)?,
    };
    boot.report.root_source = source.describe();
    boot.kernel.log(Level::Info, &format!("root from {}", source.describe()));
    boot.source = Some(source);
    Ok(())
}

/// Nothing was asked for: whichever of disk and medium shows up, the disk first if both are there.
fn find_anywhere(boot: &mut Boot<'_>) -> Result<Source, Failure> {
    let what = format!("a disk slot or a medium labelled {LABEL} with the layers of the manifest");
    let (mut disks, mut media) = (disk::Search::new(boot), medium::Search::new(LABEL));
    let found = events::wait_for(boot, &what, |boot| {
        if let Some(found) = disks.look(boot)? {
            return Ok(Some(Found::Slot(found)));
        }
        Ok(media.look(boot)?.map(Found::Medium))
    });
    let seen = || [disks.refused(), media.refused()].concat();
    match found.map_err(|failure| failure.explained(&seen()))? {
        Found::Slot(slot) => disks.settle(boot, slot),
        Found::Medium(source) => Ok(source),
    }
}

enum Found {
    Slot(disk::Candidate),
    Medium(Source),
}

/// Refuses a place that is too small for what the manifest says, before anything is mapped or mounted.
pub fn check_layer_sizes(boot: &mut Boot<'_>) -> Result<(), Failure> {
    let Some(source) = boot.source.clone() else { return Ok(()) };
    for layer in boot.manifest.layers.clone() {
        let needed = layer.total_bytes();
        let (object, actual) = match &source {
            Source::Files { directory, .. } => file_size(boot, directory, &layer)?,
            Source::Slot { device, size_bytes, .. } => {
                (device.clone(), size_bytes.saturating_sub(layer.offset))
            }
        };
        if actual < needed {
            let reason = format!("is truncated: {actual} of {needed} bytes in {object}");
            return Err(Failure::reason("check layer", &layer.name, reason));
        }
    }
    Ok(())
}

fn file_size(boot: &mut Boot<'_>, directory: &str, layer: &Layer) -> Result<(String, u64), Failure> {
    let path = format!("{directory}/{}", layer.file_name());
    let status = boot.kernel.status(&path).map_err(Failure::at("find layer file", &path))?;
    Ok((path, status.size_bytes))
}
