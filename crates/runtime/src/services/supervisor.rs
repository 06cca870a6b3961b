//! The supervisor of one service: performs the actions of the state machine and feeds it what happened.
//!
//! Owns: the service's process or task, its clocks, its log pump.
//! Does not: choose; [`super::machine::step`] does.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::definition::{Container, Definition, Program, Runner};
use super::machine::{Action, Event, State, step};
use super::process::{self, LogPipe, Running};
use super::repeats::Repeats;
use super::{Dependencies, Input, Services, health};
use crate::logs::pump::pump;

/// Between the end of a process and its next start (as in Talos).
const PAUSE: Duration = Duration::from_secs(5);
/// Between SIGTERM and SIGKILL (as in Talos).
const TERM_DEADLINE: Duration = Duration::from_secs(10);

struct Supervisor {
    services: Services,
    definition: Arc<Definition>,
    inbox: mpsc::UnboundedSender<Input>,
    state: State,
    repeats: Repeats,
    pipe: Option<LogPipe>,
    group: Option<PathBuf>,
    process: Option<Running>,
    adopted: bool,
    task: Option<JoinHandle<()>>,
    clock: Option<JoinHandle<()>>,
    condition: Option<JoinHandle<()>>,
    health: Option<JoinHandle<()>>,
}

pub(super) async fn supervise(
    services: Services,
    definition: Arc<Definition>,
    inbox: mpsc::UnboundedSender<Input>,
    mut outbox: mpsc::UnboundedReceiver<Input>,
    pipe: Option<LogPipe>,
) {
    let mut supervisor = Supervisor {
        services,
        definition,
        inbox,
        state: State::Initialized,
        repeats: Repeats::default(),
        pipe: None,
        group: None,
        process: None,
        adopted: false,
        task: None,
        clock: None,
        condition: None,
        health: None,
    };
    if let Some(pipe) = pipe {
        supervisor.use_pipe(pipe);
    }
    while let Some(input) = outbox.recv().await {
        supervisor.on(input);
    }
}

impl Supervisor {
    fn id(&self) -> &str {
        &self.definition.id
    }

    fn dependencies(&self) -> &Dependencies {
        &self.services.shared.dependencies
    }

    fn on(&mut self, input: Input) {
        if let Some(process) = input.process {
            self.adopted = input.event == Event::Adopted;
            self.watch_end(&process);
            self.process = Some(process);
        }
        if matches!(input.event, Event::Succeeded | Event::Crashed) {
            self.clean_up();
        }
        let before = self.state;
        let (next, actions) = step(self.definition.restart, before, input.event);
        self.state = next;
        if before != next && next != State::Waiting {
            let message = self.message(before, input.event, &input.detail);
            let is_news = self.repeats.is_news(next, input.event, &message);
            self.report(&message, is_news);
        }
        for action in actions {
            self.perform(*action);
        }
    }

    fn report(&self, message: &str, is_news: bool) {
        let process = self.process.as_ref().map(|process| (process.pid, process.start_ticks));
        match is_news {
            true => self.services.report(self.id(), self.state, message, process),
            false => self.services.note(self.id(), self.state, message, process),
        }
    }

    /// The text of a transition (as in Talos).
    fn message(&self, before: State, event: Event, detail: &str) -> String {
        let runner = self.runner_name();
        match (self.state, event) {
            (State::Preparing, _) => "Running pre state".to_owned(),
            (State::Starting, _) => "Creating service runner".to_owned(),
            (State::Running, _) => detail.to_owned(),
            (State::Pausing, Event::PrepareFailed) => format!("Failed to run pre stage: {detail}"),
            (State::Pausing, Event::SpawnFailed) => format!("Failed to create runner: {detail}"),
            (State::Pausing, Event::Succeeded) => {
                format!("Runner {runner} exited without error, going to restart it")
            }
            (State::Pausing, _) => format!("Error running {runner}, going to restart forever: {detail}"),
            (State::Stopping | State::Restarting, _) => format!("Sending SIGTERM to {runner}"),
            (State::Killing, _) => format!("Sending SIGKILL to {runner}"),
            (State::Finished, _) if before == State::Pausing => "Aborting restart sequence".to_owned(),
            (State::Finished, _) => "Service finished successfully".to_owned(),
            (State::Failed, Event::PrepareFailed) => format!("Failed to run pre stage: {detail}"),
            (State::Failed, Event::SpawnFailed) => format!("Failed to create runner: {detail}"),
            (State::Failed, _) => format!("Failed running service: {detail}"),
            (State::Skipped, _) if detail.is_empty() => "Service skipped".to_owned(),
            (State::Skipped, _) => format!("Service skipped: {detail}"),
            (State::Waiting | State::Initialized, _) => detail.to_owned(),
        }
    }

