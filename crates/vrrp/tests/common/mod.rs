//! A virtual router of ours in a network namespace of the test's own.
//!
//! Owns: the address as ip(8) gives it to `eth0`, and the driver's thread.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "helpers of tests")]

use std::net::IpAddr;
use std::num::NonZeroU8;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use namespaces::ip;
use tokio::sync::{oneshot, watch};
use vrrp::router::{self, State};
use vrrp::{Address, Driver, Interval, Settings, Status};

/// Of every wait for what has no time of its own.
const DEADLINE: Duration = Duration::from_secs(30);
pub(crate) const VRID: NonZeroU8 = NonZeroU8::new(51).unwrap();

/// Whether `eth0` has this address.
pub(crate) fn is_here(address: IpAddr) -> bool {
    ip("-brief address show dev eth0").contains(&format!(" {}", with_prefix(address)))
}

pub(crate) fn with_prefix(address: IpAddr) -> String {
    format!("{address}/{}", if address.is_ipv4() { 32 } else { 128 })
}

pub(crate) async fn until(what: &str, holds: impl FnMut() -> bool) -> Duration {
    within(DEADLINE, what, holds).await
}

/// Waits for something that has a time; answers how long it took.
pub(crate) async fn within(deadline: Duration, what: &str, mut holds: impl FnMut() -> bool) -> Duration {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < deadline, "{what} within {deadline:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    started.elapsed()
}

/// Looks again and again whether it is so all the time.
pub(crate) async fn throughout(time: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while started.elapsed() < time {
        assert!(holds(), "{what}, after {:?}", started.elapsed());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Priority 150 that preempts, at an interval of 0.2 s.
pub(crate) fn settings(address: IpAddr) -> Settings {
    let interval = Interval::from_centiseconds(20).unwrap();
    let router =
        router::Settings { priority: NonZeroU8::new(150).unwrap(), interval, ..router::Settings::default() };
    Settings { link: "eth0".into(), vrid: VRID, addresses: vec![address], router }
}

/// What the caller's side of a driver was asked for, and whether it does it.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    pub(crate) holds: Vec<Instant>,
    pub(crate) announced: usize,
    pub(crate) fails: bool,
    pub(crate) hangs: bool,
    /// The whole process stops for so long, once.
    pub(crate) stops_for: Duration,
}

/// An address that the kernel takes away within two seconds of the last call.
struct ByIp {
    address: IpAddr,
    calls: Arc<Mutex<Calls>>,
}

impl Address for ByIp {
    async fn hold(&mut self) -> Result<(), String> {
        let (fails, hangs, stops_for) = {
            let mut calls = self.calls.lock().unwrap();
            calls.holds.push(Instant::now());
            (calls.fails, calls.hangs, std::mem::take(&mut calls.stops_for))
        };
        if hangs {
            std::future::pending::<()>().await;
        }
        if fails {
            return Err("there is no room".into());
        }
        let address = with_prefix(self.address);
        let life = if self.address.is_ipv4() { "" } else { " nodad" };
        ip(&format!("address replace {address} dev eth0 valid_lft 1 preferred_lft 0{life}"));
        std::thread::sleep(stops_for);
        Ok(())
    }

    async fn announce(&mut self) -> Result<(), String> {
        assert!(is_here(self.address), "it is announced before it is there");
        self.calls.lock().unwrap().announced += 1;
        Ok(())
    }

    async fn drop_address(&mut self) -> Result<(), String> {
        let address = with_prefix(self.address);
        // The kernel may have taken it away.
        let deleted = Command::new("ip").args(["address", "del", &address, "dev", "eth0"]).output();
        deleted.map(drop).map_err(|error| error.to_string())
    }
}

/// A driver that runs, on a thread of its own: one that stops must not stop the test.
pub(crate) struct Ours {
    address: IpAddr,
    fit: watch::Sender<bool>,
    status: watch::Receiver<Status>,
    stop: oneshot::Sender<()>,
    die: oneshot::Sender<()>,
    thread: JoinHandle<()>,
    calls: Arc<Mutex<Calls>>,
    said: Arc<Mutex<Vec<String>>>,
}

impl Ours {
    pub(crate) fn start(settings: Settings) -> Self {
        let address = settings.addresses[0];
        let driver = Driver::new(settings).unwrap();
        let status = driver.status();
        let (fit, is_fit) = watch::channel(true);
        let (stop, stopped) = oneshot::channel();
        let (die, dead) = oneshot::channel();
        let (calls, said) = (Arc::<Mutex<Calls>>::default(), Arc::<Mutex<Vec<String>>>::default());
        let (their_calls, their_said) = (calls.clone(), said.clone());
        let run = async move {
            let mut by_ip = ByIp { address, calls: their_calls };
            let stop = async { stopped.await.unwrap_or(()) };
            let say = |text: &str| {
                println!("ours: {text}");
                their_said.lock().unwrap().push(text.to_owned());
            };
            tokio::select! {
                () = driver.run(&mut by_ip, is_fit, stop, say) => {}
                _ = dead => {}
            }
        };
        let thread = std::thread::spawn(|| {
            tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(run);
        });
        Self { address, fit, status, stop, die, thread, calls, said }
    }

    pub(crate) fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    pub(crate) fn state(&self) -> State {
        self.status().state
    }

    /// It believes that it has the address, and has it.
    pub(crate) fn holds(&self) -> bool {
        self.state() == State::Active && is_here(self.address)
    }

    pub(crate) fn is_without(&self) -> bool {
        self.state() != State::Active && !is_here(self.address)
    }

    pub(crate) fn set_fit(&self, fit: bool) {
        self.fit.send_replace(fit);
    }

    pub(crate) fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap()
    }

    pub(crate) fn said(&self) -> Vec<String> {
        self.said.lock().unwrap().clone()
    }

    /// Ends it; the address is gone then.
    pub(crate) async fn stop(self) {
        let _ = self.stop.send(());
        until("it ends", || self.thread.is_finished()).await;
        self.thread.join().unwrap();
        assert!(!is_here(self.address));
    }

    /// Ends it as if the process had died.
    pub(crate) async fn drop_dead(self) {
        let _ = self.die.send(());
        until("it ends", || self.thread.is_finished()).await;
        self.thread.join().unwrap();
    }
}
