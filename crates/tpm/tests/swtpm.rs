//! Sealing against a real TPM 2.0: swtpm, which is the reference implementation of the specification in a process.
//!
//! Owns: that the conversation is as the specification wants it; what each fault is called; that no secret is on the bus.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod emulator;
mod random;

use emulator::Emulator;
use random::random;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use tpm::{
    Approval, Error, Pcrs, Policy, PublicKey, Sealed, Signed, Transport, Values, extend, read_pcrs, seal,
    unseal,
};

const KEY: &[u8; 32] = b"the bytes that nobody may see...";
const MEASURED: [u8; 32] = [0x5a; 32];

fn pcrs(numbers: &[u8]) -> Pcrs {
    Pcrs::new(numbers).unwrap()
}

fn bound(tpm: &mut Emulator, numbers: &[u8]) -> Policy {
    Policy { values: read_pcrs(tpm, pcrs(numbers)).unwrap(), signed: None }
}

fn sealed(tpm: &mut Emulator, numbers: &[u8]) -> Sealed {
    let policy = bound(tpm, numbers);
    seal(tpm, KEY, policy, &mut random).unwrap()
}

fn open(tpm: &mut Emulator, sealed: &Sealed) -> Result<Vec<u8>, Error> {
    unseal(tpm, sealed, &mut random).map(|key| key.to_vec())
}

#[test]
fn a_key_comes_back_and_also_after_a_restart() {
    let mut tpm = Emulator::start();
    let sealed = sealed(&mut tpm, &[7]);
    assert_eq!(open(&mut tpm, &sealed).unwrap(), KEY);
    tpm.restart();
    assert_eq!(open(&mut tpm, &sealed).unwrap(), KEY);
    // Nothing stays behind: there is room for three objects.
    for _ in 0..5 {
        assert_eq!(open(&mut tpm, &sealed).unwrap(), KEY);
    }
}

#[test]
fn a_register_that_changed_is_named() {
    let mut tpm = Emulator::start();
    let sealed = sealed(&mut tpm, &[0, 4, 7, 14]);
    extend(&mut tpm, 11, &MEASURED).unwrap();
    assert_eq!(open(&mut tpm, &sealed).unwrap(), KEY, "11 is none of its");
    extend(&mut tpm, 7, &MEASURED).unwrap();
    assert_eq!(open(&mut tpm, &sealed).unwrap_err().to_string(), "PCR 7 changed since the key was sealed");
    extend(&mut tpm, 4, &MEASURED).unwrap();
    assert_eq!(open(&mut tpm, &sealed), Err(Error::Changed(vec![4, 7])));
    tpm.restart();
    assert_eq!(open(&mut tpm, &sealed).unwrap(), KEY);
}

#[test]
fn a_policy_that_was_changed_on_the_disk_helps_nobody() {
    let mut tpm = Emulator::start();
    let mut sealed = sealed(&mut tpm, &[7]);
    extend(&mut tpm, 7, &MEASURED).unwrap();
    sealed.policy.values = read_pcrs(&mut tpm, pcrs(&[7])).unwrap();
    let error = open(&mut tpm, &sealed).unwrap_err().to_string();
    assert!(error.starts_with("TPM command Unseal: POLICY_FAIL (the machine is not in the state"), "{error}");
    sealed.policy.values = Values::new();
    assert!(open(&mut tpm, &sealed).unwrap_err().to_string().contains("POLICY_FAIL"));
}

#[test]
fn a_key_may_be_bound_to_the_tpm_alone() {
    let mut tpm = Emulator::start();
    let sealed = sealed(&mut tpm, &[]);
    extend(&mut tpm, 7, &MEASURED).unwrap();
    assert_eq!(open(&mut tpm, &sealed).unwrap(), KEY);
}

/// A key that approves.
struct Approver(EcdsaKeyPair);

impl Approver {
    fn new() -> Self {
        let made =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new()).unwrap();
        let pair =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, made.as_ref(), &SystemRandom::new());
        Self(pair.unwrap())
    }

    fn public(&self) -> PublicKey {
        PublicKey(self.0.public_key().as_ref()[1..].try_into().unwrap())
    }

    fn approve(&self, values: &Values) -> Approval {
        let sign = |what: &[u8]| self.0.sign(&SystemRandom::new(), what).unwrap().as_ref().try_into();
        Approval::new(values, sign).unwrap()
    }
}

