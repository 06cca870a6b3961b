//! timed: the node's clock.
//!
//! | task | reads | writes | ends |
//! |---|---|---|---|
//! | [`run`] | the config, leases, time servers over UDP | the clock, `TimeStatuses`, `TimeServerSpecs`, `TimeServerStatuses`, `ClockSources`, `AdjtimeStatuses` | with the service |
//!
//! Order: the floor first, since TLS may be needed before a server answers; then rounds of all servers at once.
//! Does not: write the hardware clock; the kernel does, every eleven minutes, while the clock is steered.
//! Fails by: never. What goes wrong is a line in the log, a state of the resources, and another round.
//! Source: docs/users/time.md; [`packet`] for the protocol.

mod adjtime;
mod discipline;
mod floor;
mod packet;
mod query;
mod select;
mod servers;
#[cfg(test)]
mod testing;

use std::sync::Arc;
use std::time::{Duration, Instant};

use runtime::Runtime;
use rustix::rand::{GetRandomFlags, getrandom};
use sys::clock::Steering;

use discipline::{Correction, Discipline};
pub use query::{QueryError, Sample, query};
use runtime::clock;
use runtime::store::{
    ADJTIME_STATUS, CLOCK_SOURCE, ClockSource, DHCP_LEASE, MACHINE_CONFIG, Spec, TIME_SERVER_SPEC,
    TIME_SERVER_STATUS, TIME_STATUS, TimeStatus,
};
use select::Choice;
pub use servers::DEFAULT_SERVER;
use servers::Layers;

/// The service's id.
pub(crate) const ID: &str = "timed";
/// Between two writes of the last synchronisation.
const REMEMBER_PERIOD: Duration = Duration::from_secs(3600);
/// `ADJ` takes errors in microseconds; less than this is not claimed.
const LEAST_ERROR_NS: i64 = 1_000;

/// What the config says about time.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Settings {
    disabled: bool,
    layers: Layers,
    servers: Vec<String>,
    boot_timeout: Option<Duration>,
}

impl Settings {
    fn of(runtime: &Runtime) -> Self {
        let config = runtime.config();
        let time = config.as_ref().map(|config| &config.machine.time);
        let layers = Layers::of(runtime);
        let (servers, disabled) = (layers.asked(), time.is_some_and(|time| time.disabled));
        Self { disabled, layers, servers, boot_timeout: boot_timeout(time) }
    }
}

/// Zero means to wait for ever, as does a missing value.
fn boot_timeout(time: Option<&config::v1alpha1::Time>) -> Option<Duration> {
    time.and_then(|time| time.boot_timeout.as_ref())
        .map(|timeout| timeout.0)
        .filter(|timeout| !timeout.is_zero())
}

struct Timed {
    runtime: Arc<Runtime>,
    discipline: Discipline,
    started: Instant,
    steps: u64,
    remembered: Option<Instant>,
    said: String,
}

/// In a container, instead of the service: the host sees to the clock.
pub(crate) fn trust_host(runtime: &Runtime) -> Result<(), String> {
    let status = TimeStatus { synced: true, epoch: 0, sync_disabled: true };
    let put = runtime.store.put(TIME_STATUS.writer, &TIME_STATUS, "node", Spec::TimeStatus(status));
    put.map(drop).map_err(|error| error.to_string())
}

/// The service.
pub async fn run(runtime: Arc<Runtime>) -> Result<(), String> {
    // A new config, or a network that was not there before.
    let mut changes = runtime.store.follow(&[&MACHINE_CONFIG, &DHCP_LEASE]);
    let mut timed = Timed::new(runtime);
    loop {
        timed.apply_floor();
        let settings = Settings::of(&timed.runtime);
        let pause = timed.turn(&settings).await;
        tokio::select! {
            () = clock::until(pause.map(|pause| tokio::time::Instant::now() + pause)) => {}
            () = changes.next() => {}
        }
    }
}

impl Timed {
    fn new(runtime: Arc<Runtime>) -> Self {
        Self {
            runtime,
            discipline: Discipline::new(),
            started: Instant::now(),
            steps: 0,
            remembered: None,
            said: String::new(),
        }
    }

