//! The hostile clients of crates/hostile against a built image, on both ports.
//!
//! All connections come from one address, QEMU's: the witness keeps one of its own on port 50000.
//! Long: counts as they are written, and attacks that wait for deadlines of the node.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use hostile::{Attack, Form, LONGEST_CALL, Port, Suite, Target, Witness, attacks};
use qemu_tests::credentials::{ADMIN, READER};
use qemu_tests::node::API_PORT;
use qemu_tests::rpc::Rpc;
use qemu_tests::settings::rounds;
use qemu_tests::{TestNode, deadline};

/// trustd's port.
const TRUST_PORT: u16 = 50001;
/// By how much a program may have grown when everything is over: caches of the allocator, a few late connections.
const MEMORY_BOUND_BYTES: u64 = 64 << 20;
/// Between two connections through QEMU's user network: without it most of them wait a second, until the kernel tries again.
const PAUSE: Duration = Duration::from_millis(5);
/// The emulated processors and the attackers share the processors of this machine: each waits for the other.
const SHARED: u32 = 2;
const PROGRAMS: [&str; 3] = ["apid", "machined", "trustd"];

/// Process id and resident bytes of each program, as the API tells them.
fn programs(node: &TestNode) -> Vec<(String, i32, u64)> {
    let admin = node.credentials().client(Some(ADMIN)).unwrap();
    let rpc = Rpc::connect(node, Some(&admin)).unwrap();
    let answer = rpc.call(|client| async move { client.machine().processes(tonic::Request::new(())).await });
    let processes = answer.unwrap().into_inner().messages.remove(0).processes;
    let of = |name: &str| {
        let found = processes.iter().find(|process| process.command == name);
        let process = found.unwrap_or_else(|| panic!("no process {name}"));
        (name.to_owned(), process.pid, process.resident_memory)
    };
    PROGRAMS.iter().map(|name| of(name)).collect()
}

fn target(node: &TestNode, port: Port, role: Option<&str>) -> Target {
    let number = if port == Port::Api { API_PORT } else { TRUST_PORT };
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, node.vm().port(number).unwrap()));
    let identity = role.map(|role| node.credentials().client(Some(role)).unwrap());
    let mut target = Target::new(port, address, node.credentials().authority(), identity.as_ref()).unwrap();
    target.nodes = ["10.0.2.15", "127.0.0.1", "localhost"].map(str::to_owned).to_vec().into();
    target.pause = PAUSE;
    if port == Port::Api {
        target.strangers = node.credentials().strangers().unwrap().into();
    }
    target
}

fn chosen(port: Port, long: bool) -> Vec<Attack> {
    // trustd ends an address's oldest connection for a newer one, and here all have the same address.
    let by_address = ["many-connections", "hang-up-after-a-call", "silent"];
    let is_chosen = |attack: &Attack| {
        (long || !attack.patient) && (port == Port::Api || !by_address.contains(&attack.name))
    };
    attacks(port).into_iter().filter(is_chosen).collect()
}

#[test]
fn hostile_clients_leave_the_node_as_it_was() {
    let long = rounds(0, 1) == 1;
    let node = TestNode::builder("hostile").machine(|vm, _| Ok(vm.forward(TRUST_PORT))).boot().unwrap();
    node.wait_services().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let before = programs(&node);
    for (port, attacker, other) in [(Port::Api, Some(READER), Some(ADMIN)), (Port::Trust, None, None)] {
        let suite = Suite {
            target: target(&node, port, attacker),
            witness: Witness::new(target(&node, port, other), false),
            form: if long { Form::Long } else { Form::Short },
            longest_call: deadline(LONGEST_CALL).saturating_mul(SHARED),
            memory: None,
            memory_bound: u64::MAX,
            places: None,
        };
        let (_, faults) = runtime.block_on(suite.play(&chosen(port, long)));
        let faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
        assert!(faults.is_empty(), "{}", faults.join("\n"));
        for ((name, pid, bytes), (_, pid_after, bytes_after)) in before.iter().zip(programs(&node)) {
            assert_eq!(*pid, pid_after, "{name} was started again");
            let grown = bytes_after.saturating_sub(*bytes);
            eprintln!("hostile: {port:?}: {name} grew by {} KiB", grown >> 10);
            assert!(grown <= MEMORY_BOUND_BYTES, "{name} grew by {grown} bytes");
        }
    }
    node.admin().ok(&["version"]).unwrap();
}
