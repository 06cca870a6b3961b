//! What a sealed key of the config is bound to, beside what the token in its slot says it was bound to.
//!
//! Owns: the settings of a new token, which depend on the one that it replaces; which of both counts for opening.
//! Does not: seal or unseal (`vault`), or change slots (`synchronise`).
//! Order: a slot opens by what its own token says; a token that says something else than the config is sealed anew, but
//! not while an older system still has to open the slot.
//! Source: docs/decisions/0018.

use std::sync::Arc;

use ondisk::luks2::{Header, Id, Secret};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use unlock::{KeyKind, SealedKey, bind, is_bound_kind, lock};

use super::vault::Vault;
use super::{Key, KeySecret};

/// Whether the salt of STATE belongs to a key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lock {
    /// It does not.
    #[default]
    Never,
    /// It does unless an older system has to open the slot, or there is no salt: the config says nothing.
    Usual,
    /// It does: the config says so.
    Always,
}

/// A key that somebody seals: who does, and what it is bound to.
#[derive(Clone)]
pub struct Seal {
    /// Who seals and unseals it.
    pub vault: Arc<dyn Vault>,
    /// The volume that a new key is bound to.
    pub volume: String,
    /// Whether a new key is locked to STATE.
    pub lock: Lock,
    /// The salt of STATE, or why there is none. It is needed where the token says so.
    pub salt: Result<Secret, String>,
    /// Whether what an older system can open stays so.
    pub keeps_old: bool,
    /// Whether a new key is for starts with an authenticated machine config; `None`: if the one is that it replaces. Only
    /// a TPM can demand it.
    pub demands_config: Option<bool>,
}

impl Seal {
    /// Bound to the volume alone.
    #[must_use]
    pub fn new(vault: Arc<dyn Vault>, volume: &str) -> Self {
        let salt = Err("there is no salt of STATE".to_owned());
        Self {
            vault,
            volume: volume.to_owned(),
            lock: Lock::Never,
            salt,
            keeps_old: false,
            demands_config: None,
        }
    }

    /// The volume that a key is to be bound to which takes the place of this one.
    pub(super) fn bound_volume(&self, kind: &KeyKind, held: Option<&SealedKey>) -> Option<&str> {
        let is_kept = self.keeps_old && !held.is_some_and(SealedKey::is_bound);
        (is_bound_kind(kind) && !is_kept).then_some(self.volume.as_str())
    }

    /// Whether a key is to be locked to STATE which takes the place of this one. A lock by default is not taken away for
    /// want of a salt.
    fn locks(&self, held: Option<&SealedKey>) -> bool {
        match self.lock {
            Lock::Never => false,
            Lock::Always => true,
            Lock::Usual => held.is_some_and(SealedKey::is_locked) || !self.keeps_old && self.salt.is_ok(),
        }
    }

    /// Whether a key demands an authenticated config which takes the place of this one.
    fn demands_config(&self, held: Option<&SealedKey>) -> bool {
        let is_held = held.is_some_and(SealedKey::demands_config);
        self.demands_config.filter(|_| !self.keeps_old).unwrap_or(is_held)
    }

    /// What the token of a key says that takes the place of this one.
    fn settings(&self, kind: &KeyKind, held: Option<&SealedKey>) -> Map<String, Value> {
        let mut settings = self.vault.settings();
        if self.locks(held) {
            lock(&mut settings);
        }
        if let Some(volume) = self.bound_volume(kind, held) {
            bind(&mut settings, volume, self.demands_config(held));
        }
        settings
    }

    /// The salt that belongs to the slot's own key, if any does. What another system sealed does not say: there the config
    /// counts.
    pub(super) fn salt_of(&self, sealed: &SealedKey) -> Result<Option<&Secret>, String> {
        let is_locked = match sealed.settings {
            Some(_) => sealed.is_locked(),
            None => self.lock == Lock::Always,
        };
        is_locked.then_some(self.salt.as_ref().map_err(Clone::clone)).transpose()
    }

    /// Has the slot's key unsealed: its passphrase.
    fn unseal(&self, sealed: &SealedKey) -> Result<Secret, String> {
        sealed.check(&self.volume)?;
        // Before somebody is asked in vain.
        let salt = self.salt_of(sealed)?;
        let key = self.vault.unseal(sealed)?;
        sealed.passphrase(&self.volume, &key, salt)
    }
}

/// What the tokens of a header say that its sealed keys are bound to, by slot.
#[must_use]
pub fn bindings(header: &Header) -> Vec<(u8, String)> {
    let of = |id: &Id| {
        let sealed = SealedKey::of(header, id.0).filter(|sealed| is_bound_kind(&sealed.kind))?;
        let parts = [
            (sealed.is_bound(), "this volume"),
            (sealed.is_locked(), "this STATE"),
            (sealed.demands_config(), "configs from STATE or a signed image"),
        ];
        let parts: Vec<&str> = parts.iter().filter(|(is_so, _)| *is_so).map(|(_, what)| *what).collect();
        let to = if parts.is_empty() { "nothing else".to_owned() } else { parts.join(", ") };
        Some((id.0, format!("the {} key in slot {id} is bound to {to}", sealed.kind)))
    };
    header.metadata.keyslots.keys().filter_map(of).collect()
}

impl Key {
    /// What the slot's token says, if it is of this kind.
    pub(super) fn held(&self, header: &Header) -> Option<SealedKey> {
        SealedKey::of(header, self.slot).filter(|sealed| sealed.kind == self.kind)
    }

    /// What the config says of a sealed key, as its token keeps it where it takes the place of another.
    pub(super) fn settings(&self, held: Option<&SealedKey>) -> Option<Map<String, Value>> {
        let KeySecret::Sealed(seal) = &self.secret else { return None };
        Some(seal.settings(&self.kind, held))
    }

    /// Whether the slot's sealed key is bound to something else than a new one would be: then another passphrase opens it,
    /// and it is sealed anew.
    #[must_use]
    pub fn is_bound_otherwise(&self, header: &Header) -> bool {
        let KeySecret::Sealed(seal) = &self.secret else { return false };
        self.held(header).is_some_and(|held| {
            let wanted = Some(seal.settings(&self.kind, Some(&held)));
            let new = SealedKey { settings: wanted, ..held.clone() };
            let bound = |key: &SealedKey| (key.is_bound(), key.is_locked(), key.demands_config());
            bound(&new) != bound(&held) || seal.vault.binds() && new.settings != held.settings
        })
    }

    /// Has the slot's key unsealed: its passphrase.
    pub(super) fn unseal(&self, sealed: Option<&SealedKey>) -> Result<Secret, String> {
        match &self.secret {
            KeySecret::Known(secret) => Ok(secret.clone()),
            KeySecret::Sealed(seal) => {
                let sealed = sealed.filter(|sealed| sealed.kind == self.kind);
                seal.unseal(sealed.ok_or("its slot has no sealed key")?)
            }
        }
    }
}
