//! Opening STATE, in a process of its own: its end gives back the memory that a key derivation took, and with it the
//! keys; and it may hang without harm.
//!
//! Owns: the way from META's record to the mapping, and the report of it. The volume key goes to the kernel from here
//! and nowhere else.
//! Does not: have a deadline (who started it has; a command of the TPM's has its own); try keys that need the network or
//! a person; write.
//! Order: the record and the machine's UUID → the keys → the header → the first key that works, those of the TPM last,
//! since it may be slow → the mapping.
//! Fails by: a report that says why; the exit status says only whether somebody took it.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use handoff::{MAX_FRAME_BYTES, OpenedVolume, RefusedKey, UnlockReport};
use ondisk::luks2::{Copy, Fault};
use ondisk::meta::{Meta, tags};
use sys::Errno;
use sys::errno::Described;
use tpm::{Sealed, Transport};
use unlock::{
    Candidate, IdentityError, KeyKind, Kind, Machine, MapError, Outcome, Plan, Record, Refused, SealedKey,
    Secret, Volume, available_kib,
};

use crate::devices::{Reader, number};
use crate::kernel::{Kernel, Level};
use crate::line::say;

/// The partition, and what its keys are made for.
pub const STATE: &str = "STATE";

const SMBIOS_TABLE: &str = "/sys/firmware/dmi/tables/DMI";
const SMBIOS_ENTRY_POINT: &str = "/sys/firmware/dmi/tables/smbios_entry_point";

/// The largest of tables has some dozens of KiB.
const MAX_SMBIOS_BYTES: usize = 1 << 20;

const MEMORY: &str = "/proc/meminfo";
const MAX_MEMORY_BYTES: usize = 64 << 10;

/// Before a TPM that is busy is asked again.
const TPM_PAUSE_NS: u64 = 100_000_000;
/// Two sessions need a key and a number of 32 bytes each; the rest is for a key that is none, which never happens.
const SEED_BYTES: usize = 256;

/// A report travels on, to machined in the first message: it must not grow with what somebody wrote into META.
const MOST_KEYS: usize = 64;
const MOST_TEXT_BYTES: usize = 240;

/// Opens STATE, answers with the report, returns an exit status.
pub fn open_state(kernel: &mut dyn Kernel, meta: &str, device: &str) -> i32 {
    let mut report = open(kernel, meta, device);
    shorten(&mut report);
    let mut frame = sys::fs::buffer(MAX_FRAME_BYTES);
    let answered =
        handoff::encode(&report, &mut frame).map_or(Err(Errno::MSGSIZE), |frame| kernel.answer(frame));
    match answered {
        Ok(()) => 0,
        Err(errno) => {
            let errno = sys::errno::Described(errno);
            say!(kernel, Level::Warning, "say what became of {STATE} on {device}: {errno}");
            1
        }
    }
}

/// Tries to, and says what came of it.
fn open(kernel: &mut dyn Kernel, meta: &str, device: &str) -> UnlockReport {
    let mut report =
        UnlockReport { volume: STATE.to_string(), device: device.to_string(), ..UnlockReport::default() };
    if let Err(problem) = attempt(kernel, meta, &mut report) {
        report.problem = Some(problem);
    }
    report
}