    /// One round; says how long to wait for the next.
    async fn turn(&mut self, settings: &Settings) -> Option<Duration> {
        self.replace(&TIME_SERVER_SPEC, settings.layers.specs());
        self.put(&TIME_SERVER_STATUS, "timeservers", Spec::TimeServerStatus(settings.servers.clone()));
        if settings.disabled {
            self.replace(&CLOCK_SOURCE, Vec::new());
            self.publish(true, true);
            return None;
        }
        let answers =
            futures_util::future::join_all(settings.servers.iter().map(|s| query::query_all(s))).await;
        let (samples, errors) = sorted(answers);
        match select::choose(&samples) {
            Ok(choice) => {
                self.correct(&choice, samples.len());
                self.replace(&CLOCK_SOURCE, sources(&samples, &errors, &choice.believed));
            }
            Err(disagreement) => {
                self.discipline.failed();
                self.replace(&CLOCK_SOURCE, sources(&samples, &errors, &[]));
                let detail = errors.first().map_or_else(String::new, |(_, error)| format!(": {error}"));
                self.say_once(&format!("{disagreement}{detail}"));
            }
        }
        let waited = settings.boot_timeout.is_some_and(|limit| self.started.elapsed() >= limit);
        self.publish(self.discipline.synced() || waited, false);
        let pause = self.discipline.pause(random());
        Some(settings.boot_timeout.filter(|_| !waited && !self.discipline.synced()).map_or(pause, |limit| {
            pause.min(limit.saturating_sub(self.started.elapsed()).max(Duration::from_millis(1)))
        }))
    }

    fn correct(&mut self, choice: &Choice, asked: usize) {
        let first = !self.discipline.synced();
        let result = match self.discipline.offset(choice.offset_ns) {
            Correction::Step => self.step(choice),
            Correction::Slew { constant } => steer(choice, choice.offset_ns, constant),
            Correction::Doubt => {
                let text = format!("off by {}: asking again before believing it", seconds(choice.offset_ns));
                return self.runtime.journal.warn(&format!("timed: {text}"));
            }
        };
        if let Err(error) = result {
            return self.say_once(&error);
        }
        self.said.clear();
        if first {
            let believed = choice.believed.len();
            self.runtime.journal.say(&format!(
                "timed: clock synchronised, it was off by {} ({believed} of {asked} servers agree)",
                seconds(choice.offset_ns)
            ));
        }
        self.remember();
    }

    fn step(&mut self, choice: &Choice) -> Result<(), String> {
        set_clock(clock::unix_ns().saturating_add(choice.offset_ns))?;
        self.steps += 1;
        self.runtime.journal.say(&format!("timed: clock set by {}", seconds(choice.offset_ns)));
        steer(choice, 0, 1)
    }

    /// Brings a clock that is behind everything that has happened to where it can be.
    fn apply_floor(&self) {
        let Some(floor) = floor::read(&self.runtime.root) else { return };
        if clock::now().as_second() >= floor.seconds {
            return;
        }
        let text = match set_clock(floor.seconds.saturating_mul(1_000_000_000)) {
            Ok(()) => format!("the clock was before {}: set to that time", floor.source),
            Err(error) => error,
        };
        self.runtime.journal.warn(&format!("timed: {text}"));
    }

    fn remember(&mut self) {
        if self.remembered.is_some_and(|last| last.elapsed() < REMEMBER_PERIOD) {
            return;
        }
        match floor::remember(&self.runtime.root, clock::now().as_second()) {
            Ok(()) => self.remembered = Some(Instant::now()),
            Err(error) => self.say_once(&error),
        }
    }

    /// A reason that repeats is said once.
    fn say_once(&mut self, text: &str) {
        if self.said != text {
            self.runtime.journal.warn(&format!("timed: {text}"));
            self.said = text.to_owned();
        }
    }

    fn publish(&self, synced: bool, sync_disabled: bool) {
        let status = TimeStatus { synced, epoch: self.steps, sync_disabled };
        self.put(&TIME_STATUS, "node", Spec::TimeStatus(status));
        match sys::clock::standing() {
            Ok(standing) => self.put(&ADJTIME_STATUS, "node", adjtime::spec(&standing)),
            Err(errno) => self.runtime.journal.warn(&format!("timed: ask how the clock is steered: {errno}")),
        }
    }

    fn put(&self, kind: &'static runtime::store::Definition, id: &str, spec: Spec) {
        if let Err(error) = self.runtime.store.put(kind.writer, kind, id, spec) {
            self.runtime.journal.warn(&format!("timed: {error}"));
        }
    }

