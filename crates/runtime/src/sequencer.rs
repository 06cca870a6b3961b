//! The sequencer: runs one sequence at a time, its phases in order, the tasks of a phase side by side.
//!
//! Owns: the lock, the events and lines of progress, the note that lets the next machined go on.
//! Does not: know a sequence. A [`Host`] has them, with the tables of who may take over and what follows.
//! Order: START of the sequence; for each phase START, its tasks' START and STOP, STOP; STOP of the sequence; then,
//! only after a failure, NOOP with the error (`SequenceEvent` in crates/api/proto/machine/machine.proto).
//! Fails by: the event and one line naming sequence, phase and task. The node stays up and answers.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::event::Payload;
use api::proto::common::Code;
use api::proto::machine::{PhaseEvent, SequenceEvent, TaskEvent};
use api::proto::machine::{phase_event, sequence_event, task_event};
use sequence::{Phase, Sequence, Task};
use tokio::task::{JoinHandle, JoinSet};

use crate::checkpoint::SavedSequence;
use crate::clock;
use crate::events::sequence_error;
use crate::handles::Runtime;
use crate::request;

/// Why a task failed, for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TaskError(pub String);

impl From<String> for TaskError {
    fn from(text: String) -> Self {
        Self(text)
    }
}

/// What a task returns.
pub type TaskFuture = Pin<Box<dyn Future<Output = Result<(), TaskError>> + Send>>;
/// A task of a host.
pub type TaskFn<H> = fn(Arc<H>) -> TaskFuture;

/// Whose sequences run: it has them, and the tables that say what may follow or end what.
pub trait Host: Sized + Send + Sync + 'static {
    /// Names of the sequences.
    type Order: Copy + PartialEq + Send + 'static;

    /// Which sequences may end which.
    const TAKE_OVERS: &'static [TakeOver<Self::Order>];
    /// What runs by itself after a sequence: the first row that fits.
    const FOLLOWERS: &'static [Follower<Self>];

    /// The handles below the sequencer.
    fn runtime(&self) -> &Runtime;
    /// The lock.
    fn sequencer(&self) -> &Sequencer;
    /// The sequence of that name.
    fn sequence(order: Self::Order) -> &'static Sequence<TaskFn<Self>>;
    /// The same as it is on this host; another one must keep the name.
    fn sequence_here(&self, order: Self::Order) -> &'static Sequence<TaskFn<Self>> {
        Self::sequence(order)
    }
}

/// A row of the table of take-overs: each of `new` ends any of `running` and runs in its place.
#[derive(Debug, Clone, Copy)]
pub struct TakeOver<O: 'static> {
    /// Who comes.
    pub new: &'static [O],
    /// Who gives way.
    pub running: &'static [O],
}

/// A row of the table of followers.
pub struct Follower<H: Host> {
    /// The sequence that has ended.
    pub after: H::Order,
    /// Only if it failed.
    pub failed: bool,
    /// What must hold besides; `None` always holds.
    pub when: Option<When<H>>,
    /// The sequence that runs then.
    pub next: H::Order,
}

/// A sequence that may not start now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("sequence not started: {running} is running")]
pub struct Locked {
    /// The one that runs.
    pub running: &'static str,
}

/// The lock of the node.
#[derive(Debug, Default)]
pub struct Sequencer {
    running: Mutex<Option<Running>>,
}

#[derive(Debug)]
struct Running {
    name: &'static str,
    actor_id: String,
    task: JoinHandle<()>,
}

/// Whether a sequence may end another one and run in its place.
fn may_take_over<H: Host>(new: H::Order, running: &str) -> bool {
    H::TAKE_OVERS.iter().any(|row| {
        row.new.contains(&new) && row.running.iter().any(|order| H::sequence(*order).name == running)
    })
}

/// What runs by itself after a sequence.
pub fn next<H: Host>(host: &H, after: H::Order, failed: bool) -> Option<H::Order> {
    let fits = |row: &&Follower<H>| {
        row.after == after
            && (failed || !row.failed)
            && row.when.as_ref().is_none_or(|when| (when.holds)(host))
    };
    H::FOLLOWERS.iter().find(fits).map(|row| row.next)
}

