//! A key as the process of `opening` gets it: the passphrase, or who unseals it.
//!
//! Does not: unseal anything in machined itself: what opens a volume is in that process and nowhere else.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use installer::encryption::{Key, KeySecret, Lock, Seal, Vault};
use ondisk::luks2::{Argon2Cost, Cost, Secret};
use serde::{Deserialize, Serialize};
use unlock::{KeyKind, Refused};
use zeroize::Zeroize;

use super::kms::KmsVault;
use super::recovery_vault::RecoveryVault;
use super::tpm::TpmVault;

/// What a slot costs whoever guesses: the second recommendation of RFC 9106, for machines without much memory.
pub(super) const COST: Cost = Cost::Argon2id(Argon2Cost { memory_kib: 64 << 10, passes: 3, lanes: 4 });

/// The same of a key that somebody seals: 256 random bits, which no derivation makes harder to guess. A node opens its
/// volumes with less memory and sooner; and whoever reaches one in maintenance can have it try a recovery key, which
/// should cost it nothing. The least that LUKS2 knows, as systemd-cryptenroll takes for a TPM's keys.
const SEALED_COST: Cost = Cost::Pbkdf2(1000);

/// A key of a volume.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct VolumeKey {
    pub(super) slot: u8,
    kind: String,
    origin: Origin,
    /// Whether it is locked to STATE.
    lock: Lock,
    /// Behind the bytes of a key that is; why there is none.
    salt: Result<Vec<u8>, String>,
    /// What a sealed key is bound to.
    volume: String,
    /// Whether one that is bound to no volume stays so.
    keeps_old: bool,
    /// Whether a new one of the TPM is for starts with an authenticated config; `None`: as the one that it replaces.
    demands_config: Option<bool>,
    cost: WireCost,
}

/// Where its passphrase comes from.
#[derive(Clone, Serialize, Deserialize)]
pub(super) enum Origin {
    /// The passphrase itself.
    Known(Vec<u8>),
    /// A server unseals it, for the node of this UUID.
    Kms {
        /// As the config has it.
        endpoint: String,
        /// The UUID.
        node: String,
    },
    /// This machine's TPM unseals it.
    Tpm {
        /// Registers, as the config has them.
        pcrs: Option<Vec<u8>>,
        /// Whether it is only made under Secure Boot.
        needs_secure_boot: bool,
    },
    /// A person has it, once one of these public keys' owners has decrypted it.
    Recovery {
        /// As the config has them.
        recipients: Vec<String>,
    },
}

#[derive(Clone, Serialize, Deserialize)]
enum WireCost {
    Argon2id { memory_kib: u32, passes: u32, lanes: u32 },
    Argon2i { memory_kib: u32, passes: u32, lanes: u32 },
    Pbkdf2(u32),
}

/// Why there is none.
#[derive(Serialize, Deserialize)]
pub(super) struct NoKey {
    slot: u8,
    kind: String,
    why: String,
}

impl Drop for VolumeKey {
    fn drop(&mut self) {
        if let Ok(salt) = &mut self.salt {
            salt.zeroize();
        }
        if let Origin::Known(secret) = &mut self.origin {
            secret.zeroize();
        }
    }
}

impl fmt::Debug for VolumeKey {
    /// Without the passphrase.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VolumeKey({}, slot {})", self.kind, self.slot)
    }
}

impl VolumeKey {
    /// One whose slot costs what is usual for its kind.
    pub(super) fn new(slot: u8, kind: &KeyKind, origin: Origin, volume: &str) -> Self {
        let cost = if matches!(origin, Origin::Known(_)) { COST } else { SEALED_COST };
        Self {
            slot,
            kind: kind.to_string(),
            origin,
            lock: Lock::Never,
            salt: Err("there is no salt of STATE".to_owned()),
            volume: volume.to_owned(),
            keeps_old: false,
            demands_config: None,
            cost: to_wire(cost),
        }
    }

    /// Whether only a person has it.
    pub(super) fn is_with_people(&self) -> bool {
        matches!(self.origin, Origin::Recovery { .. })
    }

