//! A volume that becomes unreadable although most of it is not written.
//!
//! Owns: wiping headers, key slots, superblocks and their backups; discarding the rest.
//! Does not: make what lies between them unreadable on a disk that cannot discard: pieces of files of a plain file system
//! stay there until something is written over them. What is done says so ([`Unreadable`]).
//! Order: backups whose places only the start tells, then the start, then the discarding: at whatever moment the power
//! goes, a second run finds what the first one left. A place that was made zeros is not discarded, since a disk may
//! return anything for what was.
//! Fails by: [`Error::NotWiped`] of a place that does not read as zeros. Discarding that fails is told, not an error.

use std::fmt;
use std::ops::Range;
use std::time::{Duration, Instant};

use ondisk::probe::essentials;

use super::{prove, zero};
use crate::device::{BlockDevice, DeviceError};
use crate::{Error, Progress};

/// The start of a volume, which is wiped whole, whatever it holds: a LUKS2 header with all key slots as `cryptsetup` and
/// this installer make it (16 MiB), an XFS log in a small first group, the tables of ext's first group.
const HEAD_BYTES: u64 = 32 << 20;

/// Discarded at once. Between two of them is looked at the clock.
const DISCARD_BYTES: u64 = 1 << 30;

/// A disk that discards slower than it writes would keep the next boot waiting; the rest is then left as it is.
const DISCARD_LIMIT: Duration = Duration::from_secs(60);

/// How a volume was made unreadable.
#[derive(Debug, Default)]
pub struct Unreadable {
    /// Bytes of headers, key slots and superblocks; they read as zeros.
    pub zeroed_bytes: u64,
    /// Bytes that the disk was told to give up.
    pub discarded_bytes: u64,
    /// Bytes that are as they were.
    pub kept_bytes: u64,
    /// Why some are as they were.
    pub kept_because: Option<String>,
}

/// Makes a volume unreadable.
pub(super) fn wipe(
    device: &mut dyn BlockDevice,
    name: &str,
    progress: &mut dyn FnMut(Progress),
) -> Result<Unreadable, Error> {
    let end = device.bytes();
    let head = HEAD_BYTES.min(end);
    let far = essentials(&mut &mut *device, end)?.into_iter();
    let far: Vec<_> = far.map(|place| place.start.max(head)..place.end).filter(|p| !p.is_empty()).collect();
    for place in &far {
        device.zero(place.start, place.end - place.start)?;
    }
    if !far.is_empty() {
        // On the medium before the start goes, which alone says where these are.
        device.flush()?;
    }
    zero(device, 0, head, progress)?;
    for place in far.iter().chain([&(0..head)]) {
        prove(device, name, place.start, place.end, progress)?;
    }
    let zeroed_bytes = far.iter().map(|place| place.end - place.start).sum::<u64>() + head;
    let done = Unreadable { zeroed_bytes, ..Unreadable::default() };
    Ok(discard(device, &between(head, &far, end), done, progress))
}

/// What lies between the places, from the start's end to the volume's.
fn between(head: u64, far: &[Range<u64>], end: u64) -> Vec<Range<u64>> {
    let starts = [head].into_iter().chain(far.iter().map(|place| place.end));
    let ends = far.iter().map(|place| place.start).chain([end]);
    starts.zip(ends).map(|(start, end)| start..end).filter(|rest| !rest.is_empty()).collect()
}

/// Discards what it can within [`DISCARD_LIMIT`].
fn discard(
    device: &mut dyn BlockDevice,
    rest: &[Range<u64>],
    mut done: Unreadable,
    progress: &mut dyn FnMut(Progress),
) -> Unreadable {
    let total_bytes: u64 = rest.iter().map(|range| range.end - range.start).sum();
    let began = Instant::now();
    for piece in rest.iter().flat_map(pieces) {
        let length = piece.end - piece.start;
        if began.elapsed() > DISCARD_LIMIT {
            done.kept_because = Some(format!("discarding took more than {} s", DISCARD_LIMIT.as_secs()));
            break;
        }
        done.kept_because = match device.discard(piece.start, length) {
            Ok(true) => None,
            Ok(false) => Some("the disk cannot discard".to_owned()),
            Err(error) => Some(with_source(&error)),
        };
        if done.kept_because.is_some() {
            break;
        }
        done.discarded_bytes += length;
        progress(Progress { step: "discard", done_bytes: done.discarded_bytes, total_bytes });
    }
    done.kept_bytes = total_bytes - done.discarded_bytes;
    if done.discarded_bytes > 0
        && let Err(error) = device.flush()
    {
        done.kept_because.get_or_insert(with_source(&error));
    }
    done
}

fn pieces(range: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
    let end = range.end;
    let step = usize::try_from(DISCARD_BYTES).unwrap_or(usize::MAX);
    (range.start..end).step_by(step).map(move |at| at..(at + DISCARD_BYTES).min(end))
}

fn with_source(error: &DeviceError) -> String {
    format!("{error}: {}", error.source)
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        write!(f, "{} MiB of headers and superblocks read as zeros", mib(self.zeroed_bytes))?;
        if self.discarded_bytes > 0 {
            write!(f, ", {} MiB discarded", mib(self.discarded_bytes))?;
        }
        match &self.kept_because {
            Some(reason) if self.kept_bytes > 0 => {
                write!(f, ", {} MiB left as they are ({reason})", mib(self.kept_bytes))
            }
            Some(reason) => write!(f, " ({reason})"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
