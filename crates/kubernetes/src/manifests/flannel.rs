//! flannel, which connects the pods of all nodes.
//!
//! The CNI plugins lie in the node's image: the pod only writes their configuration.

use serde_json::{Value, json};

use super::objects::{account, binding, host_directory, iptables_lock, node_name, role, service_account};
use crate::{Cluster, Error, images};

const NAME: &str = "flannel";
const DAEMON_SET: &str = "kube-flannel";
const CONFIG_MAP: &str = "kube-flannel-cfg";
/// Where packets go from node to node: the port that both generations use.
const VXLAN_PORT: u16 = 4789;

pub(super) fn objects(cluster: &Cluster<'_>) -> Result<Vec<Value>, Error> {
    let rules = json!([
        { "apiGroups": [""], "resources": ["pods"], "verbs": ["get"] },
        { "apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"] },
        { "apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"] },
    ]);
    Ok(vec![
        role(NAME, &rules),
        binding(NAME, NAME, &[account(NAME)]),
        service_account(NAME),
        config_map(cluster)?,
        daemon_set(cluster),
    ])
}

fn config_map(cluster: &Cluster<'_>) -> Result<Value, Error> {
    let plugins = json!({
        "name": "cbr0",
        "cniVersion": "0.3.1",
        "plugins": [
            { "type": "flannel", "delegate": { "hairpinMode": true, "isDefaultGateway": true } },
            { "type": "portmap", "capabilities": { "portMappings": true } },
        ],
    });
    Ok(json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": CONFIG_MAP, "namespace": "kube-system", "labels": { "k8s-app": NAME, "tier": "node" } },
        "data": { "cni-conf.json": plugins.to_string(), "net-conf.json": network(cluster)?.to_string() },
    }))
}

/// Which networks there are, and how packets get from node to node.
fn network(cluster: &Cluster<'_>) -> Result<Value, Error> {
    let settings = cluster.flannel();
    let kind = if settings.backend_type.is_empty() { "vxlan" } else { settings.backend_type.as_str() };
    let mut backend = match &settings.backend_extra_config {
        Some(extra) => crate::file::mapping("KubeFlannelCNIConfig.backendExtraConfig", extra)?,
        None => serde_json::Map::new(),
    };
    backend.insert("Type".to_owned(), json!(kind));
    let port = settings.backend_port.or((kind == "vxlan").then_some(VXLAN_PORT));
    for (name, value) in [("Port", port.map(u32::from)), ("MTU", settings.backend_mtu)] {
        if let Some(value) = value {
            backend.insert(name.to_owned(), json!(value));
        }
    }
    let first = |is_ipv6| cluster.pod_networks().iter().find(|network| network.is_ipv6() == is_ipv6);
    let mut fields = json!({ "Backend": backend });
    if let Value::Object(fields) = &mut fields {
        if let Some(network) = first(false) {
            fields.insert("Network".to_owned(), json!(network.text()));
        }
        if let Some(network) = first(true) {
            fields.insert("EnableIPv6".to_owned(), json!(true));
            fields.insert("IPv6Network".to_owned(), json!(network.text()));
        }
        if first(false).is_none() {
            fields.insert("EnableIPv4".to_owned(), json!(false));
        }
    }
    Ok(fields)
}

fn daemon_set(cluster: &Cluster<'_>) -> Value {
    let labels = json!({ "k8s-app": NAME, "tier": "node" });
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": { "name": DAEMON_SET, "namespace": "kube-system", "labels": labels },
        "spec": {
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "hostNetwork": true,
                    "priorityClassName": "system-node-critical",
                    "serviceAccountName": NAME,
                    "tolerations": [{ "operator": "Exists" }],
                    "initContainers": [install()],
                    "containers": [container(cluster)],
                    "volumes": [
                        host_directory("run", "/run/flannel"),
                        host_directory("cni", "/etc/cni/net.d"),
                        { "name": "config", "configMap": { "name": CONFIG_MAP } },
                        iptables_lock(),
                    ],
                },
            },
        },
    })
}

/// Puts the configuration of the plugins where containerd looks for it.
fn install() -> Value {
    json!({
        "name": "install-config",
        "image": images::flannel(),
        "command": ["cp", "-f", "/etc/kube-flannel/cni-conf.json", "/etc/cni/net.d/10-flannel.conflist"],
        "volumeMounts": [
            { "name": "cni", "mountPath": "/etc/cni/net.d" },
            { "name": "config", "mountPath": "/etc/kube-flannel/" },
        ],
    })
}

fn container(cluster: &Cluster<'_>) -> Value {
    let settings = cluster.flannel();
    let own = ["/opt/bin/flanneld", "--ip-masq", "--kube-subnet-mgr"].map(str::to_owned);
    let command = [own.to_vec(), settings.extra_args].concat();
    let resources = settings.resources.map_or_else(
        || json!({ "requests": { "cpu": "100m", "memory": "50Mi" } }),
        |resources| json!({ "requests": resources.requests, "limits": resources.limits }),
    );
    let field =
        |name: &str, path: &str| json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } });
    json!({
        "name": DAEMON_SET,
        "image": images::flannel(),
        "command": command,
        "env": [
            field("POD_NAME", "metadata.name"),
            field("POD_NAMESPACE", "metadata.namespace"),
            node_name(),
        ],
        "resources": resources,
        "securityContext": { "privileged": true },
        "volumeMounts": [
            { "name": "run", "mountPath": "/run/flannel" },
            { "name": "config", "mountPath": "/etc/kube-flannel/" },
            { "name": "xtables-lock", "mountPath": "/run/xtables.lock" },
        ],
    })
}
