//! META's record of how STATE is encrypted: tag 9.
//!
//! Owns: both spellings that there are (of v0.9.3, and of v1.13 with more kinds of keys), read alike; the newer is
//! written, which the older reads too. Fields and kinds of keys that are not known here are kept and named.
//! Does not: hold anything secret but a static passphrase, which stands in META as it is.
//! Fails by: [`RecordError`], naming the field.
//! Source: docs/formats/meta.md: JSON with the names of Go's fields.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use serde_json::{Map, Value, json};
use zeroize::{Zeroize as _, Zeroizing};

use crate::{Candidate, KeyKind, Machine, Refused, static_key};

/// The only provider that there is; an older one may leave it out.
const LUKS2: &str = "luks2";
/// The field of a key that belongs to us alone; others ignore it.
const RECOVERY: &str = "KeyRecovery";

/// How STATE is encrypted.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Record {
    /// The keys, in the order of the config.
    pub keys: Vec<RecordKey>,
    /// `aes-xts-plain64`, or empty for it.
    pub cipher: String,
    /// Bits of the volume key; 0 for the usual.
    pub key_bits: u64,
    /// Bytes of a sector; 0 for the usual.
    pub sector_bytes: u64,
    /// Switches for speed, by their names in a config.
    pub options: Vec<String>,
    /// What else the record says.
    unknown: Map<String, Value>,
}

/// A key of the record.
#[derive(Clone, PartialEq, Eq)]
pub struct RecordKey {
    /// The slot it is for.
    pub slot: u8,
    /// Where it comes from.
    pub kind: Kind,
    /// Whether a salt on STATE belongs to it, which no key of STATE itself can have; `None`: the config says nothing.
    pub lock_to_state: Option<bool>,
    /// What else the record says of it.
    unknown: Map<String, Value>,
}

/// Where a key comes from.
#[derive(Clone, PartialEq, Eq)]
pub enum Kind {
    /// This passphrase.
    Static(Zeroizing<String>),
    /// The machine's UUID.
    NodeId,
    /// A server.
    Kms {
        /// Where it answers.
        endpoint: String,
    },
    /// The TPM.
    Tpm {
        /// Refuse to enrol where Secure Boot is off.
        check_secure_boot: Option<bool>,
        /// What the key is bound to.
        pcrs: Option<Vec<u8>>,
    },
    /// A person with the recovery key.
    Recovery {
        /// The public keys that it is encrypted to.
        recipients: Vec<String>,
    },
    /// Something that is not known here, by the names of its fields.
    Other(String),
}

/// Why a record cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordError {
    /// It is no JSON object.
    Json,
    /// Another provider.
    Provider(String),
    /// A field has a value that it cannot have.
    Field(String),
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("META's record of STATE's encryption: ")?;
        match self {
            Self::Json => f.write_str("not a JSON object"),
            Self::Provider(name) => write!(f, "unknown encryption kind {name}"),
            Self::Field(name) => write!(f, "field {name} has a value that it cannot have"),
        }
    }
}

impl core::error::Error for RecordError {}

impl RecordKey {
    /// A key of this kind for a slot.
    #[must_use]
    pub fn new(slot: u8, kind: Kind) -> Self {
        Self { slot, kind, lock_to_state: None, unknown: Map::new() }
    }
}

impl Kind {
    /// The kind without what belongs to the key.
    #[must_use]
    pub fn name(&self) -> KeyKind {
        match self {
            Self::Static(_) => KeyKind::Static,
            Self::NodeId => KeyKind::NodeId,
            Self::Kms { .. } => KeyKind::Kms,
            Self::Tpm { .. } => KeyKind::Tpm,
            Self::Recovery { .. } => KeyKind::Recovery,
            Self::Other(name) => KeyKind::Other(name.clone()),
        }
    }
}

