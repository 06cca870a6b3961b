//! Keys that somebody else seals: a server, a TPM, a person's public key.
//!
//! Owns: the random key and its token; what is said of a key that came back wrong.
//! Does not: speak to a server or a TPM: a [`Vault`] does. Keep a key that was sealed: the next opening has it unsealed.
//! Fails by: the vault's sentence; a vault has a deadline of its own, which that names.

use std::sync::Arc;

use ondisk::luks2::{Chance, Cost, Header, Secret, Token};
use serde_json::{Map, Value};
use unlock::{KEY_BYTES, KeyKind, Refused, SealedKey, bind, is_bound_kind, mark};

use super::Key;

/// The setting of a key that is locked to STATE.
const LOCKED: &str = "lockToState";

/// Who seals keys. Called from threads; blocks.
pub trait Vault: Send + Sync {
    /// What the config says of it. A slot whose token says the same is left as it is.
    fn settings(&self) -> Map<String, Value>;
    /// Whether a key is bound to the settings that it was sealed under: under others it is sealed anew. Else they are only
    /// where the same key comes from.
    fn binds(&self) -> bool {
        false
    }
    /// Seals a key: the fields of its token.
    fn seal(&self, key: &[u8]) -> Result<Map<String, Value>, String>;
    /// Gives back the key that was sealed.
    fn unseal(&self, sealed: &SealedKey) -> Result<Secret, String>;
}

/// What opens a slot.
#[derive(Clone)]
pub enum KeySecret {
    /// The passphrase itself.
    Known(Secret),
    /// A random key in the header.
    Sealed {
        /// Who unseals it.
        vault: Arc<dyn Vault>,
        /// What is put behind it: the salt of a key that is locked to STATE.
        salt: Option<Secret>,
        /// The volume that a new key is bound to.
        volume: String,
        /// Whether a key that is bound to no volume stays so: an older system still has to open it.
        keeps_old: bool,
    },
}

/// A key that a slot can be made with.
pub(super) struct Minted {
    pub(super) slot: u8,
    pub(super) kind: KeyKind,
    pub(super) secret: Secret,
    pub(super) cost: Cost,
    pub(super) token: Option<Token>,
}

/// A key that is yet to be sealed.
struct Blank<'k> {
    key: &'k Key,
    random: Secret,
    settings: Option<Map<String, Value>>,
    must_open: bool,
}

/// Has all keys sealed that are to be, at once. `held`: what the header holds for them. A key that takes the place of one
/// that was bound to no volume is unsealed once before.
pub(super) fn mint(keys: &[&Key], held: Option<&Header>, chance: Chance<'_>) -> Vec<Result<Minted, Refused>> {
    let blanks: Vec<Blank<'_>> = keys
        .iter()
        .map(|key| {
            let mut random = Secret::new(vec![0; KEY_BYTES]);
            chance(&mut random);
            let held = held.and_then(|header| SealedKey::of(header, key.slot));
            let settings = key.settings(held.as_ref());
            // The old rule's key goes with it: whoever sealed that one may not give back this one.
            let must_open = is_bound_kind(&key.kind) && held.as_ref().is_some_and(|held| !held.is_bound());
            if let Some(volume) = key.bound_volume(held.as_ref()) {
                mark(&mut random, volume);
            }
            Blank { key, random, settings, must_open }
        })
        .collect();
    std::thread::scope(|scope| {
        let sealing: Vec<_> = blanks.into_iter().map(|blank| scope.spawn(move || blank.mint())).collect();
        let ended = keys.iter().zip(sealing);
        let joined = ended.map(|(key, thread)| {
            thread.join().unwrap_or_else(|_| Err(key.refused("sealing it ended early".to_owned())))
        });
        joined.collect()
    })
}

impl Blank<'_> {
    fn mint(self) -> Result<Minted, Refused> {
        let Key { slot, kind, secret, cost } = self.key.clone();
        let (vault, salt, volume) = match secret {
            KeySecret::Known(secret) => return Ok(Minted { slot, kind, secret, cost, token: None }),
            KeySecret::Sealed { vault, salt, volume, .. } => (vault, salt, volume),
        };
        let fields = vault.seal(&self.random).map_err(|why| self.key.refused(why))?;
        let sealed = SealedKey { kind: kind.clone(), settings: self.settings.clone(), fields };
        if vault.binds() || self.must_open {
            self.try_out(vault.as_ref(), &sealed).map_err(|why| self.key.refused(why))?;
        }
        let token = sealed.token();
        let secret = sealed.passphrase(&volume, &self.random, salt.as_ref());
        let secret = secret.map_err(|why| self.key.refused(why))?;
        Ok(Minted { slot, kind, secret, cost, token })
    }

    /// A key that is bound to what does not hold now would take its slot away.
    fn try_out(&self, vault: &dyn Vault, sealed: &SealedKey) -> Result<(), String> {
        let again = vault.unseal(sealed).map_err(|why| format!("sealed, but not unsealed again: {why}"))?;
        match again == self.random {
            true => Ok(()),
            false => Err("sealed, but another key was unsealed".to_owned()),
        }
    }
}

impl Key {
    /// Whether it is a recovery key that nobody gave.
    pub(super) fn is_with_people(&self) -> bool {
        self.kind == KeyKind::Recovery && matches!(self.secret, KeySecret::Sealed { .. })
    }

    pub(super) fn refused(&self, why: String) -> Refused {
        Refused { slot: self.slot, kind: self.kind.clone(), why }
    }

    /// Whether the slot's sealed key is bound to other settings than these, or to no volume.
    #[must_use]
    pub fn is_bound_otherwise(&self, header: &Header) -> bool {
        let KeySecret::Sealed { vault, .. } = &self.secret else { return false };
        let sealed = SealedKey::of(header, self.slot).filter(|sealed| sealed.kind == self.kind);
        sealed.is_some_and(|sealed| {
            let is_old = self.bound_volume(Some(&sealed)).is_some() && !sealed.is_bound();
            is_old || vault.binds() && sealed.settings != self.settings(Some(&sealed))
        })
    }

    /// The volume that a key is to be bound to which takes the place of this one.
    fn bound_volume(&self, held: Option<&SealedKey>) -> Option<&str> {
        let KeySecret::Sealed { volume, keeps_old, .. } = &self.secret else { return None };
        let is_kept = *keeps_old && !held.is_some_and(|held| held.kind == self.kind && held.is_bound());
        (is_bound_kind(&self.kind) && !is_kept).then_some(volume)
    }

    /// What the config says of a sealed key, as its token keeps it where it takes the place of another.
    pub(super) fn settings(&self, held: Option<&SealedKey>) -> Option<Map<String, Value>> {
        let KeySecret::Sealed { vault, salt, .. } = &self.secret else { return None };
        let mut settings = vault.settings();
        if salt.is_some() {
            settings.insert(LOCKED.to_owned(), Value::Bool(true));
        }
        if let Some(volume) = self.bound_volume(held) {
            bind(&mut settings, volume);
        }
        Some(settings)
    }

    /// Has the slot's key unsealed: its passphrase.
    pub(super) fn unseal(&self, sealed: Option<&SealedKey>) -> Result<Secret, String> {
        match &self.secret {
            KeySecret::Known(secret) => Ok(secret.clone()),
            KeySecret::Sealed { vault, salt, volume, .. } => {
                let sealed = sealed.filter(|sealed| sealed.kind == self.kind);
                let sealed = sealed.ok_or("its slot has no sealed key")?;
                sealed.check(volume)?;
                let key = vault.unseal(sealed)?;
                sealed.passphrase(volume, &key, salt.as_ref())
            }
        }
    }
}
