//! Reset: partitions or a whole disk are wiped, in an order that a power cut may end anywhere.
//!
//! Owns: what a reset wipes, in which order and how; the proof that it is gone. A whole disk, which leaves its machine,
//! becomes zeros, and so does a partition that is named; EPHEMERAL, for which the boot of the same machine waits and which
//! may have terabytes, becomes unreadable (`quick`).
//! Does not: stop services or unmount; restart.
//! Order: the intent in META; secrets first (EPHEMERAL, STATE), then what holds none; what boots this disk and META,
//! which keeps the intent, last. Of a whole disk the table goes before them, primary before backup: while one copy is
//! there the next boot goes on with the reset, after it the disk starts nothing and counts as empty.
//! Fails by: [`Error::NotWiped`] when the disk did not take the zeros; the intent stays.
//! Source: docs/formats/disk.md.

mod quick;

use ondisk::gpt::{Partition, Table};
pub use quick::Unreadable;

use crate::device::BlockDevice;
use crate::host::{Host, partition, read_table, values, with_meta};
use crate::install::END_BYTES;
use crate::meta::{ResetIntent, begin_reset, end_reset, reset_intent};
use crate::upgrade::Slot;
use crate::volumes::EPHEMERAL;
use crate::{Error, Progress};

/// How much is wiped, and read back, at once.
const CHUNK_BYTES: u64 = 64 << 20;
/// Read back at once.
const READ_BYTES: u64 = 1 << 20;
/// What is longer than this is not read back whole: a disk of some terabytes would take hours.
const WHOLE_BYTES: u64 = 4 << 30;
/// Of such a range, how many places between its start and its end are read, [`READ_BYTES`] each.
const SAMPLES: u64 = 1024;

/// One range of a reset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A partition.
    Partition(Partition),
    /// The start of the disk with the table.
    Primary,
    /// The end of the disk with the table's backup.
    Backup,
}

impl Target {
    /// Its name for people.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Partition(partition) => &partition.name,
            Self::Primary => "the partition table",
            Self::Backup => "the backup of the partition table",
        }
    }
}

/// What became of a target.
#[derive(Debug)]
pub enum Wiped {
    /// It reads as zeros.
    Zeros,
    /// What made it readable is gone.
    Unreadable(Unreadable),
}

/// What a reset wipes, in order. `running`: the slot that the node runs from, which is needed to the end.
pub fn plan(table: &Table, intent: &ResetIntent, running: Option<Slot>) -> Result<Vec<Target>, Error> {
    let late = |name: &str| match name {
        "EPHEMERAL" => 0,
        "STATE" => 1,
        "EFI" | "BIOS" | "BOOT" => 3,
        "META" => 4,
        name if running.is_some_and(|slot| slot.partition() == name) => 5,
        _ => 2,
    };
    let named = |name: &String| {
        let found = partition(table, name)?;
        found.cloned().ok_or_else(|| Error::NoSuchPartition { name: name.clone() })
    };
    let whole = intent.partitions.is_empty();
    let mut wanted = match whole {
        true => table.partitions.clone(),
        false => intent.partitions.iter().map(named).collect::<Result<_, _>>()?,
    };
    wanted.sort_by_key(|partition| (late(&partition.name), partition.number));
    wanted.dedup();
    let table_goes = wanted.iter().position(|partition| late(&partition.name) >= 3).unwrap_or(wanted.len());
    let mut targets: Vec<Target> = wanted.into_iter().map(Target::Partition).collect();
    if whole {
        targets.splice(table_goes..table_goes, [Target::Primary, Target::Backup]);
    }
    Ok(targets)
}

/// Notes the reset: from here on it happens, if not now, then at the next boot.
pub fn begin(host: &mut dyn Host, intent: &ResetIntent) -> Result<(), Error> {
    let table = read_table(host)?.table;
    // What cannot be planned is refused before anything is promised.
    plan(&table, intent, None)?;
    with_meta(host, &table, |meta| begin_reset(meta, intent))?;
    host.disk().acknowledge("reset");
    Ok(())
}

/// The reset that was begun on this disk and is not through.
pub fn pending(host: &mut dyn Host) -> Result<Option<ResetIntent>, Error> {
    let table = read_table(host)?.table;
    if partition(&table, "META")?.is_none() {
        return Ok(None);
    }
    Ok(reset_intent(&values(host, &table)?))
}

