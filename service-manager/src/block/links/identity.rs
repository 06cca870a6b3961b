//! Names that a disk has from its maker.
//!
//! Source: systemd's ata_id, scsi_id and usb_id.

use super::super::device::{Device, text};
use super::super::product_data::{self, Kind, hex};
use super::words::word;

/// Names of a disk in `by-id`.
pub(super) fn of(disk: &Device) -> Vec<String> {
    let kinds = [
        ("dm-", mapping as fn(&Device) -> Vec<String>),
        ("nvme", nvme),
        ("vd", virtio),
        ("mmcblk", mmc),
        ("sd", scsi),
    ];
    kinds.iter().find(|(prefix, _)| disk.name.starts_with(prefix)).map_or_else(Vec::new, |(_, of)| of(disk))
}

fn named(prefix: &str, parts: &[&str]) -> Option<String> {
    let words: Vec<_> = parts.iter().map(|part| word(part)).collect();
    words.iter().all(|word| !word.is_empty()).then(|| format!("{prefix}-{}", words.join("_")))
}

fn mapping(disk: &Device) -> Vec<String> {
    let file = |name: &str| text(&disk.directory.join(name));
    [named("dm-name", &[&file("dm/name")]), named("dm-uuid", &[&file("dm/uuid")])]
        .into_iter()
        .flatten()
        .collect()
}

fn nvme(disk: &Device) -> Vec<String> {
    let file = |name: &str| text(&disk.directory.join(name));
    let (model, serial) = (file("device/model"), disk.first(&["serial", "device/serial"]));
    [
        named("nvme", &[&file("wwid")]),
        named("nvme", &[&model, &serial]),
        named("nvme", &[&model, &serial, &file("nsid")]),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn virtio(disk: &Device) -> Vec<String> {
    named("virtio", &[&disk.first(&["serial"])]).into_iter().collect()
}

fn mmc(disk: &Device) -> Vec<String> {
    if !disk.is_card() {
        return Vec::new();
    }
    named("mmc", &[&disk.first(&["device/name"]), &disk.first(&["device/serial"])]).into_iter().collect()
}

fn scsi(disk: &Device) -> Vec<String> {
    let file = |name: &str| text(&disk.directory.join("device").join(name));
    let designators = product_data::designators(disk);
    let world_wide = designators.iter().find(|one| one.kind == Kind::Naa).map(|one| hex(&one.bytes));
    let mut names = Vec::new();
    if file("vendor") == "ATA" {
        // INQUIRY has sixteen signs of the model; the disk's own answer has forty.
        let answer = product_data::identify(disk);
        let (model, number) =
            answer.map_or_else(|| (file("model"), None), |answer| (answer.model, answer.name));
        names.extend(named("ata", &[&model, &product_data::serial(disk)]));
        names.extend(number.or(world_wide).map(|number| format!("wwn-0x{number}")));
        return names;
    }
    if let Some(device) = usb_device(disk) {
        let address = disk.directory.join("device").canonicalize().ok();
        let address =
            address.and_then(|path| Some(path.file_name()?.to_str()?.splitn(3, ':').nth(2)?.to_owned()));
        let serial = text(&device.join("serial"));
        let name = named("usb", &[&file("vendor"), &file("model"), &serial]);
        names.extend(name.zip(address).map(|(name, address)| format!("{name}-{address}")));
    } else if let Some(best) = designators.iter().min_by_key(|one| one.kind) {
        let text = match best.kind {
            Kind::Naa | Kind::Eui64 => hex(&best.bytes),
            Kind::T10 => String::from_utf8_lossy(&best.bytes).into_owned(),
            Kind::Vendor => {
                let own = String::from_utf8_lossy(&best.bytes);
                format!("{:<8}{:<16}{own}", file("vendor"), file("model"))
            }
        };
        names.extend(named("scsi", &[&format!("{}{text}", best.kind.digit())]));
    }
    names.extend(world_wide.map(|number| format!("wwn-0x{number}")));
    names
}

/// The directory of the USB device that a disk is behind.
fn usb_device(disk: &Device) -> Option<std::path::PathBuf> {
    // The nearest ancestor with a serial number and a maker is the device; its interfaces have neither.
    disk.directory.ancestors().find(|path| path.join("idVendor").exists()).map(ToOwned::to_owned)
}
