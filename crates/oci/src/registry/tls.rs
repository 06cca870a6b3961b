//! TLS with registries: whom to trust, and who we are.
//!
//! Owns: one configuration a host, made when it is first spoken to.
//! Fails by: a fault that does not pass: a certificate that is not trusted now is not trusted in a second either.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::client::TlsStream;
use zeroize::Zeroizing;

use super::exchange::Fault;
use super::{Host, Settings};

/// The configurations by host and port.
#[derive(Default)]
pub(super) struct Connectors {
    known: Mutex<BTreeMap<String, Arc<ClientConfig>>>,
}

impl Connectors {
    /// Speaks TLS with a host; its settings are those of `authority`, host and port.
    pub(super) async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        settings: &Settings,
        authority: &str,
        host: &str,
        stream: S,
    ) -> Result<TlsStream<S>, Fault> {
        let config = self.config(settings, authority).map_err(Fault::Final)?;
        let name = ServerName::try_from(host.to_owned()).map_err(|e| Fault::Final(format!("{host}: {e}")))?;
        let connected = tokio_rustls::TlsConnector::from(config).connect(name, stream).await;
        connected.map_err(|error| {
            let text = format!("TLS with {host}: {error}");
            // rustls' own word is final; a connection that broke is not.
            if error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()) {
                Fault::Final(text)
            } else {
                Fault::Passing(text)
            }
        })
    }

    fn config(&self, settings: &Settings, authority: &str) -> Result<Arc<ClientConfig>, String> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(config) = known.get(authority) {
            return Ok(config.clone());
        }
        let host = settings.hosts.get(authority).cloned().unwrap_or_default();
        let config = Arc::new(make(settings, &host)?);
        known.insert(authority.to_owned(), config.clone());
        Ok(config)
    }
}

fn make(settings: &Settings, host: &Host) -> Result<ClientConfig, String> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?;
    let builder = if host.tls.insecure {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(Anyone(provider)))
    } else {
        builder.with_root_certificates(roots(settings, host)?)
    };
    let Some(identity) = &host.tls.identity else { return Ok(builder.with_no_client_auth()) };
    let certificates = CertificateDer::pem_slice_iter(identity.certificate.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| format!("our certificate: {e}"))?;
    // Keys of machine configs are labelled with their algorithm, and are PKCS #8 like the others.
    let key = Zeroizing::new(identity.key.replace(" ED25519 PRIVATE KEY", " PRIVATE KEY"));
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|_| "our key cannot be read")?;
    builder.with_client_auth_cert(certificates, key).map_err(|e| format!("our certificate: {e}"))
}

fn roots(settings: &Settings, host: &Host) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = &settings.authorities {
        let found =
            CertificateDer::pem_file_iter(path).map_err(|e| format!("read {}: {e}", path.display()))?;
        roots.add_parsable_certificates(found.flatten());
    }
    for certificate in CertificateDer::pem_slice_iter(host.tls.authorities.as_bytes()) {
        let certificate = certificate.map_err(|e| format!("the authority in the config: {e}"))?;
        roots.add(certificate).map_err(|e| format!("the authority in the config: {e}"))?;
    }
    Ok(roots)
}

/// Takes any certificate, as `insecureSkipVerify` says; the signature must still be that of its key.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
