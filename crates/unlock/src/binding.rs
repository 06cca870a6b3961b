//! A sealed key bound to the volume that it is for, and locked to STATE.
//!
//! Owns: the mark of a volume within the bytes that are sealed; the passphrase that follows from them and the volume's
//! name; what the token says of both, and of the lock.
//! Does not: seal or unseal.
//! Fails by: a sentence that names the volume. A token that was changed to name another volume, or the old rule, gives a
//! passphrase that opens nothing: the name is part of what the passphrase is derived from.
//! Source: docs/formats/luks2.md ("Sealed keys"), docs/decisions/0018.

use alloc::format;
use alloc::string::{String, ToString};

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Map, Value};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::token::{KEY_BYTES, SealedKey, passphrase};
use crate::{KeyKind, Secret};

/// The setting with the rule that a token follows. Without it: the passphrase is the sealed bytes alone.
const VERSION: &str = "version";
/// The rule with the volume's name.
const BOUND: u64 = 2;
/// The same, and the TPM demands that the machine config is authenticated.
const BOUND_TO_CONFIG: u64 = 3;
/// The setting with the volume's name.
const VOLUME: &str = "volume";

/// The setting of a key that is locked to STATE.
const LOCKED: &str = "lockToState";

/// Bytes at the end of what is sealed that say for which volume. 24 random bytes are before them: servers of the
/// protocol take 32 bytes and no more.
const MARK_BYTES: usize = 8;

const MARKS: &[u8] = b"billet: volume of a sealed key\0";
const OPENS: &[u8] = b"billet: passphrase of a volume\0";

/// Whether keys of this kind are bound: a person's recovery key is typed for a volume that the person names.
#[must_use]
pub fn is_bound_kind(kind: &KeyKind) -> bool {
    matches!(kind, KeyKind::Kms | KeyKind::Tpm)
}

/// Has a token's settings say that the key is bound to a volume; and, of the TPM's, that it demands an authenticated
/// machine config.
pub fn bind(settings: &mut Map<String, Value>, volume: &str, demands_config: bool) {
    let version = if demands_config { BOUND_TO_CONFIG } else { BOUND };
    settings.insert(VERSION.to_string(), Value::from(version));
    settings.insert(VOLUME.to_string(), Value::from(volume));
}

/// Has a token's settings say that the salt of STATE belongs to the passphrase.
pub fn lock(settings: &mut Map<String, Value>) {
    settings.insert(LOCKED.to_string(), Value::Bool(true));
}

/// Puts the volume's mark into random bytes that are to be sealed.
pub fn mark(key: &mut Secret, volume: &str) {
    let Some((random, mark)) = key.split_last_chunk_mut::<MARK_BYTES>() else { return };
    let whole = mac(random, MARKS, volume);
    mark.iter_mut().zip(whole.iter()).for_each(|(to, from)| *to = *from);
}

impl SealedKey {
    /// Whether the key is bound to a volume.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        self.setting(VERSION).is_some()
    }

    /// Whether the token says that the TPM demands an authenticated machine config. The TPM's policy is what counts.
    #[must_use]
    pub fn demands_config(&self) -> bool {
        self.setting(VERSION).and_then(Value::as_u64) == Some(BOUND_TO_CONFIG)
    }

    /// Whether the token says that the salt of STATE belongs to the passphrase. One that another system wrote does not
    /// say: only the config does.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.setting(LOCKED) == Some(&Value::Bool(true))
    }

    /// The volume that the token names, whose header may have been copied from elsewhere.
    fn check_name(&self, volume: &str) -> Result<(), String> {
        match self.setting(VOLUME).and_then(Value::as_str) {
            Some(name) if name == volume => Ok(()),
            Some(name) => Err(other_volume(name, volume)),
            None => Err("its token does not say for which volume it was sealed".to_string()),
        }
    }

    /// Whether asking somebody for the key is of any use for this volume. Asked before anybody is.
    pub fn check(&self, volume: &str) -> Result<(), String> {
        match self.setting(VERSION).map(Value::as_u64) {
            None => Ok(()),
            Some(Some(BOUND | BOUND_TO_CONFIG)) => self.check_name(volume),
            Some(_) => {
                Err("its token was written by a newer system, whose rule is not known here".to_string())
            }
        }
    }

    /// What opens the slot of this volume: from the bytes that were unsealed, and the salt of a key that is locked to
    /// STATE.
    pub fn passphrase(&self, volume: &str, key: &[u8], salt: Option<&Secret>) -> Result<Secret, String> {
        self.check(volume)?;
        if !self.is_bound() {
            return Ok(passphrase(key, salt));
        }
        let (random, mark) = key
            .split_last_chunk::<MARK_BYTES>()
            .filter(|_| key.len() == KEY_BYTES)
            .ok_or("what was unsealed is no key")?;
        if mac(random, MARKS, volume).get(..MARK_BYTES) != Some(mark.as_slice()) {
            return Err(format!("what was unsealed is not the slot's key, or not of {volume}"));
        }
        Ok(passphrase(mac(key, OPENS, volume).as_slice(), salt))
    }

    fn setting(&self, name: &str) -> Option<&Value> {
        self.settings.as_ref()?.get(name)
    }
}

