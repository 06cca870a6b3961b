//! Private keys.
//!
//! Owns: making Ed25519 and ECDSA keys, reading every key that Go's tools write, writing each with the label that they
//! use, handing a key to rcgen and rustls. Does not: make RSA keys (ring cannot).
//! Wiped on drop, no `Debug`. Fails by: [`PkiError`] without key material.
//! Source: RFC 5958 (PKCS#8), RFC 5915 (SEC1), RFC 8410 (Ed25519); docs/users/pki.md.

use super::{
    PkiError,
    der::{OCTET_STRING, SEQUENCE, der, element},
    pem,
};
use config::Secret;
use rcgen::{KeyPair, PublicKeyData};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use zeroize::Zeroizing;

/// A key in PKCS#8 form. It cannot be printed by accident:
///
/// ```compile_fail
/// fn printed<T: std::fmt::Debug>() {}
/// printed::<api::pki::PrivateKey>();
/// ```
#[derive(Clone)]
pub struct PrivateKey {
    pkcs8: Zeroizing<Vec<u8>>,
}

/// PKCS#8 version 1 of an Ed25519 key up to its 32 byte seed, as Go writes it.
const ED25519_PREFIX: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];
const OID_ED25519: &[u8] = &[0x06, 0x03, 0x2b, 0x65, 0x70];
const OID_EC_PUBLIC_KEY: &[u8] = &[0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const OID_P256: &[u8] = &[0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const OID_P384: &[u8] = &[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x22];
const OID_RSA: &[u8] = &[0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];

/// Kinds of keys that are made here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// For the node API.
    Ed25519,
    /// On P-256, for Kubernetes and etcd.
    Ecdsa,
}

impl PrivateKey {
    /// A fresh key of the given kind.
    ///
    /// # Errors
    /// [`PkiError::Make`] if the system gives no random bytes.
    pub fn generate_with(algorithm: Algorithm) -> Result<Self, PkiError> {
        match algorithm {
            Algorithm::Ed25519 => Self::generate(),
            Algorithm::Ecdsa => {
                let failed =
                    |e: rcgen::Error| PkiError::Make { what: "a private key", reason: e.to_string() };
                let pair = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(failed)?;
                let pair = Zeroizing::new(pair);
                Ok(Self { pkcs8: Zeroizing::new(pair.serialize_der()) })
            }
        }
    }

    /// The kind, for keys of a CA whose leaves follow it.
    pub(super) fn algorithm(&self) -> Algorithm {
        if self.has(OID_ED25519) { Algorithm::Ed25519 } else { Algorithm::Ecdsa }
    }

    /// A fresh Ed25519 key.
    ///
    /// # Errors
    /// [`PkiError::Make`] if the system gives no random bytes.
    pub fn generate() -> Result<Self, PkiError> {
        let mut seed = Zeroizing::new([0_u8; 32]);
        rustls::crypto::ring::default_provider()
            .secure_random
            .fill(seed.as_mut())
            .map_err(|_| PkiError::Make { what: "a private key", reason: "no random bytes".to_owned() })?;
        let mut pkcs8 = Zeroizing::new(ED25519_PREFIX.to_vec());
        pkcs8.extend_from_slice(seed.as_ref());
        Ok(Self { pkcs8 })
    }

    /// Reads the first block whose label ends in `PRIVATE KEY`: PKCS#8, SEC1 (`EC`) or PKCS#1 (`RSA`).
    ///
    /// # Errors
    /// [`PkiError::Pem`] without such a block, [`PkiError::Unusable`] if it is no key that we can sign with.
    pub fn from_pem(what: &'static str, text: &str) -> Result<Self, PkiError> {
        let block = pem::blocks(text)
            .map_err(|reason| PkiError::Pem { what, reason })?
            .into_iter()
            .find(|b| b.label.ends_with("PRIVATE KEY"))
            .ok_or(PkiError::Pem { what, reason: "there is no PRIVATE KEY block" })?;
        let pkcs8 = match block.label.as_str() {
            "EC PRIVATE KEY" => {
                sec1_to_pkcs8(&block.der).ok_or_else(|| unsupported(what, "an unknown curve"))?
            }
            "RSA PRIVATE KEY" => pkcs8(&[OID_RSA, &[0x05, 0x00]].concat(), &block.der),
            "ENCRYPTED PRIVATE KEY" => return Err(unsupported(what, "an encrypted key")),
            _ => block.der,
        };
        let key = Self { pkcs8 };
        key.signer(what).map(|_| key)
    }

    /// PEM text with the label and form that both client generations write: PKCS#8 for Ed25519, SEC1 for ECDSA,
    /// PKCS#1 for RSA.
    pub fn to_pem(&self) -> Secret {
        let text = if self.has(OID_ED25519) {
            pem::encode("ED25519 PRIVATE KEY", &self.pkcs8)
        } else if let Some(sec1) = self.has(OID_EC_PUBLIC_KEY).then(|| pkcs8_to_sec1(&self.pkcs8)).flatten() {
            pem::encode("EC PRIVATE KEY", &sec1)
        } else if let Some(pkcs1) = self.has(OID_RSA).then(|| inside(&self.pkcs8)).flatten() {
            pem::encode("RSA PRIVATE KEY", pkcs1)
        } else {
            pem::encode("PRIVATE KEY", &self.pkcs8)
        };
        Secret::new(text.as_str())
    }

    /// PEM text of the public half (`PUBLIC KEY`, SubjectPublicKeyInfo).
    ///
    /// # Errors
    /// [`PkiError::Unusable`] if it is no key that we can sign with.
    pub fn public_pem(&self, what: &'static str) -> Result<String, PkiError> {
        let der = self.signer(what)?.subject_public_key_info();
        Ok(pem::encode("PUBLIC KEY", &der).as_str().to_owned())
    }

    /// Whether the algorithm's identifier, which comes first, holds `oid`.
    fn has(&self, oid: &[u8]) -> bool {
        self.pkcs8.windows(oid.len()).take(16).any(|w| w == oid)
    }

    /// The raw public key.
    pub(super) fn public_key(&self, what: &'static str) -> Result<Vec<u8>, PkiError> {
        Ok(self.signer(what)?.der_bytes().to_vec())
    }

    /// For rcgen, whose copy of the key's bytes is wiped with it.
    pub(super) fn signer(&self, what: &'static str) -> Result<Zeroizing<KeyPair>, PkiError> {
        KeyPair::try_from(&PrivatePkcs8KeyDer::from(self.pkcs8.as_slice()))
            .map(Zeroizing::new)
            .map_err(|e| unsupported(what, &format!("not a usable private key ({e})")))
    }

    /// For rustls.
    pub(crate) fn for_tls(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.pkcs8.to_vec()))
    }
}

