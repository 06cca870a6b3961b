//! What the first bytes of an image say that it is: what makes it a disk's, how far it reaches, and what it is if it is none.
//!
//! Owns: which layouts count, of which one at least is needed; the likely mistakes, each with what to do instead.
//! Does not: read more than the first MiB.
//! Source: UEFI specification 2.10, §5.2.1 for the master boot record (four entries of 16 bytes from byte 446: status 0,
//! type 4, first sector 8, sectors 12, all little-endian; 0x55 0xaa at 510); POSIX pax for tar (name 0, size 124, `ustar`
//! 257).

use std::path::Path;

use ondisk::gpt::{self, Table};
use ondisk::{ReadAt, ReadError, iso9660, pe, probe};

/// Sectors that partition tables are made for.
const SECTOR_BYTES: [u32; 2] = [512, 4096];

/// Sectors that the entries of a master boot record count in.
const MBR_SECTOR_BYTES: u64 = 512;

/// Type of the entry that only keeps others off a GUID partition table.
const PROTECTIVE: u8 = 0xee;

/// What a tar archive with one of these is an image of, to tools for containers.
const OF_CONTAINERS: [&str; 4] = ["oci-layout", "index.json", "manifest.json", "blobs/"];

/// Something that makes bytes an image of a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    /// Its name.
    pub(super) name: &'static str,
    /// Behind the last byte that belongs to it.
    pub(super) end_bytes: u64,
}

/// A file that is no image of a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mistake {
    /// What it is.
    pub(super) what: String,
    /// What to do.
    pub(super) advice: String,
}

/// What makes this an image of a disk; nothing: it is none.
pub(super) fn layouts(head: &[u8]) -> Vec<Layout> {
    let table = stated(head).map(|table| {
        let ends =
            table.partitions.iter().map(|one| table.offset_bytes(one).saturating_add(table.size_bytes(one)));
        Layout { name: "partition table", end_bytes: ends.max().unwrap_or(0) }
    });
    let volume = iso9660::volume_bytes(head).map(|end_bytes| Layout { name: "ISO 9660 volume", end_bytes });
    let found: Vec<_> = table.into_iter().chain(volume).collect();
    // Hybrid images have one of these too, which may count more than there is.
    if found.is_empty() { mbr(head).into_iter().collect() } else { found }
}

/// The table at the start, for either sector size, as it says of itself.
fn stated(head: &[u8]) -> Option<Table> {
    SECTOR_BYTES.into_iter().find_map(|sector_bytes| gpt::read_stated(&mut Head(head), sector_bytes).ok())
}

/// A master boot record with a partition.
fn mbr(head: &[u8]) -> Option<Layout> {
    // Kernels have the same signature.
    if head.get(510..512)? != [0x55, 0xaa] || pe::Image::parse(head).is_ok() || is_kernel(head) {
        return None;
    }
    let mut end_sectors = 0;
    for entry in head.get(446..510)?.chunks_exact(16) {
        let [status, _, _, _, kind, _, _, _, a, b, c, d, e, f, g, h] = *entry else { return None };
        if !matches!(status, 0 | 0x80) {
            return None;
        }
        let (first, sectors) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
        if kind != 0 && kind != PROTECTIVE && sectors > 0 {
            end_sectors = end_sectors.max(u64::from(first) + u64::from(sectors));
        }
    }
    (end_sectors > 0).then_some(Layout { name: "partition table", end_bytes: end_sectors * MBR_SECTOR_BYTES })
}

fn is_kernel(head: &[u8]) -> bool {
    head.get(0x202..0x206) == Some(b"HdrS")
}

/// What a file is that has no layout.
pub(super) fn mistake(path: &Path, head: &[u8]) -> Mistake {
    let path = path.display();
    let (what, advice) = if let Some(is_installer) = tar(head) {
        match is_installer {
            true => (
                "an installer image or another one of containers".to_owned(),
                format!(
                    "`billetctl image build --from {path} --kind disk` makes a disk of an installer image"
                ),
            ),
            false => ("a tar archive".to_owned(), format!("unpack it first: tar -xf {path}")),
        }
    } else if head.starts_with(b"MZ") || is_kernel(head) {
        (
            "one EFI program, as a UKI or a kernel is".to_owned(),
            "firmware starts it from an EFI system partition; `billetctl image build --kind disk` makes a disk with one"
                .to_owned(),
        )
    } else if head.starts_with(b"PK\x03\x04") {
        ("a zip archive".to_owned(), format!("unpack it first: unzip {path}"))
    } else if let Some(volume) = probe::probe(head) {
        let advice = "name the image of a whole disk, which has a partition table";
        (format!("a volume of type {} alone", volume.kind), advice.to_owned())
    } else if is_config(head) {
        (
            "a machine config".to_owned(),
            "`billetctl image add-config` puts it into an image, and `billetctl apply-config` gives it to a node".to_owned(),
        )
    } else {
        let advice = "name a raw disk image, an ISO image, or one of them that is packed by zstd";
        (
            "no image of a disk: it has neither a partition table nor an ISO 9660 volume".to_owned(),
            advice.to_owned(),
        )
    };
    Mistake { what, advice }
}

