//! The client beside dnsmasq in rare situations: power cuts, servers that forgot or have other addresses, T1 and T2.

use std::fs;

use dhcp::Settings;

use super::tests::{MAC, Running, begin_as, lease};
use super::*;
use crate::network::testing::{Dnsmasq, Neighbour, ip, is_inside, until};

const RANGE: &str = "--dhcp-range=10.9.0.10,10.9.0.19,255.255.255.0,1h";
const OTHER_RANGE: &str = "--dhcp-range=10.9.0.40,10.9.0.49,255.255.255.0,1h";
const SURE: &str = "--dhcp-authoritative";
/// dnsmasq gives no lease for less than two minutes; the client asks again no sooner than after 15 s.
const BRIEF: &str = "--dhcp-range=10.9.0.10,10.9.0.19,255.255.255.0,2m --dhcp-option=option:T1,15 \
    --dhcp-option=option:T2,30";

/// A machine with a card, and what lies beyond.
struct Place {
    directory: tempfile::TempDir,
    handle: Handle,
    neighbour: Neighbour,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("system/run/machined")).unwrap();
        let (connection, handle, _) = rtnetlink::new_connection().unwrap();
        tokio::spawn(connection);
        let neighbour = Neighbour::start();
        neighbour.ip("address add 10.9.0.1/24 dev srv0");
        Self { directory, handle, neighbour }
    }

    async fn server(&self, arguments: &str) -> Dnsmasq {
        let arguments = format!("--port=0 --log-dhcp --interface=srv0 --no-ping {arguments}");
        Dnsmasq::start(self.neighbour.inside("dnsmasq"), self.directory.path(), &arguments).started().await
    }

    /// It has no word of any lease.
    async fn forgetful_server(&self, arguments: &str) -> Dnsmasq {
        fs::remove_file(self.directory.path().join("leases")).unwrap();
        self.server(arguments).await
    }

    async fn begin(&self, start: &str) -> Running {
        let settings = Settings { hardware: MAC, ..Settings::default() };
        let running = begin_as(self.directory.path(), &self.handle, settings);
        has(&running, start).await;
        running
    }

    /// The machine is gone at once, and nothing of it reaches the wire.
    async fn power_cut(&self, running: Running) {
        self.neighbour.ip("link set srv0 down");
        running.task.abort();
        let _ = running.task.await;
        ip("address flush dev eth0");
        self.neighbour.ip("link set srv0 up");
    }

    fn kept(&self) -> String {
        fs::read_to_string(self.directory.path().join("dhcp-addresses.json")).unwrap_or_default()
    }
}

fn address(running: &Running) -> String {
    lease(&running.runtime).map(|lease| lease.address).unwrap_or_default()
}

/// Waits for an address that begins so, and that the link has as its only one.
async fn has(running: &Running, start: &str) {
    until(start, || {
        let shown = ip("-4 -o address show dev eth0");
        address(running).starts_with(start) && shown.lines().count() == 1 && shown.contains(start)
    })
    .await;
}

async fn end(running: Running) {
    running.task.abort();
    let _ = running.task.await;
}

fn is_only(messages: &[String], expected: &[&str]) -> bool {
    messages.iter().all(|message| expected.contains(&message.as_str()))
}

const REBOOT: &str =
    "network::client::dnsmasq_tests::a_lease_outlives_a_power_cut_of_the_machine_and_of_the_server";

#[tokio::test]
#[ignore = "long run"]
async fn a_lease_outlives_a_power_cut_of_the_machine_and_of_the_server() {
    if !is_inside(REBOOT) {
        return;
    }
    let place = Place::new();
    let server = place.server(&format!("{RANGE} {SURE}")).await;
    let running = place.begin("10.9.0.1").await;
    let first = address(&running);
    assert!(place.kept().contains(first.trim_end_matches("/24")), "{}", place.kept());
    // The machine alone.
    let since = server.heard(0).len();
    place.power_cut(running).await;
    let running = place.begin(&first).await;
    server.hears(since, "DHCPACK").await;
    assert!(is_only(&server.heard(since), &["DHCPREQUEST", "DHCPACK"]), "{:?}", server.heard(since));
    // Both.
    drop(server);
    place.power_cut(running).await;
    let server = place.server(&format!("{RANGE} {SURE}")).await;
    let running = place.begin(&first).await;
    server.hears(0, "DHCPACK").await;
    assert!(is_only(&server.heard(0), &["DHCPREQUEST", "DHCPACK"]), "{:?}", server.heard(0));
    end(running).await;
}

