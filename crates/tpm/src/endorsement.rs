//! The key that tells a TPM from all others, and to which something can be sealed far from it.
//!
//! Owns: the template of the endorsement key; its public half as a file, in the forms it is met in; its digest.
//! Does not: compare it with a certificate of the TPM's maker: who reads it from a machine takes it on trust.
//! Fails by: [`Error`] on the machine, [`NotADeviceKey`] for a file.
//! Source: TCG EK Credential Profile for TPM Family 2.0, version 2.3, annex B.3.4 (template L-2: ECC NIST P256), B.2.2
//! (unique), B.6.2 (policy A); part 1, §16 (names).

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::command::{self, Command, Transport};
use crate::crypto::{self, Digest32, Point};
use crate::primary::{
    ADMIN_WITH_POLICY, DECRYPT, FIXED_PARENT, FIXED_TPM, Primary, RESTRICTED, SENSITIVE_DATA_ORIGIN,
    coordinates, template,
};
use crate::wire::{Reader, Writer};
use crate::{Error, session::Session};

/// The hierarchy of the TPM's own identity. Clearing a TPM leaves its seed as it is.
pub(crate) const ENDORSEMENT: u32 = 0x4000_000b;
/// `TPM_ALG_RSA`, for an answer that says what is wrong.
const RSA: u16 = 0x0001;

const ATTRIBUTES: u32 =
    FIXED_TPM | FIXED_PARENT | SENSITIVE_DATA_ORIGIN | ADMIN_WITH_POLICY | RESTRICTED | DECRYPT;

const BEGIN: &str = "-----BEGIN TPM PUBLIC KEY-----";
const END: &str = "-----END TPM PUBLIC KEY-----";
/// Characters of Base64 in a line (RFC 7468 §2).
const LINE: usize = 64;

/// The public half of a TPM's endorsement key on P-256.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceKey {
    area: Vec<u8>,
    point: Point,
    x: Vec<u8>,
}

/// Why a file is no such key, and what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotADeviceKey(pub &'static str);

impl fmt::Display for NotADeviceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl core::error::Error for NotADeviceKey {}

/// What authorises the key: the endorsement hierarchy's password, which is empty unless somebody took the TPM.
fn policy() -> Digest32 {
    let Command(_, number) = command::POLICY_SECRET;
    let with_name = crypto::hash(&[&[0; 32], &number.to_be_bytes(), &ENDORSEMENT.to_be_bytes()]);
    // With the reference that a policy may have, which this one has not.
    crypto::hash(&[&with_name])
}

/// The key in the TPM; to be flushed.
pub(crate) fn make(tpm: &mut dyn Transport) -> Result<Primary, Error> {
    Primary::make(tpm, ENDORSEMENT, ATTRIBUTES, &policy())
}

/// Has a session meet the key's policy.
pub(crate) fn meet(tpm: &mut dyn Transport, session: &Session) -> Result<(), Error> {
    // Neither a number of the TPM's, nor a command, nor a reference, nor an end.
    let parameters = Writer::new().sized(&[]).sized(&[]).sized(&[]).u32(0);
    let handles = [ENDORSEMENT, session.handle];
    command::by_password(tpm, command::POLICY_SECRET, &handles, &parameters).map(drop)
}

impl DeviceKey {
    /// That of a TPM. The same each time, also after the TPM was cleared.
    pub fn of(tpm: &mut dyn Transport) -> Result<Self, Error> {
        let key = make(tpm)?;
        command::flush(tpm, key.handle);
        Self::from_area(&key.area).map_err(|_| Error::Answer { command: command::CREATE_PRIMARY.0 })
    }

    /// From a file: what a node shows (also within a document of YAML or JSON), `TPM2B_PUBLIC` or `TPMT_PUBLIC`.
    pub fn from_file(file: &[u8]) -> Result<Self, NotADeviceKey> {
        let decoded = core::str::from_utf8(file).ok().filter(|text| text.contains(BEGIN)).map(from_pem);
        let bytes = match &decoded {
            Some(bytes) => bytes.as_deref().ok_or(NotADeviceKey("its block TPM PUBLIC KEY is damaged"))?,
            None => file,
        };
        let mut reader = Reader::new(bytes);
        match reader.sized() {
            Some(area) if reader.rest().is_empty() => Self::from_area(area),
            _ => Self::from_area(bytes),
        }
    }

    fn from_area(area: &[u8]) -> Result<Self, NotADeviceKey> {
        let (x, y) = coordinates(area, &template(ATTRIBUTES, &policy())).ok_or_else(|| refusal(area))?;
        let point = Point::new(x, y).filter(|point| point.key().is_some());
        let point = point.ok_or(NotADeviceKey("its point does not lie on the curve P-256: it is damaged"))?;
        Ok(Self { area: area.to_vec(), point, x: x.to_vec() })
    }

