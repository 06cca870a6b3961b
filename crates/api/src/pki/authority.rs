//! The certificate authority of the node API and what it signs.
//!
//! Owns: the shape of CA, server and client certificates, and the rule that a request decides nothing but its key
//! and names. Does not: decide who may ask.
//! Source: shared/spec/api-wire-facts.md §3.2 (profiles), §3.10 (trustd).

use super::{Algorithm, CertificateFacts, PkiError, PrivateKey, certificates, pem};
use config::Secret;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use std::{
    net::IpAddr,
    time::{Duration, SystemTime},
};
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer, X509CertificationRequest};
use zeroize::Zeroizing;

/// Validity of a CA and of an administrator's certificate: ten years.
pub const CA_LIFETIME: Duration = Duration::from_secs(87_600 * 3600);
/// Validity of a node's certificate: 24 hours, renewed at half of it.
pub const LEAF_LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// Certificates are valid from this long ago, so that a node whose clock is behind ours accepts them.
pub const BACKDATE: Duration = Duration::from_secs(3600);

/// The object of errors about requests.
const REQUEST: &str = "the certificate request";

/// From when to when a certificate is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetime {
    /// First valid second.
    pub not_before: SystemTime,
    /// Last valid second.
    pub not_after: SystemTime,
}

impl Lifetime {
    /// From [`BACKDATE`] ago until `duration` from now.
    pub fn from_now(duration: Duration) -> Self {
        let now = SystemTime::now();
        Self { not_before: now - BACKDATE, not_after: now + duration }
    }
}

/// On which end of a connection a certificate may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    /// Server only: what trustd hands out. A certificate without a role counts as admin, so a node that could use
    /// its certificate as a client would be one.
    Server,
    /// Client only: administrators.
    Client,
    /// Both: nodes that forward requests to others, as control plane nodes do.
    Both,
}

/// What a certificate shall say.
#[derive(Debug, Clone)]
pub struct Leaf {
    /// Subject O: a role such as `os:admin`. `None` leaves the subject empty.
    pub organization: Option<String>,
    /// Addresses and DNS names.
    pub names: Vec<String>,
    /// Ends of a connection.
    pub usage: Usage,
    /// Validity.
    pub lifetime: Lifetime,
}

/// A certificate with its key.
#[derive(Clone)]
pub struct Identity {
    /// PEM, leaf first.
    pub certificate: String,
    /// The key of the first certificate.
    pub key: PrivateKey,
}

impl Identity {
    /// Reads a pair and checks that it is one.
    ///
    /// # Errors
    /// [`PkiError::Pem`], [`PkiError::Unusable`] or [`PkiError::Mismatch`], naming `what`.
    pub fn from_pem(what: &'static str, certificate: &str, key: &Secret) -> Result<Self, PkiError> {
        let key = PrivateKey::from_pem(what, key.expose_secret())?;
        let facts = CertificateFacts::from_pem(what, certificate)?;
        if facts.public_key != key.public_key(what)? {
            return Err(PkiError::Mismatch { what });
        }
        Ok(Self { certificate: certificate.to_owned(), key })
    }
}

/// A CA that can sign.
pub struct Authority {
    identity: Identity,
}

impl Authority {
    /// A fresh Ed25519 CA with subject O=`organization`.
    ///
    /// # Errors
    /// [`PkiError::Make`].
    pub fn generate(organization: &str, lifetime: Lifetime) -> Result<Self, PkiError> {
        Self::generate_with(Algorithm::Ed25519, organization, lifetime)
    }

