//! Authorities that a system trusts besides its own.
//!
//! Owns: the bundle with what is added to it, and what init believes before there is a root with a bundle.
//! Does not: ask whether an authority is one that may sign, or is still valid: that is seen when it is used.
//! Fails by: [`Error::NoCertificate`], [`Error::BadCertificate`], naming the file and which of its certificates.

use std::fs;
use std::path::{Path, PathBuf};

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

use super::lower::Lower;
use crate::Error;

/// The bundle, as the base layer has it.
pub(super) const PATH: &str = "etc/ssl/certs/ca-certificates";

/// In the first line of a private key in PEM, of every kind.
const PRIVATE_KEY: &str = "PRIVATE KEY-----";

/// The image's bundle with these files behind it.
pub(super) fn bundle(lower: &Lower, files: &[PathBuf]) -> Result<Vec<u8>, Error> {
    appended(lower.content(PATH)?.unwrap_or_default(), files)
}

/// PEM with the certificates of these files behind it, but for files that it has whole.
pub(super) fn appended(mut bundle: Vec<u8>, files: &[PathBuf]) -> Result<Vec<u8>, Error> {
    for path in files {
        let text = fs::read_to_string(path).map_err(Error::read(path))?;
        check(path, &text)?;
        if String::from_utf8_lossy(&bundle).contains(text.trim()) {
            continue;
        }
        if !bundle.is_empty() && !bundle.ends_with(b"\n") {
            bundle.push(b'\n');
        }
        bundle.extend(text.as_bytes());
    }
    Ok(bundle)
}

/// Refuses a file without certificates, with a damaged one, or with a private key.
fn check(path: &Path, text: &str) -> Result<(), Error> {
    let bad = |reason: String| Error::BadCertificate { path: path.to_owned(), reason };
    if text.contains(PRIVATE_KEY) {
        let reason =
            "it has a private key, which everybody who has the image could read: give the certificate alone";
        return Err(bad(reason.to_owned()));
    }
    let mut count = 0;
    for certificate in CertificateDer::pem_slice_iter(text.as_bytes()) {
        count += 1;
        let certificate = certificate
            .map_err(|_| bad(format!("certificate {count} is damaged: its PEM cannot be decoded")))?;
        let whole = X509Certificate::from_der(&certificate).is_ok_and(|(rest, _)| rest.is_empty());
        if !whole {
            return Err(bad(format!(
                "certificate {count} is damaged: what its PEM holds is no X.509 certificate"
            )));
        }
    }
    if count == 0 { Err(Error::NoCertificate { path: path.to_owned() }) } else { Ok(()) }
}