/// A condition of a row.
pub struct When<H> {
    /// In the words of `cargo xtask plan`.
    pub about: &'static str,
    /// Whether it holds now.
    pub holds: fn(&H) -> bool,
}

/// How a sequence starts.
#[derive(Debug, Clone, Default)]
pub struct Start {
    /// Who asked, as events name it; empty where machined starts it by itself.
    pub actor_id: String,
    /// The first phase to run; later than 0 when an earlier machined did the rest.
    pub phase: usize,
    /// Take over whatever runs.
    pub force: bool,
}

/// Whether a sequence could start now.
pub fn may_start<H: Host>(host: &Arc<H>, order: H::Order) -> Result<(), Locked> {
    let lock = host.sequencer().running.lock().unwrap_or_else(PoisonError::into_inner);
    match lock.as_ref().filter(|running| !running.task.is_finished()) {
        Some(running) if !may_take_over::<H>(order, running.name) => Err(Locked { running: running.name }),
        _ => Ok(()),
    }
}

/// Starts a sequence, if the lock or the table allows it.
pub fn start<H: Host>(host: &Arc<H>, order: H::Order, how: Start) -> Result<(), Locked> {
    let name = H::sequence(order).name;
    // Half a start would leave the lock with a sequence that never runs.
    let _outside = request::outside();
    let mut lock = host.sequencer().running.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(running) = lock.as_ref().filter(|running| !running.task.is_finished()) {
        if !how.force && !may_take_over::<H>(order, running.name) {
            let locked = Locked { running: running.name };
            noop(host.runtime(), name, &how.actor_id, Code::Locked, locked.to_string());
            return Err(locked);
        }
        running.task.abort();
        let by = format!("sequence failed: taken over by {name}");
        noop(host.runtime(), running.name, &running.actor_id, Code::Canceled, by);
    }
    let actor_id = how.actor_id.clone();
    let task = tokio::spawn(run(host.clone(), order, how));
    *lock = Some(Running { name, actor_id, task });
    Ok(())
}

async fn run<H: Host>(host: Arc<H>, order: H::Order, how: Start) {
    let (runtime, sequence, actor) = (host.runtime(), host.sequence_here(order), how.actor_id.as_str());
    let begin = clock::boottime_ns();
    announce(runtime, sequence.name, actor, sequence_event::Action::Start);
    runtime.journal.progress(&format!("{} sequence: {} phase(s)", sequence.name, sequence.phases.len()));
    let result = run_phases(&host, sequence, &how).await;
    announce(runtime, sequence.name, actor, sequence_event::Action::Stop);
    runtime.checkpoint.update(|memory| {
        memory.sequence = None;
        memory.done.push(sequence.name.to_owned());
    });
    let (took, failed) = (since(begin), result.is_err());
    match result {
        Ok(()) => runtime.journal.progress(&format!("{} sequence: done: {took:?}", sequence.name)),
        Err(error) => {
            runtime.journal.warn(&format!("{} sequence: failed after {took:?}: {error}", sequence.name));
            noop(runtime, sequence.name, actor, Code::Fatal, format!("sequence failed: {error}"));
        }
    }
    if let Some(next) = next(&*host, order, failed) {
        // From a task of its own: this one still holds the lock's place.
        tokio::spawn(async move {
            while !host.sequencer().is_idle() {
                tokio::task::yield_now().await;
            }
            // Whoever was faster has taken the lock for good reason.
            let _ = start(&host, next, Start::default());
        });
    }
}

impl Sequencer {
    /// Who asked for the sequence of this name, while it runs; empty where machined started it by itself.
    pub fn actor_id(&self, name: &str) -> String {
        let lock = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let running = lock.as_ref().filter(|running| running.name == name && !running.task.is_finished());
        running.map(|running| running.actor_id.clone()).unwrap_or_default()
    }

    fn is_idle(&self) -> bool {
        let lock = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        lock.as_ref().is_none_or(|running| running.task.is_finished())
    }
}

