//! The service state machine.
//!
//! A service has a goal (a person or a sequence wants it to run, or not) and a state (a process exists, or not).
//! The states name where the two stand to each other:
//!
//! * `Initialized`, `Finished`, `Failed`, `Skipped`: nothing runs and nobody wants it to. They differ in how it got
//!   there; a start leads out of each.
//! * `Waiting`: wanted; its dependencies are not up yet.
//! * `Preparing`: wanted; dependencies are up; directories, cgroup and descriptors are being made.
//! * `Starting`: the process is being created.
//! * `Running`: wanted and real.
//! * `Pausing`: wanted; it ended and is started again when the pause is over.
//! * `Stopping`: real but not wanted; SIGTERM was sent.
//! * `Killing`: real but not wanted; SIGTERM was not enough.
//! * `Restarting`: as `Stopping`, but wanted again as soon as it is gone.
//!
//! Owns: [`step`], the one function that knows which event leads where. It reads no clock and does nothing: the
//! supervisor performs the [`Action`]s and reports what happened as [`Event`]s.
//! Source: crates/api/proto/machine/machine.proto (ServiceInfo) (names and numbers on the wire).

/// Where a service stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Never started.
    Initialized,
    /// Dependencies are not up.
    Waiting,
    /// Being set up.
    Preparing,
    /// The process is being created.
    Starting,
    /// The process exists.
    Running,
    /// Ended; starts again after a pause.
    Pausing,
    /// Asked to end.
    Stopping,
    /// Forced to end.
    Killing,
    /// Asked to end, to be started again.
    Restarting,
    /// Ended as it should.
    Finished,
    /// Ended as it should not, and stays so.
    Failed,
    /// Not for this machine.
    Skipped,
}

/// What can happen to a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// Someone wants it to run.
    StartAsked,
    /// Someone wants it not to run.
    StopAsked,
    /// Someone wants a fresh process.
    RestartAsked,
    /// It does not belong on this machine.
    SkipAsked,
    /// A process of it was found alive by a new machined.
    Adopted,
    /// Dependencies and conditions hold.
    ConditionsMet,
    /// Set-up is done.
    Prepared,
    /// Set-up failed.
    PrepareFailed,
    /// The process exists.
    Spawned,
    /// The process could not be created.
    SpawnFailed,
    /// The process ended with status 0.
    Succeeded,
    /// The process ended otherwise.
    Crashed,
    /// The pause before a restart is over.
    PauseOver,
    /// It was given long enough to end by itself.
    TermExpired,
}

/// What the supervisor does about it, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Watch dependencies and conditions until they hold.
    AwaitConditions,
    /// Make directories, cgroup, log pipe.
    Prepare,
    /// Create the process.
    Spawn,
    /// Start checking health.
    BeginHealth,
    /// Stop checking health.
    EndHealth,
    /// Ask the process to end and start the clock for `TermExpired`.
    Terminate,
    /// End the process.
    Kill,
    /// Start the clock for `PauseOver`.
    Pause,
    /// Forget every clock and watch.
    Disarm,
}

/// Whether a service that ended is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// Always.
    Forever,
    /// Not at all.
    Never,
}

impl State {
    /// Every state.
    pub const ALL: [Self; 12] = [
        Self::Initialized,
        Self::Waiting,
        Self::Preparing,
        Self::Starting,
        Self::Running,
        Self::Pausing,
        Self::Stopping,
        Self::Killing,
        Self::Restarting,
        Self::Finished,
        Self::Failed,
        Self::Skipped,
    ];

    /// The word clients know. Our finer states share the words of the spec.
    pub fn text(self) -> &'static str {
        match self {
            Self::Initialized => "Initialized",
            Self::Preparing | Self::Starting => "Preparing",
            Self::Waiting | Self::Pausing => "Waiting",
            Self::Running => "Running",
            Self::Stopping | Self::Killing | Self::Restarting => "Stopping",
            Self::Finished => "Finished",
            Self::Failed => "Failed",
            Self::Skipped => "Skipped",
        }
    }

    /// The number of `ServiceStateEvent.Action`.
    pub fn number(self) -> i32 {
        match self {
            Self::Initialized => 0,
            Self::Preparing | Self::Starting => 1,
            Self::Waiting | Self::Pausing => 2,
            Self::Running => 3,
            Self::Stopping | Self::Killing | Self::Restarting => 4,
            Self::Finished => 5,
            Self::Failed => 6,
            Self::Skipped => 7,
        }
    }

    /// Whether nothing runs and nothing is on its way.
    pub fn is_down(self) -> bool {
        matches!(self, Self::Initialized | Self::Finished | Self::Failed | Self::Skipped)
    }
}