    /// A fresh CA with a key of the given kind: ECDSA for Kubernetes and etcd.
    ///
    /// # Errors
    /// [`PkiError::Make`].
    pub fn generate_with(
        algorithm: Algorithm,
        organization: &str,
        lifetime: Lifetime,
    ) -> Result<Self, PkiError> {
        const WHAT: &str = "the CA";
        let key = PrivateKey::generate_with(algorithm)?;
        let mut params = params(Some(organization), &[], lifetime)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign];
        params.extended_key_usages = usages(Usage::Both);
        let certificate = params.self_signed(&*key.signer(WHAT)?).map_err(made(WHAT))?.pem();
        Ok(Self { identity: Identity { certificate, key } })
    }

    /// An existing CA.
    ///
    /// # Errors
    /// As [`Identity::from_pem`]; [`PkiError::Unusable`] for a certificate that is not a CA's.
    pub fn from_pem(certificate: &str, key: &Secret) -> Result<Self, PkiError> {
        const WHAT: &str = "the CA";
        let identity = Identity::from_pem(WHAT, certificate, key)?;
        if CertificateFacts::from_pem(WHAT, certificate)?.is_ca {
            return Ok(Self { identity });
        }
        Err(PkiError::Unusable { what: WHAT, reason: "its certificate may not sign others".to_owned() })
    }

    /// PEM of the CA's certificate.
    pub fn certificate(&self) -> &str {
        &self.identity.certificate
    }

    /// PEM of the CA's key.
    pub fn key(&self) -> Secret {
        self.identity.key.to_pem()
    }

    /// A fresh key, of the CA's kind, with a certificate for it.
    ///
    /// # Errors
    /// [`PkiError::Name`] for a name that is none, [`PkiError::Make`].
    pub fn issue(&self, leaf: &Leaf) -> Result<Identity, PkiError> {
        const WHAT: &str = "a certificate";
        let key = PrivateKey::generate_with(self.identity.key.algorithm())?;
        let params = leaf_params(leaf)?;
        let (subject, signer) = (key.signer(WHAT)?, self.signer()?);
        let signed = params.signed_by(&*subject, &self.issuer(&signer)?).map_err(made(WHAT))?;
        Ok(Identity { certificate: signed.pem(), key })
    }

    /// Signs the key of a certificate request. Subject, usage and validity come from `leaf`, never from the
    /// request; its names are used if `leaf` has none. Answers PEM.
    ///
    /// # Errors
    /// [`PkiError::Pem`] or [`PkiError::Unusable`] for a request that is none or whose signature is wrong.
    pub fn sign_request(&self, request: &str, leaf: &Leaf) -> Result<String, PkiError> {
        let block = request_block(request)?;
        let mut asked = CertificateSigningRequestParams::from_der(&block.der.to_vec().into())
            .map_err(|e| PkiError::Unusable { what: REQUEST, reason: e.to_string() })?;
        let names = std::mem::take(&mut asked.params.subject_alt_names);
        asked.params = leaf_params(leaf)?;
        if asked.params.subject_alt_names.is_empty() {
            asked.params.subject_alt_names = names
                .into_iter()
                .filter(|n| matches!(n, SanType::DnsName(_) | SanType::IpAddress(_)))
                .collect();
        }
        let signer = self.signer()?;
        Ok(asked.signed_by(&self.issuer(&signer)?).map_err(made("a certificate"))?.pem())
    }

    fn signer(&self) -> Result<Zeroizing<KeyPair>, PkiError> {
        self.identity.key.signer("the CA")
    }

    fn issuer<'a>(&self, signer: &'a KeyPair) -> Result<Issuer<'a, &'a KeyPair>, PkiError> {
        let der = certificates("the CA", &self.identity.certificate)?;
        Issuer::from_ca_cert_der(&der[0], signer).map_err(made("a certificate"))
    }
}

/// Values of subject O that a request asks for, empty ones left out.
///
/// # Errors
/// [`PkiError::Pem`] or [`PkiError::Unusable`] for a request that is none.
pub fn requested_organizations(request: &str) -> Result<Vec<String>, PkiError> {
    let block = request_block(request)?;
    let (_, parsed) = X509CertificationRequest::from_der(&block.der)
        .map_err(|e| PkiError::Unusable { what: REQUEST, reason: e.to_string() })?;
    let subject = &parsed.certification_request_info.subject;
    let values = subject.iter_organization().filter_map(|o| o.as_str().ok());
    Ok(values.filter(|o| !o.is_empty()).map(str::to_owned).collect())
}

