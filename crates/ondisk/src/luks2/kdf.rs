//! From a passphrase to the key of a slot's area.
//!
//! Owns: what a derivation costs, and doing it with memory that is asked for once and zeroised.
//! Fails by: naming the memory that is needed where there is too little.
//! Source: specification §3.2.1; RFC 9106 (Argon2, version 1.3), RFC 8018 (PBKDF2).

use alloc::format;
use alloc::string::String;
use core::fmt;

use pbkdf2::pbkdf2_hmac;
use sha2::{Sha256, Sha384, Sha512};
use zeroize::Zeroizing;

use super::argon2::{self, Failure, Inputs, LEAST_SALT_BYTES, Parameters, Variant, Workers};
use super::metadata::{Digest, Kdf};
use super::split::Hash;
use super::{RandomBytes, Secret};

/// Bytes of a salt that we make.
const SALT_BYTES: usize = 32;
/// Most memory, in KiB: 4 GiB, as cryptsetup has it.
const MOST_MEMORY_KIB: u32 = 4 << 20;

/// What deriving a key takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cost {
    /// Argon2id, which resists both measuring and special hardware.
    Argon2id(Argon2Cost),
    /// Argon2i, its older sister.
    Argon2i(Argon2Cost),
    /// PBKDF2: no memory, this many rounds of HMAC with SHA-256.
    Pbkdf2(u32),
}

/// What Argon2 takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Argon2Cost {
    /// Memory in KiB.
    pub memory_kib: u32,
    /// Passes over it.
    pub passes: u32,
    /// Parts of it that may be filled at the same time.
    pub lanes: u32,
}

/// Why no key was derived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KdfError {
    /// Argon2 needs this much memory, which is not there.
    Memory {
        /// In KiB.
        needed_kib: u32,
    },
    /// A hash that is not known here.
    Hash(String),
    /// Parameters that Argon2 refuses.
    Parameters(String),
}

impl fmt::Display for KdfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory { needed_kib } => {
                write!(
                    f,
                    "key derivation needs {} MiB of memory, which are not free",
                    needed_kib.div_ceil(1024)
                )
            }
            Self::Hash(name) => write!(f, "unknown hash {name:?}; sha256, sha384 and sha512 are known"),
            Self::Parameters(problem) => write!(f, "key derivation parameters: {problem}"),
        }
    }
}

impl core::error::Error for KdfError {}

impl Cost {
    /// The cost that a header states, or what is wrong with it.
    pub(super) fn of(kdf: &Kdf) -> Result<Self, String> {
        let number = |name: &str, value: Option<u32>| {
            value.filter(|value| *value > 0).ok_or_else(|| format!("{name} is missing or zero"))
        };
        let argon2 = || {
            let memory_kib = number("memory", kdf.memory)?;
            if memory_kib > MOST_MEMORY_KIB {
                return Err(format!("memory of {memory_kib} KiB is more than {MOST_MEMORY_KIB}"));
            }
            if kdf.salt.len() < LEAST_SALT_BYTES {
                return Err(format!("a salt of {} bytes is too short", kdf.salt.len()));
            }
            Ok(Argon2Cost { memory_kib, passes: number("time", kdf.time)?, lanes: number("cpus", kdf.cpus)? })
        };
        match kdf.kind.as_str() {
            "argon2id" => argon2().map(Self::Argon2id),
            "argon2i" => argon2().map(Self::Argon2i),
            "pbkdf2" if kdf.hash.is_none() => Err("hash is missing".into()),
            "pbkdf2" => number("iterations", kdf.iterations).map(Self::Pbkdf2),
            other => Err(format!("unknown key derivation {other:?}")),
        }
    }

    /// How a header states this cost, with a new salt.
    pub(super) fn stated(self, random: RandomBytes<'_>) -> Kdf {
        let mut salt = alloc::vec![0; SALT_BYTES];
        random(&mut salt);
        let bare = Kdf {
            kind: String::new(),
            salt,
            hash: None,
            iterations: None,
            time: None,
            memory: None,
            cpus: None,
            unknown: serde_json::Map::new(),
        };
        let argon2 = |kind: &str, cost: Argon2Cost, bare: Kdf| Kdf {
            kind: kind.into(),
            time: Some(cost.passes),
            memory: Some(cost.memory_kib),
            cpus: Some(cost.lanes),
            ..bare
        };
        match self {
            Self::Argon2id(cost) => argon2("argon2id", cost, bare),
            Self::Argon2i(cost) => argon2("argon2i", cost, bare),
            Self::Pbkdf2(rounds) => {
                Kdf { kind: "pbkdf2".into(), hash: Some("sha256".into()), iterations: Some(rounds), ..bare }
            }
        }
    }

    /// Memory that deriving needs, in KiB.
    pub fn memory_kib(self) -> u32 {
        match self {
            Self::Argon2id(cost) | Self::Argon2i(cost) => cost.memory_kib,
            Self::Pbkdf2(_) => 0,
        }
    }
}

/// The key of an area.
pub(super) fn derive<W: Workers>(
    kdf: &Kdf,
    passphrase: &[u8],
    key_bytes: usize,
    workers: &W,
) -> Result<Secret, KdfError> {
    let mut key = Zeroizing::new(alloc::vec![0; key_bytes]);
    let argon2 = |variant, cost: Argon2Cost, key: &mut [u8]| {
        let Argon2Cost { memory_kib, passes, lanes } = cost;
        let parameters = Parameters { variant, memory_kib, passes, lanes };
        let inputs = Inputs { passphrase, salt: &kdf.salt, secret: &[], data: &[] };
        argon2::derive(parameters, &inputs, workers, key).map_err(|failure| match failure {
            Failure::Memory => KdfError::Memory { needed_kib: memory_kib },
            Failure::Parameters(problem) => KdfError::Parameters(problem.into()),
        })
    };
    match Cost::of(kdf).map_err(KdfError::Parameters)? {
        Cost::Argon2id(cost) => argon2(Variant::Id, cost, &mut key)?,
        Cost::Argon2i(cost) => argon2(Variant::I, cost, &mut key)?,
        Cost::Pbkdf2(rounds) => {
            pbkdf2(kdf.hash.as_deref().unwrap_or_default(), passphrase, &kdf.salt, rounds, &mut key)?;
        }
    }
    Ok(key)
}

/// Whether a volume key is the one that a digest was made of.
pub(super) fn matches(digest: &Digest, key: &[u8]) -> Result<bool, KdfError> {
    let rounds = digest.iterations.unwrap_or_default();
    let mut out = alloc::vec![0; digest.digest.len()];
    pbkdf2(digest.hash.as_deref().unwrap_or_default(), key, &digest.salt, rounds, &mut out)?;
    Ok(out == digest.digest)
}

/// PBKDF2 by the hash's name.
pub(super) fn pbkdf2(
    hash: &str,
    secret: &[u8],
    salt: &[u8],
    rounds: u32,
    out: &mut [u8],
) -> Result<(), KdfError> {
    match Hash::of(hash).ok_or_else(|| KdfError::Hash(hash.into()))? {
        Hash::Sha256 => pbkdf2_hmac::<Sha256>(secret, salt, rounds, out),
        Hash::Sha384 => pbkdf2_hmac::<Sha384>(secret, salt, rounds, out),
        Hash::Sha512 => pbkdf2_hmac::<Sha512>(secret, salt, rounds, out),
    }
    Ok(())
}
