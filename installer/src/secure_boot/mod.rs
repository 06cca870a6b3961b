//! Secure Boot: files that firmware starts signed with the owner's key, and what enrols that key.
//!
//! | file | part |
//! |---|---|
//! | `key` | a key with its certificate, as openssl writes them |
//! | `der` | the few elements that messages are made of |
//! | `message` | PKCS #7 messages: of a PE file, of a variable's new value |
//! | `enrolment` | `PK.auth`, `KEK.auth` and `db.auth`, which systemd-boot and firmware menus take |
//!
//! Does not: make keys (`openssl req -new -x509 -newkey rsa:2048`), keep them, speak to firmware.
//! Fails by: [`Error`] with the file and what is wrong; a key is never part of it.
//! Source: Authenticode Portable Executable Signature Format; RFC 2315 (PKCS #7); UEFI specification 2.10 §8.2.2, §32.4.

mod der;
mod enrolment;
mod key;
mod message;
#[cfg(test)]
mod tests;

pub use enrolment::{Enrol, Enrolment, Time};
pub use key::Signer;

use std::io;
use std::path::PathBuf;

use ondisk::pe::Image;

/// Why something is not signed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A key or certificate cannot be used.
    #[error("{what}: {reason}")]
    Key {
        /// `signing key`, `certificate`.
        what: &'static str,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// A file could not be read.
    #[error("read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Files to enrol that would lock out what is signed.
    #[error("{}: {reason}", path.display())]
    Enrolment {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to do.
        reason: &'static str,
    },
    /// The file is none that firmware starts.
    #[error(transparent)]
    File(#[from] ondisk::pe::Error),
}

/// A file that firmware starts, with a signature behind those that it has. One that this key gave it before stays the only
/// one of it.
///
/// # Errors
/// [`Error::File`] if it is no PE file or its table of signatures is broken.
pub fn sign(file: &[u8], signer: &Signer) -> Result<Vec<u8>, Error> {
    let image = Image::parse(file)?;
    let message = message::of_file(signer, &image.digest()?)?;
    // The same key and file give the same message; behind it there may be padding.
    if image.signatures()?.iter().any(|there| there.starts_with(&message)) {
        return Ok(file.to_vec());
    }
    Ok(image.with_signature(&message)?)
}