fn request_block(request: &str) -> Result<pem::Block, PkiError> {
    pem::blocks(request)
        .map_err(|reason| PkiError::Pem { what: REQUEST, reason })?
        .into_iter()
        .find(|b| b.label == "CERTIFICATE REQUEST")
        .ok_or(PkiError::Pem { what: REQUEST, reason: "there is no CERTIFICATE REQUEST block" })
}

/// A certificate that its own key signed, for `names`: both ends of a connection that share one file.
///
/// # Errors
/// [`PkiError::Name`], [`PkiError::Make`].
pub fn self_signed(organization: &str, names: &[String], lifetime: Lifetime) -> Result<Identity, PkiError> {
    const WHAT: &str = "a certificate";
    let key = PrivateKey::generate()?;
    let mut params = params(Some(organization), names, lifetime)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign];
    params.extended_key_usages = usages(Usage::Both);
    let certificate = params.self_signed(&*key.signer(WHAT)?).map_err(made(WHAT))?.pem();
    Ok(Identity { certificate, key })
}

/// PEM of a request for a certificate of `key` with `names`: what a node sends to trustd.
///
/// # Errors
/// [`PkiError::Name`], [`PkiError::Make`].
pub fn certificate_request(key: &PrivateKey, names: &[String]) -> Result<String, PkiError> {
    request_for(key, None, names)
}

/// As [`certificate_request`], with subject O: the role that is asked for.
///
/// # Errors
/// [`PkiError::Name`], [`PkiError::Make`].
pub fn request_for(
    key: &PrivateKey,
    organization: Option<&str>,
    names: &[String],
) -> Result<String, PkiError> {
    const WHAT: &str = "a certificate request";
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    if let Some(organization) = organization {
        params.distinguished_name.push(DnType::OrganizationName, organization);
    }
    params.subject_alt_names = alt_names(names)?;
    params.serialize_request(&*key.signer(WHAT)?).and_then(|r| r.pem()).map_err(made(WHAT))
}

fn leaf_params(leaf: &Leaf) -> Result<CertificateParams, PkiError> {
    let mut params = params(leaf.organization.as_deref(), &leaf.names, leaf.lifetime)?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = usages(leaf.usage);
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

fn params(
    organization: Option<&str>,
    names: &[String],
    lifetime: Lifetime,
) -> Result<CertificateParams, PkiError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    if let Some(organization) = organization {
        params.distinguished_name.push(DnType::OrganizationName, organization);
    }
    params.subject_alt_names = alt_names(names)?;
    params.not_before = OffsetDateTime::from(lifetime.not_before);
    params.not_after = OffsetDateTime::from(lifetime.not_after);
    Ok(params)
}

fn alt_names(names: &[String]) -> Result<Vec<SanType>, PkiError> {
    names.iter().map(|name| alt_name(name)).collect()
}

fn alt_name(name: &str) -> Result<SanType, PkiError> {
    if let Ok(address) = name.parse::<IpAddr>() {
        return Ok(SanType::IpAddress(address));
    }
    let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._*".contains(&b));
    let text = name.to_owned().try_into().ok().filter(|_| is_name);
    text.map(SanType::DnsName).ok_or_else(|| PkiError::Name(name.to_owned()))
}

fn usages(usage: Usage) -> Vec<ExtendedKeyUsagePurpose> {
    match usage {
        Usage::Server => vec![ExtendedKeyUsagePurpose::ServerAuth],
        Usage::Client => vec![ExtendedKeyUsagePurpose::ClientAuth],
        Usage::Both => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
    }
}

fn made(what: &'static str) -> impl Fn(rcgen::Error) -> PkiError {
    move |e| PkiError::Make { what, reason: e.to_string() }
}

#[cfg(test)]
#[path = "authority_tests.rs"]
mod tests;
