//! A key for a TPM that is elsewhere: sealed without it, taken in by it and by no other.
//!
//! Owns: the object that carries the key, its wrapping for another TPM's endorsement key, having it back; that nothing is
//! left in the TPM.
//! Does not: encrypt what the key is for; keep the parts.
//! Order: endorsement key, which has to be the one that was sealed for → import → load → unseal. Import and load are
//! authorised by the endorsement key's policy, the object by an empty password in a salted session.
//! Fails by: [`Error`]; that the TPM is another one is known from the endorsement key, before the object is tried.
//! Source: part 1, §23.3 (duplication), annex C.6.4 (its secret by ECDH); part 2, §12.3 (sensitive areas); part 3, §13.3
//! (Import).

use alloc::vec::Vec;

use zeroize::Zeroizing;

use crate::command::{self, Answer, Command, Transport};
use crate::crypto::{self, Way};
use crate::endorsement::{self, DeviceKey};
use crate::policy::name;
use crate::primary::{KEYED_HASH, NO_DA, NULL_ALGORITHM, Primary, SHA_256, USER_WITH_AUTH};
use crate::seal::{is_damage, unsealed};
use crate::session::{Encrypted, Purpose};
use crate::wire::{Reader, Writer};
use crate::{Error, RandomBytes, Secret};

/// Not bound to a TPM, or none could take it in; without a policy that lets it leave again.
const ATTRIBUTES: u32 = USER_WITH_AUTH | NO_DA;

/// A key that one TPM gives back. Not secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Duplicate {
    /// [`DeviceKey::digest`] of the TPM it is for.
    pub device: [u8; 32],
    /// The object's public area, `TPMT_PUBLIC`.
    pub public: Vec<u8>,
    /// The object, wrapped: what is in `TPM2B_PRIVATE`.
    pub private: Vec<u8>,
    /// The point that the wrapping's secret follows from: what is in `TPM2B_ENCRYPTED_SECRET`.
    pub seed: Vec<u8>,
}

/// Seals a key for the TPM that has this endorsement key. No more than 128 bytes.
#[must_use]
pub fn seal_for(device: &DeviceKey, key: &[u8], random: RandomBytes<'_>) -> Duplicate {
    let (point, x) = device.agreement();
    let Some((seed, told)) = crypto::agree(point, x, "DUPLICATE", &mut *random) else {
        unreachable!("a device key lies on the curve")
    };
    let mut salt = Zeroizing::new([0; 32]);
    random(salt.as_mut_slice());
    let public = area(&crypto::hash(&[salt.as_slice(), key]));
    let private = wrap(seed.as_slice(), &name(public.bytes()), salt.as_slice(), key);
    let point = Writer::new().sized(&told.x).sized(&told.y);
    Duplicate {
        device: device.digest(),
        public: public.bytes().to_vec(),
        private,
        seed: point.bytes().to_vec(),
    }
}

/// The public area of an object whose key and salt have this digest.
fn area(unique: &[u8]) -> Writer {
    let head = Writer::new().u16(KEYED_HASH).u16(SHA_256).u32(ATTRIBUTES).sized(&[]);
    head.u16(NULL_ALGORITHM).sized(unique)
}

/// The outer wrapper: proof, then the sensitive area, encrypted.
fn wrap(seed: &[u8], name: &[u8], salt: &[u8], key: &[u8]) -> Vec<u8> {
    // Kind, an empty password, what the public area's digest was made with, the key.
    let sensitive = Writer::new().u16(KEYED_HASH).sized(&[]).sized(salt).sized(key);
    let mut sensitive = Writer::new().sized(sensitive.bytes());
    crypto::cfb(&crypto::kdf_a_128(seed, "STORAGE", name, &[]), Way::Encrypt, sensitive.bytes_mut());
    let proof = crypto::kdf_a(seed, "INTEGRITY", &[], &[]);
    let proof = crypto::mac(proof.as_slice(), &[sensitive.bytes(), name]);
    Writer::new().sized(&proof).raw(sensitive.bytes()).bytes().to_vec()
}

/// The key again, on the machine that it is for.
pub fn unseal_here(
    tpm: &mut dyn Transport,
    duplicate: &Duplicate,
    random: RandomBytes<'_>,
) -> Result<Secret, Error> {
    let device = endorsement::make(tpm)?;
    let own = crypto::hash(&[&device.area]);
    let key = match own == duplicate.device {
        true => duplicate.load(tpm, &device, &mut *random).and_then(|object| {
            let key = duplicate.open(tpm, &device, object, random);
            command::flush(tpm, object);
            key
        }),
        false => Err(Error::OtherDevice { wanted: duplicate.device, own }),
    };
    command::flush(tpm, device.handle);
    key
}

impl Duplicate {
    fn load(&self, tpm: &mut dyn Transport, device: &Primary, random: RandomBytes<'_>) -> Result<u32, Error> {
        // No inner wrapper: no key for it, and no algorithm.
        let parameters = Writer::new().sized(&[]).sized(&self.public).sized(&self.private);
        let parameters = parameters.sized(&self.seed).u16(NULL_ALGORITHM);
        let imported = below(tpm, device, command::IMPORT, parameters, &mut *random)?;
        let private = Reader::new(&imported.parameters).sized();
        let private = private.ok_or(Error::Answer { command: command::IMPORT.0 })?;
        let parameters = Writer::new().sized(private).sized(&self.public);
        below(tpm, device, command::LOAD, parameters, random).map(|answer| answer.handle)
    }

    fn open(
        &self,
        tpm: &mut dyn Transport,
        device: &Primary,
        object: u32,
        random: RandomBytes<'_>,
    ) -> Result<Secret, Error> {
        device.with_session(tpm, Purpose::Authorise, random, |tpm, session| {
            unsealed(tpm, session, object, &self.public)
        })
    }
}

/// A command about an object below the endorsement key.
fn below(
    tpm: &mut dyn Transport,
    device: &Primary,
    command: Command,
    parameters: Writer,
    random: RandomBytes<'_>,
) -> Result<Answer, Error> {
    let answer = device.with_session(tpm, Purpose::Policy, random, |tpm, session| {
        endorsement::meet(tpm, session)?;
        session.ask(tpm, command, device.named(), parameters, Encrypted::default())
    });
    match answer {
        // The endorsement key is the right one: what the TPM does not take was changed.
        Err(Error::Refused { command: refused, code }) if refused == command.0 && is_damage(code) => {
            Err(Error::Damaged)
        }
        answer => answer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vectors::get as vector;

    /// The same bytes as another implementation makes of the same random bytes.
    #[test]
    fn a_key_is_wrapped_as_elsewhere() {
        let device = DeviceKey::from_file(&vector("device")).unwrap();
        assert_eq!(device.digest().to_vec(), vector("digest"));
        let mut fills = [0x22, 0x33].into_iter();
        let mut random = |bytes: &mut [u8]| bytes.fill(fills.next().unwrap());
        let made = seal_for(&device, b"the bytes that nobody may see...", &mut random);
        assert_eq!(made.public, vector("public"));
        assert_eq!(made.seed, vector("seed"));
        assert_eq!(made.private, vector("private"));
        assert_eq!(made.device, device.digest());
    }
}
