//! The cryptography of init's TLS, in as few bytes as PID 1 can be.
//!
//! Owns: the choice: AES-GCM, X25519 and P-256, certificates of every kind that authorities sign with. ring does all of it but
//! P-256, whose table alone is a tenth of init: the crate p256 is in init already, for TPMs.
//! Does not: hold private keys, speak QUIC, or know ChaCha20: every server that has it has AES-GCM too.
//! Source: RFC 8446 §9.1; docs/decisions/0011.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use p256::ecdsa::signature::Verifier as _;
use p256::ecdsa::{Signature, VerifyingKey};
use p256::elliptic_curve::sec1::ToSec1Point;
use p256::{AffinePoint, NonZeroScalar, ProjectivePoint, PublicKey};
use rustls::crypto::ring::cipher_suite::{
    TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, TLS13_AES_128_GCM_SHA256,
    TLS13_AES_256_GCM_SHA384,
};
use rustls::crypto::ring::kx_group::X25519;
use rustls::crypto::{
    ActiveKeyExchange, CryptoProvider, GetRandomFailed, KeyProvider, SecureRandom, SharedSecret,
    SupportedKxGroup, WebPkiSupportedAlgorithms,
};
use rustls::pki_types::{
    AlgorithmIdentifier, InvalidSignature, PrivateKeyDer, SignatureVerificationAlgorithm, alg_id,
};
use rustls::sign::SigningKey;
use rustls::{
    CipherSuiteCommon, Error, NamedGroup, PeerMisbehaved, SignatureScheme, SupportedCipherSuite,
    Tls13CipherSuite,
};
use webpki::ring as algorithms;
use zeroize::Zeroizing;

/// Bytes of a number of P-256.
const NUMBER_BYTES: usize = 32;

/// All of it.
pub(super) fn provider() -> CryptoProvider {
    CryptoProvider {
        cipher_suites: Vec::from([
            without_quic(TLS13_AES_256_GCM_SHA384),
            without_quic(TLS13_AES_128_GCM_SHA256),
            TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
            TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
            TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
            TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        ]),
        kx_groups: Vec::from([X25519, &P256 as &dyn SupportedKxGroup]),
        signature_verification_algorithms: SIGNATURES,
        secure_random: &Kernel,
        key_provider: &NoKeys,
    }
}

/// QUIC's part of a suite would bring its code along. One small block for each suite stays for ever.
fn without_quic(suite: SupportedCipherSuite) -> SupportedCipherSuite {
    let SupportedCipherSuite::Tls13(suite) = suite else { return suite };
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

/// rustls' own table for ring, but for P-256.
static SIGNATURES: WebPkiSupportedAlgorithms = WebPkiSupportedAlgorithms {
    all: &[
        &P256Sha256,
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
        (SignatureScheme::ECDSA_NISTP384_SHA384, &[algorithms::ECDSA_P384_SHA384]),
        (SignatureScheme::ECDSA_NISTP256_SHA256, &[&P256Sha256, algorithms::ECDSA_P384_SHA256]),
        (SignatureScheme::ED25519, &[algorithms::ED25519]),
        (SignatureScheme::RSA_PSS_SHA512, &[algorithms::RSA_PSS_2048_8192_SHA512_LEGACY_KEY]),
        (SignatureScheme::RSA_PSS_SHA384, &[algorithms::RSA_PSS_2048_8192_SHA384_LEGACY_KEY]),
        (SignatureScheme::RSA_PSS_SHA256, &[algorithms::RSA_PSS_2048_8192_SHA256_LEGACY_KEY]),
        (SignatureScheme::RSA_PKCS1_SHA512, &[algorithms::RSA_PKCS1_2048_8192_SHA512]),
        (SignatureScheme::RSA_PKCS1_SHA384, &[algorithms::RSA_PKCS1_2048_8192_SHA384]),
        (SignatureScheme::RSA_PKCS1_SHA256, &[algorithms::RSA_PKCS1_2048_8192_SHA256]),
    ],
};

/// ECDSA of P-256 with SHA-256.
#[derive(Debug)]
struct P256Sha256;

impl SignatureVerificationAlgorithm for P256Sha256 {
    fn verify_signature(&self, key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), InvalidSignature> {
        let key = VerifyingKey::from_sec1_bytes(key).map_err(|_| InvalidSignature)?;
        let signature = Signature::from_der(signature).map_err(|_| InvalidSignature)?;
        key.verify(message, &signature).map_err(|_| InvalidSignature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::ECDSA_P256
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::ECDSA_SHA256
    }
}

/// Key agreement by P-256, for servers that may not use X25519.
#[derive(Debug)]
struct P256;

impl SupportedKxGroup for P256 {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        let secret = loop {
            let mut bytes = Zeroizing::new([0; NUMBER_BYTES]);
            Kernel.fill(bytes.as_mut_slice())?;
            // All but one in four thousand million are one.
            if let Some(secret) = Option::<NonZeroScalar>::from(NonZeroScalar::from_repr((*bytes).into())) {
                break Zeroizing::new(secret);
            }
        };
        let point = AffinePoint::from(ProjectivePoint::GENERATOR * **secret).to_sec1_point(false);
        Ok(Box::new(Half { secret, public: point.as_bytes().to_vec() }))
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::secp256r1
    }
}

/// Our half of an agreement.
struct Half {
    secret: Zeroizing<NonZeroScalar>,
    public: Vec<u8>,
}

impl ActiveKeyExchange for Half {
    fn complete(self: Box<Self>, peer: &[u8]) -> Result<SharedSecret, Error> {
        let misbehaved = || Error::from(PeerMisbehaved::InvalidKeyShare);
        let theirs = PublicKey::from_sec1_bytes(peer).map_err(|_| misbehaved())?;
        let shared = AffinePoint::from(theirs.to_projective() * **self.secret).to_sec1_point(false);
        shared.x().map(|x| SharedSecret::from(x.as_slice())).ok_or_else(misbehaved)
    }

    fn pub_key(&self) -> &[u8] {
        &self.public
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::secp256r1
    }
}

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
