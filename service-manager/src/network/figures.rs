//! networkd by itself in a process of its own, for `cargo xtask bench network`.
//!
//! Owns: the figures of many routes, as `network-*.json` in the directory that `BILLET_BENCH` names; and a networkd that runs until
//! its process is ended, for the time that a lease takes. Without that directory there is nothing to do.
//! Does not: judge. Processor time is that of the whole process: networkd's, and the little that it takes to look.

use std::fs;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::RouteProtocol;
use rtnetlink::RouteMessageBuilder;
use runtime::Runtime;
use runtime::store::{IN_FORCE, LINK_STATUS, MACHINE_CONFIG, MachineDocument, ROUTE_STATUS, Spec};
use rustix::process::{WaitId, WaitIdOptions, waitid};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::batch;
use super::testing::{Directory, ip, is_inside};

const STATIC: u32 = 10_000;
const FOREIGN: u32 = 100_000;
const ROUNDS: usize = 21;
/// The network of the link that all routes are of.
const NEIGHBOUR: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
/// So many looks in a row, this far apart, that find no work done end a wait.
const LOOK: Duration = Duration::from_millis(100);
const QUIET: u32 = 5;
const IDLE_US: u64 = 300;
const LIMIT: Duration = Duration::from_secs(120);

/// Where figures go.
fn directory() -> Option<PathBuf> {
    std::env::var_os("BILLET_BENCH").map(PathBuf::from)
}

/// Processor time of this process in microseconds.
fn cpu_us() -> u64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    u64::try_from(now.tv_sec * 1_000_000 + now.tv_nsec / 1000).unwrap()
}

/// Resident memory of this process in KiB.
fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim_end_matches("kB").trim().parse().unwrap()
}

fn us(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap()
}

/// Destinations that no two routes share.
fn destination(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0b00_0000 + number * 256)
}

struct Networkd {
    runtime: Arc<Runtime>,
    _root: Option<tempfile::TempDir>,
}

impl Networkd {
    /// Starts it, and waits until it knows the links. `state` is kept from one process to the next.
    async fn start(config: &str, state: Option<&Path>) -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("system/run/machined")).unwrap();
        let runtime = Runtime::detached(root.path().to_owned());
        let networkd = Self { runtime: runtime.clone(), _root: Some(root) };
        networkd.force(document(config));
        let disk = watch::channel(state.map(|state| Directory(state.to_owned()))).1;
        tokio::spawn(async move {
            let ended = super::run(runtime, disk, std::future::pending()).await;
            eprintln!("networkd ended: {ended:?}");
            std::process::exit(1);
        });
        let begin = Instant::now();
        while networkd.runtime.store.list(&LINK_STATUS).is_empty() {
            assert!(begin.elapsed() < LIMIT, "networkd shows no links");
            tokio::time::sleep(LOOK).await;
        }
        networkd
    }

    /// Puts a config into force as machined does, and frees it if it is the one in force.
    fn force(&self, document: MachineDocument) {
        let spec = Spec::MachineConfig(Arc::new(document));
        self.runtime.store.put(MACHINE_CONFIG.writer, &MACHINE_CONFIG, IN_FORCE, spec).unwrap();
        let in_force = self.runtime.document().expect("it was put");
        self.runtime.config.send_replace(Some(in_force.config.clone()));
    }

    /// Waits until it has nothing more to do.
    async fn idle(&self) {
        let (begin, mut quiet) = (Instant::now(), 0);
        while quiet < QUIET {
            let before = cpu_us();
            tokio::time::sleep(LOOK).await;
            quiet = if cpu_us() - before < IDLE_US { quiet + 1 } else { 0 };
            assert!(begin.elapsed() < LIMIT, "networkd does not come to rest");
        }
    }
}

fn document(text: &str) -> MachineDocument {
    let loaded = config::load(text.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
    let text = zeroize::Zeroizing::new(text.to_owned());
    MachineDocument::new(text, loaded.config, loaded.documents)
}

fn config(interfaces: &str) -> String {
    format!(
        "version: v1alpha1\nmachine:\n  type: worker\n  token: aaaaaa.bbbbbbbbbbbbbbbb\n  network:\n    interfaces:\n{interfaces}"
    )
}

fn keep(name: &str, figures: &Value) {
    fs::write(directory().unwrap().join(format!("network-{name}.json")), figures.to_string()).unwrap();
}

/// Runs ip(8) on a file of commands; its processor time in microseconds.
fn ip_batch(text: &str) -> u64 {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    let mut child = Command::new("ip").arg("-batch").arg(file.path()).spawn().unwrap();
    let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw).unwrap();
    waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
    let spent = fs::read_to_string(format!("/proc/{}/schedstat", child.id())).unwrap();
    assert!(child.wait().unwrap().success());
    spent.split(' ').next().unwrap().parse::<u64>().unwrap() / 1000
}

