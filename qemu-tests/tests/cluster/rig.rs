//! A cluster of a control plane node and a worker, its registry and its clients, and the ways to ask them.
//!
//! Owns: that everything ends with the test, and what is said when it fails.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use api::generate::{Bundle, Contract};
use cluster::spec::{Image, NodeSpec};
use config::MachineType;
use config::rewrite::Form;
use oci::server::{Behaviour, Server};
use qemu_tests::artifacts::build;
use qemu_tests::cli::Billetctl;
use qemu_tests::{deadline, paths};
use serde::Deserialize;
use tokio::net::{TcpListener, TcpStream};

use crate::{backup, machine};

/// Names a file with the images that a cluster pulls.
pub(crate) const IMAGES: &str = "BILLET_CLUSTER_IMAGES";
/// Names the program that is every program of Kubernetes.
pub(crate) const KUBERNETES: &str = "BILLET_KUBERNETES";
pub(crate) const NAME: &str = "demo";
pub(crate) const NETWORK: &str = "10.5.0.0/24";
/// The address that control plane nodes share, where they do.
pub(crate) const SHARED: &str = "10.5.0.100";
pub(crate) const REGISTRY_PORT: u16 = 5000;
/// Of the API server.
const API_PORT: u16 = 6443;
/// For a connection of the balancer to a node that may be gone.
const DIAL_LIMIT: Duration = Duration::from_secs(1);
/// From an asked node to an answer, on a machine that has much else to do.
pub(crate) const STEP_LIMIT: Duration = Duration::from_secs(120);
/// One address for each kind of node; the second also is what the first one's pods reach the other's by.
pub(crate) const NODES: [(&str, MachineType); 2] =
    [("cp-1", MachineType::ControlPlane), ("worker-1", MachineType::Worker)];
/// A static pod of each node's configuration.
const FIXED_POD: &str = "{kind: pod, metadata: {name: fixed}, spec: {containers: [{name: main, image: 'PROGRAMS', \
                         command: [kubectl, proxy]}]}}";
/// A static pod of a file that the node did not write.
const FOREIGN_POD: &str = "{apiVersion: v1, kind: Pod, metadata: {name: foreign}, spec: {containers: [{name: main, \
                           image: 'PROGRAMS', command: [kubectl, proxy]}]}}";
/// A server of files at port 8001.
const FILE_SERVER: &str = "[kubectl, proxy, --www=/etc, --address=0.0.0.0, --accept-hosts=.*, --port=8001]";
/// What the server of files has at this path.
pub(crate) const SERVED: (&str, &str) = ("/static/passwd", "root:x:0:0");

/// An image in a file, as `cargo xtask images` lists it.
#[derive(Deserialize)]
struct Archive {
    repository: String,
    tag: String,
    archive: PathBuf,
}

/// What a cluster's endpoint leads to.
pub(crate) enum Endpoint {
    /// The control plane node.
    Node,
    /// A host that passes connections on to the API servers of the control plane nodes, and has nothing else of a node.
    Balancer,
    /// The address that the control plane nodes share.
    Shared,
    /// A machine that is started beside the nodes.
    Machine,
}

/// Each connection goes to the first of these that takes it.
async fn balance(listener: TcpListener, to: Vec<SocketAddr>) {
    while let Ok((mut client, _)) = listener.accept().await {
        let to = to.clone();
        tokio::spawn(async move {
            for address in to {
                let connected = tokio::time::timeout(DIAL_LIMIT, TcpStream::connect(address)).await;
                if let Ok(Ok(mut server)) = connected {
                    // Its end is the end of the connection.
                    drop(tokio::io::copy_bidirectional(&mut client, &mut server).await);
                    return;
                }
            }
        });
    }
}

/// What the cluster pulls.
fn archives() -> Vec<Archive> {
    let list =
        std::env::var(IMAGES).unwrap_or_else(|_| panic!("{IMAGES} names no list: run `cargo xtask test`"));
    serde_json::from_slice(&std::fs::read(list).unwrap()).unwrap()
}

/// The image that has every program of Kubernetes, `kubectl` too.
fn programs() -> Archive {
    archives().into_iter().find(|image| image.repository.ends_with("kube-proxy")).unwrap()
}

/// The version of Kubernetes, without `v`.
pub(crate) fn version() -> String {
    programs().tag.trim_start_matches('v').to_owned()
}

