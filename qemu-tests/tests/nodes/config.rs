//! The life of a machine config on a node: maintenance mode, sources, modes of apply, changes that undo themselves.

use std::time::{Duration, Instant};

use api::proto::machine::apply_configuration_request::Mode;
use api::proto::machine::{ApplyConfiguration, ApplyConfigurationRequest};
use qemu_tests::credentials::{ADMIN, HOSTNAME};
use qemu_tests::node::BOOT_LIMIT;
use qemu_tests::rpc::Rpc;
use qemu_tests::settings::rounds;
use qemu_tests::web::Web;
use qemu_tests::{Bus, TestNode, deadline};
use tonic::{Code, Status};

/// Enough for a line or a change that is to come.
const STEP_LIMIT: Duration = Duration::from_secs(30);
/// How long a change waits for its confirmation in these tests, before the machine's slowness.
const CONFIRM: Duration = Duration::from_secs(8);
/// Where a node keeps its config.
const KEPT: &str = "/system/state/config.yaml";

fn admin(node: &TestNode) -> Rpc {
    let identity = node.credentials().client(Some(ADMIN)).unwrap();
    Rpc::connect(node, Some(&identity)).unwrap()
}

fn request(text: &str, mode: Mode) -> ApplyConfigurationRequest {
    ApplyConfigurationRequest { data: text.as_bytes().to_vec(), mode: mode.into(), ..Default::default() }
}

fn send(rpc: &Rpc, request: ApplyConfigurationRequest) -> Result<ApplyConfiguration, Status> {
    let answer = rpc.call(|client| async move { client.machine().apply_configuration(request).await })?;
    Ok(answer.into_inner().messages.remove(0))
}

fn apply(node: &TestNode, text: &str, mode: Mode) -> Result<ApplyConfiguration, Status> {
    send(&admin(node), request(text, mode))
}

fn hostname(node: &TestNode) -> String {
    let answer = admin(node).call(|client| async move { client.machine().hostname(()).await }).unwrap();
    answer.into_inner().messages.remove(0).hostname
}

fn wait_hostname(node: &TestNode, wanted: &str) {
    let end = Instant::now() + deadline(STEP_LIMIT);
    loop {
        let now = hostname(node);
        if now == wanted {
            return;
        }
        assert!(Instant::now() < end, "the host name is {now}, not {wanted}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn kept(node: &TestNode) -> String {
    node.admin().ok(&["read", KEPT]).unwrap()
}

fn named(config: &str, name: &str) -> String {
    assert!(config.contains(HOSTNAME));
    config.replace(HOSTNAME, name)
}

fn assert_holds(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "no {word:?} in\n{text}");
    }
}

/// The fingerprint stands alone on the line after its announcement.
fn fingerprint(node: &TestNode) -> String {
    node.vm().expect("server certificate fingerprint:", BOOT_LIMIT).unwrap();
    let line = node.vm().expect("billet: machined: ", STEP_LIMIT).unwrap();
    line.split_whitespace().last().unwrap().to_owned()
}

#[test]
fn a_blank_machine_is_given_a_config_and_keeps_it() {
    let node = TestNode::builder("config-maintenance").source("").no_config().state_disk().start().unwrap();
    let config = node.credentials().machine_config().unwrap();
    let known = fingerprint(&node);

    let other = Rpc::insecure(&node, Some(&["AAAA".to_owned()]));
    assert!(other.is_err(), "a wrong fingerprint was taken");
    let rpc = Rpc::insecure(&node, Some(&[known])).unwrap();
    rpc.call(|client| async move { client.machine().version(tonic::Request::new(())).await }).unwrap();
    let reboot = api::proto::machine::RebootRequest::default();
    let denied = rpc.call(|client| async move { client.machine().reboot(reboot).await }).unwrap_err();
    assert_eq!(denied.code(), Code::PermissionDenied, "{denied:?}");
    let read = api::proto::machine::ReadRequest { path: "/etc/hosts".into() };
    let denied = rpc.call(|client| async move { client.machine().read(read).await }).unwrap_err();
    assert_holds(denied.message(), &["not authorized"]);

    let wrong = send(&rpc, request("version: v1alpha1\nmachin: {}\n", Mode::Auto)).unwrap_err();
    assert_holds(wrong.message(), &["failed to parse config: ", "line 2", "machin"]);
    let staged = send(&rpc, request(&config, Mode::Staged)).unwrap_err();
    assert_eq!(staged.message(), "apply configuration on reboot is not supported in maintenance mode");

    let answer = send(&rpc, request(&config, Mode::Reboot)).unwrap();
    assert_eq!(answer.mode(), Mode::NoReboot, "{answer:?}");
    node.wait_api(BOOT_LIMIT).unwrap();
    assert_eq!(kept(&node), config);
    wait_hostname(&node, HOSTNAME);
    let anonymous = Rpc::insecure(&node, None).and_then(|rpc| {
        Ok(rpc.call(|client| async move { client.machine().version(tonic::Request::new(())).await })?)
    });
    assert!(anonymous.is_err(), "a node with a config serves strangers");

    node.admin().ok(&["reboot", "--wait=false"]).unwrap();
    node.vm().expect("machine config: taken from STATE", BOOT_LIMIT * 2).unwrap();
    node.wait_api(BOOT_LIMIT).unwrap();
    wait_hostname(&node, HOSTNAME);
}