    /// As the TPM has it: `TPMT_PUBLIC`.
    #[must_use]
    pub fn area(&self) -> &[u8] {
        &self.area
    }

    /// What names it: SHA-256 of [`DeviceKey::area`], which is the TPM's name of it without the algorithm's number.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        crypto::hash(&[&self.area])
    }

    /// As a file: `TPM2B_PUBLIC` in Base64 between two lines.
    #[must_use]
    pub fn to_pem(&self) -> String {
        let text = BASE64.encode(Writer::new().sized(&self.area).bytes());
        let mut pem = String::from(BEGIN);
        for (at, character) in text.chars().enumerate() {
            if at % LINE == 0 {
                pem.push('\n');
            }
            pem.push(character);
        }
        pem.push('\n');
        pem.push_str(END);
        pem.push('\n');
        pem
    }

    pub(crate) fn agreement(&self) -> (&Point, &[u8]) {
        (&self.point, &self.x)
    }
}

/// What is between the two lines, also where a document of YAML or JSON spells the ends of lines.
fn from_pem(text: &str) -> Option<Vec<u8>> {
    let (_, rest) = text.split_once(BEGIN)?;
    let (body, _) = rest.split_once(END)?;
    let body = body.replace("\\r", "").replace("\\n", "");
    BASE64.decode(body.split_ascii_whitespace().collect::<String>()).ok()
}

fn refusal(area: &[u8]) -> NotADeviceKey {
    match Reader::new(area).u16() {
        Some(RSA) => NotADeviceKey(
            "it is an RSA key, and only the endorsement key on P-256 is supported: take the one that the node shows \
             (`billetctl get tpmkeys`), or make it with `tpm2_createek -G ecc`",
        ),
        _ => NotADeviceKey(
            "it is no endorsement key of a TPM on P-256: take the one that a node shows (`billetctl get tpmkeys`), or \
             that `tpm2_createek -G ecc -u FILE` writes",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area() -> Vec<u8> {
        crate::vectors::get("device")
    }

    /// TCG EK Credential Profile 2.3, B.6.2.
    #[test]
    fn the_policy_is_the_profiles() {
        let text = "837197674484b3f81a90cc8d46a5d724fd52d76e06520b64f2a1da1b331469aa";
        let hex: String = policy().iter().map(|byte| alloc::format!("{byte:02x}")).collect();
        assert_eq!(hex, text);
    }

    #[test]
    fn a_key_is_read_in_each_of_its_forms() {
        let area = area();
        let key = DeviceKey::from_file(&area).unwrap();
        assert_eq!((key.area(), key.digest()), (area.as_slice(), crypto::hash(&[&area])));
        let sized = Writer::new().sized(&area);
        let pem = key.to_pem();
        assert!(pem.lines().all(|line| line.len() <= LINE) && pem.starts_with(BEGIN));
        // As YAML has it, from a system that ends lines in its own way.
        let indented = alloc::format!("spec:\n  public: |\n    {}", pem.replace('\n', "\r\n    "));
        let json = alloc::format!("{{\"spec\": {{\"public\": \"{}\"}}}}", pem.replace('\n', "\\n"));
        for file in [sized.bytes(), pem.as_bytes(), indented.as_bytes(), json.as_bytes()] {
            assert_eq!(DeviceKey::from_file(file).as_ref(), Ok(&key));
        }
    }

    #[test]
    fn other_files_are_refused_with_what_to_do() {
        let said = |file: &[u8]| DeviceKey::from_file(file).unwrap_err().0;
        let area = area();
        for end in 0..area.len() {
            assert!(said(&area[..end]).contains("get tpmkeys"));
        }
        assert!(said(&[&area[..], &[0]].concat()).contains("no endorsement key"));
        let mut rsa = area.clone();
        rsa[1] = 1;
        assert!(said(&rsa).contains("it is an RSA key"));
        let mut off = area.clone();
        off[area.len() - 1] ^= 1;
        assert!(said(&off).contains("does not lie on the curve"));
        for text in [BEGIN.into(), alloc::format!("{BEGIN}\n?\n{END}\n")] {
            assert!(said(text.as_bytes()).contains("is damaged"));
        }
        // One that signs, or that a password opens.
        for (at, bit) in [(5, 0x04), (7, 0x40)] {
            let mut other = area.clone();
            other[at] ^= bit;
            assert!(said(&other).contains("no endorsement key"));
        }
    }
}
