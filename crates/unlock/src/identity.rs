//! Who the machine is, for keys that only this machine has.
//!
//! Owns: the UUID as text by both rules of byte order, META's override, the entropy check, the key of a volume.
//! Does not: read files; the caller brings the firmware's tables (/sys/firmware/dmi/tables) and META.
//! Fails by: the sentences of the reference, which clients know.
//! Source: docs/users/encryption.md; DSP0134 §7.2.1.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use ondisk::smbios;
use zeroize::Zeroizing;

use crate::Secret;

/// From this version of SMBIOS on the first three groups are little-endian numbers.
const SWAPPED_SINCE: (u8, u8) = (2, 6);
/// A character that occurs more often makes the UUID too poor for a key.
const MOST_REPEATS: usize = 18;

/// The machine's UUID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    uuid: String,
    /// As older releases spelled it, where that differs: they swapped whatever the version.
    older: Option<String>,
}

/// Why the machine has no key of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdentityError {
    /// The firmware names none.
    NotPopulated,
    /// It is one that many machines have.
    Entropy(String),
}

impl fmt::Display for IdentityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPopulated => f.write_str("machine UUID is not populated"),
            Self::Entropy(uuid) => write!(f, "machine UUID {uuid} entropy check failed"),
        }
    }
}

impl core::error::Error for IdentityError {}

impl Machine {
    /// From the structure table and the entry point as the kernel shows them, and META's tag 15, which replaces both.
    pub fn new(table: &[u8], entry_point: &[u8], override_: Option<&[u8]>) -> Result<Self, IdentityError> {
        let override_ = override_.map(|text| String::from_utf8_lossy(text).trim().to_string());
        if let Some(uuid) = override_.filter(|uuid| !uuid.is_empty()) {
            return Ok(Self { uuid, older: None });
        }
        let bytes = smbios::system_uuid(table).ok_or(IdentityError::NotPopulated)?;
        let swapped = text(swap(bytes));
        // Without a version it is a newer one: the kernel shows the entry point of every machine that has a table.
        if smbios::version(entry_point).is_none_or(|version| version >= SWAPPED_SINCE) {
            return Ok(Self { uuid: swapped, older: None });
        }
        let uuid = text(bytes);
        let older = Some(swapped).filter(|swapped| *swapped != uuid);
        Ok(Self { uuid, older })
    }

    /// Lower case with dashes.
    #[must_use]
    pub fn uuid(&self) -> &str {
        &self.uuid
    }

    /// The keys of a volume, `STATE` or `EPHEMERAL`: the one to format with first, then one that an older release may
    /// have formatted with.
    pub fn keys(&self, label: &str) -> Result<Vec<Secret>, IdentityError> {
        let uuids = [Some(&self.uuid), self.older.as_ref()];
        uuids.into_iter().flatten().map(|uuid| key(uuid, label)).collect()
    }
}

fn key(uuid: &str, label: &str) -> Result<Secret, IdentityError> {
    let repeats = uuid.chars().map(|c| uuid.chars().filter(|other| *other == c).count()).max();
    match repeats {
        None => Err(IdentityError::NotPopulated),
        Some(most) if most > MOST_REPEATS => Err(IdentityError::Entropy(uuid.into())),
        Some(_) => Ok(Zeroizing::new([uuid.as_bytes(), label.as_bytes()].concat())),
    }
}

/// The first three groups the other way round.
fn swap(bytes: [u8; 16]) -> [u8; 16] {
    let [a, b, c, d, e, f, g, h, rest @ ..] = bytes;
    let [i, j, k, l, m, n, o, p] = rest;
    [d, c, b, a, f, e, h, g, i, j, k, l, m, n, o, p]
}

fn text(bytes: [u8; 16]) -> String {
    let hex = |part: &[u8]| -> String { part.iter().map(|byte| format!("{byte:02x}")).collect() };
    let [a, b, c, d, e, f, g, h, i, j, rest @ ..] = bytes;
    [hex(&[a, b, c, d]), hex(&[e, f]), hex(&[g, h]), hex(&[i, j]), hex(&rest)].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &[u8] = b"_SM_\0\x1f\x02\x05";
    const NEW: &[u8] = b"_SM3_\0\x18\x03\x00";
    const BYTES: [u8; 16] =
        [0x44, 0x45, 0x4c, 0x4c, 0x39, 0x00, 0x10, 0x35, 0x80, 0x59, 0xb7, 0xc0, 0x4f, 0x33, 0x32, 0x31];

    /// A table with one structure, that of the system.
    fn table(uuid: [u8; 16]) -> Vec<u8> {
        let head = [1, 24, 0, 0, 0, 0, 0, 0];
        [&head[..], &uuid, &[0, 0]].concat()
    }

    fn keys(entry_point: &[u8]) -> Vec<String> {
        let machine = Machine::new(&table(BYTES), entry_point, None).unwrap();
        let keys = machine.keys("STATE").unwrap();
        keys.iter().map(|key| String::from_utf8(key.to_vec()).unwrap()).collect()
    }

    #[test]
    fn a_key_is_the_uuid_and_the_label() {
        assert_eq!(keys(NEW), ["4c4c4544-0039-3510-8059-b7c04f333231STATE"]);
    }

    #[test]
    fn old_firmware_has_two_spellings() {
        assert_eq!(
            keys(OLD),
            ["44454c4c-3900-1035-8059-b7c04f333231STATE", "4c4c4544-0039-3510-8059-b7c04f333231STATE"]
        );
    }

    #[test]
    fn metas_uuid_replaces_the_firmwares() {
        let machine = Machine::new(&[], &[], Some(b"bc94b891-0df9-47d8-a7d3-c7c199d66b0e\n")).unwrap();
        assert_eq!(machine.uuid(), "bc94b891-0df9-47d8-a7d3-c7c199d66b0e");
        assert_eq!(Machine::new(&table(BYTES), NEW, Some(b"")).unwrap().uuid().len(), 36);
    }

    #[test]
    fn poor_and_missing_ones_are_refused() {
        assert_eq!(Machine::new(&[], NEW, None), Err(IdentityError::NotPopulated));
        let zero = Machine::new(&table([0; 16]), NEW, None).unwrap();
        let problem = zero.keys("STATE").unwrap_err();
        assert_eq!(
            problem.to_string(),
            "machine UUID 00000000-0000-0000-0000-000000000000 entropy check failed"
        );
        // 18 of one character are enough, 19 are not.
        let with = |zeros: usize| format!("{}{}", "0".repeat(zeros), "123456789abcdef-".repeat(3));
        assert!(key(&with(18)[..36], "X").is_ok());
        assert!(key(&with(19)[..36], "X").is_err());
    }
}