#[test]
fn a_machine_with_two_states_is_locked_and_takes_no_config() {
    let node = TestNode::builder("config-two-states").disk_with_two_states().start().unwrap();
    node.vm().wait_for("several partitions are labelled STATE", BOOT_LIMIT).unwrap();
    node.wait_locked().unwrap();
    let rpc = Rpc::insecure(&node, None).unwrap();
    rpc.call(|client| async move { client.machine().version(tonic::Request::new(())).await }).unwrap();
    let config = node.credentials().machine_config().unwrap();
    let refused = send(&rpc, request(&config, Mode::Auto)).unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
    assert_holds(
        refused.message(),
        &["this machine is locked", "several partitions", "billet.maintenance=open"],
    );
}

#[test]
fn every_mode_does_what_it_says() {
    let node = TestNode::builder("config-modes").state_disk().boot().unwrap();
    let config = node.credentials().machine_config().unwrap();
    node.wait_services().unwrap();
    assert_eq!(kept(&node), config, "a config from elsewhere is kept");
    let live = named(&config, "live");
    let deep = config.replace("type: controlplane", "type: init");
    assert_ne!(config, deep);

    // A dry run tells and does nothing.
    let dry = send(&admin(&node), ApplyConfigurationRequest { dry_run: true, ..request(&deep, Mode::Auto) })
        .unwrap();
    assert_holds(&dry.mode_details, &["Dry run summary", "with a reboot", "machine.type", "type: init"]);
    assert_eq!((dry.mode(), kept(&node)), (Mode::Reboot, config.clone()));

    // What needs a reboot is refused without one, in both generations' words.
    for request in [
        request(&deep, Mode::NoReboot),
        ApplyConfigurationRequest { immediate: true, ..request(&deep, Mode::Reboot) },
    ] {
        let refused = send(&admin(&node), request).unwrap_err();
        assert_holds(refused.message(), &["this config change can't be applied in immediate mode\ndiff: "]);
    }

    // Live, and kept.
    assert_eq!(apply(&node, &live, Mode::Auto).unwrap().mode(), Mode::NoReboot);
    wait_hostname(&node, "live");
    assert_eq!(kept(&node), live);

    // A try is in force, not kept, and over by itself.
    let tried = named(&config, "tried");
    let timeout = Some(wire(deadline(Duration::from_secs(3))));
    let answer = send(
        &admin(&node),
        ApplyConfigurationRequest { try_mode_timeout: timeout, ..request(&tried, Mode::Try) },
    );
    assert_eq!(answer.unwrap().mode(), Mode::Try);
    wait_hostname(&node, "tried");
    assert_eq!(kept(&node), live);
    node.vm().expect("is over: returned to the last confirmed configuration", STEP_LIMIT).unwrap();
    wait_hostname(&node, "live");

    // A confirmed change stays; there is nothing to confirm twice.
    let confirmed = named(&config, "confirmed");
    let time = deadline(CONFIRM);
    send(&admin(&node), with_confirm(&confirmed, Mode::NoReboot, time)).unwrap();
    wait_hostname(&node, "confirmed");
    confirm(&node).unwrap();
    assert_eq!(confirm(&node).unwrap_err().code(), Code::FailedPrecondition);
    node.vm().expect("the configuration was confirmed", STEP_LIMIT).unwrap();

    // Staged is for the next boot; with a change that needs one.
    let staged = deep.replace(HOSTNAME, "staged");
    assert_eq!(apply(&node, &staged, Mode::Staged).unwrap().mode(), Mode::Staged);
    assert_eq!((kept(&node), hostname(&node)), (staged.clone(), "confirmed".to_owned()));

    // And a reboot takes it.
    let rebooted = deep.replace(HOSTNAME, "rebooted");
    assert_eq!(apply(&node, &rebooted, Mode::Auto).unwrap().mode(), Mode::Reboot);
    node.vm().expect("machine config: taken from STATE", BOOT_LIMIT * 2).unwrap();
    node.wait_api(BOOT_LIMIT).unwrap();
    wait_hostname(&node, "rebooted");
}

