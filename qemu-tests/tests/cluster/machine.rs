//! A worker that is a virtual machine, in the cluster of a control plane node that is a container.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use config::MachineType;
use qemu_tests::artifacts::build;
use qemu_tests::{Bus, Drive, Vm, config_volume, namespaces};

use crate::rig::{NODES, Running, STEP_LIMIT};
use crate::teller;

/// An emulated machine fetches an image, starts a kubelet and its pods: minutes on a machine that has nothing else to do.
const WORKER_LIMIT: Duration = Duration::from_secs(600);
const TAP: &str = "tap0";
const NAME: &str = "worker-vm";
const ADDRESS: &str = "10.5.0.9";
/// A pod on the machine, whose log and program are reached through the control plane.
const POD: &str = r"
apiVersion: v1
kind: Pod
metadata: {name: far}
spec:
  nodeName: worker-vm
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: 'registry.example.org/kube-proxy:v1.34.10', command: [kubectl, proxy]}
";

/// A card of a virtual machine in the cluster's network.
fn tap() {
    let listed = Command::new("ip").args(["-brief", "link", "show", "type", "bridge"]).output().unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let bridge = listed.split_whitespace().next().unwrap();
    namespaces::ip(&format!("tuntap add dev {TAP} mode tap"));
    namespaces::ip(&format!("link set {TAP} master {bridge} up"));
}

/// Starts the machine from memory, with its configuration on a volume.
fn machine(cluster: &Running) -> Vm {
    // The network has no time server, and a kubelet waits for the clock.
    let change = format!(
        "machine:\n  time: {{disabled: true}}\n  network:\n    hostname: {NAME}\n    interfaces:\n    - interface: eth0\n      \
         addresses: [{ADDRESS}/24]\n      routes: [{{network: 0.0.0.0/0, gateway: 10.5.0.1}}]\n"
    );
    let config = cluster.configuration(MachineType::Worker, &change);
    let volume =
        config_volume::write(&cluster.files.path().join("config.img"), config.expose_secret()).unwrap();
    let line = format!("{} billet.install=no", build().cmdline);
    Vm::builder("cluster-worker")
        .kernel(&build().vmlinuz, Some(Path::new(&build().test.initramfs_full)), &line)
        .memory_mib(3072)
        .cpus(2)
        .drive(Drive::new(&volume, Bus::Virtio))
        .no_network()
        .tap(TAP, "52:54:00:77:00:09")
        .start()
        .unwrap()
}

#[test]
#[ignore = "long run"]
fn a_worker_that_is_a_machine_joins() {
    if !namespaces::inside("machine::a_worker_that_is_a_machine_joins") {
        return;
    }
    let tell = teller();
    let cluster = Running::start(&NODES[..1]);
    tap();
    let machine = machine(&cluster);
    let kubeconfig = cluster.kubeconfig();
    cluster.until(&["kubeconfig", kubeconfig.to_str().unwrap()], &[], STEP_LIMIT);
    cluster.until(&["bootstrap"], &[], STEP_LIMIT);
    cluster.kubectl_until(&["get", "node", "cp-1"], " Ready ", STEP_LIMIT);
    tell("the control plane is ready");
    cluster.until(&["-n", ADDRESS, "version"], &["Server"], WORKER_LIMIT);
    tell("the machine's API answers");
    cluster.kubectl_until(&["get", "nodes"], NAME, WORKER_LIMIT);
    tell("the machine is registered");
    cluster.kubectl_until(&["get", "node", NAME], " Ready ", WORKER_LIMIT);
    tell("the machine is ready");
    let pod = cluster.files.path().join("pod.yaml");
    std::fs::write(&pod, POD).unwrap();
    cluster.kubectl_until(&["apply", "-f", pod.to_str().unwrap()], "pod/far", STEP_LIMIT);
    cluster.kubectl_until(&["logs", "far"], "Starting to serve", WORKER_LIMIT);
    let ask = ["exec", "far", "--", "kubectl", "get", "--raw", "/api", "--server=http://127.0.0.1:8001"];
    cluster.kubectl_until(&ask, "APIVersions", WORKER_LIMIT);
    tell("a pod on it answers");
    drop(machine);
    drop(cluster);
}
