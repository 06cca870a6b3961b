//! Sealing a key, and having it back.
//!
//! Owns: the storage key's template; the sealed object; in which order the TPM is asked; that nothing is left in it.
//! Does not: choose a policy, keep the object.
//! Fails by: [`Error`]; that the TPM is another one is known from the storage key's name, before the object is tried.
//! Source: part 1, §27 (objects); TCG PC Client Platform TPM Profile, §4 (P-256, AES-128, SHA-256); TCG TPM v2.0
//! Provisioning Guidance, §7.5.1 (storage root key).

use alloc::vec::Vec;

use zeroize::Zeroizing;

use crate::command::{self, Transport};
use crate::policy::{Policy, name};
use crate::primary::{
    DECRYPT, FIXED_PARENT, FIXED_TPM, KEYED_HASH, NO_DA, NULL_ALGORITHM, Primary, RESTRICTED,
    SENSITIVE_DATA_ORIGIN, SHA_256, USER_WITH_AUTH,
};
use crate::session::{Encrypted, Purpose, Session};
use crate::wire::{Reader, Writer};
use crate::{Code, Error, RandomBytes, Secret};

const OWNER: u32 = 0x4000_0001;
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

/// Seals a key. No more than 128 bytes.
pub fn seal(
    tpm: &mut dyn Transport,
    key: &[u8],
    policy: Policy,
    random: RandomBytes<'_>,
) -> Result<Sealed, Error> {
    let storage = storage_key(tpm)?;
    let made = storage.with_session(tpm, Purpose::Authorise, random, |tpm, session| {
        create(tpm, &storage, session, key, &policy)
    });
    command::flush(tpm, storage.handle);
    let (private, public) = made?;
    Ok(Sealed { storage_key: storage.name, public, private, policy })
}

fn create(
    tpm: &mut dyn Transport,
    storage: &Primary,
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
    let answer = session.ask(tpm, command, storage.named(), parameters, encrypted)?;
    let mut reader = Reader::new(&answer.parameters);
    let parts = reader.sized().zip(reader.sized());
    let (private, public) = parts.ok_or(Error::Answer { command: command.0 })?;
    Ok((private.to_vec(), public.to_vec()))
}

/// The key again.
pub fn unseal(tpm: &mut dyn Transport, sealed: &Sealed, random: RandomBytes<'_>) -> Result<Secret, Error> {
    let storage = storage_key(tpm)?;
    let found = match storage.name == sealed.storage_key {
        true => sealed.load(tpm, &storage, &mut *random).and_then(|object| {
            let key = sealed.open(tpm, &storage, object, random);
            command::flush(tpm, object);
            key
        }),
        false => Err(Error::OtherTpm),
    };
    command::flush(tpm, storage.handle);
    found
}

impl Sealed {
    fn load(
        &self,
        tpm: &mut dyn Transport,
        storage: &Primary,
        random: RandomBytes<'_>,
    ) -> Result<u32, Error> {
        let loaded = storage.with_session(tpm, Purpose::Authorise, random, |tpm, session| {
            let parameters = Writer::new().sized(&self.private).sized(&self.public);
            session.ask(tpm, command::LOAD, storage.named(), parameters, Encrypted::default())
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
        storage: &Primary,
        object: u32,
        random: RandomBytes<'_>,
    ) -> Result<Secret, Error> {
        storage.with_session(tpm, Purpose::Policy, random, |tpm, session| {
            self.policy.meet(tpm, session)?;
            unsealed(tpm, session, object, &self.public)
        })
    }
}

/// What an object that is loaded has sealed, where the session may have it. Encrypted on its way.
pub(crate) fn unsealed(
    tpm: &mut dyn Transport,
    session: &mut Session,
    object: u32,
    public: &[u8],
) -> Result<Secret, Error> {
    let encrypted = Encrypted { question: false, answer: true };
    let object = (object, &name(public)[..]);
    let answer = session.ask(tpm, command::UNSEAL, object, Writer::new(), encrypted)?;
    let key = Reader::new(&answer.parameters).sized();
    let key = key.ok_or(Error::Answer { command: command::UNSEAL.0 })?;
    Ok(Zeroizing::new(key.to_vec()))
}

/// Whether a TPM says of an object that it cannot have made it so, and not of who brings it.
pub(crate) fn is_damage(code: Code) -> bool {
    code.is_about_a_part() && !matches!(code.base(), Code::AUTH_FAIL | Code::BAD_AUTH | Code::NONCE)
}

/// The key that objects lie under: the same each time, as long as the owner's seed is.
fn storage_key(tpm: &mut dyn Transport) -> Result<Primary, Error> {
    Primary::make(tpm, OWNER, STORAGE_KEY, &[])
}
