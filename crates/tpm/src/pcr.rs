//! Registers of the machine's measured state: sets of them, their values, reading them.
//!
//! Does not: know what is measured where.
//! Fails by: naming the register; a TPM without the SHA-256 bank is refused, SHA-1 is not used.
//! Source: part 2, §10.6.2 (selections), §6.12 (capabilities); part 3, §22 and §30.2.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::Error;
use crate::command::{self, Transport};
use crate::crypto::{self, Digest32};
use crate::wire::{Reader, Writer};

/// As many as every TPM of a PC has.
pub const PCRS: u8 = 24;

const SHA_256: u16 = 0x000b;
/// `TPM_CAP_PCRS`
const CAPABILITY_PCRS: u32 = 5;

/// A set of registers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pcrs(u32);

/// Registers and their SHA-256 values.
pub type Values = BTreeMap<u8, [u8; 32]>;

impl Pcrs {
    /// These; `None` where a number is no register.
    #[must_use]
    pub fn new(numbers: &[u8]) -> Option<Self> {
        let known = |set: u32, number: &u8| (*number < PCRS).then(|| set | 1 << number);
        numbers.iter().try_fold(0, known).map(Self)
    }

    /// Those that have a value here.
    #[must_use]
    pub fn of(values: &Values) -> Option<Self> {
        let numbers: Vec<u8> = values.keys().copied().collect();
        Self::new(&numbers)
    }

    /// Whether it is one of them.
    #[must_use]
    pub fn contains(self, number: u8) -> bool {
        number < PCRS && self.0 & 1 << number != 0
    }

    /// Their numbers.
    pub fn iter(self) -> impl Iterator<Item = u8> {
        (0..PCRS).filter(move |number| self.contains(*number))
    }

    /// A list of one selection, of the SHA-256 bank.
    pub(crate) fn selection(self) -> Writer {
        let [a, b, c, _] = self.0.to_le_bytes();
        Writer::new().u32(1).u16(SHA_256).u8(3).raw(&[a, b, c])
    }
}

/// The same list backwards; other banks are passed over.
fn read_selection(reader: &mut Reader<'_>) -> Option<Pcrs> {
    let mut found = 0;
    for _ in 0..reader.u32()? {
        let (bank, size) = (reader.u16()?, reader.u8()?);
        let bits = reader.raw(size.into())?;
        if bank == SHA_256 {
            let bits = bits.iter().take(3).enumerate();
            found = bits.fold(found, |found, (at, byte)| found | u32::from(*byte) << (8 * at));
        }
    }
    Some(Pcrs(found))
}

/// What the registers hold now.
pub fn read(tpm: &mut dyn Transport, wanted: Pcrs) -> Result<Values, Error> {
    check_bank(tpm, wanted)?;
    let mut values = Values::new();
    let damaged = Error::Answer { command: command::PCR_READ.0 };
    // A TPM gives some at a time.
    while let Some(missing) = wanted.iter().find(|number| !values.contains_key(number)) {
        let rest: Vec<u8> = wanted.iter().filter(|number| !values.contains_key(number)).collect();
        let rest = Pcrs::new(&rest).unwrap_or_default();
        let answer = command::plain(tpm, command::PCR_READ, &[], &rest.selection())?;
        let found = read_values(&answer.parameters).ok_or_else(|| damaged.clone())?;
        values.extend(found.into_iter().filter(|(number, _)| rest.contains(*number)));
        if !values.contains_key(&missing) {
            return Err(Error::NoRegister(missing));
        }
    }
    Ok(values)
}

fn read_values(answer: &[u8]) -> Option<Vec<(u8, Digest32)>> {
    let mut reader = Reader::new(answer);
    let _update_counter = reader.u32()?;
    let selected: Vec<u8> = read_selection(&mut reader)?.iter().collect();
    let count = usize::try_from(reader.u32()?).ok()?;
    if count != selected.len() {
        return None;
    }
    selected.into_iter().map(|number| Some((number, reader.sized()?.try_into().ok()?))).collect()
}

fn check_bank(tpm: &mut dyn Transport, wanted: Pcrs) -> Result<(), Error> {
    let command = command::GET_CAPABILITY;
    let question = Writer::new().u32(CAPABILITY_PCRS).u32(0).u32(1);
    let answer = command::plain(tpm, command, &[], &question)?;
    let bank = || {
        let mut reader = Reader::new(&answer.parameters);
        let (_more, kind) = (reader.u8()?, reader.u32()?);
        (kind == CAPABILITY_PCRS).then(|| read_selection(&mut reader))?
    };
    let bank = bank().ok_or(Error::Answer { command: command.0 })?;
    if bank == Pcrs::default() {
        return Err(Error::NoBank);
    }
    match wanted.iter().find(|number| !bank.contains(*number)) {
        Some(number) => Err(Error::NoRegister(number)),
        None => Ok(()),
    }
}

/// Adds a digest to a register. It cannot be taken back before the machine restarts.
pub fn extend(tpm: &mut dyn Transport, number: u8, digest: &[u8; 32]) -> Result<(), Error> {
    let parameters = Writer::new().u32(1).u16(SHA_256).raw(digest);
    command::by_password(tpm, command::PCR_EXTEND, &[number.into()], &parameters).map(drop)
}

/// What a policy says of values: one digest of all, in the order of their registers.
pub(crate) fn digest(values: &Values) -> Digest32 {
    let pieces: Vec<&[u8]> = values.values().map(<[u8; 32]>::as_slice).collect();
    crypto::hash(&pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_written_as_a_selection_and_read_again() {
        let set = Pcrs::new(&[0, 7, 11, 23]).unwrap();
        let written = set.selection();
        assert_eq!(written.bytes(), b"\0\0\0\x01\0\x0b\x03\x81\x08\x80");
        assert_eq!(read_selection(&mut Reader::new(written.bytes())), Some(set));
        assert!(Pcrs::new(&[24]).is_none() && !set.contains(200));
        let banks = b"\0\0\0\x02\0\x04\x03\xff\xff\xff\0\x0b\x03\0\0\0";
        assert_eq!(read_selection(&mut Reader::new(banks)), Some(Pcrs::default()));
        assert_eq!(read_selection(&mut Reader::new(&banks[..9])), None);
    }
}
