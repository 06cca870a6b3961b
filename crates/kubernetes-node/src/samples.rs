//! A cluster for tests, as `gen config` makes it.

use api::generate::{Bundle, Cluster, Contract};
use config::Config;
use config::v1alpha1::MachineType;
use kubernetes::Node;

/// A control plane node with these versions of Kubernetes and etcd.
pub(crate) fn control_plane(version: &str, etcd: &str) -> Config {
    let cluster = Cluster {
        name: "demo".into(),
        endpoint: "https://10.0.0.3:6443".into(),
        contract: Contract::NEWEST,
        install_disk: "/dev/vda".into(),
        install_image: None,
        additional_sans: Vec::new(),
        dns_domain: "cluster.local".into(),
        kubernetes_version: Some(version.trim_start_matches('v').into()),
        registry_mirrors: Vec::new(),
        persist: true,
        discovery: false,
        kubespan: false,
    };
    let text = cluster.machine_config(&Bundle::generate().unwrap(), MachineType::ControlPlane);
    let mut config = config::parse(text.expose_secret()).unwrap_or_else(|error| panic!("{error}"));
    config.cluster.etcd.image = format!("registry.example.org/etcd:{etcd}");
    config
}

pub(crate) fn node() -> Node {
    Node {
        host_name: "cp-1".into(),
        domain: String::new(),
        addresses: vec!["10.0.0.3".parse().unwrap()],
        is_container: false,
        has_cgroup_v1: false,
        resolv_conf: "/etc/resolv.conf".into(),
    }
}
