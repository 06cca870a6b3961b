//! The UKI of a system that whoever made the image signed, and what firmware takes.
//!
//! Owns: whether such a UKI is of the system's own parts; whether firmware that has this `db` would start a file.
//! Does not: read variables; make signatures. `dbx` is not asked, nor the dates of certificates, as firmware does not.
//! Order: what was signed names the file's digest; the certificate is listed, or signed by one that is; its key made the
//! signature. A node that has a TPM approve a file which its firmware would not start gives its keys to whoever made it.
//! Fails by: [`Distrust`], which says what to do.
//! Source: UEFI specification 2.10 §32.5.3; Authenticode Portable Executable Signature Format, "SignedData"; RFC 2315 §9;
//! RFC 5280 §4.1.

use ondisk::Digest;
use ondisk::efi::{Known, known};
use ondisk::pe::Image;
use ring::signature::{
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RsaParameters,
    UnparsedPublicKey,
};

use super::System;
use crate::Error;
use crate::distrust::Distrust;

/// `messageDigest` (1.2.840.113549.1.9.4), DER.
const MESSAGE_DIGEST: &[u8] = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x09\x04";
const OCTET_STRING: u8 = 0x04;
const BIT_STRING: u8 = 0x03;
const SET: u8 = 0x31;
/// What is numbered 0 in a sequence.
const NUMBERED: u8 = 0xa0;

impl System {
    /// The UKI that firmware with Secure Boot starts; `None` where nobody signed one.
    pub fn signed_uki(&self) -> Result<Option<&[u8]>, Error> {
        let signed = self.boot.signed_uki.as_slice();
        if signed.is_empty() {
            return Ok(None);
        }
        // What a signature is of is all that counts: who signed with whatever program.
        let own = self.uki(&[])?;
        let is_own = Image::parse(signed)?.digest()? == Image::parse(&own)?.digest()?;
        if is_own { Ok(Some(signed)) } else { Err(Distrust::OtherParts.into()) }
    }
}

/// What firmware starts: the entries of `db`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trusted {
    certificates: Vec<Vec<u8>>,
    files: Vec<Digest>,
}

impl Trusted {
    /// Reads the value of `db`.
    #[must_use]
    pub fn parse(db: &[u8]) -> Self {
        let mut trusted = Self::default();
        for entry in known(db) {
            match entry {
                Known::Certificate(der) => trusted.certificates.push(der.to_vec()),
                Known::File(digest) => trusted.files.push(digest),
            }
        }
        trusted
    }

    /// Whether firmware has a reason to start this file; `what` is what people call it.
    pub fn check(&self, what: &'static str, file: &[u8]) -> Result<(), Error> {
        let image = Image::parse(file)?;
        let digest = image.digest()?;
        if self.files.contains(&digest) {
            return Ok(());
        }
        let signatures = image.signatures()?;
        if signatures.is_empty() {
            return Err(Distrust::Unsigned(what).into());
        }
        let messages = signatures.into_iter().filter_map(Message::read);
        let ours: Vec<_> = messages.filter(|message| message.names(&digest)).collect();
        if ours.is_empty() {
            return Err(Distrust::Altered(what).into());
        }
        let certificates = |message: &Message<'_>| {
            let known = message.certificates.iter().copied().filter(|one| self.vouches_for(one));
            known.map(<[u8]>::to_vec).collect::<Vec<_>>()
        };
        if ours.iter().all(|message| certificates(message).is_empty()) {
            return Err(Distrust::UnknownKey(what).into());
        }
        let verifies =
            |message: &Message<'_>| certificates(message).iter().any(|one| message.is_signed_by(one));
        if ours.iter().any(verifies) { Ok(()) } else { Err(Distrust::Forged(what).into()) }
    }

    /// A certificate that is listed, or one that a listed authority signed.
    fn vouches_for(&self, certificate: &[u8]) -> bool {
        let listed = self.certificates.iter().any(|known| known == certificate);
        let issued = || {
            let (issuer, subject) = issuer_and_subject(certificate)?;
            let mut authorities = self
                .certificates
                .iter()
                .filter(|known| issuer_and_subject(known).is_some_and(|(_, authority)| authority == issuer));
            Some(issuer != subject && authorities.any(|authority| is_issued_by(certificate, authority)))
        };
        listed || issued().unwrap_or(false)
    }
}

/// The parts of a PKCS #7 message that are looked at.
pub(super) struct Message<'a> {
    /// What was signed: the digest of the file, among what describes it. Without tag and length.
    pub(super) content: &'a [u8],
    /// Those of the signers, DER.
    certificates: Vec<&'a [u8]>,
    pub(super) signers: Vec<SignerInfo<'a>>,
}

/// One signature of a message.
pub(super) struct SignerInfo<'a> {
    /// Attributes that are signed, DER; the digest of the content is one.
    attributes: &'a [u8],
    pub(super) signature: &'a [u8],
}

