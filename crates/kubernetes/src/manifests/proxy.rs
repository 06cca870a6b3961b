//! kube-proxy, on every node.

use serde_json::{Value, json};

use super::objects::{account, binding, host_directory, iptables_lock, node_name, service_account};
use crate::arguments::{Arguments, fixed, flag};
use crate::{Cluster, Error, images};

const NAME: &str = "kube-proxy";

pub(super) fn objects(cluster: &Cluster<'_>) -> Result<Vec<Value>, Error> {
    let role = binding("kube-proxy", "system:node-proxier", &[account(NAME)]);
    Ok(vec![daemon_set(cluster)?, service_account(NAME), role])
}

pub(super) fn arguments(cluster: &Cluster<'_>) -> Result<Arguments, Error> {
    let settings = cluster.proxy();
    let mode = if settings.mode.is_empty() { "iptables" } else { settings.mode.as_str() };
    let pods: Vec<_> = cluster.pod_networks().iter().map(crate::cluster::Network::text).collect();
    let flags = [
        flag("cluster-cidr", pods.join(",")),
        // The kernel's own limit stays.
        flag("conntrack-max-per-core", "0"),
        fixed("hostname-override", "$(NODE_NAME)"),
        fixed("kubeconfig", "/etc/kubernetes/kubeconfig"),
        flag("proxy-mode", mode),
    ];
    Arguments::built_in(images::proxy_version(cluster)?, flags)
        .with("cluster.proxy.extraArgs", &settings.extra_args)
}

fn daemon_set(cluster: &Cluster<'_>) -> Result<Value, Error> {
    let command = [vec!["/usr/local/bin/kube-proxy".to_owned()], arguments(cluster)?.to_vec()].concat();
    let resources = cluster.proxy().resources.map(|r| json!({ "requests": r.requests, "limits": r.limits }));
    let labels = json!({ "k8s-app": NAME, "tier": "node" });
    Ok(json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": { "name": NAME, "namespace": "kube-system", "labels": labels },
        "spec": {
            "selector": { "matchLabels": labels },
            "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 1 } },
            "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "hostNetwork": true,
                    "priorityClassName": "system-node-critical",
                    "serviceAccountName": NAME,
                    "tolerations": [{ "operator": "Exists" }],
                    "containers": [{
                        "name": NAME,
                        "image": images::proxy(cluster),
                        "command": command,
                        "env": [node_name()],
                        "resources": resources.unwrap_or_else(|| json!({})),
                        "securityContext": { "privileged": true },
                        "volumeMounts": [
                            { "name": "kubeconfig", "mountPath": "/etc/kubernetes", "readOnly": true },
                            { "name": "modules", "mountPath": "/lib/modules", "readOnly": true },
                            { "name": "xtables-lock", "mountPath": "/run/xtables.lock" },
                        ],
                    }],
                    "volumes": [
                        { "name": "kubeconfig", "configMap": { "name": "kubeconfig-in-cluster" } },
                        host_directory("modules", "/lib/modules"),
                        iptables_lock(),
                    ],
                },
            },
        },
    }))
}