fn attempt(kernel: &mut dyn Kernel, meta: &str, report: &mut UnlockReport) -> Result<(), String> {
    let meta = ondisk::meta::read(&mut Reader { kernel, path: meta }).meta;
    let record = Record::read(meta.get(tags::STATE_ENCRYPTION).unwrap_or_default());
    let record = record.map_err(|error| error.to_string())?.ok_or("its record is gone from META")?;
    let machine = machine(kernel, &meta);
    let keys = record.node_keys(&machine, STATE);
    let meminfo = kernel.read(MEMORY, MAX_MEMORY_BYTES).unwrap_or_default();
    let device = report.device.clone();
    let device_bytes = device_bytes(kernel, &device)?;

    let memory_kib = available_kib(&String::from_utf8_lossy(&meminfo));
    let tpm_slots = tpm_slots(&record);
    let is_at_hand =
        |key: &Result<Candidate, Refused>| !key.as_ref().is_err_and(|no| tpm_slots.contains(&no.slot));
    let at_hand = keys.into_iter().filter(is_at_hand).collect();
    let (mut outcome, sealed, found) = try_keys(kernel, &device, memory_kib, at_hand, &tpm_slots)?;
    let Header { uuid, stale } = found;
    report.problem = stale.map(self::stale);
    if outcome.opened.is_none() && !sealed.is_empty() {
        let keys = sealed.into_iter().map(|(slot, sealed)| unsealed(kernel, slot, sealed)).collect();
        let (second, ..) = try_keys(kernel, &device, memory_kib, keys, &[])?;
        outcome.refused.extend(second.refused);
        outcome.opened = second.opened;
    }
    report.refused = outcome.refused.into_iter().map(refused).collect();
    let Some(opened) = outcome.opened else { return Ok(()) };
    let plan = Plan::new(STATE, &uuid, &device, device_bytes, &opened, &record.options)
        .map_err(|error| error.to_string())?;
    kernel.map_volume(&plan, &opened.key).map_err(map_problem)?;
    report.opened =
        Some(OpenedVolume { path: plan.path(), slot: opened.slot, kind: opened.kind.to_string() });
    Ok(())
}

/// Slots whose key the TPM may unseal.
fn tpm_slots(record: &Record) -> Vec<u8> {
    let keys = record
        .keys
        .iter()
        .filter(|key| matches!(key.kind, Kind::Tpm { .. }) && key.lock_to_state != Some(true));
    keys.map(|key| key.slot).collect()
}

/// What counts of a header once its keys were tried.
struct Header {
    uuid: String,
    stale: Option<(Copy, Option<Fault>)>,
}

type Tried = (Outcome, Vec<(u8, Option<SealedKey>)>, Header);

/// Tries keys, and gives what the header holds sealed for these slots.
fn try_keys(
    kernel: &mut dyn Kernel,
    device: &str,
    memory_kib: Option<u64>,
    keys: Vec<Result<Candidate, Refused>>,
    sealed: &[u8],
) -> Result<Tried, String> {
    let mut reader = Reader { kernel, path: device };
    let mut volume = Volume::read(&mut reader).map_err(|error| error.to_string())?;
    volume.memory_kib = memory_kib;
    let outcome = unlock::open(&mut volume, keys);
    let sealed = sealed.iter().map(|slot| (*slot, SealedKey::of(&volume.header, *slot))).collect();
    let header = Header { uuid: volume.header.uuid.clone(), stale: volume.stale.take() };
    Ok((outcome, sealed, header))
}

/// The passphrase of a slot, which the TPM gives.
fn unsealed(kernel: &mut dyn Kernel, slot: u8, sealed: Option<SealedKey>) -> Result<Candidate, Refused> {
    let key = unseal(kernel, sealed);
    let kind = KeyKind::Tpm;
    match key {
        Ok(secret) => Ok(Candidate { slot, kind, secret }),
        Err(why) => Err(Refused { slot, kind, why }),
    }
}

fn unseal(kernel: &mut dyn Kernel, sealed: Option<SealedKey>) -> Result<Secret, String> {
    let held = sealed.filter(|sealed| sealed.kind == KeyKind::Tpm).ok_or("its slot has no sealed key")?;
    held.check(STATE)?;
    let sealed = Sealed::from_json(&held.fields).map_err(|error| error.to_string())?;
    // All of it before the first command: the kernel cannot be asked for both at once.
    let mut seed = Secret::new(alloc::vec![0; SEED_BYTES]);
    kernel.random(&mut seed).map_err(|errno| format!("random numbers: {}", Described(errno)))?;
    let mut seed = seed.iter().copied();
    let mut random = |bytes: &mut [u8]| bytes.iter_mut().for_each(|byte| *byte = seed.next().unwrap_or(0));
    match tpm::unseal(&mut KernelTpm(kernel), &sealed, &mut random) {
        Ok(key) => held.passphrase(STATE, &key, None),
        Err(tpm::Error::Exchange { errno: Errno::NOENT | Errno::NODEV | Errno::NXIO, .. }) => {
            Err("this machine has no TPM 2.0, or the firmware has it disabled".to_string())
        }
        Err(error) => Err(error.to_string()),
    }
}

