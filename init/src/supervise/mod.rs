//! PID 1 after the boot.
//!
//! Owns: the loop that keeps machined running, the exit table, the descriptor store, the watchdog, and the request to
//! end. Wanted state: one machined that sends heartbeats. Its end, a closed socket, a broken message or a missing
//! heartbeat all lead to the same place: it is killed if need be, and started again after the back-off.
//! Does not: know services; they are machined's, and outlive it as children of init.
//! Order: [`crate::sequences::SUPERVISION`], one turn after the other.
//! Fails by: a line in the log; only a corrupt block or a machined that cannot start before it ever was ready end in
//! a restart, as a failed boot does.
//!
//! All memory is taken before the first turn: a turn allocates nothing.

pub mod backoff;
pub mod exits;
mod messages;
pub mod store;

use alloc::vec::Vec;

use handoff::{Action, BootReport, HEARTBEAT_DEADLINE_MS, MAX_FRAME_BYTES, Start, ToMachined};
use sequence::Sequence;
use sys::Errno;

use crate::cmdline::Parameters;
use crate::corruption::Corruption;
use crate::kernel::{Kernel, Level, Ready, Signal};
use crate::line::{Line, say};
use crate::recorder::Recorder;
use crate::runner;
use crate::wait_status::WaitStatus;
use crate::watchdog::Watchdog;
use backoff::{Backoff, End, MOST_CRASHES, STEADY_NS};
use exits::Exits;
use messages::Outbox;
use store::Store;

pub use messages::{read_messages, send_messages};

const SECOND_NS: u64 = 1_000_000_000;

/// A boot whose machined is not ready after so long never will be: the restart counts as a failed trial of the slot.
/// Services that must be up first (DHCP on a slow switch) take two minutes at most.
const READY_DEADLINE_NS: u64 = 15 * 60 * SECOND_NS;

/// How long machined may take to end the system after it was asked to: pods get their grace periods.
const REQUEST_DEADLINE_NS: u64 = 10 * 60 * SECOND_NS;

/// A machined that closed its socket is ending; a dump of its memory may take this long.
const CLOSED_DEADLINE_NS: u64 = 5 * SECOND_NS;

const HEARTBEAT_DEADLINE_NS: u64 = HEARTBEAT_DEADLINE_MS * 1_000_000;

/// What the function of a task of a turn looks like.
pub type TurnTask = fn(&mut Supervisor<'_>);

/// How supervision ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Run the shutdown sequence.
    Finish(Action),
    /// The boot failed late; its line is printed, its restart was tried.
    GaveUp,
}

/// machined as init sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Machined {
    /// To be started at a time on the boot clock.
    Waiting { until_ns: u64 },
    /// Running.
    Running { pid: i32 },
}

/// A request to end the system.
#[derive(Debug, Clone, Copy)]
struct Request {
    action: Action,
    deadline_ns: u64,
    sent: bool,
}

/// The state of supervision.
pub struct Supervisor<'k> {
    kernel: &'k mut dyn Kernel,
    recorder: &'k mut Recorder,
    halt_on_shutdown: bool,
    /// [`ToMachined::Start`], kept whole so that sending it again builds nothing.
    start: ToMachined<'static>,
    machined: Machined,
    connected: bool,
    ever_ready: bool,
    started_ns: u64,
    /// When the present machined was ready.
    ready_ns: Option<u64>,
    /// init had to end the present machined.
    killed_by_init: bool,
    heartbeat_ns: u64,
    /// machined closed its socket: unless it ends by itself until then, it is killed.
    closed_deadline_ns: Option<u64>,
    backoff: Backoff,
    exits: Exits,
    store: Store,
    outbox: Outbox,
    request: Option<Request>,
    watchdog: Watchdog,
    ready: Ready,
    frame: Vec<u8>,
    outcome: Option<Outcome>,
}