const REFUSED: &str = "network::client::dnsmasq_tests::a_server_that_is_sure_refuses_what_it_does_not_have";

#[tokio::test]
#[ignore = "long run"]
async fn a_server_that_is_sure_refuses_what_it_does_not_have() {
    if !is_inside(REFUSED) {
        return;
    }
    let place = Place::new();
    let server = place.server(&format!("{RANGE} {SURE}")).await;
    let running = place.begin("10.9.0.1").await;
    drop(server);
    // While the lease is used: the cable was out for a moment.
    let server = place.forgetful_server(&format!("{OTHER_RANGE} {SURE}")).await;
    running.told.send_modify(|told| told.ups += 1);
    has(&running, "10.9.0.4").await;
    let expected = ["DHCPREQUEST", "DHCPNAK", "DHCPDISCOVER", "DHCPOFFER", "DHCPREQUEST", "DHCPACK"];
    assert!(is_in_order(&server.heard(0), &expected), "{:?}", server.heard(0));
    assert!(place.kept().contains("10.9.0.4") && !place.kept().contains("10.9.0.1"), "{}", place.kept());
    // And after a power cut: the address of before is not in use.
    drop(server);
    place.power_cut(running).await;
    let server = place.forgetful_server(&format!("{RANGE} {SURE}")).await;
    let running = place.begin("10.9.0.1").await;
    assert!(is_in_order(&server.heard(0), &expected), "{:?}", server.heard(0));
    end(running).await;
}

fn is_in_order(messages: &[String], wanted: &[&str]) -> bool {
    let mut left = messages.iter();
    wanted.iter().all(|wanted| left.any(|message| message == wanted))
}

const UNSURE: &str = "network::client::dnsmasq_tests::a_server_that_is_not_sure_is_asked_for_what_it_has";

/// One that forgot everything says nothing to a client that asks for its address of before.
#[tokio::test]
#[ignore = "long run"]
async fn a_server_that_is_not_sure_is_asked_for_what_it_has() {
    if !is_inside(UNSURE) {
        return;
    }
    let place = Place::new();
    let server = place.server(RANGE).await;
    let running = place.begin("10.9.0.1").await;
    let first = address(&running);
    drop(server);
    place.power_cut(running).await;
    let server = place.forgetful_server(RANGE).await;
    let running = place.begin("10.9.0.1").await;
    // What it does not answer it does not log.
    let expected = ["DHCPDISCOVER", "DHCPOFFER", "DHCPREQUEST", "DHCPACK"];
    assert_eq!(server.heard(0), expected);
    assert_eq!(address(&running), first, "what it asks for is free");
    end(running).await;
}

const RENEWED: &str = "network::client::dnsmasq_tests::a_lease_is_renewed_by_its_server_and_at_last_by_any";

#[tokio::test]
#[ignore = "long run"]
async fn a_lease_is_renewed_by_its_server_and_at_last_by_any() {
    if !is_inside(RENEWED) {
        return;
    }
    let place = Place::new();
    let server = place.server(&format!("{BRIEF} {SURE}")).await;
    let running = place.begin("10.9.0.1").await;
    let first = address(&running);
    // T1.
    let since = server.heard(0).len();
    server.hears(since, "DHCPACK").await;
    assert!(is_only(&server.heard(since), &["DHCPREQUEST", "DHCPACK"]), "{:?}", server.heard(since));
    // It is gone, and another one of another address answers what is for all, at T2.
    drop(server);
    place.neighbour.ip("address flush dev srv0");
    place.neighbour.ip("address add 10.9.0.2/24 dev srv0");
    let server = place.forgetful_server(&format!("{BRIEF} {SURE}")).await;
    until("the other server", || lease(&running.runtime).is_some_and(|lease| lease.server == "10.9.0.2"))
        .await;
    assert!(is_only(&server.heard(0), &["DHCPREQUEST", "DHCPACK"]), "{:?}", server.heard(0));
    has(&running, &first).await;
    end(running).await;
}
