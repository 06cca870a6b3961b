//! Links that a configuration makes, on two machines whose cards are joined by wires. Each setup replaces the one before while
//! the machines run; one machine asks the other one's API through what was made.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use qemu_tests::TestNode;
use qemu_tests::agent::signal;
use qemu_tests::credentials::Credentials;
use qemu_tests::{deadline, paths};

/// From an applied config to an answer through a new link.
const LIMIT: Duration = Duration::from_secs(60);
/// Cards of each machine beside the first one, which the test uses itself.
const CARDS: usize = 2;
/// The second machine in the network between both.
const OTHER: &str = "10.91.0.2";
/// The link that the kernel's parameters make, and the network on it.
const OF_LINE: &str = "eth2.9";
const NET_OF_LINE: &str = "10.95.0";
/// Keys of a tunnel's ends, each with its public half, made for this test.
const KEYS: [[&str; 2]; 2] = [
    ["bW8doBQYJZW9hYoVk8gWl36GTrEDFMTxtEvofrdqp2E=", "uJ9/Xoe/EaR+RNJT/miR0wlAFAu1mPFX+DX4WqFa+iM="],
    ["6zA8EQdLq8b8/i0A8rv9oteLf4YF4u44pZ1zze7jqiE=", "qxiiTHK7yxbdfsv/r1HfZI749WHIVBM3ahIhJmb+xXc="],
];

/// A machine with an end of each wire. `sides`: its own and the other one's.
fn machine(name: &str, credentials: &Credentials, wires: PathBuf, sides: [u8; 2]) -> TestNode {
    let line = format!("vlan={OF_LINE}:eth2 ip={NET_OF_LINE}.{}:::255.255.255.0::{OF_LINE}", sides[0]);
    let builder = TestNode::builder(name).credentials(credentials.clone()).command_line(&line);
    let with_cards = builder.machine(move |mut vm, _| {
        for card in 0..CARDS {
            let [here, there] = sides.map(|side| wires.join(format!("{side}.{card}")).display().to_string());
            let netdev = format!(
                "dgram,id=wire{card},local.type=unix,local.path={here},remote.type=unix,remote.path={there}"
            );
            let mac = format!("52:54:00:88:0{}:0{card}", sides[0]);
            // A bond of LACP asks for the speed of its members.
            let device =
                format!("virtio-net-pci,netdev=wire{card},mac={mac},romfile=,speed=1000,duplex=full");
            vm = vm.extra(&["-netdev", &netdev, "-device", &device]);
        }
        Ok(vm)
    });
    with_cards.boot().unwrap()
}

fn set(node: &TestNode, interfaces: &str) {
    let patch = format!("- {{op: add, path: /machine/network/interfaces, value: {interfaces}}}");
    node.admin().ok(&["patch", "mc", "--mode=no-reboot", "-p", &patch]).unwrap();
}

fn until(node: &TestNode, words: &[&str], needles: &[&str]) {
    node.prints(words, needles, LIMIT).unwrap();
}

fn is_gone(node: &TestNode, name: &str) {
    let begin = Instant::now();
    while node.admin().ok(&["get", "links"]).unwrap().contains(name) {
        assert!(begin.elapsed() < deadline(LIMIT), "{name} is still there");
        std::thread::sleep(Duration::from_millis(250));
    }
}

