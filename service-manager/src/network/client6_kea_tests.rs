//! The client beside Kea, each in a network namespace of its own.

use std::fs;
use std::path::Path;

use dhcp6::Duid;
use serde_json::{Value, json};

use super::super::kept::LEASES;
use super::tests::{MAC, Running, addresses, settings, shown, start_as};
use super::*;
use crate::network::kea::{Kea, Version};
use crate::network::testing::{Neighbour, ip, is_inside, until};

/// A DUID of another kind than the client makes itself.
const DUID: &str = "0004000102030405060708090a0b0c0d0e0f";

/// How a client comes to a lease.
const BEGUN: [&str; 4] = ["SOLICIT", "ADVERTISE", "REQUEST", "REPLY"];

/// A server's settings. `identifier`: what makes its DUID another one than that of the server before. The client takes no time
/// shorter than 5 s for T1.
fn server(identifier: &str, subnet: Value) -> Value {
    json!({
        "server-id": { "type": "EN", "enterprise-id": 2495, "identifier": identifier, "persist": false },
        "preferred-lifetime": 100,
        "valid-lifetime": 120,
        "renew-timer": 8,
        "rebind-timer": 16,
        "host-reservation-identifiers": ["duid", "hw-address"],
        "subnet6": [subnet],
    })
}

fn pool(subnet: &str, from: &str, to: &str) -> Value {
    let (prefix, pool) = (format!("{subnet}/64"), format!("{subnet}{from} - {subnet}{to}"));
    json!({ "id": 1, "subnet": prefix, "interface": "srv0", "pools": [{ "pool": pool }] })
}

/// A link without addresses of DHCP, a neighbour, and what clients run with.
struct Machine {
    neighbour: Neighbour,
    runtime: Arc<Runtime>,
    handle: Handle,
    kept: Arc<Kept>,
    index: u32,
}

impl Machine {
    fn start(root: &Path) -> Self {
        let neighbour = Neighbour::start();
        let runtime = Runtime::detached(root.to_owned());
        fs::create_dir_all(runtime.path("/system/run/machined")).unwrap();
        let (connection, handle, _) = rtnetlink::new_connection().unwrap();
        tokio::spawn(connection);
        let kept = Kept::read(&runtime, LEASES);
        let index = ip("-o link show eth0").split(':').next().unwrap().trim().parse().unwrap();
        Self { neighbour, runtime, handle, kept, index }
    }

    fn client(&self, settings: Settings) -> Running {
        start_as(&self.runtime, &self.handle, &self.kept, self.index, settings)
    }

    fn address(&self) -> Option<String> {
        shown(&self.runtime).map(|lease| lease.address)
    }

    /// Waits for an address that begins so; it is the only one.
    async fn has(&self, start: &str) {
        until(start, || self.address().is_some_and(|address| address.starts_with(start))).await;
        let shown = addresses();
        assert!(shown.lines().count() == 1 && shown.contains(start), "{shown}");
    }

    /// Ends a client, and takes away what it left.
    async fn end(&self, client: Running) {
        client.task.abort();
        let _ = client.task.await;
        let link = Link { index: self.index, name: "eth0".into(), hardware: MAC.to_vec(), ..Link::default() };
        remove_all(&self.runtime, &self.handle, &self.kept, &link).await;
    }
}

