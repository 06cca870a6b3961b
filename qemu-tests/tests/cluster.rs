//! Clusters of nodes that are containers, with real Kubernetes.
//!
//! The whole cluster, its registry and its clients are in a network namespace of the test's own. The images are those that
//! `cargo xtask images` makes; nothing else is pulled.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
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
/// Names the program that is every program of Kubernetes.
const KUBERNETES: &str = "BILLET_KUBERNETES";
const NAME: &str = "demo";
const NETWORK: &str = "10.5.0.0/24";
const REGISTRY_PORT: u16 = 5000;
const VERSION: &str = "1.34.10";
/// From an asked node to an answer, on a machine that has much else to do.
const STEP_LIMIT: Duration = Duration::from_secs(120);
/// The only network plugin that needs no image: the node has its program.
const BRIDGE: &str = r#"{"cniVersion": "0.4.0", "name": "bridge", "plugins": [{"type": "bridge", "bridge": "cni0",
    "isGateway": true, "ipMasq": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}]],
    "routes": [{"dst": "0.0.0.0/0"}]}}, {"type": "portmap", "capabilities": {"portMappings": true}}]}"#;
/// Stays until it is ended, and has programs to run.
const POD: &str = "{apiVersion: v1, kind: Pod, metadata: {name: one}, spec: {terminationGracePeriodSeconds: 1, containers: [\
    {name: main, image: 'registry.example.org/kube-proxy:v1.34.10', command: [kubectl, version, --client]},\
    {name: pause, image: 'registry.example.org/pause:3.10'}]}}";

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
         network:\n    nameservers: [10.5.0.1]\n\
         cluster:\n  allowSchedulingOnControlPlanes: true\n  network:\n    cni: {{name: none}}\n"
    )
}

struct Running {
    cluster: Option<cluster::Cluster>,
    admin: Billetctl,
    files: tempfile::TempDir,
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
        Self { cluster: Some(cluster), admin, files, _registry: registry, _runtime: runtime }
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
                "billetctl {}: no {needles:?} in\n{said}\n{}",
                words.join(" "),
                self.state()
            );
            std::thread::sleep(Duration::from_millis(250));
        }
    }

    fn kubeconfig(&self) -> PathBuf {
        self.files.path().join("kubeconfig")
    }

    /// What `kubectl` prints, or why it failed.
    fn kubectl(&self, words: &[&str], input: Option<&Path>) -> Result<String, String> {
        let program = std::env::var_os(KUBERNETES)
            .unwrap_or_else(|| panic!("{KUBERNETES} names no program: run `cargo xtask test`"));
        let input = input.map_or_else(Stdio::null, |path| std::fs::File::open(path).unwrap().into());
        let output = Command::new(program)
            .arg0("kubectl")
            .arg("--request-timeout=10s")
            .args(words)
            .env("KUBECONFIG", self.kubeconfig())
            .env("HOME", self.files.path())
            .stdin(input)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() { Ok(text) } else { Err(text + &String::from_utf8_lossy(&output.stderr)) }
    }

    /// Runs `kubectl` until it prints this.
    fn kubectl_until(&self, words: &[&str], needle: &str, limit: Duration) -> String {
        let begin = Instant::now();
        loop {
            let said = self.kubectl(words, None);
            match said {
                Ok(text) if text.contains(needle) => return text,
                _ if begin.elapsed() < deadline(limit) => std::thread::sleep(Duration::from_millis(250)),
                said => panic!("kubectl {}: no {needle:?} in\n{said:?}\n{}", words.join(" "), self.state()),
            }
        }
    }

    /// What there is, for the report of a failure.
    fn state(&self) -> String {
        let asked = [&["get", "pods", "-A", "-o", "wide"][..], &["get", "events", "-A"]];
        let of_cluster =
            asked.map(|words| self.kubectl(words, None).unwrap_or_else(|error| error)).join("\n");
        let services =
            self.admin.run(&["service"]).map_or_else(|error| error.to_string(), |output| output.stdout);
        format!("{of_cluster}\n{services}")
    }

    /// A file inside the node, written through the root of its first process.
    fn write_on_node(&self, path: &str, text: &str) {
        let cluster = self.cluster.as_ref().unwrap();
        let pid = cluster.pid("cp-1").unwrap();
        std::fs::write(format!("/proc/{pid}/root/{path}"), text).unwrap();
    }
}

#[test]
fn a_control_plane_runs_a_pod() {
    if !in_namespaces("a_control_plane_runs_a_pod") {
        return;
    }
    let begin = Instant::now();
    let tell = |what: &str| eprintln!("{:6.1} s: {what}", begin.elapsed().as_secs_f64());
    let cluster = Running::start();
    cluster.until(&["version"], &["Server"], STEP_LIMIT);
    tell("the API answers");
    cluster.until(&["service", "etcd"], &["Preparing"], STEP_LIMIT);
    tell("etcd waits");
    let kubeconfig = cluster.kubeconfig();
    // It needs no Kubernetes.
    cluster.until(&["kubeconfig", kubeconfig.to_str().unwrap()], &[], STEP_LIMIT);
    cluster.until(&["bootstrap"], &[], STEP_LIMIT);
    let again = cluster.admin.run(&["bootstrap"]).unwrap();
    assert!(!again.success, "{}", again.stdout);
    cluster.until(&["etcd", "members"], &["cp-1", "https://10.5.0.2:2379"], STEP_LIMIT);
    tell("etcd runs");
    cluster.kubectl_until(&["get", "--raw", "/readyz"], "ok", STEP_LIMIT);
    tell("the API server is ready");
    cluster.kubectl_until(&["get", "nodes"], "cp-1", STEP_LIMIT);
    tell("the node is registered");
    cluster.write_on_node("etc/cni/net.d/10-bridge.conflist", BRIDGE);
    cluster.kubectl_until(&["get", "nodes"], " Ready ", STEP_LIMIT);
    tell("the node is ready");
    let pod = cluster.files.path().join("pod.yaml");
    std::fs::write(&pod, POD).unwrap();
    let apply = ["apply", "-f", pod.to_str().unwrap()];
    // The controller manager makes the account that a pod needs.
    cluster.kubectl_until(&apply, "pod/one", STEP_LIMIT);
    cluster.kubectl_until(&["get", "pod", "one", "-o", "jsonpath={.status.podIP}"], "10.244.0.", STEP_LIMIT);
    tell("the pod has an address");
    // By the kubelet's port, whose certificate and rights are part of this.
    cluster.kubectl_until(&["logs", "one", "-c", "main"], "Client Version: v1.34.10", STEP_LIMIT);
    tell("its log is read");
    cluster.kubectl_until(&["-n", "kube-system", "get", "pods"], "kube-proxy-", STEP_LIMIT);
    let inside = ["exec", "-n", "kube-system", "ds/kube-proxy", "--", "kube-proxy", "--version"];
    cluster.kubectl_until(&inside, "Kubernetes v1.34.10", STEP_LIMIT);
    tell("a program runs in a pod");
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