#[test]
fn an_upgrade_that_was_approved_does_not_lock_itself_out() {
    let mut tpm = Emulator::start();
    let approver = Approver::new();
    let old = read_pcrs(&mut tpm, pcrs(&[11])).unwrap();
    let signed =
        Signed { pcrs: pcrs(&[11]), key: approver.public(), approvals: vec![approver.approve(&old)] };
    let values = read_pcrs(&mut tpm, pcrs(&[7])).unwrap();
    let policy = Policy { values, signed: Some(signed) };
    let mut sealed = seal(&mut tpm, KEY, policy, &mut random).unwrap();
    assert_eq!(open(&mut tpm, &sealed).unwrap(), KEY);

    extend(&mut tpm, 11, &MEASURED).unwrap();
    assert_eq!(open(&mut tpm, &sealed), Err(Error::NotApproved(vec![11])));

    // Approved by who does not have the sealed key: before the values are there, in life.
    let new = read_pcrs(&mut tpm, pcrs(&[11])).unwrap();
    let approvals = |sealed: &mut Sealed, list| sealed.policy.signed.as_mut().unwrap().approvals = list;
    approvals(&mut sealed, vec![approver.approve(&old), approver.approve(&new)]);
    assert_eq!(open(&mut tpm, &sealed).unwrap(), KEY);

    // Both demands count.
    extend(&mut tpm, 7, &MEASURED).unwrap();
    assert_eq!(open(&mut tpm, &sealed), Err(Error::Changed(vec![7])));
    tpm.restart();
    assert_eq!(open(&mut tpm, &sealed).unwrap(), KEY, "the old system is approved as well");

    let stranger = Approver::new();
    extend(&mut tpm, 11, &MEASURED).unwrap();
    approvals(&mut sealed, vec![stranger.approve(&new)]);
    let error = open(&mut tpm, &sealed).unwrap_err().to_string();
    assert!(error.starts_with("TPM command VerifySignature: SIGNATURE"), "{error}");
    sealed.policy.signed.as_mut().unwrap().key = stranger.public();
    assert!(open(&mut tpm, &sealed).unwrap_err().to_string().contains("POLICY_FAIL"));
}

#[test]
fn another_tpm_and_one_that_was_cleared_are_the_same_reason() {
    let mut tpm = Emulator::start();
    let sealed = sealed(&mut tpm, &[7]);
    let mut other = Emulator::start();
    assert_eq!(open(&mut other, &sealed), Err(Error::OtherTpm));
    tpm.clear();
    assert_eq!(
        open(&mut tpm, &sealed).unwrap_err().to_string(),
        "the key was sealed by another TPM, or before this one was cleared"
    );
}

#[test]
fn a_damaged_object_is_refused_at_every_byte() {
    let mut tpm = Emulator::start();
    let sealed = sealed(&mut tpm, &[7]);
    let fields = sealed.to_json();
    for (name, step) in [("private", 7), ("public", 1)] {
        let bytes = decode(fields[name].as_str().unwrap());
        for at in (0..bytes.len()).step_by(step) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            assert_damaged(&mut tpm, &fields, name, &damaged);
        }
        assert_damaged(&mut tpm, &fields, name, &bytes[..bytes.len() / 2]);
        assert_damaged(&mut tpm, &fields, name, &[]);
    }
    assert_eq!(open(&mut tpm, &sealed).unwrap(), KEY);
}

fn assert_damaged(
    tpm: &mut Emulator,
    fields: &serde_json::Map<String, serde_json::Value>,
    name: &str,
    bytes: &[u8],
) {
    let mut fields = fields.clone();
    fields.insert(name.into(), encode(bytes).into());
    let sealed = Sealed::from_json(&fields).unwrap();
    assert_eq!(open(tpm, &sealed), Err(Error::Damaged), "{name} {bytes:02x?}");
}

