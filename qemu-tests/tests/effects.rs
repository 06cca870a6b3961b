//! What the machine config makes of a node: the clock, files, certificates, proxies, kernel parameters, containerd.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use api::pki::{Authority, CA_LIFETIME, Leaf, Lifetime, Usage};
use qemu_tests::node::BOOT_LIMIT;
use qemu_tests::web::{HOST, Web};
use qemu_tests::{TestNode, deadline};

/// How far the test's time server is ahead: below the hour by which certificates are backdated.
const AHEAD: Duration = Duration::from_secs(600);
/// The port of the guide's snippet.
const METRICS_PORT: u16 = 11234;
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates";

/// An NTP server on loopback, which a VM reaches as 10.0.2.2. It serves as long as this program runs.
fn time_server() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut request = [0; 48];
        while let Ok((48, from)) = socket.recv_from(&mut request) {
            let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap() + AHEAD;
            let seconds = since_1970.as_secs() + 2_208_988_800;
            let fraction = (u64::from(since_1970.subsec_nanos()) << 32) / 1_000_000_000;
            let stamp = ((seconds << 32) | fraction).to_be_bytes();
            let mut reply = [0; 48];
            (reply[0], reply[1]) = (0x24, 1);
            reply[24..32].copy_from_slice(&request[40..]);
            reply[32..40].copy_from_slice(&stamp);
            reply[40..].copy_from_slice(&stamp);
            let _ = socket.send_to(&reply, from);
        }
    });
    port
}

/// One node for all tests of this file, and the servers that it knows: no test changes it.
struct Fixture {
    node: TestNode,
    /// Notes who is asked for, and lets nobody through.
    proxy: Web,
    /// Its authority was appended to the node's.
    registry: Web,
    /// Nobody knows its authority.
    stranger: Web,
    /// What was appended.
    authority: String,
}

fn server(authority: &Authority) -> Web {
    let lifetime = Lifetime::from_now(Duration::from_secs(86_400));
    let leaf =
        Leaf { organizations: Vec::new(), names: vec![HOST.to_owned()], usage: Usage::Server, lifetime };
    Web::start_tls(&authority.issue(&leaf).unwrap()).unwrap()
}

fn node() -> &'static TestNode {
    &fixture().node
}

fn fixture() -> &'static Fixture {
    static FIXTURE: OnceLock<Fixture> = OnceLock::new();
    FIXTURE.get_or_init(|| {
        let [known, unknown] = ["known", "unknown"]
            .map(|name| Authority::generate(name, Lifetime::from_now(CA_LIFETIME)).unwrap());
        let (proxy, registry, stranger) = (Web::start().unwrap(), server(&known), server(&unknown));
        let authority = known.certificate().trim_end().to_owned();
        let indented = authority.replace('\n', "\n        ");
        let config = format!(
            r#"  time:
    servers: ["10.0.2.2:{}"]
  files:
    - content: |
        [metrics]
          address = "0.0.0.0:{METRICS_PORT}"        
      path: /var/cri/conf.d/metrics.toml
      op: create
    - content: |
        {indented}        
      permissions: 0644
      path: {AUTHORITIES}
      op: append
    - content: hidden
      permissions: 0600
      path: /var/lib/billet-test/secret
      op: create
  env:
    http_proxy: {proxy}
    https_proxy: {proxy}
    no_proxy: 10.0.0.0/8
  sysctls:
    net.ipv4.ip_forward: "0"
    net.ipv4.no_such_parameter: "1"
    net.ipv4.tcp_congestion_control: bbr
    net.netfilter.nf_conntrack_max: "54321"
  registries:
    mirrors:
      '*':
        endpoints: ["http://10.5.0.1:6000/"]
"#,
            time_server(),
            proxy = proxy.address(),
        );
        let builder = TestNode::builder("effects").machine_section(&config);
        let node = builder.machine(|vm, _| Ok(vm.forward(METRICS_PORT))).boot().unwrap();
        // The API answers before the files are written.
        node.wait_services().unwrap();
        Fixture { node, proxy, registry, stranger, authority }
    })
}