fn unsupported(what: &'static str, reason: &str) -> PkiError {
    PkiError::Unusable { what, reason: reason.to_owned() }
}

fn sec1_to_pkcs8(sec1: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let has = |oid: &[u8]| sec1.windows(oid.len()).any(|w| w == oid);
    let curve = [OID_P256, OID_P384].into_iter().find(|oid| has(oid))?;
    Some(pkcs8(&[OID_EC_PUBLIC_KEY, curve].concat(), sec1))
}

/// The content of the octet string of PKCS#8: the key in its algorithm's own form.
fn inside(pkcs8: &[u8]) -> Option<&[u8]> {
    let (_, content, _) = element(pkcs8)?;
    let (_, _, after_version) = element(content)?;
    let (_, _, after_algorithm) = element(after_version)?;
    element(after_algorithm).filter(|(tag, ..)| *tag == OCTET_STRING).map(|(_, key, _)| key)
}

/// SEC1 with the curve inside, as it must be where no algorithm stands around it.
fn pkcs8_to_sec1(pkcs8: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let curve = [OID_P256, OID_P384].into_iter().find(|oid| pkcs8.windows(oid.len()).any(|w| w == *oid))?;
    let sec1 = inside(pkcs8)?;
    let (_, content, _) = element(sec1)?;
    let (_, _, after_version) = element(content)?;
    let (_, _, rest) = element(after_version)?;
    if rest.first() == Some(&0xa0) {
        return Some(Zeroizing::new(sec1.to_vec()));
    }
    let head = &content[..content.len() - rest.len()];
    let mut body = Zeroizing::new(head.to_vec());
    body.extend_from_slice(&der(0xa0, curve));
    body.extend_from_slice(rest);
    Some(der(SEQUENCE, &body))
}

