//! Lists of signatures: the value of `db`, by which firmware under Secure Boot knows what it may start.
//!
//! Owns: the lists' shape, certificates and digests in them; entries of other kinds are passed over.
//! Does not: check signatures.
//! Fails by: the entries up to a list that is cut off.
//! Source: UEFI specification 2.10 §32.4.1 (EFI_SIGNATURE_LIST). Integers are little-endian.

use alloc::vec::Vec;

use crate::Digest;
use crate::field::{array, bytes, le32};

/// The vendor GUID of `db` and `dbx`, as part of a file name in efivarfs.
pub const SECURITY: &str = "d719b2cb-3d3a-4596-a3bc-dad00e67656f";

/// Type (16 bytes at 0), length of the list (u32 at 16), of its header (u32 at 20), of each entry (u32 at 24).
const LIST_BYTES: usize = 28;
/// An entry begins with the GUID of its owner.
const OWNER_BYTES: usize = 16;
/// EFI_CERT_X509_GUID and EFI_CERT_SHA256_GUID, as they lie in memory.
const X509: [u8; 16] =
    [0xa1, 0x59, 0xc0, 0xa5, 0xe4, 0x94, 0xa7, 0x4a, 0x87, 0xb5, 0xab, 0x15, 0x5c, 0x2b, 0xf0, 0x72];
const SHA256: [u8; 16] =
    [0x26, 0x16, 0xc4, 0xc1, 0x4c, 0x50, 0x92, 0x40, 0xac, 0xa9, 0x41, 0xf9, 0x36, 0x93, 0x43, 0x28];

/// What an entry stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known<'a> {
    /// Whatever this certificate's key signed; DER.
    Certificate(&'a [u8]),
    /// The one file with this digest ([`crate::pe::Image::digest`]).
    File(Digest),
}

/// The entries of a variable's value.
#[must_use]
pub fn known(value: &[u8]) -> Vec<Known<'_>> {
    let (mut rest, mut found) = (value, Vec::new());
    while let Some((list, behind)) = take_list(rest) {
        found.extend(list);
        rest = behind;
    }
    found
}

fn take_list(value: &[u8]) -> Option<(Vec<Known<'_>>, &[u8])> {
    let kind: [u8; 16] = array(value, 0)?;
    let field = |at| usize::try_from(le32(value, at)?).ok();
    let (length, header, entry) = (field(16)?, field(20)?, field(24)?);
    let list = bytes(value, 0, length)?;
    let entries = list.get(LIST_BYTES.checked_add(header)?..)?;
    if entry <= OWNER_BYTES {
        return None;
    }
    let contents = entries.chunks_exact(entry).filter_map(|entry| entry.get(OWNER_BYTES..));
    let known = contents.filter_map(|content| match kind {
        X509 => Some(Known::Certificate(content)),
        SHA256 => array(content, 0).map(|digest| Known::File(Digest(digest))),
        _ => None,
    });
    Some((known.collect(), value.get(length..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(kind: [u8; 16], header: &[u8], entries: &[&[u8]]) -> Vec<u8> {
        let entry = OWNER_BYTES + entries.first().map_or(0, |entry| entry.len());
        let length = LIST_BYTES + header.len() + entry * entries.len();
        let mut out = kind.to_vec();
        for number in [length, header.len(), entry] {
            out.extend(u32::try_from(number).unwrap().to_le_bytes());
        }
        out.extend(header);
        for content in entries {
            out.extend([9; OWNER_BYTES]);
            out.extend(*content);
        }
        out
    }

    #[test]
    fn certificates_and_digests_are_found_and_other_kinds_passed_over() {
        let value = [
            list(X509, &[], &[b"one certificate"]),
            list([3; 16], b"head", &[b"what else"]),
            list(SHA256, &[], &[&[1; 32], &[2; 32]]),
        ]
        .concat();
        let wanted = [
            Known::Certificate(b"one certificate"),
            Known::File(Digest([1; 32])),
            Known::File(Digest([2; 32])),
        ];
        assert_eq!(known(&value), wanted);
        // Cut off anywhere: what is whole counts, and nothing panics.
        for length in 0..value.len() {
            assert!(wanted.starts_with(&known(&value[..length])), "{length}");
        }
        let empty = list(X509, &[], &[b""]);
        assert_eq!(known(&empty), []);
    }
}
