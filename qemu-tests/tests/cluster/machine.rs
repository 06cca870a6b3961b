//! A node that is a virtual machine, in the cluster of nodes that are containers.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use config::MachineType;
use qemu_tests::artifacts::build;
use qemu_tests::root::copy_sparse;
use qemu_tests::{Bus, Drive, Vm, VmBuilder, config_volume, namespaces};

use crate::rig::{self, Running, STEP_LIMIT};

/// An emulated machine fetches an image, starts a kubelet and its pods: minutes on a machine that has nothing else to do.
pub(crate) const LIMIT: Duration = Duration::from_secs(600);
const TAP: &str = "tap0";
const WORKER: &str = "worker-vm";
pub(crate) const CONTROL_PLANE: &str = "cp-vm";
pub(crate) const ADDRESS: &str = "10.5.0.9";
/// Room for the images of a control plane; nearly all of it is a hole.
const DISK_BYTES: u64 = 8 << 30;
/// A pod on the machine, whose log and program are reached through the control plane.
const POD: &str = r"
apiVersion: v1
kind: Pod
metadata: {name: far}
spec:
  nodeName: worker-vm
  terminationGracePeriodSeconds: 1
  containers:
  - {name: client, image: 'PROGRAMS', command: [kubectl, proxy]}
";

/// The machine, and its card in the cluster's network.
pub(crate) struct Machine {
    /// Ends before its card goes.
    vm: Option<Vm>,
}

impl Drop for Machine {
    fn drop(&mut self) {
        drop(self.vm.take());
        if !std::thread::panicking() {
            namespaces::ip(&format!("link delete {TAP}"));
        }
    }
}

impl Machine {
    /// Starts a worker from memory, with its configuration on a volume.
    pub(crate) fn worker(cluster: &Running) -> Self {
        let line = format!("{} billet.install=no", build().cmdline);
        let vm = Vm::builder("cluster-worker").kernel(
            &build().vmlinuz,
            Some(Path::new(&build().test.initramfs_full)),
            &line,
        );
        Self::start(cluster, MachineType::Worker, WORKER, vm.memory_mib(3072), "")
    }

    /// Starts a control plane node by firmware and loader, from a disk that keeps what it writes.
    pub(crate) fn control_plane(cluster: &Running) -> Self {
        let disk = cluster.files.path().join("disk.img");
        copy_sparse(&build().test.disk, &disk).unwrap();
        File::options().write(true).open(&disk).unwrap().set_len(DISK_BYTES).unwrap();
        let drive = Drive::writable(&disk, Bus::Virtio).boot_index(0);
        let vm = Vm::builder("cluster-control-plane").drive(drive).uefi();
        Self::start(cluster, MachineType::ControlPlane, CONTROL_PLANE, vm.memory_mib(4096), "")
    }

    /// Starts a control plane node from memory that takes all pods.
    pub(crate) fn alone(cluster: &Running) -> Self {
        let line = format!("{} billet.install=no", build().cmdline);
        let (kernel, initramfs) = (&build().vmlinuz, Path::new(&build().test.initramfs_full));
        let vm = Vm::builder("cluster-alone").kernel(kernel, Some(initramfs), &line).memory_mib(4096);
        let change = "cluster: {allowSchedulingOnMasters: true}\n";
        Self::start(cluster, MachineType::ControlPlane, CONTROL_PLANE, vm, change)
    }

    /// `more`: of the configuration.
    fn start(cluster: &Running, machine_type: MachineType, name: &str, vm: VmBuilder, more: &str) -> Self {
        let listed = Command::new("ip").args(["-brief", "link", "show", "type", "bridge"]).output().unwrap();
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        let bridge = listed.split_whitespace().next().unwrap();
        namespaces::ip(&format!("tuntap add dev {TAP} mode tap"));
        namespaces::ip(&format!("link set {TAP} master {bridge} up"));
        // The network has no time server, and a kubelet waits for the clock.
        let change = format!(
            "machine:\n  time: {{disabled: true}}\n  network:\n    hostname: {name}\n    interfaces:\n    - interface: \
             eth0\n      addresses: [{ADDRESS}/24]\n      routes: [{{network: 0.0.0.0/0, gateway: 10.5.0.1}}]\n{more}"
        );
        let config = cluster.configuration(machine_type, &change);
        let volume =
            config_volume::write(&cluster.files.path().join("config.img"), config.expose_secret()).unwrap();
        let vm =
            vm.cpus(2).drive(Drive::new(&volume, Bus::Virtio)).no_network().tap(TAP, "52:54:00:77:00:09");
        Self { vm: Some(vm.start().unwrap()) }
    }

    pub(crate) fn vm(&self) -> &Vm {
        self.vm.as_ref().unwrap()
    }

    /// Waits until it is a node of the cluster that is ready.
    pub(crate) fn joins(&self, cluster: &Running, tell: &dyn Fn(&str)) {
        cluster.until(&["-n", ADDRESS, "version"], &["Server"], LIMIT);
        cluster.kubectl_until(&["get", "nodes"], WORKER, LIMIT);
        tell("the machine is registered");
        cluster.kubectl_until(&["get", "node", WORKER], " Ready ", LIMIT);
        let said = self.vm().console().text();
        let early = said.lines().find(|line| line.contains("static pods:") && line.contains("Read-only"));
        assert_eq!(early, None, "manifests were written before there was a place for them");
        tell("the machine is ready");
    }

    /// Waits until a pod on it has read from a service whose pod is on another node.
    pub(crate) fn runs_pods(&self, cluster: &Running, tell: &dyn Fn(&str)) {
        let pod = cluster.files.path().join("pod.yaml");
        std::fs::write(&pod, rig::objects(POD)).unwrap();
        cluster.kubectl_until(&["apply", "-f", pod.to_str().unwrap()], "pod/far", STEP_LIMIT);
        cluster.kubectl_until(&["logs", "far"], "Starting to serve", LIMIT);
        tell("a pod on it has said that it serves");
        cluster.service_answers("far", LIMIT);
        tell("the service answers the pod on the machine");
    }
}
