//! Our router and keepalived at the two ends of a wire, each in a network namespace of its own.
//!
//! Owns: who has the address after each of them starts, ends, dies, or is better. Needs keepalived; without it these fail.
//! Source: keepalived.conf(5).
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::fs::{self, File};
use std::net::IpAddr;
use std::process::{Child, Command};
use std::time::Duration;

use common::{Ours, VRID, is_here, settings, throughout, until, with_prefix, within};
use namespaces::{Neighbour, ip, is_inside};
use tempfile::TempDir;
use vrrp::router::State;
use vrrp::{Interval, Settings};

/// Of priority 100 at intervals of 0.2 s: three of them, and 0.12 s. A test that looks at times leaves room for a machine
/// that has other work.
const DOWN: Duration = Duration::from_millis(722);
const ROOM: Duration = Duration::from_secs(2);

const ADDRESSES: [&str; 2] = ["10.9.0.100", "fd00:9::100"];

fn addresses() -> [IpAddr; 2] {
    ADDRESSES.map(|text| text.parse().unwrap())
}

/// The machine of keepalived at the other end of the wire.
struct OtherEnd(Neighbour);

impl OtherEnd {
    /// Both ends have addresses.
    fn start() -> Self {
        let neighbour = Neighbour::start();
        ip("address add 10.9.0.1/24 dev eth0");
        neighbour.ip("address add 10.9.0.2/24 dev srv0");
        Self(neighbour)
    }

    fn has(&self, address: IpAddr) -> bool {
        self.0.ip("-brief address show dev srv0").contains(&format!(" {}", with_prefix(address)))
    }

    /// The machine of a keepalived that died is gone too.
    fn forget(&self, address: IpAddr) {
        self.0.ip(&format!("address del {} dev srv0", with_prefix(address)));
    }
}

/// What is different from one test to another.
#[derive(Clone, Copy)]
struct Peer {
    address: IpAddr,
    priority: u8,
    preempts: bool,
    /// As its configuration has it.
    interval: &'static str,
}

fn peer(address: IpAddr) -> Peer {
    Peer { address, priority: 100, preempts: true, interval: "0.2" }
}

/// keepalived, which lives as long as this.
struct Keepalived {
    child: Child,
    directory: TempDir,
    has_ended: bool,
}

impl Keepalived {
    async fn start(neighbour: &OtherEnd, peer: Peer) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        fs::write(path("conf"), configuration(peer)).unwrap();
        let log = File::create(path("log")).unwrap();
        let child = neighbour
            .0
            .inside("keepalived")
            .args(["--dont-fork", "--log-console", "--vrrp", "--use-file", &path("conf")])
            .args(["--pid", &path("pid"), "--vrrp_pid", &path("vrrp-pid")])
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut keepalived = Self { child, directory, has_ended: false };
        until("keepalived starts", || {
            let ended = keepalived.child.try_wait().unwrap();
            let hint = "install it with: apt-get install keepalived";
            assert!(ended.is_none(), "keepalived ended ({hint}): {ended:?}\n{}", keepalived.log());
            keepalived.log().contains("Entering BACKUP STATE")
        })
        .await;
        keepalived
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap()
    }

    /// SIGTERM: it gives the addresses up.
    async fn stop(mut self) {
        signal("TERM", self.child.id());
        until("keepalived ends", || self.child.try_wait().unwrap().is_some()).await;
        self.has_ended = true;
    }

    /// Both of its processes, at once: it has no time to say anything. The second one would be ended in good order with
    /// the first, so it is stopped before.
    fn kill(&mut self) {
        let number = fs::read_to_string(self.directory.path().join("vrrp-pid"));
        let second: Option<u32> = number.ok().and_then(|text| text.trim().parse().ok());
        if let Some(second) = second {
            signal("STOP", second);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(second) = second {
            signal("KILL", second);
        }
        self.has_ended = true;
    }
}

impl Drop for Keepalived {
    fn drop(&mut self) {
        if !self.has_ended {
            self.kill();
        }
        let log = self.log();
        println!("{log}");
        if !std::thread::panicking() {
            let lower = log.to_lowercase();
            assert!(!lower.contains("checksum") && !lower.contains("invalid"), "keepalived complains");
        }
    }
}

fn signal(name: &str, process: u32) {
    let _ = Command::new("kill").args([&format!("-{name}"), &process.to_string()]).status();
}

