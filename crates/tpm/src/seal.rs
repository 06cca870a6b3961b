//! Sealing a key, and having it back.
//!
//! Owns: the storage key, which follows from the TPM's seed and is made anew each time; the sealed object; in which
//! order the TPM is asked; that nothing is left in it.
//! Does not: choose a policy, keep the object.
//! Fails by: [`Error`]; that the TPM is another one is known from the storage key's name, before the object is tried.
//! Source: part 1, §27 (objects); TCG PC Client Platform TPM Profile, §4 (P-256, AES-128, SHA-256); TCG TPM v2.0
//! Provisioning Guidance, §7.5.1 (storage root key).

use alloc::vec::Vec;

use zeroize::Zeroizing;

use crate::command::{self, Encrypted, Transport};
use crate::crypto::Point;
use crate::policy::{Policy, name};
use crate::session::{Purpose, Session};
use crate::wire::{Reader, Writer};
use crate::{Chance, Code, Error, Secret};

const OWNER: u32 = 0x4000_0001;
const NULL_ALGORITHM: u16 = 0x0010;
const SHA_256: u16 = 0x000b;
const ECC: u16 = 0x0023;
const KEYED_HASH: u16 = 0x0008;
const P_256: u16 = 0x0003;
/// AES, 128 bits, cipher feedback.
const SYMMETRIC: [u16; 3] = [0x0006, 128, 0x0043];

const FIXED_TPM: u32 = 1 << 1;
const FIXED_PARENT: u32 = 1 << 4;
const SENSITIVE_DATA_ORIGIN: u32 = 1 << 5;
const USER_WITH_AUTH: u32 = 1 << 6;
/// Wrong passwords for other things in the TPM do not lock it.
const NO_DA: u32 = 1 << 10;
const RESTRICTED: u32 = 1 << 16;
const DECRYPT: u32 = 1 << 17;
const STORAGE_KEY: u32 =
    FIXED_TPM | FIXED_PARENT | SENSITIVE_DATA_ORIGIN | USER_WITH_AUTH | NO_DA | RESTRICTED | DECRYPT;
/// Only a policy opens it.
const SEALED: u32 = FIXED_TPM | FIXED_PARENT | NO_DA;

/// A key that this TPM gives back when its policy is met. Not secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// The name of the storage key it lies under.
    pub(crate) storage_key: [u8; 34],
    /// The object's public area.
    pub(crate) public: Vec<u8>,
    /// The object, encrypted by the storage key.
    pub(crate) private: Vec<u8>,
    /// What the TPM demands for it.
    pub policy: Policy,
}

/// The key that objects lie under.
struct StorageKey {
    handle: u32,
    name: [u8; 34],
    point: Point,
    /// The first coordinate as the TPM spells it.
    x: Vec<u8>,
}

/// Seals a key. No more than 128 bytes.
pub fn seal(
    tpm: &mut dyn Transport,
    key: &[u8],
    policy: Policy,
    chance: Chance<'_>,
) -> Result<Sealed, Error> {
    let storage = StorageKey::make(tpm)?;
    let made = with_session(tpm, &storage, Purpose::Authorise, chance, |tpm, session| {
        create(tpm, &storage, session, key, &policy)
    });
    command::flush(tpm, storage.handle);
    let (private, public) = made?;
    Ok(Sealed { storage_key: storage.name, public, private, policy })
}

fn create(
    tpm: &mut dyn Transport,
    storage: &StorageKey,
    session: &mut Session,
    key: &[u8],
    policy: &Policy,
) -> Result<(Vec<u8>, Vec<u8>), Error> {
    let public = Writer::new().u16(KEYED_HASH).u16(SHA_256).u32(SEALED).sized(&policy.digest());
    let public = public.u16(NULL_ALGORITHM).sized(&[]);
    let secret = Writer::new().sized(&[]).sized(key);
    let parameters = Writer::new().sized(secret.bytes()).sized(public.bytes()).sized(&[]).u32(0);
    let encrypted = Encrypted { question: true, answer: false };
    let command = command::CREATE;
    let answer =
        command::by_session(tpm, command, (storage.handle, &storage.name), parameters, session, encrypted)?;
    let mut reader = Reader::new(&answer.parameters);
    let parts = reader.sized().zip(reader.sized());
    let (private, public) = parts.ok_or(Error::Answer { command: command.0 })?;
    Ok((private.to_vec(), public.to_vec()))
}

