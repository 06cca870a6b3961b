//! Where hostile clients meet servers in process: who runs where, what is measured, and what is kept of it.
//!
//! Servers have a runtime of their own, attackers another one. One suite runs at a time. Memory is the process's, with the
//! attacker's, so its bound is wide.
//! Owns: `BILLET_LONG=1` (counts as they are written) and `BILLET_BENCH` (a directory for the figures, one JSON a suite).

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use hostile::{Attack, Form, Gauge, LONGEST_CALL, Suite, Target, Witness};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::{Builder, Runtime};

/// By how much the process may grow during one attack: the servers', and the other end of each connection.
const MEMORY_BOUND_BYTES: u64 = 384 << 20;
/// Name of the threads in which servers run.
const SERVERS: &str = "hostile-servers";

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
static PANICS: AtomicU64 = AtomicU64::new(0);

/// The place of one suite.
pub(crate) struct Arena {
    _turn: MutexGuard<'static, ()>,
    servers: Runtime,
    attackers: Runtime,
    form: Form,
}

impl Arena {
    /// Waits for its turn.
    pub(crate) fn enter() -> Self {
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        count_panics();
        let most = getrlimit(Resource::Nofile).maximum;
        setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).unwrap();
        let long = std::env::var("BILLET_LONG").is_ok_and(|value| value == "1");
        Self {
            _turn: turn,
            servers: runtime(SERVERS),
            attackers: runtime("hostile-clients"),
            form: if long { Form::Long } else { Form::Short },
        }
    }

    /// Starts servers.
    pub(crate) fn servers<T>(&self, start: impl Future<Output = T>) -> T {
        self.servers.block_on(start)
    }

    /// Plays attacks and keeps their figures.
    pub(crate) fn play(
        &self,
        name: &str,
        target: Target,
        witness: Witness,
        places: Option<Gauge>,
        attacks: &[Attack],
    ) {
        let before = PANICS.load(Ordering::SeqCst);
        let suite = Suite {
            target,
            witness,
            form: self.form,
            longest_call: LONGEST_CALL,
            memory: Some(Arc::new(resident_bytes)),
            memory_bound: MEMORY_BOUND_BYTES,
            places,
        };
        let (records, faults) = self.attackers.block_on(suite.play(attacks));
        let faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
        assert!(faults.is_empty(), "{}", faults.join("\n"));
        assert_eq!(PANICS.load(Ordering::SeqCst), before, "a server panicked");
        let figures =
            serde_json::json!({ "suite": name, "long": self.form == Form::Long, "attacks": records });
        let text = serde_json::to_string_pretty(&figures).unwrap();
        if let Some(directory) = std::env::var_os("BILLET_BENCH") {
            std::fs::write(Path::new(&directory).join(format!("hostile-{name}.json")), text).unwrap();
        }
    }
}

fn runtime(name: &str) -> Runtime {
    Builder::new_multi_thread().worker_threads(2).thread_name(name).enable_all().build().unwrap()
}

/// Counts what panics in a server's thread: tokio would only end the task.
fn count_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if std::thread::current().name() == Some(SERVERS) {
                PANICS.fetch_add(1, Ordering::SeqCst);
            }
            before(panic);
        }));
    });
}

fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// That many addresses of this machine.
pub(crate) fn addresses(count: u8) -> Vec<IpAddr> {
    (1..=count).map(|last| Ipv4Addr::new(127, 0, 1, last).into()).collect()
}
