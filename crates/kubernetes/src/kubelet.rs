//! The kubelet's command line and configuration file.
//!
//! Owns: which field which version reads; which a configuration may not replace.
//! Source: `kubelet --help` of each minor (testdata/flags); KubeletConfiguration v1beta1; docs/users/configuration.md.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Map, Value, json};

use crate::arguments::{Arguments, Flag, fixed, flag};
use crate::file::{File, Owner, headed, mapping, yaml};
use crate::version::{ALWAYS, Minors, Version, since, until};
use crate::{Cluster, Error, Node, images, paths};

/// The program in its image.
pub const PROGRAM: &str = "/usr/local/bin/kubelet";
/// The taint that keeps pods off control plane nodes, where Kubernetes has one word for them.
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
/// The same until 1.23.
const MASTER: &str = "node-role.kubernetes.io/master";
/// Minors whose tools know the older word alone.
const HAS_MASTERS: Minors = until(23);
/// Minors that read taints from the file; before, from an argument.
const TAINTS_IN_FILE: Minors = since(23);
/// Minors that read the runtime's socket from the file; before, from an argument.
const SOCKET_IN_FILE: Minors = since(27);

/// Arguments of the program.
///
/// # Errors
/// [`Error::Version`], [`Error::Denied`].
pub fn arguments(cluster: &Cluster<'_>, node: &Node) -> Result<Arguments, Error> {
    let version = images::kubelet_version(cluster)?;
    let taints = taints(cluster, version);
    let addresses: Vec<_> = addresses(cluster, node).iter().map(IpAddr::to_string).collect();
    let registers = cluster.kubelet().skip_node_registration != Some(true);
    let flags = [
        fixed("bootstrap-kubeconfig", paths::BOOTSTRAP_KUBECONFIG).when(registers),
        fixed("kubeconfig", paths::KUBELET_KUBECONFIG).when(registers),
        fixed("config", paths::KUBELET_CONFIG),
        fixed("cert-dir", paths::KUBELET_PKI),
        fixed("hostname-override", cluster.node_name(node)),
        // Ended with 1.27: there is no other.
        fixed("container-runtime", "remote").only(until(26)),
        fixed("container-runtime-endpoint", paths::CONTAINERD_SOCKET).only(until(26)),
        flag("node-ip", addresses.join(",")).when(!addresses.is_empty()),
        flag("register-with-taints", taint_texts(&taints))
            .only(until(22))
            .when(registers && !taints.is_empty()),
        flag("cloud-provider", "external").when(cluster.has_cloud_provider()),
    ];
    let flags = flags.into_iter().chain(credential_providers(cluster));
    Arguments::built_in(version, flags).with("machine.kubelet.extraArgs", &cluster.kubelet().extra_args)
}

fn credential_providers(cluster: &Cluster<'_>) -> [Flag; 2] {
    let wanted = cluster.kubelet().credential_provider_config.is_some();
    [
        fixed("image-credential-provider-config", paths::CREDENTIAL_PROVIDERS).when(wanted),
        fixed("image-credential-provider-bin-dir", paths::CREDENTIAL_PROVIDER_BINARIES).when(wanted),
    ]
}

/// The addresses that the node announces: the first of each family, of those that `nodeIP.validSubnets` lets through.
#[must_use]
pub fn addresses(cluster: &Cluster<'_>, node: &Node) -> Vec<IpAddr> {
    let subnets = cluster.kubelet().node_ip.as_ref().map(|ip| ip.valid_subnets.clone()).unwrap_or_default();
    let is_wanted = |address: &IpAddr| passes(*address, &subnets);
    let first = |of: fn(&IpAddr) -> bool| node.addresses.iter().copied().find(|a| of(a) && is_wanted(a));
    let (four, six) = (first(IpAddr::is_ipv4), first(IpAddr::is_ipv6));
    let leads_with_six = cluster.service_networks().first().is_some_and(crate::cluster::Network::is_ipv6);
    let has_both = cluster.service_networks().iter().any(crate::cluster::Network::is_ipv6)
        && cluster.service_networks().iter().any(|network| !network.is_ipv6());
    let ordered = if leads_with_six { [six, four] } else { [four, six] };
    let wanted = if has_both { 2 } else { 1 };
    ordered.into_iter().flatten().take(wanted).collect()
}

