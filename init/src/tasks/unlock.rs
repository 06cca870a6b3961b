//! STATE, where it is encrypted and the machine can open it by itself.
//!
//! Owns: whether it is to be opened, the modules for that, the helper that does it ([`crate::opener`]) and its deadline.
//! Does not: see a key; try what needs the network or a person: machined does, with the same code.
//! Fails by: one line and a report for machined ([`handoff::UnlockReport`]); never a failed boot.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use handoff::{MAX_FRAME_BYTES, RefusedKey, UnlockReport};
use ondisk::gpt::Guid;
use ondisk::meta::{self, Meta, intents, tags};
use unlock::{Record, mapping_name};

use super::disk;
use crate::boot::{Boot, Locked};
use crate::devices::Reader;
use crate::events;
use crate::failure::Failure;
use crate::kernel::{Helper, Level, Signal};
use crate::line::say;
use crate::opener::STATE;
use crate::source::Source;
use crate::wait_status::WaitStatus;

const SECOND_NS: u64 = 1_000_000_000;

/// For some keys whose derivation a faster machine was told to take seconds for.
const OPEN_DEADLINE_NS: u64 = 120 * SECOND_NS;

/// For the kernel to take a killed helper apart, with a gigabyte of memory and reads that a disk still owes.
const KILL_DEADLINE_NS: u64 = 5 * SECOND_NS;

/// Before the next look at a helper where waiting itself fails.
const PAUSE_NS: u64 = SECOND_NS / 10;

/// Reads META of the root's disk: whether STATE is encrypted, and whether it is whole.
pub fn read_encryption(boot: &mut Boot<'_>) -> Result<(), Failure> {
    let Some(Source::Slot { disk, meta: Some(meta), .. }) = boot.source.clone() else { return Ok(()) };
    let found = meta::read(&mut Reader { kernel: &mut *boot.kernel, path: &meta });
    if let [Some(meta::Error::Read(error)), Some(_)] | [Some(_), Some(meta::Error::Read(error))] =
        found.faults
    {
        boot.warn(&format!("META on {meta}: {error}; whether {STATE} is encrypted is not known"));
        return Ok(());
    }
    // A partition that is not there yet is machined's to make.
    match Record::read(found.meta.get(tags::STATE_ENCRYPTION).unwrap_or_default()) {
        Ok(None) => {}
        Ok(Some(record)) => match state_device(boot, &disk, &found.meta) {
            Ok(device) => boot.locked = device.map(|device| Locked { meta, device, cipher: record.cipher }),
            Err((device, problem)) => stays_locked(boot, &device, &problem),
        },
        Err(error) => stays_locked(boot, "", &error.to_string()),
    }
    Ok(())
}

/// STATE's device if there is one and it is to be opened; else where it is and why not.
fn state_device(boot: &mut Boot<'_>, disk: &str, meta: &Meta) -> Result<Option<String>, (String, String)> {
    let nowhere = |problem: String| (String::new(), problem);
    let found = disk::named(boot.kernel, disk, STATE).map_err(|failure| nowhere(failure.to_string()))?;
    let partition = match found.as_slice() {
        [] => return Ok(None),
        [only] => only,
        several => {
            let count = several.len();
            return Err(nowhere(format!(
                "/dev/{disk} has {count} partitions of that name; remove the wrong ones"
            )));
        }
    };
    let device = disk::device_without_wait(boot.kernel, partition);
    let device = device.ok_or_else(|| nowhere(format!("its partition on /dev/{disk} has no device")))?;
    match unfinished(meta, partition.guid) {
        Some(problem) => Err((device, problem.to_string())),
        None => Ok(Some(device)),
    }
}

/// Work that META says was begun, and that machined takes up.
fn unfinished(meta: &Meta, guid: Guid) -> Option<&'static str> {
    if intents::is_being_wiped(meta, STATE) {
        return Some("META says that a reset of it has begun, machined goes on with that");
    }
    intents::is_half_made(meta, STATE, guid)
        .then_some("META says that making it was cut off, machined makes it again")
}

/// Loads what the mapping needs. What is built in, or nowhere, is known when that is made.
pub fn load_ciphers(boot: &mut Boot<'_>) -> Result<(), Failure> {
    let Some(modules) = boot.locked.as_ref().map(|locked| unlock::modules(&locked.cipher)) else {
        return Ok(());
    };
    for module in modules {
        if boot.modules.knows(module)
            && let Err(failure) = boot.modules.load(boot.kernel, module)
        {
            boot.warn(&failure.to_string());
        }
    }
    Ok(())
}

/// Has a helper open STATE, and reports what it says.
pub fn open_state(boot: &mut Boot<'_>) -> Result<(), Failure> {
    let Some(locked) = boot.locked.take() else { return Ok(()) };
    let start_ns = boot.kernel.now_ns();
    let mut report = match ask_helper(boot, &locked) {
        Ok(report) => report,
        Err(failure) => locked_report(&locked.device, &failure.to_string()),
    };
    report.duration_ms = (boot.kernel.now_ns() - start_ns) / 1_000_000;
    say_report(boot, &report);
    boot.report.unlock = Some(Box::new(report));
    Ok(())
}

