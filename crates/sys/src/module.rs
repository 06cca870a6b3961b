//! Kernel modules.
//!
//! Owns: handing a module file to the kernel, with or without its appended signature.
//! Order: without first; a kernel that insists on signatures (lockdown, `module.sig_enforce`) refuses that with
//! `EPERM` or `EKEYREJECTED`, and from then on every module goes with its signature. Why: docs/decisions/0005.
//! Source: init_module(2), finit_module(2); scripts/sign-file.c for the trailer.

use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::{Errno, Result, fs};

/// Flag of `finit_module`: the file is compressed, the kernel unpacks it (`MODULE_INIT_COMPRESSED_FILE`).
const COMPRESSED: i32 = 4;

/// What ends a signed module file.
const MAGIC: &[u8] = b"~Module signature appended~\n";

/// `struct module_signature` before the magic: algorithm, hash, id type, signer length, key id length, 3 bytes of
/// padding, then the length of the signature (u32, big endian).
const TRAILER_BYTES: usize = 12;

static SIGNED: AtomicBool = AtomicBool::new(false);

/// From now on every module is handed over with its signature.
pub fn keep_signatures() {
    SIGNED.store(true, Ordering::Relaxed);
}

/// Loads a module file of at most `limit_bytes` with parameters (`name=value …`); `EEXIST` if it is loaded already.
pub fn load_file(path: &str, limit_bytes: usize, parameters: &CStr) -> Result<()> {
    if SIGNED.load(Ordering::Relaxed) {
        return rustix::system::finit_module(fs::open(path)?, parameters, 0);
    }
    load_image(&fs::read(path, limit_bytes)?, parameters)
}

/// Loads a file that the kernel unpacks; its signature stays on.
pub fn load_compressed_file(path: &str, parameters: &CStr) -> Result<()> {
    rustix::system::finit_module(fs::open(path)?, parameters, COMPRESSED)
}

/// Loads a module from memory.
pub fn load_image(image: &[u8], parameters: &CStr) -> Result<()> {
    let bare = without_signature(image);
    if SIGNED.load(Ordering::Relaxed) || bare.len() == image.len() {
        return rustix::system::init_module(image, parameters);
    }
    match rustix::system::init_module(bare, parameters) {
        Err(Errno::PERM | Errno::KEYREJECTED) => {
            keep_signatures();
            rustix::system::init_module(image, parameters)
        }
        other => other,
    }
}

/// The module without its appended signature; a file whose trailer makes no sense is left as it is.
fn without_signature(image: &[u8]) -> &[u8] {
    let Some(signed) = image.strip_suffix(MAGIC) else { return image };
    let Some((body, trailer)) = signed.split_last_chunk::<TRAILER_BYTES>() else { return image };
    let [.., a, b, c, d] = *trailer;
    let length = u32::from_be_bytes([a, b, c, d]);
    let end = usize::try_from(length).ok().and_then(|length| body.len().checked_sub(length));
    end.and_then(|end| body.get(..end)).unwrap_or(image)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signed(body: &[u8], signature: &[u8], length: u32) -> Vec<u8> {
        let mut image = [body, signature, &[0, 0, 2, 0, 0, 0, 0, 0]].concat();
        image.extend(length.to_be_bytes());
        image.extend(MAGIC);
        image
    }

    #[test]
    fn a_signature_is_cut_off() {
        assert_eq!(without_signature(&signed(b"module", b"sig", 3)), b"module");
        assert_eq!(without_signature(&signed(b"module", b"", 0)), b"module");
    }

    #[test]
    fn a_file_without_a_sound_trailer_stays_whole() {
        let lying = signed(b"module", b"sig", 10);
        for image in [b"module".as_slice(), MAGIC, &lying, b""] {
            assert_eq!(without_signature(image), image);
        }
    }
}