#[test]
#[ignore = "long run"]
fn a_newer_config_on_state_wins_whatever_its_disk_hangs_on() {
    let buses = [("config-on-sata", Bus::Sata), ("config-on-nvme", Bus::Nvme)];
    for (name, bus) in buses {
        let node = TestNode::builder(name).state_disk_on(bus).boot().unwrap();
        let config = node.credentials().machine_config().unwrap();
        node.wait_services().unwrap();
        let newer = named(&config, "newer");
        assert_eq!(apply(&node, &newer, Mode::Auto).unwrap().mode(), Mode::NoReboot);
        wait_hostname(&node, "newer");
        node.admin().ok(&["reboot", "--wait=false"]).unwrap();
        let taken = node.vm().expect("machine config: taken from ", BOOT_LIMIT * 2).unwrap();
        assert!(taken.contains("taken from STATE"), "{name}: {taken}");
        node.wait_api(BOOT_LIMIT).unwrap();
        wait_hostname(&node, "newer");
    }
}

fn wire(time: Duration) -> prost_types::Duration {
    prost_types::Duration { seconds: i64::try_from(time.as_secs()).unwrap(), nanos: 0 }
}

fn with_confirm(text: &str, mode: Mode, time: Duration) -> ApplyConfigurationRequest {
    ApplyConfigurationRequest { confirm_timeout: Some(wire(time)), ..request(text, mode) }
}

fn confirm(node: &TestNode) -> Result<(), Status> {
    admin(node).call(|client| async move { client.own().confirm_configuration(()).await }).map(drop)
}

/// Configs after which the node cannot be reached, as `machine.network.interfaces`: every kind of link, and wrong numbers.
const WRONG_LINKS: [&str; 15] = [
    // A partner that is not there, a tag that the switch does not take, a bridge and a tunnel in the way of all.
    "[{interface: bond0, addresses: [10.0.2.15/24], bond: {mode: 802.3ad, minLinks: 2, interfaces: [LINK]}}]",
    "[{interface: LINK, vlans: [{vlanId: 9, addresses: [10.0.2.15/24], routes: [{gateway: 10.0.2.2}]}]}]",
    "[{interface: br0, addresses: [192.0.2.7/24], bridge: {interfaces: [LINK]}}]",
    "[{interface: wg0, addresses: [10.92.0.1/24], routes: [{gateway: 10.92.0.9}], wireguard: {privateKey: \
     bW8doBQYJZW9hYoVk8gWl36GTrEDFMTxtEvofrdqp2E=, peers: [{publicKey: qxiiTHK7yxbdfsv/r1HfZI749WHIVBM3ahIhJmb+xXc=, \
     endpoint: '192.0.2.1:51820', allowedIPs: [0.0.0.0/0]}]}}, {interface: LINK, addresses: [10.0.2.33/24]}]",
    "[{interface: LINK, ignore: true}]",
    // Other numbers.
    "[{interface: LINK, addresses: [192.0.2.7/24], routes: [{network: 0.0.0.0/0, gateway: 192.0.2.1}]}]",
    "[{interface: LINK, addresses: [10.0.2.99/24], routes: [{network: 0.0.0.0/0, gateway: 10.0.2.2}]}]",
    "[{interface: LINK}]",
    "[{interface: LINK, addresses: [10.9.9.9/32]}]",
    "[{interface: LINK, addresses: [198.51.100.1/30], mtu: 576}]",
    "[{interface: LINK, cidr: 192.0.2.8/25}]",
    "[{interface: LINK, addresses: ['fd00::7/64']}]",
    "[{interface: LINK, addresses: [10.0.2.200/24], mtu: 68}]",
    "[{interface: LINK, addresses: [203.0.113.9/24], routes: [{network: 10.0.0.0/8, gateway: 203.0.113.1}]}]",
    "[{interface: LINK, addresses: [10.0.2.77/24, 192.0.2.9/24]}]",
];
/// The same as documents.
const WRONG_DOCUMENTS: [&str; 5] = [
    "kind: LinkConfig\nname: LINK\nup: false\n",
    "kind: VRFConfig\nname: vrf-blue\nlinks: [LINK]\ntable: '123'\n",
    "kind: NetworkRuleConfig\nname: api\nportSelector: {ports: [50000], protocol: tcp}\ningress: [{subnet: 192.0.2.0/24}]\n",
    "kind: DHCPv4Config\nname: LINK\nignoreRoutes: true\n---\napiVersion: v1alpha1\nkind: LinkConfig\nname: LINK\nmtu: 68\n",
    "kind: RoutingRuleConfig\nname: \"100\"\naction: blackhole\n",
];

