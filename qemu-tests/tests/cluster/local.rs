//! `billetctl cluster`: from an installer image to a cluster that has begun, and back to a machine without it.

use std::process::Command;
use std::time::Duration;

use api::talosconfig::Talosconfig;
use qemu_tests::artifacts::build;
use qemu_tests::cli::Billetctl;
use qemu_tests::{namespaces, paths};

use crate::rig::{NETWORK, REGISTRY_PORT, registry, version};

/// From an image in a file to a cluster that has begun.
const CREATE_LIMIT: Duration = Duration::from_secs(180);
const NAME: &str = "small";

#[test]
fn billetctl_makes_shows_and_ends_a_cluster() {
    if !namespaces::inside("local::billetctl_makes_shows_and_ends_a_cluster") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let _registry = registry(&runtime);
    let files = paths::temporary_dir().unwrap();
    let [talosconfig, kubeconfig] = ["talosconfig", "kubeconfig"].map(|name| files.path().join(name));
    // Another cluster that happens to have the same name.
    let other = "context: small\ncontexts: {small: {endpoints: [192.0.2.1], ca: b3RoZXI=}}\n";
    std::fs::write(&talosconfig, other).unwrap();
    let forwarding = || std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward").unwrap();
    let forwarding_before = forwarding();
    // Below a symbolic link, as home directories and build directories are: runc takes real paths alone.
    let (real, state) = (paths::work_dir().join("local-clusters"), files.path().join("state"));
    std::fs::create_dir_all(&real).unwrap();
    std::os::unix::fs::symlink(&real, &state).unwrap();
    let client = Billetctl::new(&talosconfig);
    let of_state = |words: &[&str]| {
        let words = [&["cluster"], words, &["--state", state.to_str().unwrap()]].concat();
        let output = client.ok_within(&words, CREATE_LIMIT);
        output.unwrap_or_else(|error| panic!("{error:#}"))
    };
    if state.join("clusters").join(NAME).exists() {
        of_state(&["destroy", "--name", NAME]);
    }
    let mirror = format!("*=http://10.5.0.1:{REGISTRY_PORT}");
    let image = build().test.installer.to_str().unwrap();
    of_state(&[
        "create",
        "--name",
        NAME,
        "--workers",
        "0",
        "--wait=false",
        "--cidr",
        NETWORK,
        "--image",
        image,
        "--kubernetes-version",
        &version(),
        "--registry-mirror",
        &mirror,
        "--nameservers",
        "10.5.0.1",
        "--kubeconfig",
        kubeconfig.to_str().unwrap(),
    ]);
    let shown = of_state(&["show"]);
    let row = shown.lines().nth(1).unwrap();
    for word in ["small-controlplane-1", "controlplane", "10.5.0.2", "running"] {
        assert!(row.contains(word), "{word:?} in {shown}");
    }
    // The cluster's context is the current one, beside the other of its name.
    assert!(client.ok(&["version"]).unwrap().contains("10.5.0.2"));
    let contexts = Talosconfig::load(&talosconfig).ok().unwrap();
    assert_eq!((contexts.context.as_str(), contexts.contexts.len()), ("small-1", 2));
    assert!(std::fs::read_to_string(&kubeconfig).unwrap().contains("https://10.5.0.2:6443"));
    let again = ["cluster", "create", "--name", NAME, "--state", state.to_str().unwrap(), "--image", image];
    let refused = client.refused(&again).unwrap();
    assert!(refused.contains("cluster \"small\" exists in"), "{refused}");

    of_state(&["destroy", "--name", NAME]);
    let contexts = Talosconfig::load(&talosconfig).ok().unwrap();
    assert_eq!((contexts.context.as_str(), contexts.contexts.len()), ("small", 1));
    assert!(!std::fs::read_to_string(&kubeconfig).unwrap().contains("10.5.0.2"));
    for directory in ["clusters", "cluster-images"] {
        assert!(!state.join(directory).join(NAME).exists(), "{directory} are left");
    }
    let rules = Command::new("nft").args(["list", "ruleset"]).output().unwrap().stdout;
    assert_eq!(String::from_utf8_lossy(&rules), "", "rules are left");
    let links = Command::new("ip").args(["-brief", "link"]).output().unwrap().stdout;
    assert_eq!(String::from_utf8_lossy(&links).lines().count(), 1, "more than lo is left");
    assert_eq!(forwarding(), forwarding_before);
}
