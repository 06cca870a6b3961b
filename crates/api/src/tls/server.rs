//! The server's end.
//!
//! Owns: which clients are let in (a certificate of the CA, whatever other uses it also allows) and the server
//! certificate, which is replaced while running since it lives for a day only.
//! TLS 1.2 and 1.3; no resumption, so that a client that lost its right loses it with its connection.

use super::{ALPN, TlsError, provider, refused};
use crate::pki::{Identity, certificates};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    pki_types::{CertificateDer, UnixTime},
    server::{
        ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    sign::CertifiedKey,
};
use std::sync::{Arc, RwLock};

/// The server's certificate, replaceable while running.
#[derive(Debug)]
pub struct Identities {
    current: RwLock<Arc<CertifiedKey>>,
}

impl Identities {
    /// Starts with `identity`.
    ///
    /// # Errors
    /// [`TlsError`] if rustls can not serve with it.
    pub fn new(identity: &Identity) -> Result<Arc<Self>, TlsError> {
        Ok(Arc::new(Self { current: RwLock::new(certified(identity)?) }))
    }

    /// Serves new connections with `identity`; existing ones are not touched.
    ///
    /// # Errors
    /// [`TlsError`]; the old identity then stays.
    pub fn replace(&self, identity: &Identity) -> Result<(), TlsError> {
        let next = certified(identity)?;
        *self.current.write().unwrap_or_else(std::sync::PoisonError::into_inner) = next;
        Ok(())
    }
}

impl ResolvesServerCert for Identities {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current.read().unwrap_or_else(std::sync::PoisonError::into_inner)))
    }
}

fn certified(identity: &Identity) -> Result<Arc<CertifiedKey>, TlsError> {
    let chain = certificates("the server certificate", &identity.certificate)?;
    let key = rustls::crypto::ring::sign::any_supported_type(&identity.key.for_tls())
        .map_err(refused("the server's key"))?;
    Ok(Arc::new(CertifiedKey::new(chain, key)))
}

/// A server that demands a client certificate signed by the CA in `authority` (PEM; several during a rotation).
///
/// # Errors
/// [`TlsError`] if `authority` holds no usable CA.
pub fn server(authority: &str, identities: Arc<Identities>) -> Result<Arc<ServerConfig>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("the API's CA", authority)? {
        roots.add(certificate).map_err(refused("the API's CA"))?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
        .build()
        .map_err(|e| TlsError::Refused { what: "the API's CA", reason: e.to_string() })?;
    let verifier = Arc::new(KnownAuthority(verifier));
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(refused("TLS 1.2 and 1.3"))?;
    Ok(finish(builder.with_client_cert_verifier(verifier).with_cert_resolver(identities)))
}

/// Says of a certificate of a stranger's CA that its CA is not known. All clusters' CAs have the same name, so it is found out
/// by its signature, and the alert for that (`decrypt_error`) has clients look for a broken connection.
#[derive(Debug)]
struct KnownAuthority(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for KnownAuthority {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.0.verify_client_cert(leaf, between, now).map_err(|error| match error {
            rustls::Error::InvalidCertificate(CertificateError::BadSignature) => {
                CertificateError::UnknownIssuer.into()
            }
            other => other,
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// A server that asks for no client certificate: trustd, which checks a token, and maintenance mode.
///
/// # Errors
/// [`TlsError`].
pub fn server_without_clients(identities: Arc<Identities>) -> Result<Arc<ServerConfig>, TlsError> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(refused("TLS 1.2 and 1.3"))?;
    Ok(finish(builder.with_no_client_auth().with_cert_resolver(identities)))
}

fn finish(mut config: ServerConfig) -> Arc<ServerConfig> {
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Arc::new(config)
}
