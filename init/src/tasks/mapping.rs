//! Verified layers.
//!
//! Owns: a dm-verity device over each layer, their squashfs mounts, and the stack that is the new root.
//! Order: slice (loop device over a file, dm-linear in a slot) → verity → squashfs → overlay, lowest layer first.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use handoff::LayerReport;
use ondisk::manifest::Layer;
use sys::Errno;

use crate::boot::Boot;
use crate::failure::Failure;
use crate::kernel::{Kernel, Options, Target};
use crate::source::Source;

/// Where the new root is put together.
pub(super) const NEW_ROOT: &str = "/sysroot";

/// Prefix of our mappings' names; the final unmounting leaves these alone, since the root stays mounted.
pub const MAPPING_PREFIX: &str = "billet-";

/// Single layers wait here to be stacked.
const LAYERS: &str = "/run/billet/layers";

const SECTOR_BYTES: u64 = 512;

/// Programs run from it and device nodes are not in it; set-uid is the images' choice.
const ROOT: Options = Options { read_only: true, no_suid: false, no_dev: true, no_exec: false };

/// Makes a verity device over each layer.
pub fn map_layers(boot: &mut Boot<'_>) -> Result<(), Failure> {
    let Some(source) = boot.source.clone() else { return Ok(()) };
    for layer in boot.manifest.layers.clone() {
        let slice = slice_of(boot, &source, &layer)?;
        let name = format!("{MAPPING_PREFIX}{}", layer.name);
        let table = layer.table(&slice);
        let target = Target {
            start_sectors: 0,
            length_sectors: table.sectors(),
            kind: "verity",
            parameters: table.params(),
        };
        let uuid = format!("CRYPT-VERITY-{}-{name}", short(&layer));
        let minor = boot
            .kernel
            .map(&name, &uuid, &[target])
            .map_err(|errno| verity_failure(boot.kernel, &layer, &slice, errno))?;
        boot.report.layers.push(LayerReport {
            name: layer.name.clone(),
            version: layer.version.clone(),
            root_hash: layer.root_hash.to_string(),
            device: format!("/dev/dm-{minor}"),
        });
    }
    Ok(())
}

/// The kernel says no more than `EINVAL` of a target that it does not know.
fn verity_failure(kernel: &mut dyn Kernel, layer: &Layer, slice: &str, errno: Errno) -> Failure {
    let object = format!("of layer {} on {slice}", layer.name);
    if kernel.status("/sys/module/dm_verity").is_err() {
        let reason = "the kernel has no target `verity`; put dm-verity.ko into the initramfs";
        return Failure::reason("map verity device", &object, reason);
    }
    Failure::errno("map verity device", &object, errno)
}

/// A device that holds one layer and nothing else.
fn slice_of(boot: &mut Boot<'_>, source: &Source, layer: &Layer) -> Result<String, Failure> {
    match source {
        Source::Files { directory, .. } => {
            let path = format!("{directory}/{}", layer.file_name());
            let number = boot
                .kernel
                .attach_loop(&path, 0, layer.total_bytes())
                .map_err(Failure::at("attach loop device to", &path))?;
            Ok(format!("/dev/loop{number}"))
        }
        Source::Slot { device, .. } => {
            // No layer's name has a dot.
            let name = format!("{MAPPING_PREFIX}{}.slice", layer.name);
            let uuid = format!("BILLET-SLICE-{}-{}", short(layer), layer.name);
            let target = Target {
                start_sectors: 0,
                length_sectors: layer.total_bytes() / SECTOR_BYTES,
                kind: "linear",
                parameters: format!("{device} {}", layer.offset / SECTOR_BYTES),
            };
            let minor = boot
                .kernel
                .map(&name, &uuid, &[target])
                .map_err(Failure::at("map slice", &format!("of layer {} on {device}", layer.name)))?;
            Ok(format!("/dev/dm-{minor}"))
        }
    }
}

/// As much of the root hash as tells people which layer it is. The kernel takes UUIDs of 128 bytes and each but once;
/// a name may be 64 bytes long, and is what two layers of the same content differ by.
fn short(layer: &Layer) -> String {
    layer.root_hash.to_string().chars().take(32).collect()
}

/// Mounts the layers: a single one as the root, several below /run to be stacked.
pub fn mount_layers(boot: &mut Boot<'_>) -> Result<(), Failure> {
    boot.kernel.make_directory(NEW_ROOT, 0o755).map_err(Failure::at("make directory", NEW_ROOT))?;
    let layers = boot.report.layers.clone();
    if let [only] = layers.as_slice() {
        return mount_layer(boot, only, NEW_ROOT);
    }
    for directory in ["/run/billet", LAYERS] {
        boot.kernel.make_directory(directory, 0o755).map_err(Failure::at("make directory", directory))?;
    }
    for (index, layer) in layers.iter().enumerate() {
        let target = layer_directory(index);
        boot.kernel.make_directory(&target, 0o755).map_err(Failure::at("make directory", &target))?;
        mount_layer(boot, layer, &target)?;
    }
    Ok(())
}

fn layer_directory(index: usize) -> String {
    format!("{LAYERS}/{index}")
}

fn mount_layer(boot: &mut Boot<'_>, layer: &LayerReport, target: &str) -> Result<(), Failure> {
    let object = format!("layer {} from {} on {target}", layer.name, layer.device);
    boot.kernel.mount(&layer.device, target, "squashfs", ROOT, "").map_err(Failure::at("mount", &object))
}

/// Stacks several layers with a read-only overlay; its hold on them outlives their own mounts, which are undone.
pub fn stack_layers(boot: &mut Boot<'_>) -> Result<(), Failure> {
    let count = boot.report.layers.len();
    if count < 2 {
        return Ok(());
    }
    // Overlayfs wants the topmost first.
    let directories: Vec<String> = (0..count).rev().map(layer_directory).collect();
    let data = format!("lowerdir={}", directories.join(":"));
    boot.kernel
        .mount("overlay", NEW_ROOT, "overlay", ROOT, &data)
        .map_err(Failure::at("mount overlay of", &data))?;
    for directory in &directories {
        boot.kernel.unmount(directory, true).map_err(Failure::at("unmount", directory))?;
    }
    Ok(())
}