fn make_link() {
    ip("link set lo up");
    ip("link add eth0 type veth peer name end0");
    ip("link set end0 up");
    ip("link set eth0 up");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "for cargo xtask bench network"]
async fn many_static_routes() {
    if directory().is_none() || !is_inside("network::figures::many_static_routes") {
        return;
    }
    make_link();
    let commands = |prefix: &str| -> String {
        (0..STATIC)
            .map(|number| format!("route {prefix} {}/24 via {NEIGHBOUR} metric 1024\n", destination(number)))
            .collect()
    };
    ip("address add 10.9.0.1/24 dev eth0");
    let ip_us: Vec<u64> = (0..3)
        .map(|_| {
            let spent = ip_batch(&commands("add"));
            ip_batch(&commands("del"));
            spent
        })
        .collect();
    ip("address del 10.9.0.1/24 dev eth0");
    let few = "      - interface: eth0\n        addresses: [10.9.0.1/24]\n";
    let networkd = Networkd::start(&config(few), None).await;
    networkd.idle().await;
    let routes: String = (0..STATIC)
        .map(|number| format!("          - {{network: {}/24, gateway: {NEIGHBOUR}}}\n", destination(number)))
        .collect();
    let text = config(&format!("{few}        routes:\n{routes}"));
    let (begin, before) = (Instant::now(), cpu_us());
    let many = document(&text);
    let (parsed_us, parsed_cpu_us) = (us(begin), cpu_us() - before);
    let before = cpu_us();
    networkd.force(many);
    networkd.idle().await;
    let brought_us = cpu_us() - before;
    let count = ip("route show via 10.9.0.2").lines().count();
    assert_eq!(count, usize::try_from(STATIC).unwrap());
    assert!(networkd.runtime.store.list(&ROUTE_STATUS).len() > count);
    let mut unchanged_us = Vec::new();
    for _ in 0..ROUNDS {
        let again = document(&text);
        networkd.idle().await;
        let before = cpu_us();
        networkd.force(again);
        tokio::time::sleep(LOOK).await;
        unchanged_us.push(cpu_us() - before);
    }
    keep(
        "static",
        &json!({
            "routes": STATIC, "ip_batch_us": ip_us, "brought_us": brought_us, "parsed_us": parsed_us,
            "parsed_cpu_us": parsed_cpu_us, "unchanged_us": unchanged_us,
        }),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "for cargo xtask bench network"]
async fn one_route_beside_many_foreign_ones() {
    if directory().is_none() || !is_inside("network::figures::one_route_beside_many_foreign_ones") {
        return;
    }
    make_link();
    let interfaces = "      - interface: eth0\n        addresses: [10.9.0.1/24]\n";
    let networkd = Networkd::start(&config(interfaces), None).await;
    networkd.idle().await;
    let (before_kib, before_us) = (resident_kib(), cpu_us());
    let commands: String = (0..FOREIGN)
        .map(|number| format!("route add {}/24 via {NEIGHBOUR} proto bird\n", destination(number)))
        .collect();
    ip_batch(&commands);
    networkd.idle().await;
    let (grown_kib, followed_us) = (resident_kib() - before_kib, cpu_us() - before_us);
    let (mut shown_us, mut spent_us) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        networkd.idle().await;
        let protocol = if round % 2 == 0 { RouteProtocol::Bgp } else { RouteProtocol::Ospf };
        let index = ip("-oneline link show eth0").split(':').next().unwrap().parse().unwrap();
        let route = RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(destination(FOREIGN / 2), 24)
            .output_interface(index)
            .gateway(NEIGHBOUR)
            .protocol(protocol)
            .build();
        let mut later = networkd.runtime.store.changes();
        let (begin, before) = (Instant::now(), cpu_us());
        let changed = batch::send(vec![(RouteNetlinkMessage::NewRoute(route), NLM_F_CREATE | NLM_F_REPLACE)]);
        assert!(changed.unwrap().is_empty());
        loop {
            let change = tokio::time::timeout(LIMIT, later.recv()).await.unwrap().unwrap();
            if change.resource.metadata.kind == ROUTE_STATUS.kind {
                break;
            }
        }
        shown_us.push(us(begin));
        drop(later);
        tokio::time::sleep(LOOK).await;
        spent_us.push(cpu_us() - before);
    }
    assert!(networkd.runtime.store.list(&ROUTE_STATUS).len() > usize::try_from(FOREIGN).unwrap());
    keep(
        "foreign",
        &json!({
            "routes": FOREIGN, "grown_kib": grown_kib, "followed_us": followed_us, "shown_us": shown_us,
            "spent_us": spent_us,
        }),
    );
}

/// Asks DHCP on eth0 of the namespace that it is started in, until it is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "for cargo xtask bench network"]
async fn a_client_of_dhcp() {
    let Some(directory) = directory() else { return };
    let interfaces = "      - interface: eth0\n        dhcp: true\n";
    let _networkd = Networkd::start(&config(interfaces), Some(&directory)).await;
    println!("ready");
    std::future::pending::<()>().await;
}