type Step = (State, &'static [Action]);

/// Leads from a state over an event to the next state and what to do.
pub fn step(restart: Restart, state: State, event: Event) -> Step {
    use State::{
        Failed, Finished, Initialized, Killing, Pausing, Preparing, Restarting, Running, Skipped, Starting,
    };
    use State::{Stopping, Waiting};
    match state {
        Initialized | Finished | Failed | Skipped => step_down(state, event),
        Waiting => step_waiting(event),
        Preparing => step_preparing(restart, event),
        Starting => step_starting(restart, event),
        Running => step_running(restart, event),
        Pausing => step_pausing(event),
        Stopping | Killing => step_ending(state, event),
        Restarting => step_restarting(event),
    }
}

fn step_down(state: State, event: Event) -> Step {
    use Event::{
        Adopted, ConditionsMet, Crashed, PauseOver, PrepareFailed, Prepared, RestartAsked, SkipAsked,
    };
    use Event::{SpawnFailed, Spawned, StartAsked, StopAsked, Succeeded, TermExpired};
    match event {
        StartAsked | RestartAsked => (State::Waiting, &[Action::AwaitConditions]),
        Adopted => (State::Running, &[Action::BeginHealth]),
        SkipAsked => (State::Skipped, &[]),
        StopAsked | ConditionsMet | Prepared | PrepareFailed | Spawned | SpawnFailed | Succeeded
        | Crashed | PauseOver | TermExpired => (state, &[]),
    }
}

fn step_waiting(event: Event) -> Step {
    use Event::{
        Adopted, ConditionsMet, Crashed, PauseOver, PrepareFailed, Prepared, RestartAsked, SkipAsked,
    };
    use Event::{SpawnFailed, Spawned, StartAsked, StopAsked, Succeeded, TermExpired};
    match event {
        ConditionsMet => (State::Preparing, &[Action::Disarm, Action::Prepare]),
        StopAsked => (State::Finished, &[Action::Disarm]),
        SkipAsked => (State::Skipped, &[Action::Disarm]),
        Adopted => (State::Running, &[Action::Disarm, Action::BeginHealth]),
        StartAsked | RestartAsked | Prepared | PrepareFailed | Spawned | SpawnFailed | Succeeded
        | Crashed | PauseOver | TermExpired => (State::Waiting, &[]),
    }
}

fn step_preparing(restart: Restart, event: Event) -> Step {
    use Event::{
        Adopted, ConditionsMet, Crashed, PauseOver, PrepareFailed, Prepared, RestartAsked, SkipAsked,
    };
    use Event::{SpawnFailed, Spawned, StartAsked, StopAsked, Succeeded, TermExpired};
    match event {
        Prepared => (State::Starting, &[Action::Spawn]),
        PrepareFailed => after_failure(restart),
        StopAsked => (State::Finished, &[]),
        SkipAsked => (State::Skipped, &[]),
        Adopted => (State::Running, &[Action::BeginHealth]),
        StartAsked | RestartAsked | ConditionsMet | Spawned | SpawnFailed | Succeeded | Crashed
        | PauseOver | TermExpired => (State::Preparing, &[]),
    }
}

fn step_starting(restart: Restart, event: Event) -> Step {
    use Event::{
        Adopted, ConditionsMet, Crashed, PauseOver, PrepareFailed, Prepared, RestartAsked, SkipAsked,
    };
    use Event::{SpawnFailed, Spawned, StartAsked, StopAsked, Succeeded, TermExpired};
    match event {
        Spawned | Adopted => (State::Running, &[Action::BeginHealth]),
        SpawnFailed => after_failure(restart),
        // The process may exist in a moment: it is ended as soon as it does.
        StopAsked => (State::Stopping, &[Action::Terminate]),
        StartAsked | RestartAsked | SkipAsked | ConditionsMet | Prepared | PrepareFailed | Succeeded
        | Crashed | PauseOver | TermExpired => (State::Starting, &[]),
    }
}

fn step_running(restart: Restart, event: Event) -> Step {
    use Event::{
        Adopted, ConditionsMet, Crashed, PauseOver, PrepareFailed, Prepared, RestartAsked, SkipAsked,
    };
    use Event::{SpawnFailed, Spawned, StartAsked, StopAsked, Succeeded, TermExpired};
    match (event, restart) {
        (Succeeded | Crashed, Restart::Forever) => (State::Pausing, &[Action::EndHealth, Action::Pause]),
        (Succeeded, Restart::Never) => (State::Finished, &[Action::EndHealth]),
        (Crashed, Restart::Never) => (State::Failed, &[Action::EndHealth]),
        (StopAsked | SkipAsked, _) => (State::Stopping, &[Action::EndHealth, Action::Terminate]),
        (RestartAsked, _) => (State::Restarting, &[Action::EndHealth, Action::Terminate]),
        (
            StartAsked | Adopted | ConditionsMet | Prepared | PrepareFailed | Spawned | SpawnFailed
            | PauseOver | TermExpired,
            _,
        ) => (State::Running, &[]),
    }
}

fn step_pausing(event: Event) -> Step {
    use Event::{
        Adopted, ConditionsMet, Crashed, PauseOver, PrepareFailed, Prepared, RestartAsked, SkipAsked,
    };
    use Event::{SpawnFailed, Spawned, StartAsked, StopAsked, Succeeded, TermExpired};
    match event {
        // Dependencies were up when it first started: one that has gone since must not keep this one down.
        PauseOver | StartAsked | RestartAsked => (State::Preparing, &[Action::Disarm, Action::Prepare]),
        StopAsked => (State::Finished, &[Action::Disarm]),
        SkipAsked => (State::Skipped, &[Action::Disarm]),
        Adopted => (State::Running, &[Action::Disarm, Action::BeginHealth]),
        ConditionsMet | Prepared | PrepareFailed | Spawned | SpawnFailed | Succeeded | Crashed
        | TermExpired => (State::Pausing, &[]),
    }
}

fn step_ending(state: State, event: Event) -> Step {
    use Event::{
        Adopted, ConditionsMet, Crashed, PauseOver, PrepareFailed, Prepared, RestartAsked, SkipAsked,
    };
    use Event::{SpawnFailed, Spawned, StartAsked, StopAsked, Succeeded, TermExpired};
    match event {
        // A crash after SIGTERM is how most programs end.
        Succeeded | Crashed | SpawnFailed => (State::Finished, &[Action::Disarm]),
        TermExpired => (State::Killing, &[Action::Kill]),
        Spawned => (state, &[Action::Terminate]),
        StartAsked | RestartAsked => (State::Restarting, &[]),
        StopAsked | SkipAsked | Adopted | ConditionsMet | Prepared | PrepareFailed | PauseOver => {
            (state, &[])
        }
    }
}

fn step_restarting(event: Event) -> Step {
    use Event::{
        Adopted, ConditionsMet, Crashed, PauseOver, PrepareFailed, Prepared, RestartAsked, SkipAsked,
    };
    use Event::{SpawnFailed, Spawned, StartAsked, StopAsked, Succeeded, TermExpired};
    match event {
        Succeeded | Crashed | SpawnFailed => (State::Waiting, &[Action::Disarm, Action::AwaitConditions]),
        TermExpired => (State::Restarting, &[Action::Kill]),
        Spawned => (State::Restarting, &[Action::Terminate]),
        StopAsked | SkipAsked => (State::Stopping, &[]),
        StartAsked | RestartAsked | Adopted | ConditionsMet | Prepared | PrepareFailed | PauseOver => {
            (State::Restarting, &[])
        }
    }
}

fn after_failure(restart: Restart) -> Step {
    match restart {
        Restart::Forever => (State::Pausing, &[Action::Pause]),
        Restart::Never => (State::Failed, &[]),
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
