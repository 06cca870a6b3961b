//! docs/users/netboot.md, "The root": init fetches it with its own TCP/IP and TLS, from servers as they are.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use api::pki::{Authority, CA_LIFETIME, Leaf, Lifetime, Usage};
use netroot::peer::{Answer, Manner, Plan, Site};
use qemu_tests::artifacts::build;
use qemu_tests::lan::MAC;
use qemu_tests::node::BOOT_LIMIT;
use qemu_tests::process::POLL_INTERVAL;
use qemu_tests::web::{HOST, Web};
use qemu_tests::{TestNode, Transport, VmBuilder, deadline, paths};

use crate::netboot::{BUNDLE, MOST_MOVED, Rig, make_bundle};

/// What maintenance mode says at the console.
const MAINTENANCE: &str = "upload a configuration with";

/// An emulated processor deciphers a hundred megabytes.
const FETCH_LIMIT: Duration = Duration::from_secs(180);

fn authority(name: &str) -> Authority {
    Authority::generate(name, Lifetime::from_now(CA_LIFETIME)).unwrap()
}

/// A server that says that it is the host as guests see it.
fn server(authority: &Authority) -> Web {
    let leaf = Leaf {
        organizations: Vec::new(),
        names: vec![HOST.to_owned()],
        usage: Usage::Server,
        lifetime: Lifetime::from_now(CA_LIFETIME),
    };
    Web::start_tls(&authority.issue(&leaf).unwrap()).unwrap()
}

/// A directory for iPXE that trusts the authority.
fn bundle(directory: &Path, trusted: &Authority) -> PathBuf {
    let certificate = directory.join("authority.pem");
    std::fs::write(&certificate, trusted.certificate()).unwrap();
    let mut make = Command::new(&build().billetctl);
    make.args(["image", "build", "--kind", "pxe", "--certificate"]).arg(certificate);
    let made =
        make.arg("--output").arg(directory).arg("--from").arg(&build().test.installer).output().unwrap();
    assert!(made.status.success(), "image build: {}", String::from_utf8_lossy(&made.stderr));
    directory.join("metal-amd64-pxe")
}

/// A machine without a disk, as if iPXE had started it, with the root on these mirrors.
fn machine(name: &str, bundle: &Path, mirrors: &[&Web]) -> TestNode {
    let mirrors: Vec<_> = mirrors.iter().map(|web| format!("{}/layers", web.address())).collect();
    started(name, bundle, &format!("billet.root={}", mirrors.join(",")), Vec::new())
}

/// The same with these kernel arguments and a card of QEMU's more.
fn started(name: &str, bundle: &Path, words: &str, card: Vec<String>) -> TestNode {
    started_with(name, bundle, words, move |vm| {
        vm.extra(&card.iter().map(String::as_str).collect::<Vec<_>>())
    })
}

/// The same with these kernel arguments, and what is changed of the machine.
fn started_with(
    name: &str,
    bundle: &Path,
    words: &str,
    change: impl FnOnce(VmBuilder) -> VmBuilder + 'static,
) -> TestNode {
    let line = std::fs::read_to_string(bundle.join("cmdline")).unwrap();
    let line = line.trim_end().replace("billet.config=metal-iso", "billet.config=none");
    let line = format!("{line} {words}");
    let (kernel, initramfs) = (bundle.join("vmlinuz"), bundle.join("initramfs"));
    TestNode::builder(name)
        .transport(Transport::Network)
        .no_config()
        .machine(move |vm, _| Ok(change(vm.kernel(&kernel, Some(&initramfs), &line))))
        .start()
        .unwrap()
}

