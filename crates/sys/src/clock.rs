//! The wall clock: setting it, and steering it.
//!
//! Owns: a step of `CLOCK_REALTIME`, the kernel's phase-locked loop, and the flag that says whether the clock follows
//! a source (while it does, the kernel writes the hardware clock every eleven minutes by itself).
//! Does not: know the time.
//! Source: adjtimex(2), include/uapi/linux/timex.h.

use rustix::fs::Timespec;
use rustix::time::ClockId;

use crate::{Result, raw};

/// `ADJ_OFFSET | ADJ_MAXERROR | ADJ_ESTERROR | ADJ_STATUS | ADJ_TIMECONST | ADJ_NANO`.
const STEER: u32 = 0x0001 | 0x0004 | 0x0008 | 0x0010 | 0x0020 | 0x2000;
/// `STA_PLL`: the offset given is worked off by the kernel.
const STA_PLL: i32 = 0x0001;
/// `STA_INS`: the last minute of today has 61 seconds.
const STA_INS: i32 = 0x0010;
/// `STA_DEL`: the last minute of today has 59 seconds.
const STA_DEL: i32 = 0x0020;
/// `STA_NANO`: the offset is in nanoseconds, otherwise in microseconds.
const STA_NANO: i32 = 0x2000;
/// `STA_UNSYNC`: nobody steers the clock.
const STA_UNSYNC: i32 = 0x0040;
/// The largest offset that the kernel's loop takes, in nanoseconds (`MAXPHASE`).
const MAX_PHASE_NS: i64 = 500_000_000;

/// `struct timex`, with the reserved words at its end: 208 bytes.
#[repr(C)]
#[derive(Default)]
struct Timex {
    modes: u32,
    padding_1: u32,
    offset: i64,
    frequency: i64,
    max_error: i64,
    estimated_error: i64,
    status: i32,
    padding_2: u32,
    constant: i64,
    precision: i64,
    tolerance: i64,
    seconds: i64,
    microseconds: i64,
    tick: i64,
    pps_frequency: i64,
    jitter: i64,
    shift: i32,
    padding_3: u32,
    stability: i64,
    jitter_count: i64,
    calibration_count: i64,
    error_count: i64,
    stability_count: i64,
    tai: i32,
    reserved: [i32; 11],
}

/// A leap second at the end of today.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Leap {
    /// None.
    #[default]
    None,
    /// One more second.
    Insert,
    /// One second less.
    Delete,
}

/// What the kernel is asked to do with the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steering {
    /// How far the clock is behind the true time; at most half a second is taken.
    pub offset_ns: i64,
    /// How wrong the clock may be.
    pub error_ns: u64,
    /// Time constant of the loop: the larger, the slower.
    pub constant: u8,
    /// The announced leap second.
    pub leap: Leap,
}

/// How the clock stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Somebody steers it.
    pub steered: bool,
    /// Frequency correction, in parts per million scaled by 65536.
    pub frequency: i64,
    /// What is still to be corrected.
    pub offset_ns: i64,
    /// Largest error.
    pub max_error_us: i64,
    /// Estimated error.
    pub estimated_error_us: i64,
    /// Flags (`STA_…`).
    pub status: i32,
    /// Time constant of the loop.
    pub constant: i64,
    /// `TIME_OK` (0), what is done about a leap second, or `TIME_ERROR` (5).
    pub state: usize,
}

/// `int clock_settime(CLOCK_REALTIME, tp)`: sets the clock to so long after 1970.
pub fn set(seconds: i64, nanoseconds: u32) -> Result<()> {
    let time = Timespec { tv_sec: seconds, tv_nsec: i64::from(nanoseconds) };
    rustix::time::clock_settime(ClockId::Realtime, time)
}

/// `int adjtimex(struct timex *buf)`: hands an offset to the kernel's loop and declares the clock steered.
pub fn steer(steering: &Steering) -> Result<()> {
    let error_us = i64::try_from(steering.error_ns / 1000).unwrap_or(i64::MAX);
    let leap = match steering.leap {
        Leap::None => 0,
        Leap::Insert => STA_INS,
        Leap::Delete => STA_DEL,
    };
    adjust(&mut Timex {
        modes: STEER,
        offset: steering.offset_ns.clamp(-MAX_PHASE_NS, MAX_PHASE_NS),
        max_error: error_us,
        estimated_error: error_us,
        status: STA_PLL | leap,
        constant: i64::from(steering.constant),
        ..Timex::default()
    })
    .map(drop)
}

/// `int adjtimex(struct timex *buf)`: asks only.
pub fn standing() -> Result<Standing> {
    let mut timex = Timex::default();
    let state = adjust(&mut timex)?;
    let unit = if timex.status & STA_NANO == 0 { 1000 } else { 1 };
    Ok(Standing {
        steered: timex.status & STA_UNSYNC == 0,
        frequency: timex.frequency,
        offset_ns: timex.offset.saturating_mul(unit),
        max_error_us: timex.max_error,
        estimated_error_us: timex.estimated_error,
        status: timex.status,
        constant: timex.constant,
        state,
    })
}

/// Returns the state of the clock.
fn adjust(timex: &mut Timex) -> Result<usize> {
    // SAFETY: 1. The kernel reads and writes one struct timex, which lives over the call and has its layout.
    unsafe { raw::syscall(linux_raw_sys::general::__NR_adjtimex, [raw::write(timex), 0, 0, 0, 0, 0]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structure_has_the_kernels_size() {
        assert_eq!(core::mem::size_of::<Timex>(), 208);
        assert_eq!(core::mem::offset_of!(Timex, status), 40);
        assert_eq!(core::mem::offset_of!(Timex, tai), 160);
    }

    #[test]
    fn asking_changes_nothing_and_works_without_privilege() {
        let before = standing().unwrap();
        assert_eq!(standing().unwrap().frequency, before.frequency);
    }
}