    /// Whether somebody seals it who may have lost what it takes to unseal it.
    pub(super) fn is_sealed_by_machines(&self) -> bool {
        matches!(self.origin, Origin::Kms { .. } | Origin::Tpm { .. })
    }

    /// The same, in a system on trial: the one before it has to open the volume as well.
    pub(super) fn on_trial(mut self, is_on_trial: bool) -> Self {
        self.keeps_old = is_on_trial;
        self
    }

    /// The same, for starts with an authenticated config or for all.
    pub(super) fn demanding(mut self, demands_config: Option<bool>) -> Self {
        self.demands_config = demands_config;
        self
    }

    /// The same, locked to STATE by its salt or not. The salt goes with every key: a slot may be locked that is not to be.
    pub(super) fn locked(mut self, lock: Lock, salt: &Result<Secret, String>) -> Self {
        self.lock = lock;
        self.salt = salt.as_ref().map(|salt| salt.to_vec()).map_err(Clone::clone);
        self
    }

    /// For the process that opens, and the partition that it opens.
    pub(super) fn key(&self, device: &Path) -> Key {
        let salt = self.salt.clone().map(Secret::new);
        let sealed = |vault: Arc<dyn Vault>, salt| {
            let Self { lock, keeps_old, demands_config, .. } = *self;
            KeySecret::Sealed(Seal {
                lock,
                salt,
                keeps_old,
                demands_config,
                ..Seal::new(vault, &self.volume)
            })
        };
        let secret = match &self.origin {
            Origin::Known(secret) => {
                let salt = salt.ok().filter(|_| self.lock == Lock::Always).unwrap_or_default();
                KeySecret::Known(Secret::new([secret.as_slice(), salt.as_slice()].concat()))
            }
            Origin::Kms { endpoint, node } => {
                let vault = Arc::new(KmsVault { endpoint: endpoint.clone(), node: node.clone() });
                sealed(vault, salt)
            }
            Origin::Tpm { pcrs, needs_secure_boot } => {
                let (pcrs, needs_secure_boot) = (pcrs.clone(), *needs_secure_boot);
                let vault = Arc::new(TpmVault { pcrs, needs_secure_boot, device: device.to_owned() });
                sealed(vault, salt)
            }
            Origin::Recovery { recipients } => {
                let vault = Arc::new(RecoveryVault { recipients: recipients.clone() });
                sealed(vault, salt)
            }
        };
        Key { slot: self.slot, kind: KeyKind::named(&self.kind), secret, cost: from_wire(&self.cost) }
    }

    #[cfg(test)]
    pub(super) fn with_cost(mut self, cost: Cost) -> Self {
        self.cost = to_wire(cost);
        self
    }
}

impl From<&Refused> for NoKey {
    fn from(refused: &Refused) -> Self {
        Self { slot: refused.slot, kind: refused.kind.to_string(), why: refused.why.clone() }
    }
}

impl From<&NoKey> for Refused {
    fn from(no: &NoKey) -> Self {
        Self { slot: no.slot, kind: KeyKind::named(&no.kind), why: no.why.clone() }
    }
}

fn to_wire(cost: Cost) -> WireCost {
    match cost {
        Cost::Argon2id(Argon2Cost { memory_kib, passes, lanes }) => {
            WireCost::Argon2id { memory_kib, passes, lanes }
        }
        Cost::Argon2i(Argon2Cost { memory_kib, passes, lanes }) => {
            WireCost::Argon2i { memory_kib, passes, lanes }
        }
        Cost::Pbkdf2(rounds) => WireCost::Pbkdf2(rounds),
    }
}

fn from_wire(cost: &WireCost) -> Cost {
    match *cost {
        WireCost::Argon2id { memory_kib, passes, lanes } => {
            Cost::Argon2id(Argon2Cost { memory_kib, passes, lanes })
        }
        WireCost::Argon2i { memory_kib, passes, lanes } => {
            Cost::Argon2i(Argon2Cost { memory_kib, passes, lanes })
        }
        WireCost::Pbkdf2(rounds) => Cost::Pbkdf2(rounds),
    }
}
