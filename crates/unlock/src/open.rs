//! Which of several keys opens a volume.
//!
//! Owns: the trial of keys in the order in which they come, and what became of each.
//! Does not: fetch keys. Where that takes time the caller fetches all at once and passes each on as it comes; the first
//! that works ends the trial.
//! Fails by: a reason for every key that was there before one worked.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use ondisk::ReadAt;
use ondisk::luks2::{
    self, Copy, Fault, Header, HeaderError, Id, KdfError, Mapping, Mixing, UnlockError, Unlocked, Workers,
};

use crate::{Candidate, KeyKind, Refused, Secret};

/// A volume whose header was read.
pub struct Volume<'d> {
    /// Any device, so that what costs time is compiled here, once, for speed.
    device: &'d mut dyn ReadAt,
    /// The header that counts.
    pub header: Header,
    /// The copy that does not say the same, and why: `None` when it is whole but older. [`Header::repair`] makes the
    /// write that mends it.
    pub stale: Option<(Copy, Option<Fault>)>,
    /// Memory that a derivation may take, in KiB ([`available_kib`]); `None` for as much as it wants. The kernel promises
    /// more than there is, and ends the process that believes it.
    pub memory_kib: Option<u64>,
}

/// A volume that is open.
pub struct Opened {
    /// The slot whose key worked.
    pub slot: u8,
    /// Where that key came from.
    pub kind: KeyKind,
    /// The volume key.
    pub key: Secret,
    /// How the kernel maps the data.
    pub mapping: Mapping,
}

/// What became of the keys.
pub struct Outcome {
    /// The volume, if one worked.
    pub opened: Option<Opened>,
    /// Those that did not, in the order in which they came.
    pub refused: Vec<Refused>,
}

impl fmt::Debug for Opened {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "opened by the {} key in slot {}", self.kind, self.slot)
    }
}

impl Outcome {
    /// Why the volume is locked, in one line.
    #[must_use]
    pub fn reasons(&self) -> String {
        if self.refused.is_empty() {
            return "there is no key to try".to_string();
        }
        let reasons: Vec<String> = self.refused.iter().map(Refused::to_string).collect();
        reasons.join("; ")
    }
}

impl Volume<'_> {
    fn check_memory(&self, slot: u8) -> Result<(), KdfError> {
        let kdf = self.header.metadata.keyslots.get(&Id(slot)).and_then(|slot| slot.kdf.as_ref());
        let needed_kib = kdf.and_then(|kdf| kdf.memory).unwrap_or(0);
        match self.memory_kib {
            Some(available) if available < u64::from(needed_kib) => Err(KdfError::Memory { needed_kib }),
            _ => Ok(()),
        }
    }
}

impl<'d> Volume<'d> {
    /// Reads the header at the start of a device.
    pub fn read(device: &'d mut dyn ReadAt) -> Result<Self, HeaderError> {
        let luks2::Found { header, stale } = luks2::read(&mut &mut *device)?;
        Ok(Self { device, header, stale, memory_kib: None })
    }

    /// Tries one key on its slot.
    pub fn try_key(&mut self, candidate: &Candidate) -> Result<Opened, Refused> {
        let refused = |why: String| Refused { slot: candidate.slot, kind: candidate.kind.clone(), why };
        self.check_memory(candidate.slot).map_err(|error| refused(error.to_string()))?;
        let Unlocked { slot, key, mapping } = self
            .header
            .unlock_with(&mut self.device, &candidate.secret, Some(Id(candidate.slot)), &Threads)
            .map_err(|error| refused(reason(&error)))?;
        Ok(Opened { slot: slot.0, kind: candidate.kind.clone(), key, mapping })
    }
}

