//! The superblock of a squashfs image.
//!
//! Owns: enough of it to know that an image is one, how long it is and how it is compressed.
//! Source: kernel Documentation/filesystems/squashfs.rst; all fields little-endian, at these offsets:
//! magic 0, modification time 8, block size 12, compression 20, major 28, minor 30, bytes used 40.

use core::fmt;

use crate::field::{bytes, le16, le32, le64};

/// Bytes of the superblock.
pub const SUPERBLOCK_BYTES: usize = 96;

/// How an image is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// zlib.
    Gzip,
    /// lzma1.
    Lzma,
    /// lzo.
    Lzo,
    /// xz.
    Xz,
    /// lz4.
    Lz4,
    /// zstd.
    Zstd,
}

/// The accepted part of a superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Superblock {
    /// Length of the image in bytes, without padding.
    pub bytes_used: u64,
    /// Length of a data block: a power of two from 4 KiB to 1 MiB.
    pub block_bytes: u32,
    /// The compression.
    pub compression: Compression,
    /// Seconds since 1970.
    pub modified: u32,
}

/// Why bytes are not the superblock of a squashfs 4.0 image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    /// Fewer than [`SUPERBLOCK_BYTES`].
    TooShort,
    /// No `hsqs`.
    Magic,
    /// Another version than 4.0.
    Version(u16, u16),
    /// An unknown compression.
    Compression(u16),
    /// A block size that the kernel refuses.
    BlockSize(u32),
    /// The image would end inside its own superblock.
    BytesUsed(u64),
}

impl Superblock {
    /// Reads the superblock at the start of an image.
    pub fn parse(image: &[u8]) -> Result<Self, Error> {
        let image = image.get(..SUPERBLOCK_BYTES).ok_or(Error::TooShort)?;
        if bytes(image, 0, 4) != Some(b"hsqs") {
            return Err(Error::Magic);
        }
        Self::fields(image).unwrap_or(Err(Error::TooShort))
    }

    fn fields(image: &[u8]) -> Option<Result<Self, Error>> {
        let block_bytes = le32(image, 12)?;
        let bytes_used = le64(image, 40)?;
        let compression = match compression(le16(image, 20)?) {
            Ok(compression) => compression,
            Err(error) => return Some(Err(error)),
        };
        Some(match (le16(image, 28)?, le16(image, 30)?) {
            (4, 0) if !(4096..=1 << 20).contains(&block_bytes) || !block_bytes.is_power_of_two() => {
                Err(Error::BlockSize(block_bytes))
            }
            (4, 0) if bytes_used < SUPERBLOCK_BYTES as u64 => Err(Error::BytesUsed(bytes_used)),
            (4, 0) => Ok(Self { bytes_used, block_bytes, compression, modified: le32(image, 8)? }),
            (major, minor) => Err(Error::Version(major, minor)),
        })
    }
}

fn compression(id: u16) -> Result<Compression, Error> {
    Ok(match id {
        1 => Compression::Gzip,
        2 => Compression::Lzma,
        3 => Compression::Lzo,
        4 => Compression::Xz,
        5 => Compression::Lz4,
        6 => Compression::Zstd,
        other => return Err(Error::Compression(other)),
    })
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("squashfs: ")?;
        match self {
            Self::TooShort => f.write_str("shorter than a superblock"),
            Self::Magic => f.write_str("no squashfs here"),
            Self::Version(major, minor) => write!(f, "version {major}.{minor}, 4.0 wanted"),
            Self::Compression(id) => write!(f, "unknown compression {id}"),
            Self::BlockSize(bytes) => write!(f, "blocks of {bytes} bytes"),
            Self::BytesUsed(bytes) => write!(f, "an image of {bytes} bytes"),
        }
    }
}

impl core::error::Error for Error {}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    /// An image by mksquashfs of one small file.
    fn image(compression: &str) -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        let (source, image) = (dir.path().join("source"), dir.path().join("image"));
        std::fs::create_dir(&source).unwrap();
        std::fs::write(source.join("file"), "content").unwrap();
        let status = Command::new("mksquashfs")
            .args([&source, &image])
            .args(["-comp", compression, "-b", "256K", "-quiet", "-no-progress", "-mkfs-time", "1234"])
            .status()
            .unwrap_or_else(|e| panic!("this test needs mksquashfs (Debian package squashfs-tools): {e}"));
        assert!(status.success());
        std::fs::read(image).unwrap()
    }

    #[test]
    fn superblock_of_mksquashfs() {
        for (name, compression) in [("zstd", Compression::Zstd), ("xz", Compression::Xz)] {
            let image = image(name);
            let superblock = Superblock::parse(&image).unwrap();
            assert_eq!(superblock.compression, compression);
            assert_eq!((superblock.block_bytes, superblock.modified), (262_144, 1234));
            // mksquashfs pads to 4096.
            assert_eq!(superblock.bytes_used.next_multiple_of(4096), image.len() as u64);
        }
    }

    #[test]
    fn each_rule_refuses() {
        let image = image("zstd");
        let refuse = |at: usize, value: &[u8]| {
            let mut broken = image.clone();
            broken[at..at + value.len()].copy_from_slice(value);
            Superblock::parse(&broken).unwrap_err()
        };
        assert_eq!(refuse(0, b"sqsh"), Error::Magic);
        assert_eq!(refuse(28, &[3]), Error::Version(3, 0));
        assert_eq!(refuse(20, &[9]), Error::Compression(9));
        assert_eq!(refuse(12, &[1]), Error::BlockSize(262_145));
        assert_eq!(refuse(40, &[5, 0, 0, 0, 0, 0, 0, 0]), Error::BytesUsed(5));
        assert_eq!(Superblock::parse(&image[..95]), Err(Error::TooShort));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = Superblock::parse(&bytes);
            crate::field::put(&mut bytes, 0, b"hsqs");
            let _ = Superblock::parse(&bytes);
        }
    }
}