/// Whether an address is in one of these networks and in none behind a `!`. Without a network all are.
fn passes(address: IpAddr, subnets: &[String]) -> bool {
    let contains =
        |text: &str| crate::cluster::network(text).is_some_and(|network| network.contains(address));
    let (excluded, wanted): (Vec<&str>, Vec<&str>) =
        subnets.iter().map(String::as_str).partition(|text| text.starts_with('!'));
    let is_in = wanted.is_empty() || wanted.iter().any(|text| contains(text));
    is_in && !excluded.iter().any(|text| contains(text.trim_start_matches('!')))
}

/// A taint of the node: key, value and effect.
pub(crate) type Taint = (String, String, String);

/// The labels of the node: those of the configuration, and the role of a control plane node, which its kubelet may not set itself.
///
/// # Errors
/// [`Error::Version`].
pub fn labels(cluster: &Cluster<'_>) -> Result<BTreeMap<String, String>, Error> {
    let mut labels = cluster.config().machine.node_labels.clone();
    if cluster.is_control_plane() {
        labels.entry(CONTROL_PLANE.to_owned()).or_default();
        if HAS_MASTERS.contain(images::kubelet_version(cluster)?) {
            labels.entry(MASTER.to_owned()).or_default();
        }
    }
    Ok(labels)
}

/// The configuration's, and that of a control plane node that runs no other pods.
pub(crate) fn taints(cluster: &Cluster<'_>, version: Version) -> Vec<Taint> {
    let config = cluster.config();
    let mut taints: Vec<Taint> =
        config.machine.node_taints.iter().map(|(key, text)| taint(key, text)).collect();
    if cluster.is_control_plane() && !config.cluster.schedules_on_control_planes() {
        let key = if HAS_MASTERS.contain(version) { MASTER } else { CONTROL_PLANE };
        taints.push((key.to_owned(), String::new(), "NoSchedule".to_owned()));
    }
    taints
}

/// `value:Effect`, or `Effect` alone.
fn taint(key: &str, text: &str) -> Taint {
    let (value, effect) = text.rsplit_once(':').unwrap_or(("", text));
    (key.to_owned(), value.to_owned(), effect.to_owned())
}

fn taint_texts(taints: &[Taint]) -> String {
    let texts: Vec<_> = taints.iter().map(|(key, value, effect)| format!("{key}={value}:{effect}")).collect();
    texts.join(",")
}

/// The configuration file, and that of credential providers where there are any.
///
/// # Errors
/// [`Error::Version`], [`Error::NotAMapping`]; [`Error::Denied`] for a field that the node relies on.
pub fn files(cluster: &Cluster<'_>, node: &Node) -> Result<Vec<File>, Error> {
    let config = yaml("kubelet.yaml", &configuration(cluster, node)?)?;
    let file = |path: &str, text: String| File {
        path: path.to_owned(),
        owner: Owner::Root,
        contents: config::Secret::new(text),
    };
    let mut files = vec![file(paths::KUBELET_CONFIG, config)];
    if let Some(providers) = &cluster.kubelet().credential_provider_config {
        let field = "machine.kubelet.credentialProviderConfig";
        let providers = headed(field, providers, "kubelet.config.k8s.io/v1", "CredentialProviderConfig")?;
        files.push(file(paths::CREDENTIAL_PROVIDERS, yaml(field, &providers)?));
    }
    Ok(files)
}

/// Fields that `extraConfig` may not replace: the node relies on them.
const DENIED: [&str; 10] = [
    "apiVersion",
    "kind",
    "authentication",
    "authorization",
    "cgroupRoot",
    "clusterDNS",
    "clusterDomain",
    "containerRuntimeEndpoint",
    "port",
    "staticPodPath",
];

