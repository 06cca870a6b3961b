//! A TPM's answers, in every operation that the crate `tpm` has, and what a node keeps of a TPM: tokens, public keys.
//!
//! An input names an operation, and then changes of answers ([`chip`]): on the bus, or by the TPM before it proves them.
//! What must hold: nothing panics; no command is asked for ever; memory is bounded; an error names the command or the
//! register and has no key in it; what somebody on the bus changes ends in an error or in the right key, never another
//! one; nothing is left in the TPM. A token or a public key that is read is written and read back the same.

mod chip;

use std::sync::OnceLock;

use serde_json::{Map, Value};
use tpm::{
    Demand, DeviceKey, Duplicate, Error, Pcrs, Policy, Sealed, Values, approve, extend, read_pcrs, seal_for,
    seal_to, unseal, unseal_here,
};

use crate::check;
use crate::input::Fields;
use crate::target::{Outcome, Target};
use chip::Chip;

pub(super) const TARGET: Target = Target {
    name: "tpm",
    about: "answers of a TPM, tokens and public keys of one",
    seeds,
    words: WORDS,
    run,
};

const WORDS: &[&str] = &[
    "\u{0}\u{b}",
    "\u{0}\u{20}",
    "\"storageKey\":",
    "\"pcrs\":{\"7\":",
    "\"signed\":{",
    "\"approvals\":[",
    "AAAA",
    "-----BEGIN TPM PUBLIC KEY-----",
    "\\r\\n",
];

const KEY: &[u8; 32] = b"the bytes that nobody may see...";
/// What an operation may hold; an answer has 4096 bytes, and some dozens of them are short.
const MOST_BYTES: usize = 512 << 10;
/// Commands of an operation: some twenty, and each is tried fifty times.
const MOST_COMMANDS: usize = 2000;

const OPERATIONS: u8 = 9;

/// Random bytes that differ.
fn random() -> impl FnMut(&mut [u8]) {
    let mut count = 0_u8;
    move |bytes| {
        count += 1;
        bytes.fill(count);
    }
}

fn pcrs(numbers: &[u8]) -> Pcrs {
    Pcrs::new(numbers).expect("registers that there are")
}

fn demand() -> Demand {
    let given = Values::from([(15, [0; 32])]);
    Demand { fixed: pcrs(&[0, 4, 7, 14]), given, approved: pcrs(&[11]), systems: Vec::new() }
}

/// Values that no system has yet.
fn next() -> Values {
    Values::from([(11, [0x5a; 32])])
}

/// What a TPM without changes makes: a key sealed to it, one sealed for it from elsewhere, its public key.
struct Made {
    sealed: Sealed,
    duplicate: Duplicate,
    device: DeviceKey,
}

fn made() -> &'static Made {
    static MADE: OnceLock<Made> = OnceLock::new();
    MADE.get_or_init(|| {
        let mut chip = Chip::new(Fields::of(&[]), KEY);
        let sealed = seal_to(&mut chip, KEY, &demand(), &mut random()).expect("a TPM without changes seals");
        let device = DeviceKey::of(&mut chip).expect("a TPM without changes has a key");
        let duplicate = seal_for(&device, KEY, &mut random());
        Made { sealed, duplicate, device }
    })
}

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = (0..OPERATIONS).map(|operation| vec![operation]).collect();
    // One change of each kind, of each of the first answers.
    for operation in 0..OPERATIONS - 2 {
        for answer in 0..12 {
            seeds.push(vec![operation, answer, answer.wrapping_mul(5), 0, 14, 2, 0, 33]);
        }
    }
    let token = serde_json::to_vec(&made().sealed.to_json()).expect("a token is JSON");
    let area = made().device.area();
    let operation = |number: u8, bytes: &[u8]| [&[OPERATIONS - number], bytes].concat();
    seeds.extend([operation(1, &token), operation(2, area), operation(2, made().device.to_pem().as_bytes())]);
    seeds
}