impl<'k> Supervisor<'k> {
    /// Takes all the memory that supervision will ever need.
    pub fn new(
        kernel: &'k mut dyn Kernel,
        parameters: &Parameters,
        report: BootReport,
        recorder: &'k mut Recorder,
        watchdog: Watchdog,
    ) -> Self {
        let now = kernel.now_ns();
        let start = Start { report, restarts: 0, previous_status: None, init_memory: kernel.memory() };
        Self {
            kernel,
            recorder,
            halt_on_shutdown: parameters.halt_on_shutdown,
            start: ToMachined::Start(start),
            machined: Machined::Waiting { until_ns: 0 },
            connected: false,
            ever_ready: false,
            started_ns: now,
            ready_ns: None,
            killed_by_init: false,
            heartbeat_ns: now,
            closed_deadline_ns: None,
            backoff: Backoff::default(),
            exits: Exits::new(),
            store: Store::new(),
            outbox: Outbox::default(),
            request: None,
            watchdog,
            ready: Ready::default(),
            frame: sys::fs::buffer(MAX_FRAME_BYTES),
            outcome: None,
        }
    }

    /// Turns until there is an outcome.
    pub fn run(&mut self, turn: &Sequence<TurnTask>) -> Outcome {
        if let Err(errno) = self.kernel.catch_signals() {
            say!(self.kernel, Level::Warning, "catch signals: {}", sys::errno::Described(errno));
        }
        // The first start is no restart.
        self.backoff.wait_ns();
        loop {
            for (_, task) in turn.tasks() {
                (task.run)(self);
                if let Some(outcome) = self.outcome.take() {
                    return outcome;
                }
            }
        }
    }

    /// The moment of the next thing that happens by itself.
    fn next_deadline(&self) -> u64 {
        let mut deadline = self.heartbeat_ns + HEARTBEAT_DEADLINE_NS;
        if let Machined::Waiting { until_ns } = self.machined {
            deadline = until_ns;
        }
        if let Some(closed) = self.closed_deadline_ns {
            deadline = deadline.min(closed);
        }
        if !self.ever_ready {
            deadline = deadline.min(self.started_ns + READY_DEADLINE_NS);
        }
        if let Some(request) = self.request {
            deadline = deadline.min(request.deadline_ns);
        }
        self.watchdog.next_ns().map_or(deadline, |next| deadline.min(next))
    }

    fn start_mut(&mut self) -> Option<&mut Start> {
        match &mut self.start {
            ToMachined::Start(start) => Some(start),
            _ => None,
        }
    }

    /// machined is gone: what it sent last still counts.
    fn machined_ended(&mut self, status: i32) {
        self.drain_messages();
        self.closed_deadline_ns = None;
        if self.connected {
            self.kernel.disconnect();
            self.connected = false;
        }
        let end = self.kind_of_end(status);
        let until_ns = self.kernel.now_ns() + self.backoff.ended(end);
        self.machined = Machined::Waiting { until_ns };
        if let Some(start) = self.start_mut() {
            start.restarts = start.restarts.saturating_add(1);
            start.previous_status = Some(status);
        }
        // What the kernel does with a program whose page it cannot verify.
        let corrupt = if status & 0x7f == BUS_ERROR { self.corrupt_layer() } else { None };
        let status = WaitStatus(status);
        let line = Line::new(format_args!("machined ended: {status}{}", Blocks(corrupt)));
        say!(self.kernel, Level::Warning, "{}", line.as_str());
        self.recorder.record_log(self.kernel, &mut self.frame);
        if self.backoff.is_hopeless() {
            let line = Line::new(format_args!(
                "machined ended {MOST_CRASHES} times in a row, the last time with {status}{}",
                Blocks(self.corrupt_layer())
            ));
            if runner::announce(
                self.kernel,
                self.recorder,
                &mut self.watchdog,
                "start_machined",
                line.as_str(),
            ) {
                // Unlike in an early failure, file systems may be mounted for writing.
                self.finish(Action::Reboot, "machined does not run");
            } else {
                self.outcome = Some(Outcome::GaveUp);
            }
        }
    }

    fn kind_of_end(&mut self, status: i32) -> End {
        let now = self.kernel.now_ns();
        let steady = self.ready_ns.is_some_and(|ready| now >= ready + STEADY_NS);
        let killed = status & 0x7f == KILLED;
        match (self.killed_by_init, killed, self.ready_ns) {
            (false, ..) if steady => End::Steady,
            (false, true, Some(_)) => End::Killed,
            (false, true, None) => End::KilledEarly,
            _ => End::Crashed,
        }
    }

