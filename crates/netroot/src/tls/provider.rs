//! The cryptography of init's TLS, in as few bytes as PID 1 can be.
//!
//! Owns: the choice, all of it ring's: what every server of TLS 1.3 must know (AES-128-GCM, P-256), AES-256-GCM, and
//! certificates of every kind that authorities sign with.
//! Does not: hold private keys, speak QUIC, or know ChaCha20 and X25519: P-256 is there for certificates anyway, and the
//! table of another curve is 25 kB.
//! Source: RFC 8446 §9.1; docs/decisions/0012.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use rustls::crypto::ring::cipher_suite::{TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384};
use rustls::crypto::ring::kx_group::SECP256R1;
use rustls::crypto::{CryptoProvider, GetRandomFailed, KeyProvider, SecureRandom, WebPkiSupportedAlgorithms};
use rustls::pki_types::PrivateKeyDer;
use rustls::sign::SigningKey;
use rustls::{CipherSuiteCommon, Error, SignatureScheme, SupportedCipherSuite, Tls13CipherSuite};
use webpki::ring as algorithms;

/// All of it.
pub(super) fn provider() -> CryptoProvider {
    CryptoProvider {
        cipher_suites: Vec::from([
            without_quic(TLS13_AES_256_GCM_SHA384),
            without_quic(TLS13_AES_128_GCM_SHA256),
        ]),
        kx_groups: Vec::from([SECP256R1]),
        signature_verification_algorithms: SIGNATURES,
        secure_random: &Kernel,
        key_provider: &NoKeys,
    }
}

/// QUIC's part of a suite would bring its code along. One small block for each suite stays for ever.
fn without_quic(suite: SupportedCipherSuite) -> SupportedCipherSuite {
    let Some(suite) = suite.tls13() else { return suite };
    let common = CipherSuiteCommon {
        suite: suite.common.suite,
        hash_provider: suite.common.hash_provider,
        confidentiality_limit: suite.common.confidentiality_limit,
    };
    let (hkdf_provider, aead_alg) = (suite.hkdf_provider, suite.aead_alg);
    SupportedCipherSuite::Tls13(Box::leak(Box::new(Tls13CipherSuite {
        common,
        hkdf_provider,
        aead_alg,
        quic: None,
    })))
}

/// rustls' own table for ring, but for RSA without parameters, which no authority writes.
static SIGNATURES: WebPkiSupportedAlgorithms = WebPkiSupportedAlgorithms {
    all: &[
        algorithms::ECDSA_P256_SHA256,
        algorithms::ECDSA_P256_SHA384,
        algorithms::ECDSA_P384_SHA256,
        algorithms::ECDSA_P384_SHA384,
        algorithms::ED25519,
        algorithms::RSA_PSS_2048_8192_SHA256_LEGACY_KEY,
        algorithms::RSA_PSS_2048_8192_SHA384_LEGACY_KEY,
        algorithms::RSA_PSS_2048_8192_SHA512_LEGACY_KEY,
        algorithms::RSA_PKCS1_2048_8192_SHA256,
        algorithms::RSA_PKCS1_2048_8192_SHA384,
        algorithms::RSA_PKCS1_2048_8192_SHA512,
    ],
    mapping: &[
        (
            SignatureScheme::ECDSA_NISTP384_SHA384,
            &[algorithms::ECDSA_P384_SHA384, algorithms::ECDSA_P256_SHA384],
        ),
        (
            SignatureScheme::ECDSA_NISTP256_SHA256,
            &[algorithms::ECDSA_P256_SHA256, algorithms::ECDSA_P384_SHA256],
        ),
        (SignatureScheme::ED25519, &[algorithms::ED25519]),
        (SignatureScheme::RSA_PSS_SHA512, &[algorithms::RSA_PSS_2048_8192_SHA512_LEGACY_KEY]),
        (SignatureScheme::RSA_PSS_SHA384, &[algorithms::RSA_PSS_2048_8192_SHA384_LEGACY_KEY]),
        (SignatureScheme::RSA_PSS_SHA256, &[algorithms::RSA_PSS_2048_8192_SHA256_LEGACY_KEY]),
        (SignatureScheme::RSA_PKCS1_SHA512, &[algorithms::RSA_PKCS1_2048_8192_SHA512]),
        (SignatureScheme::RSA_PKCS1_SHA384, &[algorithms::RSA_PKCS1_2048_8192_SHA384]),
        (SignatureScheme::RSA_PKCS1_SHA256, &[algorithms::RSA_PKCS1_2048_8192_SHA256]),
    ],
};

/// The kernel's random numbers.
#[derive(Debug)]
struct Kernel;

impl SecureRandom for Kernel {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), GetRandomFailed> {
        getrandom::getrandom(bytes).map_err(|_| GetRandomFailed)
    }
}

/// Clients here prove nothing of themselves.
#[derive(Debug)]
struct NoKeys;

impl KeyProvider for NoKeys {
    fn load_private_key(&self, _: PrivateKeyDer<'static>) -> Result<Arc<dyn SigningKey>, Error> {
        Err(Error::General("this client has no keys".into()))
    }
}