fn decode(text: &str) -> Vec<u8> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.decode(text).unwrap()
}

fn encode(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

#[test]
fn no_secret_is_on_the_bus() {
    let mut tpm = Emulator::start();
    let sealed = sealed(&mut tpm, &[7]);
    assert_eq!(open(&mut tpm, &sealed).unwrap(), KEY);
    assert!(tpm.traffic.len() > 12);
    for frame in &tpm.traffic {
        assert!(!frame.windows(8).any(|window| window == &KEY[..8]), "{frame:02x?}");
    }
}

/// Somebody on the bus who changes answers.
struct Between<'a> {
    tpm: &'a mut Emulator,
    /// The command whose answer is changed.
    command: u32,
    /// Counted from the end.
    byte: usize,
}

impl Transport for Between<'_> {
    fn exchange(&mut self, command: &[u8]) -> Result<Vec<u8>, sys::Errno> {
        let mut answer = self.tpm.exchange(command)?;
        if command[6..10] == self.command.to_be_bytes() {
            let at = answer.len() - self.byte.min(answer.len());
            answer[at] ^= 1;
        }
        Ok(answer)
    }

    fn pause(&mut self) {}
}

#[test]
fn an_answer_that_somebody_changed_is_noticed() {
    let mut tpm = Emulator::start();
    let sealed = sealed(&mut tpm, &[7]);
    const UNSEAL: u32 = 0x15e;
    // The proof, the attributes before it, the TPM's number before those, the key's last byte before that.
    for byte in [1, 35, 36, 70] {
        let mut between = Between { tpm: &mut tpm, command: UNSEAL, byte };
        let error = unseal(&mut between, &sealed, &mut random).unwrap_err();
        assert!(matches!(error, Error::Forged { .. } | Error::Answer { .. }), "{byte}: {error}");
    }
    const CREATE_PRIMARY: u32 = 0x131;
    let answers =
        unseal(&mut Between { tpm: &mut tpm, command: CREATE_PRIMARY, byte: 1 }, &sealed, &mut random);
    assert_eq!(answers.unwrap(), KEY.to_vec().into(), "what is not used may be anything");
    assert_eq!(open(&mut tpm, &sealed).unwrap(), KEY);
}

#[test]
fn damaged_answers_of_every_command_are_refused() {
    let mut tpm = Emulator::start();
    let sealed = sealed(&mut tpm, &[7]);
    for command in [0x131, 0x157, 0x15e, 0x176, 0x17a, 0x17e] {
        for byte in [12, 20, 40] {
            // Never a panic, never another key.
            let mut between = Between { tpm: &mut tpm, command, byte };
            if let Ok(key) = unseal(&mut between, &sealed, &mut random) {
                assert_eq!(key.as_slice(), KEY);
            }
        }
        tpm.restart();
    }
}

#[test]
fn wrong_passwords_for_other_things_do_not_lock_our_key() {
    let mut tpm = Emulator::start();
    let sealed = sealed(&mut tpm, &[7]);
    let locked = tpm.lock();
    assert_eq!(
        locked.to_string(),
        "LOCKOUT (the TPM is locked after wrong passwords; wait, or clear it in the firmware)"
    );
    assert_eq!(open(&mut tpm, &sealed).unwrap(), KEY);
}

#[test]
fn an_owner_with_a_password_is_named() {
    let mut tpm = Emulator::start();
    let sealed = sealed(&mut tpm, &[7]);
    tpm.own(b"secret");
    let error = open(&mut tpm, &sealed).unwrap_err().to_string();
    assert_eq!(
        error,
        "TPM command CreatePrimary: BAD_AUTH (the TPM's owner has a password, and Billet knows none: clear the TPM in \
         the firmware; session 1)"
    );
}

#[test]
fn a_tpm_that_goes_away_is_named() {
    let mut tpm = Emulator::start();
    let sealed = sealed(&mut tpm, &[7]);
    tpm.stop();
    let error = open(&mut tpm, &sealed).unwrap_err().to_string();
    assert!(error.starts_with("TPM command CreatePrimary: E"), "{error}");
}