    /// A layer in which the kernel has met a block with a wrong hash.
    fn corrupt_layer(&mut self) -> Option<&str> {
        let ToMachined::Start(start) = &self.start else { return None };
        let mut names = start.report.layers.iter().map(|layer| layer.name.as_str());
        // What cannot be asked is not known to be corrupt.
        names.find(|name| self.kernel.is_corrupt(name).unwrap_or(false))
    }

    /// Ends a machined that does not keep to the protocol; its exit arrives as any other.
    fn kill_machined(&mut self, reason: &str) {
        if let Machined::Running { pid } = self.machined {
            say!(self.kernel, Level::Warning, "killing machined: {reason}");
            self.killed_by_init = true;
            if let Err(errno) = self.kernel.kill(pid, Signal::Kill) {
                say!(self.kernel, Level::Warning, "kill machined: {}", sys::errno::Described(errno));
            }
        }
        if self.connected {
            self.kernel.disconnect();
            self.connected = false;
        }
    }

    /// machined closed its end: most likely it is ending, which will be told by its exit.
    fn machined_closed(&mut self) {
        self.kernel.disconnect();
        self.connected = false;
        self.closed_deadline_ns = Some(self.kernel.now_ns() + CLOSED_DEADLINE_NS);
    }

    fn ask_for(&mut self, action: Action) {
        if self.request.is_some() || !self.ever_ready {
            // Asked twice, or nobody is there to ask.
            self.finish(action, "asked by signal");
            return;
        }
        let deadline_ns = self.kernel.now_ns() + REQUEST_DEADLINE_NS;
        self.request = Some(Request { action, deadline_ns, sent: false });
    }

    fn finish(&mut self, action: Action, reason: &str) {
        let action = match action {
            Action::PowerOff if self.halt_on_shutdown => Action::Halt,
            other => other,
        };
        say!(self.kernel, Level::Info, "final action {action:?}: {reason}");
        self.outcome = Some(Outcome::Finish(action));
    }

    /// Reads waiting device events; a corrupt block of a layer is the end of this boot.
    fn look_for_corruption(&mut self) {
        let ToMachined::Start(start) = &self.start else { return };
        let layers = &start.report.layers;
        let mut found = None;
        loop {
            match self.kernel.next_device_event(&mut self.frame) {
                Ok(len) => found = found.or_else(|| Corruption::from_event(&self.frame[..len], layers)),
                // Lost events are no reason to stop: the next one is read.
                Err(Errno::NOBUFS) => {}
                Err(_) => break,
            }
        }
        let Some(found) = found else { return };
        let line = Line::new(format_args!("{}", found.describe(layers)));
        self.give_up("start_machined", line.as_str());
    }

    fn give_up(&mut self, task: &str, text: &str) {
        runner::give_up(self.kernel, self.recorder, &mut self.watchdog, task, text);
        self.outcome = Some(Outcome::GaveUp);
    }
}

/// SIGKILL as a wait status has it.
const KILLED: i32 = 9;

/// SIGBUS, likewise: 7 on x86-64 and arm64.
const BUS_ERROR: i32 = 7;

/// What a line about machined's end adds when a layer is corrupt.
struct Blocks<'a>(Option<&'a str>);

impl core::fmt::Display for Blocks<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.map_or(Ok(()), |layer| write!(f, "; layer {layer}: blocks are corrupt"))
    }
}

/// Takes exits into the table.
pub fn reap_children(supervisor: &mut Supervisor<'_>) {
    loop {
        match supervisor.kernel.reap() {
            Ok(Some(ended)) if supervisor.machined == (Machined::Running { pid: ended.pid }) => {
                supervisor.recorder.reaped(ended.pid);
                supervisor.machined_ended(ended.status);
            }
            Ok(Some(ended)) => supervisor.exits.push(ended),
            Ok(None) => break,
            Err(errno) => {
                say!(supervisor.kernel, Level::Warning, "reap children: {}", sys::errno::Described(errno));
                break;
            }
        }
    }
}

