//! Links that a configuration makes, on two machines whose cards are joined by wires. Each setup replaces the one before while
//! the machines run; one machine asks the other one's API through what was made, and the frames on the wires are read.
//!
//! The streams of both machines' first cards stay open through all of it, and the last setup leaves what was there at first.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use qemu_tests::TestNode;
use qemu_tests::agent::signal;
use qemu_tests::credentials::Credentials;
use qemu_tests::deadline;
use qemu_tests::wire::{Frame, IPV4, SLOW, Wire};
use serde_json::{Value, json};

/// From an applied config to an answer through a new link.
const LIMIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(250);
/// The kernel makes addresses of a link usable within less time.
const QUIET: Duration = Duration::from_secs(3);
/// Cards of each machine beside the first one, which the test uses itself.
const CARDS: usize = 2;
/// The machines in the network between both.
const NET: [&str; 2] = ["10.91.0.1", "10.91.0.2"];
/// Their further addresses.
const NET_TOO: [&str; 2] = ["10.91.1.1", "10.91.1.2"];
const NET_6: [&str; 2] = ["fd91::1", "fd91::2"];
/// The machines in their tunnel.
const TUNNEL: [[u8; 4]; 2] = [[10, 92, 0, 1], [10, 92, 0, 2]];
/// The link that the kernel's parameters make, and the network on it.
const OF_LINE: &str = "eth2.9";
const NET_OF_LINE: &str = "10.95.0";
/// The network that a router announces, and what the second machine makes of it and its card's address (RFC 4291).
const ANNOUNCED: [u8; 8] = [0x20, 0x01, 0x0d, 0xb8, 0, 0x91, 0, 0];
const BY_ROUTER: [&str; 2] = ["2001:db8:91:0:5054:ff:fe88:100", "2001:db8:91:0:5054:ff:fe88:200"];
/// IPv4's number of UDP.
const UDP: u8 = 17;
/// Keys of a tunnel's ends, each with its public half, made for this test.
const KEYS: [[&str; 2]; 2] = [
    ["bW8doBQYJZW9hYoVk8gWl36GTrEDFMTxtEvofrdqp2E=", "uJ9/Xoe/EaR+RNJT/miR0wlAFAu1mPFX+DX4WqFa+iM="],
    ["6zA8EQdLq8b8/i0A8rv9oteLf4YF4u44pZ1zze7jqiE=", "qxiiTHK7yxbdfsv/r1HfZI749WHIVBM3ahIhJmb+xXc="],
];
/// What is compared before all setups and after them.
const KINDS: [&str; 7] =
    ["links", "addresses", "routes", "routingrules", "linkspecs", "addressspecs", "routespecs"];

/// The kernel makes these with the first VRF and never removes them.
const RULES_OF_VRFS: [&str; 2] = ["routingrules inet4/01000", "routingrules inet6/01000"];

/// Two machines, and the wires between their cards: wire 0 joins both `eth1`, wire 1 both `eth2`.
struct Pair {
    nodes: [TestNode; 2],
    wires: Vec<Wire>,
}

impl Pair {
    fn boot() -> Self {
        let credentials = Credentials::generate().unwrap();
        let wires: Vec<Wire> = (0..CARDS).map(|_| Wire::new().unwrap()).collect();
        let nodes = [0, 1].map(|end| machine(end, &credentials, &wires));
        Self { nodes, wires }
    }

    /// Gives each machine its interfaces, for which `of` gets the machine's number.
    fn set(&self, of: impl Fn(usize) -> String) {
        for (number, node) in self.nodes.iter().enumerate() {
            set(node, &of(number));
        }
    }

    /// Waits until the second machine answers the first one at an address.
    fn answers(&self, address: &str) {
        until(&self.nodes[0], &["-n", address, "version"], &["Server"]);
    }

    /// The frames of a wire that pass while the second machine answers at an address, once it does.
    fn frames(&self, address: &str, wire: usize) -> Vec<Frame> {
        self.answers(address);
        self.wires.iter().for_each(Wire::forget);
        self.answers(address);
        self.wires[wire].frames()
    }
}

