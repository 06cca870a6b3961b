//! The server's end.
//!
//! Owns: which clients are let in (a certificate of the CA, whatever other uses it also allows) and the server
//! certificate, which is replaced while running since it lives for a day only.
//! TLS 1.2 and 1.3; no resumption, so that a client that lost its right loses it with its connection.

use super::{ALPN, TlsError, provider, refused};
use crate::pki::{Identity, certificates};
use rustls::{
    RootCertStore, ServerConfig,
    server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier},
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
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(refused("TLS 1.2 and 1.3"))?;
    Ok(finish(builder.with_client_cert_verifier(verifier).with_cert_resolver(identities)))
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
