//! The cluster's DNS.

use serde_json::{Value, json};

use super::objects::{account, binding, role, service_account};
use crate::{Cluster, Error, images};

const NAME: &str = "coredns";
/// Label by which Kubernetes' tools find the cluster DNS.
const APP: &str = "kube-dns";

pub(super) fn objects(cluster: &Cluster<'_>) -> Vec<Value> {
    let rules = json!([
        {
            "apiGroups": [""],
            "resources": ["endpoints", "services", "pods", "namespaces"],
            "verbs": ["list", "watch"],
        },
        { "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"] },
        { "apiGroups": [""], "resources": ["nodes"], "verbs": ["get"] },
    ]);
    vec![
        service_account(NAME),
        role("system:coredns", &rules),
        binding("system:coredns", "system:coredns", &[account(NAME)]),
        config_map(cluster),
        deployment(cluster),
    ]
}

fn config_map(cluster: &Cluster<'_>) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": NAME, "namespace": "kube-system" },
        "data": { "Corefile": corefile(cluster) },
    })
}

/// Names of services and pods from the API server, all others from where the node asks. No node has a DNS server for its pods
/// yet, whatever `forwardKubeDNSToHost` says.
fn corefile(cluster: &Cluster<'_>) -> String {
    let domain = cluster.dns_domain();
    format!(
        ".:53 {{
    errors
    health {{
        lameduck 5s
    }}
    ready
    log . {{
        class error
    }}
    prometheus :9153
    kubernetes {domain} in-addr.arpa ip6.arpa {{
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 30
    }}
    forward . /etc/resolv.conf {{
        max_concurrent 1000
    }}
    cache 30
    loop
    reload
    loadbalance
}}
"
    )
}

fn deployment(cluster: &Cluster<'_>) -> Value {
    let labels = json!({ "k8s-app": APP });
    let tolerated = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"]
        .map(|key| json!({ "key": key, "operator": "Exists", "effect": "NoSchedule" }));
    let apart = json!({
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{
                "weight": 100,
                "podAffinityTerm": {
                    "labelSelector": { "matchLabels": labels },
                    "topologyKey": "kubernetes.io/hostname",
                },
            }],
        },
    });
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": NAME,
            "namespace": "kube-system",
            "labels": { "k8s-app": APP, "kubernetes.io/name": "CoreDNS" },
        },
        "spec": {
            "replicas": 2,
            "selector": { "matchLabels": labels },
            "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 1 } },
            "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "affinity": apart,
                    "priorityClassName": "system-cluster-critical",
                    "serviceAccountName": NAME,
                    "tolerations": tolerated,
                    "dnsPolicy": "Default",
                    "containers": [container(cluster)],
                    "volumes": [{
                        "name": "config-volume",
                        "configMap": { "name": NAME, "items": [{ "key": "Corefile", "path": "Corefile" }] },
                    }],
                },
            },
        },
    })
}

fn container(cluster: &Cluster<'_>) -> Value {
    let probe =
        |path: &str, port: u16| json!({ "httpGet": { "path": path, "port": port, "scheme": "HTTP" } });
    let mut readiness = probe("/ready", 8181);
    // The first question comes before it knows any service. After the usual ten seconds a new cluster would be without names
    // for longer than its nodes take to be ready.
    readiness["periodSeconds"] = json!(2);
    json!({
        "name": NAME,
        "image": images::core_dns(cluster),
        "args": ["-conf", "/etc/coredns/Corefile"],
        "env": [{ "name": "GOMEMLIMIT", "value": "161MiB" }],
        "resources": {
            "requests": { "cpu": "100m", "memory": "70Mi" },
            "limits": { "memory": "170Mi" },
        },
        "ports": [
            { "name": "dns", "containerPort": 53, "protocol": "UDP" },
            { "name": "dns-tcp", "containerPort": 53, "protocol": "TCP" },
            { "name": "metrics", "containerPort": 9153, "protocol": "TCP" },
        ],
        "livenessProbe": probe("/health", 8080),
        "readinessProbe": readiness,
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": { "add": ["NET_BIND_SERVICE"], "drop": ["ALL"] },
            "readOnlyRootFilesystem": true,
        },
        "volumeMounts": [{ "name": "config-volume", "mountPath": "/etc/coredns", "readOnly": true }],
    })
}

/// The service at the tenth address of each service network: one that has all of them.
pub(super) fn service(cluster: &Cluster<'_>) -> Result<Value, Error> {
    let addresses = cluster.dns_addresses()?;
    let mut spec = json!({
        "selector": { "k8s-app": APP },
        "clusterIP": addresses.first(),
        "ports": [
            { "name": "dns", "port": 53, "protocol": "UDP", "targetPort": 53 },
            { "name": "dns-tcp", "port": 53, "protocol": "TCP", "targetPort": 53 },
            { "name": "metrics", "port": 9153, "protocol": "TCP", "targetPort": 9153 },
        ],
    });
    if let (Value::Object(fields), [_, _, ..]) = (&mut spec, addresses.as_slice()) {
        fields.insert("clusterIPs".to_owned(), json!(addresses));
        fields.insert("ipFamilyPolicy".to_owned(), json!("RequireDualStack"));
    }
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": APP,
            "namespace": "kube-system",
            "annotations": { "prometheus.io/port": "9153", "prometheus.io/scrape": "true" },
            "labels": { "k8s-app": APP, "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "CoreDNS" },
        },
        "spec": spec,
    }))
}