/// A machine with an end of each wire.
fn machine(end: usize, credentials: &Credentials, wires: &[Wire]) -> TestNode {
    let side = end + 1;
    let line = format!("vlan={OF_LINE}:eth2 ip={NET_OF_LINE}.{side}:::255.255.255.0::{OF_LINE}");
    let words = wires.iter().enumerate().flat_map(|(card, wire)| {
        // A bond of LACP asks for the speed of its members.
        let mac = format!("52:54:00:88:0{side}:0{card}");
        let device = format!(
            "virtio-net-pci,id=card{card},netdev=wire{card},mac={mac},romfile=,speed=1000,duplex=full"
        );
        ["-netdev".to_owned(), wire.backend(&format!("wire{card}"), end), "-device".to_owned(), device]
    });
    let words: Vec<String> = words.collect();
    let builder = TestNode::builder(["links-a", "links-b"][end]).credentials(credentials.clone());
    let builder = builder.command_line(&line).machine(move |vm, _| {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        Ok(vm.extra(&words))
    });
    builder.boot().unwrap()
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
        std::thread::sleep(POLL);
    }
}

/// Links, addresses, routes and rules by kind and name, and what each of them is.
fn state(node: &TestNode) -> BTreeMap<String, Value> {
    let mut state = BTreeMap::new();
    for kind in KINDS {
        let text = node.admin().ok(&["get", kind, "-o", "json"]).unwrap();
        for resource in serde_json::Deserializer::from_str(&text).into_iter::<Value>() {
            let resource = resource.unwrap();
            let name = format!("{kind} {}", resource["metadata"]["id"].as_str().unwrap());
            state.insert(name, resource["spec"].clone());
        }
    }
    for rule in RULES_OF_VRFS {
        state.remove(rule);
    }
    state
}