    fn replace(&self, kind: &'static runtime::store::Definition, wanted: Vec<(String, Spec)>) {
        if let Err(error) = self.runtime.store.replace(kind.writer, kind, wanted) {
            self.runtime.journal.warn(&format!("timed: {error}"));
        }
    }
}

type Failure = (String, QueryError);

fn sorted(answers: Vec<Vec<Result<Sample, QueryError>>>) -> (Vec<Sample>, Vec<Failure>) {
    let (mut samples, mut errors) = (Vec::<Sample>::new(), Vec::new());
    for answer in answers.into_iter().flatten() {
        match answer {
            // Two names may lead to one server, which has one voice.
            Ok(sample) if samples.iter().any(|other| other.address == sample.address) => {}
            Ok(sample) => samples.push(sample),
            Err(error) => errors.push((error.id(), error)),
        }
    }
    (samples, errors)
}

fn sources(samples: &[Sample], errors: &[Failure], believed: &[usize]) -> Vec<(String, Spec)> {
    let good = samples.iter().enumerate().map(|(index, sample)| {
        let source = ClockSource {
            server: sample.server.clone(),
            state: if believed.contains(&index) { "believed" } else { "disagrees" },
            stratum: sample.stratum,
            offset_ms: sample.offset_ns / 1_000_000,
            round_trip_ms: sample.round_trip_ns / 1_000_000,
            error: String::new(),
        };
        (sample.address.to_string(), Spec::ClockSource(source))
    });
    let bad = errors.iter().map(|(id, error)| {
        let source = ClockSource {
            server: error.server().to_owned(),
            state: "silent",
            stratum: 0,
            offset_ms: 0,
            round_trip_ms: 0,
            error: error.to_string(),
        };
        (id.clone(), Spec::ClockSource(source))
    });
    good.chain(bad).collect()
}

fn steer(choice: &Choice, offset_ns: i64, constant: u8) -> Result<(), String> {
    let error_ns = choice.error_ns.max(LEAST_ERROR_NS).unsigned_abs();
    sys::clock::steer(&Steering { offset_ns, error_ns, constant, leap: choice.leap })
        .map_err(|errno| format!("steer the clock: {errno}"))
}

fn set_clock(unix_ns: i64) -> Result<(), String> {
    let (whole, rest) = (unix_ns.div_euclid(1_000_000_000), unix_ns.rem_euclid(1_000_000_000));
    sys::clock::set(whole, u32::try_from(rest).unwrap_or(0))
        .map_err(|errno| format!("set the clock: {errno}"))
}

/// `+1.234 s`.
fn seconds(ns: i64) -> String {
    let (sign, size) = (if ns < 0 { '-' } else { '+' }, ns.unsigned_abs());
    format!("{sign}{}.{:03} s", size / 1_000_000_000, size / 1_000_000 % 1_000)
}

/// Spreads the nodes of a cluster; without the kernel's help they ask together, which is no harm.
fn random() -> u8 {
    let mut byte = [0];
    let _ = getrandom(&mut byte, GetRandomFlags::empty());
    byte[0]
}

#[cfg(test)]
mod tests {
    use super::testing::Responder;
    use super::*;

    async fn ask(servers: &[&Responder]) -> (Vec<Sample>, Vec<Failure>) {
        let names: Vec<String> = servers.iter().map(|server| server.name()).collect();
        sorted(futures_util::future::join_all(names.iter().map(|name| query::query_all(name))).await)
    }

    #[tokio::test]
    async fn one_liar_among_three_servers_is_named() {
        let hour = Duration::from_secs(3600);
        let (a, b) = (Responder::start(Duration::ZERO).await, Responder::start(Duration::ZERO).await);
        let liar = Responder::start(hour).await;
        let (samples, errors) = ask(&[&a, &liar, &b]).await;
        let choice = select::choose(&samples).unwrap();
        assert_eq!((choice.believed.as_slice(), errors.len()), (&[0, 2][..], 0));
        assert!(choice.offset_ns.abs() < 1_000_000_000, "{choice:?}");
        let listed = sources(&samples, &errors, &choice.believed);
        let state = |index: usize| match &listed[index].1 {
            Spec::ClockSource(source) => source.state,
            _ => "other",
        };
        assert_eq!([state(0), state(1), state(2)], ["believed", "disagrees", "believed"]);
    }

    #[tokio::test]
    async fn one_server_under_two_names_has_one_voice() {
        let server = Responder::start(Duration::ZERO).await;
        let (samples, _) = ask(&[&server, &server]).await;
        assert_eq!(samples.len(), 1);
    }

