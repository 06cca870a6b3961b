//! One command and its answer.
//!
//! Owns: the frame around parameters: header, handles, authorisations; the same backwards; a second try where the TPM
//! asks for one.
//! Fails by: the TPM's code, or an answer that does not fit its own lengths.
//! Source: part 1, §18; part 3, §4.

use alloc::vec::Vec;

use sys::Errno;
use zeroize::Zeroizing;

use crate::wire::{Reader, Writer};
use crate::{Code, Error};

/// Brings commands to a TPM.
pub trait Transport {
    /// Sends a command and waits for the whole answer.
    fn exchange(&mut self, command: &[u8]) -> Result<Vec<u8>, Errno>;

    /// Lets some time go by, after the TPM said that it is busy.
    fn pause(&mut self);
}

/// A command's name and number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Command(pub(crate) &'static str, pub(crate) u32);

pub(crate) const CREATE_PRIMARY: Command = Command("CreatePrimary", 0x131);
pub(crate) const POLICY_SECRET: Command = Command("PolicySecret", 0x151);
pub(crate) const CREATE: Command = Command("Create", 0x153);
pub(crate) const IMPORT: Command = Command("Import", 0x156);
pub(crate) const LOAD: Command = Command("Load", 0x157);
pub(crate) const UNSEAL: Command = Command("Unseal", 0x15e);
pub(crate) const FLUSH_CONTEXT: Command = Command("FlushContext", 0x165);
pub(crate) const LOAD_EXTERNAL: Command = Command("LoadExternal", 0x167);
pub(crate) const POLICY_AUTHORIZE: Command = Command("PolicyAuthorize", 0x16a);
pub(crate) const START_AUTH_SESSION: Command = Command("StartAuthSession", 0x176);
pub(crate) const VERIFY_SIGNATURE: Command = Command("VerifySignature", 0x177);
pub(crate) const GET_CAPABILITY: Command = Command("GetCapability", 0x17a);
pub(crate) const PCR_READ: Command = Command("PCR_Read", 0x17e);
pub(crate) const POLICY_PCR: Command = Command("PolicyPCR", 0x17f);
pub(crate) const PCR_EXTEND: Command = Command("PCR_Extend", 0x182);

const WITHOUT_SESSIONS: u16 = 0x8001;
const WITH_SESSIONS: u16 = 0x8002;
const HEADER_BYTES: usize = 10;
/// The authorisation by an empty password.
const PASSWORD: u32 = 0x4000_0009;
/// An answer of more is none of a TPM.
const MAX_BYTES: usize = 4096;
/// A TPM that tests itself after its start needs a second or two; the transport's pause is a tenth.
const TRIES: usize = 50;

/// An answer without its frame.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The handle, of commands that make one.
    pub(crate) handle: u32,
    /// The parameters.
    pub(crate) parameters: Zeroizing<Vec<u8>>,
}

/// Whether an answer begins with a handle.
fn makes_handle(command: Command) -> bool {
    [CREATE_PRIMARY, LOAD, LOAD_EXTERNAL, START_AUTH_SESSION].contains(&command)
}

/// A command that nothing authorises.
pub(crate) fn plain(
    tpm: &mut dyn Transport,
    command: Command,
    handles: &[u32],
    parameters: &Writer,
) -> Result<Answer, Error> {
    let body = handles.iter().fold(Writer::new(), |body, handle| body.u32(*handle)).raw(parameters.bytes());
    let answer = exchange(tpm, command, WITHOUT_SESSIONS, &body)?;
    take(command, &answer).map(|(answer, _)| answer)
}

/// A command that the empty password of its first handle authorises.
pub(crate) fn by_password(
    tpm: &mut dyn Transport,
    command: Command,
    handles: &[u32],
    parameters: &Writer,
) -> Result<Answer, Error> {
    let password = Writer::new().u32(PASSWORD).sized(&[]).u8(1).sized(&[]);
    authorised(tpm, command, handles, &password, parameters).map(|(answer, _)| answer)
}

/// A command with the authorisation of its first handle, and its answer with the TPM's.
pub(crate) fn authorised(
    tpm: &mut dyn Transport,
    command: Command,
    handles: &[u32],
    authorisation: &Writer,
    parameters: &Writer,
) -> Result<(Answer, Vec<u8>), Error> {
    let size = u32::try_from(authorisation.bytes().len()).unwrap_or(u32::MAX);
    let body = handles.iter().fold(Writer::new(), |body, handle| body.u32(*handle));
    let body = body.u32(size).raw(authorisation.bytes()).raw(parameters.bytes());
    let answer = exchange(tpm, command, WITH_SESSIONS, &body)?;
    take(command, &answer).map(|(answer, authorisation)| (answer, authorisation.to_vec()))
}

