//! Compressed modules in user space.
//!
//! Owns: `.ko.xz` and `.ko.zst` to module images, for kernels that cannot unpack that kind themselves.
//! Fails by: one clause; output beyond the limit is refused before it fills the memory.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// How a module file is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// `.ko.xz`
    Xz,
    /// `.ko.zst`
    Zstd,
}

impl Packing {
    /// By the file's name.
    pub fn of(path: &str) -> Option<Self> {
        if path.ends_with(".xz") {
            Some(Self::Xz)
        } else if path.ends_with(".zst") {
            Some(Self::Zstd)
        } else {
            None
        }
    }
}

/// Unpacks a whole file.
pub fn unpack(packing: Packing, packed: &[u8], limit_bytes: usize) -> Result<Vec<u8>, String> {
    match packing {
        Packing::Xz => {
            let mut reader = lzma_rust2::XzReader::new(packed, true);
            read_all(limit_bytes, |part| {
                lzma_rust2::Read::read(&mut reader, part).map_err(|e| alloc::format!("{e:?}"))
            })
        }
        Packing::Zstd => {
            let mut reader = ruzstd::decoding::StreamingDecoder::new(packed).map_err(|e| e.to_string())?;
            read_all(limit_bytes, |part| ruzstd::io::Read::read(&mut reader, part).map_err(|e| e.to_string()))
        }
    }
}

fn read_all(
    limit: usize,
    mut read: impl FnMut(&mut [u8]) -> Result<usize, String>,
) -> Result<Vec<u8>, String> {
    let mut image = Vec::new();
    let mut used = 0;
    loop {
        image.resize(used + 64 * 1024, 0);
        match read(&mut image[used..])? {
            0 => break,
            len => used += len,
        }
        if used > limit {
            return Err("unpacks to more than a module can be".to_string());
        }
    }
    image.truncate(used);
    Ok(image)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"module module module module module";

    // `printf 'module module module module module' | xz -9 | od -An -tx1` and the same with `zstd -19`.
    const XZ: &[u8] = include_bytes!("../testdata/text.xz");
    const ZSTD: &[u8] = include_bytes!("../testdata/text.zst");

    #[test]
    fn both_packings_unpack() {
        assert_eq!(unpack(Packing::Xz, XZ, 100).as_deref(), Ok(TEXT));
        assert_eq!(unpack(Packing::Zstd, ZSTD, 100).as_deref(), Ok(TEXT));
    }

    #[test]
    fn damage_and_bombs_are_refused() {
        assert!(unpack(Packing::Xz, &XZ[..XZ.len() / 2], 100).is_err());
        assert!(unpack(Packing::Zstd, b"not zstd", 100).is_err());
        assert!(unpack(Packing::Xz, XZ, 10).is_err());
        assert!(unpack(Packing::Zstd, ZSTD, 10).is_err());
    }

    #[test]
    fn the_name_tells_the_packing() {
        assert_eq!(Packing::of("a/b.ko"), None);
        assert_eq!(Packing::of("a/b.ko.xz"), Some(Packing::Xz));
        assert_eq!(Packing::of("a/b.ko.zst"), Some(Packing::Zstd));
    }
}
