//! What a Linux kernel image for x86-64 says of itself.
//!
//! Owns: the few fields of a bzImage's header that are looked at, and the configuration that some kernels carry.
//! Does not: unpack the kernel; who has it unpacked may look into it with [`configuration`].
//! Fails by: `None` for what is no bzImage or does not say.
//! Source: kernel Documentation/arch/x86/boot.rst (little-endian); kernel/configs.c for the marks.

use crate::field::{bytes, le16, le32, u8_at};

/// Offset of the number of 512-byte sectors before the kernel itself, without the first one; 1 byte.
const SETUP_SECTORS: usize = 0x1f1;
/// Offset of the kernel's length in paragraphs, 4 bytes.
const PARAGRAPHS_AT: usize = 0x1f4;
const PARAGRAPH_BYTES: usize = 16;
/// Offset of the header's magic, 4 bytes.
const MAGIC_AT: usize = 0x202;
const MAGIC: &[u8] = b"HdrS";
/// Offset of the place of the version's text, 2 bytes, counted from the second sector.
const VERSION_AT: usize = 0x20e;
/// Offsets of place and length of the packed kernel, 4 bytes each, counted from behind the setup sectors.
const PAYLOAD_AT: usize = 0x248;
const PAYLOAD_BYTES_AT: usize = 0x24c;
const SECTOR_BYTES: usize = 512;
/// A release has at most 64 bytes (uapi/linux/utsname.h); what follows says who built it.
const MOST_RELEASE_BYTES: usize = 64;
/// What lies between these is the packed configuration, where IKCONFIG is built in.
const CONFIGURATION: [&[u8]; 2] = [b"IKCFG_ST", b"IKCFG_ED"];

/// Whether an image has this form.
#[must_use]
pub fn is_one(image: &[u8]) -> bool {
    magic(image).is_some()
}

/// `uname -r` of the kernel.
#[must_use]
pub fn release(image: &[u8]) -> Option<&str> {
    magic(image)?;
    let at = usize::from(le16(image, VERSION_AT)?).checked_add(SECTOR_BYTES)?;
    let text = image.get(at..)?;
    let text = text.get(..MOST_RELEASE_BYTES).unwrap_or(text);
    let end = text.iter().position(|byte| matches!(byte, 0 | b' '))?;
    let release = core::str::from_utf8(text.get(..end)?).ok()?;
    (!release.is_empty()).then_some(release)
}

/// The kernel as it is packed in the image.
#[must_use]
pub fn payload(image: &[u8]) -> Option<&[u8]> {
    magic(image)?;
    let at = setup_bytes(image)?.checked_add(usize::try_from(le32(image, PAYLOAD_AT)?).ok()?)?;
    bytes(image, at, usize::try_from(le32(image, PAYLOAD_BYTES_AT)?).ok()?)
}

/// Bytes of the whole image, without signatures behind it.
#[must_use]
pub fn whole_bytes(image: &[u8]) -> Option<usize> {
    magic(image)?;
    let paragraphs = usize::try_from(le32(image, PARAGRAPHS_AT)?).ok()?;
    setup_bytes(image)?.checked_add(paragraphs.checked_mul(PARAGRAPH_BYTES)?)
}

/// Bytes before the kernel itself.
fn setup_bytes(image: &[u8]) -> Option<usize> {
    // 0 stands for 4 (boot.rst, setup_sects).
    let sectors = match u8_at(image, SETUP_SECTORS)? {
        0 => 4,
        sectors => usize::from(sectors),
    };
    Some((sectors + 1) * SECTOR_BYTES)
}

/// The configuration in an unpacked kernel, packed by gzip.
#[must_use]
pub fn configuration(kernel: &[u8]) -> Option<&[u8]> {
    let [begin, end] = CONFIGURATION.map(|mark| find(kernel, mark));
    kernel.get(begin?.checked_add(8)?..end?)
}

fn magic(image: &[u8]) -> Option<()> {
    (bytes(image, MAGIC_AT, MAGIC.len())? == MAGIC).then_some(())
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn image() -> Vec<u8> {
        let mut image = vec![0; 4096];
        image[SETUP_SECTORS] = 3;
        image[MAGIC_AT..MAGIC_AT + 4].copy_from_slice(MAGIC);
        image[VERSION_AT..VERSION_AT + 2].copy_from_slice(&0x300_u16.to_le_bytes());
        image[PARAGRAPHS_AT] = 128;
        image[0x500..0x51d].copy_from_slice(b"6.12.9-custom (me@here) #1 SM");
        image[PAYLOAD_AT..PAYLOAD_AT + 4].copy_from_slice(&16_u32.to_le_bytes());
        image[PAYLOAD_BYTES_AT..PAYLOAD_BYTES_AT + 4].copy_from_slice(&4_u32.to_le_bytes());
        image[2048 + 16..2048 + 20].copy_from_slice(b"pack");
        image
    }

    #[test]
    fn a_kernel_says_its_release_and_where_it_is_packed() {
        let image = image();
        assert_eq!(release(&image), Some("6.12.9-custom"));
        assert_eq!(payload(&image), Some(&b"pack"[..]));
        assert_eq!(whole_bytes(&image), Some(4096));
        assert_eq!((release(b"MZ"), payload(&[0; 4096])), (None, None));
        assert_eq!(configuration(b"..IKCFG_STgzIKCFG_ED"), Some(&b"gz"[..]));
        assert_eq!(configuration(b"IKCFG_EDIKCFG_ST"), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(at in 0_usize..4096, value: u8, length in 0_usize..4096) {
            let mut image = image();
            image[at] = value;
            image.truncate(length);
            let _ = (release(&image), payload(&image), whole_bytes(&image), configuration(&image));
        }
    }
}
