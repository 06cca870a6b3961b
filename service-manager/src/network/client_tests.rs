//! The client beside dnsmasq, each in a network namespace of its own.

use std::fs;
use std::path::Path;

use dhcp::Settings;

use super::*;
use crate::network::testing::{Directory, Dnsmasq, Neighbour, ip, is_inside, until};

const TEST: &str = "network::client::tests::a_lease_is_taken_kept_asked_for_again_given_up_and_given_back";
pub(super) const MAC: [u8; 6] = [0x52, 0x54, 0, 1, 2, 3];

/// The other end of eth0: a namespace with a server.
struct Server {
    neighbour: Neighbour,
    dnsmasq: Dnsmasq,
}

impl Server {
    fn start(directory: &Path) -> Self {
        let neighbour = Neighbour::start();
        neighbour.ip("address add 10.9.0.1/24 dev srv0");
        let arguments = "--port=0 --log-dhcp --interface=srv0 --no-ping --dhcp-authoritative \
            --dhcp-range=10.9.0.10,10.9.0.20,255.255.255.0,1h --dhcp-option=option:router,10.9.0.1 \
            --dhcp-option=option:dns-server,10.9.0.3 --dhcp-option=option:domain-search,a.example,b.example \
            --dhcp-option=121,10.7.0.0/16,10.9.0.2,0.0.0.0/0,10.9.0.1";
        let dnsmasq = Dnsmasq::start(neighbour.inside("dnsmasq"), directory, arguments);
        Self { neighbour, dnsmasq }
    }
}

pub(super) fn lease(runtime: &Runtime) -> Option<DhcpLease> {
    let found = runtime.store.get(&DHCP_LEASE, "eth0")?;
    match &found.spec {
        Spec::DhcpLease(lease) => Some(lease.clone()),
        _ => None,
    }
}

fn leased(runtime: &Runtime) -> Option<String> {
    lease(runtime).map(|lease| lease.address)
}

pub(super) struct Running {
    pub(super) runtime: Arc<Runtime>,
    pub(super) told: watch::Sender<ClientInput>,
    pub(super) task: tokio::task::JoinHandle<()>,
}

fn begin(directory: &Path, handle: &Handle) -> Running {
    begin_as(directory, handle, Settings { hardware: MAC, ..Settings::default() })
}

pub(super) fn begin_as(directory: &Path, handle: &Handle, settings: Settings) -> Running {
    let hardware = settings.hardware;
    let runtime = Runtime::detached(directory.to_path_buf());
    let kept = Kept::read(&runtime, crate::network::kept::ADDRESSES);
    let (_, disk) = watch::channel(Some(Directory(directory.to_owned())));
    tokio::spawn(kept.clone().follow(disk));
    let index = ip("-oneline link show eth0");
    let index = index.split(':').next().unwrap().parse().unwrap();
    let link = Link { index, name: "eth0".into(), hardware: hardware.to_vec(), ..Link::default() };
    let asked = Asked { settings, metric: 7, takes_routes: true };
    let (told, receiver) =
        watch::channel(ClientInput { asked, carrier: true, ups: 1, own: vec![hardware.to_vec()] });
    let task = tokio::spawn(run(runtime.clone(), handle.clone(), kept, link, receiver));
    Running { runtime, told, task }
}

#[tokio::test]
async fn a_lease_is_taken_kept_asked_for_again_given_up_and_given_back() {
    if !is_inside(TEST) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    fs::create_dir_all(directory.join("system/run/machined")).unwrap();
    let server = Server::start(directory);
    let (connection, handle, _) = rtnetlink::new_connection().unwrap();
    tokio::spawn(connection);

    // The first lease: address for its time, routes of option 121, search list.
    let running = begin(directory, &handle);
    until("a lease", || leased(&running.runtime).is_some()).await;
    let first = leased(&running.runtime).unwrap();
    assert!(first.starts_with("10.9.0.1") && first.ends_with("/24"), "{first}");
    let shown = ip("address show dev eth0");
    assert!(shown.contains(&format!("inet {first}")) && !shown.contains("inet 10.9.0.1/"), "{shown}");
    assert!(shown.contains("valid_lft 3600sec") || shown.contains("valid_lft 3599sec"), "{shown}");
    let routes = ip("route");
    assert!(routes.contains("default via 10.9.0.1 dev eth0 proto dhcp"), "{routes}");
    assert!(routes.contains("10.7.0.0/16 via 10.9.0.2") && routes.contains("metric 7"), "{routes}");
    let lease = running.runtime.store.get(&DHCP_LEASE, "eth0").unwrap().spec.yaml().unwrap();
    assert!(["10.9.0.3", "a.example", "b.example"].iter().all(|word| lease.contains(word)), "{lease}");
    let text = fs::read_to_string(directory.join("dhcp-addresses.json")).unwrap();
    assert!(text.contains(first.trim_end_matches("/24")), "{text}");

    // A cable that comes back: the same address, and no question for servers.
    let count = server.dnsmasq.heard(0).len();
    running.told.send_modify(|told| told.carrier = false);
    running.told.send_modify(|told| told.asked.metric = 9);
    until("routes with another metric", || ip("route").contains("metric 9")).await;
    assert!(!ip("route").contains("metric 7"));
    running.told.send_modify(|told| told.carrier = true);
    server.dnsmasq.hears(count, "DHCPACK").await;
    assert_eq!(server.dnsmasq.heard(count)[0], "DHCPREQUEST");

    // A client that ends gives it back.
    let count = server.dnsmasq.heard(0).len();
    running.task.abort();
    let _ = running.task.await;
    server.dnsmasq.hears(count, "DHCPRELEASE").await;

    // Another one asks for the address of before.
    let count = server.dnsmasq.heard(0).len();
    let running = begin(directory, &handle);
    until("a lease", || leased(&running.runtime).is_some()).await;
    assert_eq!(
        (server.dnsmasq.heard(count)[0].as_str(), leased(&running.runtime)),
        ("DHCPREQUEST", Some(first.clone()))
    );

    // Another machine has it, and answers a probe.
    server.neighbour.ip(&format!("address add {} dev srv0", first.replace("/24", "/32")));
    server.dnsmasq.hears(count, "DHCPDECLINE").await;
    until("no lease", || leased(&running.runtime) != Some(first.clone())).await;
    assert!(!ip("address show dev eth0").contains(&first));
    until("another lease", || leased(&running.runtime).is_some()).await;
    assert_ne!(leased(&running.runtime).unwrap(), first);
    running.task.abort();
    let _ = running.task.await;
}
