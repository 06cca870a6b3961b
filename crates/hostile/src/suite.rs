//! Attacks one after the other, and what each of them cost.
//!
//! Order: a baseline of the witness's calls; then the attack and the witness side by side; then places are waited for.
//! Owns: the bounds. A call of the witness takes [`LONGEST_CALL`] at most (longer on an emulated processor), or ten times the
//! longest of the baseline where that is more: a machine with much else to do is slower without any attack. What the machine
//! is late by meanwhile comes on top.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::try_join_all;
use serde::Serialize;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::{Attack, Fault, Form, Load, Target, Witness};

/// The longest that another client's call may take on a processor that is not emulated.
pub const LONGEST_CALL: Duration = Duration::from_secs(1);
/// The same as a multiple of the baseline.
const TIMES_BASELINE: u32 = 10;
/// How often a call with its connection waits for a thread to run, at both ends.
const HANDOVERS: u32 = 20;
/// For an attack in its short form, with every deadline of the node that it waits for.
const SHORT_DEADLINE: Duration = Duration::from_secs(120);
/// The same in the long form.
const LONG_DEADLINE: Duration = Duration::from_secs(900);
/// For places to come back: a connection's last ping, and a busy machine.
const PLACES_DEADLINE: Duration = Duration::from_secs(90);
/// The attacks that wait for deadlines of the node, at the same time.
const TOGETHER: &str = "silent-and-slow-together";
/// Between two readings.
const READING: Duration = Duration::from_millis(50);

/// Reads a figure of the server's: bytes of memory, or places that are held.
pub type Gauge = Arc<dyn Fn() -> u64 + Send + Sync>;

/// One attack, as it went.
#[derive(Debug, Clone, Serialize)]
pub struct Record {
    /// Name of the attack.
    pub attack: &'static str,
    /// TCP connections of the attack.
    pub connections: u64,
    /// Requests, frames or handshakes of it.
    pub attempts: u64,
    /// Its time.
    pub seconds: f64,
    /// Calls of the other client meanwhile.
    pub calls: u64,
    /// The longest of them, with its connection where it made one.
    pub longest_ms: f64,
    /// The longest of them without an attack.
    pub baseline_ms: f64,
    /// By how much the server's memory grew at most; in process with the attacker's.
    pub grown_bytes: u64,
}

impl std::fmt::Display for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}: {} connections, {} attempts, {:.1} s; another client: {} calls, longest {:.0} ms (alone {:.0} ms); memory +{} KiB",
            self.attack,
            self.connections,
            self.attempts,
            self.seconds,
            self.calls,
            self.longest_ms,
            self.baseline_ms,
            self.grown_bytes >> 10,
        )
    }
}

/// A server under attack.
pub struct Suite {
    /// Whom to attack.
    pub target: Target,
    /// The other client.
    pub witness: Witness,
    /// How much.
    pub form: Form,
    /// The longest that a call of the other client may take: [`LONGEST_CALL`], scaled where the server's processor is emulated.
    pub longest_call: Duration,
    /// Bytes of the server's memory.
    pub memory: Option<Gauge>,
    /// By how much they may grow.
    pub memory_bound: u64,
    /// Places of connections and calls that clients hold.
    pub places: Option<Gauge>,
}