/// Objects in which `PROGRAMS` stands for the image that has the programs of Kubernetes, from any registry, since each has its
/// mirror here, and `SERVES` for the command of it that serves files.
pub(crate) fn objects(text: &str) -> String {
    let text = text.replace("PROGRAMS", &format!("registry.example.org/kube-proxy:v{}", version()));
    text.replace("SERVES", FILE_SERVER)
}

/// A registry with everything that the cluster pulls, on every address of the namespace.
pub(crate) fn registry(runtime: &tokio::runtime::Runtime) -> Server {
    let address = ([0, 0, 0, 0], REGISTRY_PORT).into();
    let server = runtime.block_on(Server::start_at(address, None, Behaviour::default())).unwrap();
    for image in archives() {
        server.serve(&image.archive, &image.repository, &image.tag).unwrap();
        // Configurations of the first generation name it so.
        if let Some(name) = image.repository.strip_prefix("siderolabs/") {
            server.serve(&image.archive, &format!("talos-systems/{name}"), &image.tag).unwrap();
        }
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
         network:\n    nameservers: [10.5.0.1]\n  nodeLabels: {{zone: a}}\n  pods:\n  - {}\n\
         cluster:\n  allowSchedulingOnControlPlanes: true\n",
        objects(FIXED_POD)
    )
}

fn configuration(
    wanted: &api::generate::Cluster,
    secrets: &Bundle,
    machine_type: MachineType,
    changes: &[config::patch::Patch],
) -> config::Secret {
    let text = wanted.machine_config(secrets, machine_type);
    let patches = [&config::patch::load_patches(&patch()).unwrap(), changes].concat();
    config::Secret::new(config::patch::apply(text.expose_secret(), &patches).unwrap())
}

/// The same configuration in sections, or in documents as far as there are such.
fn written_as(form: Form, configuration: &config::Secret) -> config::Secret {
    let text = configuration.expose_secret();
    config::rewrite::rewrite(text.as_bytes(), form).unwrap().text
}

pub(crate) struct Running {
    pub(crate) cluster: Option<cluster::Cluster>,
    pub(crate) admin: Billetctl,
    pub(crate) files: tempfile::TempDir,
    wanted: api::generate::Cluster,
    secrets: Bundle,
    pub(crate) registry: Server,
    /// What nodes put to a server.
    pub(crate) target: backup::Files,
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
    /// A cluster of these nodes, one address after the other.
    pub(crate) fn start(nodes: &[(&str, MachineType)]) -> Self {
        Self::start_as(nodes, &Contract::NEWEST.to_string(), Form::V1alpha1, Endpoint::Node)
    }

    /// The same with configurations as `version` generates them, written in that form, and with this endpoint.
    pub(crate) fn start_as(
        nodes: &[(&str, MachineType)],
        contract: &str,
        form: Form,
        endpoint: Endpoint,
    ) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let registry = registry(&runtime);
        let target = backup::target(&runtime);
        let network: cluster::network::Network = NETWORK.parse().unwrap();
        let address = match endpoint {
            Endpoint::Machine => machine::ADDRESS.parse().unwrap(),
            _ => network.node(0).unwrap(),
        };
        let is_shared = matches!(endpoint, Endpoint::Shared);
        let endpoint = match endpoint {
            Endpoint::Shared => SHARED.parse().unwrap(),
            Endpoint::Node | Endpoint::Machine => address,
            Endpoint::Balancer => {
                let listener = runtime.block_on(TcpListener::bind(("0.0.0.0", API_PORT))).unwrap();
                let servers =
                    (0_u32..).zip(nodes).filter(|(_, (_, machine_type))| machine_type.is_control_plane());
                let servers = servers.map(|(index, _)| (network.node(index).unwrap(), API_PORT).into());
                runtime.spawn(balance(listener, servers.collect()));
                network.host()
            }
        };
        let secrets = Bundle::generate().unwrap();
        let wanted = api::generate::Cluster {
            name: NAME.into(),
            endpoint: format!("https://{endpoint}:{API_PORT}"),
            contract: contract.parse().unwrap(),
            install_disk: "/dev/vda".into(),
            install_image: None,
            additional_sans: Vec::new(),
            dns_domain: "cluster.local".into(),
            kubernetes_version: Some(version()),
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
        let shared =
            format!("machine: {{network: {{interfaces: [{{interface: eth0, vip: {{ip: {SHARED}}}}}]}}}}");
        let shared = config::patch::load_patches(&shared).unwrap();
        let changes = |machine_type: &MachineType| {
            if is_shared && machine_type.is_control_plane() { &shared[..] } else { &[] }
        };
        let node = |(index, (name, machine_type)): (usize, &(&str, MachineType))| NodeSpec {
            name: (*name).into(),
            address: network.node(u32::try_from(index).unwrap()).unwrap(),
            is_control_plane: machine_type.is_control_plane(),
            config: Some(written_as(
                form,
                &configuration(&wanted, &secrets, *machine_type, changes(machine_type)),
            )),
        };
        let nodes: Vec<_> = nodes.iter().enumerate().map(node).collect();
        let state = paths::work_dir().join("clusters");
        if let Ok(old) = cluster::find(&state, NAME) {
            old.destroy(&mut |_| {}).unwrap();
        }
        let cluster =
            cluster::create(&state, NAME, network, image(), &nodes, &mut |step| eprintln!("{step}")).unwrap();
        let admin = Billetctl::new(&talosconfig);
        Self { cluster: Some(cluster), admin, files, wanted, secrets, registry, target, _runtime: runtime }
    }

