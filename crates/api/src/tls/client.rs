//! The client's end.
//!
//! Owns: whom a client trusts: the CA of its context and nothing else, a known fingerprint, or, on a node in
//! maintenance, anybody. Does not: choose among these (`client`, and the flags of the CLI).

use super::{ALPN, TlsError, provider, refused};
use crate::pki::{CertificateFacts, Identity, certificates};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        Resumption, WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use std::sync::Arc;

/// Which server a client believes.
#[derive(Debug, Clone, Copy)]
pub enum Trust<'a> {
    /// One whose certificate is signed by this CA (PEM) and names the address.
    Authority(&'a str),
    /// One whose public key has one of these fingerprints.
    Fingerprints(&'a [String]),
    /// Any: for a node in maintenance, which nobody can know yet.
    Anyone,
}

/// A client, with `identity` as its certificate.
///
/// # Errors
/// [`TlsError`] for an unusable CA or certificate.
pub fn client(trust: Trust<'_>, identity: Option<&Identity>) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = provider();
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(refused("TLS 1.2 and 1.3"))?
        .dangerous()
        .with_custom_certificate_verifier(verifier(trust, &provider)?);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let chain = certificates("the client certificate", &identity.certificate)?;
            builder
                .with_client_auth_cert(chain, identity.key.for_tls())
                .map_err(refused("the client certificate"))?
        }
    };
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

fn verifier(
    trust: Trust<'_>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, TlsError> {
    let fingerprints = match trust {
        Trust::Authority(pem) => return by_authority(pem, provider),
        Trust::Fingerprints(known) => Some(known.to_vec()),
        Trust::Anyone => None,
    };
    Ok(Arc::new(ByFingerprint { fingerprints, provider: Arc::clone(provider) }))
}

fn by_authority(pem: &str, provider: &Arc<CryptoProvider>) -> Result<Arc<dyn ServerCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("the CA of the context", pem)? {
        roots.add(certificate).map_err(refused("the CA of the context"))?;
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .build()
        .map_err(|e| TlsError::Refused { what: "the CA of the context", reason: e.to_string() })?;
    Ok(verifier)
}

/// Accepts a certificate by its public key; the handshake still proves that the server holds the private one.
#[derive(Debug)]
struct ByFingerprint {
    /// `None` accepts every key.
    fingerprints: Option<Vec<String>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for ByFingerprint {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(known) = &self.fingerprints else { return Ok(ServerCertVerified::assertion()) };
        let facts = CertificateFacts::from_der("the server certificate", end_entity)
            .map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
        if known.contains(&facts.fingerprint) {
            return Ok(ServerCertVerified::assertion());
        }
        Err(Error::General(format!("the server's fingerprint is {}, which was not given", facts.fingerprint)))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
