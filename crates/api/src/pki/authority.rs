//! The certificate authority of the node API and what it signs.
//!
//! Owns: the shape of CA, server and client certificates, and the rule that a request decides nothing but its key
//! and names. Does not: decide who may ask.
//! Source: docs/users/pki.md (profiles, trustd).

use super::{Algorithm, CertificateFacts, PkiError, PrivateKey, certificates, pem, request, subject};
use config::Secret;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use std::{
    net::IpAddr,
    time::{Duration, SystemTime},
};
use time::OffsetDateTime;
use zeroize::Zeroizing;

/// Validity of a CA and of an administrator's certificate: ten years.
pub const CA_LIFETIME: Duration = Duration::from_secs(87_600 * 3600);
/// Validity of a node's certificate: 24 hours, renewed at half of it.
pub const LEAF_LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// Certificates are valid from this long ago, so that a node whose clock is behind ours accepts them.
pub const BACKDATE: Duration = Duration::from_secs(3600);

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
    /// Values of subject O: roles such as `os:admin`. None at all leave the subject empty.
    pub organizations: Vec<String>,
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
        let mut params = params(&[organization.to_owned()], &[], lifetime)?;
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
        self.issue_to("", leaf)
    }

    /// As [`issue`](Self::issue), with this subject CN: the user as whom Kubernetes and etcd know a client.
    ///
    /// # Errors
    /// As [`issue`](Self::issue).
    pub fn issue_to(&self, common_name: &str, leaf: &Leaf) -> Result<Identity, PkiError> {
        const WHAT: &str = "a certificate";
        let key = PrivateKey::generate_with(self.identity.key.algorithm())?;
        let mut params = leaf_params(leaf)?;
        if !common_name.is_empty() {
            params.distinguished_name.push(DnType::CommonName, common_name);
        }
        let (subject, signer) = (key.signer(WHAT)?, self.signer()?);
        let signed = params.signed_by(&*subject, &self.issuer(&signer)?).map_err(made(WHAT))?;
        Ok(Identity { certificate: self.named(&signed, common_name, leaf, &signer)?, key })
    }

    /// Signs the key of a certificate request. Subject, usage and validity come from `leaf`, never from the
    /// request; its names are used if `leaf` has none. Answers PEM.
    ///
    /// # Errors
    /// [`PkiError::Pem`] or [`PkiError::Unusable`] for a request that is none or whose signature is wrong.
    pub fn sign_request(&self, request: &str, leaf: &Leaf) -> Result<String, PkiError> {
        let asked = request::read(request)?;
        let mut params = leaf_params(leaf)?;
        if params.subject_alt_names.is_empty() {
            params.subject_alt_names = asked.names;
        }
        let signer = self.signer()?;
        let signed = params.signed_by(&asked.key, &self.issuer(&signer)?).map_err(made("a certificate"))?;
        self.named(&signed, "", leaf, &signer)
    }

    /// PEM of what was signed, with every value of O.
    fn named(
        &self,
        signed: &Certificate,
        common_name: &str,
        leaf: &Leaf,
        signer: &KeyPair,
    ) -> Result<String, PkiError> {
        if leaf.organizations.len() < 2 {
            return Ok(signed.pem());
        }
        let place = subject::Place::Certificate;
        let subject = subject::name(&leaf.organizations, common_name);
        let der = subject::with_name("a certificate", signed.der(), place, &subject, signer)?;
        Ok(pem::encode("CERTIFICATE", &der).to_string())
    }

    fn signer(&self) -> Result<Zeroizing<KeyPair>, PkiError> {
        self.identity.key.signer("the CA")
    }

    fn issuer<'a>(&self, signer: &'a KeyPair) -> Result<Issuer<'a, &'a KeyPair>, PkiError> {
        let der = certificates("the CA", &self.identity.certificate)?;
        Issuer::from_ca_cert_der(&der[0], signer).map_err(made("a certificate"))
    }
}

/// A certificate that its own key signed, for `names`: both ends of a connection that share one file.
///
/// # Errors
/// [`PkiError::Name`], [`PkiError::Make`].
pub fn self_signed(organization: &str, names: &[String], lifetime: Lifetime) -> Result<Identity, PkiError> {
    const WHAT: &str = "a certificate";
    let key = PrivateKey::generate()?;
    let mut params = params(&[organization.to_owned()], names, lifetime)?;
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
    request_for(key, &[], names)
}

/// As [`certificate_request`], with values of subject O: the roles that are asked for.
///
/// # Errors
/// [`PkiError::Name`], [`PkiError::Make`].
pub fn request_for(key: &PrivateKey, organizations: &[String], names: &[String]) -> Result<String, PkiError> {
    const WHAT: &str = "a certificate request";
    let mut params = CertificateParams::default();
    params.distinguished_name = distinguished_name(organizations);
    params.subject_alt_names = alt_names(names)?;
    let signer = key.signer(WHAT)?;
    let request = params.serialize_request(&*signer).map_err(made(WHAT))?;
    if organizations.len() < 2 {
        return request.pem().map_err(made(WHAT));
    }
    let place = subject::Place::Request;
    let der = subject::with_name(WHAT, request.der(), place, &subject::name(organizations, ""), &*signer)?;
    Ok(pem::encode(request::LABEL, &der).to_string())
}

/// A name with at most one value of O: several come by [`subject`].
fn distinguished_name(organizations: &[String]) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    if let Some(organization) = organizations.first() {
        name.push(DnType::OrganizationName, organization.as_str());
    }
    name
}

fn leaf_params(leaf: &Leaf) -> Result<CertificateParams, PkiError> {
    let mut params = params(&leaf.organizations, &leaf.names, leaf.lifetime)?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = usages(leaf.usage);
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

fn params(
    organizations: &[String],
    names: &[String],
    lifetime: Lifetime,
) -> Result<CertificateParams, PkiError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = distinguished_name(organizations);
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
