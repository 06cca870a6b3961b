//! Clusters of nodes that are containers, with real Kubernetes.
//!
//! The whole cluster, its registry and its clients are in a network namespace of the test's own. The images are those that
//! `cargo xtask images` makes; nothing else is pulled.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod alone;
mod backup;
mod etcd_faults;
mod faults;
mod firewall;
mod guide;
mod joining;
mod kills;
mod leaving;
mod load;
mod local;
mod machine;
mod members;
mod recovery;
mod rig;
mod rotation;
mod upgrade;
mod workload;

use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use config::rewrite::Form;
use qemu_tests::settings::rounds;
use qemu_tests::{namespaces, paths};

use machine::Machine;
use rig::{Endpoint, NAME, NODES, Running, STEP_LIMIT};

/// A pod on the control plane node, and a server of files with a service on the worker.
const OBJECTS: &str = r"
apiVersion: v1
kind: Pod
metadata: {name: one}
spec:
  nodeName: cp-1
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: 'PROGRAMS', command: [kubectl, version, --client]}
  - {name: client, image: 'PROGRAMS', command: [kubectl, proxy]}
---
apiVersion: v1
kind: Pod
metadata: {name: input}
spec:
  nodeName: worker-1
  restartPolicy: Never
  containers:
  - name: main
    image: PROGRAMS
    command: [kubectl, create, --dry-run=client, --output=name, --filename=-]
    stdin: true
    stdinOnce: true
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      nodeSelector: {kubernetes.io/hostname: worker-1}
      terminationGracePeriodSeconds: 1
      containers:
      - name: web
        image: PROGRAMS
        command: SERVES
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80, targetPort: 8001, nodePort: 30081}]}
";

/// Clusters of tests have one name, one directory and one set of addresses, and a small machine has memory for one.
static TURN: Mutex<()> = Mutex::new(());

/// [`namespaces::inside`], where this test has its turn.
fn inside(test: &str) -> bool {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    namespaces::inside(test)
}

/// A cluster whose pods answer each other.
fn cluster_with_pods(tell: &dyn Fn(&str)) -> Running {
    let cluster = Running::start(&NODES);
    cluster.until(&["version"], &["Server"], STEP_LIMIT);
    tell("the API answers");
    cluster.until(&["service", "etcd"], &["Preparing"], STEP_LIMIT);
    cluster.begin();
    let again = cluster.admin.run(&["bootstrap"]).unwrap();
    assert!(!again.success, "{}", again.stdout);
    cluster.until(&["etcd", "members"], &["cp-1", "https://10.5.0.2:2379"], STEP_LIMIT);
    tell("etcd runs");
    // Its certificate is from the control plane node.
    cluster.until(&["-n", "10.5.0.3", "version"], &["Server"], STEP_LIMIT);
    tell("the worker's API answers");
    cluster.kubectl_until(&["get", "--raw", "/readyz"], "ok", STEP_LIMIT);
    tell("the API server is ready");
    for (node, _) in NODES {
        cluster.kubectl_until(&["get", "nodes"], node, STEP_LIMIT);
        tell(&format!("{node} is registered"));
    }
    cluster.kubectl_until(&["get", "csr"], "Approved,Issued", STEP_LIMIT);
    for (node, _) in NODES {
        cluster.kubectl_until(&["get", "node", node], " Ready ", STEP_LIMIT);
        tell(&format!("{node} is ready"));
    }
    for (node, _) in NODES {
        cluster.kubectl_until(&["get", "nodes", "-l", "zone=a"], node, STEP_LIMIT);
    }
    tell("both have the label of their configurations");
    let dns = ["get", "deployment", "coredns", "-n", "kube-system", "-o", "jsonpath={.status.readyReplicas}"];
    cluster.kubectl_until(&dns, "2", STEP_LIMIT);
    tell("the cluster's DNS is ready");
    let health =
        cluster.admin.run(&["health", "--wait-timeout", "2m", "--worker-nodes", "10.5.0.3"]).unwrap();
    for line in [
        "etcd members to be consistent across nodes: OK",
        "etcd members to be control plane nodes: OK",
        "coredns to report ready: OK",
        "all k8s nodes to report schedulable: OK",
    ] {
        assert!(health.success && health.stderr.contains(line), "no {line:?} in {}", health.stderr);
    }
    tell("the cluster says that it is well");
    cluster.add_foreign_manifest("worker-1");
    cluster.until(&["get", "staticpods"], &["default-fixed", "kube-apiserver", "kube-scheduler"], STEP_LIMIT);
    cluster.until(
        &["get", "podstatus"],
        &[
            "default/fixed-cp-1",
            "kube-system/kube-controller-manager-cp-1",
            "kube-system/kube-scheduler-cp-1",
        ],
        STEP_LIMIT,
    );
    cluster.until(&["get", "podstatus", "kube-system/kube-apiserver-cp-1"], &["True"], STEP_LIMIT);
    for (node, _) in NODES {
        cluster.kubectl_until(&["get", "pod", &format!("fixed-{node}")], "Running", STEP_LIMIT);
    }
    tell("static pods are shown, and those of the configuration run");
    let objects = cluster.files.path().join("objects.yaml");
    std::fs::write(&objects, rig::objects(OBJECTS)).unwrap();
    // The controller manager makes the account that a pod needs.
    cluster.kubectl_until(&["apply", "-f", objects.to_str().unwrap()], "pod/one", STEP_LIMIT);
    cluster.kubectl_until(&["get", "pod", "one", "-o", "jsonpath={.status.podIP}"], "10.244.", STEP_LIMIT);
    tell("the pod has an address");
    // By the kubelet's port, whose certificate and rights are part of this.
    cluster.kubectl_until(&["logs", "one", "-c", "main"], &format!("v{}", rig::version()), STEP_LIMIT);
    tell("its log is read");
    cluster.service_answers("one", STEP_LIMIT);
    tell("a service on the worker answers a pod on the control plane node");
    cluster.port_is_forwarded();
    tell("a port is forwarded");
    cluster.input_is_read();
    tell("a program that was attached to has read its input");
    cluster
}

