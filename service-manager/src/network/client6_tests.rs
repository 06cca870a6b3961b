//! The client beside dnsmasq, each in a network namespace of its own.

use std::fs;
use std::path::Path;

use super::super::kept::LEASES;
use super::*;
use crate::network::testing::{Dnsmasq, Neighbour, ip, is_inside, until};

const TEST: &str = "network::client6::tests::addresses_are_taken_kept_confirmed_declined_and_given_back";
pub(super) const MAC: [u8; 6] = [0x52, 0x54, 0, 1, 2, 3];

/// The other end of eth0: a namespace with a server.
struct Server {
    neighbour: Neighbour,
    dnsmasq: Dnsmasq,
}

impl Server {
    fn start(directory: &Path) -> Self {
        let neighbour = Neighbour::start();
        neighbour.ip("address add fd00:9::1/64 dev srv0 nodad");
        let arguments = "--port=0 --log-dhcp --interface=srv0 --dhcp-authoritative \
            --dhcp-range=fd00:9::100,fd00:9::1ff,64,1h --dhcp-option=option6:dns-server,[fd00:9::3] \
            --dhcp-option=option6:domain-search,a.example --dhcp-option=option6:ntp-server,[fd00:9::4]";
        let dnsmasq = Dnsmasq::start(neighbour.inside("dnsmasq"), directory, arguments);
        Self { neighbour, dnsmasq }
    }
}

pub(super) fn shown(runtime: &Runtime) -> Option<DhcpLease> {
    match &runtime.store.get(&DHCP_LEASE, "eth0/6")?.spec {
        Spec::DhcpLease(lease) => Some(lease.clone()),
        _ => None,
    }
}

pub(super) struct Running {
    pub(super) told: watch::Sender<ClientInput>,
    pub(super) task: tokio::task::JoinHandle<()>,
}

/// Nothing else starts here, and a test is not to wait a second each time.
pub(super) fn settings() -> Settings {
    Settings { hardware: MAC, first_delay: Duration::ZERO, ..Settings::default() }
}

fn start(runtime: &Arc<Runtime>, handle: &Handle, kept: &Arc<Kept>, index: u32) -> Running {
    start_as(runtime, handle, kept, index, settings())
}

pub(super) fn start_as(
    runtime: &Arc<Runtime>,
    handle: &Handle,
    kept: &Arc<Kept>,
    index: u32,
    settings: Settings,
) -> Running {
    let hardware = settings.hardware.to_vec();
    let link = Link { index, name: "eth0".into(), hardware, carrier: true, ..Link::default() };
    let (told, receiver) = watch::channel(ClientInput { settings, carrier: true, ups: 1 });
    let task = tokio::spawn(run(runtime.clone(), handle.clone(), kept.clone(), link, receiver));
    Running { told, task }
}

pub(super) fn addresses() -> String {
    ip("-6 -o address show dev eth0 scope global")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn addresses_are_taken_kept_confirmed_declined_and_given_back() {
    if !is_inside(TEST) {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let server = Server::start(root.path());
    let runtime = Runtime::detached(root.path().to_owned());
    fs::create_dir_all(runtime.path("/system/run/machined")).unwrap();
    let (connection, handle, _) = rtnetlink::new_connection().unwrap();
    tokio::spawn(connection);
    let kept = Kept::read(&runtime, LEASES);
    let index = ip("-o link show eth0").split(':').next().unwrap().trim().parse().unwrap();

    // The first lease: by four messages, with all that the server tells.
    let client = start(&runtime, &handle, &kept, index);
    until("a lease", || shown(&runtime).is_some()).await;
    let first = shown(&runtime).unwrap();
    assert!(first.address.starts_with("fd00:9::1") && first.address.ends_with("/128"), "{first:?}");
    assert_eq!((first.resolvers.as_slice(), first.lease_seconds), (&["fd00:9::3".to_owned()][..], 3600));
    assert_eq!(
        (first.search_domains[0].as_str(), first.time_servers[0].as_str()),
        ("a.example", "fd00:9::4")
    );
    let alone = first.address.clone();
    assert!(addresses().contains(&alone) && addresses().contains("valid_lft 3"), "{}", addresses());
    assert!(kept.get(&MAC).is_some_and(|text| text.parse::<KeptLease>().is_ok()));

    // The cable was out for a moment: the server is asked whether the address still fits.
    let before = server.dnsmasq.heard(0).len();
    client.told.send_modify(|told| told.ups += 1);
    server.dnsmasq.hears(before, "DHCPCONFIRM").await;
    until("the same lease", || shown(&runtime).is_some_and(|lease| lease.address == alone)).await;

    // A client that is ended gives it back.
    let before = server.dnsmasq.heard(0).len();
    client.task.abort();
    let _ = client.task.await;
    server.dnsmasq.hears(before, "DHCPRELEASE").await;
    // What it left in the kernel and in the file goes with it.
    let link = Link { index, name: "eth0".into(), hardware: MAC.to_vec(), ..Link::default() };
    remove_all(&runtime, &handle, &kept, &link).await;
    assert_eq!((addresses().as_str(), kept.get(&MAC), shown(&runtime)), ("", None, None));

    // Another machine has the address that the server gives: it is declined, and another one is taken.
    server.neighbour.ip(&format!("address add {alone} dev srv0 nodad"));
    let before = server.dnsmasq.heard(0).len();
    let client = start(&runtime, &handle, &kept, index);
    server.dnsmasq.hears(before, "DHCPDECLINE").await;
    until("another address", || shown(&runtime).is_some_and(|lease| lease.address != alone)).await;
    assert!(!addresses().contains(&alone), "{}", addresses());
    client.task.abort();
}
