//! Names that a disk has from its maker.
//!
//! Source: SPC-6 7.7 (pages 80h, 83h), SAT-4 12.4.2 (page 89h), ACS-4 7.13.6 (IDENTIFY DEVICE), systemd's ata_id and scsi_id.

use std::fs;

use super::super::device::{Device, text};
use super::words::word;

/// Of the header of a page of vital product data.
const PAGE_HEADER: usize = 4;
/// Where page 89h holds what IDENTIFY DEVICE answers.
const IDENTIFY: std::ops::Range<usize> = 60..572;

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
    let file = |name: &str| text(&disk.folder.join(name));
    [named("dm-name", &[&file("dm/name")]), named("dm-uuid", &[&file("dm/uuid")])]
        .into_iter()
        .flatten()
        .collect()
}

fn nvme(disk: &Device) -> Vec<String> {
    let file = |name: &str| text(&disk.folder.join(name));
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
    // Boot areas of a card are devices beside it, with the same card behind them.
    if disk.name.contains("boot") || disk.name.contains("rpmb") {
        return Vec::new();
    }
    named("mmc", &[&disk.first(&["device/name"]), &disk.first(&["device/serial"])]).into_iter().collect()
}

fn scsi(disk: &Device) -> Vec<String> {
    let file = |name: &str| text(&disk.folder.join("device").join(name));
    let page = |name: &str| fs::read(disk.folder.join("device").join(name)).unwrap_or_default();
    let designators = designators(&page("vpd_pg83"));
    let world_wide = designators.iter().find(|one| one.kind == Kind::Naa).map(|one| hex(&one.bytes));
    let serial =
        String::from_utf8_lossy(page("vpd_pg80").get(PAGE_HEADER..).unwrap_or_default()).into_owned();
    let mut names = Vec::new();
    if file("vendor") == "ATA" {
        // INQUIRY has sixteen signs of the model; the disk's own answer has forty.
        let answer = page("vpd_pg89").get(IDENTIFY).map(identify);
        let (model, serial, number) = answer.unwrap_or_else(|| (file("model"), serial, None));
        names.extend(named("ata", &[&model, &serial]));
        names.extend(number.or(world_wide).map(|number| format!("wwn-0x{number}")));
        return names;
    }
    if let Some(port) = usb_device(disk) {
        let lun = disk.folder.join("device").canonicalize().ok();
        let lun = lun.and_then(|path| Some(path.file_name()?.to_str()?.splitn(3, ':').nth(2)?.to_owned()));
        let serial = text(&port.join("serial"));
        let name = named("usb", &[&file("vendor"), &file("model"), &serial]);
        names.extend(name.zip(lun).map(|(name, lun)| format!("{name}-{lun}")));
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
    disk.folder.ancestors().find(|path| path.join("idVendor").exists()).map(ToOwned::to_owned)
}

/// Kinds of designators, the best one first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Naa,
    Eui64,
    T10,
    Vendor,
}

impl Kind {
    /// As page 83h numbers them, which is what a name begins with.
    fn digit(self) -> char {
        match self {
            Self::Naa => '3',
            Self::Eui64 => '2',
            Self::T10 => '1',
            Self::Vendor => '0',
        }
    }
}

struct Designator {
    kind: Kind,
    bytes: Vec<u8>,
}

/// Those of page 83h that name the disk itself, in their order.
fn designators(page: &[u8]) -> Vec<Designator> {
    let mut found = Vec::new();
    let mut rest = page.get(PAGE_HEADER..).unwrap_or_default();
    while let [_, about, _, length, after @ ..] = rest {
        let length = usize::from(*length);
        let Some(bytes) = after.get(..length) else { break };
        let kind = match about & 0xf {
            0 => Some(Kind::Vendor),
            1 => Some(Kind::T10),
            2 => Some(Kind::Eui64),
            3 => Some(Kind::Naa),
            _ => None,
        };
        // The others name a port or a target.
        let of_disk = about >> 4 & 0b11 == 0;
        if let (Some(kind), true) = (kind, of_disk) {
            found.push(Designator { kind, bytes: bytes.to_vec() });
        }
        rest = after.get(length..).unwrap_or_default();
    }
    found
}

/// Model, serial number and world-wide name of what IDENTIFY DEVICE answers.
fn identify(answer: &[u8]) -> (String, String, Option<String>) {
    // Text has the two signs of each word in the order of big endian.
    let words = |range: std::ops::Range<usize>| -> Vec<u8> {
        let bytes = answer.get(range.start * 2..range.end * 2).unwrap_or_default();
        bytes.chunks_exact(2).flat_map(|pair| [pair[1], pair[0]]).collect()
    };
    let text = |range| String::from_utf8_lossy(&words(range)).into_owned();
    let features = words(87..88);
    let has_name = features.first().is_some_and(|high| high & 0xc1 == 0x41);
    let name = has_name.then(|| hex(&words(108..112)));
    (text(27..47), text(10..20), name)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