fn ask_helper(boot: &mut Boot<'_>, locked: &Locked) -> Result<UnlockReport, Failure> {
    let Locked { meta, device, .. } = locked;
    let failed = |reason: String| Failure::reason("ask the helper that opens", device, reason);
    let helper = boot
        .kernel
        .start_helper(Helper::Open { meta, device })
        .map_err(Failure::at("start the helper that opens", device))?;
    let mut frame = sys::fs::buffer(MAX_FRAME_BYTES);
    let answer = Answer::wait(boot, helper, &mut frame);
    if let Some(frame) = frame.get(..answer.length).filter(|frame| !frame.is_empty()) {
        return handoff::decode(frame).map_err(|error| failed(error.to_string()));
    }
    match answer.ended {
        // It may have come as far as a mapping without its link.
        Some(status) => {
            let _ = boot.kernel.unmap_volume(&mapping_name(STATE));
            let status = WaitStatus(status);
            Err(failed(if answer.late {
                format!("not done after {} s", OPEN_DEADLINE_NS / SECOND_NS)
            } else {
                format!("it ended without an answer: {status}")
            }))
        }
        None => Err(failed(format!(
            "not done after {} s, and {} s after it was killed it still hangs",
            OPEN_DEADLINE_NS / SECOND_NS,
            KILL_DEADLINE_NS / SECOND_NS
        ))),
    }
}

/// What came of a helper.
#[derive(Debug, Default)]
struct Answer {
    /// Length of its answer; zero: none.
    length: usize,
    /// Its wait status; `None`: it hangs.
    ended: Option<i32>,
    /// The deadline passed, and it was killed.
    late: bool,
}

impl Answer {
    /// Until the helper is gone: its memory is free then.
    fn wait(boot: &mut Boot<'_>, helper: i32, frame: &mut [u8]) -> Self {
        let mut answer = Self::default();
        let mut deadline = boot.kernel.now_ns() + OPEN_DEADLINE_NS;
        loop {
            events::drain(boot);
            answer.ended = reap(boot, helper);
            if answer.length == 0 {
                answer.length = boot.kernel.helper_answer(frame).unwrap_or(0);
            }
            if answer.ended.is_some() {
                return answer;
            }
            let until = boot.watchdog.next_ns().map_or(deadline, |next| deadline.min(next));
            if boot.kernel.wait(Some(until), false).is_err() {
                boot.kernel.pause(PAUSE_NS);
            }
            boot.watchdog.feed(boot.kernel);
            if boot.kernel.now_ns() < deadline {
                continue;
            }
            if answer.late {
                return answer;
            }
            answer.late = true;
            deadline = boot.kernel.now_ns() + KILL_DEADLINE_NS;
            if let Err(errno) = boot.kernel.kill(helper, Signal::Kill) {
                say!(boot.kernel, Level::Warning, "kill helper {helper}: {}", sys::errno::Described(errno));
            }
        }
    }
}

/// The wait status of the helper if it has ended.
fn reap(boot: &mut Boot<'_>, helper: i32) -> Option<i32> {
    while let Ok(Some(ended)) = boot.kernel.reap() {
        if ended.pid == helper {
            return Some(ended.status);
        }
    }
    None
}

fn locked_report(device: &str, problem: &str) -> UnlockReport {
    UnlockReport {
        volume: STATE.to_string(),
        device: device.to_string(),
        problem: Some(problem.to_string()),
        ..UnlockReport::default()
    }
}

fn stays_locked(boot: &mut Boot<'_>, device: &str, problem: &str) {
    let report = locked_report(device, problem);
    say_report(boot, &report);
    boot.report.unlock = Some(Box::new(report));
}

/// One line for a volume that is locked; one for an open one, and what is to be known beside that.
fn say_report(boot: &mut Boot<'_>, report: &UnlockReport) {
    let place = match report.device.as_str() {
        "" => report.volume.clone(),
        device => format!("{} on {device}", report.volume),
    };
    let refused: Vec<String> = report.refused.iter().map(reason).collect();
    let Some(opened) = &report.opened else {
        let reasons: Vec<String> = refused.into_iter().chain(report.problem.clone()).collect();
        let reasons =
            if reasons.is_empty() { "there is no key to try".to_string() } else { reasons.join("; ") };
        boot.kernel.log(Level::Warning, &format!("{place} is locked: {reasons}"));
        return;
    };
    let (kind, slot, ms) = (&opened.kind, opened.slot, report.duration_ms);
    boot.kernel.log(Level::Info, &format!("{place} opened by the {kind} key in slot {slot} in {ms} ms"));
    if !refused.is_empty() {
        boot.kernel.log(Level::Info, &format!("{place} not opened by the {}", refused.join("; the ")));
    }
    if let Some(problem) = &report.problem {
        boot.kernel.log(Level::Warning, &format!("{place}: {problem}"));
    }
}

fn reason(key: &RefusedKey) -> String {
    format!("{} key for slot {}: {}", key.kind, key.slot, key.why)
}
