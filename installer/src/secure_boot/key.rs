//! A key with its certificate.

use ring::rand::SystemRandom;
use ring::rsa::KeyPair;
use ring::signature::RSA_PKCS1_SHA256;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use super::{Error, der};

/// An RSA key and the certificate that firmware will know it by.
pub struct Signer {
    key: KeyPair,
    certificate: CertificateDer<'static>,
    /// Issuer and serial number, as messages name a certificate.
    name: Vec<u8>,
}

impl Signer {
    /// Reads both from PEM text.
    ///
    /// # Errors
    /// [`Error::Key`] says which of them cannot be used, or that they do not belong together.
    pub fn from_pem(key: &str, certificate: &str) -> Result<Self, Error> {
        let no_key = |reason: String| Error::Key { what: "signing key", reason };
        let bad = |reason: String| Error::Key { what: "certificate of the signing key", reason };
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
        signed.map_err(|_| Error::Key { what: "signing key", reason: "it does not sign".into() })?;
        Ok(signature)
    }
}
