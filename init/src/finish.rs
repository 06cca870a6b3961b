//! The end of the system.
//!
//! Owns: stopping processes, saving file systems in a child with a deadline (a dead NFS mount must not hang PID 1),
//! and the final call.
//! Order: [`crate::sequences::SHUTDOWN`]; [`crate::sequences::CONTAINER_SHUTDOWN`] in a container.
//! Fails by: a warning; the end comes whatever fails before it.

use alloc::format;

use handoff::Action;
use sequence::Sequence;

use crate::kernel::{End, Helper, Kernel, Level, Signal};
use crate::line::say;
use crate::recorder::{BUFFER_BYTES, Recorder};

mod unmount;
pub use unmount::unmount_everything;

const SECOND_NS: u64 = 1_000_000_000;

/// For programs to save their work; machined has stopped services in order before.
const TERMINATE_DEADLINE_NS: u64 = 10 * SECOND_NS;

/// For the kernel to take killed processes apart.
const KILL_DEADLINE_NS: u64 = 5 * SECOND_NS;

/// For writing what is in memory to slow disks.
const UNMOUNT_DEADLINE_NS: u64 = 30 * SECOND_NS;

/// The watchdog is fed at least this often while waiting.
const FEED_NS: u64 = SECOND_NS;

/// The emergency remount runs in a kernel worker that gives no sign of its end; it touches a handful of mounts.
const REMOUNT_NS: u64 = SECOND_NS;

/// What the function of a shutdown task looks like.
pub type FinishTask = fn(&mut Finish<'_>);

/// A system about to end.
pub struct Finish<'k> {
    kernel: &'k mut dyn Kernel,
    action: Action,
    recorder: &'k mut Recorder,
    /// The helper saved everything.
    saved: bool,
}

/// Runs the shutdown sequence; returns only if the kernel refuses to end.
pub fn finish(
    kernel: &mut dyn Kernel,
    sequence: &Sequence<FinishTask>,
    action: Action,
    recorder: &mut Recorder,
) {
    // Their readiness would end every wait at once.
    kernel.disconnect();
    kernel.ignore_devices();
    let mut finish = Finish { kernel, action, recorder, saved: false };
    for (_, task) in sequence.tasks() {
        (task.run)(&mut finish);
    }
}

impl Finish<'_> {
    /// Reaps until `done` holds or the deadline has passed. `done` sees the pid of each reaped child.
    fn reap_until(
        &mut self,
        deadline_ns: u64,
        mut done: impl FnMut(&mut dyn Kernel, Option<i32>) -> bool,
    ) -> bool {
        loop {
            while let Ok(Some(ended)) = self.kernel.reap() {
                self.recorder.reaped(ended.pid);
                if done(self.kernel, Some(ended.pid)) {
                    return true;
                }
            }
            if done(self.kernel, None) {
                return true;
            }
            let now = self.kernel.now_ns();
            if now >= deadline_ns {
                return false;
            }
            // Without a watchdog there is nothing to feed.
            let _ = self.kernel.feed_watchdog();
            match self.kernel.wait(Some(deadline_ns.min(now + FEED_NS)), false) {
                Ok(_) => while self.kernel.next_signal().is_ok() {},
                Err(_) => self.kernel.pause(FEED_NS),
            }
        }
    }

    fn stop(&mut self, signal: Signal, wait_ns: u64) -> bool {
        match self.kernel.kill_everyone(signal) {
            Ok(()) => {}
            Err(sys::Errno::SRCH) => return true,
            Err(errno) => {
                say!(self.kernel, Level::Warning, "signal all processes: {}", sys::errno::Described(errno));
            }
        }
        let deadline = self.kernel.now_ns() + wait_ns;
        self.reap_until(deadline, |kernel, _| !kernel.has_children())
    }
}

/// Lets programs end by themselves.
pub fn terminate_processes(finish: &mut Finish<'_>) {
    if !finish.stop(Signal::Terminate, TERMINATE_DEADLINE_NS) {
        finish.kernel.log(Level::Warning, "some processes did not end within 10 s of SIGTERM");
    }
}

/// Ends the rest.
pub fn kill_processes(finish: &mut Finish<'_>) {
    if finish.kernel.has_children() && !finish.stop(Signal::Kill, KILL_DEADLINE_NS) {
        finish.kernel.log(Level::Warning, "some processes did not end within 5 s of SIGKILL");
    }
}

/// Adds what the kernel's log has gained. A machined that could not be killed keeps the recorder to itself.
pub fn record_log(finish: &mut Finish<'_>) {
    finish.recorder.record_log(finish.kernel, &mut sys::fs::buffer(BUFFER_BYTES));
}

/// Notes the end, after everything that may go wrong before it.
pub fn record_end(finish: &mut Finish<'_>) {
    let facts = format!("action={:?}\n", finish.action);
    finish.recorder.end(finish.kernel, &mut sys::fs::buffer(BUFFER_BYTES), &facts);
}

/// Gives machined's descriptors up: a listening socket keeps the file system that holds its name busy.
pub fn close_descriptors(finish: &mut Finish<'_>) {
    finish.kernel.close_all();
}

/// Saves what was written, in a child.
pub fn unmount_file_systems(finish: &mut Finish<'_>) {
    let helper = match finish.kernel.start_helper(Helper::Unmount) {
        Ok(pid) => pid,
        Err(errno) => {
            say!(finish.kernel, Level::Warning, "start unmount helper: {}", sys::errno::Described(errno));
            return;
        }
    };
    let deadline = finish.kernel.now_ns() + UNMOUNT_DEADLINE_NS;
    finish.saved = finish.reap_until(deadline, |_, ended| ended == Some(helper));
    if !finish.saved {
        finish.kernel.log(Level::Warning, "file systems were not unmounted within 30 s");
        let _ = finish.kernel.kill(helper, Signal::Kill);
    }
}

/// What the child did not manage, the kernel does without waiting for anything remote.
pub fn remount_rest(finish: &mut Finish<'_>) {
    if finish.saved {
        return;
    }
    for request in [b"s", b"u"] {
        let path = "/proc/sysrq-trigger";
        if let Err(errno) = finish.kernel.write(path, request) {
            finish.kernel.log(Level::Warning, &format!("write {path}: {}", sys::errno::Described(errno)));
            return;
        }
    }
    finish.kernel.pause(REMOUNT_NS);
}

/// A machine that is to stay off must not be restarted by its watchdog; one that is to restart keeps it, in case the
/// restart hangs.
pub fn release_watchdog(finish: &mut Finish<'_>) {
    match finish.action {
        Action::PowerOff | Action::Halt => finish.kernel.disarm_watchdog(),
        Action::Reboot | Action::Kexec => {
            let _ = finish.kernel.feed_watchdog();
        }
    }
}

/// The last call.
pub fn act(finish: &mut Finish<'_>) {
    let how = match finish.action {
        Action::Reboot => End::Restart,
        Action::PowerOff => End::PowerOff,
        Action::Halt => End::Halt,
        Action::Kexec => End::Kexec,
    };
    let errno = finish.kernel.end(how);
    say!(finish.kernel, Level::Warning, "{how:?}: {}; restarting instead", sys::errno::Described(errno));
    finish.kernel.end(End::Restart);
}