/// The key again.
pub fn unseal(tpm: &mut dyn Transport, sealed: &Sealed, chance: Chance<'_>) -> Result<Secret, Error> {
    let storage = StorageKey::make(tpm)?;
    let found = match storage.name == sealed.storage_key {
        true => sealed.load(tpm, &storage, &mut *chance).and_then(|object| {
            let key = sealed.open(tpm, &storage, object, chance);
            command::flush(tpm, object);
            key
        }),
        false => Err(Error::OtherTpm),
    };
    command::flush(tpm, storage.handle);
    found
}

impl Sealed {
    fn load(&self, tpm: &mut dyn Transport, storage: &StorageKey, chance: Chance<'_>) -> Result<u32, Error> {
        let loaded = with_session(tpm, storage, Purpose::Authorise, chance, |tpm, session| {
            let parameters = Writer::new().sized(&self.private).sized(&self.public);
            let under = (storage.handle, &storage.name[..]);
            command::by_session(tpm, command::LOAD, under, parameters, session, Encrypted::default())
        });
        match loaded {
            Ok(answer) => Ok(answer.handle),
            // The storage key is the right one: what the TPM does not take was changed.
            Err(Error::Refused { code, .. }) if is_damage(code) => Err(Error::Damaged),
            Err(error) => Err(error),
        }
    }

    fn open(
        &self,
        tpm: &mut dyn Transport,
        storage: &StorageKey,
        object: u32,
        chance: Chance<'_>,
    ) -> Result<Secret, Error> {
        let answer = with_session(tpm, storage, Purpose::Policy, chance, |tpm, session| {
            self.policy.meet(tpm, session)?;
            let encrypted = Encrypted { question: false, answer: true };
            let named = name(&self.public);
            command::by_session(tpm, command::UNSEAL, (object, &named), Writer::new(), session, encrypted)
        })?;
        let key = Reader::new(&answer.parameters).sized();
        let key = key.ok_or(Error::Answer { command: command::UNSEAL.0 })?;
        Ok(Zeroizing::new(key.to_vec()))
    }
}

/// Whether a TPM says of an object that it cannot have made it so, and not of who brings it.
fn is_damage(code: Code) -> bool {
    code.is_about_a_part() && !matches!(code.base(), Code::AUTH_FAIL | Code::BAD_AUTH | Code::NONCE)
}

/// Does something in a session, and ends that.
fn with_session<T>(
    tpm: &mut dyn Transport,
    storage: &StorageKey,
    purpose: Purpose,
    chance: Chance<'_>,
    work: impl FnOnce(&mut dyn Transport, &mut Session) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut session = Session::start(tpm, (storage.handle, &storage.point, &storage.x), purpose, chance)?;
    let done = work(tpm, &mut session);
    command::flush(tpm, session.handle);
    done
}

impl StorageKey {
    /// Has the TPM make it: the same each time, as long as the owner's seed is.
    fn make(tpm: &mut dyn Transport) -> Result<Self, Error> {
        let command = command::CREATE_PRIMARY;
        let template = template();
        let zeros = [0; 32];
        let public = Writer::new().raw(template.bytes()).sized(&zeros).sized(&zeros);
        let nothing = Writer::new().sized(&[]).sized(&[]);
        let parameters = Writer::new().sized(nothing.bytes()).sized(public.bytes()).sized(&[]).u32(0);
        let answer = command::by_password(tpm, command, OWNER, &parameters)?;
        let read = || {
            let area = Reader::new(&answer.parameters).sized()?;
            let mut unique = Reader::new(area.strip_prefix(template.bytes())?);
            let (x, y) = (unique.sized()?, unique.sized()?);
            Some(Self { handle: answer.handle, name: name(area), point: Point::new(x, y)?, x: x.to_vec() })
        };
        let key = read();
        if key.is_none() {
            command::flush(tpm, answer.handle);
        }
        key.ok_or(Error::Answer { command: command.0 })
    }
}

/// The public area of a storage key, up to what is its own.
fn template() -> Writer {
    let head = Writer::new().u16(ECC).u16(SHA_256).u32(STORAGE_KEY).sized(&[]);
    let head = SYMMETRIC.into_iter().fold(head, Writer::u16);
    head.u16(NULL_ALGORITHM).u16(P_256).u16(NULL_ALGORITHM)
}