    fn runner_name(&self) -> String {
        match &self.definition.runner {
            Runner::Process(program) => {
                let words: Vec<String> = program.argv.iter().map(|word| format!("{word:?}")).collect();
                format!("Process([{}])", words.join(" "))
            }
            Runner::Container(name, _) => format!("Container({name:?})"),
            Runner::Internal(_) => format!("Goroutine({:?})", self.id()),
        }
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::AwaitConditions => self.await_conditions(),
            Action::Prepare => self.prepare(),
            Action::Spawn => self.spawn(),
            Action::BeginHealth => self.begin_health(),
            Action::EndHealth => abort(&mut self.health),
            Action::Terminate => self.terminate(),
            Action::Kill => self.kill(),
            Action::Pause => self.clock = Some(self.later(PAUSE, Event::PauseOver)),
            Action::Disarm => {
                abort(&mut self.clock);
                abort(&mut self.condition);
            }
        }
    }

    fn send(&self, input: Input) {
        // The receiver is this supervisor's own loop.
        let _ = self.inbox.send(input);
    }

    fn later(&self, after: Duration, event: Event) -> JoinHandle<()> {
        let inbox = self.inbox.clone();
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            let _ = inbox.send(Input::plain(event));
        })
    }

    fn await_conditions(&mut self) {
        let unmet = unmet(&self.services, &self.definition.depends_on);
        if unmet.is_empty() {
            return self.send(Input::plain(Event::ConditionsMet));
        }
        self.services.report(self.id(), State::Waiting, &waiting_for(&unmet), None);
        let (services, definition, inbox) =
            (self.services.clone(), self.definition.clone(), self.inbox.clone());
        self.condition = Some(tokio::spawn(async move {
            watch_conditions(&services, &definition, unmet).await;
            let _ = inbox.send(Input::plain(Event::ConditionsMet));
        }));
    }

    fn prepare(&mut self) {
        let definition = self.definition.clone();
        if let Runner::Internal(_) = &definition.runner {
            return self.send(Input::plain(Event::Prepared));
        }
        if let Err(error) = self.make_group_and_log() {
            return self.send(Input::with(Event::PrepareFailed, error));
        }
        let Runner::Container(_, container) = &definition.runner else {
            return self.send(Input::plain(Event::Prepared));
        };
        let (prepared, inbox) = (container.prepare(), self.inbox.clone());
        self.condition = Some(tokio::spawn(async move {
            let _ = inbox.send(match prepared.await {
                Ok(()) => Input::plain(Event::Prepared),
                Err(error) => Input::with(Event::PrepareFailed, error),
            });
        }));
    }

    fn make_group_and_log(&mut self) -> Result<(), String> {
        self.group = process::make_group(self.dependencies().cgroups.as_deref(), &self.definition.share)?;
        if self.pipe.is_none() {
            let init = &self.dependencies().init;
            let pipe = match &self.definition.runner {
                Runner::Container(..) => LogPipe::create_fifo(self.id(), &self.fifo(), init)?,
                _ => LogPipe::create(self.id(), init)?,
            };
            self.use_pipe(pipe);
        }
        Ok(())
    }

    /// Where a container's streams go.
    fn fifo(&self) -> PathBuf {
        self.dependencies().fifos.join(self.id())
    }

    fn use_pipe(&mut self, pipe: LogPipe) {
        let log = self.dependencies().logs.open(self.id());
        match (pipe.read.try_clone(), log) {
            (Ok(read), Ok(log)) => {
                let (journal, id) = (self.dependencies().journal.clone(), self.id().to_owned());
                tokio::spawn(async move {
                    if let Err(error) = pump(read, log).await {
                        journal.warn(&format!("log of {id}: {error}"));
                    }
                });
            }
            (Err(error), _) => self.dependencies().journal.warn(&format!("log of {}: {error}", self.id())),
            (_, Err(error)) => self.dependencies().journal.warn(&format!("log of {}: {error}", self.id())),
        }
        self.pipe = Some(pipe);
    }

    fn spawn(&mut self) {
        match &self.definition.runner {
            Runner::Process(program) => match self.spawn_process(program) {
                Ok(running) => {
                    let detail = format!("Process {} started with PID {}", self.runner_name(), running.pid);
                    self.send(Input { event: Event::Spawned, detail, process: Some(running) });
                }
                Err(error) => self.send(Input::with(Event::SpawnFailed, error)),
            },
            Runner::Container(name, container) => {
                let (container, fifo) = (container.clone(), self.fifo());
                let (inbox, name) = (self.inbox.clone(), name.clone());
                // Not dropped when the service is to stop meanwhile: what was begun is ended when it is there.
                tokio::spawn(async move {
                    let running = begin(&*container, fifo).await;
                    let _ = inbox.send(match running {
                        Ok(running) => {
                            let detail =
                                format!("Started task {name} (PID {}) for container {name}", running.pid);
                            Input { event: Event::Spawned, detail, process: Some(running) }
                        }
                        Err(error) => Input::with(Event::SpawnFailed, error),
                    });
                });
            }
            Runner::Internal(work) => {
                let (work, inbox) = (work(), self.inbox.clone());
                self.send(Input::with(Event::Spawned, "Service started as goroutine".to_owned()));
                self.task = Some(tokio::spawn(async move {
                    let _ = inbox.send(match work.await {
                        Ok(()) => Input::plain(Event::Succeeded),
                        Err(error) => Input::with(Event::Crashed, error),
                    });
                }));
            }
        }
    }

    fn spawn_process(&self, program: &Program) -> Result<Running, String> {
        let pipe = self.pipe.as_ref().ok_or("the log pipe is missing")?;
        let group = self.group.as_deref();
        let running =
            process::start(program, &self.definition.share, group, std::os::fd::AsFd::as_fd(&pipe.write))?;
        let name = process::pidfd_name(self.id());
        if let Err(error) = self.dependencies().init.store(&name, std::os::fd::AsFd::as_fd(&running.pidfd)) {
            self.dependencies().journal.warn(&format!("deposit pidfd of {}: {error}", self.id()));
        }
        Ok(running)
    }

    fn watch_end(&self, process: &Running) {
        let Ok(pidfd) = process.pidfd.try_clone() else {
            return self.send(Input::with(Event::Crashed, "its pidfd cannot be watched".to_owned()));
        };
        let (pid, start_ticks) = (process.pid, process.start_ticks);
        let (inbox, init) = (self.inbox.clone(), self.dependencies().init.clone());
        let container = match &self.definition.runner {
            Runner::Container(_, container) => Some(container.clone()),
            _ => None,
        };
        tokio::spawn(async move {
            let ended = match container {
                Some(container) => process::ended_in_engine(pidfd, pid, container.ended()).await,
                None => process::ended(pidfd, pid, start_ticks, init).await,
            };
            let _ = inbox.send(match ended {
                Ok(()) => Input::plain(Event::Succeeded),
                Err(error) => Input::with(Event::Crashed, error),
            });
        });
    }

    /// What is left of an ended process: its pidfd in the store, members of its cgroup.
    fn clean_up(&mut self) {
        self.task = None;
        if self.process.take().is_none() {
            return;
        }
        let _ = self.dependencies().init.forget(&process::pidfd_name(self.id()));
        let ends_group = match &self.definition.runner {
            Runner::Process(program) => program.ends_group,
            Runner::Container(..) => true,
            Runner::Internal(_) => false,
        };
        if let (true, Some(group)) = (ends_group, self.group_path()) {
            process::kill_group(&group);
        }
    }

    fn group_path(&self) -> Option<PathBuf> {
        let root = self.dependencies().cgroups.as_ref()?;
        (!self.definition.share.group.is_empty()).then(|| root.join(&self.definition.share.group))
    }

    fn begin_health(&mut self) {
        let Some(check) = self.definition.check.clone() else { return };
        let work = health::watch(self.services.clone(), self.id().to_owned(), check, self.adopted);
        self.health = Some(tokio::spawn(work));
    }

    fn terminate(&mut self) {
        if let Some(process) = &self.process {
            if let Err(error) = process.signal(Signal::TERM) {
                self.dependencies().journal.warn(&error);
            }
        } else if let Some(task) = self.task.take() {
            task.abort();
            self.send(Input::plain(Event::Succeeded));
        }
        abort(&mut self.clock);
        self.clock = Some(self.later(TERM_DEADLINE, Event::TermExpired));
    }

    fn kill(&mut self) {
        let text = format!("service {}: no end within {} s of SIGTERM", self.id(), TERM_DEADLINE.as_secs());
        self.dependencies().journal.warn(&text);
        if let Some(group) = self.group_path() {
            process::kill_group(&group);
        }
        if let Some(process) = &self.process {
            // It may be ending at this moment.
            let _ = process.signal(Signal::KILL);
        }
    }
}

/// The process is watched before it runs: one that ends at once has its status too.
async fn begin(container: &dyn Container, log: PathBuf) -> Result<Running, String> {
    let running = Running::of_engine(container.create(log).await?)?;
    container.start().await?;
    Ok(running)
}

fn abort(task: &mut Option<JoinHandle<()>>) {
    if let Some(task) = task.take() {
        task.abort();
    }
}

fn unmet(services: &Services, needed: &[String]) -> Vec<String> {
    needed.iter().filter(|id| !services.is_up(id)).cloned().collect()
}

fn waiting_for(unmet: &[String]) -> String {
    let conditions: Vec<String> = unmet.iter().map(|id| format!("service {id:?} to be \"up\"")).collect();
    format!("Waiting for {}", conditions.join(", "))
}

async fn watch_conditions(services: &Services, definition: &Definition, mut last: Vec<String>) {
    let mut changed = services.shared.changed.subscribe();
    loop {
        let now = unmet(services, &definition.depends_on);
        if now.is_empty() || changed.changed().await.is_err() {
            return;
        }
        let now = unmet(services, &definition.depends_on);
        if now != last && !now.is_empty() {
            services.report(&definition.id, State::Waiting, &waiting_for(&now), None);
            last = now;
        }
    }
}