fn configuration(peer: Peer) -> String {
    let Peer { priority, interval, .. } = peer;
    let preempts = if peer.preempts { "" } else { "nopreempt" };
    format!(
        "global_defs {{\n vrrp_version 3\n}}\n\
         vrrp_instance test {{\n state BACKUP\n interface srv0\n virtual_router_id {VRID}\n priority {priority}\n \
         advert_int {interval}\n {preempts}\n virtual_ipaddress {{\n  {}\n }}\n}}\n",
        with_prefix(peer.address)
    )
}

fn with_priority(address: IpAddr, priority: u8) -> Settings {
    let mut settings = settings(address);
    settings.router.priority = priority.try_into().unwrap();
    settings
}

fn is_ours(neighbour: &OtherEnd, ours: &Ours, address: IpAddr) -> bool {
    ours.holds() && !neighbour.has(address)
}

fn is_theirs(neighbour: &OtherEnd, ours: &Ours, address: IpAddr) -> bool {
    ours.is_without() && neighbour.has(address)
}

/// It is ours, and stays so for longer than either waits for the other.
async fn settles_here(neighbour: &OtherEnd, ours: &Ours, address: IpAddr) {
    until("it is ours", || is_ours(neighbour, ours, address)).await;
    throughout(2 * DOWN, "it stays ours", || is_ours(neighbour, ours, address)).await;
}

async fn settles_there(neighbour: &OtherEnd, ours: &Ours, address: IpAddr) {
    until("it is theirs", || is_theirs(neighbour, ours, address)).await;
    throughout(2 * DOWN, "it stays theirs", || is_theirs(neighbour, ours, address)).await;
}

#[tokio::test]
async fn we_take_over_when_keepalived_dies() {
    if !is_inside("we_take_over_when_keepalived_dies") {
        return;
    }
    let neighbour = OtherEnd::start();
    for address in addresses() {
        let mut keepalived = Keepalived::start(&neighbour, peer(address)).await;
        until("it is theirs", || neighbour.has(address)).await;
        let ours = Ours::start(with_priority(address, 50));
        until("we hear them", || ours.status().active.is_some()).await;
        settles_there(&neighbour, &ours, address).await;
        keepalived.kill();
        neighbour.forget(address);
        within(DOWN + ROOM, "it is ours", || ours.holds()).await;
        settles_here(&neighbour, &ours, address).await;
        assert_eq!(ours.said(), [""; 0]);
        ours.stop().await;
    }
}

#[tokio::test]
async fn we_take_over_at_once_when_keepalived_stops() {
    if !is_inside("we_take_over_at_once_when_keepalived_stops") {
        return;
    }
    let neighbour = OtherEnd::start();
    for address in addresses() {
        let keepalived =
            Keepalived::start(&neighbour, Peer { priority: 254, interval: "1", ..peer(address) }).await;
        let mut settings = with_priority(address, 250);
        settings.router.interval = Interval::DEFAULT;
        let ours = Ours::start(settings);
        until("it is theirs", || is_theirs(&neighbour, &ours, address)).await;
        until("we hear them", || ours.status().active.is_some()).await;
        let stopped = async {
            keepalived.stop().await;
            std::future::pending::<()>().await;
        };
        // Active_Down_Interval has two intervals left at least. Skew_Time is 23 ms.
        let took = tokio::select! {
            took = within(Duration::from_secs(2), "it is ours", || ours.holds()) => took,
            () = stopped => unreachable!(),
        };
        println!("taken over after {took:?}");
        until("they leave it", || is_ours(&neighbour, &ours, address)).await;
        ours.stop().await;
    }
}

#[tokio::test]
async fn keepalived_takes_over_at_once_when_we_stop() {
    if !is_inside("keepalived_takes_over_at_once_when_we_stop") {
        return;
    }
    let neighbour = OtherEnd::start();
    for address in addresses() {
        let mut settings = with_priority(address, 254);
        settings.router.interval = Interval::DEFAULT;
        let ours = Ours::start(settings);
        until("it is ours", || ours.holds()).await;
        let _keepalived =
            Keepalived::start(&neighbour, Peer { priority: 250, interval: "1", ..peer(address) }).await;
        throughout(Duration::from_secs(4), "it stays ours", || is_ours(&neighbour, &ours, address)).await;
        ours.stop().await;
        let took = within(Duration::from_secs(2), "it is theirs", || neighbour.has(address)).await;
        println!("taken over after {took:?}");
    }
}

