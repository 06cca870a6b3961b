//! The sequencer: runs one sequence at a time, its phases in order, the tasks of a phase side by side.
//!
//! Owns: the lock, the take-over table, the events and lines of progress, the note that lets the next machined go on.
//! Does not: know a task; [`crate::sequences`] lists them.
//! Order: START of the sequence; for each phase START, its tasks' START and STOP, STOP; STOP of the sequence; then,
//! only after a failure, NOOP with the error (spec/api-wire-facts.md §3.8).
//! Fails by: the event and one line naming sequence, phase and task. The node stays up and answers.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::event::Payload;
use api::proto::common::Code;
use api::proto::machine::{PhaseEvent, SequenceEvent, TaskEvent};
use api::proto::machine::{phase_event, sequence_event, task_event};
use runtime::checkpoint::SavedSequence;
use runtime::clock;
use runtime::events::sequence_error;
use runtime::request;
use sequence::{Phase, Sequence, Task};
use tokio::task::{JoinHandle, JoinSet};

use crate::install;
use crate::node::Node;
use crate::sequences::{Due, fallback, follower};
use crate::upgrade;

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
/// A task.
pub type TaskFn = fn(Arc<Node>) -> TaskFuture;

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

/// Whether a sequence may end another one and run in its place (spec/machine-facts.md §9.5).
pub fn may_take_over(new: &str, running: &str) -> bool {
    match new {
        "reboot" | "shutdown" => matches!(running, "initialize" | "boot" | "reboot" | "reset"),
        // A machine whose boot hangs on its config must be able to get another one.
        "upgrade" | "applyConfiguration" => running == "boot",
        // From any state: what waits for a config in maintenance gives way, too.
        "reset" => matches!(running, "initialize" | "boot"),
        _ => false,
    }
}

/// How a sequence starts.
#[derive(Debug, Clone, Default)]
pub struct Start {
    /// Who asked, empty when nobody did.
    pub actor_id: String,
    /// The first phase to run; later than 0 when an earlier machined did the rest.
    pub phase: usize,
    /// Take over whatever runs.
    pub force: bool,
}

/// Whether a sequence could start now.
pub fn may_start(node: &Node, sequence: &Sequence<TaskFn>) -> Result<(), Locked> {
    let lock = node.sequencer.running.lock().unwrap_or_else(PoisonError::into_inner);
    match lock.as_ref().filter(|running| !running.task.is_finished()) {
        Some(running) if !may_take_over(sequence.name, running.name) => Err(Locked { running: running.name }),
        _ => Ok(()),
    }
}

/// Starts a sequence, if the lock or the table allows it.
pub fn start(node: &Arc<Node>, sequence: &'static Sequence<TaskFn>, how: Start) -> Result<(), Locked> {
    // Half a start would leave the lock with a sequence that never runs.
    let _outside = request::outside();
    let mut lock = node.sequencer.running.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(running) = lock.as_ref().filter(|running| !running.task.is_finished()) {
        if !how.force && !may_take_over(sequence.name, running.name) {
            let locked = Locked { running: running.name };
            noop(node, sequence.name, &how.actor_id, Code::Locked, locked.to_string());
            return Err(locked);
        }
        running.task.abort();
        let by = format!("sequence failed: taken over by {}", sequence.name);
        noop(node, running.name, &running.actor_id, Code::Canceled, by);
    }
    let actor_id = how.actor_id.clone();
    let task = tokio::spawn(run(node.clone(), sequence, how));
    *lock = Some(Running { name: sequence.name, actor_id, task });
    Ok(())
}

async fn run(node: Arc<Node>, sequence: &'static Sequence<TaskFn>, how: Start) {
    let actor = how.actor_id.as_str();
    let begin = clock::boottime_ns();
    announce(&node, sequence.name, actor, sequence_event::Action::Start);
    node.journal.progress(&format!("{} sequence: {} phase(s)", sequence.name, sequence.phases.len()));
    let result = run_phases(&node, sequence, &how).await;
    announce(&node, sequence.name, actor, sequence_event::Action::Stop);
    node.checkpoint.update(|memory| {
        memory.sequence = None;
        memory.done.push(sequence.name.to_owned());
    });
    let (took, failed) = (since(begin), result.is_err());
    match result {
        Ok(()) => node.journal.progress(&format!("{} sequence: done: {took:?}", sequence.name)),
        Err(error) => {
            node.journal.warn(&format!("{} sequence: failed after {took:?}: {error}", sequence.name));
            noop(&node, sequence.name, actor, Code::Fatal, format!("sequence failed: {error}"));
        }
    }
    let next = match failed {
        true => fallback(sequence.name, node.checkpoint.memory().done.iter().any(|name| name == "boot")),
        false => None,
    };
    if let Some(next) = next.or_else(|| follower(sequence.name, due(&node))) {
        // From a task of its own: this one still holds the lock's place.
        tokio::spawn(async move {
            while !node.sequencer.is_idle() {
                tokio::task::yield_now().await;
            }
            // Whoever was faster has taken the lock for good reason.
            let _ = start(&node, next, Start::default());
        });
    }
}