/// A machine without a disk. Its first mirror sends it to a server that nobody knows, the second has the root.
#[test]
#[ignore = "long run"]
fn a_root_by_https_and_not_from_a_stranger() {
    let directory = paths::temporary_dir().unwrap();
    let known = authority("known");
    let bundle = bundle(directory.path(), &known);
    let (good, stranger, sends) = (server(&known), server(&authority("stranger")), Web::start().unwrap());
    let mut wanted = Vec::new();
    for layer in std::fs::read_dir(bundle.join("layers")).unwrap() {
        let layer = layer.unwrap().path();
        let path = format!("/layers/{}", layer.file_name().unwrap().to_str().unwrap());
        good.serve_file(&path, &layer);
        stranger.serve_file(&path, &layer);
        sends.redirect(&path, &format!("{}{path}", stranger.address()));
        wanted.push(path);
    }
    let node = machine("network-root-https", &bundle, &[&sends, &good]);
    node.vm().expect("authorities trusted for https: 1", BOOT_LIMIT).unwrap();
    let refused = format!("its certificate for {HOST} (issued by \"stranger\") is not trusted");
    let said = node.vm().expect(&refused, FETCH_LIMIT).unwrap();
    assert!(said.contains(&format!("it sends us to {}/layers/", stranger.address())), "{said}");
    node.vm().expect(&format!("root from {}/layers/", good.address()), FETCH_LIMIT).unwrap();
    // It is the root of a node, not only bytes.
    node.vm().wait_for(MAINTENANCE, BOOT_LIMIT).unwrap();
    // A stranger does not even hear what is wanted.
    assert_eq!(stranger.asked(), Vec::<String>::new());
    let mut asked = good.asked();
    asked.sort();
    asked.dedup();
    wanted.sort();
    assert_eq!(asked, wanted);
}

/// Without another mirror there is no root: the machine says why, and starts nothing.
#[test]
#[ignore = "long run"]
fn no_root_from_a_stranger_alone() {
    let directory = paths::temporary_dir().unwrap();
    let bundle = bundle(directory.path(), &authority("known"));
    let stranger = server(&authority("stranger"));
    let node = machine("network-root-stranger", &bundle, &[&stranger]);
    let said = node.vm().expect("boot failed: fetch_layers: ", BOOT_LIMIT).unwrap();
    assert!(said.contains("(issued by \"stranger\") is not trusted"), "{said}");
    assert_eq!(stranger.asked(), Vec::<String>::new());
}

/// Into the first layer, and far from its end.
const SOME_BYTES: u64 = 4 << 20;

/// On the network of a rig, by the card that is on it.
fn on_the_lan(name: &str, rig: &Rig, words: &str) -> TestNode {
    let words = format!("{words} BOOTIF=01-{}", MAC.replace(':', "-"));
    started(name, &rig.path(BUNDLE), &words, rig.lan.bare_card().to_vec())
}

fn size_of(layer: &Path) -> u64 {
    std::fs::metadata(layer).unwrap().len()
}