/// Does what was noted; says of each target what became of it, in the order of [`plan`].
pub fn run(
    host: &mut dyn Host,
    intent: &ResetIntent,
    running: Option<Slot>,
    progress: &mut dyn FnMut(&Target, Progress),
) -> Result<Vec<(Target, Wiped)>, Error> {
    let table = read_table(host)?.table;
    let targets = plan(&table, intent, running)?;
    let is_whole = intent.partitions.is_empty();
    let mut done = Vec::new();
    for target in targets {
        let mut tell = |told: Progress| progress(&target, told);
        let wiped = match &target {
            Target::Partition(partition) if partition.name == EPHEMERAL && !is_whole => {
                Wiped::Unreadable(quick::wipe(&mut *host.open(&table, partition)?, EPHEMERAL, &mut tell)?)
            }
            Target::Partition(partition) => {
                wipe_partition(host, &table, partition, running, &mut tell)?;
                Wiped::Zeros
            }
            Target::Primary => {
                wipe(host.disk(), target.name(), 0, Some(END_BYTES), &mut tell)?;
                Wiped::Zeros
            }
            Target::Backup => {
                let start = host.disk().bytes().saturating_sub(END_BYTES);
                wipe(host.disk(), target.name(), start, Some(END_BYTES), &mut tell)?;
                Wiped::Zeros
            }
        };
        done.push((target, wiped));
    }
    let has_meta = !done.iter().any(|(target, _)| target.name() == "META");
    if has_meta {
        // How to open a STATE that is gone is of no use, and another one may be plain.
        let without_state = done.iter().any(|(target, _)| target.name() == "STATE");
        with_meta(host, &table, |part| end_reset(part, without_state))?;
    }
    Ok(done)
}

fn wipe_partition(
    host: &mut dyn Host,
    table: &Table,
    partition: &Partition,
    running: Option<Slot>,
    tell: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    // META is everybody's; the running slot is mounted through its mapping.
    let is_running = running.is_some_and(|slot| slot.partition() == partition.name);
    let mut part = match partition.name.as_str() {
        "META" => host.open_shared(table, partition)?,
        _ if is_running => host.open_shared(table, partition)?,
        _ => host.open(table, partition)?,
    };
    // The flight recorder goes on writing behind META's values.
    let proved = (partition.name == "META").then_some(2 * ondisk::meta::COPY_BYTES);
    let end = part.bytes();
    zero(&mut *part, 0, end, tell)?;
    prove(&mut *part, &partition.name, 0, proved.unwrap_or(end), tell)
}

/// Makes a range zeros and proves it; without a length, up to the device's end.
pub fn wipe(
    device: &mut dyn BlockDevice,
    name: &str,
    start: u64,
    length: Option<u64>,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    let end = length.map_or(device.bytes(), |length| start.saturating_add(length).min(device.bytes()));
    zero(device, start, end, progress)?;
    prove(device, name, start, end, progress)
}

fn zero(
    device: &mut dyn BlockDevice,
    start: u64,
    end: u64,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    let total_bytes = end.saturating_sub(start);
    let mut at = start;
    while at < end {
        let length = CHUNK_BYTES.min(end - at);
        device.zero(at, length)?;
        at += length;
        progress(Progress { step: "wipe", done_bytes: at - start, total_bytes });
    }
    Ok(device.flush()?)
}

fn prove(
    device: &mut dyn BlockDevice,
    name: &str,
    start: u64,
    end: u64,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    let total_bytes = end.saturating_sub(start);
    let step = if total_bytes > WHOLE_BYTES { total_bytes / SAMPLES } else { READ_BYTES };
    let mut buffer = vec![0; usize::try_from(READ_BYTES).unwrap_or(0)];
    let zeros = buffer.clone();
    let mut at = start;
    while at < end {
        let length = READ_BYTES.min(end - at);
        let bytes = buffer.get_mut(..usize::try_from(length).unwrap_or(0)).unwrap_or(&mut []);
        device.read_at(at, bytes)?;
        // Compared as a whole first: looking at single bytes takes many times as long.
        if *bytes != zeros[..bytes.len()] {
            let found = bytes.iter().position(|byte| *byte != 0).unwrap_or(0);
            return Err(Error::NotWiped { name: name.to_owned(), offset: at - start + found as u64 });
        }
        // The end is always looked at: superblocks' copies lie there.
        let last = end.saturating_sub(READ_BYTES);
        at = if at < last { (at + step).min(last) } else { end };
        progress(Progress { step: "verify", done_bytes: at - start, total_bytes });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