impl Record {
    /// Reads the value of the tag. An empty value is no record.
    pub fn read(bytes: &[u8]) -> Result<Option<Self>, RecordError> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let value = serde_json::from_slice(bytes).map_err(|_| RecordError::Json)?;
        let mut fields = match value {
            Value::Object(fields) => fields,
            Value::Null => return Ok(None),
            _ => return Err(RecordError::Json),
        };
        let provider = text(&mut fields, "EncryptionProvider")?;
        if !matches!(provider.as_str(), LUKS2 | "") {
            return Err(RecordError::Provider(provider));
        }
        let keys = list(&mut fields, "EncryptionKeys")?.into_iter().map(RecordKey::read);
        let options = list(&mut fields, "EncryptionPerfOptions")?.into_iter();
        let options = options.map(|option| option.as_str().map(ToString::to_string));
        Ok(Some(Self {
            keys: keys.collect::<Result<_, _>>()?,
            cipher: text(&mut fields, "EncryptionCipher")?,
            key_bits: number(&mut fields, "EncryptionKeySize")?,
            sector_bytes: number(&mut fields, "EncryptionBlockSize")?,
            options: options.collect::<Option<_>>().ok_or_else(|| wrong("EncryptionPerfOptions"))?,
            unknown: fields,
        }))
    }

    /// The value to store. It holds static passphrases as they are.
    #[must_use]
    pub fn write(&self) -> Zeroizing<Vec<u8>> {
        let keys: Vec<Value> = self.keys.iter().map(RecordKey::write).collect();
        let options = if self.options.is_empty() { Value::Null } else { json!(self.options) };
        let mut fields = self.unknown.clone();
        for (name, value) in [
            ("EncryptionProvider", json!(LUKS2)),
            ("EncryptionKeys", Value::Array(keys)),
            ("EncryptionCipher", json!(self.cipher)),
            ("EncryptionKeySize", json!(self.key_bits)),
            ("EncryptionBlockSize", json!(self.sector_bytes)),
            ("EncryptionPerfOptions", options),
        ] {
            fields.insert(name.to_string(), value);
        }
        let mut value = Value::Object(fields);
        let bytes = Zeroizing::new(serde_json::to_vec(&value).unwrap_or_default());
        wipe(&mut value);
        bytes
    }

    /// What this machine can try by itself, each key in the order of its slot. Others come as the reason why not.
    pub fn node_keys(
        &self,
        machine: &Result<Machine, crate::IdentityError>,
        label: &str,
    ) -> Vec<Result<Candidate, Refused>> {
        let mut keys: Vec<&RecordKey> = self.keys.iter().collect();
        keys.sort_unstable_by_key(|key| key.slot);
        keys.into_iter().flat_map(|key| key.node_key(machine, label)).collect()
    }
}

impl RecordKey {
    fn node_key(
        &self,
        machine: &Result<Machine, crate::IdentityError>,
        label: &str,
    ) -> Vec<Result<Candidate, Refused>> {
        let kind = self.kind.name();
        let refused = |why: String| vec![Err(Refused { slot: self.slot, kind: kind.clone(), why })];
        let candidate = |secret| Ok(Candidate { slot: self.slot, kind: kind.clone(), secret });
        if self.lock_to_state == Some(true) {
            return refused(format!("it is locked to STATE, and {label} is that"));
        }
        match &self.kind {
            Kind::Static(passphrase) => match static_key(passphrase) {
                Ok(secret) => vec![candidate(secret)],
                Err(why) => refused(why),
            },
            Kind::NodeId => {
                match machine.as_ref().map_err(Clone::clone).and_then(|machine| machine.keys(label)) {
                    Ok(secrets) => secrets.into_iter().map(candidate).collect(),
                    Err(error) => refused(error.to_string()),
                }
            }
            Kind::Kms { .. } => refused("it needs the network".into()),
            Kind::Tpm { .. } => refused("it needs the TPM".into()),
            Kind::Recovery { .. } => refused("it needs a person".into()),
            Kind::Other(name) => refused(format!("{name} is not known here")),
        }
    }

    fn read(value: Value) -> Result<Self, RecordError> {
        let Value::Object(mut fields) = value else { return Err(wrong("EncryptionKeys")) };
        // A slot that is left out is the first.
        let slot = u8::try_from(number(&mut fields, "KeySlot")?).map_err(|_| wrong("KeySlot"))?;
        let lock_to_state = fields.remove("KeyLockToSTATE").and_then(|value| value.as_bool());
        let kind = Kind::read(&mut fields)?;
        Ok(Self { slot, kind, lock_to_state, unknown: fields })
    }

    fn write(&self) -> Value {
        let mut fields = self.unknown.clone();
        fields.insert("KeySlot".into(), json!(self.slot));
        for name in ["KeyStatic", "KeyNodeID", "KeyKMS", "KeyTPM"] {
            fields.insert(name.into(), Value::Null);
        }
        fields.insert("KeyLockToSTATE".into(), json!(self.lock_to_state));
        let (name, value) = match &self.kind {
            Kind::Static(passphrase) => ("KeyStatic", json!({ "KeyData": passphrase.as_str() })),
            Kind::NodeId => ("KeyNodeID", json!({})),
            Kind::Kms { endpoint } => ("KeyKMS", json!({ "KMSEndpoint": endpoint })),
            Kind::Tpm { check_secure_boot, pcrs } => {
                let options = pcrs.as_ref().map(|pcrs| json!({ "PCRs": pcrs }));
                (
                    "KeyTPM",
                    json!({ "TPMCheckSecurebootStatusOnEnroll": check_secure_boot, "TPMOptions": options }),
                )
            }
            Kind::Recovery { recipients } => (RECOVERY, json!({ "Recipients": recipients })),
            // It stands among the unknown fields.
            Kind::Other(_) => return Value::Object(fields),
        };
        fields.insert(name.into(), value);
        Value::Object(fields)
    }
}

