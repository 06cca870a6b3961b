//! The last resort: a bug in PID 1.
//!
//! Owns: the panic handler, and the wait before the restart, in which a failed boot stays readable.
//! Fails by: never returning: PID 1 must not end, or the kernel panics.

use core::fmt::{self, Write};
use core::sync::atomic::Ordering;

use crate::freestanding::FAILURE_WAIT_SECONDS;
use crate::system::{End, end, sleep_ns};

/// Waits as `panic=` says, then restarts the machine.
pub fn wait_and_restart() -> ! {
    let seconds = FAILURE_WAIT_SECONDS.load(Ordering::Relaxed);
    loop {
        sleep_ns(seconds.max(1) * 1_000_000_000);
        if seconds > 0 {
            end(End::Restart);
        }
    }
}

/// One line, however long the message: a kernel log record holds about 900 bytes.
struct Line {
    bytes: [u8; 512],
    used: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for &byte in text.as_bytes() {
            if let Some(slot) = self.bytes.get_mut(self.used) {
                *slot = if byte == b'\n' { b' ' } else { byte };
                self.used += 1;
            }
        }
        Ok(())
    }
}

#[panic_handler]
fn panic(what: &core::panic::PanicInfo<'_>) -> ! {
    end_with(format_args!("{what}"))
}

/// Prints what went wrong and ends: PID 1 by a restart of the machine, its helpers by themselves.
pub(super) fn end_with(what: fmt::Arguments<'_>) -> ! {
    let mut line = Line { bytes: [0; 512], used: 0 };
    let _ = write!(line, "<2>billet: init: bug: {what}");
    let text = core::str::from_utf8(&line.bytes[..line.used]).unwrap_or("<2>billet: init: bug");
    if let Ok(kmsg) = crate::console::open_kmsg_anywhere() {
        let _ = crate::console::write_record(kmsg, text);
    }
    if !rustix::process::getpid().is_init() {
        crate::process::exit(134);
    }
    wait_and_restart()
}
