//! A TPM in memory that knows its side of the protocol, and answers wrongly where an input says so.
//!
//! Owns: sessions with their proofs and encryption, so that a change behind them is one that only the TPM could make; where an
//! input's changes go in.
//! Does not: check what it is asked: it meets every policy and takes every object. Its keys are the curve's generator, whose
//! private half is one: an agreed point is the other side's own, and nothing is multiplied here.
//! Source: Trusted Platform Module Library, Family 2.0, parts 1 to 3, as the crate `tpm` names them.

use std::collections::{BTreeMap, BTreeSet};

use aes::Aes128;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};
use sys::Errno;
use tpm::Transport;

use crate::input::Fields;

/// The generator of P-256 (SEC 2, §2.4.2).
const GENERATOR: [[u8; 32]; 2] = [
    [
        0x6b, 0x17, 0xd1, 0xf2, 0xe1, 0x2c, 0x42, 0x47, 0xf8, 0xbc, 0xe6, 0xe5, 0x63, 0xa4, 0x40, 0xf2, 0x77,
        0x03, 0x7d, 0x81, 0x2d, 0xeb, 0x33, 0xa0, 0xf4, 0xa1, 0x39, 0x45, 0xd8, 0x98, 0xc2, 0x96,
    ],
    [
        0x4f, 0xe3, 0x42, 0xe2, 0xfe, 0x1a, 0x7f, 0x9b, 0x8e, 0xe7, 0xeb, 0x4a, 0x7c, 0x0f, 0x9e, 0x16, 0x2b,
        0xce, 0x33, 0x57, 0x6b, 0x31, 0x5e, 0xce, 0xcb, 0xb6, 0x40, 0x68, 0x37, 0xbf, 0x51, 0xf5,
    ],
];

const CREATE_PRIMARY: u32 = 0x131;
const CREATE: u32 = 0x153;
const IMPORT: u32 = 0x156;
const LOAD: u32 = 0x157;
const UNSEAL: u32 = 0x15e;
const FLUSH_CONTEXT: u32 = 0x165;
const LOAD_EXTERNAL: u32 = 0x167;
const START_AUTH_SESSION: u32 = 0x176;
const VERIFY_SIGNATURE: u32 = 0x177;
const GET_CAPABILITY: u32 = 0x17a;
const PCR_READ: u32 = 0x17e;

const WITHOUT_SESSIONS: u16 = 0x8001;
const WITH_SESSIONS: u16 = 0x8002;
const PASSWORD: u32 = 0x4000_0009;
const DECRYPT: u8 = 0x20;
const ENCRYPT: u8 = 0x40;
/// `TPM_RC_HANDLE` of the first handle, `TPM_RC_RETRY`.
const NO_SUCH_HANDLE: u32 = 0x18b;
const RETRY: u32 = 0x922;
const HEADER_BYTES: usize = 10;
/// Registers in one answer.
const PCRS_AT_ONCE: usize = 8;

/// One change of an answer.
#[derive(Debug, Clone, Copy)]
struct Edit<'a> {
    /// Which answer, from 0.
    answer: usize,
    kind: u8,
    at: usize,
    bytes: &'a [u8],
}

/// The TPM.
pub(super) struct Chip<'a> {
    edits: Vec<Edit<'a>>,
    sessions: BTreeMap<u32, Session>,
    /// What loaded objects hold.
    objects: BTreeMap<u32, Vec<u8>>,
    /// What an imported object holds.
    imported: Vec<u8>,
    count: usize,
    pub(super) pauses: usize,
    /// An answer was changed by what only the TPM could do.
    pub(super) lied: bool,
    /// An answer about handles was changed: they need not all come back.
    pub(super) lost_track: bool,
    live: BTreeSet<u32>,
}

struct Session {
    key: [u8; 32],
    /// The number of the TPM's last answer.
    ours: Vec<u8>,
}

impl<'a> Chip<'a> {
    /// One that makes these changes. `imported`: what an object from elsewhere has in it.
    pub(super) fn new(mut input: Fields<'a>, imported: &[u8]) -> Self {
        let mut edits = Vec::new();
        while !input.is_empty() {
            let (answer, kind, at) = (input.u8().into(), input.u8(), input.u16().into());
            let count = usize::from(input.u8());
            edits.push(Edit { answer, kind, at, bytes: input.bytes(count) });
        }
        Self {
            edits,
            sessions: BTreeMap::new(),
            objects: BTreeMap::new(),
            imported: imported.to_vec(),
            count: 0,
            pauses: 0,
            lied: false,
            lost_track: false,
            live: BTreeSet::new(),
        }
    }

