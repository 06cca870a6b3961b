//! Keys that a TPM makes from its own seeds: the same each time, and kept nowhere.
//!
//! Owns: having one made, what of it is used, sessions that are salted to it.
//! Does not: choose a template.
//! Fails by: [`Error`]; a key that is not what its template says is a damaged answer.
//! Source: part 1, §27 (objects); part 3, §24.1 (CreatePrimary).

use alloc::vec::Vec;

use crate::command::{self, Transport};
use crate::crypto::Point;
use crate::policy::name;
use crate::session::{Purpose, Session};
use crate::wire::{Reader, Writer};
use crate::{Error, RandomBytes};

pub(crate) const NULL_ALGORITHM: u16 = 0x0010;
pub(crate) const SHA_256: u16 = 0x000b;
pub(crate) const KEYED_HASH: u16 = 0x0008;
const ECC: u16 = 0x0023;
const P_256: u16 = 0x0003;
/// AES, 128 bits, cipher feedback.
const SYMMETRIC: [u16; 3] = [0x0006, 128, 0x0043];

pub(crate) const FIXED_TPM: u32 = 1 << 1;
pub(crate) const FIXED_PARENT: u32 = 1 << 4;
pub(crate) const SENSITIVE_DATA_ORIGIN: u32 = 1 << 5;
pub(crate) const USER_WITH_AUTH: u32 = 1 << 6;
pub(crate) const ADMIN_WITH_POLICY: u32 = 1 << 7;
/// Wrong passwords for other things in the TPM do not lock it.
pub(crate) const NO_DA: u32 = 1 << 10;
pub(crate) const RESTRICTED: u32 = 1 << 16;
pub(crate) const DECRYPT: u32 = 1 << 17;

/// A key on P-256 that objects lie under, in the TPM.
pub(crate) struct Primary {
    pub(crate) handle: u32,
    pub(crate) name: [u8; 34],
    /// What the TPM says of it.
    pub(crate) area: Vec<u8>,
    point: Point,
    /// The first coordinate as the TPM spells it.
    x: Vec<u8>,
}

/// The public area of a key that objects lie under, up to what is its own.
pub(crate) fn template(attributes: u32, policy: &[u8]) -> Writer {
    let head = Writer::new().u16(ECC).u16(SHA_256).u32(attributes).sized(policy);
    let head = SYMMETRIC.into_iter().fold(head, Writer::u16);
    head.u16(NULL_ALGORITHM).u16(P_256).u16(NULL_ALGORITHM)
}

/// The coordinates of a key that was made from a template, as they are spelled.
pub(crate) fn coordinates<'a>(area: &'a [u8], template: &Writer) -> Option<(&'a [u8], &'a [u8])> {
    let mut unique = Reader::new(area.strip_prefix(template.bytes())?);
    let coordinates = (unique.sized()?, unique.sized()?);
    unique.rest().is_empty().then_some(coordinates)
}

impl Primary {
    /// Has the TPM make it: the same each time, as long as the hierarchy's seed is.
    pub(crate) fn make(
        tpm: &mut dyn Transport,
        hierarchy: u32,
        attributes: u32,
        policy: &[u8],
    ) -> Result<Self, Error> {
        let command = command::CREATE_PRIMARY;
        let template = template(attributes, policy);
        let zeros = [0; 32];
        let public = Writer::new().raw(template.bytes()).sized(&zeros).sized(&zeros);
        let nothing = Writer::new().sized(&[]).sized(&[]);
        let parameters = Writer::new().sized(nothing.bytes()).sized(public.bytes()).sized(&[]).u32(0);
        let answer = command::by_password(tpm, command, &[hierarchy], &parameters)?;
        let read = || {
            let area = Reader::new(&answer.parameters).sized()?;
            let (x, y) = coordinates(area, &template)?;
            Some(Self {
                handle: answer.handle,
                name: name(area),
                area: area.to_vec(),
                point: Point::new(x, y)?,
                x: x.to_vec(),
            })
        };
        let key = read();
        if key.is_none() {
            command::flush(tpm, answer.handle);
        }
        key.ok_or(Error::Answer { command: command.0 })
    }

    /// Handle and name, as an authorisation wants them.
    pub(crate) fn named(&self) -> (u32, &[u8]) {
        (self.handle, &self.name)
    }

    /// Does something in a session that is salted to it, and ends that.
    pub(crate) fn with_session<T>(
        &self,
        tpm: &mut dyn Transport,
        purpose: Purpose,
        random: RandomBytes<'_>,
        work: impl FnOnce(&mut dyn Transport, &mut Session) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut session = Session::start(tpm, (self.handle, &self.point, &self.x), purpose, random)?;
        let done = work(tpm, &mut session);
        command::flush(tpm, session.handle);
        done
    }
}
