//! What a SCSI or ATA disk says of itself: its vital product data, as the kernel keeps it.
//!
//! Source: SPC-6 7.7 (pages 80h, 83h), SAT-4 12.4.2 (page 89h), ACS-4 7.13.6 (IDENTIFY DEVICE).

use std::fs;
use std::ops::Range;

use super::device::Device;

/// Of the header of a page.
const PAGE_HEADER: usize = 4;
/// Where page 89h holds what IDENTIFY DEVICE answers.
const IDENTIFY: Range<usize> = 60..572;

fn page(disk: &Device, name: &str) -> Vec<u8> {
    fs::read(disk.directory.join("device").join(name)).unwrap_or_default()
}

/// The serial number; empty where the disk has none.
pub(super) fn serial(disk: &Device) -> String {
    let serial = match identify(disk) {
        Some(answer) => answer.serial,
        None => String::from_utf8_lossy(page(disk, "vpd_pg80").get(PAGE_HEADER..).unwrap_or_default())
            .into_owned(),
    };
    serial.trim_matches([' ', '\0']).to_owned()
}

/// Kinds of designators, the best one first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Naa,
    Eui64,
    T10,
    Vendor,
}

impl Kind {
    /// As page 83h numbers them, which is what a name begins with.
    pub(super) fn digit(self) -> char {
        match self {
            Self::Naa => '3',
            Self::Eui64 => '2',
            Self::T10 => '1',
            Self::Vendor => '0',
        }
    }
}

/// A name that a disk has for itself.
pub(super) struct Designator {
    /// What it is made of.
    pub(super) kind: Kind,
    /// Text, or a number in big endian.
    pub(super) bytes: Vec<u8>,
}

/// Those of page 83h that name the disk itself, in their order.
pub(super) fn designators(disk: &Device) -> Vec<Designator> {
    let page = page(disk, "vpd_pg83");
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

/// What an ATA disk says of itself.
pub(super) struct Identity {
    /// Up to 40 signs, with blanks around.
    pub(super) model: String,
    /// Up to 20 signs, with blanks around.
    serial: String,
    /// World-wide name, hexadecimal.
    pub(super) name: Option<String>,
}

/// What IDENTIFY DEVICE answers, where the kernel has asked.
pub(super) fn identify(disk: &Device) -> Option<Identity> {
    let page = page(disk, "vpd_pg89");
    let answer = page.get(IDENTIFY)?;
    // Text has the two signs of each word in the order of big endian.
    let words = |range: Range<usize>| -> Vec<u8> {
        let bytes = answer.get(range.start * 2..range.end * 2).unwrap_or_default();
        bytes.chunks_exact(2).flat_map(|pair| [pair[1], pair[0]]).collect()
    };
    let text = |range| String::from_utf8_lossy(&words(range)).into_owned();
    let features = words(87..88);
    let has_name = features.first().is_some_and(|high| high & 0xc1 == 0x41);
    let name = has_name.then(|| hex(&words(108..112)));
    Some(Identity { model: text(27..47), serial: text(10..20), name })
}

/// Two lower-case signs a byte.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