    /// Commands so far.
    pub(super) fn commands(&self) -> usize {
        self.count
    }

    /// Whether objects or sessions are left.
    pub(super) fn is_full(&self) -> bool {
        !self.live.is_empty()
    }

    fn handle(&mut self, kind: u32) -> u32 {
        let handle = kind | u32::try_from(self.count).unwrap_or(0);
        self.live.insert(handle);
        handle
    }

    /// Handle and parameters of a good answer, or a code.
    fn parameters(&mut self, code: u32, handles: &[u32], parameters: &[u8]) -> Result<Good, u32> {
        let mut fields = Fields::of(parameters);
        let good = |parameters: Vec<u8>| Ok(Good { handle: None, parameters });
        match code {
            CREATE_PRIMARY => {
                let _sensitive = fields.sized();
                let template = fields.sized();
                let head = &template[..template.len().saturating_sub(2 * 34)];
                let area = [head, &sized(&GENERATOR[0]), &sized(&GENERATOR[1])].concat();
                let handle = self.handle(0x8000_0000);
                Ok(Good { handle: Some(handle), parameters: [sized(&area), sized(b"creation")].concat() })
            }
            START_AUTH_SESSION => {
                let theirs = fields.sized();
                let mut point = Fields::of(fields.sized());
                let x = point.sized();
                let ours = hash(&[b"number", theirs]).to_vec();
                let salt = hash(&[&1_u32.to_be_bytes(), x, b"SECRET\0", x, &GENERATOR[0]]);
                let key = kdf_a(&salt, "ATH", &ours, theirs);
                let handle = self.handle(0x0200_0000);
                self.sessions.insert(handle, Session { key, ours: ours.clone() });
                Ok(Good { handle: Some(handle), parameters: sized(&ours) })
            }
            LOAD_EXTERNAL => Ok(Good { handle: Some(self.handle(0x8000_0000)), parameters: sized(&[0, 11]) }),
            LOAD => {
                let private = fields.sized().to_vec();
                let handle = self.handle(0x8000_0000);
                self.objects.insert(handle, private);
                Ok(Good { handle: Some(handle), parameters: sized(&[0, 11]) })
            }
            CREATE => {
                let mut sensitive = Fields::of(fields.sized());
                let _password = sensitive.sized();
                good([sized(sensitive.sized()), sized(fields.sized()), sized(b"creation")].concat())
            }
            IMPORT => good(sized(&self.imported)),
            UNSEAL => {
                let object = handles.first().and_then(|handle| self.objects.get(handle));
                object.ok_or(NO_SUCH_HANDLE).and_then(|object| good(sized(object)))
            }
            FLUSH_CONTEXT => {
                let handle = u32::from(fields.u16()) << 16 | u32::from(fields.u16());
                self.live.remove(&handle);
                good(Vec::new())
            }
            GET_CAPABILITY => good([&[0, 0, 0, 0, 5][..], &selection(&[0xff; 3])].concat()),
            PCR_READ => good(registers(fields.bytes(HEADER_BYTES))),
            VERIFY_SIGNATURE => good([&[0x80, 0x22, 0x40, 0, 0, 1][..], &sized(&[7; 32])].concat()),
            _ => good(Vec::new()),
        }
    }

    /// The changes of this answer.
    fn edits(&self) -> impl Iterator<Item = Edit<'a>> + use<'a> {
        let count = self.count;
        self.edits.clone().into_iter().filter(move |edit| edit.answer == count)
    }

