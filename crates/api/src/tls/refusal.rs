//! Why a peer was refused, in words.
//!
//! Owns: the sentences for certificate errors and alerts. Source: RFC 8446 §6.2 (alerts).

use rustls::{AlertDescription, CertificateError, Error};
use std::{fmt, io, net::SocketAddr};

/// A peer that was not let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Its address.
    pub peer: SocketAddr,
    /// Why.
    pub reason: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "refused {}: {}", self.peer, self.reason)
    }
}

/// The reason for a failed handshake or a broken connection.
pub fn reason(error: &io::Error) -> String {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(tls) => tls_reason(tls),
        None => error.to_string(),
    }
}

fn tls_reason(error: &Error) -> String {
    match error {
        Error::NoCertificatesPresented => "no certificate was shown".to_owned(),
        Error::InvalidCertificate(e) => certificate_reason(e).unwrap_or_else(|| error.to_string()),
        Error::AlertReceived(alert) => alert_reason(*alert),
        other => other.to_string(),
    }
}

fn certificate_reason(error: &CertificateError) -> Option<String> {
    Some(match error {
        CertificateError::Expired => "the certificate has expired".to_owned(),
        CertificateError::ExpiredContext { not_after, time } => {
            let ago = time.as_secs().saturating_sub(not_after.as_secs());
            format!("the certificate expired {ago} s ago")
        }
        CertificateError::NotValidYet => "the certificate is not valid yet; compare the clocks".to_owned(),
        CertificateError::NotValidYetContext { time, not_before } => {
            let wait = not_before.as_secs().saturating_sub(time.as_secs());
            format!("the certificate becomes valid in {wait} s; compare the clocks")
        }
        CertificateError::UnknownIssuer => "the certificate is signed by another CA".to_owned(),
        // Every cluster's CA has the same name, so a stranger's certificate is found out by its signature.
        CertificateError::BadSignature => {
            "the certificate is signed by another CA of the same name".to_owned()
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "the certificate is not made for this end of a connection".to_owned()
        }
        CertificateError::NotValidForName => "the certificate is not made for this address".to_owned(),
        CertificateError::NotValidForNameContext { expected, presented } => {
            let names = if presented.is_empty() { "no name".to_owned() } else { presented.join(", ") };
            format!("the certificate is not made for {}; it names {names}", expected.to_str())
        }
        _ => return None,
    })
}

/// What the other end said before it closed.
fn alert_reason(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::CertificateRequired => "it asks for a client certificate".to_owned(),
        AlertDescription::CertificateExpired => "it says that our certificate has expired".to_owned(),
        AlertDescription::UnknownCA => "it does not know the CA that signed our certificate".to_owned(),
        AlertDescription::BadCertificate | AlertDescription::UnsupportedCertificate => {
            "it does not accept our certificate".to_owned()
        }
        AlertDescription::DecryptError => {
            "our certificate is signed by another CA than the one it knows by that name".to_owned()
        }
        other => format!("it ended the connection with the TLS alert {other:?}"),
    }
}
