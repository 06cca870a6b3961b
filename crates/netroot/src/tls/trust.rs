//! Whose certificates are believed, and at what time.
//!
//! Owns: the authorities that the initramfs brings, the rule for machines whose clock is wrong, what is said of a server
//! that is not believed.
//! Does not: ask for revocation: nobody answers before the network is there. What is fetched is compared with the root
//! manifest whoever it comes from.
//! Source: RFC 5280; docs/decisions/0012.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use core::fmt;
use core::time::Duration;

use once_cell::race::OnceBox;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, UnbufferedClientConnection, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::time_provider::TimeProvider;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, PeerIncompatible, RootCertStore,
    SignatureScheme,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use super::names::{self, Date, issuer, presented};
use super::provider::provider;

/// 2025-01-01, the one time that builds know: a clock before it is wrong.
pub const EARLIEST_S: u64 = 1_735_689_600;

/// Authorities, and the time at which certificates are checked.
#[derive(Debug, Clone)]
pub struct Trust {
    provider: Arc<CryptoProvider>,
    authorities: Arc<WebPkiServerVerifier>,
    count: usize,
    passed_over: usize,
    now: UnixTime,
    is_clock_right: bool,
}

/// Why there is nobody to trust.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrustError {
    /// The text is not PEM.
    Pem,
    /// No certificate in it can be an authority.
    Empty,
}

impl fmt::Display for TrustError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pem => "has a certificate that is not PEM",
            Self::Empty => "has no certificate of an authority",
        })
    }
}

impl core::error::Error for TrustError {}

impl Trust {
    /// The authorities of a PEM file. `clock_s`: seconds since 1970, as far as the clock is right.
    pub fn from_pem(text: &[u8], clock_s: u64) -> Result<Self, TrustError> {
        let mut roots = RootCertStore::empty();
        let mut passed_over = 0;
        for certificate in CertificateDer::pem_slice_iter(text) {
            let certificate = certificate.map_err(|_| TrustError::Pem)?;
            passed_over += usize::from(roots.add(certificate).is_err());
        }
        let count = roots.len();
        let provider = Arc::new(provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let authorities = verifier.build().map_err(|_| TrustError::Empty)?;
        let is_clock_right = clock_s >= EARLIEST_S;
        let now = UnixTime::since_unix_epoch(Duration::from_secs(clock_s.max(EARLIEST_S)));
        Ok(Self { provider, authorities, count, passed_over, now, is_clock_right })
    }

    /// How many authorities there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Certificates that can be none.
    #[must_use]
    pub fn passed_over(&self) -> usize {
        self.passed_over
    }

    /// Whether the clock can be right.
    #[must_use]
    pub fn is_clock_right(&self) -> bool {
        self.is_clock_right
    }

    /// A connection to be, and what judges it.
    pub(super) fn connect(&self, host: &str) -> Result<(UnbufferedClientConnection, Arc<Verifier>), String> {
        let failed = |error: Error| format!("TLS: {error}");
        let name = ServerName::try_from(host).map_err(|_| format!("{host} is no name for TLS"))?.to_owned();
        let verifier = Arc::new(Verifier {
            host: host.to_string(),
            authorities: self.authorities.clone(),
            is_clock_right: self.is_clock_right,
            refusal: OnceBox::new(),
        });
        let mut config = ClientConfig::builder_with_details(self.provider.clone(), Arc::new(Still(self.now)))
            .with_protocol_versions(&[&TLS13])
            .map_err(failed)?
            .dangerous()
            .with_custom_certificate_verifier(verifier.clone())
            .with_no_client_auth();
        config.resumption = Resumption::disabled();
        let connection = UnbufferedClientConnection::new(Arc::new(config), name).map_err(failed)?;
        Ok((connection, verifier))
    }
}

/// The time when init looked: a download takes minutes.
#[derive(Debug)]
struct Still(UnixTime);

impl TimeProvider for Still {
    fn current_time(&self) -> Option<UnixTime> {
        Some(self.0)
    }
}

/// Judges one server.
#[derive(Debug)]
pub(super) struct Verifier {
    host: String,
    authorities: Arc<WebPkiServerVerifier>,
    is_clock_right: bool,
    refusal: OnceBox<String>,
}

impl Verifier {
    /// Why it was not believed.
    pub(super) fn refusal(&self) -> Option<&str> {
        self.refusal.get().map(String::as_str)
    }

    /// What is wrong, with whom, and what to do.
    fn explain(&self, error: &Error, leaf: &CertificateDer<'_>) -> String {
        let (host, from) = (&self.host, issuer(leaf));
        let what = format!("its certificate for {host} (issued by {from})");
        match error {
            Error::InvalidCertificate(CertificateError::UnknownIssuer) => format!(
                "{what} is not trusted: its authority is not in this image; put the authority's certificate there with \
                 image build --certificate"
            ),
            Error::InvalidCertificate(CertificateError::ExpiredContext { time, not_after }) => {
                format!("{what} was valid until {}, and today is {}", Date(*not_after), Date(*time))
            }
            Error::InvalidCertificate(CertificateError::NotValidYetContext { time, not_before }) => {
                format!(
                    "{what} is valid from {} on, and today is {}; is the clock right?",
                    Date(*not_before),
                    Date(*time)
                )
            }
            Error::InvalidCertificate(CertificateError::NotValidForNameContext {
                presented: names, ..
            }) => {
                format!("its certificate (issued by {from}) is not for {host} but for {}", presented(names))
            }
            _ if names::is_self_issued(leaf) => format!(
                "{what} is not trusted: it is an authority's own, and not a server's; have the server's signed by an \
                 authority of this image"
            ),
            error => format!("{what} is not valid: {error}"),
        }
    }
}

impl ServerCertVerifier for Verifier {
    /// A clock that is behind the build says nothing of a certificate's first day: each in the chain counts from its own on.
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verify = |now| {
            self.authorities.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
        };
        let mut verified = verify(now);
        let mut younger = if self.is_clock_right { 0 } else { intermediates.len() + 1 };
        while let Err(Error::InvalidCertificate(CertificateError::NotValidYetContext { not_before, .. })) =
            &verified
            && younger > 0
        {
            younger -= 1;
            verified = verify(*not_before);
        }
        verified.inspect_err(|error| {
            // There is one certificate a connection.
            let _ = self.refusal.set(Box::new(self.explain(error, end_entity)));
        })
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authorities.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> alloc::vec::Vec<SignatureScheme> {
        self.authorities.supported_verify_schemes()
    }
}
