//! ISO 9660 images: the volume's label, and a new image with Rock Ridge names that firmware starts.
//!
//! Owns: the volume label and the time that serves as its identifier; one file of the root directory ([`read_in_root`]); the layout of
//! a new image ([`lay_out`]).
//! Does not: read other directories.
//! Source: ECMA-119 §8.4; descriptors start at byte 32768 and are 2048 bytes long, of which: type 0, `CD001` 1,
//! volume identifier 40 (32 bytes, space padded), blocks of the volume 80 (4, little-endian), bytes of a block 128 (2), creation time 813 and modification time 830 (17 bytes each).

mod directory;
mod read;
mod write;

use alloc::format;
use alloc::string::String;

use crate::field::{bytes, le16, le32, u8_at};

pub use read::{Unreadable, read_in_root};
pub use write::{Error, File, Image, Layout, SECTOR_BYTES, lay_out};

/// Where the first volume descriptor starts.
pub const DESCRIPTOR_OFFSET: usize = 32768;

/// Bytes of a descriptor.
pub const DESCRIPTOR_BYTES: usize = 2048;

/// Name and identifier of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// The volume identifier without padding; case as stored.
    pub label: String,
    /// Modification or else creation time in the form `blkid` gives: `2025-01-31-12-00-00-00`.
    pub uuid: String,
}

/// Reads the primary volume descriptor of an image that starts with these bytes.
#[must_use]
pub fn parse(image: &[u8]) -> Option<Volume> {
    let descriptor = primary(image)?;
    let label = String::from_utf8_lossy(bytes(descriptor, 40, 32)?);
    let uuid = time(bytes(descriptor, 830, 17)?).or_else(|| time(bytes(descriptor, 813, 17)?));
    Some(Volume { label: label.trim_end_matches([' ', '\0']).into(), uuid: uuid.unwrap_or_default() })
}

/// Bytes of the volume in an image that starts with these: a shorter image was cut off.
#[must_use]
pub fn volume_bytes(image: &[u8]) -> Option<u64> {
    let descriptor = primary(image)?;
    Some(u64::from(le32(descriptor, 80)?) * u64::from(le16(descriptor, 128)?))
}

fn primary(image: &[u8]) -> Option<&[u8]> {
    let descriptor = bytes(image, DESCRIPTOR_OFFSET, DESCRIPTOR_BYTES)?;
    // Type 1 is the primary one; it is the first on every image that firmware boots.
    (bytes(descriptor, 1, 5)? == b"CD001" && u8_at(descriptor, 0)? == 1).then_some(descriptor)
}

/// `YYYYMMDDhhmmsscc` in digits and a time zone; all zeros mean that the time is not given.
fn time(field: &[u8]) -> Option<String> {
    let digits = core::str::from_utf8(field.get(..16)?).ok()?;
    if !digits.bytes().all(|digit| digit.is_ascii_digit()) || digits.bytes().all(|digit| digit == b'0') {
        return None;
    }
    let part = |from: usize, to: usize| digits.get(from..to).unwrap_or_default();
    let date = format!("{}-{}-{}", part(0, 4), part(4, 6), part(6, 8));
    Some(format!("{date}-{}-{}-{}-{}", part(8, 10), part(10, 12), part(12, 14), part(14, 16)))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn label_and_time_of_an_image_by_xorriso() {
        let dir = tempfile::tempdir().unwrap();
        let (source, image) = (dir.path().join("source"), dir.path().join("image"));
        std::fs::create_dir(&source).unwrap();
        let output = Command::new("xorriso")
            .args(["-as", "mkisofs", "-quiet", "-V", "metal-iso", "--modification-date=2025013112345600"])
            .arg("-o")
            .args([&image, &source])
            .output()
            .unwrap_or_else(|e| panic!("this test needs xorriso (Debian package xorriso): {e}"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let image = std::fs::read(image).unwrap();
        let expected = Volume { label: "metal-iso".into(), uuid: "2025-01-31-12-34-56-00".into() };
        assert_eq!(parse(&image), Some(expected));
        // xorriso pads the volume with 300 KiB of its own count.
        let bytes = volume_bytes(&image).unwrap();
        assert!(bytes > 300 << 10 && bytes <= image.len() as u64, "{bytes} of {}", image.len());
        assert_eq!(parse(&image[..DESCRIPTOR_OFFSET + 2047]), None);
    }
}