/// Says what was reached, with the time since now.
fn teller() -> impl Fn(&str) {
    let begin = Instant::now();
    move |what| eprintln!("{:6.1} s: {what}", begin.elapsed().as_secs_f64())
}

#[test]
fn a_control_plane_a_worker_and_a_machine_run_pods() {
    if !inside("a_control_plane_a_worker_and_a_machine_run_pods") {
        return;
    }
    let tell = teller();
    let cluster = cluster_with_pods(&tell);
    guide::is_followed(&cluster, &rig::version());
    tell("the commands of the guides print what is there");
    firewall::shuts_out_and_lets_in(&cluster);
    tell("pods, node ports and the kubelet's streams work with a firewall that shuts others out");
    // It joins while the others start again: what it asks them for does not always answer.
    let machine = Machine::worker(&cluster);
    for (node, address) in [("cp-1", None), ("worker-1", Some("10.5.0.3"))] {
        match address {
            Some(address) => cluster.drain_and_restart(node, address),
            None => cluster.restart(node),
        }
        tell(&format!("{node} has started again"));
        cluster.kubectl_until(&["get", "--raw", "/readyz"], "ok", STEP_LIMIT);
        cluster.service_answers("one", STEP_LIMIT);
        tell("the service answers");
    }
    machine.joins(&cluster, &tell);
    // Its images are minutes of an emulated processor.
    if rounds(0, 1) > 0 {
        machine.runs_pods(&cluster, &tell);
    }
    drop(machine);
    // Generated configurations disable the directory for files that are not the node's.
    let pods = cluster.kubectl_until(&["get", "pods", "--all-namespaces"], "fixed-worker-1", STEP_LIMIT);
    assert!(!pods.contains("foreign"), "{pods}");
    drop(cluster);
    nothing_is_left();
}

