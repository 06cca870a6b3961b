//! Services: what they are, who watches over them.
//!
//! Owns: the set of services, their states, events and health, and one supervisor task each.
//! Does not: decide an order; sequences and dependencies do.
//!
//! | task | reads | does | ends |
//! |---|---|---|---|
//! | [`supervisor::supervise`], one a service | commands, process ends, clocks | steps the state machine | with machined |
//! | condition, clock, health and end watchers | states, pidfds, the network | send events to the supervisor | aborted by it |

pub mod definition;
mod health;
mod listing;
pub mod machine;
mod process;
mod record;
mod repeats;
mod supervisor;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, watch};

pub use definition::{Check, Container, Definition, Identity, Program, Runner, Step};
pub use health::Health;
pub use listing::Listed;
pub use process::{LogPipe, pidfd_name};
pub use record::{EventEntry, Record};

use crate::checkpoint::{Checkpoint, SavedService};
use crate::events::Events;
use crate::init_link::InitLink;
use crate::journal::Journal;
use crate::logs::Logs;
use crate::store::{Fact, SERVICE_PID, ServicePid, Store};
use crate::timeline::Timeline;
use machine::{Event, State};

/// What every supervisor needs.
#[derive(Debug)]
pub struct Dependencies {
    /// For `service[…]` lines.
    pub journal: Journal,
    /// For ServiceStateEvents.
    pub events: Events,
    /// For the `Services` resources.
    pub store: Store,
    /// For log files.
    pub logs: Logs,
    /// For descriptors and exits.
    pub init: InitLink,
    /// For what must survive machined.
    pub checkpoint: Checkpoint,
    /// For the time a start takes.
    pub timeline: Option<Timeline>,
    /// Where the FIFOs are by which containers write their logs.
    pub fifos: std::path::PathBuf,
    /// The root of the cgroup tree, when there is one.
    pub cgroups: Option<std::path::PathBuf>,
    /// Log pipes of an earlier machined, by service; given out when the service is defined.
    pub adopted_pipes: BTreeMap<String, LogPipe>,
}

/// A refused request.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RequestError {
    /// No such service.
    #[error("service {0:?} not defined")]
    NotDefined(String),
    /// The service is none that clients may control.
    #[error("service {id:?} doesn't support {operation} operation via API")]
    NotAllowed {
        /// Its id.
        id: String,
        /// `start`, `stop` or `restart`.
        operation: &'static str,
    },
    /// The service did not get there in time.
    #[error("service {id:?} is still {state} after {seconds} s")]
    Deadline {
        /// Its id.
        id: String,
        /// Where it stands.
        state: &'static str,
        /// The deadline.
        seconds: u64,
    },
}

/// What clients may ask of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Run it.
    Start,
    /// End it.
    Stop,
    /// End it and run it again.
    Restart,
}

impl Operation {
    /// The word in answers and errors.
    pub fn word(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Restart => "restart",
        }
    }
}

/// An event for a service, with what there is to say about it.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) event: Event,
    pub(crate) detail: String,
    pub(crate) process: Option<process::Running>,
}

impl Input {
    fn plain(event: Event) -> Self {
        Self { event, detail: String::new(), process: None }
    }

    fn with(event: Event, detail: String) -> Self {
        Self { event, detail, process: None }
    }
}

#[derive(Debug)]
struct Entry {
    definition: Arc<Definition>,
    record: Record,
    inbox: mpsc::UnboundedSender<Input>,
}

#[derive(Debug)]
struct Shared {
    entries: Mutex<BTreeMap<String, Entry>>,
    /// Counts changes of any service, so that waiters look again.
    changed: watch::Sender<u64>,
    dependencies: Dependencies,
    pipes: Mutex<BTreeMap<String, LogPipe>>,
}

/// A handle to all services; clones share it.
#[derive(Debug, Clone)]
pub struct Services {
    shared: Arc<Shared>,
}