#[tokio::test]
async fn keepalived_takes_over_when_we_die() {
    if !is_inside("keepalived_takes_over_when_we_die") {
        return;
    }
    let neighbour = OtherEnd::start();
    for address in addresses() {
        let ours = Ours::start(settings(address));
        until("it is ours", || ours.holds()).await;
        let _keepalived = Keepalived::start(&neighbour, peer(address)).await;
        settles_here(&neighbour, &ours, address).await;
        ours.drop_dead().await;
        within(DOWN + ROOM, "it is theirs", || neighbour.has(address)).await;
        within(Duration::from_secs(2) + ROOM, "the kernel takes it from us", || !is_here(address)).await;
    }
}

#[tokio::test]
async fn who_is_unfit_leaves_the_address_and_is_silent() {
    if !is_inside("who_is_unfit_leaves_the_address_and_is_silent") {
        return;
    }
    let neighbour = OtherEnd::start();
    for address in addresses() {
        let _keepalived = Keepalived::start(&neighbour, peer(address)).await;
        let ours = Ours::start(settings(address));
        settles_here(&neighbour, &ours, address).await;
        ours.set_fit(false);
        settles_there(&neighbour, &ours, address).await;
        assert_eq!(ours.state(), State::Initialize);
        ours.set_fit(true);
        settles_here(&neighbour, &ours, address).await;
        ours.stop().await;
    }
}

#[tokio::test]
async fn the_higher_priority_preempts() {
    if !is_inside("the_higher_priority_preempts") {
        return;
    }
    let neighbour = OtherEnd::start();
    for address in addresses() {
        // Theirs, then ours, which is better, then another of theirs, which is better still.
        let keepalived = Keepalived::start(&neighbour, peer(address)).await;
        until("it is theirs", || neighbour.has(address)).await;
        let ours = Ours::start(with_priority(address, 150));
        settles_here(&neighbour, &ours, address).await;
        assert!(ours.calls().announced > 0);
        keepalived.stop().await;
        let keepalived = Keepalived::start(&neighbour, Peer { priority: 200, ..peer(address) }).await;
        settles_there(&neighbour, &ours, address).await;
        assert_eq!((ours.status().malformed, ours.status().ignored), (0, 0));
        keepalived.stop().await;
        ours.stop().await;
    }
}

#[tokio::test]
async fn who_does_not_preempt_leaves_the_address_to_the_other() {
    if !is_inside("who_does_not_preempt_leaves_the_address_to_the_other") {
        return;
    }
    let neighbour = OtherEnd::start();
    for address in addresses() {
        // We are better, and come second.
        let keepalived = Keepalived::start(&neighbour, peer(address)).await;
        until("it is theirs", || neighbour.has(address)).await;
        let mut better = with_priority(address, 150);
        better.router.preempts = false;
        let ours = Ours::start(better);
        until("we hear them", || ours.status().active.is_some()).await;
        settles_there(&neighbour, &ours, address).await;
        // They are better, and come second.
        keepalived.stop().await;
        until("it is ours", || ours.holds()).await;
        let second = Peer { priority: 200, preempts: false, ..peer(address) };
        let _keepalived = Keepalived::start(&neighbour, second).await;
        settles_here(&neighbour, &ours, address).await;
        ours.stop().await;
    }
}

#[tokio::test]
async fn a_router_that_was_stopped_hears_first_who_took_over() {
    if !is_inside("a_router_that_was_stopped_hears_first_who_took_over") {
        return;
    }
    let neighbour = OtherEnd::start();
    for address in addresses() {
        let ours = Ours::start(settings(address));
        until("it is ours", || ours.holds()).await;
        let second = Peer { priority: 200, preempts: false, ..peer(address) };
        let _keepalived = Keepalived::start(&neighbour, second).await;
        settles_here(&neighbour, &ours, address).await;
        ours.calls().stops_for = Duration::from_secs(5);
        until("it stops", || ours.calls().stops_for.is_zero()).await;
        let held = ours.calls().holds.len();
        until("the kernel takes it from us", || neighbour.has(address) && !is_here(address)).await;
        // It believes still that it has the address.
        assert_eq!(ours.state(), State::Active);
        until("it hears them", || ours.state() == State::Backup).await;
        settles_there(&neighbour, &ours, address).await;
        assert_eq!(ours.calls().holds.len(), held, "it was not held again");
        ours.stop().await;
    }
}