pub(crate) fn configuration(cluster: &Cluster<'_>, node: &Node) -> Result<Value, Error> {
    let version = images::kubelet_version(cluster)?;
    let mut fields = Map::new();
    let rows = [common(cluster, node)?, limits(cluster, node), by_version(cluster, node, version)];
    for (name, value, minors) in rows.into_iter().flatten() {
        if minors.contain(version) {
            fields.insert(name.to_owned(), value);
        }
    }
    overlay(&mut fields, cluster)?;
    Ok(Value::Object(fields))
}

type Row = (&'static str, Value, Minors);

fn common(cluster: &Cluster<'_>, node: &Node) -> Result<Vec<Row>, Error> {
    let dns = &cluster.kubelet().cluster_dns;
    let dns = if dns.is_empty() { cluster.dns_addresses()? } else { dns.clone() };
    let authentication = json!({
        "x509": { "clientCAFile": paths::KUBELET_CA },
        "webhook": { "enabled": true },
        "anonymous": { "enabled": false },
    });
    let all = |name, value| (name, value, ALWAYS);
    Ok(vec![
        all("apiVersion", json!("kubelet.config.k8s.io/v1beta1")),
        all("kind", json!("KubeletConfiguration")),
        all("address", json!(if node.is_ipv6_only() { "::" } else { "0.0.0.0" })),
        all("port", json!(10_250)),
        all("authentication", authentication),
        all("authorization", json!({ "mode": "Webhook" })),
        all("clusterDomain", json!(cluster.dns_domain())),
        all("clusterDNS", json!(dns)),
        all("staticPodPath", json!(paths::MANIFESTS)),
        all("resolvConf", json!(node.resolv_conf)),
        all("rotateCertificates", json!(true)),
        all("serializeImagePulls", json!(false)),
        all("streamingConnectionIdleTimeout", json!("5m")),
        all("tlsMinVersion", json!("VersionTLS13")),
    ])
}

/// What is set aside for the node itself.
fn limits(cluster: &Cluster<'_>, node: &Node) -> Vec<Row> {
    let memory = if cluster.is_control_plane() { "512Mi" } else { "384Mi" };
    let reserved = json!({ "cpu": "50m", "memory": memory, "pid": "100", "ephemeral-storage": "256Mi" });
    let all = |name, value| (name, value, ALWAYS);
    let mut rows = vec![
        all("cgroupRoot", json!("/")),
        all("systemReserved", reserved),
        all("failSwapOn", json!(false)),
        // The kernel of a container's host has its own settings.
        all("protectKernelDefaults", json!(!node.is_container)),
    ];
    if node.is_container {
        // A container shares its disk and the root of its control groups with other programs of its host. The kubelet must
        // not end pods, nor remove images, since those programs fill the disk; zero is how its file says "never".
        let never = json!({ "imagefs.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%" });
        rows.extend([all("evictionHard", never), all("imageGCHighThresholdPercent", json!(100))]);
    } else {
        rows.extend([
            all("systemCgroups", json!("/system")),
            all("kubeletCgroups", json!("/podruntime/kubelet")),
        ]);
    }
    rows
}

fn by_version(cluster: &Cluster<'_>, node: &Node, version: Version) -> Vec<Row> {
    let taints: Vec<Value> = taints(cluster, version)
        .into_iter()
        .map(|(key, value, effect)| json!({ "key": key, "value": value, "effect": effect }))
        .collect();
    let profile = cluster.kubelet().default_runtime_seccomp_profile_enabled == Some(true);
    let mut rows = vec![
        ("containerRuntimeEndpoint", json!(paths::CONTAINERD_SOCKET), SOCKET_IN_FILE),
        ("logging", json!({ "format": "json" }), since(21)),
        ("seccompDefault", json!(profile), since(25)),
        ("shutdownGracePeriod", json!("30s"), since(21)),
        ("shutdownGracePeriodCriticalPods", json!("10s"), since(21)),
    ];
    if node.has_cgroup_v1 {
        // Such hosts are refused by default from 1.35 on.
        rows.push(("failCgroupV1", json!(false), since(31)));
    }
    if !taints.is_empty() && cluster.kubelet().skip_node_registration != Some(true) {
        rows.push(("registerWithTaints", json!(taints), TAINTS_IN_FILE));
    }
    rows
}

/// Lays `extraConfig` over the fields; mappings are laid over mappings.
fn overlay(fields: &mut Map<String, Value>, cluster: &Cluster<'_>) -> Result<(), Error> {
    let field = "machine.kubelet.extraConfig";
    let Some(extra) = &cluster.kubelet().extra_config else { return Ok(()) };
    let extra = mapping(field, extra)?;
    if let Some(name) = extra.keys().find(|name| DENIED.contains(&name.as_str())) {
        return Err(Error::Denied { field, name: name.clone() });
    }
    extra.into_iter().for_each(|(name, value)| lay(fields.entry(name).or_insert(Value::Null), value));
    Ok(())
}

fn lay(below: &mut Value, above: Value) {
    match (below, above) {
        (Value::Object(below), Value::Object(above)) => {
            above.into_iter().for_each(|(name, value)| lay(below.entry(name).or_insert(Value::Null), value));
        }
        (below, above) => *below = above,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_leaves_its_host_s_disk_and_control_groups_alone() {
        let text =
            include_str!("../testdata/current.yaml").replace("VERSION", "v1.34.10").replace("ETCD", "v3.6.4");
        let config = config::load(text.as_bytes()).unwrap().config;
        let of = |is_container| {
            let node = Node {
                host_name: "cp-1".into(),
                domain: String::new(),
                addresses: vec!["10.5.0.2".parse().unwrap()],
                shared: Vec::new(),
                is_container,
                has_cgroup_v1: false,
                resolv_conf: "/etc/resolv.conf".into(),
            };
            configuration(&Cluster::new(&config).unwrap(), &node).unwrap()
        };
        let (machine, container) = (of(false), of(true));
        assert_eq!(machine["systemCgroups"], "/system");
        assert_eq!(machine.get("evictionHard"), None);
        assert_eq!(container.get("systemCgroups"), None);
        assert_eq!(container.get("kubeletCgroups"), None);
        assert_eq!(container["evictionHard"]["nodefs.available"], "0%");
        assert_eq!(container["protectKernelDefaults"], false);
    }

    #[test]
    fn subnets_choose_the_node_s_address() {
        let chosen = |subnets: &[&str]| {
            let subnets: Vec<String> = subnets.iter().map(|text| (*text).to_owned()).collect();
            passes("10.0.0.3".parse().unwrap(), &subnets)
        };
        assert!(chosen(&[]) && chosen(&["10.0.0.0/8"]) && chosen(&["192.168.0.0/16", "10.0.0.0/8"]));
        assert!(
            !chosen(&["192.168.0.0/16"])
                && !chosen(&["10.0.0.0/8", "!10.0.0.3/32"])
                && !chosen(&["!10.0.0.0/8"])
        );
        assert!(chosen(&["!192.168.0.0/16"]));
    }

    #[test]
    fn taints_are_read_as_both_generations_write_them() {
        let read = |text| taint("dedicated", text);
        assert_eq!(read("db:NoSchedule"), ("dedicated".into(), "db".into(), "NoSchedule".into()));
        assert_eq!(read(":NoExecute"), ("dedicated".into(), String::new(), "NoExecute".into()));
        assert_eq!(read("NoExecute"), ("dedicated".into(), String::new(), "NoExecute".into()));
    }

    #[test]
    fn values_are_laid_over_values() {
        let mut below = json!({ "a": { "b": 1, "c": 2 }, "d": [1] });
        lay(&mut below, json!({ "a": { "c": 3 }, "d": [2], "e": "f" }));
        assert_eq!(below, json!({ "a": { "b": 1, "c": 3 }, "d": [2], "e": "f" }));
    }
}
