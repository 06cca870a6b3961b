//! A public key that images are signed with.

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, SubjectPublicKeyInfoDer};
use webpki::{EndEntityCert, RawPublicKeyEntity};

/// Ed25519, ECDSA on P-256 or P-384, or RSA from 2048 bits, alone or in a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key(Form);

/// The form that it was given in. Of a certificate only the key counts: who it belongs to is the config's word.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Form {
    Alone(SubjectPublicKeyInfoDer<'static>),
    Certified(CertificateDer<'static>),
}

/// Why a text is no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Neither of the two forms.
    #[error("no PEM block PUBLIC KEY or CERTIFICATE is in it")]
    Form,
    /// The block's content.
    #[error("the key in it cannot be read ({0})")]
    Content(String),
}

impl Key {
    /// Reads PEM text: the first public key or certificate in it.
    pub fn from_pem(text: &str) -> Result<Self, KeyError> {
        let content = |error: webpki::Error| KeyError::Content(format!("{error:?}"));
        if let Ok(key) = SubjectPublicKeyInfoDer::from_pem_slice(text.as_bytes()) {
            RawPublicKeyEntity::try_from(&key).map_err(content)?;
            return Ok(Self(Form::Alone(key)));
        }
        let certificate = CertificateDer::from_pem_slice(text.as_bytes()).map_err(|_| KeyError::Form)?;
        EndEntityCert::try_from(&certificate).map_err(content)?;
        Ok(Self(Form::Certified(certificate)))
    }

    /// Whether this key made the signature of the message. A key of a kind that is not supported made none.
    #[must_use]
    pub fn made(&self, signature: &[u8], message: &[u8]) -> bool {
        let algorithms = ring::default_provider().signature_verification_algorithms;
        algorithms.all.iter().any(|algorithm| match &self.0 {
            Form::Alone(key) => RawPublicKeyEntity::try_from(key)
                .is_ok_and(|key| key.verify_signature(*algorithm, message, signature).is_ok()),
            Form::Certified(certificate) => EndEntityCert::try_from(certificate)
                .is_ok_and(|end| end.verify_signature(*algorithm, message, signature).is_ok()),
        })
    }
}
