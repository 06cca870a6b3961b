//! Following a reboot, shutdown, reset or upgrade to its end.
//!
//! | task | in | out | ends |
//! |---|---|---|---|
//! | one `follow` a node | the node's events | progress on stderr | with success, the node's failure, or the deadline |
//!
//! Order: boot id, then events, then the call: so that no event of the action is missed.
//! A reboot or upgrade has succeeded when the machine is running and ready under another boot id; a shutdown or reset
//! when all services have been stopped, or when a node that had begun it no longer answers.
//! Source: docs/users/commands.md (`--wait`).

use super::events::described;
use crate::{global::Global, output, session::Session};
use anyhow::{Context, Result, anyhow, bail};
use api::{
    client,
    event::Payload,
    proto::machine::{
        DmesgRequest, Event, EventsRequest, ReadRequest, RebootRequest, ResetRequest, ShutdownRequest,
        UpgradeRequest, machine_status_event::MachineStage, sequence_event, task_event,
    },
};
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tonic::Streaming;

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// The task whose end means that a shutdown is done.
const STOP_ALL_SERVICES: &str = "stopAllServices";
/// Between two attempts to reach a node that is away.
const RETRY: Duration = Duration::from_millis(500);
/// One attempt to reach a node that is away.
const ATTEMPT: Duration = Duration::from_secs(10);
/// A node that had begun to shut down and does not answer for this long is off.
const GONE: Duration = Duration::from_secs(5);

/// What is asked of the nodes.
#[derive(Debug, Clone)]
pub(super) enum Action {
    Reboot(RebootRequest),
    Shutdown(ShutdownRequest),
    Reset(ResetRequest),
    Upgrade(UpgradeRequest),
}

/// How long to wait, and whether to show the kernel's log meanwhile.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    pub(super) timeout: Duration,
    pub(super) debug: bool,
}

impl Action {
    fn name(&self) -> &'static str {
        match self {
            Self::Reboot(_) => "reboot",
            Self::Shutdown(_) => "shutdown",
            Self::Reset(_) => "reset",
            Self::Upgrade(_) => "upgrade",
        }
    }

    /// Whether the node is expected back; the others end with all services stopped.
    fn comes_back(&self) -> bool {
        matches!(self, Self::Reboot(_) | Self::Upgrade(_))
    }
}

/// Asks every node and waits for all of them.
pub(super) async fn run(session: Session, action: Action, patience: Patience) -> Result<()> {
    let deadline = Instant::now() + patience.timeout;
    let global = Arc::new(session.global.clone());
    let session = Arc::new(session);
    let mut followers = Vec::new();
    for node in session.each_node() {
        let (session, global, action) = (Arc::clone(&session), Arc::clone(&global), action.clone());
        if patience.debug {
            tokio::spawn(show_kernel_log(Arc::clone(&session), node.clone()));
        }
        followers.push(tokio::spawn(async move {
            let name = session.name_of(node.as_deref()).to_owned();
            let what = action.name();
            let result = timeout_at(deadline, follow(&session, &global, node, &name, action)).await;
            let late = || anyhow!("no end of the {what} within {} s", patience.timeout.as_secs());
            result.unwrap_or_else(|_| Err(late())).with_context(|| name)
        }));
    }
    let mut failed = Vec::new();
    for follower in followers {
        if let Err(error) = follower.await? {
            failed.push(format!("{error:#}"));
        }
    }
    if failed.is_empty() { Ok(()) } else { bail!("{}", failed.join("\n")) }
}

/// Shows what the kernel says until the connection ends, which it does with the node.
async fn show_kernel_log(session: Arc<Session>, node: Option<String>) {
    let request = client::to_node(DmesgRequest { follow: true, tail: true }, node.as_deref());
    let Ok(response) = session.client.machine().dmesg(request).await else { return };
    let mut stream = response.into_inner();
    while let Ok(Some(data)) = stream.message().await {
        let line = String::from_utf8_lossy(&data.bytes);
        output::note(&format!("{}: {}", session.name_of(node.as_deref()), line.trim_end()));
    }
}

