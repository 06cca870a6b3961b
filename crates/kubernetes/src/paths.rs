//! Where the files of Kubernetes lie on a node.
//!
//! Source: docs/users/pki.md and the paths that both client generations name.

/// Static pods that the kubelet runs.
pub const MANIFESTS: &str = "/etc/kubernetes/manifests";
/// Where the kubelet finds copies of the node's own, and nothing else, in the place of [`MANIFESTS`].
pub const OWN_MANIFESTS: &str = "/system/config/kubernetes/manifests";
/// Prefix of the node's own files there: others are not the node's.
pub const MANIFEST_PREFIX: &str = "talos-";
/// With which a kubelet without a certificate asks for one.
pub const BOOTSTRAP_KUBECONFIG: &str = "/etc/kubernetes/bootstrap-kubeconfig";
/// What the kubelet writes when it has one.
pub const KUBELET_KUBECONFIG: &str = "/etc/kubernetes/kubeconfig-kubelet";
/// The kubelet's configuration.
pub const KUBELET_CONFIG: &str = "/etc/kubernetes/kubelet.yaml";
/// The kubelet's credential providers.
pub const CREDENTIAL_PROVIDERS: &str = "/etc/kubernetes/kubelet-credential-provider.yaml";
/// Programs of credential providers, from an extension.
pub const CREDENTIAL_PROVIDER_BINARIES: &str = "/usr/local/lib/kubelet/credentialproviders";
/// CA of Kubernetes for the kubelet.
pub const KUBELET_CA: &str = "/etc/kubernetes/pki/ca.crt";
/// The kubelet's own certificates.
pub const KUBELET_PKI: &str = "/var/lib/kubelet/pki";
/// Data of etcd.
pub const ETCD_DATA: &str = "/var/lib/etcd";
/// Keys of etcd.
pub const ETCD_SECRETS: &str = "/system/secrets/etcd";
/// Keys of the API server.
pub const API_SERVER_SECRETS: &str = "/system/secrets/kubernetes/kube-apiserver";
/// Keys of the controller manager.
pub const CONTROLLER_MANAGER_SECRETS: &str = "/system/secrets/kubernetes/kube-controller-manager";
/// Keys of the scheduler.
pub const SCHEDULER_SECRETS: &str = "/system/secrets/kubernetes/kube-scheduler";
/// Files of the API server without a secret.
pub const API_SERVER_CONFIG: &str = "/system/config/kubernetes/kube-apiserver";
/// Files of the scheduler without a secret.
pub const SCHEDULER_CONFIG: &str = "/system/config/kubernetes/kube-scheduler";
/// Audit log of the API server.
pub const AUDIT_LOG: &str = "/var/log/audit/kube";
/// Socket of the containerd that runs pods.
pub const CONTAINERD_SOCKET: &str = "unix:///run/containerd/containerd.sock";

/// Name of a static pod's file.
#[must_use]
pub fn manifest_file(id: &str) -> String {
    format!("{MANIFEST_PREFIX}{id}.yaml")
}
