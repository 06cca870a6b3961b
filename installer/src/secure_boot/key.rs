//! A key with its certificate.

use std::fs;
use std::path::Path;

use ring::rand::SystemRandom;
use ring::rsa::KeyPair;
use ring::signature::RSA_PKCS1_SHA256;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;
use zeroize::Zeroizing;

use super::{Error, der};

/// What messages call the two.
const KEY: &str = "signing key";
const CERTIFICATE: &str = "certificate of the signing key";
/// What encrypted keys have in their text, in both forms that openssl writes.
const ENCRYPTED: [&str; 2] = ["-----BEGIN ENCRYPTED PRIVATE KEY-----", "Proc-Type: 4,ENCRYPTED"];
/// The first byte of DER.
const SEQUENCE: u8 = 0x30;

/// An RSA key and the certificate that firmware will know it by.
pub struct Signer {
    key: KeyPair,
    certificate: CertificateDer<'static>,
    /// Issuer and serial number, as messages name a certificate.
    name: Vec<u8>,
}

impl Signer {
    /// Reads both from files.
    ///
    /// # Errors
    /// [`Error::Read`] for a file that cannot be read, [`Error::Key`] with the file for what cannot be used.
    pub fn read(key: &Path, certificate: &Path) -> Result<Self, Error> {
        let text = |path: &Path, what: &'static str, other: &str| {
            let bytes = fs::read(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
            String::from_utf8(bytes).map_err(|error| {
                let is_der = error.as_bytes().first() == Some(&SEQUENCE);
                let name = path.display();
                let reason = if is_der {
                    format!("{name} is in DER form, not in PEM: openssl {other} -inform der -in {name} -out {name}.pem")
                } else {
                    format!("{name} is no text, so not PEM")
                };
                Error::Key { what, reason }
            })
        };
        let key_text = Zeroizing::new(text(key, KEY, "pkey")?);
        if ENCRYPTED.iter().any(|mark| key_text.contains(mark)) {
            let name = key.display();
            let reason = format!(
                "{name} is encrypted with a passphrase: decrypt it where only you read it: openssl pkey -in {name} -out \
                 decrypted.pem"
            );
            return Err(Error::Key { what: KEY, reason });
        }
        Self::from_pem(&key_text, &text(certificate, CERTIFICATE, "x509")?).map_err(|error| match error {
            Error::Key { what, reason } => {
                let path = if what == KEY { key } else { certificate };
                Error::Key { what, reason: format!("{}: {reason}", path.display()) }
            }
            other => other,
        })
    }

    /// Reads both from PEM text.
    ///
    /// # Errors
    /// [`Error::Key`] says which of them cannot be used, or that they do not belong together.
    pub fn from_pem(key: &str, certificate: &str) -> Result<Self, Error> {
        let no_key = |reason: String| Error::Key { what: KEY, reason };
        let bad = |reason: String| Error::Key { what: CERTIFICATE, reason };
        let key = match PrivateKeyDer::from_pem_slice(key.as_bytes()) {
            Ok(PrivateKeyDer::Pkcs8(der)) => KeyPair::from_pkcs8(der.secret_pkcs8_der()),
            Ok(PrivateKeyDer::Pkcs1(der)) => KeyPair::from_der(der.secret_pkcs1_der()),
            Ok(_) => return Err(no_key("firmware knows RSA keys only".into())),
            Err(_) => return Err(no_key("no PEM block PRIVATE KEY is in it".into())),
        };
        let key = key.map_err(|why| {
            no_key(format!("it is no RSA key of 2048 to 4096 bits that can be used ({why}); make one with openssl req -newkey rsa:2048"))
        })?;
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes())
            .map_err(|_| bad("no PEM block CERTIFICATE is in it".into()))?;
        let (_, read) = X509Certificate::from_der(&certificate)
            .map_err(|why| bad(format!("it cannot be read ({why})")))?;
        if read.public_key().subject_public_key.data.as_ref() != key.public().as_ref() {
            return Err(bad("it belongs to another key".into()));
        }
        let serial = der::element(der::INTEGER, &[read.tbs_certificate.raw_serial()]);
        let name = der::element(der::SEQUENCE, &[read.tbs_certificate.issuer.as_raw(), &serial]);
        Ok(Self { key, certificate, name })
    }

    /// The certificate in DER.
    #[must_use]
    pub fn certificate(&self) -> &[u8] {
        &self.certificate
    }

    pub(super) fn name(&self) -> &[u8] {
        &self.name
    }

    /// PKCS #1 v1.5 with SHA-256, which is all that older firmware knows.
    pub(super) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let mut signature = vec![0; self.key.public().modulus_len()];
        let signed = self.key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut signature);
        signed.map_err(|_| Error::Key { what: KEY, reason: "it does not sign".into() })?;
        Ok(signature)
    }
}
