//! Certificate requests, as others wrote them.
//!
//! Owns: reading key, names and subject O out of a request whose signature is right. Does not: sign it (`authority`).
//! rcgen's own reader refuses a subject with several values of O, and that is how Go writes several roles.
//! Fails by: [`PkiError::Pem`] or [`PkiError::Unusable`].
//! Source: RFC 2986.

use super::{PkiError, pem};
use rcgen::{SanType, SubjectPublicKeyInfo};
use std::net::IpAddr;
use x509_parser::{
    extensions::{GeneralName, ParsedExtension},
    prelude::{FromDer, X509CertificationRequest},
};

/// The object of errors about requests.
const REQUEST: &str = "the certificate request";
/// The label of a request's block.
pub(super) const LABEL: &str = "CERTIFICATE REQUEST";

/// What counts of a request.
pub(super) struct Asked {
    /// Whose certificate it shall be.
    pub(super) key: SubjectPublicKeyInfo,
    /// Addresses and DNS names; everything else is left out.
    pub(super) names: Vec<SanType>,
}

/// Reads a request and checks that whoever made it has the key.
pub(super) fn read(text: &str) -> Result<Asked, PkiError> {
    let block = block(text)?;
    let parsed = parse(&block)?;
    parsed.verify_signature().map_err(|_| unusable("its signature is wrong"))?;
    let key = parsed.certification_request_info.subject_pki.raw;
    let key = SubjectPublicKeyInfo::from_der(key).map_err(|e| unusable(&e.to_string()))?;
    let extensions = parsed.requested_extensions().into_iter().flatten();
    let alternatives = extensions.filter_map(|extension| match extension {
        ParsedExtension::SubjectAlternativeName(names) => Some(&names.general_names),
        _ => None,
    });
    Ok(Asked { key, names: alternatives.flatten().filter_map(name).collect() })
}

fn name(name: &GeneralName<'_>) -> Option<SanType> {
    match name {
        GeneralName::DNSName(text) => (*text).to_owned().try_into().ok().map(SanType::DnsName),
        GeneralName::IPAddress(bytes) => {
            let four = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            let address = four.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from));
            address.ok().map(SanType::IpAddress)
        }
        _ => None,
    }
}

/// Values of subject O that a request asks for, empty ones left out.
///
/// # Errors
/// [`PkiError::Pem`] or [`PkiError::Unusable`] for a request that is none.
pub fn requested_organizations(request: &str) -> Result<Vec<String>, PkiError> {
    let block = block(request)?;
    let parsed = parse(&block)?;
    let values =
        parsed.certification_request_info.subject.iter_organization().filter_map(|o| o.as_str().ok());
    Ok(values.filter(|o| !o.is_empty()).map(str::to_owned).collect())
}

/// Addresses and names that a request asks for, as a certificate would have them.
///
/// # Errors
/// [`PkiError::Pem`] or [`PkiError::Unusable`] for a request that is none, or whose signature is wrong.
pub fn requested_names(request: &str) -> Result<Vec<String>, PkiError> {
    let text = |name| match name {
        SanType::DnsName(name) => Some(name.as_str().to_owned()),
        SanType::IpAddress(address) => Some(address.to_string()),
        _ => None,
    };
    Ok(read(request)?.names.into_iter().filter_map(text).collect())
}

fn parse(block: &pem::Block) -> Result<X509CertificationRequest<'_>, PkiError> {
    let parsed = X509CertificationRequest::from_der(&block.der);
    parsed.map(|(_, parsed)| parsed).map_err(|e| unusable(&e.to_string()))
}

fn unusable(reason: &str) -> PkiError {
    PkiError::Unusable { what: REQUEST, reason: reason.to_owned() }
}

fn block(request: &str) -> Result<pem::Block, PkiError> {
    pem::blocks(request)
        .map_err(|reason| PkiError::Pem { what: REQUEST, reason })?
        .into_iter()
        .find(|b| b.label == LABEL)
        .ok_or(PkiError::Pem { what: REQUEST, reason: "there is no CERTIFICATE REQUEST block" })
}