/// Whether a tar archive is an image of containers; `None`: it is no tar archive.
fn tar(head: &[u8]) -> Option<bool> {
    if head.get(257..262)? != b"ustar" {
        return None;
    }
    let mut at = 0_usize;
    while let Some(header) =
        head.get(at..at.saturating_add(512)).filter(|header| header.get(257..262) == Some(b"ustar"))
    {
        let name = header.split(|byte| *byte == 0).next().unwrap_or(&[]);
        let name = String::from_utf8_lossy(name);
        let name = name.trim_start_matches("./");
        if OF_CONTAINERS.iter().any(|one| name.starts_with(one)) {
            return Some(true);
        }
        let digits = header.get(124..135).and_then(|digits| std::str::from_utf8(digits).ok()).unwrap_or("");
        let Ok(length) = usize::from_str_radix(digits.trim_matches([' ', '\0']), 8) else { break };
        at = at.saturating_add(512).saturating_add(length.next_multiple_of(512));
    }
    Some(false)
}

/// Whether it is text with what every machine config begins a line with.
fn is_config(head: &[u8]) -> bool {
    let start = head.get(..head.len().min(4096)).unwrap_or(&[]);
    let text = String::from_utf8_lossy(start);
    let mut lines = text.lines();
    !start.contains(&0)
        && lines.any(|line| line.starts_with("version: v1alpha1") || line.starts_with("machine:"))
}

/// The first bytes of an image, as a disk that ends early.
pub(super) struct Head<'h>(pub(super) &'h [u8]);

impl ReadAt for Head<'_> {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(buffer.len());
        match self.0.get(start..end) {
            Some(bytes) => buffer.copy_from_slice(bytes),
            None => return Err(ReadError { offset, length: buffer.len(), errno: 0 }),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A master boot record whose one partition has this type, first sector and length.
    fn record(kind: u8, first: u32, sectors: u32) -> Vec<u8> {
        let mut head = vec![0; 4096];
        head[446 + 4] = kind;
        head[446 + 8..446 + 12].copy_from_slice(&first.to_le_bytes());
        head[446 + 12..446 + 16].copy_from_slice(&sectors.to_le_bytes());
        head[510..512].copy_from_slice(&[0x55, 0xaa]);
        head
    }

    #[test]
    fn a_master_boot_record_needs_a_partition() {
        let wanted = Layout { name: "partition table", end_bytes: (2048 + 100) * 512 };
        assert_eq!(layouts(&record(0x83, 2048, 100)), [wanted]);
        for (kind, sectors) in [(0, 100), (PROTECTIVE, u32::MAX), (0x83, 0)] {
            assert_eq!(layouts(&record(kind, 2048, sectors)), [], "type {kind}, {sectors} sectors");
        }
        // A boot sector of a file system has code there, and a kernel has both.
        let mut code = record(0x83, 2048, 100);
        code[446 + 16] = 0xeb;
        assert_eq!(layouts(&code), []);
        let mut kernel = record(0x83, 2048, 100);
        kernel[0x202..0x206].copy_from_slice(b"HdrS");
        assert_eq!(layouts(&kernel), []);
        assert!((0..600).all(|length| layouts(&record(0x83, 1, 1)[..length]).is_empty() == (length < 512)));
    }

    #[test]
    fn what_is_no_image_is_named() {
        let archive = |name: &str| {
            let mut builder = tar::Builder::new(Vec::new());
            for (name, length) in [("first", 700), (name, 3)] {
                let mut header = tar::Header::new_ustar();
                header.set_size(length);
                header.set_mode(0o644);
                let content = vec![1; usize::try_from(length).unwrap()];
                builder.append_data(&mut header, name, &content[..]).unwrap();
            }
            builder.into_inner().unwrap()
        };
        let program = include_bytes!("../../../crates/ondisk/testdata/stub.efi").to_vec();
        let config = b"# a config\nversion: v1alpha1\nmachine:\n  type: worker\n".to_vec();
        let mut volume = vec![0; 4096];
        volume[..4].copy_from_slice(b"XFSB");
        for (head, what, advice) in [
            (
                archive("oci-layout"),
                "an installer image",
                "`billetctl image build --from the.file --kind disk`",
            ),
            (archive("manifest.json"), "an installer image", "image build"),
            (archive("other"), "a tar archive", "tar -xf the.file"),
            (program, "one EFI program", "image build --kind disk"),
            (config, "a machine config", "image add-config"),
            (b"PK\x03\x04....".to_vec(), "a zip archive", "unzip"),
            (volume, "a volume of type xfs alone", "whole disk"),
            (vec![7; 1000], "neither a partition table nor", "raw disk image"),
            (Vec::new(), "neither a partition table nor", "raw disk image"),
        ] {
            assert_eq!(layouts(&head), [], "{what}");
            let mistake = mistake(Path::new("the.file"), &head);
            assert!(mistake.what.contains(what) && mistake.advice.contains(advice), "{mistake:?}");
        }
    }
}