    /// Writes the administrator's kubeconfig, and begins the cluster.
    pub(crate) fn begin(&self) {
        let kubeconfig = self.kubeconfig();
        // It needs no Kubernetes.
        self.until(&["kubeconfig", kubeconfig.to_str().unwrap()], &[], STEP_LIMIT);
        self.until(&["bootstrap"], &[], STEP_LIMIT);
    }

    /// The configuration of a further node, with a change of its own.
    pub(crate) fn configuration(&self, machine_type: MachineType, change: &str) -> config::Secret {
        let changes = config::patch::load_patches(change).unwrap();
        configuration(&self.wanted, &self.secrets, machine_type, &changes)
    }

    /// Runs a command of the client until it succeeds and its output holds these words.
    pub(crate) fn until(&self, words: &[&str], needles: &[&str], limit: Duration) -> String {
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

    /// Changes the config of the node with this address while it runs.
    pub(crate) fn patch(&self, node: &str, patch: &str) {
        let words = ["-n", node, "patch", "mc", "--mode=no-reboot", "-p", patch];
        self.until(&words, &["patched"], STEP_LIMIT);
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.files.path().join("kubeconfig")
    }

    pub(crate) fn kubectl_command(&self, words: &[&str]) -> Command {
        let program = std::env::var_os(KUBERNETES)
            .unwrap_or_else(|| panic!("{KUBERNETES} names no program: run `cargo xtask test`"));
        let mut command = Command::new(program);
        command
            .arg0("kubectl")
            .args(words)
            .env("KUBECONFIG", self.kubeconfig())
            .env("HOME", self.files.path())
            .stdin(Stdio::null());
        command
    }

    /// What `kubectl` prints, or why it failed.
    pub(crate) fn kubectl(&self, words: &[&str]) -> Result<String, String> {
        let output = self.kubectl_command(&[&["--request-timeout=10s"], words].concat()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() { Ok(text) } else { Err(text + &String::from_utf8_lossy(&output.stderr)) }
    }

    /// Runs `kubectl` until it prints this.
    pub(crate) fn kubectl_until(&self, words: &[&str], needle: &str, limit: Duration) -> String {
        let begin = Instant::now();
        loop {
            let said = self.kubectl(words);
            match said {
                Ok(text) if text.contains(needle) => return text,
                _ if begin.elapsed() < deadline(limit) => std::thread::sleep(Duration::from_millis(250)),
                said => panic!("kubectl {}: no {needle:?} in\n{said:?}\n{}", words.join(" "), self.state()),
            }
        }
    }

    /// What there is, for the report of a failure.
    pub(crate) fn state(&self) -> String {
        let asked = [&["get", "pods", "-A", "-o", "wide"][..], &["get", "events", "-A"]];
        let of_cluster = asked.map(|words| self.kubectl(words).unwrap_or_else(|error| error)).join("\n");
        let asked =
            [&["service"][..], &["logs", "kubelet", "--tail", "20"], &["logs", "etcd", "--tail", "20"]];
        let said =
            |words| self.admin.run(words).map_or_else(|error| error.to_string(), |output| output.stdout);
        format!("{of_cluster}\n{}", asked.map(said).join("\n"))
    }

    /// The container `client` of a pod reads a file from a pod of the worker, by the service's address and by its name.
    pub(crate) fn service_answers(&self, pod: &str, limit: Duration) {
        let address = &["get", "service", "web", "-o", "jsonpath={.spec.clusterIP}"];
        let address = self.kubectl_until(address, ".", STEP_LIMIT);
        for host in [address.as_str(), "web.default.svc.cluster.local"] {
            let server = format!("--server=http://{host}:80");
            let (path, content) = SERVED;
            let ask = ["exec", pod, "-c", "client", "--", "kubectl", "--request-timeout=5s", &server];
            self.kubectl_until(&[&ask[..], &["get", "--raw", path]].concat(), content, limit);
        }
    }

    /// Whether a node, or this machine, gets a connection to a port.
    pub(crate) fn connects(&self, from: Option<&str>, to: &str, port: u16) -> bool {
        let connect = format!("exec 3<>/dev/tcp/{to}/{port}");
        let mut words = vec!["timeout", "2", "bash", "-c", &connect];
        let namespace = from.map(|node| self.cluster.as_ref().unwrap().container(node));
        if let Some(namespace) = &namespace {
            words.splice(0..0, ["ip", "netns", "exec", namespace]);
        }
        Command::new(words[0]).args(&words[1..]).output().unwrap().status.success()
    }

    /// The same file, by a port of this machine that is forwarded through the API server.
    pub(crate) fn port_is_forwarded(&self) {
        let mut forward = self
            .kubectl_command(&["port-forward", "service/web", "18001:80"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let (path, content) = SERVED;
        self.kubectl_until(&["--server=http://127.0.0.1:18001", "get", "--raw", path], content, STEP_LIMIT);
        forward.kill().unwrap();
        forward.wait().unwrap();
    }

    /// What is attached to a program of a pod is its input, and its output comes back.
    pub(crate) fn input_is_read(&self) {
        let phase = ["get", "pod", "input", "-o", "jsonpath={.status.phase}"];
        self.kubectl_until(&phase, "Running", STEP_LIMIT);
        let mut attached = self
            .kubectl_command(&["attach", "input", "--stdin"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let object = serde_json::json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "attached" } });
        let object = format!("{object}\n");
        attached.stdin.take().unwrap().write_all(object.as_bytes()).unwrap();
        let output = attached.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "configmap/attached");
    }

    /// The processes of a node that run a program of this name, as this machine counts processes.
    pub(crate) fn processes(&self, node: &str, program: &str) -> BTreeSet<u32> {
        let init = self.cluster.as_ref().unwrap().pid(node).unwrap();
        // Of the network: services that are containers share that of their node, and have processes of their own.
        let namespace = |pid: u32| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        let node = namespace(init).unwrap();
        let runs_it = |pid: u32| {
            let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let first = words.split(|byte| *byte == 0).next().unwrap_or_default();
            first.rsplit(|byte| *byte == b'/').next() == Some(program.as_bytes())
        };
        let names = std::fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().file_name());
        let pids = names.filter_map(|name| name.to_str()?.parse().ok());
        pids.filter(|pid| namespace(*pid).as_ref() == Some(&node) && runs_it(*pid)).collect()
    }

    /// Puts a static pod beside the node's own.
    pub(crate) fn add_foreign_manifest(&self, node: &str) {
        let machined = self.processes(node, "machined").pop_first().unwrap();
        let directory = PathBuf::from(format!("/proc/{machined}/root")).join("etc/kubernetes/manifests");
        assert!(directory.join("talos-default-fixed.yaml").exists(), "the node's own files are elsewhere");
        std::fs::write(directory.join("foreign.yaml"), objects(FOREIGN_POD)).unwrap();
    }

    /// Kills a program of a node, and waits until as many processes of it run again, none of them an old one.
    pub(crate) fn kill(&self, node: &str, program: &str) {
        let old = self.processes(node, program);
        assert!(!old.is_empty(), "no {program} runs on {node}");
        let pids = old.iter().map(u32::to_string);
        assert!(Command::new("kill").arg("-9").args(pids).status().unwrap().success());
        let begin = Instant::now();
        loop {
            let new = self.processes(node, program);
            if new.len() == old.len() && new.is_disjoint(&old) {
                return;
            }
            assert!(
                begin.elapsed() < deadline(STEP_LIMIT),
                "{program} of {node}: {old:?} were killed, {new:?} run\n{}",
                self.state()
            );
            std::thread::sleep(Duration::from_millis(250));
        }
    }

    /// Waits until a node's log has a line with this.
    pub(crate) fn log_says(&self, node: &str, needle: &str) {
        let log = self.cluster.as_ref().unwrap().log(node);
        let begin = Instant::now();
        while !std::fs::read_to_string(&log).unwrap_or_default().contains(needle) {
            assert!(
                begin.elapsed() < deadline(STEP_LIMIT),
                "{node} does not say {needle:?}\n{}",
                self.state()
            );
            std::thread::sleep(Duration::from_millis(250));
        }
    }

    /// Has a node go as if for good, and come back: its pods go elsewhere first, one of them not before its budget lets it, and
    /// the node takes back its own cordon.
    pub(crate) fn drain_and_restart(&self, node: &str, address: &str) {
        let cluster = self.cluster.as_ref().unwrap();
        let budget = ["create", "poddisruptionbudget", "web", "--selector=app=web", "--min-available=1"];
        self.kubectl_until(&budget, "created", STEP_LIMIT);
        let allowed = ["get", "poddisruptionbudget", "web", "-o", "jsonpath={.status.currentHealthy}"];
        self.kubectl_until(&allowed, "1", STEP_LIMIT);
        self.until(&["-n", address, "reset", "--wait=false"], &[], STEP_LIMIT);
        self.log_says(node, " waits: Cannot evict pod as it would violate the pod's disruption budget");
        assert!(cluster.is_running(node).unwrap(), "{node} stopped before its pods were gone");
        self.kubectl_until(&["delete", "poddisruptionbudget", "web"], "deleted", STEP_LIMIT);
        let begin = Instant::now();
        while cluster.is_running(node).unwrap() {
            assert!(begin.elapsed() < deadline(STEP_LIMIT), "{node} does not stop\n{}", self.state());
            std::thread::sleep(Duration::from_millis(250));
        }
        let log = std::fs::read_to_string(cluster.log(node)).unwrap();
        let gone = log.lines().find(|line| line.contains("pods are gone in"));
        let gone = gone.unwrap_or_else(|| panic!("{node} was not drained"));
        assert!(!gone.contains("drain: 0 pods") && !log.contains("stopped where they are"), "{gone}");
        eprintln!("{gone}");
        let column = ["get", "node", node, "-o", "jsonpath={.spec.unschedulable}/{.metadata.annotations}"];
        let object = self.kubectl_until(&column, "true/", STEP_LIMIT);
        assert!(object.contains("talos.dev/cordoned"), "{object}");
        cluster.stop(node).unwrap();
        cluster.start(node).unwrap();
        let column = ["get", "node", node, "-o", "jsonpath=[{.spec.unschedulable}]"];
        self.kubectl_until(&column, "[]", STEP_LIMIT);
    }

    /// Stops a node, whose pods have to end before it does, and starts it.
    pub(crate) fn restart(&self, node: &str) {
        let cluster = self.cluster.as_ref().unwrap();
        let pods = self.processes(node, "kubectl").len();
        cluster.stop(node).unwrap();
        let log = std::fs::read_to_string(cluster.log(node)).unwrap();
        let said: Vec<&str> = log.lines().filter(|line| line.contains("pods: stop")).collect();
        let [.., began, ended] = said[..] else { panic!("{node} has not stopped its pods: {said:?}") };
        eprintln!("{began}\n{ended}");
        let number = |text: &str, before: &str| {
            let number = text.split_once(before).and_then(|(_, rest)| rest.split([' ', ',']).next());
            number.and_then(|number| number.parse::<usize>().ok()).unwrap()
        };
        let (wanted, stopped) = (number(began, "stopping "), number(ended, "stopped "));
        assert!(stopped == wanted && stopped >= pods, "{pods} pods of the test ran\n{began}\n{ended}");
        cluster.start(node).unwrap();
    }
}