impl Kind {
    /// Takes the field that tells the kind; those of other kinds are null.
    fn read(fields: &mut Map<String, Value>) -> Result<Self, RecordError> {
        let mut take = |name: &str| {
            fields.remove(name).and_then(|value| match value {
                Value::Object(fields) => Some(fields),
                _ => None,
            })
        };
        let found = [take("KeyStatic"), take("KeyNodeID"), take("KeyKMS"), take("KeyTPM"), take(RECOVERY)];
        match found {
            [Some(mut key), ..] => Ok(Self::Static(Zeroizing::new(text(&mut key, "KeyData")?))),
            [_, Some(_), ..] => Ok(Self::NodeId),
            [_, _, Some(mut key), ..] => Ok(Self::Kms { endpoint: text(&mut key, "KMSEndpoint")? }),
            [_, _, _, Some(mut key), _] => Ok(Self::Tpm {
                check_secure_boot: key.remove("TPMCheckSecurebootStatusOnEnroll").and_then(|v| v.as_bool()),
                pcrs: pcrs(key.remove("TPMOptions"))?,
            }),
            [_, _, _, _, Some(mut key)] => {
                let recipients = list(&mut key, "Recipients")?.into_iter().map(|one| match one {
                    Value::String(text) => Some(text),
                    _ => None,
                });
                let recipients = recipients.collect::<Option<_>>().ok_or_else(|| wrong("Recipients"))?;
                Ok(Self::Recovery { recipients })
            }
            _ => {
                let names = fields.iter().filter(|(_, value)| !value.is_null());
                let names: Vec<&str> = names.map(|(name, _)| name.as_str()).collect();
                Ok(Self::Other(if names.is_empty() {
                    "a key without a kind".into()
                } else {
                    names.join(", ")
                }))
            }
        }
    }
}

fn pcrs(options: Option<Value>) -> Result<Option<Vec<u8>>, RecordError> {
    let Some(Value::Object(mut options)) = options else { return Ok(None) };
    match options.remove("PCRs") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(numbers)) => {
            let numbers = numbers.iter().map(|number| number.as_u64().and_then(|n| u8::try_from(n).ok()));
            numbers.collect::<Option<_>>().map(Some).ok_or_else(|| wrong("PCRs"))
        }
        Some(_) => Err(wrong("PCRs")),
    }
}

fn wrong(field: &str) -> RecordError {
    RecordError::Field(field.to_string())
}

fn text(fields: &mut Map<String, Value>, name: &str) -> Result<String, RecordError> {
    match fields.remove(name) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(wrong(name)),
    }
}

fn number(fields: &mut Map<String, Value>, name: &str) -> Result<u64, RecordError> {
    match fields.remove(name) {
        None | Some(Value::Null) => Ok(0),
        Some(value) => value.as_u64().ok_or_else(|| wrong(name)),
    }
}

fn list(fields: &mut Map<String, Value>, name: &str) -> Result<Vec<Value>, RecordError> {
    match fields.remove(name) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(values)) => Ok(values),
        Some(_) => Err(wrong(name)),
    }
}