/// What this machine does once it has a config.
pub(crate) fn due(node: &Node) -> Due {
    if install::is_due_now(node) {
        return Due::Install;
    }
    if upgrade::is_staged(node) { Due::Upgrade } else { Due::Boot }
}

impl Sequencer {
    /// Who asked for the sequence of this name, while it runs; empty when nobody did.
    pub(crate) fn actor_id(&self, name: &str) -> String {
        let lock = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let running = lock.as_ref().filter(|running| running.name == name && !running.task.is_finished());
        running.map(|running| running.actor_id.clone()).unwrap_or_default()
    }

    fn is_idle(&self) -> bool {
        let lock = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        lock.as_ref().is_none_or(|running| running.task.is_finished())
    }
}

async fn run_phases(
    node: &Arc<Node>,
    sequence: &'static Sequence<TaskFn>,
    how: &Start,
) -> Result<(), TaskError> {
    let count = sequence.phases.len();
    for (index, phase) in sequence.phases.iter().enumerate().skip(how.phase) {
        let saved =
            SavedSequence { name: sequence.name.to_owned(), phase: index, actor_id: how.actor_id.clone() };
        node.checkpoint.update(|memory| memory.sequence = Some(saved));
        let (name, tasks) = (phase.name, phase.tasks.len());
        node.journal.progress(&format!("phase {name} ({}/{count}): {tasks} tasks(s)", index + 1));
        let begin = clock::boottime_ns();
        publish_phase(node, name, &how.actor_id, phase_event::Action::Start);
        let result = run_tasks(node, phase, &how.actor_id).await;
        publish_phase(node, name, &how.actor_id, phase_event::Action::Stop);
        node.timeline.publish();
        let end = if result.is_ok() { "done" } else { "failed" };
        node.journal.progress(&format!("phase {name} ({}/{count}): {end}, {:?}", index + 1, since(begin)));
        result.map_err(|error| {
            TaskError(format!("error running phase {} in {}: {error}", index + 1, sequence.name))
        })?;
    }
    Ok(())
}

async fn run_tasks(node: &Arc<Node>, phase: &'static Phase<TaskFn>, actor: &str) -> Result<(), TaskError> {
    let mut running = JoinSet::new();
    for (index, task) in phase.tasks.iter().enumerate() {
        let place = format!("({}/{})", index + 1, phase.tasks.len());
        running.spawn(run_task(node.clone(), phase.name, task, place, actor.to_owned()));
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

async fn run_task(
    node: Arc<Node>,
    phase: &'static str,
    task: &'static Task<TaskFn>,
    place: String,
    actor: String,
) -> Result<(), TaskError> {
    let name = task.name;
    node.journal.progress(&format!("task {name} {place}: starting"));
    publish_task(&node, name, &actor, task_event::Action::Start);
    let begin = clock::boottime_ns();
    let result = (task.run)(node.clone()).await;
    node.timeline.record("machined", phase, name, begin, clock::boottime_ns());
    publish_task(&node, name, &actor, task_event::Action::Stop);
    match &result {
        Ok(()) => node.journal.progress(&format!("task {name} {place}: done, {:?}", since(begin))),
        Err(error) => node.journal.warn(&format!("task {name} {place}: failed: {error}")),
    }
    result.map_err(|error| TaskError(format!("task {name}: {error}")))
}

fn since(begin_ns: u64) -> Duration {
    Duration::from_micros(clock::boottime_ns().saturating_sub(begin_ns) / 1000)
}

fn announce(node: &Node, sequence: &str, actor: &str, action: sequence_event::Action) {
    let event = SequenceEvent { sequence: sequence.to_owned(), action: action.into(), error: None };
    node.events.publish(actor, &Payload::Sequence(event));
}

/// An error of a sequence, for those who follow events.
pub(crate) fn noop(node: &Node, sequence: &str, actor: &str, code: Code, message: String) {
    let error = Some(sequence_error(code, message));
    let action = sequence_event::Action::Noop.into();
    node.events
        .publish(actor, &Payload::Sequence(SequenceEvent { sequence: sequence.to_owned(), action, error }));
}

fn publish_phase(node: &Node, phase: &str, actor: &str, action: phase_event::Action) {
    let event = PhaseEvent { phase: phase.to_owned(), action: action.into() };
    node.events.publish(actor, &Payload::Phase(event));
}

fn publish_task(node: &Node, task: &str, actor: &str, action: task_event::Action) {
    let event = TaskEvent { task: task.to_owned(), action: action.into() };
    node.events.publish(actor, &Payload::Task(event));
}
