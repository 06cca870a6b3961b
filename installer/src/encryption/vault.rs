//! Keys that somebody else seals: a server, a TPM, a person's public key.
//!
//! Owns: the random key and its token; what is said of a key that came back wrong.
//! Does not: speak to a server or a TPM: a [`Vault`] does. Keep a key that was sealed: the next opening has it unsealed.
//! Fails by: the vault's sentence; a vault has a deadline of its own, which that names.

use ondisk::luks2::{Cost, Header, RandomBytes, Secret, Token};
use serde_json::{Map, Value};
use unlock::{KEY_BYTES, KeyKind, Refused, SealedKey, mark};

use super::Key;
use super::seal::Seal;

/// Who seals keys. Called from threads; blocks.
pub trait Vault: Send + Sync {
    /// What the config says of it. A slot whose token says the same is left as it is.
    fn settings(&self) -> Map<String, Value>;
    /// Whether a key is bound to the settings that it was sealed under: under others it is sealed anew. Else they are only
    /// where the same key comes from.
    fn binds(&self) -> bool {
        false
    }
    /// Seals a key: the fields of its token. `demands_config`: for starts with an authenticated machine config, which this
    /// one may not be.
    fn seal(&self, key: &[u8], demands_config: bool) -> Result<Map<String, Value>, String>;
    /// Gives back the key that was sealed.
    fn unseal(&self, sealed: &SealedKey) -> Result<Secret, String>;
    /// The same of a key that was sealed just now, to see whether it comes back. Of one that this start cannot unseal: as
    /// much of the way as can be tried.
    fn try_out(&self, sealed: &SealedKey, _key: &[u8]) -> Result<Secret, String> {
        self.unseal(sealed)
    }
}

/// What opens a slot.
#[derive(Clone)]
pub enum KeySecret {
    /// The passphrase itself.
    Known(Secret),
    /// A random key in the header.
    Sealed(Seal),
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
pub(super) fn mint(
    keys: &[&Key],
    held: Option<&Header>,
    random: RandomBytes<'_>,
) -> Vec<Result<Minted, Refused>> {
    let blanks: Vec<Blank<'_>> = keys
        .iter()
        .map(|key| {
            let mut secret = Secret::new(vec![0; KEY_BYTES]);
            random(&mut secret);
            let other = held.is_some_and(|header| key.is_bound_otherwise(header));
            let held = held.and_then(|header| key.held(header));
            if let KeySecret::Sealed(seal) = &key.secret
                && let Some(volume) = seal.bound_volume(&key.kind, held.as_ref())
            {
                mark(&mut secret, volume);
            }
            let settings = key.settings(held.as_ref());
            // The old key goes with it: whoever sealed that one may not give back this one.
            Blank { key, random: secret, settings, must_open: other }
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
        let seal = match secret {
            KeySecret::Known(secret) => return Ok(Minted { slot, kind, secret, cost, token: None }),
            KeySecret::Sealed(seal) => seal,
        };
        let refused = |why| self.key.refused(why);
        let mut sealed =
            SealedKey { kind: kind.clone(), settings: self.settings.clone(), fields: Map::new() };
        sealed.fields = seal.vault.seal(&self.random, sealed.demands_config()).map_err(refused)?;
        if seal.vault.binds() || self.must_open {
            self.try_out(seal.vault.as_ref(), &sealed).map_err(refused)?;
        }
        let token = sealed.token();
        let salt = seal.salt_of(&sealed).map_err(refused)?;
        let secret = sealed.passphrase(&seal.volume, &self.random, salt).map_err(refused)?;
        Ok(Minted { slot, kind, secret, cost, token })
    }

    /// A key that is bound to what does not hold now would take its slot away.
    fn try_out(&self, vault: &dyn Vault, sealed: &SealedKey) -> Result<(), String> {
        let again = vault
            .try_out(sealed, &self.random)
            .map_err(|why| format!("sealed, but not unsealed again: {why}"))?;
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
}
