//! Running the boot sequence.
//!
//! Owns: time spans, and what happens when a task fails: one line, the wait of `panic=`, a restart.
//! Does not: retry; a task that can wait does so by itself, with a deadline.

use alloc::format;
use alloc::string::ToString;

use handoff::Span;
use sequence::Sequence;

use crate::boot::{Boot, BootTask};
use crate::events;
use crate::failure::Failure;
use crate::kernel::{End, Kernel, Level};
use crate::recorder::{BUFFER_BYTES, Recorder};
use crate::tasks::recorder::begin_late;
use crate::watchdog::Watchdog;

/// How often the kernel is asked to bring the record of the failure to the disk while its line can be read: what shares
/// a page with lines that are on their way is not taken at the first time, and a restart saves nothing.
const HASTENED_PER_SECOND: u64 = 4;
const HASTENED_NS: u64 = 1_000_000_000 / HASTENED_PER_SECOND;

/// The boot failed, its line is printed, and the restart did not come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GaveUp;

/// Runs every task in order. On failure the machine restarts; `Err` comes back only if even that failed.
pub fn boot(boot: &mut Boot<'_>, sequence: &Sequence<BootTask>) -> Result<(), GaveUp> {
    for (phase, task) in sequence.tasks() {
        let start_ns = boot.kernel.now_ns();
        let result = (task.run)(boot);
        // A task that hangs does not come here.
        boot.watchdog.feed(boot.kernel);
        let end_ns = boot.kernel.now_ns();
        boot.report.spans.push(Span {
            phase: phase.to_string(),
            task: task.name.to_string(),
            start_ns,
            end_ns,
        });
        if let Err(failure) = result {
            report(boot, task.name, &failure);
            return Err(GaveUp);
        }
    }
    Ok(())
}

/// Names a corrupt block where one is behind the failure, then gives up.
fn report(boot: &mut Boot<'_>, task: &str, failure: &Failure) {
    if failure.is_io() {
        events::drain(boot);
    }
    let text = match boot.corruption {
        Some(corruption) => format!("{}: {failure}", corruption.describe(&boot.report.layers)),
        None => failure.to_string(),
    };
    begin_late(boot);
    give_up(boot.kernel, &mut boot.recorder, &mut boot.watchdog, task, &text);
}

/// Reports a failed boot and restarts.
pub fn give_up(
    kernel: &mut dyn Kernel,
    recorder: &mut Recorder,
    watchdog: &mut Watchdog,
    task: &str,
    text: &str,
) {
    if announce(kernel, recorder, watchdog, task, text) {
        kernel.end(End::Restart);
    }
}

/// Prints the one line of a failed boot and records it, and keeps it readable as long as `panic=` says; false if that
/// is for ever.
pub fn announce(
    kernel: &mut dyn Kernel,
    recorder: &mut Recorder,
    watchdog: &mut Watchdog,
    task: &str,
    text: &str,
) -> bool {
    let seconds = kernel.failure_wait_seconds();
    let next =
        if seconds == 0 { "waiting for ever".to_string() } else { format!("restarting in {seconds} s") };
    kernel.log(Level::Error, &format!("boot failed: {task}: {text}; {next}"));
    recorder.end(kernel, &mut sys::fs::buffer(BUFFER_BYTES), &format!("failed={task}\nreason={text}\n"));
    for _ in 0..seconds.saturating_mul(HASTENED_PER_SECOND) {
        watchdog.pause(kernel, Some(HASTENED_NS));
        recorder.hasten(kernel);
    }
    if seconds == 0 {
        watchdog.pause(kernel, None);
    }
    seconds != 0
}