    #[tokio::test]
    async fn a_silent_server_does_not_stop_the_others() {
        let (good, bad) = (Responder::start(Duration::ZERO).await, Responder::start(Duration::ZERO).await);
        bad.refuse();
        let (samples, errors) = ask(&[&good, &bad]).await;
        assert_eq!((samples.len(), errors.len()), (1, 1));
        let listed = sources(&samples, &errors, &[0]);
        assert!(matches!(&listed[1].1, Spec::ClockSource(source) if source.error.contains("RATE")));
    }

    /// timed on a node with this `machine.time`, whose one server answers nothing of use; never touches the clock.
    async fn timed(time: &str) -> (Timed, Settings, Responder, tempfile::TempDir) {
        let (dir, server) = (tempfile::tempdir().unwrap(), Responder::start(Duration::ZERO).await);
        server.refuse();
        let runtime = Runtime::detached(dir.path().to_path_buf());
        let time = format!("{{servers: [\"{}\"], {time}}}", server.name());
        let text = format!("version: v1alpha1\nmachine:\n  type: worker\n  token: a.b\n  time: {time}\n");
        runtime.config.send_replace(Some(Arc::new(config::parse(&text).unwrap_or_else(|e| panic!("{e}")))));
        let settings = Settings::of(&runtime);
        (Timed::new(runtime), settings, server, dir)
    }

    fn status(timed: &Timed) -> TimeStatus {
        match timed.runtime.store.get(&TIME_STATUS, "node").map(|resource| resource.spec.clone()) {
            Some(Spec::TimeStatus(status)) => status,
            other => panic!("no status: {other:?}"),
        }
    }

    #[tokio::test]
    async fn a_disabled_clock_asks_nobody_and_holds_up_nothing() {
        let (mut timed, settings, _server, _dir) = timed("disabled: true").await;
        assert_eq!(timed.turn(&settings).await, None);
        assert_eq!(status(&timed), TimeStatus { synced: true, epoch: 0, sync_disabled: true });
        let adjtime = timed.runtime.store.get(&ADJTIME_STATUS, "node").unwrap();
        let kernel = sys::clock::standing().unwrap();
        let adjtime = adjtime.spec.yaml().unwrap();
        assert!(adjtime.contains(&format!("syncStatus: {}\n", kernel.steered)), "{adjtime}");
        assert!(timed.runtime.store.get(&TIME_SERVER_SPEC, "configuration/timeservers").is_some());
        assert_eq!(timed.said, "");
    }

    #[tokio::test]
    async fn after_the_boot_timeout_nobody_waits_for_the_clock() {
        let (mut timed, settings, _server, _dir) = timed("bootTimeout: 2m").await;
        let pause = timed.turn(&settings).await.unwrap();
        assert!(pause <= Duration::from_secs(120), "{pause:?}");
        assert!(!status(&timed).synced && timed.said.contains("RATE"), "{}", timed.said);
        timed.started = Instant::now().checked_sub(Duration::from_secs(120)).unwrap();
        timed.turn(&settings).await.unwrap();
        assert!(status(&timed).synced && !timed.discipline.synced());
    }

    #[test]
    fn a_dhcp_servers_time_servers_count_where_the_config_names_none() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = Runtime::detached(dir.path().to_path_buf());
        assert_eq!(Settings::of(&runtime).servers, [DEFAULT_SERVER]);
        for (link, servers) in [("eth0", ["10.0.0.4", "10.0.0.5"]), ("eth1", ["10.0.0.5", "10.0.0.6"])] {
            runtime
                .store
                .put(DHCP_LEASE.writer, &DHCP_LEASE, link, super::servers::tests::lease(servers))
                .unwrap();
        }
        assert_eq!(Settings::of(&runtime).servers, ["10.0.0.4", "10.0.0.5", "10.0.0.6"]);
        let text = "version: v1alpha1\nmachine: {token: a.b, time: {servers: [10.9.9.9]}}\n";
        let config = config::parse(text).unwrap_or_else(|error| panic!("{error}"));
        runtime.config.send_replace(Some(Arc::new(config)));
        assert_eq!(Settings::of(&runtime).servers, ["10.9.9.9"]);
    }

    #[test]
    fn offsets_are_printed_with_their_sign() {
        assert_eq!((seconds(1_234_567_890), seconds(-5_000_000)), ("+1.234 s".into(), "-0.005 s".into()));
    }
}
