//! What nodes read of their cluster: the addresses of its control plane nodes, and the authority of their node API.
//!
//! Owns: the ConfigMap of the authority, and the two roles of the group of kubelets.
//! Does not: hold a key. Who may change the ConfigMap says whom workers without `machine.ca.crt` trust: see docs/threat-model.md.

use serde_json::{Value, json};

use super::roles::NODES;
use crate::Cluster;

/// The namespace of the ConfigMap.
const NAMESPACE: &str = "kube-system";
/// The ConfigMap with the authority of the node API.
const MACHINE_CA: &str = "machine-ca";
/// Its only key.
pub const MACHINE_CA_KEY: &str = "ca.crt";
/// Where an API server has the addresses of all API servers.
pub const API_SERVERS_PATH: &str = "/api/v1/namespaces/default/endpoints/kubernetes";
/// Where it has the authority of the node API.
pub const MACHINE_CA_PATH: &str = "/api/v1/namespaces/kube-system/configmaps/machine-ca";

pub(super) fn objects(cluster: &Cluster<'_>) -> Vec<Value> {
    let authority = cluster.config().machine.ca.crt.0.as_str();
    let mut objects = allowed("control-planes", "default", "endpoints", "kubernetes");
    if !authority.trim().is_empty() {
        objects.push(json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": MACHINE_CA, "namespace": NAMESPACE },
            "data": { MACHINE_CA_KEY: authority },
        }));
        objects.extend(allowed(MACHINE_CA, NAMESPACE, "configmaps", MACHINE_CA));
    }
    objects
}

/// Lets nodes read one object.
fn allowed(name: &str, namespace: &str, resource: &str, object: &str) -> Vec<Value> {
    let name = format!("billet:{name}");
    let metadata = json!({ "name": name, "namespace": namespace });
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": metadata,
        "rules": [{ "apiGroups": [""], "resources": [resource], "resourceNames": [object], "verbs": ["get"] }],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": metadata,
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name },
        "subjects": [super::objects::group(NODES)],
    });
    vec![role, binding]
}
