//! A config that one device opens, from `add` to the device's TPM: swtpm, the reference implementation of TPM 2.0.
//!
//! Owns: that what is sealed without a TPM opens on the one it was sealed for, and on no other; that nothing of a payload
//! can be changed, whoever signed the bundle; that the config is nowhere in the bundle.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../crates/tpm/tests/emulator/mod.rs"]
mod emulator;

use emulator::Emulator;
use installer::bundle::{DeviceKey, Error, open, seal};
use ondisk::bundle::Sealed;

const CONFIG: &[u8] = b"version: v1alpha1\nmachine:\n  token: nobody may read this\n";

fn opened(payload: &[u8], tpm: &mut Emulator) -> Result<Vec<u8>, Error> {
    open(&Sealed::read(payload).unwrap(), tpm).map(|text| text.to_vec())
}

#[test]
fn a_config_opens_on_its_device_and_on_no_other() {
    let (mut tpm, mut other) = (Emulator::start(), Emulator::start());
    let device = DeviceKey::of(&mut tpm).unwrap();
    let payload = seal(&device, CONFIG).unwrap();
    assert_eq!(opened(&payload, &mut tpm).unwrap(), CONFIG);
    assert!(!payload.windows(12).any(|window| window == &CONFIG[..12]));
    assert!(seal(&device, CONFIG).unwrap() != payload, "each config has a key of its own");
    let error = opened(&payload, &mut other).unwrap_err().to_string();
    assert!(error.starts_with("it is sealed for the TPM with key "), "{error}");
    let long = vec![b'x'; 200_000];
    assert_eq!(opened(&seal(&device, &long).unwrap(), &mut tpm).unwrap(), long);
}

#[test]
fn a_changed_payload_does_not_open() {
    let mut tpm = Emulator::start();
    let payload = seal(&DeviceKey::of(&mut tpm).unwrap(), CONFIG).unwrap();
    let body = payload.len() - Sealed::read(&payload).unwrap().body.len();
    // Bytes of the digest and the three parts are the TPM's to refuse, those behind it the cipher's.
    for at in (8..body).step_by(23).chain((body..payload.len()).step_by(17)) {
        let mut changed = payload.clone();
        changed[at] ^= 1;
        let error = opened(&changed, &mut tpm).unwrap_err();
        let expected =
            if at < body { matches!(error, Error::Tpm(_)) } else { matches!(error, Error::NotThisKey) };
        assert!(expected, "byte {at}: {error}");
    }
    assert_eq!(opened(&payload, &mut tpm).unwrap(), CONFIG);
}

/// A TPM gives the key for the carrier alone; the config beside it may not be another one's.
#[test]
fn a_config_does_not_open_beside_another_ones_key() {
    let mut tpm = Emulator::start();
    let device = DeviceKey::of(&mut tpm).unwrap();
    let (one, two) = (seal(&device, CONFIG).unwrap(), seal(&device, b"other: config\n").unwrap());
    let (one, two) = (Sealed::read(&one).unwrap(), Sealed::read(&two).unwrap());
    let mixed = [one.head, two.body].concat();
    assert!(matches!(opened(&mixed, &mut tpm), Err(Error::NotThisKey)));
}
