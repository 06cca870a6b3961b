//! The JSON of a header as values. Objects and fields that we do not know are kept and written back.
//!
//! Source: specification §3. 64-bit numbers are decimal text there, bytes are Base64.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

/// Number of a slot, token, segment or digest: the name of its object, decimal without leading zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Id(pub u8);

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<Id> for String {
    fn from(id: Id) -> Self {
        id.0.to_string()
    }
}

impl TryFrom<String> for Id {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let id = text.parse().ok().map(Self).filter(|id| String::from(*id) == text);
        id.ok_or_else(|| alloc::format!("{text:?} is no object number"))
    }
}

/// Everything that the JSON says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    /// Places that hold the volume key, each behind a secret of its own.
    pub keyslots: BTreeMap<Id, Keyslot>,
    /// How programs come by a slot's secret.
    pub tokens: BTreeMap<Id, Token>,
    /// Areas of the device that hold data.
    pub segments: BTreeMap<Id, Segment>,
    /// How a volume key is known to be right.
    pub digests: BTreeMap<Id, Digest>,
    /// Lengths of the header's own areas, and flags.
    pub config: Config,
    #[serde(flatten)]
    unknown: Map<String, Value>,
}

impl Metadata {
    pub(super) fn new(config: Config, segment: Segment, digest: Digest) -> Self {
        Self {
            keyslots: BTreeMap::new(),
            tokens: BTreeMap::new(),
            segments: [(Id(0), segment)].into(),
            digests: [(Id(0), digest)].into(),
            config,
            unknown: Map::new(),
        }
    }

    /// The digest that a slot's key is checked with.
    pub fn digest_of(&self, slot: Id) -> Option<(Id, &Digest)> {
        let mut digests = self.digests.iter().filter(|(_, digest)| digest.keyslots.contains(&slot));
        digests.next().map(|(id, digest)| (*id, digest))
    }
}

/// A slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keyslot {
    /// `luks2`; anything else is not for us.
    #[serde(rename = "type")]
    pub kind: String,
    /// Length of the volume key in bytes.
    pub key_size: u32,
    /// How the key is spread over the area.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub af: Option<Split>,
    /// Where the spread key is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub area: Option<Area>,
    /// How a passphrase becomes the area's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kdf: Option<Kdf>,
    /// 0: only when asked for by number; 1: as usual; 2: before the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    #[serde(flatten)]
    pub(super) unknown: Map<String, Value>,
}

/// The anti-forensic split.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// `luks1`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Into how many pieces; all are needed.
    pub stripes: u32,
    /// The hash between them.
    pub hash: String,
    #[serde(flatten)]
    pub(super) unknown: Map<String, Value>,
}

/// Part of the key slots' area.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Area {
    /// `raw`; others belong to re-encryption.
    #[serde(rename = "type")]
    pub kind: String,
    /// From the start of the device, in bytes.
    #[serde(with = "decimal")]
    pub offset: u64,
    /// Length in bytes.
    #[serde(with = "decimal")]
    pub size: u64,
    /// Cipher, mode and initialisation vector: `aes-xts-plain64`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption: Option<String>,
    /// Length of that cipher's key in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_size: Option<u32>,
    #[serde(flatten)]
    pub(super) unknown: Map<String, Value>,
}

impl Token {
    /// A token of this type with these fields, for no slot yet.
    #[must_use]
    pub fn new(kind: &str, fields: Map<String, Value>) -> Self {
        Self { kind: kind.to_string(), keyslots: Vec::new(), fields }
    }

    /// Name of the key in the kernel's keyring, for a token of type `luks2-keyring`.
    pub(super) fn key_description(&self) -> Option<&str> {
        let description = self.fields.get("key_description").and_then(Value::as_str);
        description.filter(|_| self.kind == "luks2-keyring")
    }
}

/// Key derivation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kdf {
    /// `argon2id`, `argon2i` or `pbkdf2`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The salt.
    #[serde(with = "base64_bytes")]
    pub salt: Vec<u8>,
    /// Of PBKDF2: the hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// Of PBKDF2: rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iterations: Option<u32>,
    /// Of Argon2: passes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<u32>,
    /// Of Argon2: memory in KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u32>,
    /// Of Argon2: lanes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    #[serde(flatten)]
    pub(super) unknown: Map<String, Value>,
}

/// A token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// Whose it is.
    #[serde(rename = "type")]
    pub kind: String,
    /// The slots that it gives the secret of.
    pub keyslots: Vec<Id>,
    /// What its owner keeps in it.
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

/// An area that holds data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// `crypt`; `linear` is plain.
    #[serde(rename = "type")]
    pub kind: String,
    /// From the start of the device, in bytes.
    #[serde(with = "decimal")]
    pub offset: u64,
    /// Length in bytes, or `dynamic` for the rest of the device.
    pub size: String,
    /// Number of the first sector for the initialisation vector.
    #[serde(default, with = "decimal_option", skip_serializing_if = "Option::is_none")]
    pub iv_tweak: Option<u64>,
    /// Cipher, mode and initialisation vector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption: Option<String>,
    /// Bytes that are encrypted together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sector_size: Option<u32>,
    /// Set when the data carries checksums of its own, which is not for us.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub integrity: Option<Value>,
    /// Marks: those that begin with `backup-` are of an unfinished re-encryption.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
    #[serde(flatten)]
    pub(super) unknown: Map<String, Value>,
}

/// How a volume key is known to be right.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest {
    /// `pbkdf2`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Slots that hold this key.
    pub keyslots: Vec<Id>,
    /// Segments that it opens.
    pub segments: Vec<Id>,
    /// The hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// Rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iterations: Option<u32>,
    /// The salt.
    #[serde(with = "base64_bytes")]
    pub salt: Vec<u8>,
    /// What comes out of a right key.
    #[serde(with = "base64_bytes")]
    pub digest: Vec<u8>,
    #[serde(flatten)]
    pub(super) unknown: Map<String, Value>,
}

/// Lengths and flags.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// Length of a copy's JSON area in bytes.
    #[serde(with = "decimal")]
    pub json_size: u64,
    /// Length of the area behind the copies, in bytes.
    #[serde(with = "decimal")]
    pub keyslots_size: u64,
    /// How the data is to be opened: `allow-discards`, `no-read-workqueue`, …
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
    /// What a program must know before it touches the volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requirements: Option<Requirements>,
    #[serde(flatten)]
    pub(super) unknown: Map<String, Value>,
}

/// What a program must know before it touches the volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requirements {
    /// Their names. We know none.
    #[serde(default)]
    pub mandatory: Vec<String>,
    #[serde(flatten)]
    unknown: Map<String, Value>,
}

/// A 64-bit number as decimal text.
mod decimal {
    use super::*;

    pub(super) fn serialize<S: Serializer>(value: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        parse(&String::deserialize(deserializer)?)
    }

    pub(super) fn parse<E: serde::de::Error>(text: &str) -> Result<u64, E> {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.then(|| text.parse().ok()).flatten();
        number.ok_or_else(|| E::custom(alloc::format!("{text:?} is no number of 64 bits")))
    }
}

/// The same where the field may be absent.
mod decimal_option {
    use super::*;

    pub(super) fn serialize<S: Serializer>(value: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => serializer.collect_str(value),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
        decimal::parse(&String::deserialize(deserializer)?).map(Some)
    }
}

/// Bytes as Base64 with padding.
mod base64_bytes {
    use super::*;

    pub(super) fn serialize<S: Serializer>(value: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(value))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(&text).map_err(|_| D::Error::custom("Base64 is damaged"))
    }
}
