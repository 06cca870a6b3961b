//! Keys that the kernel keeps.
//!
//! Owns: a key of type `logon`, which programs can give to the kernel and never read back, for as long as the value
//! lives.
//! Does not: keep keys beyond the thread that adds them: they hang on its own keyring, where the kernel looks first.
//! Fails by: `EDQUOT` beyond the user's quota, `ENOSYS` in a kernel without keyrings.
//! Source: add_key(2), keyctl(2), Documentation/security/keys/core.rst.

use alloc::ffi::CString;

use linux_raw_sys::general as nr;

use crate::{Errno, Result, raw};

/// KEY_SPEC_THREAD_KEYRING of include/uapi/linux/keyctl.h.
const THREAD_KEYRING: i32 = -1;
const KEYCTL_REVOKE: usize = 3;
const KEYCTL_UNLINK: usize = 9;

/// A key that is revoked and forgotten when dropped.
#[derive(Debug)]
pub struct LogonKey {
    serial: i32,
}

/// Gives the kernel a key. The description is `prefix:name`; an older key of the same description is replaced.
///
/// `key_serial_t add_key(const char *type, const char *description, const void *payload, size_t plen, key_serial_t
/// keyring)`: add_key(2).
pub fn add_logon(description: &str, payload: &[u8]) -> Result<LogonKey> {
    let description = CString::new(description).map_err(|_| Errno::INVAL)?;
    let arguments = [
        raw::read(c"logon".to_bytes_with_nul()),
        raw::read(description.as_bytes_with_nul()),
        raw::read(payload),
        payload.len(),
        raw::fd(THREAD_KEYRING),
        0,
    ];
    // SAFETY: 1. Both strings end in zero, the payload has the length given, and all live over the call, which copies.
    let serial = unsafe { raw::syscall(nr::__NR_add_key, arguments) }?;
    Ok(LogonKey { serial: i32::try_from(serial).map_err(|_| Errno::OVERFLOW)? })
}

impl Drop for LogonKey {
    fn drop(&mut self) {
        let serial = raw::fd(self.serial);
        // SAFETY: 1. KEYCTL_REVOKE takes a number.
        let _ = unsafe { raw::syscall(nr::__NR_keyctl, [KEYCTL_REVOKE, serial, 0, 0, 0, 0]) };
        // SAFETY: 1. KEYCTL_UNLINK takes two.
        let _ = unsafe {
            raw::syscall(nr::__NR_keyctl, [KEYCTL_UNLINK, serial, raw::fd(THREAD_KEYRING), 0, 0, 0])
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `keyctl(KEYCTL_SEARCH, thread keyring, "logon", description, 0)`.
    fn found(description: &core::ffi::CStr) -> Result<usize> {
        const KEYCTL_SEARCH: usize = 10;
        let arguments = [
            KEYCTL_SEARCH,
            raw::fd(THREAD_KEYRING),
            raw::read(c"logon".to_bytes_with_nul()),
            raw::read(description.to_bytes_with_nul()),
            0,
            0,
        ];
        // SAFETY: 1. Both strings end in zero.
        unsafe { raw::syscall(nr::__NR_keyctl, arguments) }
    }

    #[test]
    fn a_key_is_there_until_it_is_dropped() {
        let key = match add_logon("billet:test", b"sixteen bytes...") {
            // Containers refuse all of it; VM tests map with a key.
            Err(Errno::NOSYS | Errno::PERM | Errno::ACCESS) => return,
            other => other.unwrap(),
        };
        assert_eq!(found(c"billet:test"), Ok(usize::try_from(key.serial).unwrap()));
        drop(key);
        assert!(found(c"billet:test").is_err());
    }

    #[test]
    fn a_description_needs_a_prefix_and_no_zero() {
        assert_eq!(add_logon("a\0b", b"x").err(), Some(Errno::INVAL));
        assert!(add_logon("unprefixed", b"x").is_err());
    }
}