async fn follow(
    session: &Session,
    global: &Global,
    node: Option<String>,
    name: &str,
    action: Action,
) -> Result<()> {
    let node = node.as_deref();
    let before = boot_id(session, node).await;
    let mut events = subscribe(session, node, 0).await?;
    let actor = call(session, node, &action).await?;
    let mut progress = Progress { action, actor, began: false, boot_changed: false };
    loop {
        match watch(&mut events, name, &mut progress).await {
            Outcome::Done => return Ok(()),
            Outcome::Failed(reason) => bail!("{reason}"),
            // Not at once: a node that ends each stream at its beginning would keep us busy.
            Outcome::Away => sleep(RETRY).await,
        }
        let Some(next) = reach_again(global, node, &progress).await? else {
            eprintln!("{name}: the node is off");
            return Ok(());
        };
        progress.boot_changed |= match (&before, boot_id(&next, node).await) {
            (Some(before), Some(after)) => after != *before,
            // An operator may restart a node but not read its files: the break after the start has to do.
            _ => progress.began,
        };
        // After a restart the node remembers only its new events; before it, none may be missed.
        if let Ok(stream) = subscribe(&next, node, -1).await {
            events = stream;
        }
    }
}

async fn call(session: &Session, node: Option<&str>, action: &Action) -> Result<String> {
    let mut machine = session.client.machine();
    let actor = match action.clone() {
        Action::Reboot(request) => {
            let response = machine.reboot(client::to_node(request, node)).await;
            response.map(|r| r.into_inner().messages.into_iter().next().map(|m| m.actor_id))
        }
        Action::Shutdown(request) => {
            let response = machine.shutdown(client::to_node(request, node)).await;
            response.map(|r| r.into_inner().messages.into_iter().next().map(|m| m.actor_id))
        }
        Action::Reset(request) => {
            let response = machine.reset(client::to_node(request, node)).await;
            response.map(|r| r.into_inner().messages.into_iter().next().map(|m| m.actor_id))
        }
        Action::Upgrade(request) => {
            let response = machine.upgrade(client::to_node(request, node)).await;
            response.map(|r| r.into_inner().messages.into_iter().next().map(|m| m.actor_id))
        }
    };
    Ok(actor.map_err(|status| session.error(&status))?.unwrap_or_default())
}

/// The node's boot id; `None` if this certificate may not read files.
async fn boot_id(session: &Session, node: Option<&str>) -> Option<String> {
    let request = client::to_node(ReadRequest { path: BOOT_ID.to_owned() }, node);
    let mut stream = session.client.machine().read(request).await.ok()?.into_inner();
    let mut bytes = Vec::new();
    while let Some(data) = stream.message().await.ok()? {
        bytes.extend(data.bytes);
    }
    Some(String::from_utf8_lossy(&bytes).trim().to_owned()).filter(|id| !id.is_empty())
}

async fn answers(session: &Session, node: Option<&str>) -> bool {
    let version = session.client.machine().version(client::to_node((), node)).await;
    version.is_ok()
}

async fn subscribe(session: &Session, node: Option<&str>, tail_events: i32) -> Result<Streaming<Event>> {
    let request = EventsRequest { tail_events, ..EventsRequest::default() };
    let response = session.client.machine().events(client::to_node(request, node)).await;
    Ok(response.map_err(|s| session.error(&s)).context("watch the events")?.into_inner())
}

/// A new connection to a node that is away; `None` if it is off for good.
async fn reach_again(global: &Global, node: Option<&str>, progress: &Progress) -> Result<Option<Session>> {
    let since = Instant::now();
    loop {
        if let Ok(Ok(session)) = timeout(ATTEMPT, Session::open(global)).await
            && timeout(ATTEMPT, answers(&session, node)).await.is_ok_and(|answers| answers)
        {
            return Ok(Some(session));
        }
        if !progress.action.comes_back() && progress.began && since.elapsed() > GONE {
            return Ok(None);
        }
        sleep(RETRY).await;
    }
}

enum Outcome {
    Done,
    Failed(String),
    Away,
}