fn run(input: &[u8]) -> Outcome {
    let made = made();
    let mut fields = Fields::of(input);
    let operation = fields.u8() % OPERATIONS;
    if operation == OPERATIONS - 1 {
        return token(fields.rest());
    }
    if operation == OPERATIONS - 2 {
        return public_key(fields.rest());
    }
    let mut chip = Chip::new(fields, KEY);
    let (before, random) = (input.len(), &mut random());
    let done = check::within(MOST_BYTES + 16 * before, || match operation {
        0 => unseal(&mut chip, &made.sealed, random).map(|key| key_of(&chip, &key)),
        1 => unseal_here(&mut chip, &made.duplicate, random).map(|key| key_of(&chip, &key)),
        2 => seal_to(&mut chip, KEY, &demand(), random).map(|sealed| policy_of(&sealed.policy)),
        3 => {
            let mut sealed = made.sealed.clone();
            approve(&mut chip, &mut sealed, &next(), random).map(|done| format!("approved {done}"))
        }
        4 => read_pcrs(&mut chip, pcrs(&(0..24).collect::<Vec<_>>()))
            .map(|values| format!("{} registers", values.len())),
        5 => extend(&mut chip, 8, &[3; 32]).map(|()| "extended".to_owned()),
        _ => DeviceKey::of(&mut chip).map(|key| format!("the same key: {}", key == made.device)),
    });
    assert!(chip.commands() <= MOST_COMMANDS, "{} commands", chip.commands());
    assert!(chip.pauses <= chip.commands(), "{} pauses of {} commands", chip.pauses, chip.commands());
    assert!(chip.lost_track || !chip.is_full(), "something is left in the TPM");
    match done {
        Ok(shape) => Outcome { accepted: true, shapes: vec![format!("{operation}: {shape}")] },
        Err(error) => refused(operation, &error),
    }
}

/// A key that came back: nobody on the bus can make it another one.
fn key_of(chip: &Chip<'_>, key: &[u8]) -> String {
    assert!(chip.lied || key == KEY, "a change on the bus made another key");
    format!("the same key: {}", key == KEY)
}

fn policy_of(policy: &Policy) -> String {
    let approvals = policy.signed.as_ref().map_or(0, |signed| signed.approvals.len());
    format!("sealed to {} registers, {approvals} approvals", policy.values.len())
}

fn refused(operation: u8, error: &Error) -> Outcome {
    let text = error.to_string();
    check::shown(&text);
    for shown in [text.clone(), format!("{error:?}")] {
        check::without(&shown, "the bytes that nobody may see");
        check::without(&shown, &format!("{:?}", &KEY[..8]).replace(['[', ']'], ""));
    }
    let named = ["TPM", "PCR", "sealed"].iter().any(|word| text.contains(word));
    assert!(named, "{text:?} says nothing of where");
    let mut outcome = Outcome::refused(&text);
    outcome.shapes.iter_mut().for_each(|shape| *shape = format!("{operation}:{shape}"));
    outcome
}

fn token(text: &[u8]) -> Outcome {
    let Ok(fields) = serde_json::from_slice::<Map<String, Value>>(text) else {
        return Outcome::refused("no JSON object");
    };
    match Sealed::from_json(&fields) {
        Ok(sealed) => {
            let again = Sealed::from_json(&sealed.to_json());
            assert!(again.as_ref() == Ok(&sealed), "a token changed: {again:?}");
            Outcome { accepted: true, shapes: vec![format!("token: {}", policy_of(&sealed.policy))] }
        }
        Err(error) => {
            check::shown(&error.to_string());
            Outcome::refused(&error.to_string())
        }
    }
}

fn public_key(file: &[u8]) -> Outcome {
    match check::within(MOST_BYTES + 16 * file.len(), || DeviceKey::from_file(file)) {
        Ok(key) => {
            for form in [key.to_pem().into_bytes(), key.area().to_vec()] {
                let again = DeviceKey::from_file(&form);
                assert!(again.as_ref() == Ok(&key), "a public key changed: {again:?}");
            }
            Outcome { accepted: true, shapes: vec!["a public key".to_owned()] }
        }
        Err(error) => {
            check::shown(&error.to_string());
            Outcome::refused(&error.to_string())
        }
    }
}
