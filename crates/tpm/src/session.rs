//! A conversation with the TPM that nobody on its bus can read or change.
//!
//! Owns: the session's key, which follows from a salt that only the holder of the storage key learns; both sides'
//! numbers of one use; the proof under each command and each answer; the encryption of first parameters.
//! Does not: know whether the storage key is the TPM's: its name is compared by who knows it ([`crate::unseal`]).
//! Source: part 1, §19 (sessions), §21 (parameter encryption).

use alloc::vec::Vec;

use zeroize::Zeroizing;

use crate::command::{self, Answer, Command, Transport};
use crate::crypto::{self, Digest32, Point, Way};
use crate::wire::{Reader, Writer};
use crate::{Error, RandomBytes};

/// No object.
const NULL: u32 = 0x4000_0007;
/// AES, 128 bits, cipher feedback; SHA-256.
const SYMMETRIC: [u16; 3] = [0x0006, 128, 0x0043];
const SHA_256: u16 = 0x000b;

/// The session stays when the command is done.
const CONTINUE: u8 = 0x01;
/// The command's first parameter is encrypted.
const DECRYPT: u8 = 0x20;
/// The answer's is.
const ENCRYPT: u8 = 0x40;

/// What a session is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// It authorises by an empty password, which it does not send.
    Authorise = 0,
    /// It gathers what a policy demands.
    Policy = 1,
}

/// Which of the first parameters cross the bus encrypted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Encrypted {
    pub(crate) question: bool,
    pub(crate) answer: bool,
}

/// A handle, and the name that an authorisation covers.
pub(crate) type Handle<'a> = (u32, &'a [u8]);

pub(crate) struct Session {
    pub(crate) handle: u32,
    attributes: u8,
    key: Zeroizing<Digest32>,
    theirs: Vec<u8>,
    ours: Digest32,
    /// Where the next of ours come from: they have to differ, not to be secret.
    count: u32,
}

impl Session {
    /// Starts one, salted to a key that objects lie under.
    pub(crate) fn start(
        tpm: &mut dyn Transport,
        key: (u32, &Point, &[u8]),
        purpose: Purpose,
        random: RandomBytes<'_>,
    ) -> Result<Self, Error> {
        let (handle, point, x) = key;
        let command = command::START_AUTH_SESSION;
        let damaged = Error::Answer { command: command::CREATE_PRIMARY.0 };
        let (salt, told) = crypto::agree(point, x, "SECRET", random).ok_or(damaged)?;
        let mut ours = [0; 32];
        random(&mut ours);
        let secret = Writer::new().sized(&told.x).sized(&told.y);
        let parameters = Writer::new().sized(&ours).sized(secret.bytes()).u8(purpose as u8);
        let parameters = SYMMETRIC.into_iter().fold(parameters, Writer::u16).u16(SHA_256);
        let answer = command::plain(tpm, command, &[handle, NULL], &parameters)?;
        let theirs = Reader::new(&answer.parameters).sized();
        let theirs = theirs.ok_or(Error::Answer { command: command.0 })?.to_vec();
        let key = crypto::kdf_a(salt.as_slice(), "ATH", &theirs, &ours);
        Ok(Self { handle: answer.handle, attributes: CONTINUE, key, theirs, ours, count: 0 })
    }

    /// A command that the session authorises.
    pub(crate) fn ask(
        &mut self,
        tpm: &mut dyn Transport,
        command: Command,
        handle: Handle<'_>,
        mut parameters: Writer,
        encrypted: Encrypted,
    ) -> Result<Answer, Error> {
        let fresh = self.next(encrypted);
        if encrypted.question {
            self.encrypt(parameters.bytes_mut());
        }
        let proof = self.prove(command, handle.1, parameters.bytes());
        let authorisation = Writer::new().u32(self.handle).sized(&fresh).u8(self.attributes).sized(&proof);
        let (mut answer, authorisation) =
            command::authorised(tpm, command, &[handle.0], &authorisation, &parameters)?;
        self.check(command, &answer.parameters, &authorisation)?;
        if encrypted.answer {
            self.decrypt(&mut answer.parameters);
        }
        Ok(answer)
    }

    /// Begins a command: a new number of ours.
    fn next(&mut self, encrypted: Encrypted) -> Digest32 {
        self.count += 1;
        self.ours = crypto::mac(self.key.as_slice(), &[b"number", &self.ours, &self.count.to_be_bytes()]);
        let question = if encrypted.question { DECRYPT } else { 0 };
        let answer = if encrypted.answer { ENCRYPT } else { 0 };
        self.attributes = CONTINUE | question | answer;
        self.ours
    }

    /// The proof of a command. `name` is of the object that it is about.
    fn prove(&self, command: Command, name: &[u8], parameters: &[u8]) -> Digest32 {
        let what = crypto::hash(&[&command.1.to_be_bytes(), name, parameters]);
        crypto::mac(self.key.as_slice(), &[&what, &self.ours, &self.theirs, &[self.attributes]])
    }

    /// Checks the proof of an answer, and takes the TPM's new number from it.
    fn check(&mut self, command: Command, parameters: &[u8], proof: &[u8]) -> Result<(), Error> {
        let mut reader = Reader::new(proof);
        let fields = (reader.sized(), reader.u8(), reader.sized());
        let (Some(theirs), Some(attributes), Some(proof)) = fields else {
            return Err(Error::Answer { command: command.0 });
        };
        self.theirs = theirs.to_vec();
        let what = crypto::hash(&[&0_u32.to_be_bytes(), &command.1.to_be_bytes(), parameters]);
        let right = crypto::mac(self.key.as_slice(), &[&what, &self.theirs, &self.ours, &[attributes]]);
        // How long this takes says nothing that helps: a wrong proof ends the session.
        if proof != right { Err(Error::Forged { command: command.0 }) } else { Ok(()) }
    }

    /// Encrypts the first parameter of a command, which is a sized buffer.
    fn encrypt(&self, parameters: &mut [u8]) {
        let material = crypto::kdf_a(self.key.as_slice(), "CFB", &self.ours, &self.theirs);
        crypto::cfb(&material, Way::Encrypt, first(parameters));
    }

    /// Decrypts that of an answer.
    fn decrypt(&self, parameters: &mut [u8]) {
        let material = crypto::kdf_a(self.key.as_slice(), "CFB", &self.theirs, &self.ours);
        crypto::cfb(&material, Way::Decrypt, first(parameters));
    }
}

/// What is in the sized buffer at the start; nothing if there is none.
fn first(parameters: &mut [u8]) -> &mut [u8] {
    let size = Reader::new(parameters).u16().unwrap_or(0).into();
    parameters.get_mut(2..).and_then(|rest| rest.get_mut(..size)).unwrap_or_default()
}