/// A config with one of these mistakes, and what it is.
fn mistake(config: &str, round: u32) -> (String, String) {
    let index = usize::try_from(round).unwrap() % (WRONG_LINKS.len() + WRONG_DOCUMENTS.len());
    if let Some(document) = WRONG_DOCUMENTS.get(index) {
        let document = document.replace("LINK", "eth0");
        return (format!("{config}---\napiVersion: v1alpha1\n{document}"), document);
    }
    let interfaces = WRONG_LINKS[index - WRONG_DOCUMENTS.len()].replace("LINK", "eth0");
    let name = format!("hostname: {HOSTNAME}");
    (config.replace(&name, &format!("{name}\n    interfaces: {interfaces}")), interfaces)
}

#[test]
#[ignore = "long run"]
fn an_unreachable_node_comes_back_by_itself() {
    let node = TestNode::builder("config-confirm").state_disk().boot().unwrap();
    let config = node.credentials().machine_config().unwrap();
    node.wait_services().unwrap();
    for round in 0..rounds(1, 30) {
        let (wrong, mistake) = mistake(&config, round);
        assert_ne!(wrong, config);
        // The third of each kind of change goes through a reboot.
        let mode = if round % 3 == 2 { Mode::Reboot } else { Mode::NoReboot };
        send(&admin(&node), with_confirm(&wrong, mode, deadline(CONFIRM))).unwrap();
        let applied = if mode == Mode::Reboot {
            "machine config: taken from STATE"
        } else {
            "Applied configuration without a reboot: "
        };
        node.vm().expect(applied, BOOT_LIMIT * 2).unwrap();
        node.vm().expect("returned to the last confirmed configuration", BOOT_LIMIT * 2).unwrap();
        node.answers(BOOT_LIMIT).unwrap_or_else(|error| panic!("round {round}, {mistake}: {error:#}"));
        assert_eq!(kept(&node), config, "round {round}, {mistake}");
        assert!(confirm(&node).is_err(), "something still waits for confirmation");
    }
}

#[test]
fn a_config_comes_over_http() {
    let web = Web::start().unwrap();
    let uuid = "0f3c7a52-9b1e-4c57-8a55-c3f1d1f7a001";
    let source = format!("{}/${{uuid}}/config.yaml?mac=${{mac}}", web.address());
    let node = TestNode::builder("config-http")
        .source(&source)
        .no_config()
        .machine(move |vm, _| Ok(vm.extra(&["-uuid", uuid])))
        .start()
        .unwrap();
    // The server has nothing yet: the node says so, opens to nobody, and asks again.
    node.vm().expect("failed to download config, received 404", BOOT_LIMIT).unwrap();
    assert!(Rpc::insecure(&node, None).is_err(), "a node that waits for its server serves strangers");
    let path = web.asked().last().unwrap().clone();
    assert_holds(&path, &[uuid, "/config.yaml?mac=52:54:00:"]);
    let config = node.credentials().machine_config().unwrap();
    web.serve(&path, &config);
    node.wait_api(BOOT_LIMIT * 2).unwrap();
    wait_hostname(&node, HOSTNAME);

    // Without STATE there is nothing that a restart would leave.
    let refused = apply(&node, &named(&config, "other"), Mode::Reboot).unwrap_err();
    assert_holds(refused.message(), &["no partition labelled STATE"]);
    apply(&node, &named(&config, "other"), Mode::NoReboot).unwrap();
    wait_hostname(&node, "other");
}