/// `SEQUENCE { INTEGER 0, SEQUENCE algorithm, OCTET STRING key }`.
fn pkcs8(algorithm: &[u8], key: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut inner = Zeroizing::new(vec![0x02, 0x01, 0x00]);
    inner.extend_from_slice(&der(SEQUENCE, algorithm));
    inner.extend_from_slice(&der(OCTET_STRING, key));
    der(SEQUENCE, &inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_key_is_48_bytes_with_the_ed25519_label() {
        let text = PrivateKey::generate().unwrap().to_pem();
        assert!(text.expose_secret().starts_with("-----BEGIN ED25519 PRIVATE KEY-----\n"));
        let block = pem::blocks(text.expose_secret()).unwrap().remove(0);
        assert_eq!(block.der.len(), 48);
        assert!(PrivateKey::from_pem("a key", text.expose_secret()).is_ok());
    }

    /// Keys made with: `openssl genpkey` / `openssl ecparam -genkey -noout` / `openssl genrsa -traditional`.
    #[test]
    fn every_label_that_go_writes_is_read() {
        for (name, text) in [
            ("ec-p256", include_str!("../../testdata/ec-p256.key")),
            ("ec-p384", include_str!("../../testdata/ec-p384.key")),
            ("rsa", include_str!("../../testdata/rsa.key")),
            ("pkcs8-ed25519", include_str!("../../testdata/pkcs8-ed25519.key")),
            ("pkcs8-p256", include_str!("../../testdata/pkcs8-p256.key")),
        ] {
            let key = PrivateKey::from_pem("a key", text).map_err(|e| format!("{name}: {e}")).unwrap();
            rustls::crypto::ring::sign::any_supported_type(&key.for_tls()).expect(name);
        }
    }

    /// What openssl wrote is written again byte for byte, and our own ECDSA key has the same form.
    #[test]
    fn keys_are_written_as_go_writes_them() {
        for (label, text) in [
            ("EC PRIVATE KEY", include_str!("../../testdata/ec-p256.key")),
            ("EC PRIVATE KEY", include_str!("../../testdata/ec-p384.key")),
            ("RSA PRIVATE KEY", include_str!("../../testdata/rsa.key")),
        ] {
            let written = PrivateKey::from_pem("a key", text).unwrap().to_pem();
            let block = pem::blocks(written.expose_secret()).unwrap().remove(0);
            let original = pem::blocks(text).unwrap().into_iter().find(|b| b.label == label).unwrap();
            assert_eq!((block.label.as_str(), block.der), (label, original.der));
        }
        let fresh = PrivateKey::generate_with(Algorithm::Ecdsa).unwrap();
        let text = fresh.to_pem();
        assert!(text.expose_secret().starts_with("-----BEGIN EC PRIVATE KEY-----\n"));
        let again = PrivateKey::from_pem("a key", text.expose_secret()).unwrap();
        assert_eq!(again.public_key("it").unwrap(), fresh.public_key("it").unwrap());
        assert_eq!(again.algorithm(), Algorithm::Ecdsa);
    }

    #[test]
    fn what_is_no_key_is_refused_by_name() {
        let error = |text: &str| PrivateKey::from_pem("the CA key", text).err().map(|e| e.to_string());
        assert_eq!(error(""), Some("read the CA key: there is no PRIVATE KEY block".into()));
        let garbage = pem::encode("ED25519 PRIVATE KEY", &[1, 2, 3]);
        assert!(error(&garbage).unwrap().starts_with("use the CA key: not a usable private key"));
    }
}
