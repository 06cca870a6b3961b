//! Recovery keys as a vault of `installer::encryption`: sealed to public keys of people, in a file of age.
//!
//! Does not: unseal: that takes a person.

use installer::encryption::Vault;
use recovery::{Recipient, RecoveryKey, seal};
use serde_json::{Map, Value, json};
use unlock::{KeyKind, SealedKey, Secret};

/// The field with the file.
pub(super) const FILE: &str = "ageFile";
/// The setting with the public keys.
pub(super) const RECIPIENTS: &str = "recipients";

/// Who a recovery key is encrypted to.
#[derive(Debug)]
pub(super) struct RecoveryVault {
    /// As the config has them.
    pub(super) recipients: Vec<String>,
}

impl Vault for RecoveryVault {
    fn settings(&self) -> Map<String, Value> {
        // Their order means nothing: it makes no new key.
        let mut recipients = self.recipients.clone();
        recipients.sort_unstable();
        recipients.dedup();
        Map::from_iter([(RECIPIENTS.to_owned(), json!(recipients))])
    }

    fn seal(&self, key: &[u8], _demands_config: bool) -> Result<Map<String, Value>, String> {
        let parse = |text: &String| text.parse::<Recipient>().map_err(|error| format!("{text}: {error}"));
        let recipients: Vec<Recipient> = self.recipients.iter().map(parse).collect::<Result<_, _>>()?;
        let mut text = RecoveryKey::new(key).ok_or("a recovery key has 32 bytes")?.text();
        text.push('\n');
        let file = seal(text.as_bytes(), &recipients).map_err(|error| error.to_string())?;
        let empty = SealedKey { kind: KeyKind::Recovery, settings: None, fields: Map::new() };
        Ok(empty.with_bytes(FILE, &file).fields)
    }

    fn unseal(&self, _sealed: &SealedKey) -> Result<Secret, String> {
        Err("it needs a person".to_owned())
    }
}
