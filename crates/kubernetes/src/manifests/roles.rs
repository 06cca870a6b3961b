//! What lets nodes in: the bootstrap token, and who may do what with certificate requests.

use serde_json::{Value, json};

use super::objects::{binding, group, role};
use crate::version::until;
use crate::{Cluster, Error, images};

/// The groups that a bootstrap token puts its bearer in.
const BOOTSTRAPPERS: &str = "system:bootstrappers";
/// The group of kubelets.
pub(super) const NODES: &str = "system:nodes";
const REQUESTS: &str = "system:certificates.k8s.io:certificatesigningrequests";

pub(super) fn all(cluster: &Cluster<'_>) -> Result<Vec<(&'static str, Vec<Value>)>, Error> {
    let bootstrap = binding(
        "system-bootstrap-node-bootstrapper",
        "system:node-bootstrapper",
        &[group(BOOTSTRAPPERS), group(NODES)],
    );
    let approve = binding(
        "system-bootstrap-approve-node-client-csr",
        &format!("{REQUESTS}:nodeclient"),
        &[group(BOOTSTRAPPERS)],
    );
    let renew =
        binding("system-bootstrap-node-renewal", &format!("{REQUESTS}:selfnodeclient"), &[group(NODES)]);
    let mut manifests = vec![
        ("00-kubelet-bootstrapping-token", vec![token(cluster)?]),
        ("01-csr-approver-role-binding", vec![approve]),
        ("01-csr-node-bootstrap", vec![bootstrap]),
        ("01-csr-renewal-role-binding", vec![renew]),
    ];
    let settings = cluster.api_server();
    let has_policies = settings.disable_pod_security_policy != Some(true);
    if has_policies && until(24).contain(images::api_server_version(cluster)?) {
        manifests.push(("03-default-pod-security-policy", pod_security_policy()));
    }
    Ok(manifests)
}

/// A token `id.secret`. It does not end: nodes join with it at any time.
fn token(cluster: &Cluster<'_>) -> Result<Value, Error> {
    let hint = "write the bootstrap token of the cluster: abcdef.0123456789abcdef";
    let missing = || Error::Missing { field: "cluster.token", hint };
    let token = cluster.config().cluster.token.as_ref().ok_or_else(missing)?;
    let (id, secret) = token.expose_secret().split_once('.').ok_or_else(missing)?;
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": format!("bootstrap-token-{id}"), "namespace": "kube-system" },
        "type": "bootstrap.kubernetes.io/token",
        "stringData": {
            "token-id": id,
            "token-secret": secret,
            "usage-bootstrap-authentication": "true",
        },
    }))
}

/// Allows everything to everybody, so that pods start where the plugin is on and the user has no policy yet.
fn pod_security_policy() -> Vec<Value> {
    let rules = json!([{
        "apiGroups": ["policy"],
        "resources": ["podsecuritypolicies"],
        "resourceNames": ["privileged"],
        "verbs": ["use"],
    }]);
    let any = json!({ "rule": "RunAsAny" });
    let policy = json!({
        "apiVersion": "policy/v1beta1",
        "kind": "PodSecurityPolicy",
        "metadata": { "name": "privileged" },
        "spec": {
            "privileged": true,
            "allowPrivilegeEscalation": true,
            "allowedCapabilities": ["*"],
            "volumes": ["*"],
            "hostNetwork": true,
            "hostIPC": true,
            "hostPID": true,
            "hostPorts": [{ "min": 0, "max": 65535 }],
            "runAsUser": any,
            "seLinux": any,
            "supplementalGroups": any,
            "fsGroup": any,
        },
    });
    let subjects = [group("system:serviceaccounts"), group("system:authenticated")];
    vec![role("psp:privileged", &rules), binding("psp:privileged", "psp:privileged", &subjects), policy]
}
