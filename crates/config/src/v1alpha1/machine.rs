//! The `machine` section.

use super::*;
use crate::{
    CertificateAndKey, Secret,
    schema::{Decode, Shape, Value, Walk, section},
    yaml::{Node, shortened},
};
use serde::Serialize;
use std::{collections::BTreeMap, fmt};

section! {
    /// What concerns this machine.
    Machine {
        /// The role in the cluster.
        machine_type "type": MachineType { default "worker" };
        /// Shared secret with which nodes ask trustd for certificates.
        token "token": Secret {};
        /// CA of the node API. Workers hold the certificate only.
        ca "ca": CertificateAndKey {};
        /// Additional CAs that clients of the node API may come from.
        accepted_cas "acceptedCAs": Vec<CertificateAndKey> { newer true };
        /// Additional names and addresses for the API's server certificate.
        cert_sans "certSANs": Vec<String> { example "[10.0.0.5, node.example.org]" };
        /// What the control plane's parts on this machine do.
        control_plane "controlPlane": Option<MachineControlPlane> { newer true };
        /// The kubelet.
        kubelet "kubelet": Kubelet {};
        /// Static pods that the kubelet runs, as Kubernetes manifests.
        pods "pods": Vec<Value> { newer true };
        /// Host name, resolvers, interfaces.
        network "network": Network {};
        /// Additional disks to partition, once, while they are empty.
        disks "disks": Vec<Disk> {};
        /// Where the system is installed.
        install "install": Install {};
        /// Files to write at boot, in this order.
        files "files": Vec<File> {};
        /// Environment of all services: proxies and the like.
        env "env": BTreeMap<String, String> { secret true, example "{https_proxy: http://proxy.example.org:3128}" };
        /// Time synchronisation.
        time "time": Time {};
        /// Kernel parameters below /proc/sys; dots stand for slashes.
        sysctls "sysctls": BTreeMap<String, String> { example "{net.ipv4.ip_forward: \"0\"}" };
        /// Values below /sys; dots stand for slashes.
        sysfs "sysfs": BTreeMap<String, String> { newer true, example "{devices.system.cpu.cpu0.cpufreq.scaling_governor: performance}" };
        /// Where container images come from.
        registries "registries": Registries {};
        /// Encryption of the system's partitions.
        system_disk_encryption "systemDiskEncryption": SystemDiskEncryption {};
        /// Switches of single features.
        features "features": Option<Features> { newer true };
        /// Rules for devices.
        udev "udev": Option<Udev> { newer true };
        /// Where logs are sent.
        logging "logging": Option<Logging> { newer true };
        /// Kernel modules to load.
        kernel "kernel": Option<Kernel> { newer true };
        /// Seccomp profiles that pods may name.
        seccomp_profiles "seccompProfiles": Vec<SeccompProfile> { newer true, later "seccomp profiles" };
        /// What every container's OCI description is overlaid with.
        base_runtime_spec_overrides "baseRuntimeSpecOverrides": Option<Value> { newer true, later "changing what all containers start with" };
        /// Labels of the Kubernetes node.
        node_labels "nodeLabels": BTreeMap<String, String> { newer true, example "{zone: a}" };
        /// Annotations of the Kubernetes node.
        node_annotations "nodeAnnotations": BTreeMap<String, String> { newer true };
        /// Taints of the Kubernetes node: `key: value:Effect`.
        node_taints "nodeTaints": BTreeMap<String, String> { newer true, example "{dedicated: \"db:NoSchedule\"}" };
    }
}

section! {
    /// What the control plane's parts on this machine do.
    MachineControlPlane {
        /// The controller manager.
        controller_manager "controllerManager": Option<Switch> { newer true };
        /// The scheduler.
        scheduler "scheduler": Option<Switch> { newer true };
    }
}

section! {
    /// A part that can be left out.
    Switch {
        /// Do not run it here.
        disabled "disabled": bool { newer true, default "false" };
    }
}

section! {
    /// Time synchronisation.
    Time {
        /// Neither ask a time server nor wait for one.
        disabled "disabled": bool { default "false" };
        /// Time servers, by preference.
        servers "servers": Vec<String> { default "pool.ntp.org", example "[time.example.org]" };
        /// How long the boot waits for the time; 0 waits for ever.
        boot_timeout "bootTimeout": Option<crate::schema::GoDuration> { newer true, default "0s" };
    }
}

/// The role of a machine in its cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MachineType {
    /// A control plane node that bootstraps etcd by itself.
    Init,
    /// A control plane node.
    ControlPlane,
    /// A worker. The first generation's generator and status outputs call it `join`.
    #[default]
    Worker,
}

impl MachineType {
    /// Whether etcd, trustd and the Kubernetes control plane run here.
    pub fn is_control_plane(self) -> bool {
        matches!(self, Self::Init | Self::ControlPlane)
    }
}

impl fmt::Display for MachineType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Init => "init",
            Self::ControlPlane => "controlplane",
            Self::Worker => "worker",
        })
    }
}

impl Decode for MachineType {
    fn decode(node: &Node, walk: &mut Walk<'_>) -> Option<Self> {
        match walk.scalar(node)? {
            "init" => Some(Self::Init),
            "controlplane" => Some(Self::ControlPlane),
            "worker" | "join" | "" => Some(Self::Worker),
            other => {
                let message = format!(
                    "unknown machine type {:?}; one of: controlplane, worker, init, join",
                    shortened(other)
                );
                walk.error(node.mark, message);
                None
            }
        }
    }

    fn shape() -> Shape {
        Shape::Choice(&["controlplane", "worker", "init", "join"])
    }
}
