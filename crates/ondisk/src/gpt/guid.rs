//! GUIDs as GPT stores them, and the partition types in use.

use core::fmt;

use serde::{Deserialize, Serialize};

/// A GUID; the text form is the one of `lsblk`: 8-4-4-4-12 hex digits, upper case here as in the standard.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Guid([u8; 16]);

/// Which bytes of the stored form make the text, in its order: the first three groups are little-endian.
const TEXT_ORDER: [usize; 16] = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];

impl Guid {
    /// No GUID: marks an unused entry.
    pub const ZERO: Self = Self([0; 16]);

    /// From the 16 bytes as stored on disk.
    #[must_use]
    pub const fn from_stored(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The 16 bytes as stored on disk.
    #[must_use]
    pub const fn stored(self) -> [u8; 16] {
        self.0
    }

    /// From the 16 bytes in the order of the text.
    #[must_use]
    pub const fn from_text_order(bytes: [u8; 16]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = bytes;
        Self([d, c, b, a, f, e, h, g, i, j, k, l, m, n, o, p])
    }

    /// A version 8 GUID (RFC 9562, own content) from a seed: the same seed, the same GUID.
    #[must_use]
    pub fn from_seed(seed: &[u8]) -> Self {
        let digest = crate::Digest::sha256(&[b"billet guid\0", seed]);
        let mut bytes: [u8; 16] = crate::field::array(digest.as_bytes(), 0).unwrap_or_default();
        bytes[6] = bytes[6] & 0x0f | 0x80;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Self::from_text_order(bytes)
    }

    /// Reads `XXXXXXXX-XXXX-XXXX-XXXX-XXXXXXXXXXXX`, either case.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.as_bytes();
        if text.len() != 36 || [8, 13, 18, 23].iter().any(|dash| text.get(*dash) != Some(&b'-')) {
            return None;
        }
        let mut digits = text.iter().filter(|byte| **byte != b'-').map(|byte| char::from(*byte).to_digit(16));
        let mut bytes = [0; 16];
        for byte in &mut bytes {
            let value = digits.next()?? << 4 | digits.next()??;
            *byte = u8::try_from(value).ok()?;
        }
        digits.next().is_none().then_some(Self::from_text_order(bytes))
    }
}

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, from) in TEXT_ORDER.into_iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{:02X}", self.0.get(from).copied().unwrap_or(0))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Partition types.
pub mod types {
    use super::Guid;

    /// EFI system partition, `C12A7328-F81F-11D2-BA4B-00A0C93EC93B`.
    pub const EFI_SYSTEM: Guid =
        Guid::from_text_order(0xC12A7328_F81F_11D2_BA4B_00A0C93EC93B_u128.to_be_bytes());
    /// GRUB core image for BIOS machines, `21686148-6449-6E6F-744E-656564454649`.
    pub const BIOS_BOOT: Guid =
        Guid::from_text_order(0x21686148_6449_6E6F_744E_656564454649_u128.to_be_bytes());
    /// Linux file system data, `0FC63DAF-8483-4772-8E79-3D69D8477DE4`.
    pub const LINUX: Guid = Guid::from_text_order(0x0FC63DAF_8483_4772_8E79_3D69D8477DE4_u128.to_be_bytes());
}