/// Starts machined when its time has come.
pub fn start_machined(supervisor: &mut Supervisor<'_>) {
    let Machined::Waiting { until_ns } = supervisor.machined else { return };
    let now = supervisor.kernel.now_ns();
    if now < until_ns {
        return;
    }
    match supervisor.kernel.start_machined() {
        Ok(pid) => {
            supervisor.machined = Machined::Running { pid };
            supervisor.recorder.lend(pid);
            supervisor.connected = true;
            supervisor.ready_ns = None;
            supervisor.killed_by_init = false;
            supervisor.heartbeat_ns = now;
            supervisor.outbox = Outbox::default();
            supervisor.exits.rewind();
            if let Some(request) = &mut supervisor.request {
                request.sent = false;
            }
            let memory = supervisor.kernel.memory();
            if let Some(start) = supervisor.start_mut() {
                start.init_memory = memory;
            }
        }
        Err(errno) if !supervisor.ever_ready => {
            supervisor.look_for_corruption();
            if supervisor.outcome.is_none() {
                let line = Line::new(format_args!(
                    "start {}: {}",
                    crate::tasks::machined::PROGRAM,
                    sys::errno::Described(errno)
                ));
                supervisor.give_up("start_machined", line.as_str());
            }
        }
        Err(errno) => {
            let until_ns = now + supervisor.backoff.wait_ns();
            supervisor.machined = Machined::Waiting { until_ns };
            say!(supervisor.kernel, Level::Warning, "start machined: {}", sys::errno::Described(errno));
        }
    }
}

/// Acts on what did not happen in time; each deadline is named when it passes.
pub fn check_deadlines(supervisor: &mut Supervisor<'_>) {
    let now = supervisor.kernel.now_ns();
    if let Some(request) = supervisor.request
        && now >= request.deadline_ns
    {
        supervisor.finish(request.action, "machined did not end the system within 10 minutes");
        return;
    }
    if !supervisor.ever_ready && now >= supervisor.started_ns + READY_DEADLINE_NS {
        let text = "machined was not ready within 15 minutes";
        supervisor.kernel.log(Level::Error, text);
        supervisor.finish(Action::Reboot, text);
        return;
    }
    if supervisor.closed_deadline_ns.is_some_and(|deadline| now >= deadline) {
        supervisor.closed_deadline_ns = None;
        supervisor.kill_machined("it closed its socket and did not end within 5 s");
    }
    if matches!(supervisor.machined, Machined::Running { .. })
        && now >= supervisor.heartbeat_ns + HEARTBEAT_DEADLINE_NS
    {
        supervisor.kill_machined("no heartbeat for 60 s");
        // The next deadline is for its exit to arrive: a process stuck in the kernel takes its time.
        supervisor.heartbeat_ns = now;
        supervisor.watchdog.stop_feeding();
    }
}

/// Arms and feeds the watchdog; it gets nothing while machined is silent.
pub fn feed_watchdog(supervisor: &mut Supervisor<'_>) {
    let silent_ns = supervisor.kernel.now_ns().saturating_sub(supervisor.heartbeat_ns);
    supervisor.watchdog.turn(supervisor.kernel, silent_ns < HEARTBEAT_DEADLINE_NS);
}

/// Waits for anything.
pub fn wait_for_events(supervisor: &mut Supervisor<'_>) {
    let deadline = supervisor.next_deadline();
    match supervisor.kernel.wait(Some(deadline), supervisor.outbox.blocked()) {
        Ok(ready) => supervisor.ready = ready,
        Err(errno) => {
            say!(supervisor.kernel, Level::Warning, "wait for events: {}", sys::errno::Described(errno));
            // Not to spin on an error that stays.
            supervisor.kernel.pause(SECOND_NS);
        }
    }
}

/// Turns signals into requests.
pub fn read_signals(supervisor: &mut Supervisor<'_>) {
    if !supervisor.ready.signal {
        return;
    }
    while let Ok(signal) = supervisor.kernel.next_signal() {
        match signal {
            Some(Signal::Interrupt) => supervisor.ask_for(Action::Reboot),
            Some(Signal::Terminate | Signal::Power) => supervisor.ask_for(Action::PowerOff),
            // Exits are reaped in every turn.
            Some(Signal::Child | Signal::Kill) | None => {}
        }
    }
}

/// Until machined is ready, a corrupt block ends the boot.
pub fn read_device_events(supervisor: &mut Supervisor<'_>) {
    if !supervisor.ever_ready {
        supervisor.look_for_corruption();
    }
}
