//! Customising in a container's build: `FROM` our installer image, with the files in a stage called `customization`.
//!
//! Owns: the triggers that the image carries, and what their program does with what they copied.
//! Does not: see what comes behind `FROM`: a kernel that is copied then is taken in by who reads the image.
//! Order: the triggers copy the stage, then run the program; it makes layers and boot parts of it, then the root manifest
//! that names them, and removes the copy. The image has no shell, so the trigger is in the form that needs none.
//! Fails by: [`Error`], which ends the container's build.
//! Source: docs/formats/installer-image.md; Dockerfile reference, ONBUILD.

use std::fs;
use std::io;
use std::path::Path;

use ondisk::manifest::Layer;

/// What a program is for that is put into an image.
pub use ondisk::kmod::{Machine, machine};

use crate::custom::{self, Addition, From, Profile};
use crate::source::Source;
use crate::system::{BootParts, names};
use crate::{Error, Progress, output};

/// Name of the stage, as the guides have it.
const STAGE: &str = "customization";
/// Where the triggers copy the stage to.
const COPY: &str = "rootfs";
/// Directory of the parts.
const PARTS: &str = "billet";
/// Parts that there may be none of any more.
const MAY_BE_GONE: [&str; 4] = [names::KERNEL, names::NETWORK, names::FIRMWARE, names::SIGNED_UKI];
/// The build argument with paths that are removed, parted by blanks.
pub const REMOVE: &str = "RM";

/// What happens when somebody builds on the image.
pub(super) fn triggers() -> Vec<String> {
    vec![
        format!("ARG {REMOVE}"),
        format!("COPY --from={STAGE} / /{COPY}/"),
        format!(r#"RUN ["/{}", "image", "take-in"]"#, oci::installer::PROGRAM_PATH),
    ]
}

/// What was taken in.
#[derive(Debug)]
pub struct TakenIn {
    /// The layers that are new.
    pub layers: Vec<Layer>,
    /// The image had a signed UKI, which is of other parts now and is gone.
    pub lost_signature: bool,
    /// What whoever builds the container should know, a sentence each.
    pub warnings: Vec<String>,
}

/// Takes what was copied below `root` into the parts there, without the paths to remove.
pub fn take_in(
    root: &Path,
    remove: Vec<String>,
    progress: &mut dyn FnMut(Progress),
) -> Result<TakenIn, Error> {
    let (parts, copy) = (root.join(PARTS), root.join(COPY));
    let source = Source::open(&parts, &parts)?;
    let is_there = copy.is_dir();
    let stage = is_there.then(|| Addition { from: From::Stage(copy.clone()), to: String::new() });
    let profile = Profile { additions: stage.into_iter().collect(), remove, ..Profile::default() };
    let made = custom::customise(&source, &profile, &source.layers, progress)?;
    let (old, new) = (&source.system.manifest.layers, &made.system.manifest.layers);
    put_boot_parts(&parts.join("boot"), &made.system.boot)?;
    // Last: it names what is there by now.
    output::write_file(&parts.join("root.json"), &[made.system.manifest.to_json().as_bytes()])?;
    for layer in old.iter().filter(|layer| !named(new, layer)) {
        let path = made.layers.join(layer.file_name());
        fs::remove_file(&path).map_err(Error::write(&path))?;
    }
    if is_there {
        fs::remove_dir_all(&copy).map_err(Error::write(&copy))?;
    }
    let layers = new.iter().filter(|layer| !named(old, layer)).cloned().collect();
    Ok(TakenIn { layers, lost_signature: made.lost_signature, warnings: made.warnings })
}

fn named(layers: &[Layer], layer: &Layer) -> bool {
    layers.iter().any(|other| other.file_name() == layer.file_name())
}

/// Parts that are as they were are not written: they would be in the new image once more.
fn put_boot_parts(directory: &Path, boot: &BootParts) -> Result<(), Error> {
    let others = [
        (names::NETWORK, boot.network.as_slice()),
        (names::FIRMWARE, boot.firmware.as_slice()),
        (names::SIGNED_UKI, boot.signed_uki.as_slice()),
    ];
    for (name, content) in boot.of_kernel().into_iter().chain(boot.of_base()).chain(others) {
        let path = directory.join(name);
        if MAY_BE_GONE.contains(&name) && content.is_empty() {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::write(&path)(error));
                }
                _ => continue,
            }
        }
        if fs::read(&path).ok().as_deref() != Some(content) {
            output::write_file(&path, &[content])?;
        }
    }
    Ok(())
}