#[test]
#[ignore = "long run"]
fn links_of_each_kind_carry_traffic_and_go_without_a_trace() {
    let wires = paths::temporary_dir().unwrap();
    let credentials = Credentials::generate().unwrap();
    let at = wires.path().to_owned();
    let first = machine("links-a", &credentials, at.clone(), [1, 2]);
    let second = machine("links-b", &credentials, at, [2, 1]);
    let answers = || until(&first, &["-n", OTHER, "version"], &["Server"]);

    // What the kernel's parameters say, without a word of the config.
    until(&first, &["-n", &format!("{NET_OF_LINE}.2"), "version"], &["Server"]);
    until(&first, &["get", "addressspecs"], &[&format!("cmdline/{OF_LINE}/{NET_OF_LINE}.1/24")]);

    // Cards by what they are, and by their names.
    let card = |number: u8| format!("deviceSelector: {{hardwareAddr: '52:54:00:88:01:0{number}'}}");
    set(&first, &format!("[{{{}, addresses: [10.91.0.1/24]}}]", card(0)));
    set(&second, &format!("[{{interface: eth1, addresses: [{OTHER}/24]}}]"));
    answers();

    let vlan = |of: &str, address: &str| {
        format!("[{{{of}, vlans: [{{vlanId: 100, addresses: [{address}/24], mtu: 1400}}]}}]")
    };
    set(&first, &vlan(&card(0), "10.91.0.1"));
    set(&second, &vlan("interface: eth1", OTHER));
    until(&second, &["get", "links"], &["eth1.100", "vlan"]);
    answers();

    let bond = |members: &str, address: &str, mode: &str| {
        format!(
            "[{{interface: bond0, addresses: [{address}/24], bond: {{mode: {mode}, miimon: 100, {members}}}}}]"
        )
    };
    let of_first = format!("deviceSelectors: [{}]", "{hardwareAddr: '52:54:00:88:01:*'}");
    let of_second = "interfaces: [eth1, eth2]";
    // Each wire has two ends: both machines have to use the same one.
    set(&first, &bond(&of_first, "10.91.0.1", "active-backup, primary: eth2"));
    set(&second, &bond(of_second, OTHER, "active-backup, primary: eth2"));
    answers();
    is_gone(&second, "eth1.100");
    let state = ["read", "/proc/net/bonding/bond0"];
    until(
        &second,
        &state,
        &["fault-tolerance (active-backup)", "Currently Active Slave: eth2", "Slave Interface: eth1"],
    );

    let lacp = "802.3ad, lacpRate: fast";
    set(&first, &bond(&of_first, "10.91.0.1", lacp));
    set(&second, &bond(of_second, OTHER, lacp));
    until(&second, &state, &["IEEE 802.3ad", "Partner Mac Address: 52:54:00:88:01:", "Number of ports: 2"]);
    answers();

    let tunnel = |own: usize, address: &str, endpoint: &str| {
        format!(
            ", {{interface: wg0, addresses: [{address}/24], wireguard: {{privateKey: {}, listenPort: 51820, peers: \
             [{{publicKey: {}, endpoint: '{endpoint}:51820', persistentKeepaliveInterval: 5s, allowedIPs: \
             [10.92.0.0/24]}}]}}}}]",
            KEYS[own][0],
            KEYS[1 - own][1]
        )
    };
    let with_tunnel = |bond: String, tunnel: String| bond.trim_end_matches(']').to_owned() + &tunnel;
    set(&first, &with_tunnel(bond(&of_first, "10.91.0.1", lacp), tunnel(0, "10.92.0.1", OTHER)));
    set(&second, &with_tunnel(bond(of_second, OTHER, lacp), tunnel(1, "10.92.0.2", "10.91.0.1")));
    until(&first, &["-n", "10.92.0.2", "version"], &["Server"]);
    assert!(!first.admin().ok(&["logs", "machined"]).unwrap().contains(KEYS[0][0]), "a key is in the log");
    set(&second, &bond(of_second, OTHER, lacp));
    is_gone(&second, "wg0");

    // On top of each other, from the other form of the config.
    set(
        &first,
        &format!(
            "[{{interface: br0, addresses: [10.91.0.1/24], bridge: {{stp: {{enabled: false}}, interfaces: [bond0]}}}}, {{interface: bond0, bond: {{mode: 802.3ad, lacpRate: fast, miimon: 100, {of_first}}}}}]"
        ),
    );
    until(&first, &["get", "links"], &["br0", "bridge", "bond0"]);
    answers();

    set(&first, "[]");
    let documents = "apiVersion: v1alpha1\nkind: DummyLinkConfig\nname: dummy7\naddresses: [{address: 192.0.2.7/32}]\n---\napiVersion: v1alpha1\nkind: VRFConfig\nname: vrf-blue\nlinks: [eth2]\ntable: '123'\n";
    first.admin().ok(&["patch", "mc", "--mode=no-reboot", "-p", documents]).unwrap();
    until(&first, &["get", "links"], &["dummy7", "dummy", "vrf-blue", "vrf"]);
    until(&first, &["get", "addresses"], &["dummy7/192.0.2.7/32"]);
    for gone in ["br0", "bond0"] {
        is_gone(&first, gone);
    }
    // A new machined knows which links are its own.
    let agent = first.agent().unwrap();
    agent.signal(agent.process("machined").unwrap().pid, signal::KILL).unwrap();
    first.answers(LIMIT).unwrap();
    for kind in ["DummyLinkConfig\nname: dummy7", "VRFConfig\nname: vrf-blue"] {
        let patch = format!("apiVersion: v1alpha1\nkind: {kind}\n$patch: delete\n");
        first.admin().ok(&["patch", "mc", "--mode=no-reboot", "-p", &patch]).unwrap();
    }
    for gone in ["dummy7", "vrf-blue"] {
        is_gone(&first, gone);
    }
    set(&second, "[]");
    is_gone(&second, "bond0");
}
