//! The hardware watchdog.
//!
//! Owns: arming it as soon as its device exists, and feeding it: while the boot goes from task to task or waits for a
//! device, then as long as machined sends heartbeats. A hung node thus restarts by itself, and a boot that hangs ends
//! in the last good slot.
//! Does not: exist on every board; without a device nothing happens.

use sys::Errno;

use crate::kernel::{Kernel, Level};
use crate::line::say;

const DEVICE: &str = "/dev/watchdog0";

const SECOND_NS: u64 = 1_000_000_000;

/// Between attempts to find the device: its driver may come from the kernel layer, loaded by machined.
const RETRY_NS: u64 = 5 * SECOND_NS;

/// State of the watchdog.
#[derive(Debug, Default)]
pub struct Watchdog {
    /// From the command line; `None`: off.
    wanted_seconds: Option<u32>,
    armed: bool,
    /// machined hangs.
    given_up: bool,
    interval_ns: u64,
    next_ns: u64,
}

impl Watchdog {
    /// One that is not armed; `None`: it never will be.
    pub fn new(wanted_seconds: Option<u32>) -> Self {
        Self { wanted_seconds, ..Self::default() }
    }

    /// When it wants its next turn. While there is no device, any turn will do.
    pub fn next_ns(&self) -> Option<u64> {
        (self.armed && !self.given_up).then_some(self.next_ns)
    }

    /// machined hangs: let the countdown run, so that hardware ends what software cannot.
    pub fn stop_feeding(&mut self) {
        self.given_up = true;
    }

    /// machined is ready.
    pub fn feed_again(&mut self) {
        self.given_up = false;
    }

    /// Arms it if that is due, or else feeds it if that is due and `alive`.
    pub fn turn(&mut self, kernel: &mut dyn Kernel, alive: bool) {
        if self.armed {
            if alive {
                self.feed(kernel);
            }
            return;
        }
        let now = kernel.now_ns();
        if now >= self.next_ns {
            self.next_ns = now + RETRY_NS;
            self.arm(kernel);
        }
    }

    /// Starts the countdown anew, if it runs and has run for a while.
    pub fn feed(&mut self, kernel: &mut dyn Kernel) {
        let now = kernel.now_ns();
        if !self.armed || self.given_up || now < self.next_ns {
            return;
        }
        self.next_ns = now + self.interval_ns;
        if let Err(errno) = kernel.feed_watchdog() {
            say!(kernel, Level::Warning, "feed watchdog: {}", sys::errno::Described(errno));
        }
    }

    /// Keeps a message readable for so many nanoseconds; `None`: for ever, which no watchdog may end.
    pub fn pause(&mut self, kernel: &mut dyn Kernel, ns: Option<u64>) {
        let Some(mut left_ns) = ns else {
            kernel.disarm_watchdog();
            kernel.pause(u64::MAX);
            return;
        };
        while left_ns > 0 {
            self.feed(kernel);
            let step_ns = if self.armed { left_ns.min(self.interval_ns) } else { left_ns };
            kernel.pause(step_ns);
            left_ns -= step_ns;
        }
    }

    /// Arms it if there is one.
    pub fn arm(&mut self, kernel: &mut dyn Kernel) {
        let Some(wanted) = self.wanted_seconds else { return };
        match kernel.open_watchdog(DEVICE, wanted) {
            Ok(seconds) => {
                self.armed = true;
                // Four attempts before it bites.
                self.interval_ns = (u64::from(seconds) * SECOND_NS / 4).max(SECOND_NS / 4);
                self.next_ns = kernel.now_ns() + self.interval_ns;
                say!(kernel, Level::Info, "watchdog armed, {seconds} s");
            }
            Err(Errno::NOENT | Errno::NODEV) => {}
            Err(errno) => {
                say!(kernel, Level::Warning, "arm {DEVICE}: {}", sys::errno::Described(errno));
                self.wanted_seconds = None;
            }
        }
    }
}
