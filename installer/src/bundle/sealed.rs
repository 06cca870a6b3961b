//! Configs that one device opens: encrypted with a key of one use, which only the device's TPM gives back.
//!
//! Owns: the cipher, what is proved beside the config, sealing and opening.
//! Does not: know how a TPM wraps a key (crate `tpm`), or where a payload's parts lie ([`ondisk::bundle`]).
//! Fails by: [`Error`]; no config and no key is part of one.
//! Source: NIST SP 800-38D (GCM); docs/formats/config-bundle.md.

use ondisk::bundle::{Parts, Sealed};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use tpm::{DeviceKey, Duplicate, Transport};
use zeroize::Zeroizing;

use super::Error;

/// Bytes of a config's key.
const KEY_BYTES: usize = 32;

/// The config of an entry, for the device with this key alone.
pub fn seal(device: &DeviceKey, config: &[u8]) -> Result<Vec<u8>, Error> {
    let mut key = Zeroizing::new([0; KEY_BYTES]);
    random(key.as_mut_slice());
    let carrier = tpm::seal_for(device, key.as_slice(), &mut random);
    let parts = Parts {
        device: ondisk::Digest(carrier.device),
        public: &carrier.public,
        private: &carrier.private,
        seed: &carrier.seed,
    };
    let mut payload = parts.head().map_err(Error::CannotSeal)?;
    // Encrypted where it lies: room for all of it, so that none is left behind in the memory.
    let mut body = Zeroizing::new(Vec::with_capacity(config.len() + AES_256_GCM.tag_len()));
    body.extend_from_slice(config);
    let proved = Aad::from(payload.as_slice());
    let done = cipher(&key[..])?.seal_in_place_append_tag(nonce(), proved, &mut *body);
    done.map_err(|_| Error::CannotSeal("it is too long to be encrypted"))?;
    payload.extend_from_slice(&body);
    Ok(payload)
}

/// The config again, on the device. `tpm` is asked a dozen things, each with the transport's own deadline.
pub fn open(sealed: &Sealed<'_>, tpm: &mut dyn Transport) -> Result<Zeroizing<Vec<u8>>, Error> {
    let carrier = Duplicate {
        device: sealed.parts.device.0,
        public: sealed.parts.public.to_vec(),
        private: sealed.parts.private.to_vec(),
        seed: sealed.parts.seed.to_vec(),
    };
    let key = tpm::unseal_here(tpm, &carrier, &mut random)?;
    let mut text = Zeroizing::new(sealed.body.to_vec());
    let opened = cipher(&key)?.open_in_place(nonce(), Aad::from(sealed.head), &mut text);
    let length = opened.map_err(|_| Error::NotThisKey)?.len();
    text.truncate(length);
    Ok(text)
}

fn cipher(key: &[u8]) -> Result<LessSafeKey, Error> {
    UnboundKey::new(&AES_256_GCM, key).map(LessSafeKey::new).map_err(|_| Error::NotThisKey)
}

/// A key encrypts one config and no more: its only nonce may be any.
fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; NONCE_LEN])
}

fn random(bytes: &mut [u8]) {
    SystemRandom::new()
        .fill(bytes)
        .expect("invariant: the kernel has random numbers long before a program runs");
}