#[test]
#[ignore = "long run"]
fn programs_of_a_node_that_are_killed_come_back() {
    if !inside("programs_of_a_node_that_are_killed_come_back") {
        return;
    }
    let tell = teller();
    let cluster = cluster_with_pods(&tell);
    let kept = ["kubelet", "etcd"];
    for program in ["kubelet", "etcd", "containerd", "machined"] {
        for round in 1..=rounds(2, 20) {
            let before = kept.map(|program| cluster.processes("cp-1", program));
            cluster.kill("cp-1", program);
            cluster.until(&["service", "etcd"], &["Running", "Health check successful"], STEP_LIMIT);
            cluster.until(&["service", "kubelet"], &["Running", "Health check successful"], STEP_LIMIT);
            cluster.kubectl_until(&["get", "--raw", "/readyz"], "ok", STEP_LIMIT);
            cluster.service_answers("one", STEP_LIMIT);
            if program == "machined" {
                let after = kept.map(|program| cluster.processes("cp-1", program));
                assert_eq!(after, before, "a new machined started {kept:?} again");
            }
            tell(&format!("{program} is back, round {round}"));
        }
    }
    drop(cluster);
    nothing_is_left();
}

/// Programs of the cluster and the pods of configurations, with images and nodes. The first generation has another registry,
/// and the scheduler puts the cluster's DNS on any node.
fn pods_of(cluster: &Running) -> Vec<String> {
    let column = "jsonpath={range .items[*]}{.metadata.labels.k8s-app}{.metadata.labels.app} {.spec.containers[*].image} \
                  {.status.phase} {.spec.nodeName}{\"\\n\"}{end}";
    let text = cluster.kubectl_until(&["get", "pods", "-A", "-o", column], "coredns", STEP_LIMIT);
    let compared = |line: &str| {
        let (label, rest) = line.split_once(' ').unwrap_or((line, ""));
        let (_, image) = rest.split_once('/').unwrap_or(("", rest));
        let is_anywhere = label == "kube-dns";
        let image = if is_anywhere { image.rsplit_once(' ').unwrap_or((image, "")).0 } else { image };
        format!("{label} {image}")
    };
    let mut pods: Vec<String> = text.lines().map(compared).collect();
    pods.sort_unstable();
    pods
}

#[test]
#[ignore = "long run"]
fn configurations_of_each_generation_make_the_same_cluster() {
    if !inside("configurations_of_each_generation_make_the_same_cluster") {
        return;
    }
    let tell = teller();
    let mut first = None;
    // Workers of the last know neither the authority of the node API nor, behind a balancer, a control plane node.
    for (version, form, endpoint) in [
        ("v1.13", Form::V1alpha1, Endpoint::Node),
        ("v1.13", Form::Documents, Endpoint::Node),
        ("v0.9", Form::V1alpha1, Endpoint::Balancer),
    ] {
        let cluster = Running::start_as(&NODES, version, form, endpoint);
        cluster.begin();
        let health = ["health", "--wait-timeout", "4m", "--worker-nodes", "10.5.0.3"];
        cluster.until(&health, &[], 2 * STEP_LIMIT);
        for (node, _) in NODES {
            cluster.kubectl_until(&["get", "pod", &format!("fixed-{node}")], "Running", STEP_LIMIT);
        }
        let pods = pods_of(&cluster);
        tell(&format!("{} pods run of configurations of {version}, {form:?}", pods.len()));
        let wanted = first.get_or_insert_with(|| pods.clone());
        assert_eq!(&pods, wanted, "configurations of {version}, {form:?}");
        drop(cluster);
        nothing_is_left();
    }
}

fn nothing_is_left() {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let state = paths::work_dir().join("clusters");
    let left = mounts.lines().filter(|line| line.contains(state.to_str().unwrap()));
    assert_eq!(left.collect::<Vec<_>>(), Vec::<&str>::new(), "mounts are left");
    let links = Command::new("ip").args(["-brief", "link"]).output().unwrap().stdout;
    assert_eq!(String::from_utf8_lossy(&links).lines().count(), 1, "more than lo is left");
    for (node, _) in NODES {
        assert!(
            !Path::new("/run/netns").join(format!("{NAME}.{node}")).exists(),
            "the namespace of {node} is left"
        );
    }
    assert!(!state.join(NAME).exists(), "files are left");
    for controller in std::fs::read_dir("/sys/fs/cgroup").unwrap() {
        let group = controller.unwrap().path().join("billet").join(NAME);
        assert!(!group.exists(), "{} is left", group.display());
    }
}