#[test]
fn who_holds_the_key_approves_what_is_yet_to_run() {
    let mut tpm = Emulator::start();
    let demand = tpm::Demand { fixed: pcrs(&[7]), approved: pcrs(&[11]), ..tpm::Demand::default() };
    let mut sealed = tpm::seal_to(&mut tpm, KEY, &demand, &mut random).unwrap();
    assert_eq!(open(&mut tpm, &sealed).unwrap(), KEY);

    // A register that a new system extends once, from zeros.
    let measured = |digest: [u8; 32]| {
        let both = [[0; 32], digest].concat();
        let value = ring::digest::digest(&ring::digest::SHA256, &both);
        Values::from([(11, value.as_ref().try_into().unwrap())])
    };
    let new = measured(MEASURED);
    assert_eq!(tpm::approve(&mut tpm, &mut sealed, &new, &mut random), Ok(true));
    let sealed = &mut Sealed::from_json(&sealed.to_json()).unwrap();
    extend(&mut tpm, 11, &MEASURED).unwrap();
    assert_eq!(open(&mut tpm, sealed).unwrap(), KEY, "the new system");
    tpm.restart();
    assert_eq!(open(&mut tpm, sealed).unwrap(), KEY, "the old one");

    // As many as are kept, and no more: the oldest goes, and never that of the system that runs.
    for count in 0..3 {
        assert_eq!(tpm::approve(&mut tpm, sealed, &measured([count; 32]), &mut random), Ok(true));
    }
    assert_eq!(sealed.policy.signed.as_ref().unwrap().approvals.len(), tpm::MOST_APPROVALS);
    assert_eq!(open(&mut tpm, sealed).unwrap(), KEY, "the running one");
    extend(&mut tpm, 11, &MEASURED).unwrap();
    assert_eq!(open(&mut tpm, sealed), Err(Error::NotApproved(vec![11])));

    // Who cannot open does not approve.
    assert!(tpm::approve(&mut tpm, sealed, &measured([9; 32]), &mut random).is_err());
    let mut plain = self::sealed(&mut tpm, &[7]);
    assert_eq!(tpm::approve(&mut tpm, &mut plain, &new, &mut random), Ok(false));
}

#[test]
fn a_key_that_was_sealed_elsewhere_is_approved_for_the_systems_of_its_disk() {
    let mut tpm = Emulator::start();
    extend(&mut tpm, 11, &[1; 32]).unwrap();
    let systems = vec![Values::from([(11, [0; 32])])];
    let demand = tpm::Demand { approved: pcrs(&[11]), systems, ..tpm::Demand::default() };
    let sealed = tpm::seal_to(&mut tpm, KEY, &demand, &mut random).unwrap();
    assert_eq!(open(&mut tpm, &sealed), Err(Error::NotApproved(vec![11])), "what installs");
    tpm.restart();
    assert_eq!(open(&mut tpm, &sealed).unwrap(), KEY, "what was installed");
}

/// Sealed in a start whose register is not as it is to be.
#[test]
fn a_key_is_sealed_for_a_start_that_is_yet_to_come() {
    let mut tpm = Emulator::start();
    extend(&mut tpm, 15, &MEASURED).unwrap();
    let given = Values::from([(15, [0; 32])]);
    for fixed in [pcrs(&[7]), pcrs(&[7, 15])] {
        let demand = tpm::Demand { fixed, given: given.clone(), ..tpm::Demand::default() };
        let sealed = tpm::seal_to(&mut tpm, KEY, &demand, &mut random).unwrap();
        assert_eq!(open(&mut tpm, &sealed), Err(Error::Changed(vec![15])));
        // The token is not secret: with the demand taken out of it the TPM keeps the key.
        let mut without = sealed.clone();
        without.policy.values.remove(&15);
        assert!(open(&mut tpm, &without).unwrap_err().to_string().contains("POLICY_FAIL"));
        tpm.restart();
        assert_eq!(open(&mut tpm, &sealed).unwrap(), KEY);
        extend(&mut tpm, 15, &MEASURED).unwrap();
        assert_eq!(open(&mut tpm, &sealed), Err(Error::Changed(vec![15])), "for the rest of the start");
    }
}
