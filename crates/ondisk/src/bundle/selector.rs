//! What tells one machine from others.
//!
//! Owns: how each is written by people and in the file.
//! Does not: know what many machines have alike, which it refuses ([`super::alike`]).
//! Source: SMBIOS reference specification 3.7, §7.2 (serial number, UUID); TPM 2.0 library specification, part 1,
//! §16 (the key's digest).

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use super::alike;
use crate::Digest;

/// Why what many machines have is refused.
const ALIKE: &str = "is what firmware has whose maker put none in: many machines have the same, and each would take the config; \
                     name the machine by another of its marks";

/// One fact of a machine. Order is that of the file's kinds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Selector {
    /// The address of one of its network cards. Kind 1, 6 bytes.
    Mac([u8; 6]),
    /// The serial number in its firmware (SMBIOS type 1), without blanks around it. Kind 2, UTF-8.
    Serial(String),
    /// The UUID in its firmware (SMBIOS type 1), in the order in which it is written. Kind 3, 16 bytes.
    Uuid([u8; 16]),
    /// SHA-256 of its TPM's endorsement key on P-256, as the TPM gives it (`TPMT_PUBLIC`): the TPM's name of the key without
    /// the algorithm in front. Kind 4, 32 bytes.
    TpmKey(Digest),
}

/// Why a text is no selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotASelector {
    /// The text.
    pub text: String,
    /// What is wrong.
    pub reason: &'static str,
}

impl fmt::Display for NotASelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.text, self.reason)
    }
}

impl core::error::Error for NotASelector {}

impl NotASelector {
    /// Whether it is one but for that many machines have the same.
    #[must_use]
    pub fn is_of_many(&self) -> bool {
        self.reason == ALIKE
    }
}

impl Selector {
    /// `52:54:00:12:34:56`, also with `-`.
    pub fn mac(text: &str) -> Result<Self, NotASelector> {
        let bytes = text.contains([':', '-']).then(|| hex(text, &[':', '-'])).flatten();
        match bytes.and_then(|bytes| <[u8; 6]>::try_from(bytes).ok()) {
            Some([first, ..]) if first & 1 != 0 => Err(no(text, "is the address of a group, not of a card")),
            Some(mac) if mac == [0; 6] => Err(no(text, "is no card's address")),
            Some(mac) => Ok(Self::Mac(mac)),
            None => Err(no(text, "is no MAC address: six pairs of hex digits with colons between them")),
        }
    }

    /// A serial number; one that makers write on all boards alike is refused.
    pub fn serial(text: &str) -> Result<Self, NotASelector> {
        let serial = text.trim();
        if !can_be_serial(serial) {
            return Err(no(text, "is no serial number: 1 to 255 bytes"));
        }
        if alike::is_serial(serial) { Err(no(text, ALIKE)) } else { Ok(Self::Serial(serial.to_string())) }
    }

    /// `4c4c4544-0039-3510-8059-b7c04f333231`, as `/sys/class/dmi/id/product_uuid` has it.
    pub fn uuid(text: &str) -> Result<Self, NotASelector> {
        let groups = text.trim().split('-').map(str::len);
        let bytes = if groups.eq([8, 4, 4, 4, 12]) { hex(text.trim(), &['-']) } else { None };
        match bytes.and_then(|bytes| <[u8; 16]>::try_from(bytes).ok()) {
            Some(uuid) if alike::is_uuid(uuid) => Err(no(text, ALIKE)),
            Some(uuid) => Ok(Self::Uuid(uuid)),
            None => Err(no(text, "is no UUID: hex digits in groups of 8, 4, 4, 4 and 12")),
        }
    }

    /// The digest of a TPM's key.
    #[must_use]
    pub fn of_tpm(digest: [u8; 32]) -> Self {
        Self::TpmKey(Digest(digest))
    }

    /// 64 hex digits.
    pub fn tpm_key(text: &str) -> Result<Self, NotASelector> {
        let digest = Digest::from_hex(&text.trim().to_ascii_lowercase());
        digest.map(Self::TpmKey).ok_or_else(|| no(text, "is no SHA-256: 64 hex digits"))
    }

    /// From the file.
    pub(super) fn read(kind: u8, value: &[u8]) -> Option<Self> {
        match kind {
            1 => Some(Self::Mac(value.try_into().ok()?)),
            // One that many machines have is no damage: no machine names itself by it.
            2 => {
                let serial = core::str::from_utf8(value).ok()?;
                (can_be_serial(serial) && serial.trim() == serial).then(|| Self::Serial(serial.to_string()))
            }
            3 => Some(Self::Uuid(value.try_into().ok()?)),
            4 => Some(Self::TpmKey(Digest(value.try_into().ok()?))),
            _ => None,
        }
    }

    /// Kind and value in the file.
    pub(super) fn stored(&self) -> (u8, &[u8]) {
        match self {
            Self::Mac(mac) => (1, mac),
            Self::Serial(serial) => (2, serial.as_bytes()),
            Self::Uuid(uuid) => (3, uuid),
            Self::TpmKey(digest) => (4, digest.as_bytes()),
        }
    }
}

fn can_be_serial(serial: &str) -> bool {
    !serial.is_empty() && serial.len() <= 255 && !serial.contains(char::is_control)
}

fn no(text: &str, reason: &'static str) -> NotASelector {
    NotASelector { text: text.to_string(), reason }
}

/// Pairs of hex digits, any of `between` between two of them.
fn hex(text: &str, between: &[char]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for part in text.split(between) {
        if part.is_empty() || part.len() % 2 != 0 || !part.is_ascii() {
            return None;
        }
        for at in (0..part.len()).step_by(2) {
            let pair = part.get(at..at + 2).filter(|pair| pair.bytes().all(|b| b.is_ascii_hexdigit()))?;
            bytes.push(u8::from_str_radix(pair, 16).ok()?);
        }
    }
    Some(bytes)
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mac([first, rest @ ..]) => {
                write!(f, "MAC {first:02x}")?;
                rest.iter().try_for_each(|byte| write!(f, ":{byte:02x}"))
            }
            Self::Serial(serial) => write!(f, "serial {serial}"),
            Self::Uuid(uuid) => {
                f.write_str("UUID ")?;
                for (at, byte) in uuid.iter().enumerate() {
                    let hyphen = if matches!(at, 4 | 6 | 8 | 10) { "-" } else { "" };
                    write!(f, "{hyphen}{byte:02x}")?;
                }
                Ok(())
            }
            Self::TpmKey(digest) => write!(f, "TPM key {digest}"),
        }
    }
}