impl<'a> Message<'a> {
    pub(super) fn read(message: &'a [u8]) -> Option<Self> {
        let mut outer = Elements(message).next()?.content();
        // The kind of message, then the message.
        outer.next()?;
        let mut data = outer.next()?.content().next()?.content();
        // Version and algorithms; then the content: its kind, then itself.
        data.nth(1)?;
        let content = data.next()?.content().nth(1)?.content().next()?.content;
        let certificates = data.next().filter(|element| element.tag == NUMBERED)?;
        let certificates = certificates.content().map(|element| element.whole).collect();
        let signers = data.find(|element| element.tag == SET)?;
        let signers = signers.content().filter_map(|signer| SignerInfo::read(&signer)).collect();
        Some(Self { content, certificates, signers })
    }

    fn names(&self, digest: &Digest) -> bool {
        self.content.windows(digest.0.len()).any(|window| window == digest.0)
    }

    /// Whether the key of this certificate signed the content.
    fn is_signed_by(&self, certificate: &[u8]) -> bool {
        let content = Digest::sha256(&[self.content]);
        let Some(key) = public_key(certificate) else { return false };
        self.signers.iter().any(|signer| {
            signer.digest() == Some(&content.0[..])
                && is_signature(key, &signer.signed(), signer.signature, &[&RSA_PKCS1_2048_8192_SHA256])
        })
    }
}

impl<'a> SignerInfo<'a> {
    /// Version, who, the digest's algorithm, the attributes, the signature's algorithm, the signature.
    fn read(signer: &Element<'a>) -> Option<Self> {
        let mut fields = signer.content();
        let attributes = fields.nth(3).filter(|element| element.tag == NUMBERED)?.whole;
        let signature = fields.nth(1).filter(|element| element.tag == OCTET_STRING)?.content;
        Some(Self { attributes, signature })
    }

    /// What the signature is of: the attributes as a set of their own.
    fn signed(&self) -> Vec<u8> {
        let mut signed = self.attributes.to_vec();
        if let Some(tag) = signed.first_mut() {
            *tag = SET;
        }
        signed
    }

    /// The digest of the content, as the attributes have it.
    fn digest(&self) -> Option<&'a [u8]> {
        let mut attributes = Elements(self.attributes).next()?.content();
        attributes.find_map(|attribute| {
            let mut parts = attribute.content();
            parts.next().filter(|kind| kind.whole == MESSAGE_DIGEST)?;
            let value = parts.next()?.content().next()?;
            (value.tag == OCTET_STRING).then_some(value.content)
        })
    }
}

/// Whether an authority's key signed a certificate.
fn is_issued_by(certificate: &[u8], authority: &[u8]) -> bool {
    let parts = || {
        let mut parts = Elements(certificate).next()?.content();
        let said = parts.next()?.whole;
        let signature = parts.nth(1).filter(|element| element.tag == BIT_STRING)?.content.get(1..)?;
        Some((public_key(authority)?, said, signature))
    };
    let algorithms: [&RsaParameters; 3] =
        [&RSA_PKCS1_2048_8192_SHA256, &RSA_PKCS1_2048_8192_SHA384, &RSA_PKCS1_2048_8192_SHA512];
    parts().is_some_and(|(key, said, signature)| is_signature(key, said, signature, &algorithms))
}

fn is_signature(key: &[u8], said: &[u8], signature: &[u8], algorithms: &[&'static RsaParameters]) -> bool {
    algorithms.iter().any(|one| UnparsedPublicKey::new(*one, key).verify(said, signature).is_ok())
}

/// The RSA key in a certificate (PKCS #1, DER): the bits behind its algorithm, in the field behind the subject.
fn public_key(certificate: &[u8]) -> Option<&[u8]> {
    let key = fields(certificate)?.nth(5)?;
    key.content().nth(1).filter(|element| element.tag == BIT_STRING)?.content.get(1..)
}

/// The fields of a certificate from the serial number on: algorithm, issuer, validity, subject, key.
fn fields(certificate: &[u8]) -> Option<impl Iterator<Item = Element<'_>>> {
    let mut fields = Elements(certificate).next()?.content().next()?.content().peekable();
    // The version may be missing.
    fields.next_if(|field| field.tag == NUMBERED);
    Some(fields)
}

/// The names in a certificate, DER.
fn issuer_and_subject(certificate: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut fields = fields(certificate)?;
    // Serial number and algorithm; the validity lies between the names.
    let issuer = fields.nth(2)?.whole;
    Some((issuer, fields.nth(1)?.whole))
}

/// DER elements, one behind the other; what is none ends them.
struct Elements<'a>(&'a [u8]);

struct Element<'a> {
    tag: u8,
    content: &'a [u8],
    whole: &'a [u8],
}

impl<'a> Element<'a> {
    fn content(&self) -> Elements<'a> {
        Elements(self.content)
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Element<'a>;

    fn next(&mut self) -> Option<Element<'a>> {
        let (tag, first) = (*self.0.first()?, *self.0.get(1)?);
        let digits = if first < 0x80 { 0 } else { usize::from(first & 0x7f) };
        let length = match (first, digits) {
            (_, 0) if first < 0x80 => usize::from(first),
            (_, 1..=4) => {
                self.0.get(2..2 + digits)?.iter().fold(0, |sum, digit| sum << 8 | usize::from(*digit))
            }
            _ => return None,
        };
        let start = 2 + digits;
        let end = start.checked_add(length)?;
        let (whole, rest) = (self.0.get(..end)?, self.0.get(end..)?);
        self.0 = rest;
        Some(Element { tag, content: whole.get(start..)?, whole })
    }
}
