//! The hostile clients of crates/hostile against a built image, on both ports.
//!
//! Test, clients and QEMU are in a network namespace. The clients reach the machine by a card of its own, each from an address
//! of its own; the test asks by QEMU's user network, which would not bear what they do.
//! Long: counts as they are written, and attacks that wait for deadlines of the node.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use hostile::{Attack, Form, LONGEST_CALL, Port, Record, Suite, Target, Witness, attacks};
use qemu_tests::credentials::{ADMIN, Credentials, HOSTNAME, READER};
use qemu_tests::node::API_PORT;
use qemu_tests::rpc::Rpc;
use qemu_tests::settings::rounds;
use qemu_tests::{TestNode, deadline, namespaces};

/// trustd's port.
const TRUST_PORT: u16 = 50001;
/// By how much a program may have grown at its highest: what clients have under way, at most, and the allocator's rest of it.
/// In the short and in the long form.
const MEMORY_BOUNDS_KIB: [u64; 2] = [16 << 10, 64 << 10];
/// The emulated processors and the attackers share the processors of this machine: each waits for the other.
const SHARED: u32 = 2;
const PROGRAMS: [&str; 3] = ["apid", "machined", "trustd"];
/// The card in the namespace.
const TAP: &str = "tap0";
const HERE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const NODE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// Where the other client comes from.
const WITNESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 9);
/// Attackers of trustd, which has few places for one address.
const ATTACKERS: u8 = 8;

/// The attackers' addresses.
fn addresses(count: u8) -> Vec<IpAddr> {
    (1..=count).map(|last| Ipv4Addr::new(10, 77, 1, last).into()).collect()
}

/// The card that the clients reach the machine by.
fn tap() {
    namespaces::ip(&format!("tuntap add dev {TAP} mode tap"));
    namespaces::ip(&format!("address add {HERE}/16 dev {TAP}"));
    namespaces::ip(&format!("address add {WITNESS}/16 dev {TAP}"));
    for address in addresses(ATTACKERS) {
        namespaces::ip(&format!("address add {address}/16 dev {TAP}"));
    }
    namespaces::ip(&format!("link set {TAP} up"));
}

fn boot() -> TestNode {
    tap();
    let credentials = Credentials::generate().unwrap();
    let named = format!("hostname: {HOSTNAME}");
    let cards = format!("{named}\n    interfaces: [{{interface: eth1, addresses: [{NODE}/16]}}]");
    let config = credentials.machine_config().unwrap().replace(&named, &cards);
    let node = TestNode::builder("hostile").credentials(credentials).config(&config);
    let node = node.machine(|vm, _| Ok(vm.tap(TAP, "52:54:00:77:00:0a")));
    let node = node.boot().unwrap();
    node.wait_services().unwrap();
    node
}

/// A program of the node, as the API tells of it.
#[derive(Debug)]
struct Program {
    name: &'static str,
    pid: i32,
    /// The most that was resident so far.
    highest_kib: u64,
}

fn programs(node: &TestNode) -> Vec<Program> {
    let admin = node.credentials().client(Some(ADMIN)).unwrap();
    let rpc = Rpc::connect(node, Some(&admin)).unwrap();
    let answer = rpc.call(|client| async move { client.machine().processes(tonic::Request::new(())).await });
    let processes = answer.unwrap().into_inner().messages.remove(0).processes;
    let of = |name: &'static str| {
        let found = processes.iter().find(|process| process.command == name);
        let pid = found.unwrap_or_else(|| panic!("no process {name}")).pid;
        let status = node.admin().ok(&["read", &format!("/proc/{pid}/status")]).unwrap();
        let highest = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        Program { name, pid, highest_kib: highest.trim().trim_end_matches(" kB").parse().unwrap() }
    };
    PROGRAMS.iter().map(|name| of(name)).collect()
}

fn target(node: &TestNode, port: Port, role: Option<&str>, sources: Vec<IpAddr>) -> Target {
    let number = if port == Port::Api { API_PORT } else { TRUST_PORT };
    let address = SocketAddr::from((NODE, number));
    let identity = role.map(|role| node.credentials().client(Some(role)).unwrap());
    let mut target = Target::new(port, address, node.credentials().authority(), identity.as_ref()).unwrap();
    target.sources = sources.into();
    target.nodes = [&NODE.to_string(), "127.0.0.1", "localhost"].map(str::to_owned).to_vec().into();
    if port == Port::Api {
        target.strangers = node.credentials().strangers().unwrap().into();
    }
    target
}

fn chosen(port: Port, long: bool) -> Vec<Attack> {
    attacks(port).into_iter().filter(|attack| long || !attack.patient).collect()
}

/// Keeps the figures where `xtask bench hostile` wants them.
fn keep(name: &str, records: &[Record], long: bool) {
    let Some(directory) = std::env::var_os("BILLET_BENCH") else { return };
    let figures = serde_json::json!({ "suite": name, "long": long, "attacks": records });
    let path = Path::new(&directory).join(format!("hostile-{name}.json"));
    std::fs::write(path, serde_json::to_string_pretty(&figures).unwrap()).unwrap();
}

#[test]
fn hostile_clients_leave_the_node_as_it_was() {
    if !namespaces::inside("hostile::hostile_clients_leave_the_node_as_it_was") {
        return;
    }
    let long = rounds(0, 1) == 1;
    let node = boot();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let before = programs(&node);
    let bound_kib = MEMORY_BOUNDS_KIB[usize::from(long)];
    let suites = [
        ("machine-api", Port::Api, Some(READER), Some(ADMIN), 1),
        ("machine-trust", Port::Trust, None, None, ATTACKERS),
    ];
    let mut faults = Vec::new();
    for (name, port, attacker, other, count) in suites {
        let suite = Suite {
            target: target(&node, port, attacker, addresses(count)),
            witness: Witness::new(target(&node, port, other, vec![WITNESS.into()]), true),
            form: if long { Form::Long } else { Form::Short },
            longest_call: deadline(LONGEST_CALL).saturating_mul(SHARED),
            memory: None,
            memory_bound: u64::MAX,
            places: None,
        };
        let mut records = Vec::new();
        for attack in chosen(port, long) {
            let (played, found) = runtime.block_on(suite.play(&[attack]));
            faults.extend(found.iter().map(ToString::to_string));
            let grown_kib = grown(attack.name, &before, &programs(&node), bound_kib, &mut faults);
            records
                .extend(played.into_iter().map(|record| Record { grown_bytes: grown_kib << 10, ..record }));
        }
        keep(name, &records, long);
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    node.admin().ok(&["version"]).unwrap();
}

/// By how much all programs together grew since the start, at their highest.
fn grown(attack: &str, before: &[Program], now: &[Program], bound_kib: u64, faults: &mut Vec<String>) -> u64 {
    let mut sum = 0;
    for (first, now) in before.iter().zip(now) {
        let grown = now.highest_kib.saturating_sub(first.highest_kib);
        eprintln!("hostile: {attack}: {} grew by {grown} KiB to {} KiB", now.name, now.highest_kib);
        if first.pid != now.pid {
            faults.push(format!("{attack}: {} was started again", now.name));
        }
        if grown > bound_kib {
            faults.push(format!("{attack}: {} grew by {grown} KiB, at most {bound_kib} is right", now.name));
        }
        sum += grown;
    }
    sum
}