async fn watch(events: &mut Streaming<Event>, name: &str, progress: &mut Progress) -> Outcome {
    // An error is the end of the connection, as expected of a node that restarts.
    while let Ok(Some(event)) = events.message().await {
        if let (Ok(Some(line)), true) = (described(&event), progress.is_ours(&event)) {
            output::note(&format!("{name}: {}: {}", line.source, line.message));
        }
        match progress.step(&event) {
            Some(Outcome::Away) | None => {}
            Some(outcome) => return outcome,
        }
    }
    Outcome::Away
}

/// What is known about the action so far.
struct Progress {
    action: Action,
    actor: String,
    began: bool,
    boot_changed: bool,
}

impl Progress {
    fn is_ours(&self, event: &Event) -> bool {
        event.actor_id == self.actor
    }

    /// Takes in one event; an outcome ends the wait.
    fn step(&mut self, event: &Event) -> Option<Outcome> {
        let payload = Payload::unpack(event.data.as_ref()?).ok()??;
        let ours = self.is_ours(event);
        match (payload, self.action.comes_back()) {
            (Payload::MachineStatus(e), true) => {
                let is_up = e.stage == i32::from(MachineStage::Running) && e.status.is_some_and(|s| s.ready);
                (is_up && self.boot_changed).then_some(Outcome::Done)
            }
            (Payload::Task(e), false) if ours && e.task == STOP_ALL_SERVICES => {
                (e.action == i32::from(task_event::Action::Stop)).then_some(Outcome::Done)
            }
            (Payload::Sequence(e), _) if ours => {
                self.began |= e.action == i32::from(sequence_event::Action::Start);
                e.error.map(|error| Outcome::Failed(error.message))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::proto::{
        common::Error,
        machine::{MachineStatusEvent, SequenceEvent, TaskEvent, machine_status_event::MachineStatus},
    };

    fn progress(action: Action) -> Progress {
        Progress { action, actor: "me".into(), began: false, boot_changed: false }
    }

    fn event(actor: &str, payload: &Payload) -> Event {
        Event { data: Some(payload.pack()), actor_id: actor.into(), ..Event::default() }
    }

    fn reboot() -> Progress {
        progress(Action::Reboot(RebootRequest::default()))
    }

    #[test]
    fn a_reboot_is_done_when_ready_under_another_boot_id() {
        let status = |stage: MachineStage, ready| {
            let status = Some(MachineStatus { ready, unmet_conditions: vec![] });
            event("", &Payload::MachineStatus(MachineStatusEvent { stage: stage.into(), status }))
        };
        let mut p = reboot();
        assert!(p.step(&status(MachineStage::Running, true)).is_none(), "still the old boot");
        p.boot_changed = true;
        assert!(p.step(&status(MachineStage::Booting, true)).is_none());
        assert!(p.step(&status(MachineStage::Running, false)).is_none());
        assert!(matches!(p.step(&status(MachineStage::Running, true)), Some(Outcome::Done)));
    }

    #[test]
    fn a_shutdown_is_done_when_its_own_services_stopped() {
        let task = |actor: &str, action: i32| {
            event(actor, &Payload::Task(TaskEvent { task: STOP_ALL_SERVICES.into(), action }))
        };
        let mut p = progress(Action::Shutdown(ShutdownRequest::default()));
        assert!(p.step(&task("me", 0)).is_none());
        assert!(p.step(&task("other", 1)).is_none());
        assert!(matches!(p.step(&task("me", 1)), Some(Outcome::Done)));
    }

    #[test]
    fn only_our_own_failure_counts() {
        let error = Some(Error { message: "sequence failed: x".into(), ..Error::default() });
        let failed = Payload::Sequence(SequenceEvent { sequence: "reboot".into(), action: 0, error });
        let mut p = reboot();
        assert!(p.step(&event("other", &failed)).is_none());
        assert!(
            matches!(p.step(&event("me", &failed)), Some(Outcome::Failed(m)) if m == "sequence failed: x")
        );
        let start = Payload::Sequence(SequenceEvent { sequence: "reboot".into(), action: 1, error: None });
        assert!(p.step(&event("me", &start)).is_none() && p.began);
    }
}