/// The TPM, by way of what init asks of the kernel.
struct KernelTpm<'k>(&'k mut dyn Kernel);

impl Transport for KernelTpm<'_> {
    fn exchange(&mut self, command: &[u8]) -> Result<Vec<u8>, Errno> {
        self.0.ask_tpm(command)
    }

    fn pause(&mut self) {
        self.0.pause(TPM_PAUSE_NS);
    }
}

/// Firmware without tables names no UUID.
fn machine(kernel: &mut dyn Kernel, meta: &Meta) -> Result<Machine, IdentityError> {
    let table = kernel.read(SMBIOS_TABLE, MAX_SMBIOS_BYTES).unwrap_or_default();
    let entry_point = kernel.read(SMBIOS_ENTRY_POINT, MAX_SMBIOS_BYTES).unwrap_or_default();
    Machine::new(&table, &entry_point, meta.get(tags::UUID_OVERRIDE))
}

/// `/sys/class/block/vda5/size` counts in 512-byte sectors whatever the disk's own are.
fn device_bytes(kernel: &mut dyn Kernel, device: &str) -> Result<u64, String> {
    let path = format!("/sys/class/block/{}/size", device.rsplit('/').next().unwrap_or(device));
    let sectors = number(kernel, &path).and_then(|sectors| sectors.checked_mul(512));
    sectors.ok_or_else(|| format!("{path} does not say how long it is"))
}

fn refused(key: Refused) -> RefusedKey {
    let Refused { slot, kind, mut why } = key;
    if kind == KeyKind::Kms {
        why.push_str(", machined tries it");
    }
    RefusedKey { slot, kind: kind.to_string(), why }
}

fn stale((copy, fault): (Copy, Option<Fault>)) -> String {
    match fault {
        Some(fault) => format!("the {copy} of its header is damaged ({fault}), the other one counts"),
        None => format!("the {copy} of its header is older, the other one counts"),
    }
}

/// The kernel says no more than `EINVAL` or `ENOENT` of a target or a cipher that it does not know.
fn map_problem(error: MapError) -> String {
    match error {
        MapError::Kernel { errno: Errno::INVAL | Errno::NOENT, .. } => {
            format!("{error}; dm-crypt or its cipher may be missing in the kernel and in the initramfs")
        }
        error => error.to_string(),
    }
}

fn shorten(report: &mut UnlockReport) {
    report.refused.truncate(MOST_KEYS);
    let texts = report.refused.iter_mut().flat_map(|key| [&mut key.kind, &mut key.why]);
    for text in texts.chain(&mut report.problem) {
        if text.len() > MOST_TEXT_BYTES {
            text.truncate(text.floor_char_boundary(MOST_TEXT_BYTES));
            text.push_str("...");
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn a_report_fits_its_frame_whatever_the_record_says() {
        let key = RefusedKey { slot: 0, kind: "ä".repeat(100_000), why: "x".repeat(MOST_TEXT_BYTES) };
        let mut report = UnlockReport { refused: vec![key; 200], ..UnlockReport::default() };
        report.problem = Some("y".repeat(70_000));
        shorten(&mut report);
        assert!(handoff::encode(&report, &mut sys::fs::buffer(MAX_FRAME_BYTES)).is_ok());
        assert_eq!(report.refused[0].why.len(), MOST_TEXT_BYTES);
        assert!(report.refused[0].kind.ends_with("ä..."));
    }

    #[test]
    fn keys_for_machined_say_so() {
        let key = |kind| refused(Refused { slot: 1, kind, why: "it needs a person".into() }).why;
        assert_eq!(key(KeyKind::Kms), "it needs a person, machined tries it");
        assert_eq!(key(KeyKind::Recovery), "it needs a person");
    }
}