fn other_volume(name: &str, volume: &str) -> String {
    format!("it was sealed for {name}, not for {volume}: this header was copied from {name}")
}

fn mac(key: &[u8], label: &[u8], volume: &str) -> Zeroizing<[u8; 32]> {
    let Ok(mut state) = Hmac::<Sha256>::new_from_slice(key) else {
        unreachable!("an HMAC takes keys of every length")
    };
    state.update(label);
    state.update(volume.as_bytes());
    Zeroizing::new(state.finalize().into_bytes().into())
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn key(volume: &str) -> (SealedKey, Secret) {
        let mut settings = Map::new();
        bind(&mut settings, volume, false);
        let mut random = Zeroizing::new(vec![7; KEY_BYTES]);
        mark(&mut random, volume);
        (SealedKey { kind: KeyKind::Tpm, settings: Some(settings), fields: Map::new() }, random)
    }

    #[test]
    fn a_key_opens_its_own_volume_and_no_other() {
        let (state, random) = key("STATE");
        let own = state.passphrase("STATE", &random, None).unwrap();
        assert_ne!(own, passphrase(&random, None), "the sealed bytes alone open nothing");
        assert_eq!(
            state.passphrase("EPHEMERAL", &random, None).unwrap_err(),
            "it was sealed for STATE, not for EPHEMERAL: this header was copied from STATE"
        );
        // The token is not secret: whoever copies the header can write another name into it, or none.
        let (renamed, other) = key("EPHEMERAL");
        let error = renamed.passphrase("EPHEMERAL", &random, None).unwrap_err();
        assert_eq!(error, "what was unsealed is not the slot's key, or not of EPHEMERAL");
        assert_ne!(renamed.passphrase("EPHEMERAL", &other, None).unwrap(), own);
        let old = SealedKey { settings: None, ..state };
        assert_ne!(old.passphrase("EPHEMERAL", &random, None).unwrap(), own);
    }

    #[test]
    fn the_passphrase_is_that_of_the_format() {
        let (state, random) = key("STATE");
        let salt = Zeroizing::new(b"salt".to_vec());
        let text = state.passphrase("STATE", &random, Some(&salt)).unwrap();
        assert_eq!(text.len(), 44 + 4);
        assert!(text.ends_with(b"=salt"));
    }

    /// The register is the TPM's affair: what opens the slot is the same.
    #[test]
    fn a_key_that_demands_a_config_opens_as_one_that_does_not() {
        let (plain, random) = key("STATE");
        let mut settings = Map::new();
        bind(&mut settings, "STATE", true);
        let sealed = SealedKey { settings: Some(settings), ..plain.clone() };
        assert!(sealed.demands_config() && sealed.is_bound() && !plain.demands_config());
        assert_eq!(sealed.passphrase("STATE", &random, None), plain.passphrase("STATE", &random, None));
        assert!(sealed.check("EPHEMERAL").is_err());
    }

    /// What another implementation computes: `testdata/binding.txt`.
    #[test]
    fn the_passphrase_is_that_of_the_vector() {
        let get = |name: &str| {
            let mut lines = include_str!("../testdata/binding.txt").lines();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap()
        };
        let random = get("random");
        let bytes =
            (0..random.len()).step_by(2).map(|at| u8::from_str_radix(&random[at..at + 2], 16).unwrap());
        let mut sealed = Zeroizing::new(bytes.collect::<alloc::vec::Vec<u8>>());
        let volume = get("volume");
        mark(&mut sealed, volume);
        let hex: String = sealed.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, get("sealed"));
        let mut settings = Map::new();
        bind(&mut settings, volume, true);
        let key = SealedKey { kind: KeyKind::Tpm, settings: Some(settings), fields: Map::new() };
        let salt = Zeroizing::new(get("salt").as_bytes().to_vec());
        let text = |salt| key.passphrase(volume, &sealed, salt).unwrap();
        assert_eq!(text(None).as_slice(), get("passphrase").as_bytes());
        assert_eq!(text(Some(&salt)).as_slice(), get("locked").as_bytes());
        let old = SealedKey { settings: None, ..key.clone() };
        assert_eq!(old.passphrase(volume, &sealed, None).unwrap().as_slice(), get("unbound").as_bytes());
    }

    #[test]
    fn an_old_token_opens_by_the_old_rule_and_a_newer_one_is_refused() {
        let (mut state, random) = key("STATE");
        state.settings = None;
        assert!(!state.is_bound());
        assert_eq!(state.passphrase("u-data", &random, None).unwrap(), passphrase(&random, None));
        let mut settings = Map::new();
        settings.insert(VERSION.to_string(), Value::from(4));
        state.settings = Some(settings);
        let error = state.passphrase("STATE", &random, None).unwrap_err();
        assert_eq!(error, "its token was written by a newer system, whose rule is not known here");
    }
}