impl Suite {
    /// Plays these attacks in turn, each also when one before it found a fault. In the short form those that wait for deadlines
    /// of the node are one attack together.
    pub async fn play(&self, attacks: &[Attack]) -> (Vec<Record>, Vec<Fault>) {
        let (patient, quick): (Vec<Attack>, Vec<Attack>) =
            attacks.iter().partition(|attack| attack.patient && self.form == Form::Short);
        let mut turns: Vec<(&'static str, Vec<Attack>)> =
            quick.into_iter().map(|attack| (attack.name, vec![attack])).collect();
        if !patient.is_empty() {
            turns.push((TOGETHER, patient));
        }
        let (mut records, mut faults) = (Vec::new(), Vec::new());
        for (name, attacks) in turns {
            match self.one(name, &attacks).await {
                Ok(record) => records.push(record),
                Err(fault) => {
                    eprintln!("hostile: {name}: {fault}");
                    faults.push(fault);
                }
            }
        }
        (records, faults)
    }

    async fn one(&self, name: &'static str, attacks: &[Attack]) -> Result<Record, Fault> {
        let witnessed = |why| Fault::Witness { attack: name, why };
        let baseline = self.witness.baseline().await.map_err(witnessed)?;
        self.given_back(name).await?;
        let (stop, stopped) = oneshot::channel();
        let witness = tokio::spawn(self.witness.clone().watch(stopped));
        let memory = self.memory.clone().map(Peak::begin);
        let machine = Machine::watch();
        let begin = Instant::now();
        let loads = try_join_all(attacks.iter().map(|attack| self.attack(attack))).await;
        let seconds = begin.elapsed().as_secs_f64();
        // The witness is gone only where it failed.
        let _ = stop.send(());
        let seen = witness.await.map_err(|error| witnessed(error.to_string()))?.map_err(witnessed)?;
        let grown = memory.map_or(0, |peak| peak.grown());
        let late = machine.longest();
        let loads = loads?;
        let longest = self.longest_call.max(baseline.saturating_mul(TIMES_BASELINE));
        let longest = longest.saturating_add(late.saturating_mul(HANDOVERS));
        if seen.longest > longest {
            return Err(witnessed(format!("it waited {:?}, at most {longest:?} is right", seen.longest)));
        }
        if grown > self.memory_bound {
            return Err(Fault::Memory { attack: name, grown, bound: self.memory_bound });
        }
        self.given_back(name).await?;
        let record = Record {
            attack: name,
            connections: loads.iter().map(|load| load.connections).sum(),
            attempts: loads.iter().map(|load| load.attempts).sum(),
            seconds,
            calls: seen.calls,
            longest_ms: seen.longest.as_secs_f64() * 1000.0,
            baseline_ms: baseline.as_secs_f64() * 1000.0,
            grown_bytes: grown,
        };
        eprintln!("hostile: {record}");
        Ok(record)
    }

    /// Waits until no client holds a place.
    async fn given_back(&self, attack: &'static str) -> Result<(), Fault> {
        let Some(places) = &self.places else { return Ok(()) };
        let begin = Instant::now();
        while places() > 0 {
            if begin.elapsed() > PLACES_DEADLINE {
                return Err(Fault::Places { attack, left: places(), after: PLACES_DEADLINE });
            }
            sleep(READING).await;
        }
        Ok(())
    }

    async fn attack(&self, attack: &Attack) -> Result<Load, Fault> {
        let within = if self.form == Form::Long { LONG_DEADLINE } else { SHORT_DEADLINE };
        let running = (attack.run)(self.target.clone(), self.form);
        let ended = timeout(within, running).await;
        ended.unwrap_or(Err(Fault::Endless { attack: attack.name, after: within }))
    }
}

/// How late the machine runs a thread that has nothing to do with clients or servers: by so much each step of a call is late
/// without the server's doing.
struct Machine {
    over: Arc<AtomicBool>,
    longest_micros: Arc<AtomicU64>,
}

impl Machine {
    fn watch() -> Self {
        let machine = Self { over: Arc::default(), longest_micros: Arc::default() };
        let (over, longest) = (machine.over.clone(), machine.longest_micros.clone());
        std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let begin = std::time::Instant::now();
                std::thread::sleep(READING);
                let late = begin.elapsed().saturating_sub(READING).as_micros();
                longest.fetch_max(u64::try_from(late).unwrap_or(u64::MAX), Ordering::Relaxed);
            }
        });
        machine
    }

    fn longest(&self) -> Duration {
        Duration::from_micros(self.longest_micros.load(Ordering::Relaxed))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// The highest reading of a gauge, by a task that reads it until the value is dropped.
struct Peak {
    before: u64,
    most: Arc<AtomicU64>,
    gauge: Gauge,
    reading: JoinHandle<()>,
}

impl Peak {
    fn begin(gauge: Gauge) -> Self {
        let before = gauge();
        let most = Arc::new(AtomicU64::new(before));
        let (shared, read) = (most.clone(), gauge.clone());
        let reading = tokio::spawn(async move {
            loop {
                shared.fetch_max(read(), Ordering::Relaxed);
                sleep(READING).await;
            }
        });
        Self { before, most, gauge, reading }
    }

    fn grown(&self) -> u64 {
        let most = self.most.fetch_max((self.gauge)(), Ordering::Relaxed).max((self.gauge)());
        most.saturating_sub(self.before)
    }
}

impl Drop for Peak {
    fn drop(&mut self) {
        self.reading.abort();
    }
}