/// A fixed address, since nobody gives one. The first mirror is dead; the second goes away in the middle of a layer and comes
/// back, and the layer goes on where it was.
#[test]
#[ignore = "long run"]
fn a_server_that_goes_away_in_the_middle_and_comes_back() {
    let mut rig = Rig::new("10.77.0.1/24");
    rig.serve(&[]);
    let root = "billet.root=http://10.77.0.1:9/layers,http://10.77.0.1:8080/bundle/layers";
    let node = on_the_lan("network-root-outage", &rig, &format!("{root} ip=10.77.0.50:::255.255.255.0"));
    node.vm().expect(": address 10.77.0.50/24", BOOT_LIMIT).unwrap();
    node.vm().expect("/layers/", BOOT_LIMIT).unwrap();
    node.vm().wait_for(".layer: 10.77.0.1:9 refuses connections", BOOT_LIMIT).unwrap();
    let end = Instant::now() + deadline(FETCH_LIMIT);
    while rig.lan.sent_bytes().unwrap() < SOME_BYTES {
        assert!(Instant::now() < end, "no layer comes:\n{}", rig.log());
        std::thread::sleep(POLL_INTERVAL);
    }
    rig.stop();
    let said = node.vm().expect(": the connection ended after ", BOOT_LIMIT).unwrap();
    assert!(said.contains("layer base from http://10.77.0.1:8080/bundle/layers/"), "{said}");
    node.vm().expect(".layer: 10.77.0.1:8080 refuses connections", BOOT_LIMIT).unwrap();
    rig.serve(&[]);
    node.vm().expect("root from http://10.77.0.1:8080/bundle/layers/", FETCH_LIMIT).unwrap();
    node.vm().wait_for(MAINTENANCE, BOOT_LIMIT).unwrap();
    let layers: Vec<&Path> = build().test.layers.iter().map(|layer| layer.file.as_path()).collect();
    let whole: u64 = layers.iter().map(|layer| size_of(layer)).sum();
    let moved = rig.lan.sent_bytes().unwrap();
    assert!(moved as f64 <= whole as f64 * MOST_MOVED, "{moved} bytes for a root of {whole}");
    // What the second server sent of the first layer is its rest.
    let log = rig.log();
    let sent = log.lines().find(|line| line.contains(".layer by HTTP, ")).unwrap();
    let kib: u64 = sent.split(" by HTTP, ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(sent.contains(layers[0].file_name().unwrap().to_str().unwrap()), "{log}");
    assert!(kib * 1024 < size_of(layers[0]) - SOME_BYTES / 2, "{log}");
}

/// Everything is on a VLAN: the DHCP server, which knows of nothing else, and the layers.
#[test]
#[ignore = "long run"]
fn a_root_on_a_vlan() {
    let plan = |_: &Rig| {
        let layers = build().test.layers.iter().map(|layer| {
            let name = layer.file.file_name().unwrap().to_str().unwrap();
            (format!("/layers/{name}"), std::fs::read(&layer.file).unwrap())
        });
        let site = Site::new(80, Manner::Good);
        let site = layers.fold(site, |site, (path, bytes)| site.file(&path, Answer::File(bytes)));
        Plan { vlan: Some(5), no_next_server: true, ..Plan::with([site]) }
    };
    let rig = Rig::beside("10.77.0.77/24", plan);
    let words = "billet.root=http://10.77.0.1/layers vlan=lan.5:lan ip=lan.5:dhcp";
    let node = on_the_lan("network-root-vlan", &rig, words);
    let address = "VLAN 5: address 10.77.0.100/24, gateway 10.77.0.1, from the DHCP server 10.77.0.1";
    node.vm().expect(address, BOOT_LIMIT).unwrap();
    node.vm().expect("root from http://10.77.0.1/layers/", FETCH_LIMIT).unwrap();
    let asked = rig.neighbour.as_ref().unwrap().requests();
    let wanted = build()
        .test
        .layers
        .iter()
        .map(|layer| format!("80 /layers/{} from 0", layer.file.file_name().unwrap().to_str().unwrap()));
    assert_eq!(asked, Vec::from_iter(wanted));
}

/// The kernel and its initramfs run in it, and the root does not fit beside them.
const LITTLE_MEMORY_MIB: u32 = 256;

/// A machine with too little memory says the numbers, before it asks anybody for anything.
#[test]
#[ignore = "long run"]
fn too_little_memory_is_said_before_the_download() {
    let (directory, web) = (paths::temporary_dir().unwrap(), Web::start().unwrap());
    make_bundle(directory.path());
    let bundle = directory.path().join(BUNDLE);
    let mirror = format!("billet.root={}/layers", web.address());
    let node = started_with("network-root-memory", &bundle, &mirror, |vm| vm.memory_mib(LITTLE_MEMORY_MIB));
    let said =
        node.vm().expect("boot failed: check_memory: fetch root into memory: needs ", BOOT_LIMIT).unwrap();
    let layers: u64 = build().test.layers.iter().map(|layer| size_of(&layer.file)).sum();
    let layers = layers.div_ceil(1_000_000);
    let needs = format!("needs {} MB: {layers} MB for its layers and 135 MB for what runs; ", layers + 135);
    assert!(said.contains(&needs) && said.contains(" MB are free; restarting in "), "{said}");
    assert_eq!(web.asked(), Vec::<String>::new());
}
