//! A slot's key as the header keeps it: 32 random bytes, sealed by a TPM, a server, or to a person's public key.
//!
//! Owns: the token's type and fields; which token is a slot's; the passphrase that random bytes become.
//! Does not: seal or unseal.
//! Order: the token has the slot's number and is written with it, see `ondisk::luks2`.
//! Source: docs/formats/luks2.md. Types, `UserData` and the number are what Talos 1.13 writes and looks for
//! (docs/formats/luks2.md), so that volumes move between the two; `billet` is ours and others keep or drop it.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ondisk::luks2::{Header, Id, Token};
use serde_json::{Map, Value};
use zeroize::{Zeroize as _, Zeroizing};

use crate::{KeyKind, Secret};

/// Length of a key that is sealed.
pub const KEY_BYTES: usize = 32;

/// The field with what was sealed.
const SEALED: &str = "UserData";
/// The field with the settings that it was sealed under.
const SETTINGS: &str = "billet";

/// A sealed key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedKey {
    /// Who sealed it.
    pub kind: KeyKind,
    /// What the config said then; `None` where another system sealed it.
    pub settings: Option<Map<String, Value>>,
    /// The sealed bytes, by the kind's own names.
    pub fields: Map<String, Value>,
}

impl SealedKey {
    /// The key of a slot. `None`: no token has its number, or one of a type that is not known here.
    #[must_use]
    pub fn of(header: &Header, slot: u8) -> Option<Self> {
        let token = header.metadata.tokens.get(&Id(slot))?;
        let kind = [KeyKind::Kms, KeyKind::Tpm, KeyKind::Recovery]
            .into_iter()
            .find(|kind| token_type(kind) == Some(token.kind.as_str()))?;
        let object = |name: &str| token.fields.get(name).and_then(Value::as_object).cloned();
        Some(Self { kind, settings: object(SETTINGS), fields: object(SEALED).unwrap_or_default() })
    }

    /// What goes into the header for a slot that is there.
    #[must_use]
    pub fn token_of(&self, slot: Id) -> Option<Token> {
        self.token().map(|token| Token { keyslots: alloc::vec![slot], ..token })
    }

    /// What goes into the header with a slot; `None` for a kind that is not sealed.
    #[must_use]
    pub fn token(&self) -> Option<Token> {
        let mut fields = Map::new();
        fields.insert(SEALED.to_string(), Value::Object(self.fields.clone()));
        if let Some(settings) = &self.settings {
            fields.insert(SETTINGS.to_string(), Value::Object(settings.clone()));
        }
        token_type(&self.kind).map(|kind| Token::new(kind, fields))
    }

    /// Sets a field to bytes, which stand in Base64.
    #[must_use]
    pub fn with_bytes(mut self, name: &str, bytes: &[u8]) -> Self {
        self.fields.insert(name.to_string(), Value::String(STANDARD.encode(bytes)));
        self
    }

    /// The bytes of a field.
    pub fn bytes(&self, name: &str) -> Result<Vec<u8>, String> {
        let text = self.fields.get(name).and_then(Value::as_str);
        let text = text.ok_or_else(|| alloc::format!("its token has no field {name}"))?;
        STANDARD.decode(text).map_err(|_| alloc::format!("its token's field {name} is no Base64"))
    }
}

fn token_type(kind: &KeyKind) -> Option<&'static str> {
    match kind {
        KeyKind::Kms => Some("sideroKMS"),
        KeyKind::Tpm => Some("talos-tpm2"),
        KeyKind::Recovery => Some("billet-recovery"),
        KeyKind::NodeId | KeyKind::Static | KeyKind::Other(_) => None,
    }
}

/// What opens the slot of a sealed key that is bound to no volume, see [`SealedKey::passphrase`]: its Base64 text, and behind that the salt of a key that is locked to STATE.
#[must_use]
pub fn passphrase(key: &[u8], salt: Option<&Secret>) -> Secret {
    let mut text = STANDARD.encode(key);
    let salt: &[u8] = salt.map_or(&[], |salt| salt);
    let secret = Zeroizing::new([text.as_bytes(), salt].concat());
    text.zeroize();
    secret
}

#[cfg(test)]
mod tests {
    use ondisk::luks2::{Cost, Format, NewSlot};
    use serde_json::json;

    use super::*;

    fn sealed(kind: KeyKind) -> SealedKey {
        SealedKey { kind, settings: None, fields: Map::new() }.with_bytes("sealedData", b"sealed")
    }

    fn header(token: &Token) -> Header {
        let slot =
            NewSlot { slot: Some(Id(3)), passphrase: b"x", cost: Cost::Pbkdf2(1000), token: Some(token) };
        let format = Format::new("0e1f2a3b-4c5d-6e7f-8091-a2b3c4d5e6f7", 512);
        format.make(&[1; 64], &[slot], &mut |bytes: &mut [u8]| bytes.fill(9)).unwrap().header
    }

    #[test]
    fn a_token_says_what_talos_says_and_is_read_again() {
        let mut key = sealed(KeyKind::Kms);
        let token = key.token().unwrap();
        let text = serde_json::to_value(&token).unwrap();
        assert_eq!(
            text,
            json!({ "type": "sideroKMS", "keyslots": [], "UserData": { "sealedData": "c2VhbGVk" } })
        );
        let header = self::header(&token);
        assert_eq!(header.metadata.tokens[&Id(3)].keyslots, [Id(3)]);
        assert_eq!(SealedKey::of(&header, 3).unwrap(), key);
        assert_eq!(SealedKey::of(&header, 0), None);
        key.settings = json!({ "endpoint": "https://kms" }).as_object().cloned();
        let found = SealedKey::of(&self::header(&key.token().unwrap()), 3).unwrap();
        assert_eq!(found.settings.unwrap()["endpoint"], "https://kms");
    }

    #[test]
    fn what_is_no_sealed_key_is_none() {
        assert!(sealed(KeyKind::NodeId).token().is_none());
        let foreign = Token::new("systemd-tpm2", Map::new());
        assert_eq!(SealedKey::of(&header(&foreign), 3), None);
        let empty = Token::new("sideroKMS", Map::new());
        let key = SealedKey::of(&header(&empty), 3).unwrap();
        assert_eq!(key.bytes("sealedData").unwrap_err(), "its token has no field sealedData");
        let wrong = SealedKey { fields: json!({ "a": "?" }).as_object().cloned().unwrap(), ..key };
        assert_eq!(wrong.bytes("a").unwrap_err(), "its token's field a is no Base64");
    }

    #[test]
    fn a_passphrase_is_base64_and_the_salt_behind() {
        assert_eq!(passphrase(&[0; 3], None).as_slice(), b"AAAA");
        let salt = Zeroizing::new(b"salt".to_vec());
        assert_eq!(passphrase(&[0; 3], Some(&salt)).as_slice(), b"AAAAsalt");
    }
}