/// Texts of a value that may be secret.
fn wipe(value: &mut Value) {
    match value {
        Value::String(text) => text.zeroize(),
        Value::Array(values) => values.iter_mut().for_each(wipe),
        Value::Object(fields) => fields.values_mut().for_each(wipe),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = r#"{"EncryptionProvider":"luks2","EncryptionKeys":[{"KeyStatic":{"KeyData":"secret"},"KeyNodeID":null,"KeySlot":1},{"KeyStatic":null,"KeyNodeID":{},"KeySlot":0}],"EncryptionCipher":""}"#;
    const NEW: &str = r#"{"EncryptionProvider":"luks2","EncryptionKeys":[{"KeySlot":0,"KeyStatic":null,"KeyNodeID":{},"KeyKMS":null,"KeyTPM":null,"KeyLockToSTATE":null},{"KeySlot":1,"KeyStatic":null,"KeyNodeID":null,"KeyKMS":{"KMSEndpoint":"https://kms.example.org:4443"},"KeyTPM":null,"KeyLockToSTATE":null},{"KeySlot":2,"KeyStatic":null,"KeyNodeID":null,"KeyKMS":null,"KeyTPM":{"TPMCheckSecurebootStatusOnEnroll":true,"TPMOptions":{"PCRs":[1,7]}},"KeyLockToSTATE":null}],"EncryptionCipher":"aes-xts-plain64","EncryptionKeySize":512,"EncryptionBlockSize":4096,"EncryptionPerfOptions":["no_read_workqueue"]}"#;

    fn read(text: &str) -> Record {
        Record::read(text.as_bytes()).unwrap().unwrap()
    }

    fn no_machine() -> Result<Machine, crate::IdentityError> {
        Err(crate::IdentityError::NotPopulated)
    }

    #[test]
    fn the_older_spelling_is_read() {
        let record = read(OLD);
        assert!(record.keys[0].kind == Kind::Static(Zeroizing::new("secret".into())));
        assert_eq!((record.keys[0].slot, record.keys[1].slot), (1, 0));
        assert_eq!(record.keys[1].kind.name(), KeyKind::NodeId);
    }

    #[test]
    fn the_newer_spelling_is_read_and_written_alike() {
        let record = read(NEW);
        assert!(record.keys[2].kind == Kind::Tpm { check_secure_boot: Some(true), pcrs: Some(vec![1, 7]) });
        assert_eq!((record.key_bits, record.sector_bytes), (512, 4096));
        assert_eq!(record.options, ["no_read_workqueue"]);
        let value: Value = serde_json::from_slice(&record.write()).unwrap();
        assert_eq!(value, serde_json::from_str::<Value>(NEW).unwrap());
    }

    #[test]
    fn what_was_written_is_read_again() {
        let mut record = read(OLD);
        for recipients in [vec![], vec!["age1a".into(), "age1b".into()]] {
            record.keys.push(RecordKey::new(7, Kind::Recovery { recipients }));
        }
        for lock_to_state in [Some(true), Some(false)] {
            record.keys.push(RecordKey { lock_to_state, ..RecordKey::new(8, Kind::NodeId) });
        }
        assert!(read(core::str::from_utf8(&record.write()).unwrap()) == record);
    }

    #[test]
    fn unknown_kinds_and_fields_are_kept_and_named() {
        let text = r#"{"EncryptionProvider":"luks2","Later":[1],"EncryptionKeys":[{"KeySlot":4,"KeyFido":{"Pin":1},"KeyTPM":null}]}"#;
        let record = read(text);
        assert!(record.keys[0].kind == Kind::Other("KeyFido".into()));
        let value: Value = serde_json::from_slice(&record.write()).unwrap();
        assert_eq!(value["Later"], json!([1]));
        assert_eq!(value["EncryptionKeys"][0]["KeyFido"], json!({ "Pin": 1 }));
        let keys = record.node_keys(&no_machine(), "STATE");
        assert_eq!(
            keys[0].as_ref().err().unwrap().to_string(),
            "KeyFido key for slot 4: KeyFido is not known here"
        );
    }

    #[test]
    fn keys_of_the_machine_come_by_slot_and_the_others_have_reasons() {
        let machine = Machine::new(&[], &[], Some(b"bc94b891-0df9-47d8-a7d3-c7c199d66b0e"));
        let keys = read(OLD).node_keys(&machine, "STATE");
        let [Ok(node), Ok(fixed)] = keys.as_slice() else { panic!("two keys") };
        assert_eq!(node.secret.as_slice(), b"bc94b891-0df9-47d8-a7d3-c7c199d66b0eSTATE");
        assert_eq!((fixed.slot, fixed.secret.as_slice()), (1, &b"secret"[..]));
        let keys = read(NEW).node_keys(&no_machine(), "STATE");
        let reasons: Vec<String> = keys.iter().map(|key| key.as_ref().err().unwrap().to_string()).collect();
        assert_eq!(
            reasons,
            [
                "nodeID key for slot 0: machine UUID is not populated",
                "kms key for slot 1: it needs the network",
                "tpm key for slot 2: it needs the TPM"
            ]
        );
    }

    #[test]
    fn what_is_no_record_is_refused_by_its_field() {
        assert!(Record::read(b"").unwrap().is_none());
        assert!(Record::read(b"null").unwrap().is_none());
        for (text, problem) in [
            ("[]", "not a JSON object"),
            (r#"{"EncryptionProvider":"zfs"}"#, "unknown encryption kind zfs"),
            (r#"{"EncryptionKeys":{}}"#, "field EncryptionKeys"),
            (r#"{"EncryptionKeys":[{"KeySlot":-1}]}"#, "field KeySlot"),
            (r#"{"EncryptionKeys":[{"KeySlot":256}]}"#, "field KeySlot"),
            (r#"{"EncryptionKeys":[{"KeyTPM":{"TPMOptions":{"PCRs":["x"]}}}]}"#, "field PCRs"),
            (r#"{"EncryptionKeys":[{"KeyRecovery":{"Recipients":[1]}}]}"#, "field Recipients"),
            (r#"{"EncryptionPerfOptions":[1]}"#, "field EncryptionPerfOptions"),
        ] {
            let error = Record::read(text.as_bytes()).err().unwrap().to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }
}