/// The state of a machine whose links do not change any more.
fn settled(node: &TestNode) -> BTreeMap<String, Value> {
    let begin = Instant::now();
    let mut last = state(node);
    let mut since = Instant::now();
    while since.elapsed() < QUIET {
        assert!(begin.elapsed() < deadline(LIMIT), "the links change all the time");
        std::thread::sleep(POLL);
        let now = state(node);
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    last
}

/// Waits until a machine has what it had before.
fn is_as_before(node: &TestNode, before: &BTreeMap<String, Value>) {
    let begin = Instant::now();
    loop {
        let now = state(node);
        if now == *before {
            return;
        }
        let names = now.keys().chain(before.keys()).filter(|name| now.get(*name) != before.get(*name));
        let differences: Vec<String> =
            names.map(|name| format!("{name}: {:?}, was {:?}", now.get(name), before.get(name))).collect();
        assert!(begin.elapsed() < deadline(LIMIT), "a trace is left:\n{}", differences.join("\n"));
        std::thread::sleep(POLL);
    }
}

/// Whether both machines sent each other IPv4 packets in these frames, each in a frame that fits.
fn talk(frames: &[Frame], fits: impl Fn(&Frame) -> bool) {
    let packets: Vec<&Frame> = frames.iter().filter(|frame| frame.kind() == Some(IPV4)).collect();
    for end in 0..2 {
        assert!(packets.iter().any(|frame| frame.from == end), "machine {end} sent no packet: {frames:?}");
    }
    let other: Vec<_> = packets.into_iter().filter(|frame| !fits(frame)).collect();
    assert!(other.is_empty(), "packets that do not fit: {other:?}");
}

/// Whether a packet is of the network between both machines.
fn is_between(frame: &Frame) -> bool {
    frame.ipv4().is_some_and(|(source, ..)| source[..3] == [10, 91, 0])
}

/// The words that show a link whole.
fn shown(link: &str) -> [&str; 5] {
    ["get", "links", link, "-o", "yaml"]
}

/// A bond of both cards, with further settings of it.
fn bond(number: usize, mode: &str) -> String {
    let members = ["deviceSelectors: [{hardwareAddr: '52:54:00:88:01:*'}]", "interfaces: [eth1, eth2]"];
    let (address, members) = (NET[number], members[number]);
    format!("{{interface: bond0, addresses: [{address}/24], bond: {{mode: {mode}, miimon: 100, {members}}}}}")
}

/// Cards by what they are and by their names, with several addresses of both families.
fn addresses(pair: &Pair) {
    let cards = ["deviceSelector: {hardwareAddr: '52:54:00:88:01:00'}", "interface: eth1"];
    pair.set(|it| {
        format!("[{{{}, addresses: [{}/24, {}/24, '{}/64']}}]", cards[it], NET[it], NET_TOO[it], NET_6[it])
    });
    talk(&pair.frames(NET[1], 0), |frame| frame.vlan().is_none());
    for address in [NET_TOO[1], NET_6[1]] {
        pair.answers(address);
    }
}

/// A VLAN with its own packet size, whose tag is on the wire.
fn vlan(pair: &Pair) {
    let cards = ["deviceSelector: {hardwareAddr: '52:54:00:88:01:00'}", "interface: eth1"];
    pair.set(|it| {
        format!("[{{{}, vlans: [{{vlanId: 100, addresses: [{}/24], mtu: 1400}}]}}]", cards[it], NET[it])
    });
    until(&pair.nodes[1], &["get", "links"], &["eth1.100", "vlan"]);
    talk(&pair.frames(NET[1], 0), |frame| !is_between(frame) || frame.vlan() == Some(100));
}

/// A bond that uses one card, and the other one when the first has no carrier.
fn active_backup(pair: &Pair) {
    // Each wire has two ends: both machines have to use the same one.
    pair.set(|it| format!("[{}]", bond(it, "active-backup, primary: eth2")));
    pair.answers(NET[1]);
    is_gone(&pair.nodes[1], "eth1.100");
    let state = ["read", "/proc/net/bonding/bond0"];
    let mode = ["fault-tolerance (active-backup)", "Currently Active Slave: eth2", "Slave Interface: eth1"];
    for node in &pair.nodes {
        until(node, &state, &mode);
        until(node, &shown("bond0"), &["bondMaster:", "mode: active-backup", "miimon: 100", "primary: "]);
        let member =
            ["slaveKind: bond", "speedMbit: 1000", "duplex: Full", "0x1af4", "driverVersion: ", "SLAVE"];
        until(node, &shown("eth1"), &member);
    }
    talk(&pair.frames(NET[1], 1), |frame| frame.vlan().is_none() || !is_between(frame));
    let idle = pair.wires[0].frames();
    assert!(!idle.iter().any(is_between), "packets on the card that is not used: {idle:?}");

    carrier(pair, 1, false);
    for node in &pair.nodes {
        until(node, &state, &["Currently Active Slave: eth1"]);
    }
    talk(&pair.frames(NET[1], 0), |_| true);
    carrier(pair, 1, true);
    for node in &pair.nodes {
        until(node, &state, &["Currently Active Slave: eth2"]);
    }
    talk(&pair.frames(NET[1], 1), |_| true);
}

/// Takes the carrier from both ends of a wire, or gives it back.
fn carrier(pair: &Pair, wire: usize, up: bool) {
    for node in &pair.nodes {
        let name = format!("card{wire}");
        node.vm().qmp().execute("set_link", json!({ "name": name, "up": up })).unwrap();
    }
}

/// A bond whose partner is the other machine's.
fn lacp(pair: &Pair) {
    pair.set(|it| format!("[{}]", bond(it, "802.3ad, lacpRate: fast")));
    let state = ["read", "/proc/net/bonding/bond0"];
    for (node, other) in pair.nodes.iter().zip(["02", "01"]) {
        let partner = format!("Partner Mac Address: 52:54:00:88:{other}:");
        until(node, &state, &["IEEE 802.3ad", &partner, "Number of ports: 2"]);
        until(node, &shown("bond0"), &["mode: 802.3ad", "lacpRate: fast", "adLacpActive: "]);
    }
    pair.answers(NET[1]);
    for (number, wire) in pair.wires.iter().enumerate() {
        wire.forget();
        for end in 0..2 {
            let begin = Instant::now();
            while !wire.frames().iter().any(|frame| frame.from == end && frame.kind() == Some(SLOW)) {
                assert!(begin.elapsed() < deadline(LIMIT), "machine {end} sends no LACP on wire {number}");
                std::thread::sleep(POLL);
            }
        }
    }
}

/// A tunnel over the bond, set up with the words of the guide. No packet of it is on a wire in the clear.
fn tunnel(pair: &Pair) {
    let ends = TUNNEL.map(|address| std::net::Ipv4Addr::from(address).to_string());
    let tunnel = |it: usize| {
        format!(
            "{{interface: wg0, mtu: 1500, cidr: {}/24, wireguard: {{privateKey: {}, listenPort: 51820, peers: \
             [{{publicKey: {}, endpoint: '{}:51820', persistentKeepaliveInterval: 5s, allowedIPs: \
             [10.92.0.0/24]}}]}}}}",
            ends[it],
            KEYS[it][0],
            KEYS[1 - it][1],
            NET[1 - it]
        )
    };
    let lacp = "802.3ad, lacpRate: fast";
    pair.set(|it| format!("[{}, {}]", bond(it, lacp), tunnel(it)));
    pair.frames(&ends[1], 0);
    let frames: Vec<Frame> = pair.wires.iter().flat_map(Wire::frames).collect();
    talk(&frames, |frame| {
        let Some((source, destination, protocol)) = frame.ipv4() else { return false };
        let is_open = TUNNEL.contains(&source) || TUNNEL.contains(&destination);
        !is_open && (!is_between(frame) || protocol == UDP)
    });
    let endpoint = format!("endpoint: {}:51820", NET[1]);
    let told = ["listenPort: 51820", KEYS[0][1], KEYS[1][1], &endpoint, "persistentKeepaliveInterval: 5s"];
    until(&pair.nodes[0], &shown("wg0"), &[&told[..], &["10.92.0.0/24"]].concat());
    // The next look at the tunnel is up to a minute away.
    pair.nodes[0].prints(&shown("wg0"), &["lastHandshake: ", "receivedBytes: "], 2 * LIMIT).unwrap();
    for (node, keys) in pair.nodes.iter().zip(KEYS) {
        for words in [["logs", "machined"].as_slice(), &shown("wg0")] {
            assert!(!node.admin().ok(words).unwrap().contains(keys[0]), "a key is in {words:?}");
        }
    }
    pair.set(|it| format!("[{}]", bond(it, lacp)));
    for node in &pair.nodes {
        is_gone(node, "wg0");
    }
}

/// Links on top of each other: a bridge whose port is the bond.
fn bridge(pair: &Pair) {
    let bond = "{interface: bond0, bond: {mode: 802.3ad, lacpRate: fast, miimon: 100, deviceSelectors: \
                [{hardwareAddr: '52:54:00:88:01:*'}]}}";
    let bridge = format!(
        "{{interface: br0, addresses: [{}/24], bridge: {{stp: {{enabled: false}}, interfaces: [bond0]}}}}",
        NET[0]
    );
    set(&pair.nodes[0], &format!("[{bridge}, {bond}]"));
    until(&pair.nodes[0], &["get", "links"], &["br0", "bridge", "bond0"]);
    until(&pair.nodes[0], &["get", "addresses"], &[&format!("br0/{}/24", NET[0])]);
    pair.frames(NET[1], 0);
    let frames: Vec<Frame> = pair.wires.iter().flat_map(Wire::frames).collect();
    talk(&frames, |_| true);
}

/// Links of documents, which a new machined knows as its own.
fn documents(pair: &Pair) {
    let first = &pair.nodes[0];
    set(first, "[]");
    let documents = "apiVersion: v1alpha1\nkind: DummyLinkConfig\nname: dummy7\naddresses: [{address: 192.0.2.7/32}]\n---\napiVersion: v1alpha1\nkind: VRFConfig\nname: vrf-blue\nlinks: [eth2]\ntable: '123'\n";
    first.admin().ok(&["patch", "mc", "--mode=no-reboot", "-p", documents]).unwrap();
    until(first, &["get", "links"], &["dummy7", "dummy", "vrf-blue", "vrf"]);
    until(first, &["get", "addresses"], &["dummy7/192.0.2.7/32"]);
    for gone in ["br0", "bond0"] {
        is_gone(first, gone);
    }
    let agent = first.agent().unwrap();
    agent.signal(agent.process("machined").unwrap().pid, signal::KILL).unwrap();
    first.answers(LIMIT).unwrap();
    for kind in ["DummyLinkConfig\nname: dummy7", "VRFConfig\nname: vrf-blue"] {
        let patch = format!("apiVersion: v1alpha1\nkind: {kind}\n$patch: delete\n");
        first.admin().ok(&["patch", "mc", "--mode=no-reboot", "-p", &patch]).unwrap();
    }
    for gone in ["dummy7", "vrf-blue"] {
        is_gone(first, gone);
    }
}

/// Addresses and a gateway that a router announces, without a word of the config.
fn announced(pair: &Pair) {
    let begin = Instant::now();
    let advertisement = router_advertisement();
    let has = |it: usize| {
        let addresses = pair.nodes[it].admin().ok(&["get", "addresses"]).unwrap();
        addresses.contains(&format!("eth1/{}", shortened(BY_ROUTER[it])))
    };
    while !(has(0) && has(1)) {
        assert!(begin.elapsed() < deadline(LIMIT), "no address by the router's announcement");
        pair.wires[0].send(&advertisement);
        std::thread::sleep(POLL);
    }
    pair.answers(BY_ROUTER[1]);
    until(&pair.nodes[1], &["get", "routes"], &["fe80::fe"]);
}

/// An address as it is printed (RFC 5952).
fn shortened(address: &str) -> String {
    address.parse::<std::net::Ipv6Addr>().unwrap().to_string()
}

/// What a router says to all: it is a gateway for half an hour, and addresses may be made of its network.
/// Source: RFC 4861 4.2 and 4.6, RFC 2464 7.
fn router_advertisement() -> Vec<u8> {
    const ROUTER: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xfe];
    const ALL_NODES: [u8; 16] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    const ICMP: u8 = 58;
    const SECONDS: u32 = 1800;
    let lifetime = SECONDS.to_be_bytes();
    // Type, code, checksum, hop limit, flags, lifetime; reachable and retransmission times are not said.
    let mut message = [&[134, 0, 0, 0, 64, 0][..], &lifetime[2..], &[0; 8]].concat();
    // A prefix of 64 bits, on the link and for addresses, with its two lifetimes.
    message.extend([&[3, 4, 64, 0xc0][..], &lifetime, &lifetime, &[0; 4], &ANNOUNCED, &[0; 8]].concat());
    let length = u16::try_from(message.len()).unwrap();
    let pseudo = [&ROUTER[..], &ALL_NODES, &u32::from(length).to_be_bytes(), &[0, 0, 0, ICMP]].concat();
    let sum: u32 = [pseudo, message.clone()]
        .concat()
        .chunks_exact(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap();
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    let ethernet = [0x33, 0x33, 0, 0, 0, 1, 0x52, 0x54, 0, 0x88, 0, 0xfe, 0x86, 0xdd];
    let head = [&[0x60, 0, 0, 0][..], &length.to_be_bytes(), &[ICMP, 255], &ROUTER, &ALL_NODES].concat();
    [&ethernet[..], &head, &message].concat()
}

#[test]
#[ignore = "long run"]
fn links_of_each_kind_carry_traffic_and_go_without_a_trace() {
    let pair = Pair::boot();
    // What the kernel's parameters say, without a word of the config.
    let of_line = format!("{NET_OF_LINE}.2");
    let frames = pair.frames(&of_line, 1);
    talk(&frames, |frame| frame.vlan() == Some(9));
    let spec = format!("cmdline/{OF_LINE}/{NET_OF_LINE}.1/24");
    until(&pair.nodes[0], &["get", "addressspecs"], &[&spec]);

    let before = [0, 1].map(|it| settled(&pair.nodes[it]));
    let streams = [0, 1].map(|it| pair.nodes[it].admin().follow(&["get", "links", "--watch"]).unwrap());
    for setup in [addresses, vlan, active_backup, lacp, tunnel, bridge] {
        setup(&pair);
    }
    for (node, stream) in pair.nodes.iter().zip(&streams) {
        set(node, "[]");
        is_gone(node, "bond0");
        // The stream of before the first setup tells of the last one, and of the bond of another mode before.
        for _ in 0..2 {
            stream.expect("-   network     LinkStatus   bond0", LIMIT).unwrap();
        }
    }
    for (node, before) in pair.nodes.iter().zip(&before) {
        is_as_before(node, before);
    }
    documents(&pair);
    is_as_before(&pair.nodes[0], &before[0]);
    announced(&pair);
}