/// What /proc/meminfo calls available, in KiB.
#[must_use]
pub fn available_kib(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// Tries keys as they come until one works. A key that could not be had comes as the reason why.
pub fn open(volume: &mut Volume<'_>, keys: impl IntoIterator<Item = Result<Candidate, Refused>>) -> Outcome {
    let mut refused = Vec::new();
    for key in keys {
        match key.and_then(|candidate| volume.try_key(&candidate)) {
            Ok(opened) => return Outcome { opened: Some(opened), refused },
            Err(why) => refused.push(why),
        }
    }
    Outcome { opened: None, refused }
}

/// The slot is named by [`Refused`] already.
fn reason(error: &UnlockError) -> String {
    match error {
        UnlockError::Refused(refusals) => {
            let reasons: Vec<String> = refusals.iter().map(|refusal| refusal.why.to_string()).collect();
            reasons.join("; ")
        }
        other => other.to_string(),
    }
}

/// Derivations run on all processors, in the widest registers that they have.
#[derive(Debug, Clone, Copy, Default)]
pub struct Threads;

impl Workers for Threads {
    fn run<F: FnMut() + Send>(&self, tasks: &mut [F]) {
        sys::threads::run(tasks);
    }

    fn mixing(&self) -> Option<Mixing> {
        sys::argon2::mixing()
    }
}

#[cfg(test)]
mod tests {
    use ondisk::luks2::{Argon2Cost, Cost, Format, NewSlot};
    use zeroize::Zeroizing;

    use super::*;

    fn random(bytes: &mut [u8]) {
        let mut state = 7_u32;
        for byte in bytes {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *byte = state.to_be_bytes()[0];
        }
    }

    /// A volume with two slots, the second with four lanes.
    fn device() -> Vec<u8> {
        let four = Argon2Cost { memory_kib: 256, passes: 2, lanes: 4 };
        let slots = [
            NewSlot { slot: Some(Id(0)), passphrase: b"first", cost: Cost::Pbkdf2(1000), token: None },
            NewSlot { slot: Some(Id(3)), passphrase: b"fourth", cost: Cost::Argon2id(four), token: None },
        ];
        let format =
            Format { data_offset: 1 << 20, ..Format::new("0e1f2a3b-4c5d-6e7f-8091-a2b3c4d5e6f7", 512) };
        let change = format.make(&[0x5a; 64], &slots, &mut random).unwrap();
        let mut device = vec![0; 1 << 20];
        for extent in change.steps.iter().flatten() {
            let at = usize::try_from(extent.offset).unwrap();
            device[at..at + extent.bytes.len()].copy_from_slice(&extent.bytes);
        }
        device
    }

    fn candidate(slot: u8, kind: KeyKind, secret: &[u8]) -> Result<Candidate, Refused> {
        Ok(Candidate { slot, kind, secret: Zeroizing::new(secret.to_vec()) })
    }

    #[test]
    fn the_first_key_that_works_wins_and_the_others_have_reasons() {
        let device = device();
        let mut reader = &device[..];
        let mut volume = Volume::read(&mut reader).unwrap();
        assert!(volume.stale.is_none());
        let unreachable = Refused { slot: 5, kind: KeyKind::Kms, why: "no route to host".into() };
        let keys = [
            candidate(0, KeyKind::NodeId, b"wrong"),
            Err(unreachable.clone()),
            candidate(9, KeyKind::Static, b"first"),
            candidate(3, KeyKind::Static, b"fourth"),
            candidate(0, KeyKind::Static, b"never tried"),
        ];
        let outcome = open(&mut volume, keys);
        let opened = outcome.opened.as_ref().unwrap();
        assert_eq!(
            (opened.slot, &opened.kind, opened.key.as_slice()),
            (3, &KeyKind::Static, &[0x5a; 64][..])
        );
        assert_eq!(outcome.refused.len(), 3);
        assert_eq!(outcome.refused[0].to_string(), "nodeID key for slot 0: the passphrase is not its own");
        assert_eq!(outcome.refused[1], unreachable);
        assert_eq!(outcome.refused[2].to_string(), "static key for slot 9: there is no such key slot");
    }

    #[test]
    fn a_locked_volume_says_why_in_one_line() {
        let device = device();
        let mut reader = &device[..];
        let mut volume = Volume::read(&mut reader).unwrap();
        let outcome = open(&mut volume, []);
        assert_eq!((outcome.opened.is_none(), outcome.reasons().as_str()), (true, "there is no key to try"));
        let outcome =
            open(&mut volume, [candidate(0, KeyKind::Static, b"x"), candidate(3, KeyKind::Tpm, b"y")]);
        assert_eq!(
            outcome.reasons(),
            "static key for slot 0: the passphrase is not its own; tpm key for slot 3: the passphrase is not its own"
        );
    }

    #[test]
    fn a_derivation_that_memory_is_too_small_for_is_not_begun() {
        assert_eq!(available_kib("MemTotal:  9 kB\nMemAvailable:     1234 kB\n"), Some(1234));
        assert_eq!(available_kib("MemTotal:  9 kB\n"), None);
        let device = device();
        let mut reader = &device[..];
        let mut volume = Volume::read(&mut reader).unwrap();
        volume.memory_kib = Some(255);
        let refused = volume.try_key(&candidate(3, KeyKind::Static, b"fourth").unwrap()).unwrap_err();
        assert_eq!(refused.why, "key derivation needs 1 MiB of memory, which are not free");
        assert!(volume.try_key(&candidate(0, KeyKind::Static, b"first").unwrap()).is_ok());
        volume.memory_kib = Some(256);
        assert!(volume.try_key(&candidate(3, KeyKind::Static, b"fourth").unwrap()).is_ok());
    }

    #[test]
    fn a_damaged_copy_is_named_and_mended() {
        let mut device = device();
        device[5000] ^= 1;
        let mut reader = &device[..];
        let volume = Volume::read(&mut reader).unwrap();
        let (copy, fault) = volume.stale.clone().unwrap();
        assert_eq!((copy, fault), (Copy::First, Some(Fault::Checksum)));
        for extent in volume.header.repair(copy).unwrap() {
            let at = usize::try_from(extent.offset).unwrap();
            device[at..at + extent.bytes.len()].copy_from_slice(&extent.bytes);
        }
        let mut reader = &device[..];
        assert!(Volume::read(&mut reader).unwrap().stale.is_none());
    }
}
