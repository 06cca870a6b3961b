//! docs/users/netboot.md, "The root": init fetches it by https, with its own TLS over its own TCP/IP.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use api::pki::{Authority, CA_LIFETIME, Leaf, Lifetime, Usage};
use qemu_tests::artifacts::build;
use qemu_tests::node::BOOT_LIMIT;
use qemu_tests::web::{HOST, Web};
use qemu_tests::{TestNode, Transport, paths};

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

/// A folder for iPXE that trusts the authority.
fn bundle(folder: &Path, trusted: &Authority) -> PathBuf {
    let certificate = folder.join("authority.pem");
    std::fs::write(&certificate, trusted.certificate()).unwrap();
    let mut make = Command::new(&build().billetctl);
    make.args(["image", "build", "--kind", "pxe", "--certificate"]).arg(certificate);
    let made = make.arg("--output").arg(folder).arg("--from").arg(&build().test.installer).output().unwrap();
    assert!(made.status.success(), "image build: {}", String::from_utf8_lossy(&made.stderr));
    folder.join("metal-amd64-pxe")
}

/// A machine without a disk, as if iPXE had started it, with the root on these mirrors.
fn machine(name: &str, bundle: &Path, mirrors: &[&Web]) -> TestNode {
    let line = std::fs::read_to_string(bundle.join("cmdline")).unwrap();
    let line = line.trim_end().replace("billet.config=metal-iso", "billet.config=none");
    let mirrors: Vec<_> = mirrors.iter().map(|web| format!("{}/layers", web.address())).collect();
    let line = format!("{line} billet.root={}", mirrors.join(","));
    let (kernel, initramfs) = (bundle.join("vmlinuz"), bundle.join("initramfs"));
    TestNode::builder(name)
        .transport(Transport::Network)
        .no_config()
        .machine(move |vm, _| Ok(vm.kernel(&kernel, Some(&initramfs), &line)))
        .start()
        .unwrap()
}

/// A machine without a disk. Its first mirror sends it to a server that nobody knows, the second has the root.
#[test]
#[ignore = "long run"]
fn a_root_by_https_and_not_from_a_stranger() {
    let folder = paths::temporary_dir().unwrap();
    let known = authority("known");
    let bundle = bundle(folder.path(), &known);
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
    let folder = paths::temporary_dir().unwrap();
    let bundle = bundle(folder.path(), &authority("known"));
    let stranger = server(&authority("stranger"));
    let node = machine("network-root-stranger", &bundle, &[&stranger]);
    let said = node.vm().expect("boot failed: fetch_layers: ", BOOT_LIMIT).unwrap();
    assert!(said.contains("(issued by \"stranger\") is not trusted"), "{said}");
    assert_eq!(stranger.asked(), Vec::<String>::new());
}