fn exchange(tpm: &mut dyn Transport, command: Command, tag: u16, body: &Writer) -> Result<Vec<u8>, Error> {
    let size = u32::try_from(HEADER_BYTES + body.bytes().len()).unwrap_or(u32::MAX);
    let frame = Writer::new().u16(tag).u32(size).u32(command.1).raw(body.bytes());
    let mut tries = 0;
    loop {
        let failed = |errno| Error::Exchange { command: command.0, errno };
        let answer = tpm.exchange(frame.bytes()).map_err(failed)?;
        let code = check(&answer).ok_or(Error::Answer { command: command.0 })?;
        tries += 1;
        match Code(code) {
            Code(0) => return Ok(answer),
            code if code.is_for_now() && tries < TRIES => tpm.pause(),
            code => return Err(Error::Refused { command: command.0, code }),
        }
    }
}

/// The code of an answer that is as long as it says.
fn check(answer: &[u8]) -> Option<u32> {
    let mut reader = Reader::new(answer);
    let (tag, size, code) = (reader.u16()?, reader.u32()?, reader.u32()?);
    let is_right = usize::try_from(size) == Ok(answer.len()) && answer.len() <= MAX_BYTES;
    (is_right && matches!(tag, WITHOUT_SESSIONS | WITH_SESSIONS)).then_some(code)
}

/// Handle, parameters and authorisations of a good answer.
fn take(command: Command, answer: &[u8]) -> Result<(Answer, &[u8]), Error> {
    let parts = || {
        let mut reader = Reader::new(answer);
        let tag = reader.u16()?;
        reader.raw(HEADER_BYTES - 2)?;
        let handle = if makes_handle(command) { reader.u32()? } else { 0 };
        let parameters = match tag {
            WITH_SESSIONS => {
                let size = reader.u32()?;
                reader.raw(usize::try_from(size).ok()?)?
            }
            _ => reader.raw(reader.rest().len())?,
        };
        Some((Answer { handle, parameters: Zeroizing::new(parameters.to_vec()) }, reader.rest()))
    };
    parts().ok_or(Error::Answer { command: command.0 })
}

/// Frees an object or a session. What cannot be freed goes with the connection to the resource manager.
pub(crate) fn flush(tpm: &mut dyn Transport, handle: u32) {
    let _ = plain(tpm, FLUSH_CONTEXT, &[], &Writer::new().u32(handle));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers the same each time.
    struct Says(Vec<u8>, usize);

    impl Transport for Says {
        fn exchange(&mut self, _command: &[u8]) -> Result<Vec<u8>, Errno> {
            Ok(self.0.clone())
        }

        fn pause(&mut self) {
            self.1 += 1;
        }
    }

    fn ask(answer: &[u8]) -> Result<Answer, Error> {
        plain(&mut Says(answer.to_vec(), 0), CREATE_PRIMARY, &[1], &Writer::new())
    }

    #[test]
    fn answers_that_do_not_fit_their_lengths_are_refused() {
        let good = b"\x80\x01\0\0\0\x10\0\0\0\0\x80\0\0\x01ab";
        let answer = ask(good).unwrap();
        assert_eq!((answer.handle, answer.parameters.as_slice()), (0x8000_0001, &b"ab"[..]));
        let damaged = Error::Answer { command: "CreatePrimary" };
        for end in 0..good.len() {
            assert_eq!(ask(&good[..end]).unwrap_err(), damaged);
        }
        assert_eq!(ask(b"\x80\x02\0\0\0\x12\0\0\0\0\x80\0\0\x01\0\0\0\x01").unwrap_err(), damaged);
        assert_eq!(ask(b"\x80\x03\0\0\0\x0a\0\0\0\0").unwrap_err(), damaged);
    }

    #[test]
    fn a_busy_tpm_is_asked_again_and_not_for_ever() {
        let mut busy = Says(b"\x80\x01\0\0\0\x0a\0\0\x09\x22".to_vec(), 0);
        let error = plain(&mut busy, UNSEAL, &[1], &Writer::new()).unwrap_err();
        assert_eq!(error.to_string(), "TPM command Unseal: RETRY (the TPM is busy)");
        assert_eq!(busy.1, TRIES - 1);
        let mut locked = Says(b"\x80\x01\0\0\0\x0a\0\0\x09\x21".to_vec(), 0);
        assert!(plain(&mut locked, UNSEAL, &[1], &Writer::new()).is_err() && locked.1 == 0);
    }
}