    /// The whole answer to a command, changed only where the TPM itself would.
    fn answer(&mut self, command: &[u8]) -> Vec<u8> {
        let mut fields = Fields::of(command);
        let (tag, _size) = (fields.u16(), fields.bytes(4));
        let code = number(fields.bytes(4));
        let handles: Vec<u32> = (0..handles(code)).map(|_| number(fields.bytes(4))).collect();
        let mut authorisation = Fields::of(&[]);
        if tag == WITH_SESSIONS {
            let size = usize::try_from(number(fields.bytes(4))).unwrap_or(0);
            authorisation = Fields::of(fields.bytes(size));
        }
        let handle = number(authorisation.bytes(4));
        let (theirs, attributes) = (authorisation.sized().to_vec(), authorisation.u8());
        let mut parameters = fields.rest().to_vec();
        let session = self.sessions.get(&handle).map(|session| (session.key, session.ours.clone()));
        if tag == WITH_SESSIONS && handle != PASSWORD && session.is_none() {
            return refusal(NO_SUCH_HANDLE);
        }
        if let Some((key, ours)) = session.as_ref().filter(|_| attributes & DECRYPT != 0) {
            cfb(&kdf_a(key, "CFB", &theirs, ours), Way::Decrypt, first(&mut parameters));
        }
        let mut good = match self.parameters(code, &handles, &parameters) {
            Ok(good) => good,
            Err(code) => return refusal(code),
        };
        for edit in self.edits().filter(|edit| edit.kind & 1 == 1) {
            self.lied = true;
            change(&mut good.parameters, edit);
        }
        let mut proof = sized(&[]);
        proof.extend([attributes, 0, 0]);
        if let Some((key, ours)) = session {
            let ours = hash(&[b"next", &ours]);
            if attributes & ENCRYPT != 0 {
                cfb(&kdf_a(&key, "CFB", &ours, &theirs), Way::Encrypt, first(&mut good.parameters));
            }
            let what = hash(&[&[0; 4], &code.to_be_bytes(), &good.parameters]);
            let right = mac(&key, &[&what, &ours, &theirs, &[attributes]]);
            proof = [sized(&ours), vec![attributes], sized(&right)].concat();
            self.sessions.insert(handle, Session { key, ours: ours.to_vec() });
        }
        framed(tag, &good, &proof)
    }
}

impl Transport for Chip<'_> {
    fn exchange(&mut self, command: &[u8]) -> Result<Vec<u8>, Errno> {
        let size = command.get(2..6).map(number).unwrap_or(0);
        assert!(usize::try_from(size) == Ok(command.len()), "a command that is not as long as it says");
        let code = command.get(6..HEADER_BYTES).map(number).unwrap_or(0);
        let makes = [CREATE_PRIMARY, START_AUTH_SESSION, LOAD, LOAD_EXTERNAL, FLUSH_CONTEXT].contains(&code);
        self.lost_track |= makes && self.edits().next().is_some();
        let mut answer = self.answer(command);
        for edit in self.edits().filter(|edit| edit.kind & 1 == 0) {
            match edit.kind >> 1 & 7 {
                6 => answer = refusal(number(edit.bytes)),
                7 => {
                    self.count += 1;
                    return Err(Errno::from_raw_os_error(
                        i32::from(edit.bytes.first().copied().unwrap_or(5)).max(1),
                    ));
                }
                _ => change(&mut answer, edit),
            }
            // Half of the changes keep the length right, without which nothing else is looked at.
            let length = u32::try_from(answer.len()).unwrap_or(0);
            if let Some(size) = answer.get_mut(2..6).filter(|_| edit.kind & 0x10 == 0) {
                size.copy_from_slice(&length.to_be_bytes());
            }
        }
        self.count += 1;
        Ok(answer)
    }

    fn pause(&mut self) {
        self.pauses += 1;
        // It is busy for as long as an input says, which is not for ever.
        assert!(self.pauses < 10_000, "asked again and again");
    }
}

struct Good {
    handle: Option<u32>,
    parameters: Vec<u8>,
}

fn change(bytes: &mut Vec<u8>, edit: Edit<'_>) {
    let at = edit.at.min(bytes.len());
    match edit.kind >> 1 & 7 {
        0 | 1 => {
            for (to, from) in bytes.iter_mut().skip(at).zip(edit.bytes) {
                *to = *from;
            }
        }
        2 => bytes.truncate(at),
        3 => drop(bytes.splice(at..at, edit.bytes.iter().copied())),
        4 => drop(bytes.drain(at..(at + edit.bytes.len()).min(bytes.len()))),
        _ => *bytes = edit.bytes.to_vec(),
    }
}

