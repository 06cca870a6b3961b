//! The UKI of a system that whoever made the image signed, and what firmware takes.
//!
//! Owns: whether such a UKI is of the system's own parts; whether firmware that has this `db` would start a file.
//! Does not: read variables; make or compute with signatures: firmware does, each time. What is found out here is what a
//! node must know before it writes: that the file was not changed since, and that its key is one that the firmware has.
//! `dbx` is not asked.
//! Fails by: [`Distrust`], which says what to do.
//! Source: UEFI specification 2.10 §32.5.3; Authenticode Portable Executable Signature Format, "SignedData"; RFC 5280 §4.1.

use ondisk::Digest;
use ondisk::efi::{Known, known};
use ondisk::pe::Image;

use super::System;
use crate::Error;

/// How an image is signed.
pub const SIGN_COMMAND: &str =
    "billetctl image build --from IMAGE --kind installer --sign-key KEY --sign-certificate CERTIFICATE";

/// Why a file would not start under Secure Boot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Distrust {
    /// There is no UKI with a signature.
    #[error("it has no signed UKI: sign the image with `{SIGN_COMMAND}`")]
    NoUki,
    /// The UKI was made of something else.
    #[error(
        "its signed UKI is of other parts than it has now, so something was changed after it was signed: sign the image \
         anew with `{SIGN_COMMAND}`"
    )]
    OtherParts,
    /// A file without a signature.
    #[error("its {0} is not signed: sign the image with `{SIGN_COMMAND}`")]
    Unsigned(&'static str),
    /// A file with a signature of other bytes.
    #[error("its {0} was changed after it was signed: sign the image anew with `{SIGN_COMMAND}`")]
    Altered(&'static str),
    /// A file that is signed by somebody whom the firmware does not know.
    #[error(
        "its {0} is signed with a key that is not in this machine's db: sign the image with the key that this machine \
         knows (`{SIGN_COMMAND}`), or enrol the other one in the firmware"
    )]
    UnknownKey(&'static str),
}

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
        let known = ours.iter().flat_map(|message| &message.certificates).any(|one| self.vouches_for(one));
        if known { Ok(()) } else { Err(Distrust::UnknownKey(what).into()) }
    }

    /// A certificate that is listed, or one of a listed authority.
    fn vouches_for(&self, certificate: &[u8]) -> bool {
        let listed = self.certificates.iter().any(|known| known == certificate);
        let names = || {
            let (issuer, subject) = issuer_and_subject(certificate)?;
            let mut authorities = self.certificates.iter().filter_map(|known| issuer_and_subject(known));
            Some(issuer != subject && authorities.any(|(_, authority)| authority == issuer))
        };
        listed || names().unwrap_or(false)
    }
}

/// The parts of a PKCS #7 message that are looked at.
struct Message<'a> {
    /// What was signed: the digest of the file, among what describes it.
    content: &'a [u8],
    /// Those of the signers, DER.
    certificates: Vec<&'a [u8]>,
}

impl<'a> Message<'a> {
    fn read(message: &'a [u8]) -> Option<Self> {
        let mut outer = Elements(message).next()?.content();
        // The kind of message, then the message.
        outer.next()?;
        let mut data = outer.next()?.content().next()?.content();
        // Version and algorithms; then the content.
        data.nth(1)?;
        let content = data.next()?.content;
        let certificates = data.next().filter(|element| element.tag == 0xa0)?;
        Some(Self { content, certificates: certificates.content().map(|element| element.whole).collect() })
    }

    fn names(&self, digest: &Digest) -> bool {
        self.content.windows(digest.0.len()).any(|window| window == digest.0)
    }
}

/// The names in a certificate, DER.
fn issuer_and_subject(certificate: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut fields = Elements(certificate).next()?.content().next()?.content().peekable();
    // The version may be missing.
    fields.next_if(|field| field.tag == 0xa0);
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
