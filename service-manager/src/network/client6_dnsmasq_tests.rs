//! The client of DHCPv6 beside dnsmasq in rare situations: power cuts, renewals, servers that forgot or have other addresses.

use std::fs;
use std::path::Path;

use super::super::kept::LEASES;
use super::tests::{MAC, Running, addresses, settings, shown, start_as};
use super::*;
use crate::network::testing::{Dnsmasq, Neighbour, ip, is_inside, until};

/// The shortest time that dnsmasq gives: T1 is a minute, T2 105 s.
const RANGE: &str = "--dhcp-range=fd00:9::100,fd00:9::1ff,64,2m";
const OTHER_RANGE: &str = "--dhcp-range=fd00:8::200,fd00:8::2ff,64,2m";

/// A machine with a card, and what lies beyond.
struct Place {
    root: tempfile::TempDir,
    neighbour: Neighbour,
    runtime: Arc<Runtime>,
    handle: Handle,
    kept: Arc<Kept>,
    index: u32,
}

impl Place {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let neighbour = Neighbour::start();
        neighbour.ip("address add fd00:9::1/64 dev srv0 nodad");
        let runtime = Runtime::detached(root.path().to_owned());
        fs::create_dir_all(runtime.path("/system/run/machined")).unwrap();
        let (connection, handle, _) = rtnetlink::new_connection().unwrap();
        tokio::spawn(connection);
        let kept = Kept::read(&runtime, LEASES);
        let index = ip("-o link show eth0").split(':').next().unwrap().trim().parse().unwrap();
        Self { root, neighbour, runtime, handle, kept, index }
    }

    async fn server(&self, range: &str) -> Dnsmasq {
        // Its DUID is in the file of leases otherwise: one that forgot would be another server.
        let fixed = "--port=0 --log-dhcp --interface=srv0 --dhcp-authoritative --dhcp-duid=2495,01";
        let arguments = format!("{fixed} {range}");
        Dnsmasq::start(self.neighbour.inside("dnsmasq"), self.root.path(), &arguments).started().await
    }

    async fn forgetful_server(&self, range: &str) -> Dnsmasq {
        fs::remove_file(Path::new(self.root.path()).join("leases")).unwrap();
        self.server(range).await
    }

    fn client(&self) -> Running {
        start_as(&self.runtime, &self.handle, &self.kept, self.index, settings())
    }

    fn address(&self) -> String {
        shown(&self.runtime).map(|lease| lease.address).unwrap_or_default()
    }

    /// Waits for an address that begins so, and that the link has as its only one.
    async fn has(&self, start: &str) {
        until(start, || {
            let shown = addresses();
            self.address().starts_with(start) && shown.lines().count() == 1 && shown.contains(start)
        })
        .await;
    }

    /// The machine is gone at once, and nothing of it reaches the wire; another machined knows what is in the files.
    async fn power_cut(&mut self, client: Running) {
        self.neighbour.ip("link set srv0 down");
        client.task.abort();
        let _ = client.task.await;
        ip("-6 address flush dev eth0 scope global");
        forget_lease(&self.runtime, "eth0");
        self.kept = Kept::read(&self.runtime, LEASES);
        self.neighbour.ip("link set srv0 up");
        self.neighbour.ip("address replace fd00:9::1/64 dev srv0 nodad");
    }
}

fn is_in_order(messages: &[String], wanted: &[&str]) -> bool {
    let mut left = messages.iter();
    wanted.iter().all(|wanted| left.any(|message| message == wanted))
}

const REBOOT: &str = "network::client6::dnsmasq_tests::a_lease_outlives_a_power_cut_and_goes_on_another_link";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long run"]
async fn a_lease_outlives_a_power_cut_and_goes_on_another_link() {
    if !is_inside(REBOOT) {
        return;
    }
    let mut place = Place::new();
    let server = place.server(RANGE).await;
    let client = place.client();
    place.has("fd00:9::1").await;
    let first = place.address();
    assert!(place.kept.get(&MAC).is_some());
    let since = server.heard(0).len();
    place.power_cut(client).await;
    let client = place.client();
    place.has(&first).await;
    assert!(is_in_order(&server.heard(since), &["DHCPCONFIRM"]), "{:?}", server.heard(since));
    assert!(!server.heard(since).contains(&"DHCPSOLICIT".to_owned()), "{:?}", server.heard(since));
    drop(server);
    // The cable leads to another network now.
    place.neighbour.ip("-6 address flush dev srv0 scope global");
    place.neighbour.ip("address add fd00:8::1/64 dev srv0 nodad");
    let server = place.forgetful_server(OTHER_RANGE).await;
    client.told.send_modify(|told| told.ups += 1);
    place.has("fd00:8::2").await;
    // dnsmasq takes the four messages as two.
    let expected = ["DHCPCONFIRM", "DHCPREPLY", "DHCPSOLICIT", "DHCPREPLY"];
    assert!(is_in_order(&server.heard(0), &expected), "{:?}", server.heard(0));
    assert!(!addresses().contains(&first), "{}", addresses());
    client.task.abort();
}

const RENEWED: &str =
    "network::client6::dnsmasq_tests::a_lease_is_renewed_and_a_server_that_forgot_grants_it_again";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long run"]
async fn a_lease_is_renewed_and_a_server_that_forgot_grants_it_again() {
    if !is_inside(RENEWED) {
        return;
    }
    let place = Place::new();
    let server = place.server(RANGE).await;
    let client = place.client();
    place.has("fd00:9::1").await;
    let first = place.address();
    drop(server);
    // T1 is in a minute: it asks its server, which does not know the lease any more.
    let server = place.forgetful_server(RANGE).await;
    let begun = std::time::Instant::now();
    while !server.heard(0).contains(&"DHCPRENEW".to_owned()) {
        assert!(begun.elapsed() < Duration::from_secs(90), "RENEW within 90 s");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    server.hears(0, "DHCPREPLY").await;
    let whole = ["valid_lft 120sec", "valid_lft 119sec", "valid_lft 118sec"];
    until("the whole time again", || whole.iter().any(|life| addresses().contains(life))).await;
    place.has(&first).await;
    assert!(!server.heard(0).contains(&"DHCPSOLICIT".to_owned()), "{:?}", server.heard(0));
    client.task.abort();
}