async fn run_phases<H: Host>(
    host: &Arc<H>,
    sequence: &'static Sequence<TaskFn<H>>,
    how: &Start,
) -> Result<(), TaskError> {
    let (runtime, count) = (host.runtime(), sequence.phases.len());
    for (index, phase) in sequence.phases.iter().enumerate().skip(how.phase) {
        let saved =
            SavedSequence { name: sequence.name.to_owned(), phase: index, actor_id: how.actor_id.clone() };
        runtime.checkpoint.update(|memory| memory.sequence = Some(saved));
        let (name, tasks) = (phase.name, phase.tasks.len());
        runtime.journal.progress(&format!("phase {name} ({}/{count}): {tasks} tasks(s)", index + 1));
        let begin = clock::boottime_ns();
        publish_phase(runtime, name, &how.actor_id, phase_event::Action::Start);
        let result = run_tasks(host, phase, &how.actor_id).await;
        publish_phase(runtime, name, &how.actor_id, phase_event::Action::Stop);
        runtime.timeline.publish();
        let end = if result.is_ok() { "done" } else { "failed" };
        runtime.journal.progress(&format!("phase {name} ({}/{count}): {end}, {:?}", index + 1, since(begin)));
        result.map_err(|error| {
            TaskError(format!("error running phase {} in {}: {error}", index + 1, sequence.name))
        })?;
    }
    Ok(())
}

async fn run_tasks<H: Host>(
    host: &Arc<H>,
    phase: &'static Phase<TaskFn<H>>,
    actor: &str,
) -> Result<(), TaskError> {
    let mut running = JoinSet::new();
    for (index, task) in phase.tasks.iter().enumerate() {
        let place = format!("({}/{})", index + 1, phase.tasks.len());
        running.spawn(run_task(host.clone(), phase.name, task, place, actor.to_owned()));
    }
    let mut first_error = Ok(());
    while let Some(ended) = running.join_next().await {
        let result = ended.unwrap_or_else(|panic| Err(TaskError(panic.to_string())));
        if first_error.is_ok() {
            first_error = result;
        }
    }
    first_error
}

async fn run_task<H: Host>(
    host: Arc<H>,
    phase: &'static str,
    task: &'static Task<TaskFn<H>>,
    place: String,
    actor: String,
) -> Result<(), TaskError> {
    let (runtime, name) = (host.runtime(), task.name);
    runtime.journal.progress(&format!("task {name} {place}: starting"));
    publish_task(runtime, name, &actor, task_event::Action::Start);
    let begin = clock::boottime_ns();
    let result = (task.run)(host.clone()).await;
    runtime.timeline.record("machined", phase, name, begin, clock::boottime_ns());
    publish_task(runtime, name, &actor, task_event::Action::Stop);
    match &result {
        Ok(()) => runtime.journal.progress(&format!("task {name} {place}: done, {:?}", since(begin))),
        Err(error) => runtime.journal.warn(&format!("task {name} {place}: failed: {error}")),
    }
    result.map_err(|error| TaskError(format!("task {name}: {error}")))
}

fn since(begin_ns: u64) -> Duration {
    Duration::from_micros(clock::boottime_ns().saturating_sub(begin_ns) / 1000)
}

fn announce(runtime: &Runtime, sequence: &str, actor: &str, action: sequence_event::Action) {
    let event = SequenceEvent { sequence: sequence.to_owned(), action: action.into(), error: None };
    runtime.events.publish(actor, &Payload::Sequence(event));
}

/// An error of a sequence, for those who follow events.
pub fn noop(runtime: &Runtime, sequence: &str, actor: &str, code: Code, message: String) {
    let error = Some(sequence_error(code, message));
    let action = sequence_event::Action::Noop.into();
    runtime
        .events
        .publish(actor, &Payload::Sequence(SequenceEvent { sequence: sequence.to_owned(), action, error }));
}

fn publish_phase(runtime: &Runtime, phase: &str, actor: &str, action: phase_event::Action) {
    let event = PhaseEvent { phase: phase.to_owned(), action: action.into() };
    runtime.events.publish(actor, &Payload::Phase(event));
}

fn publish_task(runtime: &Runtime, task: &str, actor: &str, action: task_event::Action) {
    let event = TaskEvent { task: task.to_owned(), action: action.into() };
    runtime.events.publish(actor, &Payload::Task(event));
}

#[cfg(test)]
mod tests;
