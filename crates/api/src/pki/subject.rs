//! Subjects with several values of O: one certificate with several roles.
//!
//! Owns: putting such a subject into a certificate or request, which is signed anew; rcgen's names hold one value of
//! each kind.
//! Source: RFC 5280 §4.1.2.4 (Name), RFC 2986 §4.1 (request); docs/users/pki.md (roles).

use super::{
    PkiError,
    der::{BIT_STRING, SEQUENCE, SET, UTF8_STRING, der, element},
};
use rcgen::SigningKey;
use std::ops::ControlFlow;

/// `id-at-organizationName`.
const OID_ORGANIZATION: &[u8] = &[0x06, 0x03, 0x55, 0x04, 0x0a];
/// `id-at-commonName`.
const OID_COMMON_NAME: &[u8] = &[0x06, 0x03, 0x55, 0x04, 0x03];

/// Where the subject stands among the parts of what is signed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place {
    /// Version, serial number, algorithm, issuer, validity, subject.
    Certificate = 5,
    /// Version, subject.
    Request = 1,
}

/// The same certificate or request with another subject.
pub(super) fn with_name(
    what: &'static str,
    signed: &[u8],
    place: Place,
    name: &[u8],
    signer: &impl SigningKey,
) -> Result<Vec<u8>, PkiError> {
    let broken = || PkiError::Make { what, reason: "its own encoding cannot be read".to_owned() };
    let (_, parts, _) = element(signed).ok_or_else(broken)?;
    let (_, content, rest) = element(parts).ok_or_else(broken)?;
    let (_, algorithm, _) = element(rest).ok_or_else(broken)?;
    let (before, after) = around(content, place).ok_or_else(broken)?;
    let content = der(SEQUENCE, &[before, name, after].concat());
    let signature = signer.sign(&content).map_err(|e| PkiError::Make { what, reason: e.to_string() })?;
    // No bits of the last byte are unused.
    let signature = der(BIT_STRING, &[&[0], signature.as_slice()].concat());
    Ok(der(SEQUENCE, &[content.as_slice(), &der(SEQUENCE, algorithm), &signature].concat()).to_vec())
}

/// What stands before and after the subject.
fn around(content: &[u8], place: Place) -> Option<(&[u8], &[u8])> {
    let skip = |rest: &[u8]| element(rest).map(|(_, _, after)| content.len() - after.len());
    let walked = (0..place as usize).try_fold(0, |at, _| match skip(content.get(at..).unwrap_or_default()) {
        Some(next) => ControlFlow::Continue(next),
        None => ControlFlow::Break(()),
    });
    let ControlFlow::Continue(subject) = walked else { return None };
    let (before, rest) = content.split_at_checked(subject)?;
    element(rest).map(|(_, _, after)| (before, after))
}

/// One relative name with every organization, as Go writes it, and one with the common name if that is not empty. A set is
/// sorted by its encoding.
pub(super) fn name(organizations: &[String], common_name: &str) -> Vec<u8> {
    let value = |oid: &[u8], text: &str| {
        let text = der(UTF8_STRING, text.as_bytes());
        der(SEQUENCE, &[oid, &text].concat()).to_vec()
    };
    let mut values: Vec<_> = organizations.iter().map(|text| value(OID_ORGANIZATION, text)).collect();
    values.sort();
    let mut names = der(SET, &values.concat()).to_vec();
    if !common_name.is_empty() {
        names.extend_from_slice(&der(SET, &value(OID_COMMON_NAME, common_name)));
    }
    der(SEQUENCE, &names).to_vec()
}
