//! The flight recorder, as far as it is init's: how a boot began, how it ended, and the kernel's log while no machined
//! writes it.
//!
//! Owns: the ring in META of the disk that this boot is from, whenever machined does not have it. It is lent to a
//! machined when that is started and comes back when it was reaped: there is one writer at any time, and each looks
//! for the newest slot before it writes.
//! Does not: wait. What is written is in the kernel's hands, which is asked to begin to write it out; a disk that
//! hangs holds nothing up. machined flushes what it writes, the shutdown sequence syncs.
//! Fails by: a warning, and no recorder from then on; never a failed boot.

use alloc::string::{String, ToString};

use ondisk::kmsg::{MAX_RECORD_BYTES, Record};
use ondisk::recorder::{
    Kind, Packer, RING_BYTES, RING_OFFSET_BYTES, SLOT_BYTES, Writer, newest, parse_boot_id,
};
use ondisk::redact::redacted;
use sys::Errno;

use crate::devices::Reader;
use crate::failure::Failure;
use crate::kernel::{Kernel, Level};
use crate::line::Line;

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Bytes that are read of the ring at once; a record of the kernel's log fits as well.
pub const BUFFER_BYTES: usize = 64 << 10;

/// More lines than this are not taken at once: a log that grows faster than it is read has no end.
const MOST_LINES: usize = 20_000;

/// init's hand on the flight recorder.
#[derive(Debug, Default)]
pub struct Recorder {
    ring: Option<Ring>,
    /// How this boot ends is recorded.
    ended: bool,
}

#[derive(Debug)]
struct Ring {
    device: String,
    boot: [u8; 16],
    /// The machined that writes now.
    lent_to: Option<i32>,
    /// Number of the next slot, and the kernel log record to go on with; unknown when a machined had the ring.
    next: Option<(u64, u64)>,
}

impl Recorder {
    /// Opens the ring in a META and notes the beginning of this boot.
    pub fn begin(&mut self, kernel: &mut dyn Kernel, device: &str, facts: &str) -> Result<(), Failure> {
        let at = |operation| move |errno| Failure::errno(operation, device, errno);
        let id = kernel.read(BOOT_ID, 64).map_err(Failure::at("read", BOOT_ID))?;
        let boot = core::str::from_utf8(&id).ok().and_then(parse_boot_id);
        let boot = boot.ok_or_else(|| Failure::reason("read", BOOT_ID, "is no boot id"))?;
        kernel.open_recorder(device).map_err(at("open flight recorder"))?;
        let mut ring = Ring { device: device.to_string(), boot, lent_to: None, next: None };
        let mut buffer = sys::fs::buffer(BUFFER_BYTES);
        let mut packer = ring.packer(kernel, &mut buffer).map_err(at("read flight recorder"))?;
        let now_us = kernel.now_ns() / 1000;
        packer.facts(Kind::Begin, now_us, facts, &mut writer(kernel)).map_err(at("write flight recorder"))?;
        ring.next = Some((packer.number(), packer.sequence()));
        self.ring = Some(ring);
        Ok(())
    }

    /// Whether there is one.
    pub fn is_open(&self) -> bool {
        self.ring.is_some()
    }

    /// machined was started: the ring is its.
    pub fn lend(&mut self, pid: i32) {
        if let Some(ring) = &mut self.ring {
            ring.lent_to = Some(pid);
            ring.next = None;
        }
    }

    /// A process is gone. If it was the machined that had the ring, the ring is init's again.
    pub fn reaped(&mut self, pid: i32) {
        if let Some(ring) = self.ring.as_mut().filter(|ring| ring.lent_to == Some(pid)) {
            ring.lent_to = None;
        }
    }

    /// Records what the kernel's log has beyond what is recorded, unless a machined does that. Allocates nothing.
    pub fn record_log(&mut self, kernel: &mut dyn Kernel, buffer: &mut [u8]) {
        self.record(kernel, buffer, None);
    }

    /// The same, and how this boot ends. The first end counts: what failed, not the restart that follows from it.
    pub fn end(&mut self, kernel: &mut dyn Kernel, buffer: &mut [u8], facts: &str) {
        let first = !core::mem::replace(&mut self.ended, true);
        self.record(kernel, buffer, first.then_some(facts));
    }

    /// Tries again to have everything brought to the disk; for a machine that is about to restart without saving it.
    pub fn hasten(&self, kernel: &mut dyn Kernel) {
        if self.ring.as_ref().is_some_and(|ring| ring.lent_to.is_none()) {
            // Nothing more can be done; what is on the disk stays whole.
            let _ = kernel.hasten_recorder(RING_OFFSET_BYTES, usize::try_from(RING_BYTES).unwrap_or(0));
        }
    }

    fn record(&mut self, kernel: &mut dyn Kernel, buffer: &mut [u8], end: Option<&str>) {
        let Some(ring) = self.ring.as_mut().filter(|ring| ring.lent_to.is_none()) else { return };
        if let Err(errno) = ring.record(kernel, buffer, end) {
            let text = Line::new(format_args!(
                "flight recorder on {}: {}; it is off",
                ring.device,
                sys::errno::Described(errno)
            ));
            self.ring = None;
            kernel.log(Level::Warning, text.as_str());
        }
    }
}

impl Ring {
    /// A packer that goes on behind the newest slot, whoever wrote it.
    fn packer(&self, kernel: &mut dyn Kernel, buffer: &mut [u8]) -> Result<Packer, Errno> {
        let started_us = kernel.wall_clock_us().saturating_sub(kernel.now_ns() / 1000);
        let (number, sequence) = self.next.map_or_else(|| self.look(kernel, buffer), Ok)?;
        let mut packer = Packer::new(self.boot, Writer::Init, number, sequence);
        packer.set_started_us(started_us);
        Ok(packer)
    }

    fn look(&self, kernel: &mut dyn Kernel, buffer: &mut [u8]) -> Result<(u64, u64), Errno> {
        let mut reader = Reader { kernel, path: &self.device };
        let newest =
            newest(&mut reader, buffer).map_err(|error| Errno::from_raw_os_error(error.errno.max(1)))?;
        let number = newest.map_or(0, |head| head.number.wrapping_add(1));
        let sequence = newest.filter(|head| head.boot == self.boot).map_or(0, |head| head.sequence);
        Ok((number, sequence))
    }

    fn record(&mut self, kernel: &mut dyn Kernel, buffer: &mut [u8], end: Option<&str>) -> Result<(), Errno> {
        let mut packer = self.packer(kernel, buffer)?;
        for _ in 0..MOST_LINES {
            let record = buffer.get_mut(..MAX_RECORD_BYTES).ok_or(Errno::INVAL)?;
            let length = match kernel.next_log_record(record) {
                Ok(length) => length,
                Err(Errno::AGAIN) => break,
                Err(errno) => return Err(errno),
            };
            if let Some(line) = record.get(..length).and_then(Record::parse) {
                let text = redacted(line.text);
                packer.line(&Record { text: &text, ..line }, &mut writer(kernel))?;
            }
        }
        packer.finish(&mut writer(kernel))?;
        if let Some(facts) = end {
            packer.facts(Kind::End, kernel.now_ns() / 1000, facts, &mut writer(kernel))?;
        }
        self.next = Some((packer.number(), packer.sequence()));
        Ok(())
    }
}

fn writer(kernel: &mut dyn Kernel) -> impl FnMut(u64, &[u8; SLOT_BYTES]) -> Result<(), Errno> + '_ {
    |offset, slot| kernel.write_recorder(offset, slot)
}
