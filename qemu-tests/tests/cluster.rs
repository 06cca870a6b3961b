//! Clusters of nodes that are containers, with real Kubernetes.
//!
//! The whole cluster, its registry and its clients are in a network namespace of the test's own. The images are those that
//! `cargo xtask images` makes; nothing else is pulled.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use api::generate::{Bundle, Contract};
use cluster::spec::{Image, NodeSpec};
use config::MachineType;
use oci::server::{Behaviour, Server};
use qemu_tests::artifacts::build;
use qemu_tests::cli::Billetctl;
use qemu_tests::{deadline, paths};
use serde::Deserialize;

/// Set in the process that runs in the namespace.
const INSIDE: &str = "BILLET_TEST_INSIDE";
/// Names a file with the images that a cluster pulls.
const IMAGES: &str = "BILLET_CLUSTER_IMAGES";
const NAME: &str = "demo";
const NETWORK: &str = "10.5.0.0/24";
const REGISTRY_PORT: u16 = 5000;
const VERSION: &str = "1.34.10";
/// From an asked node to an answer, on a machine that has much else to do.
const STEP_LIMIT: Duration = Duration::from_secs(120);

/// Runs the named test of this program once more, in namespaces of its own for network and mounts.
fn in_namespaces(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    // Names of network namespaces are files of the whole machine: here they are this test's own.
    let script = "ip link set lo up && mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns && exec \"$@\"";
    let status = Command::new("unshare")
        .args(["--net", "--mount", "--propagation", "private", "--", "sh", "-c", script, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--include-ignored", "--nocapture"])
        .env(INSIDE, "1")
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
    false
}

/// An image in a file, as `cargo xtask images` lists it.
#[derive(Deserialize)]
struct Archive {
    repository: String,
    tag: String,
    archive: PathBuf,
}

/// A registry with everything that the cluster pulls, on every address of the namespace.
fn registry(runtime: &tokio::runtime::Runtime) -> Server {
    let list =
        std::env::var(IMAGES).unwrap_or_else(|_| panic!("{IMAGES} names no list: run `cargo xtask test`"));
    let list: Vec<Archive> = serde_json::from_slice(&std::fs::read(list).unwrap()).unwrap();
    let address = ([0, 0, 0, 0], REGISTRY_PORT).into();
    let server = runtime.block_on(Server::start_at(address, None, Behaviour::default())).unwrap();
    for image in list {
        server.serve(&image.archive, &image.repository, &image.tag).unwrap();
    }
    server
}

/// The built image's parts, without the kernel's layer.
fn image() -> Image {
    let build = build();
    let layers =
        build.test.layers.iter().filter(|layer| layer.name != "kernel").map(|layer| layer.file.clone());
    Image { layers: layers.collect(), init: build.init.clone(), manifest: build.test.manifest.clone() }
}

fn patch() -> String {
    format!(
        "machine:\n  registries:\n    mirrors:\n      \"*\":\n        endpoints: [\"http://10.5.0.1:{REGISTRY_PORT}\"]\n  \
         kubelet:\n    extraConfig:\n      systemCgroups: \"\"\n      kubeletCgroups: \"\"\n      evictionHard: {{}}\n  \
         network:\n    nameservers: [10.5.0.1]\n\
         cluster:\n  etcd: {{image: \"registry.example.org/etcd:3.6.4-0\"}}\n  allowSchedulingOnControlPlanes: true\n  network:\n    cni: {{name: none}}\n"
    )
}

struct Running {
    cluster: Option<cluster::Cluster>,
    admin: Billetctl,
    _files: tempfile::TempDir,
    _registry: Server,
    _runtime: tokio::runtime::Runtime,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(cluster) = self.cluster.take() {
            for node in &cluster.nodes {
                let kept = paths::vm_dir("cluster").unwrap().join(format!("{}.log", node.name));
                let _ = std::fs::copy(cluster.log(&node.name), &kept);
                eprintln!("the log of {} is {}", node.name, kept.display());
            }
            let ended = cluster.destroy(&mut |_| {});
            // A second panic would hide the first.
            assert!(std::thread::panicking() || ended.is_ok(), "{ended:?}");
        }
    }
}

impl Running {
    fn start() -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let registry = registry(&runtime);
        let network: cluster::network::Network = NETWORK.parse().unwrap();
        let address = network.node(0).unwrap();
        let secrets = Bundle::generate().unwrap();
        let wanted = api::generate::Cluster {
            name: NAME.into(),
            endpoint: format!("https://{address}:6443"),
            contract: Contract::NEWEST,
            install_disk: "/dev/vda".into(),
            install_image: None,
            additional_sans: Vec::new(),
            dns_domain: "cluster.local".into(),
            kubernetes_version: Some(VERSION.into()),
            registry_mirrors: Vec::new(),
            persist: true,
            discovery: false,
            kubespan: false,
        };
        let files = paths::temporary_dir().unwrap();
        let talosconfig = files.path().join("talosconfig");
        let mut client = wanted.talosconfig(&secrets).unwrap();
        for context in client.contexts.values_mut() {
            context.endpoints = vec![address.to_string()];
            context.nodes = vec![address.to_string()];
        }
        client.save(&talosconfig).unwrap();
        let text = wanted.machine_config(&secrets, MachineType::ControlPlane);
        let patches = config::patch::load_patches(&patch()).unwrap();
        let text = config::patch::apply(text.expose_secret(), &patches).unwrap();
        let node = NodeSpec { name: "cp-1".into(), address, config: Some(config::Secret::new(&text)) };
        let state = paths::work_dir().join("clusters");
        if let Ok(old) = cluster::find(&state, NAME) {
            old.destroy(&mut |_| {}).unwrap();
        }
        let cluster =
            cluster::create(&state, NAME, network, image(), &[node], &mut |step| eprintln!("{step}"))
                .unwrap();
        let admin = Billetctl::new(&talosconfig);
        Self { cluster: Some(cluster), admin, _files: files, _registry: registry, _runtime: runtime }
    }

    /// Runs a command of the client until it succeeds and its output holds these words.
    fn until(&self, words: &[&str], needles: &[&str], limit: Duration) -> String {
        let begin = Instant::now();
        loop {
            let said = match self.admin.run(words) {
                Ok(output)
                    if output.success && needles.iter().all(|needle| output.stdout.contains(needle)) =>
                {
                    return output.stdout;
                }
                Ok(output) => output.stdout + &output.stderr,
                Err(error) => format!("{error:#}"),
            };
            assert!(
                begin.elapsed() < deadline(limit),
                "billetctl {}: no {needles:?} in\n{said}",
                words.join(" ")
            );
            std::thread::sleep(Duration::from_millis(250));
        }
    }
}