fn ok(words: &[&str]) -> String {
    node().admin().ok(words).unwrap()
}

/// Repeats a command until its output holds all the words.
fn eventually(words: &[&str], wanted: &[&str]) -> String {
    let end = Instant::now() + deadline(BOOT_LIMIT);
    loop {
        let text = node().admin().ok(words).unwrap_or_default();
        if wanted.iter().all(|word| text.contains(word)) {
            return text;
        }
        assert!(Instant::now() < end, "no {wanted:?} in\n{text}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn the_clock_follows_the_configs_server() {
    node().vm().wait_for("timed: clock synchronised", BOOT_LIMIT).unwrap();
    eventually(&["get", "timestatus", "-o", "yaml"], &["synced: true"]);
    eventually(&["get", "clocksources"], &["10.0.2.2", "believed"]);
    eventually(&["service", "timed"], &["HEALTH", "OK"]);
    let log = node().vm().console().text();
    let set = log.lines().find(|line| line.contains("timed: clock set by")).unwrap_or(&log);
    let seconds: f64 = set.rsplit('+').next().unwrap().trim_end_matches(" s").trim().parse().unwrap();
    // The VM's clock began as the host's.
    assert!((seconds - AHEAD.as_secs_f64()).abs() < 30.0, "{set}");
}

#[test]
fn a_certificate_is_appended_to_the_images_own_once() {
    let text = ok(&["read", AUTHORITIES]);
    assert_eq!(text.matches(&fixture().authority).count(), 1);
    assert!(text.matches("BEGIN CERTIFICATE").count() > 100, "the image's authorities are gone");
    // The usual names lead there.
    assert_eq!(ok(&["read", "/etc/ssl/certs/ca-certificates.crt"]), text);
    assert!(ok(&["mounts"]).contains(AUTHORITIES));
}

#[test]
fn files_have_their_permissions() {
    assert_eq!(ok(&["read", "/var/lib/billet-test/secret"]), "hidden");
    let listing = ok(&["ls", "-l", "/var/lib/billet-test"]);
    assert!(listing.lines().any(|line| line.contains("-rw-------") && line.contains("secret")), "{listing}");
    let statuses = ok(&["get", "filestatuses"]);
    assert!(statuses.contains("var/lib/billet-test/secret") && statuses.contains("0600"), "{statuses}");
}

#[test]
fn what_pulls_images_gets_the_proxy() {
    let agent = node().agent().unwrap();
    eventually(&["service", "cri"], &["Running", "OK"]);
    eventually(&["service", "containerd"], &["Running", "OK"]);
    let processes = agent.processes().unwrap();
    let containerds: Vec<_> = processes.iter().filter(|process| process.name == "containerd").collect();
    let [containerd] = containerds[..] else { panic!("{processes:?}") };
    let environment = ok(&["read", &format!("/proc/{}/environ", containerd.pid)]);
    let proxy = fixture().proxy.address();
    assert!(environment.contains(&format!("http_proxy={proxy}\0")), "{environment}");
    assert!(environment.contains("no_proxy=10.0.0.0/8"), "{environment}");
    let apid = agent.process("apid").unwrap();
    assert!(!ok(&["read", &format!("/proc/{}/environ", apid.pid)]).contains("proxy"));
}

/// Asks containerd for an image that nobody has; returns why there is none.
fn pull(image: &str) -> String {
    eventually(&["service", "cri"], &["Running", "OK"]);
    node().admin().refused(&["image", "pull", image]).unwrap()
}

#[test]
fn an_image_is_asked_for_through_the_proxy() {
    let refused = pull("registry.invalid/billet/none:1");
    let asked = fixture().proxy.asked();
    assert!(asked.contains(&"registry.invalid:443".to_owned()), "{asked:?}, {refused}");
}

#[test]
fn containerd_trusts_the_appended_authority_and_no_other() {
    let Fixture { registry, stranger, .. } = fixture();
    let refused = pull(&format!("{}/billet/none:1", registry.authority()));
    let asked = registry.asked();
    assert!(asked.iter().any(|path| path.starts_with("/v2/billet/none/manifests/1")), "{asked:?}, {refused}");
    assert!(!refused.contains("x509"), "{refused}");
    let refused = pull(&format!("{}/billet/none:1", stranger.authority()));
    assert!(refused.contains("x509: certificate signed by unknown authority"), "{refused}");
    assert_eq!(stranger.asked(), Vec::<String>::new());
}

#[test]
fn kernel_parameters_are_set_and_unknown_ones_are_told() {
    // The keys of whoever is at the console; nothing in the config names it.
    assert_eq!(ok(&["read", "/proc/sys/kernel/sysrq"]).trim(), "0");
    assert_eq!(ok(&["read", "/proc/sys/net/ipv4/ip_forward"]).trim(), "0");
    let list = ok(&["get", "sysctls"]);
    let row = |name: &str| list.lines().find(|line| line.contains(name)).unwrap_or(&list);
    assert!(row("no_such_parameter").contains("true"), "{list}");
    assert!(row("net.ipv4.ip_forward").contains("false"), "{list}");
    eventually(
        &["logs", "controller-runtime"],
        &["KernelParamSpecController: controller starting", "no such parameter"],
    );
}

/// The kernel asks for what a parameter names, and the parameters of a module are tried again once it is there.
#[test]
fn modules_are_there_when_the_kernel_asks_for_them_and_for_containers() {
    let list =
        eventually(&["get", "loadedkernelmodules"], &["tcp_bbr", "overlay", "br_netfilter", "nf_conntrack"]);
    // Not of the config's devices, nor for containers: the kernel started modprobe.
    assert!(ok(&["dmesg"]).contains("modprobe: loaded tcp_bbr for tcp_bbr"), "{list}");
    assert_eq!(ok(&["read", "/proc/sys/net/ipv4/tcp_congestion_control"]).trim(), "bbr");
    eventually(&["read", "/proc/sys/net/netfilter/nf_conntrack_max"], &["54321"]);
    let sysctls = eventually(&["get", "sysctls"], &["nf_conntrack_max"]);
    let row = sysctls.lines().find(|line| line.contains("nf_conntrack_max"));
    assert!(row.is_some_and(|row| row.contains("false")), "{sysctls}");
}

#[test]
fn the_metrics_snippet_answers_on_its_port() {
    let port = node().vm().port(METRICS_PORT).unwrap();
    let end = Instant::now() + deadline(BOOT_LIMIT * 2);
    loop {
        let answer = http(port, "/v1/metrics").unwrap_or_default();
        if answer.contains("200 OK") && answer.contains("# HELP") {
            return;
        }
        assert!(Instant::now() < end, "{answer}\n{}", ok(&["logs", "cri"]));
        std::thread::sleep(Duration::from_millis(300));
    }
}

fn http(port: u16, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: node\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn registries_reach_containerd() {
    assert!(
        ok(&["read", "/var/etc/cri/hosts/_default/hosts.toml"]).contains("[host.\"http://10.5.0.1:6000\"]")
    );
    let config = ok(&["read", "/etc/cri/containerd.toml"]);
    assert!(
        config.contains("imports = ") && config.contains("config_path = \"/var/etc/cri/hosts\""),
        "{config}"
    );
    eventually(&["service", "cri"], &["Running", "OK"]);
}

/// A kubelet mounts volumes for pods in its own namespace.
#[test]
fn what_containers_mount_below_shared_volumes_reaches_the_node() {
    let table = node().admin().ok(&["read", "/proc/1/mountinfo"]).unwrap();
    for target in ["/", "/var", "/run"] {
        let mount = table.lines().rev().find(|line| line.split(' ').nth(4) == Some(target));
        let options = mount.and_then(|line| line.split_once(" - ")).map(|(options, _)| options);
        assert!(options.is_some_and(|options| options.contains(" shared:")), "{target}: {table}");
    }
}