fn handles(code: u32) -> usize {
    match code {
        FLUSH_CONTEXT | LOAD_EXTERNAL | GET_CAPABILITY | PCR_READ => 0,
        START_AUTH_SESSION | 0x151 => 2,
        _ => 1,
    }
}

fn framed(tag: u16, good: &Good, proof: &[u8]) -> Vec<u8> {
    let mut body = good.handle.map(|handle| handle.to_be_bytes().to_vec()).unwrap_or_default();
    if tag == WITH_SESSIONS {
        body.extend(u32::try_from(good.parameters.len()).unwrap_or(0).to_be_bytes());
    }
    body.extend(&good.parameters);
    if tag == WITH_SESSIONS {
        body.extend(proof);
    }
    with_header(tag, 0, &body)
}

fn with_header(tag: u16, code: u32, body: &[u8]) -> Vec<u8> {
    let size = u32::try_from(HEADER_BYTES + body.len()).unwrap_or(0);
    [&tag.to_be_bytes()[..], &size.to_be_bytes(), &code.to_be_bytes(), body].concat()
}

fn refusal(code: u32) -> Vec<u8> {
    with_header(WITHOUT_SESSIONS, if code == 0 { RETRY } else { code }, &[])
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().take(4).fold(0, |value, byte| value << 8 | u32::from(*byte))
}

fn sized(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    [&length.to_be_bytes(), bytes].concat()
}

fn selection(bits: &[u8]) -> Vec<u8> {
    [&[0, 0, 0, 1, 0, 11, 3][..], bits].concat()
}

/// As many of the registers as fit into an answer; each holds its number.
fn registers(wanted: &[u8]) -> Vec<u8> {
    let bits: Vec<u8> = wanted.iter().skip(7).copied().collect();
    let is_wanted =
        |number: &u8| bits.get(usize::from(number / 8)).is_some_and(|byte| byte >> (number % 8) & 1 == 1);
    let given: Vec<u8> = (0..24).filter(is_wanted).take(PCRS_AT_ONCE).collect();
    let mut chosen = [0; 3];
    given.iter().for_each(|number| chosen[usize::from(number / 8)] |= 1 << (number % 8));
    let count = u32::try_from(given.len()).unwrap_or(0);
    let mut answer = [&[0; 4][..], &selection(&chosen), &count.to_be_bytes()].concat();
    given.iter().for_each(|number| answer.extend(sized(&[*number; 32])));
    answer
}

fn hash(pieces: &[&[u8]]) -> [u8; 32] {
    let mut state = Sha256::new();
    pieces.iter().for_each(|piece| state.update(piece));
    state.finalize().into()
}

fn mac(key: &[u8], pieces: &[&[u8]]) -> [u8; 32] {
    let mut state = Hmac::<Sha256>::new_from_slice(key).expect("an HMAC takes every key");
    pieces.iter().for_each(|piece| state.update(piece));
    state.finalize().into_bytes().into()
}

fn kdf_a(key: &[u8], purpose: &str, u: &[u8], v: &[u8]) -> [u8; 32] {
    mac(key, &[&1_u32.to_be_bytes(), purpose.as_bytes(), &[0], u, v, &256_u32.to_be_bytes()])
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Encrypt,
    Decrypt,
}

/// AES-128 in cipher feedback: the key, then the first block.
fn cfb(material: &[u8; 32], way: Way, data: &mut [u8]) {
    let (key, first) = material.split_at(16);
    let key: [u8; 16] = key.try_into().expect("16 bytes");
    let mut feedback: [u8; 16] = first.try_into().expect("16 bytes");
    let cipher = Aes128::new(&key.into());
    for piece in data.chunks_mut(16) {
        let mut stream = feedback.into();
        cipher.encrypt_block(&mut stream);
        for (at, byte) in piece.iter_mut().enumerate() {
            let before = *byte;
            *byte ^= stream[at];
            feedback[at] = if way == Way::Encrypt { *byte } else { before };
        }
    }
}

/// What is in the sized buffer at the start.
fn first(parameters: &mut [u8]) -> &mut [u8] {
    let size = usize::from(Fields::of(parameters).u16());
    parameters.get_mut(2..).and_then(|rest| rest.get_mut(..size)).unwrap_or_default()
}