#[test]
#[ignore = "takes the images that BILLET_CLUSTER_IMAGES lists"]
fn a_control_plane_comes_up() {
    if !in_namespaces("a_control_plane_comes_up") {
        return;
    }
    let begin = Instant::now();
    let cluster = Running::start();
    let version = cluster.until(&["version"], &["Server"], STEP_LIMIT);
    eprintln!("{:?}: {version}", begin.elapsed());
    cluster.until(&["service", "etcd"], &["Preparing"], STEP_LIMIT);
    eprintln!("{:?}: etcd waits", begin.elapsed());
    drop(cluster);
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let state = paths::work_dir().join("clusters");
    let left = mounts.lines().filter(|line| line.contains(state.to_str().unwrap()));
    assert_eq!(left.collect::<Vec<_>>(), Vec::<&str>::new(), "mounts are left");
    let links = Command::new("ip").args(["-brief", "link"]).output().unwrap().stdout;
    assert_eq!(String::from_utf8_lossy(&links).lines().count(), 1, "more than lo is left");
    assert!(!Path::new("/run/netns").join(format!("{NAME}.cp-1")).exists(), "a namespace is left");
    assert!(!state.join(NAME).exists(), "files are left");
    for controller in std::fs::read_dir("/sys/fs/cgroup").unwrap() {
        let group = controller.unwrap().path().join("billet").join(NAME);
        assert!(!group.exists(), "{} is left", group.display());
    }
}
