//! The client beside Kea, each in a network namespace of its own.

use std::fs;
use std::path::Path;

use dhcp::{Identifier, Settings};
use runtime::store::DHCP_STATUS;
use serde_json::{Value, json};

use super::tests::{MAC, Running, begin_as, lease};
use super::*;
use crate::network::kea::{Kea, Version};
use crate::network::testing::{Neighbour, ip, is_inside, until};

/// A DUID of another kind than the client makes itself.
const DUID: [u8; 18] = [0, 4, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
/// How a client comes to a lease.
const BEGUN: [&str; 4] = ["DHCPDISCOVER", "DHCPOFFER", "DHCPREQUEST", "DHCPACK"];
/// Another machine's.
const OTHER: [u8; 6] = [0x52, 0x54, 0, 7, 8, 9];

/// A server's settings. It answers for the whole link, so that it refuses what it does not know. The client takes no time shorter
/// than 15 s for T1 and 30 s for a lease.
fn settings(subnet: Value) -> Value {
    json!({
        "authoritative": true,
        "valid-lifetime": 120,
        "renew-timer": 15,
        "rebind-timer": 90,
        "host-reservation-identifiers": ["duid", "hw-address"],
        "subnet4": [subnet],
    })
}

/// The same with a lease of the shortest time, for clients that are to lose it.
fn brief(subnet: Value) -> Value {
    let mut settings = settings(subnet);
    (settings["valid-lifetime"], settings["rebind-timer"]) = (json!(30), json!(22));
    settings
}

fn pool(from: &str, to: &str) -> Value {
    json!({ "id": 1, "subnet": "10.9.0.0/24", "pools": [{ "pool": format!("{from} - {to}") }] })
}

fn with_hardware(hardware: [u8; 6]) -> Settings {
    Settings { hardware, ..Settings::default() }
}

fn address(running: &Running) -> Option<String> {
    lease(&running.runtime).map(|lease| lease.address)
}

/// What is shown of the client: how far it is, and why.
fn status(running: &Running) -> String {
    let found = running.runtime.store.get(&DHCP_STATUS, "eth0/dhcp4");
    found.and_then(|resource| resource.spec.yaml().ok()).unwrap_or_default()
}

async fn end(running: Running) {
    running.task.abort();
    let _ = running.task.await;
}

fn kernel() -> Handle {
    let (connection, handle, _) = rtnetlink::new_connection().unwrap();
    tokio::spawn(connection);
    handle
}

fn begin(directory: &Path, handle: &Handle, settings: Settings) -> Running {
    fs::create_dir_all(directory.join("system/run/machined")).unwrap();
    begin_as(directory, handle, settings)
}

const WHOLE_LIFE: &str = "network::client::kea_tests::a_lease_has_all_options_is_renewed_and_is_given_back";

#[tokio::test]
#[ignore = "long run"]
async fn a_lease_has_all_options_is_renewed_and_is_given_back() {
    if !is_inside(WHOLE_LIFE) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let handle = kernel();
    let neighbour = Neighbour::start();
    neighbour.ip("address add 10.9.0.1/24 dev srv0");
    let mut subnet = pool("10.9.0.20", "10.9.0.20");
    // Not every version knows option 121 by a name: 10.7.0.0/16 by 10.9.0.2, and all else by 10.9.0.3, whatever option 3 says.
    subnet["option-data"] = json!([
        { "code": 121, "csv-format": false, "data": "100a070a090002000a090003" },
        { "name": "routers", "data": "10.9.0.1" },
        { "name": "domain-name-servers", "data": "10.9.0.4, 10.9.0.5" },
        { "name": "domain-name", "data": "example.com" },
        { "name": "domain-search", "data": "a.example, b.a.example" },
        { "name": "ntp-servers", "data": "10.9.0.6, 10.9.0.7" },
        { "name": "interface-mtu", "data": "1400" },
    ]);
    let kea = Kea::start(&neighbour, Version::V4, settings(subnet)).await;

    let running = begin(directory.path(), &handle, with_hardware(MAC));
    until("a lease", || lease(&running.runtime).is_some()).await;
    let first = lease(&running.runtime).unwrap();
    assert_eq!((first.address.as_str(), first.server.as_str()), ("10.9.0.20/24", "10.9.0.1"));
    assert_eq!(first.resolvers, ["10.9.0.4", "10.9.0.5"]);
    assert_eq!(first.time_servers, ["10.9.0.6", "10.9.0.7"]);
    assert_eq!(first.search_domains, ["a.example", "b.a.example"]);
    assert_eq!((first.domain.as_deref(), first.lease_seconds), (Some("example.com"), 120));
    assert_eq!(first.gateway.as_deref(), Some("10.9.0.3"));
    let routes = ip("route");
    assert!(routes.contains("10.7.0.0/16 via 10.9.0.2 dev eth0 proto dhcp"), "{routes}");
    assert!(routes.contains("default via 10.9.0.3") && !routes.contains("via 10.9.0.1"), "{routes}");
    assert!(ip("link show dev eth0").contains("mtu 1400"));
    assert!(kea.has_in_order(0, &BEGUN), "{:?}", kea.messages(0));

    // It is prolonged by its server alone, and nothing else happens to it.
    let (since, before) = (kea.messages(0).len(), status(&running));
    kea.exchanges(since, "DHCPACK").await;
    assert!(!kea.has(since, "DHCPDISCOVER"), "{:?}", kea.messages(since));
    assert!(
        kea.text().contains("DHCPREQUEST (type 3) received from 10.9.0.20 to 10.9.0.1"),
        "{}",
        kea.text()
    );
    let whole = ["valid_lft 120sec", "valid_lft 119sec", "valid_lft 118sec"];
    until("the whole time again", || {
        let shown = ip("address show dev eth0");
        whole.iter().any(|life| shown.contains(life))
    })
    .await;
    assert_eq!((lease(&running.runtime), status(&running)), (Some(first), before));

    // The only address goes to another machine, once the first one has given it back.
    end(running).await;
    kea.exchanges(since, "DHCPRELEASE").await;
    let other = tempfile::tempdir().unwrap();
    ip("address flush dev eth0");
    ip("link set eth0 address 52:54:00:07:08:09");
    let running = begin(other.path(), &handle, with_hardware(OTHER));
    until("the address of before", || address(&running).as_deref() == Some("10.9.0.20/24")).await;
    end(running).await;
}

const RESERVATIONS: &str = "network::client::kea_tests::reservations_count_by_hardware_address_and_by_duid";

#[tokio::test]
#[ignore = "long run"]
async fn reservations_count_by_hardware_address_and_by_duid() {
    if !is_inside(RESERVATIONS) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let handle = kernel();
    let neighbour = Neighbour::start();
    neighbour.ip("address add 10.9.0.1/24 dev srv0");
    let duid: String = DUID.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut subnet = pool("10.9.0.20", "10.9.0.30");
    subnet["reservations"] = json!([
        { "hw-address": "52:54:00:01:02:03", "ip-address": "10.9.0.50", "hostname": "by-hardware" },
        { "duid": duid, "ip-address": "10.9.0.51", "hostname": "by-duid" },
    ]);
    let kea = Kea::start(&neighbour, Version::V4, settings(subnet)).await;

    let running = begin(directory.path(), &handle, with_hardware(MAC));
    until("the address of the hardware", || address(&running).as_deref() == Some("10.9.0.50/24")).await;
    assert_eq!(lease(&running.runtime).unwrap().hostname.as_deref(), Some("by-hardware"));

    // Another identity on the same link: the address of before is refused, and goes.
    let identifier = Identifier::Duid(DUID.to_vec());
    running.told.send_modify(|told| told.asked.settings.identifier = identifier.clone());
    until("the address of the DUID", || address(&running).as_deref() == Some("10.9.0.51/24")).await;
    assert_eq!(lease(&running.runtime).unwrap().hostname.as_deref(), Some("by-duid"));
    assert!(!ip("address show dev eth0").contains("10.9.0.50/"));
    assert!(kea.has(0, "DHCPNAK"), "{:?}", kea.messages(0));
    // Option 61: type 255, the four bytes of the link, the DUID (RFC 4361 §6.1).
    let colons: Vec<String> = DUID.iter().map(|byte| format!("{byte:02x}")).collect();
    let identifier = format!("cid=[ff:00:01:02:03:{}]", colons.join(":"));
    assert!(kea.text().contains(&identifier), "{}", kea.text());
    end(running).await;
}

const REPLACED: &str = "network::client::kea_tests::a_server_with_another_pool_gives_another_address";

#[tokio::test]
#[ignore = "long run"]
async fn a_server_with_another_pool_gives_another_address() {
    if !is_inside(REPLACED) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let handle = kernel();
    let neighbour = Neighbour::start();
    neighbour.ip("address add 10.9.0.1/24 dev srv0");
    let kea = Kea::start(&neighbour, Version::V4, brief(pool("10.9.0.20", "10.9.0.29"))).await;
    let running = begin(directory.path(), &handle, with_hardware(MAC));
    until("a lease", || lease(&running.runtime).is_some()).await;
    assert!(address(&running).unwrap().starts_with("10.9.0.2"), "{:?}", address(&running));
    drop(kea);

    // The server forgot all leases, and has another pool. Kea answers nothing to a client that asks for more time of an address
    // of which it knows nothing, neither at T1 nor at T2: the client uses it to the lease's end, and then asks for any.
    let kea = Kea::start(&neighbour, Version::V4, brief(pool("10.9.0.40", "10.9.0.49"))).await;
    let is_of_pool = || address(&running).is_some_and(|address| address.starts_with("10.9.0.4"));
    until("an address of the other pool", is_of_pool).await;
    let expected = [&["DHCPREQUEST", "DHCPREQUEST"][..], &BEGUN].concat();
    assert!(kea.has_in_order(0, &expected) && !kea.has(0, "DHCPNAK"), "{:?}", kea.messages(0));
    assert!(!ip("address show dev eth0").contains("inet 10.9.0.2"), "{}", ip("address show dev eth0"));
    let second = address(&running).unwrap();
    drop(kea);

    // The cable leads to another network now.
    neighbour.ip("address flush dev srv0");
    neighbour.ip("address add 10.8.0.1/24 dev srv0");
    let subnet = json!({ "id": 2, "subnet": "10.8.0.0/24", "pools": [{ "pool": "10.8.0.60 - 10.8.0.69" }] });
    let kea = Kea::start(&neighbour, Version::V4, settings(subnet)).await;
    running.told.send_modify(|told| told.ups += 1);
    let is_of_network = || address(&running).is_some_and(|address| address.starts_with("10.8.0.6"));
    until("an address of the other network", is_of_network).await;
    let expected = [&["DHCPREQUEST", "DHCPNAK"][..], &BEGUN].concat();
    assert!(kea.has_in_order(0, &expected), "{:?}", kea.messages(0));
    assert!(!ip("address show dev eth0").contains(&second), "{}", ip("address show dev eth0"));
    let kept = fs::read_to_string(directory.path().join("dhcp-addresses.json")).unwrap();
    assert!(kept.contains("10.8.0.6") && !kept.contains("10.9.0."), "{kept}");

    // The cable was out for a moment: the server knows the address, and the client keeps it.
    let (since, third) = (kea.messages(0).len(), address(&running));
    running.told.send_modify(|told| told.ups += 1);
    kea.exchanges(since, "DHCPACK").await;
    assert_eq!((kea.has(since, "DHCPDISCOVER"), address(&running)), (false, third));

    // Kea refuses what was given back. The next client of the machine asks for it first, and takes another one.
    let since = kea.messages(0).len();
    end(running).await;
    kea.exchanges(since, "DHCPRELEASE").await;
    let running = begin(directory.path(), &handle, with_hardware(MAC));
    until("a lease", || lease(&running.runtime).is_some()).await;
    let expected = ["DHCPRELEASE", "DHCPREQUEST", "DHCPNAK", "DHCPDISCOVER", "DHCPACK"];
    assert!(kea.has_in_order(since, &expected), "{:?}", kea.messages(since));
    end(running).await;
}
