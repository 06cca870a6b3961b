//! A key that is sealed without a TPM, and a real TPM 2.0 that takes it in: swtpm, the reference implementation.
//!
//! Owns: that the wrapping is as the specification wants it; that no other TPM opens it; that nothing of it can be changed
//! and nothing stays behind; that no secret is on the bus.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod emulator;
mod random;

use emulator::Emulator;
use random::random;
use tpm::{DeviceKey, Duplicate, Error, seal_for, unseal_here};

const KEY: &[u8; 32] = b"the bytes that nobody may see...";

fn sealed(tpm: &mut Emulator) -> Duplicate {
    let shown = DeviceKey::of(tpm).unwrap().to_pem();
    let device = DeviceKey::from_file(shown.as_bytes()).unwrap();
    seal_for(&device, KEY, &mut random)
}

fn open(tpm: &mut Emulator, sealed: &Duplicate) -> Result<Vec<u8>, Error> {
    unseal_here(tpm, sealed, &mut random).map(|key| key.to_vec())
}

#[test]
fn a_tpm_takes_in_what_was_sealed_for_it_as_often_as_it_is_asked() {
    let mut tpm = Emulator::start();
    let sealed = sealed(&mut tpm);
    // Nothing stays behind: there is room for three objects and three sessions.
    for _ in 0..5 {
        assert_eq!(open(&mut tpm, &sealed).unwrap(), KEY);
    }
    tpm.restart();
    assert_eq!(open(&mut tpm, &sealed).unwrap(), KEY);
    // As long as it is the same TPM, whoever owns it.
    let before = DeviceKey::of(&mut tpm).unwrap();
    tpm.clear();
    assert_eq!(DeviceKey::of(&mut tpm).unwrap(), before);
    assert_eq!(open(&mut tpm, &sealed).unwrap(), KEY);
}

#[test]
fn keys_of_all_lengths_come_back() {
    let mut tpm = Emulator::start();
    let device = DeviceKey::of(&mut tpm).unwrap();
    for length in [1, 16, 100, 128] {
        let key = vec![7; length];
        let sealed = seal_for(&device, &key, &mut random);
        assert_eq!(open(&mut tpm, &sealed).unwrap(), key);
    }
}

#[test]
fn another_tpm_says_whose_it_is_and_cannot_be_talked_into_it() {
    let (mut tpm, mut other) = (Emulator::start(), Emulator::start());
    let mut sealed = sealed(&mut tpm);
    let own = DeviceKey::of(&mut other).unwrap().digest();
    assert_eq!(open(&mut other, &sealed), Err(Error::OtherDevice { wanted: sealed.device, own }));
    let text = open(&mut other, &sealed).unwrap_err().to_string();
    assert!(text.starts_with("it is sealed for the TPM with key ") && text.len() > 150, "{text}");
    // Its name alone does not make it the other's.
    sealed.device = own;
    assert_eq!(open(&mut other, &sealed), Err(Error::Damaged));
}

#[test]
fn a_damaged_part_is_refused_at_every_byte() {
    let mut tpm = Emulator::start();
    let sealed = sealed(&mut tpm);
    type Part = fn(&mut Duplicate) -> &mut Vec<u8>;
    let parts: [(Part, usize); 3] =
        [(|it| &mut it.public, 1), (|it| &mut it.private, 5), (|it| &mut it.seed, 5)];
    for (part, step) in parts {
        let length = part(&mut sealed.clone()).len();
        for at in (0..length).step_by(step) {
            let mut damaged = sealed.clone();
            part(&mut damaged)[at] ^= 0x10;
            assert_eq!(open(&mut tpm, &damaged), Err(Error::Damaged), "byte {at} of {length}");
        }
        for length in [0, length / 2] {
            let mut damaged = sealed.clone();
            part(&mut damaged).truncate(length);
            assert_eq!(open(&mut tpm, &damaged), Err(Error::Damaged), "cut at {length}");
        }
    }
    assert_eq!(open(&mut tpm, &sealed).unwrap(), KEY);
}

#[test]
fn no_secret_is_on_the_bus() {
    let mut tpm = Emulator::start();
    let sealed = sealed(&mut tpm);
    assert_eq!(open(&mut tpm, &sealed).unwrap(), KEY);
    assert!(tpm.traffic.len() > 20);
    for frame in &tpm.traffic {
        assert!(!frame.windows(8).any(|window| window == &KEY[..8]), "{frame:02x?}");
    }
}

#[test]
fn wrong_passwords_for_other_things_do_not_lock_it_and_a_password_on_it_is_named() {
    let mut tpm = Emulator::start();
    let sealed = sealed(&mut tpm);
    tpm.lock();
    assert_eq!(open(&mut tpm, &sealed).unwrap(), KEY);
    tpm.endorse(b"secret");
    let error = open(&mut tpm, &sealed).unwrap_err().to_string();
    assert!(
        error.starts_with("TPM command CreatePrimary: BAD_AUTH (the TPM's owner has a password"),
        "{error}"
    );
}