impl Services {
    /// No services yet.
    pub fn new(mut dependencies: Dependencies) -> Self {
        let pipes = Mutex::new(std::mem::take(&mut dependencies.adopted_pipes));
        let shared = Shared { entries: Mutex::default(), changed: watch::channel(0).0, dependencies, pipes };
        Self { shared: Arc::new(shared) }
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.shared.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pipes(&self) -> MutexGuard<'_, BTreeMap<String, LogPipe>> {
        self.shared.pipes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a service; one that exists already stays as it is. Nothing starts.
    pub fn define(&self, definition: Definition) {
        let mut entries = self.entries();
        if entries.contains_key(&definition.id) {
            return;
        }
        let (inbox, outbox) = mpsc::unbounded_channel();
        let definition = Arc::new(definition);
        let entry = Entry { definition: definition.clone(), record: Record::default(), inbox: inbox.clone() };
        entries.insert(definition.id.clone(), entry);
        drop(entries);
        let pipe = self.pipes().remove(&definition.id);
        tokio::spawn(supervisor::supervise(self.clone(), definition, inbox, outbox, pipe));
    }

    /// Takes over a service of an earlier machined: its history, its process if that lives.
    pub fn adopt(&self, saved: &SavedService, pidfd: Option<OwnedFd>) {
        if let Some(entry) = self.entries().get_mut(&saved.id) {
            entry.record.restore(saved);
        }
        if !saved.wanted {
            return;
        }
        let process = saved.pid.and_then(|pid| process::Running::adopt(pid, saved.start_ticks, pidfd));
        let process = process.or_else(|| {
            // Born when machined died: only its cgroup tells.
            let group = self.group_path(&saved.id).filter(|_| saved.starting)?;
            process::Running::find_in_group(&group)
        });
        match process {
            Some(process) => {
                let detail = format!("Process {} found running by a new machined", process.pid);
                self.tell(&saved.id, Input { event: Event::Adopted, detail, process: Some(process) });
            }
            None => self.tell(&saved.id, Input::plain(Event::StartAsked)),
        }
    }

    fn group_path(&self, id: &str) -> Option<std::path::PathBuf> {
        let share = self.entries().get(id)?.definition.share.group.clone();
        let root = self.shared.dependencies.cgroups.as_ref()?;
        (!share.is_empty()).then(|| root.join(share))
    }

    fn tell(&self, id: &str, input: Input) {
        if let Some(entry) = self.entries().get(id) {
            // The supervisor lives as long as machined.
            let _ = entry.inbox.send(input);
        }
    }

    /// Asks for a service to run. Unknown ids are ignored: the caller names its own services.
    pub fn start(&self, id: &str) {
        self.tell(id, Input::plain(Event::StartAsked));
    }

    /// Asks for a service to end.
    pub fn stop(&self, id: &str) {
        self.tell(id, Input::plain(Event::StopAsked));
    }

    /// Asks for a new process of a service that runs, at once.
    pub fn restart(&self, id: &str) {
        self.tell(id, Input::plain(Event::RestartAsked));
    }

    /// The same after a pause, whatever becomes of the request that asks.
    pub fn restart_after(&self, id: &str, pause: Duration) {
        let (services, id) = (self.clone(), id.to_owned());
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            services.restart(&id);
        });
    }

    /// Marks a service as not for this machine.
    pub fn skip(&self, id: &str, reason: &str) {
        self.tell(id, Input::with(Event::SkipAsked, reason.to_owned()));
    }

    /// All ids, sorted.
    pub fn ids(&self) -> Vec<String> {
        self.entries().keys().cloned().collect()
    }

    /// One service as it stands.
    pub fn record(&self, id: &str) -> Option<Record> {
        self.entries().get(id).map(|entry| entry.record.clone())
    }

    /// All services as they stand, sorted by id.
    pub fn records(&self) -> Vec<(String, Record)> {
        self.entries().iter().map(|(id, entry)| (id.clone(), entry.record.clone())).collect()
    }

    /// Whether a service is up: running and not unhealthy, or done.
    pub fn is_up(&self, id: &str) -> bool {
        self.entries().get(id).is_some_and(|entry| entry.record.is_up(entry.definition.check.is_some()))
    }

    /// Waits until all these are up; names the ones that are not when the deadline passes.
    pub async fn wait_up(&self, ids: &[String], deadline: Duration) -> Result<(), Vec<String>> {
        let done = self.wait_until(deadline, || ids.iter().all(|id| self.is_up(id))).await;
        if done { Ok(()) } else { Err(ids.iter().filter(|id| !self.is_up(id)).cloned().collect()) }
    }

    /// Waits until all these are down.
    pub async fn wait_down(&self, ids: &[String], deadline: Duration) -> Result<(), Vec<String>> {
        let down = |id: &String| self.record(id).is_none_or(|record| record.state.is_down());
        let done = self.wait_until(deadline, || ids.iter().all(down)).await;
        if done { Ok(()) } else { Err(ids.iter().filter(|id| !down(id)).cloned().collect()) }
    }

    async fn wait_until(&self, deadline: Duration, holds: impl Fn() -> bool) -> bool {
        let mut changed = self.shared.changed.subscribe();
        let wait = async {
            while !holds() {
                if changed.changed().await.is_err() {
                    return;
                }
            }
        };
        tokio::time::timeout(deadline, wait).await.is_ok()
    }

    /// Does what a client asks, if it may, and waits for the result.
    pub async fn operate(
        &self,
        id: &str,
        operation: Operation,
        deadline: Duration,
    ) -> Result<(), RequestError> {
        self.check_allowed(id, operation)?;
        let ids = [id.to_owned()];
        match operation {
            Operation::Start => self.start(id),
            Operation::Stop => self.stop(id),
            Operation::Restart => self.tell(id, Input::plain(Event::RestartAsked)),
        }
        if operation != Operation::Stop {
            return Ok(());
        }
        self.wait_down(&ids, deadline).await.map_err(|_| RequestError::Deadline {
            id: id.to_owned(),
            state: self.record(id).map_or("unknown", |record| record.state.text()),
            seconds: deadline.as_secs(),
        })
    }

    fn check_allowed(&self, id: &str, operation: Operation) -> Result<(), RequestError> {
        let entries = self.entries();
        let entry = entries.get(id).ok_or_else(|| RequestError::NotDefined(id.to_owned()))?;
        if entry.definition.api_control {
            Ok(())
        } else {
            Err(RequestError::NotAllowed { id: id.to_owned(), operation: operation.word() })
        }
    }

    /// The ids in the order in which they must end: dependants first.
    pub fn stop_order(&self) -> Vec<Vec<String>> {
        let entries = self.entries();
        let mut left: Vec<&Arc<Definition>> = entries.values().map(|entry| &entry.definition).collect();
        let mut waves = Vec::new();
        while !left.is_empty() {
            let needed: Vec<&String> = left.iter().flat_map(|d| &d.depends_on).collect();
            let (mut wave, mut rest): (Vec<_>, Vec<_>) =
                left.iter().copied().partition(|d| !needed.contains(&&d.id));
            if wave.is_empty() {
                // A circle: nothing is gained by waiting for one of them.
                std::mem::swap(&mut wave, &mut rest);
            }
            waves.push(wave.iter().map(|d| d.id.clone()).collect());
            left = rest;
        }
        waves
    }

    /// Notes a change of a service everywhere it shows: its record, the store, the events, the console.
    fn report(&self, id: &str, state: State, message: &str, saved: Option<(i32, u64)>) {
        self.note(id, state, message, saved);
        self.shared.dependencies.journal.progress(&format!("service[{id}]({}): {message}", state.text()));
    }

    /// The same without a line on the console.
    fn note(&self, id: &str, state: State, message: &str, saved: Option<(i32, u64)>) {
        let entered = self.change(id, |record| {
            record.enter(state, message);
            record.pid = saved.map(|(pid, _)| pid);
        });
        let Some(record) = entered else { return };
        self.shared.dependencies.events.publish("", &record.state_event(id, message));
        self.save(id, &record, saved);
        self.show(id, &record);
        self.note_time(id, &record);
    }

    /// Notes a health check. Says whether the result differs from the last one.
    fn report_health(&self, id: &str, healthy: bool, detail: &str) -> bool {
        let flipped = self.record(id).is_some_and(|record| record.health.would_flip(healthy));
        let message = if healthy {
            "Health check successful".to_owned()
        } else {
            format!("Health check failed: {detail}")
        };
        let record = self.change(id, |record| {
            record.health.set(healthy, detail);
            if flipped {
                record.enter(State::Running, &message);
            }
        });
        if let (true, Some(record)) = (flipped, record) {
            let dependencies = &self.shared.dependencies;
            dependencies.journal.progress(&format!("service[{id}](Running): {message}"));
            dependencies.events.publish("", &record.state_event(id, &message));
            self.show(id, &record);
        }
        flipped
    }

    /// The time from a service's preparation to its process.
    fn note_time(&self, id: &str, record: &Record) {
        if let (State::Running, Some(timeline)) = (record.state, &self.shared.dependencies.timeline) {
            timeline.record("service", id, "start", record.began_ns, crate::clock::boottime_ns());
        }
    }

    fn change(&self, id: &str, change: impl FnOnce(&mut Record)) -> Option<Record> {
        let mut entries = self.entries();
        let entry = entries.get_mut(id)?;
        change(&mut entry.record);
        let record = entry.record.clone();
        drop(entries);
        self.shared.changed.send_modify(|count| *count += 1);
        Some(record)
    }

    fn save(&self, id: &str, record: &Record, process: Option<(i32, u64)>) {
        let saved = record.saved(id, process);
        self.shared.dependencies.checkpoint.update(|memory| {
            memory.services.retain(|service| service.id != id);
            memory.services.push(saved);
        });
    }

    fn show(&self, id: &str, record: &Record) {
        let kind = &crate::store::SERVICE;
        let store = &self.shared.dependencies.store;
        let written = match record.status() {
            Some(status) => store.put(kind.writer, kind, id, crate::store::Spec::Service(status)),
            None => store.remove(kind.writer, kind, id),
        };
        let process = match process_spec(record) {
            Some(spec) => store.put(SERVICE_PID.writer, &SERVICE_PID, id, spec),
            None => store.remove(SERVICE_PID.writer, &SERVICE_PID, id),
        };
        for error in [written.err(), process.err()].into_iter().flatten() {
            self.shared.dependencies.journal.warn(&format!("publish service {id}: {error}"));
        }
    }
}

/// The process of a service that has one.
fn process_spec(record: &Record) -> Option<crate::store::Spec> {
    let pid = record.pid?;
    // A process that has just ended has no namespaces.
    let namespace = std::fs::read_link(format!("/proc/{pid}/ns/mnt")).unwrap_or_default();
    let mount_namespace = namespace.to_string_lossy().into_owned();
    Some(crate::store::Spec::Fact(Box::new(Fact::ServicePid(ServicePid { pid, mount_namespace }))))
}

#[cfg(test)]
mod tests;
