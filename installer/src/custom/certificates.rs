//! Authorities that a system trusts besides its own.
//!
//! Owns: the bundle with what is added to it, and what init believes before there is a root with a bundle.
//! Does not: look into a certificate, but for that there is one.

use std::fs;
use std::path::PathBuf;

use super::lower::Lower;
use crate::Error;

/// The bundle, as the base layer has it.
pub(super) const PATH: &str = "etc/ssl/certs/ca-certificates";

/// How a certificate in PEM begins.
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";

/// The image's bundle with these files behind it.
pub(super) fn bundle(lower: &Lower, files: &[PathBuf]) -> Result<Vec<u8>, Error> {
    appended(lower.content(PATH)?.unwrap_or_default(), files)
}

/// PEM with the certificates of these files behind it.
pub(super) fn appended(mut bundle: Vec<u8>, files: &[PathBuf]) -> Result<Vec<u8>, Error> {
    for path in files {
        let text = fs::read_to_string(path).map_err(Error::read(path))?;
        if !text.contains(BEGIN) {
            return Err(Error::NoCertificate { path: path.clone() });
        }
        if !bundle.is_empty() && !bundle.ends_with(b"\n") {
            bundle.push(b'\n');
        }
        bundle.extend(text.as_bytes());
    }
    Ok(bundle)
}
