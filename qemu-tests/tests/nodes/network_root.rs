//! docs/users/netboot.md, "The root": init fetches it by https, with its own TLS over its own TCP/IP.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use api::pki::{Authority, CA_LIFETIME, Leaf, Lifetime, Usage};
use qemu_tests::artifacts::build;
use qemu_tests::node::BOOT_LIMIT;
use qemu_tests::web::{HOST, Web};
use qemu_tests::{TestNode, Transport};

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
fn bundle(folder: &Path, trusted: &Authority) -> std::path::PathBuf {
    let certificate = folder.join("authority.pem");
    std::fs::write(&certificate, trusted.certificate()).unwrap();
    let mut make = Command::new(&build().billetctl);
    make.args(["image", "build", "--kind", "pxe", "--certificate"]).arg(certificate);
    let made = make.arg("--output").arg(folder).arg("--from").arg(&build().test.installer).output().unwrap();
    assert!(made.status.success(), "image build: {}", String::from_utf8_lossy(&made.stderr));
    folder.join("metal-amd64-pxe")
}

/// A machine without a disk. Its first mirror sends it to a server that nobody knows, the second has the root.
#[test]
fn a_root_by_https_and_not_from_a_stranger() {
    let folder = tempfile::tempdir().unwrap();
    let known = authority("known");
    let bundle = bundle(folder.path(), &known);
    let (good, stranger, sends) = (server(&known), server(&authority("stranger")), Web::start().unwrap());
    let layers = std::fs::read_dir(bundle.join("layers")).unwrap();
    let layers: Vec<_> = layers.map(|layer| layer.unwrap().path()).collect();
    for layer in &layers {
        let path = format!("/layers/{}", layer.file_name().unwrap().to_str().unwrap());
        good.serve_file(&path, layer);
        stranger.serve_file(&path, layer);
        sends.redirect(&path, &format!("{}{path}", stranger.address()));
    }
    let line = std::fs::read_to_string(bundle.join("cmdline")).unwrap();
    let line = line.replace("billet.config=metal-iso", "billet.config=none");
    let line = format!("{line} billet.root={}/layers,{}/layers", sends.address(), good.address());
    let node = TestNode::builder("network-root-https").transport(Transport::Network).no_config();
    let node = node
        .machine(move |vm, _| Ok(vm.kernel(&bundle.join("vmlinuz"), Some(&bundle.join("initramfs")), &line)))
        .start()
        .unwrap();
    node.vm().expect("authorities trusted for https: 1", BOOT_LIMIT).unwrap();
    let refused = format!("its certificate for {HOST} (issued by \"stranger\") is not trusted");
    let said = node.vm().expect(&refused, FETCH_LIMIT).unwrap();
    assert!(said.contains(&format!("it sends us to {}/layers/", stranger.address())), "{said}");
    node.vm().expect(&format!("root from {}/layers/", good.address()), FETCH_LIMIT).unwrap();
    // A stranger does not even hear what is wanted.
    assert_eq!(stranger.asked(), Vec::<String>::new());
}
