//! What a certificate says.
//!
//! Owns: reading subject CN and O (roles), validity, names, usages and the fingerprint. Does not: verify (`tls`).
//! Source: RFC 5280 §4; docs/users/pki.md (roles, fingerprint).

use super::{PkiError, certificates};
use base64::{Engine, engine::general_purpose::STANDARD};
use std::{
    net::IpAddr,
    time::{Duration, SystemTime},
};
use x509_parser::{extensions::GeneralName, prelude::X509Certificate, time::ASN1Time, x509::X509Name};

/// Longest time before its end in which a certificate ends soon.
const NOTICE: Duration = Duration::from_secs(30 * 86_400);

/// What a certificate says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFacts {
    /// First value of subject CN, empty if there is none.
    pub common_name: String,
    /// Values of subject O, empty ones left out.
    pub organizations: Vec<String>,
    /// The issuer's CN; its O where that is empty.
    pub issuer: String,
    /// First valid second.
    pub not_before: SystemTime,
    /// Last valid second.
    pub not_after: SystemTime,
    /// Addresses and DNS names.
    pub names: Vec<String>,
    /// Whether it may sign other certificates.
    pub is_ca: bool,
    /// Whether a server may show it.
    pub server_auth: bool,
    /// Whether a client may show it.
    pub client_auth: bool,
    /// base64 of SHA-256 over the public key's SubjectPublicKeyInfo.
    pub fingerprint: String,
    /// The raw public key.
    pub public_key: Vec<u8>,
}

impl CertificateFacts {
    /// Reads the first certificate of PEM text.
    ///
    /// # Errors
    /// [`PkiError::Pem`] or [`PkiError::Unusable`], naming `what`.
    pub fn from_pem(what: &'static str, text: &str) -> Result<Self, PkiError> {
        Self::from_der(what, &certificates(what, text)?[0])
    }

    /// Reads a certificate, for example the peer's on a connection.
    ///
    /// # Errors
    /// [`PkiError::Unusable`], naming `what`.
    pub fn from_der(what: &'static str, der: &[u8]) -> Result<Self, PkiError> {
        let (_, certificate) = x509_parser::parse_x509_certificate(der)
            .map_err(|e| PkiError::Unusable { what, reason: format!("not an X.509 certificate ({e})") })?;
        Ok(Self::of(&certificate))
    }

    fn of(certificate: &X509Certificate<'_>) -> Self {
        let usage = certificate.extended_key_usage().ok().flatten().map(|e| e.value);
        let constraints = certificate.basic_constraints().ok().flatten();
        Self {
            common_name: common_name(certificate.subject()),
            organizations: organizations(certificate.subject()),
            issuer: issuer(certificate.issuer()),
            not_before: system_time(certificate.validity().not_before),
            not_after: system_time(certificate.validity().not_after),
            names: names(certificate),
            is_ca: constraints.is_some_and(|c| c.value.ca),
            // Without the extension any use is allowed.
            server_auth: usage.as_ref().is_none_or(|u| u.any || u.server_auth),
            client_auth: usage.as_ref().is_none_or(|u| u.any || u.client_auth),
            fingerprint: fingerprint(certificate.public_key().raw),
            public_key: certificate.public_key().subject_public_key.data.to_vec(),
        }
    }

    /// Time left until it is invalid; `None` if that has passed.
    pub fn remaining(&self) -> Option<Duration> {
        self.not_after.duration_since(SystemTime::now()).ok()
    }
}

impl CertificateFacts {
    /// Whether it ends within the last tenth of its life, at most 30 days, or has ended.
    pub fn ends_soon(&self, now: SystemTime) -> bool {
        let Ok(left) = self.not_after.duration_since(now) else { return true };
        let life = self.not_after.duration_since(self.not_before).unwrap_or_default();
        left < NOTICE.min(life / 10)
    }
}

/// base64 of SHA-256.
fn fingerprint(spki: &[u8]) -> String {
    // ring's hash, through the cipher suite that both sides have anyway: no further dependency for one digest.
    let suite = rustls::crypto::ring::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256;
    let hash = suite.tls13().map(|s| s.common.hash_provider.hash(spki));
    hash.map_or_else(String::new, |h| STANDARD.encode(h.as_ref()))
}

fn common_name(name: &X509Name<'_>) -> String {
    let first = name.iter_common_name().find_map(|name| name.as_str().ok());
    first.unwrap_or_default().to_owned()
}

fn organizations(name: &X509Name<'_>) -> Vec<String> {
    let values = name.iter_organization().filter_map(|o| o.as_str().ok());
    values.filter(|o| !o.is_empty()).map(str::to_owned).collect()
}

fn issuer(name: &X509Name<'_>) -> String {
    let common = common_name(name);
    if common.is_empty() { organizations(name).join(", ") } else { common }
}

fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let extension = certificate.subject_alternative_name().ok().flatten();
    let names = extension.iter().flat_map(|e| &e.value.general_names);
    names
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            GeneralName::IPAddress(bytes) => address(bytes).map(|a| a.to_string()),
            _ => None,
        })
        .collect()
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

fn system_time(time: ASN1Time) -> SystemTime {
    let seconds = u64::try_from(time.timestamp()).unwrap_or(0);
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// testdata/client-multi-role.crt has O=os:reader and O=os:etcd:backup in one set, as Go writes several roles;
    /// the fingerprint is `openssl x509 -pubkey -noout | openssl pkey -pubin -outform der | sha256sum` in base64.
    #[test]
    fn facts_of_a_certificate_from_openssl() {
        let facts =
            CertificateFacts::from_pem("it", include_str!("../../testdata/client-multi-role.crt")).unwrap();
        assert_eq!(facts.organizations, ["os:reader", "os:etcd:backup"]);
        assert_eq!(facts.names, ["127.0.0.1", "admin.example.org"]);
        assert!(facts.client_auth && !facts.server_auth && !facts.is_ca);
        assert_eq!(facts.fingerprint, include_str!("../../testdata/client-multi-role.fingerprint").trim());
        assert_eq!(facts.common_name, "");
        let named =
            CertificateFacts::from_pem("it", include_str!("../../testdata/client-common-name.crt")).unwrap();
        assert_eq!(named.common_name, "jane\x1b[2J\u{202e} \"x\"");
    }

    #[test]
    fn garbage_is_refused() {
        assert!(matches!(CertificateFacts::from_der("it", &[0x30, 3]), Err(PkiError::Unusable { .. })));
    }
}