const WHOLE_LIFE: &str = "network::client6::kea_tests::a_lease_has_all_options_is_renewed_and_is_given_back";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long run"]
async fn a_lease_has_all_options_is_renewed_and_is_given_back() {
    if !is_inside(WHOLE_LIFE) {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let machine = Machine::start(root.path());
    let mut subnet = pool("fd00:9::", "100", "100");
    subnet["option-data"] = json!([
        { "name": "dns-servers", "data": "fd00:9::3, fd00:9::4" },
        { "name": "domain-search", "data": "a.example, b.a.example" },
        // Not every version knows option 56 by a name: one server, by its address.
        { "code": 56, "csv-format": false, "data": "00010010fd000009000000000000000000000005" },
    ]);
    let kea = Kea::start(&machine.neighbour, Version::V6, server("01", subnet)).await;

    let client = machine.client(settings());
    machine.has("fd00:9::100/128").await;
    let first = shown(&machine.runtime).unwrap();
    assert_eq!(first.resolvers, ["fd00:9::3", "fd00:9::4"]);
    assert_eq!(first.search_domains, ["a.example", "b.a.example"]);
    assert_eq!(first.time_servers, ["fd00:9::5"]);
    // DUID-EN: type 2, the number of the enterprise, what that has chosen.
    assert_eq!((first.server.as_str(), first.lease_seconds), ("0002000009bf01", 120));
    assert!(kea.has_in_order(0, &BEGUN), "{:?}", kea.messages(0));

    // It is prolonged by its server alone, and nothing else happens to it.
    let since = kea.messages(0).len();
    kea.exchanges(since, "REPLY").await;
    let renewed = kea.has_in_order(since, &["RENEW", "REPLY"]) && !kea.has(since, "SOLICIT");
    assert!(renewed, "{:?}", kea.messages(since));
    let whole = ["valid_lft 120sec", "valid_lft 119sec", "valid_lft 118sec"];
    until("the whole time again", || whole.iter().any(|life| addresses().contains(life))).await;
    assert_eq!(shown(&machine.runtime), Some(first));

    // The only address goes to another client, once the first one has given it back.
    machine.end(client).await;
    kea.exchanges(since, "RELEASE").await;
    let client = machine.client(Settings { duid: Some(DUID.parse().unwrap()), ..settings() });
    machine.has("fd00:9::100/128").await;
    machine.end(client).await;
}

const RESERVATIONS: &str = "network::client6::kea_tests::reservations_count_by_hardware_address_and_by_duid";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long run"]
async fn reservations_count_by_hardware_address_and_by_duid() {
    if !is_inside(RESERVATIONS) {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let machine = Machine::start(root.path());
    let mut subnet = pool("fd00:9::", "100", "1ff");
    subnet["reservations"] = json!([
        { "hw-address": "52:54:00:01:02:03", "ip-addresses": ["fd00:9::aaaa"] },
        { "duid": DUID, "ip-addresses": ["fd00:9::bbbb"] },
        { "duid": Duid::of_hardware(&[0x52, 0x54, 0, 7, 8, 9]).to_string(), "ip-addresses": ["fd00:9::cccc"] },
    ]);
    let kea = Kea::start(&machine.neighbour, Version::V6, server("01", subnet)).await;

    // The DUID that the client makes has the hardware address, which the server finds there.
    let client = machine.client(settings());
    machine.has("fd00:9::aaaa/128").await;

    // Another identity on the same link: it has addresses of its own, and the old one goes.
    client.told.send_modify(|told| told.settings.duid = Some(DUID.parse().unwrap()));
    machine.has("fd00:9::bbbb/128").await;
    assert!(kea.text().contains("duid=[00:04:00:01:02:03"), "{}", kea.text());
    machine.end(client).await;

    // A reservation for the DUID-LL of another address counts by the DUID, whatever address the link has.
    let other = Duid::of_hardware(&[0x52, 0x54, 0, 7, 8, 9]);
    let client = machine.client(Settings { duid: Some(other), ..settings() });
    machine.has("fd00:9::cccc/128").await;
    machine.end(client).await;
}

const REPLACED: &str = "network::client6::kea_tests::a_server_with_another_pool_gives_another_address";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long run"]
async fn a_server_with_another_pool_gives_another_address() {
    if !is_inside(REPLACED) {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let machine = Machine::start(root.path());
    let first = pool("fd00:9::", "1:1", "1:ff");
    let kea = Kea::start(&machine.neighbour, Version::V6, server("01", first.clone())).await;
    let client = machine.client(settings());
    machine.has("fd00:9::1:").await;
    let before = machine.address();

    // The cable was out for a moment: the address fits the link, and stays.
    let since = kea.messages(0).len();
    client.told.send_modify(|told| told.ups += 1);
    until("a confirmation", || kea.has_in_order(since, &["CONFIRM", "REPLY"])).await;
    machine.has("fd00:9::1:").await;
    assert_eq!((kea.has(since, "SOLICIT"), machine.address()), (false, before));
    drop(kea);

    // Another server, with another pool of the same network. It drops what is for the server of before, and answers at T2 what
    // is for all.
    let second = pool("fd00:9::", "2:1", "2:ff");
    let kea = Kea::start(&machine.neighbour, Version::V6, server("02", second)).await;
    machine.has("fd00:9::2:").await;
    assert!(kea.has_in_order(0, &["REBIND", "REPLY"]), "{:?}", kea.messages(0));
    drop(kea);

    // The cable leads to another network now.
    let third = pool("fd00:8::", "3:1", "3:ff");
    let kea = Kea::start(&machine.neighbour, Version::V6, server("03", third)).await;
    client.told.send_modify(|told| told.ups += 1);
    machine.has("fd00:8::3:").await;
    let expected = [&["CONFIRM", "REPLY"][..], &BEGUN].concat();
    assert!(kea.has_in_order(0, &expected), "{:?}", kea.messages(0));
    machine.end(client).await;
}
