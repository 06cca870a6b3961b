//! Small objects and parts of objects that several manifests have.

use serde_json::{Value, json};

/// A service account in `kube-system`.
pub(super) fn service_account(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": { "name": name, "namespace": "kube-system" },
    })
}

/// Gives a cluster role to these subjects.
pub(super) fn binding(name: &str, role: &str, subjects: &[Value]) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
        "subjects": subjects,
    })
}

pub(super) fn account(name: &str) -> Value {
    json!({ "kind": "ServiceAccount", "name": name, "namespace": "kube-system" })
}

pub(super) fn group(name: &str) -> Value {
    json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": name })
}

pub(super) fn role(name: &str, rules: &Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": { "name": name },
        "rules": rules,
    })
}

/// A directory of the node, as a volume.
pub(super) fn host_directory(name: &str, path: &str) -> Value {
    json!({ "name": name, "hostPath": { "path": path } })
}

/// A lock file that iptables shares with the node.
pub(super) fn iptables_lock() -> Value {
    json!({ "name": "xtables-lock", "hostPath": { "path": "/run/xtables.lock", "type": "FileOrCreate" } })
}

/// The name of the node that a pod runs on.
pub(super) fn node_name() -> Value {
    json!({ "name": "NODE_NAME", "valueFrom": { "fieldRef": { "fieldPath": "spec.nodeName" } } })
}
