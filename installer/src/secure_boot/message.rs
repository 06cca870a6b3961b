//! PKCS #7 messages: of a PE file, of a variable's new value.
//!
//! Source: RFC 2315 §9; Authenticode Portable Executable Signature Format, "SignedData".

use ondisk::Digest;

use super::der::{
    BIT_STRING, INTEGER, NULL, OCTET_STRING, SEQUENCE, element, identifier, numbered, numbered_plain, set,
};
use super::{Error, Signer};

const SIGNED_DATA: [u32; 7] = [1, 2, 840, 113_549, 1, 7, 2];
const DATA: [u32; 7] = [1, 2, 840, 113_549, 1, 7, 1];
const CONTENT_TYPE: [u32; 7] = [1, 2, 840, 113_549, 1, 9, 3];
const MESSAGE_DIGEST: [u32; 7] = [1, 2, 840, 113_549, 1, 9, 4];
const RSA: [u32; 7] = [1, 2, 840, 113_549, 1, 1, 1];
const SHA_256: [u32; 9] = [2, 16, 840, 1, 101, 3, 4, 2, 1];
/// Microsoft's: a digest of something else, and that this is a PE file.
const INDIRECT_DATA: [u32; 10] = [1, 3, 6, 1, 4, 1, 311, 2, 1, 4];
const PE_IMAGE: [u32; 10] = [1, 3, 6, 1, 4, 1, 311, 2, 1, 15];
/// What the field for a file's name holds.
const OBSOLETE: &str = "<<<Obsolete>>>";

/// The signature of a PE file with this digest.
pub(super) fn of_file(signer: &Signer, digest: &Digest) -> Result<Vec<u8>, Error> {
    let name: Vec<u8> = OBSOLETE.encode_utf16().flat_map(u16::to_be_bytes).collect();
    let name = element(numbered(2), &[&element(numbered_plain(0), &[&name])]);
    let flags = element(BIT_STRING, &[&[0]]);
    let about = element(SEQUENCE, &[&flags, &element(numbered(0), &[&name])]);
    let kind = element(SEQUENCE, &[&identifier(&PE_IMAGE), &about]);
    let digest = element(SEQUENCE, &[&sha_256(), &element(OCTET_STRING, &[&digest.0])]);
    let content = [kind, digest].concat();
    // The digest of a content is that of what is in it, without tag and length.
    let said = Digest::sha256(&[&content]);
    let kind = identifier(&INDIRECT_DATA);
    let attributes =
        vec![attribute(&CONTENT_TYPE, &kind), attribute(&MESSAGE_DIGEST, &element(OCTET_STRING, &[&said.0]))];
    let attributes = set(attributes);
    let signature = signer.sign(&attributes)?;
    // In the message the set has a number of its own; what was signed is the set.
    let mut named = attributes;
    if let Some(tag) = named.first_mut() {
        *tag = numbered(0);
    }
    let content = element(numbered(0), &[&element(SEQUENCE, &[&content])]);
    let content = element(SEQUENCE, &[&kind, &content]);
    let data = signed_data(signer, &content, &named, &signature);
    Ok(element(SEQUENCE, &[&identifier(&SIGNED_DATA), &element(numbered(0), &[&data])]))
}

/// The signature of bytes that are elsewhere, as firmware wants it of a variable's new value: without the wrapping.
pub(super) fn of_bytes(signer: &Signer, bytes: &[u8]) -> Result<Vec<u8>, Error> {
    let content = element(SEQUENCE, &[&identifier(&DATA)]);
    Ok(signed_data(signer, &content, &[], &signer.sign(bytes)?))
}

fn signed_data(signer: &Signer, content: &[u8], attributes: &[u8], signature: &[u8]) -> Vec<u8> {
    let one = element(INTEGER, &[&[1]]);
    let rsa = element(SEQUENCE, &[&identifier(&RSA), &element(NULL, &[])]);
    let signature = element(OCTET_STRING, &[signature]);
    let who = element(SEQUENCE, &[&one, signer.name(), &sha_256(), attributes, &rsa, &signature]);
    let certificates = element(numbered(0), &[signer.certificate()]);
    element(SEQUENCE, &[&one, &set(vec![sha_256()]), content, &certificates, &set(vec![who])])
}

fn attribute(kind: &[u32], value: &[u8]) -> Vec<u8> {
    element(SEQUENCE, &[&identifier(kind), &set(vec![value.to_vec()])])
}

fn sha_256() -> Vec<u8> {
    element(SEQUENCE, &[&identifier(&SHA_256), &element(NULL, &[])])
}
