//! The hardware watchdog.
//!
//! Owns: arming it as soon as its device exists, and feeding it as long as machined sends heartbeats. A hung node
//! thus restarts by itself, and a boot that hangs ends in the last good slot.
//! Does not: exist on every board; without a device nothing happens.

use handoff::HEARTBEAT_DEADLINE_MS;
use sys::Errno;

use super::{SECOND_NS, Supervisor};
use crate::kernel::Level;
use crate::line::say;

const DEVICE: &str = "/dev/watchdog0";

/// Between attempts to find the device: its driver may come from the kernel layer, loaded by machined.
const RETRY_NS: u64 = 5 * SECOND_NS;

/// State of the watchdog.
#[derive(Debug)]
pub(super) struct Watchdog {
    /// From the command line; `None`: off.
    wanted_seconds: Option<u32>,
    armed: bool,
    feeding: bool,
    interval_ns: u64,
    next_ns: u64,
}

impl Watchdog {
    pub(super) fn new(wanted_seconds: Option<u32>) -> Self {
        Self { wanted_seconds, armed: false, feeding: true, interval_ns: 0, next_ns: 0 }
    }

    /// When it wants its next turn. While there is no device, any turn will do.
    pub(super) fn next_ns(&self) -> Option<u64> {
        (self.armed && self.feeding).then_some(self.next_ns)
    }

    /// machined hangs: let the countdown run, so that hardware ends what software cannot.
    pub(super) fn stop_feeding(&mut self) {
        self.feeding = false;
    }

    /// machined is ready.
    pub(super) fn feed_again(&mut self) {
        self.feeding = true;
    }
}

/// Arms and feeds.
pub fn feed_watchdog(supervisor: &mut Supervisor<'_>) {
    let Some(wanted) = supervisor.watchdog.wanted_seconds else { return };
    let now = supervisor.kernel.now_ns();
    if now < supervisor.watchdog.next_ns {
        return;
    }
    if !supervisor.watchdog.armed {
        arm(supervisor, wanted, now);
        return;
    }
    let silent_ns = now.saturating_sub(supervisor.heartbeat_ns);
    if !supervisor.watchdog.feeding || silent_ns >= HEARTBEAT_DEADLINE_MS * 1_000_000 {
        return;
    }
    supervisor.watchdog.next_ns = now + supervisor.watchdog.interval_ns;
    if let Err(errno) = supervisor.kernel.feed_watchdog() {
        say!(supervisor.kernel, Level::Warning, "feed watchdog: {}", sys::errno::Described(errno));
    }
}

fn arm(supervisor: &mut Supervisor<'_>, wanted: u32, now: u64) {
    match supervisor.kernel.open_watchdog(DEVICE, wanted) {
        Ok(seconds) => {
            let watchdog = &mut supervisor.watchdog;
            watchdog.armed = true;
            // Four chances before it bites.
            watchdog.interval_ns = (u64::from(seconds) * SECOND_NS / 4).max(SECOND_NS / 4);
            watchdog.next_ns = now + watchdog.interval_ns;
            say!(supervisor.kernel, Level::Info, "watchdog armed, {seconds} s");
        }
        Err(Errno::NOENT | Errno::NODEV) => supervisor.watchdog.next_ns = now + RETRY_NS,
        Err(errno) => {
            say!(supervisor.kernel, Level::Warning, "arm {DEVICE}: {}", sys::errno::Described(errno));
            supervisor.watchdog.wanted_seconds = None;
        }
    }
}
