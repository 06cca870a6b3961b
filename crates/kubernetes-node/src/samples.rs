//! A cluster for tests, as `gen config` makes it.

use std::path::Path;
use std::sync::Arc;

use api::generate::{Bundle, Cluster, Contract};
use config::Config;
use config::v1alpha1::MachineType;
use kubernetes::Node;
use runtime::Runtime;
use runtime::store::{Addressing, HOSTNAME_STATUS, HostnameStatus, NODE_ADDRESS, NodeAddresses, Spec};

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
        shared: Vec::new(),
        is_container: false,
        has_cgroup_v1: false,
        resolv_conf: "/etc/resolv.conf".into(),
    }
}

/// A runtime that knows the node's config, name and address.
pub(crate) fn known(root: &Path, config: &Config) -> Arc<Runtime> {
    let runtime = Runtime::detached(root.to_owned());
    runtime.config.send_replace(Some(Arc::new(config.clone())));
    let name = HostnameStatus { hostname: "cp-1".into(), domainname: String::new() };
    runtime
        .store
        .put(HOSTNAME_STATUS.writer, &HOSTNAME_STATUS, "hostname", Spec::HostnameStatus(name))
        .unwrap();
    let addresses = Addressing::Addresses(NodeAddresses { addresses: vec!["10.0.0.3/32".into()] });
    runtime.store.put(NODE_ADDRESS.writer, &NODE_ADDRESS, "current", Spec::Addressing(addresses)).unwrap();
    runtime
}

/// Runs the named test of this program once more, in a network namespace with the node's address; it is to return then.
pub(crate) fn in_a_namespace(test: &str) -> bool {
    let script = "ip link set lo up && ip address add 10.0.0.3/32 dev lo && exec \"$@\"";
    namespaces::is_inside_of(test, &["--net"], script)
}
