//! What a Linux kernel image says of itself, whichever processors it is for.
//!
//! Owns: which form an image has, and what is looked at in arm64's. Does not: read x86-64's; [`crate::bzimage`] does.
//! Fails by: `None` for what is no kernel image or does not say.
//! Source: kernel Documentation/arch/arm64/booting.rst; init/version.c (the banner);
//! drivers/firmware/efi/libstub/zboot-header.S.

use crate::architecture::Architecture;
use crate::bzimage;
use crate::field::bytes;

/// Longest command line. COMMAND_LINE_SIZE of the kernel is 2048 on x86 and 64-bit ARM, with the zero at its end; what is behind
/// is cut off.
pub const COMMAND_LINE_BYTES: usize = 2047;

/// Offset of arm64's magic, 4 bytes.
const MAGIC_AT: usize = 0x38;
const MAGIC: &[u8] = b"ARMd";
/// What stands in every unpacked kernel, before its release and a blank.
const BANNER: &[u8] = b"Linux version ";
/// A release has at most 64 bytes (uapi/linux/utsname.h).
const MOST_RELEASE_BYTES: usize = 64;
/// How a kernel begins that unpacks itself as a program of the firmware: the marks at these offsets.
const PACKED: [(usize, &[u8]); 2] = [(0, b"MZ"), (4, b"zimg")];

/// The processors that an image is for.
#[must_use]
pub fn architecture(image: &[u8]) -> Option<Architecture> {
    if bzimage::is_one(image) {
        return Some(Architecture::Amd64);
    }
    (bytes(image, MAGIC_AT, MAGIC.len())? == MAGIC).then_some(Architecture::Arm64)
}

/// `uname -r` of the kernel.
#[must_use]
pub fn release(image: &[u8]) -> Option<&str> {
    match architecture(image)? {
        Architecture::Amd64 => bzimage::release(image),
        Architecture::Arm64 => in_banner(image),
    }
}

/// Whether an image ends before it says it does; arm64's says how much memory it takes, which is more than the file.
#[must_use]
pub fn is_cut_off(image: &[u8]) -> bool {
    bzimage::whole_bytes(image).is_some_and(|whole| image.len() < whole)
}

/// Whether a kernel is packed in the form for firmware (CONFIG_EFI_ZBOOT), which says nothing of itself.
#[must_use]
pub fn is_packed(image: &[u8]) -> bool {
    PACKED.iter().all(|(at, mark)| bytes(image, *at, mark.len()) == Some(*mark))
}

/// The first banner with a release: code that looks for banners has the words alone.
fn in_banner(image: &[u8]) -> Option<&str> {
    let mut rest = image;
    loop {
        // Quick in a build without optimisation too: images have 40 MB.
        let at = rest.iter().position(|byte| *byte == b'L')?;
        rest = rest.get(at..)?;
        if let Some(release) = rest.strip_prefix(BANNER).and_then(first_word) {
            return Some(release);
        }
        rest = rest.get(1..)?;
    }
}

fn first_word(text: &[u8]) -> Option<&str> {
    let text = text.get(..MOST_RELEASE_BYTES).unwrap_or(text);
    let word = text.get(..text.iter().position(|byte| *byte == b' ')?)?;
    let word = core::str::from_utf8(word).ok()?;
    word.starts_with(|first: char| first.is_ascii_digit()).then_some(word)
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn arm64(banners: &[u8]) -> Vec<u8> {
        let mut image = vec![b'L'; 256];
        image[MAGIC_AT..MAGIC_AT + 4].copy_from_slice(MAGIC);
        image.extend(banners);
        image
    }

    #[test]
    fn an_image_says_release_and_processors() {
        let image = arm64(b"Linux version %s (%s)\0Linux version 6.12.9-board (me@here) #1");
        assert_eq!(architecture(&image), Some(Architecture::Arm64));
        assert_eq!(release(&image), Some("6.12.9-board"));
        assert_eq!(release(&arm64(b"Linux version 6.12.9")), None);
        let mut other = vec![0; 4096];
        other[0x202..0x206].copy_from_slice(b"HdrS");
        assert_eq!(architecture(&other), Some(Architecture::Amd64));
        assert_eq!((architecture(b"MZ"), release(b"MZ")), (None, None));
    }

    #[test]
    fn a_packed_one_is_known_by_its_marks() {
        assert!(is_packed(b"MZ\0\0zimg"));
        assert!(!is_packed(&arm64(b"")));
        assert!(!is_packed(b"MZ"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(at in 0_usize..300, value: u8, length in 0_usize..320) {
            let mut image = arm64(b"Linux version 6.12.9-board (me@here) #1");
            if let Some(byte) = image.get_mut(at) {
                *byte = value;
            }
            image.truncate(length);
            let _ = (architecture(&image), release(&image), is_packed(&image));
        }
    }
}
