//! Resource types of Kubernetes: what a node runs and with what, what a bootstrap creates, and how far that is.
//!
//! Does not: derive Debug: manifests hold the token with which nodes join, and what users write into theirs.
//! Source: crates/api/tests/data/resources.tsv; the `billet.dev` types are ours.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::definition::{Column, Definition, PLAIN, Sensitivity, column};

/// A manifest. Sensitive where the sheets say nothing of it: one of them is the bootstrap token.
pub static MANIFEST: Definition = Definition {
    sensitivity: Sensitivity::Sensitive,
    ..Definition::published("Manifests.kubernetes.talos.dev", "k8s.ManifestController")
};

/// Which manifests are there.
pub static MANIFEST_STATUS: Definition =
    Definition::published("ManifestStatuses.kubernetes.talos.dev", "k8s.ManifestApplyController");

/// A static pod that the node wants to run.
pub static STATIC_POD: Definition =
    Definition::published("StaticPods.kubernetes.talos.dev", "k8s.ControlPlaneStaticPodController");

/// How a static pod does.
pub static STATIC_POD_STATUS: Definition = Definition {
    // The sheets cut it.
    columns: &[Column { name: "Ready", path: "{.conditions[?(@.type==\"Ready\")].status}" }],
    ..Definition::published("StaticPodStatuses.kubernetes.talos.dev", "k8s.KubeletStaticPodController")
};

/// The manifests that the config names. Sensitive as the headers in it are.
pub static EXTRA_MANIFESTS_CONFIG: Definition = Definition {
    sensitivity: Sensitivity::Sensitive,
    ..Definition::published(
        "ExtraManifestsConfigs.kubernetes.talos.dev",
        "k8s.ControlPlaneExtraManifestsController",
    )
};

/// Plugins that admit objects.
pub static ADMISSION_CONTROL_CONFIG: Definition = Definition::published(
    "AdmissionControlConfigs.kubernetes.talos.dev",
    "k8s.ControlPlaneAdmissionControlController",
);

/// What the API server runs with.
pub static API_SERVER_CONFIG: Definition =
    Definition::published("APIServerConfigs.kubernetes.talos.dev", "k8s.ControlPlaneAPIServerController");

/// What is written to the audit log.
pub static AUDIT_POLICY_CONFIG: Definition =
    Definition::published("AuditPolicyConfigs.kubernetes.talos.dev", "k8s.ControlPlaneAuditPolicyController");

/// Who decides what is allowed.
pub static AUTHORIZATION_CONFIG: Definition = Definition::published(
    "AuthorizationConfigs.kubernetes.talos.dev",
    "k8s.ControlPlaneAuthorizationController",
);

/// What the bootstrap manifests are made of.
pub static BOOTSTRAP_MANIFESTS_CONFIG: Definition = Definition::published(
    "BootstrapManifestsConfigs.kubernetes.talos.dev",
    "k8s.ControlPlaneBootstrapManifestsController",
);

/// Whether the files of the static pods are there.
pub static CONFIG_STATUS: Definition =
    Definition::published("ConfigStatuses.kubernetes.talos.dev", "k8s.RenderConfigsStaticPodController");

/// What the controller manager runs with. Sensitive as the environment in it is.
pub static CONTROLLER_MANAGER_CONFIG: Definition = Definition {
    sensitivity: Sensitivity::Sensitive,
    ..Definition::published(
        "ControllerManagerConfigs.kubernetes.talos.dev",
        "k8s.ControlPlaneControllerManagerController",
    )
};

/// Whether etcd's certificates are there.
pub static ETCD_PKI_STATUS: Definition =
    Definition::published("PKIStatuses.etcd.talos.dev", "etcd.PKIController");

/// What the kubelet runs from.
pub static KUBELET_STATUS: Definition =
    Definition::published("KubeletStatuses.kubernetes.talos.dev", "k8s.KubeletServiceController");

/// What the config says of etcd.
pub static ETCD_CONFIG: Definition =
    Definition::published("EtcdConfigs.etcd.talos.dev", "etcd.ConfigController");

/// A certificate that the node shows, or an authority that it trusts.
pub static CERTIFICATE_STATUS: Definition = Definition {
    kind: "CertificateStatuses.secrets.billet.dev",
    display: "CertificateStatus",
    namespace: "runtime",
    columns: &[
        column("Subject", "{.subject}"),
        column("Issuer", "{.issuer}"),
        column("Expires", "{.notAfter}"),
        column("Renewed By", "{.renewedBy}"),
        column("Ends Soon", "{.endsSoon}"),
    ],
    // `cs` is of several types.
    abbreviated: false,
    writer: "secrets.CertificateStatusController",
    ..PLAIN
};

/// The snapshots of etcd that a node takes by itself.
pub static ETCD_SNAPSHOT_STATUS: Definition = Definition {
    kind: "EtcdSnapshotStatuses.etcd.billet.dev",
    display: "EtcdSnapshotStatus",
    namespace: "etcd",
    columns: &[
        column("File", "{.file}"),
        column("Size", "{.size}"),
        column("Kept", "{.kept}"),
        column("Next", "{.next}"),
        column("Target", "{.target}"),
        column("Put", "{.put}"),
        column("Error", "{.error}"),
    ],
    writer: "etcd.SnapshotController",
    ..PLAIN
};

/// The node's own member of etcd.
pub static ETCD_MEMBER: Definition =
    Definition::published("EtcdMembers.etcd.talos.dev", "etcd.MemberController");

/// Which addresses reach etcd's ports.
pub static ETCD_PEER: Definition = Definition {
    kind: "EtcdPeers.etcd.billet.dev",
    display: "EtcdPeer",
    columns: &[column("Addresses", "{.addresses}")],
    writer: "etcd.PeerController",
    ..PLAIN
};

/// What etcd runs with.
pub static ETCD_SPEC: Definition = Definition::published("EtcdSpecs.etcd.talos.dev", "etcd.SpecController");

/// What the config says of the kubelet.
pub static KUBELET_CONFIG: Definition =
    Definition::published("KubeletConfigs.kubernetes.talos.dev", "k8s.KubeletConfigController");

/// Where the API servers of the cluster are, as the cluster tells.
pub static ENDPOINT: Definition =
    Definition::published("Endpoints.kubernetes.talos.dev", "k8s.EndpointController");

/// The node's balancer before the API servers.
pub static KUBE_PRISM_CONFIG: Definition =
    Definition::published("KubePrismConfigs.kubernetes.talos.dev", "k8s.KubePrismController");

/// The API servers behind the balancer.
pub static KUBE_PRISM_ENDPOINTS: Definition =
    Definition::published("KubePrismEndpoints.kubernetes.talos.dev", "k8s.KubePrismController");

/// Whether one of them answers.
pub static KUBE_PRISM_STATUS: Definition =
    Definition::published("KubePrismStatuses.kubernetes.talos.dev", "k8s.KubePrismController");

/// What the kubelet runs with.
pub static KUBELET_SPEC: Definition =
    Definition::published("KubeletSpecs.kubernetes.talos.dev", "k8s.KubeletSpecController");

/// A node of the cluster as discovery services have it.
pub static AFFILIATE: Definition =
    Definition::published("Affiliates.cluster.talos.dev", "cluster.KubernetesPullController");

/// A node of the cluster.
pub static MEMBER: Definition =
    Definition::published("Members.cluster.talos.dev", "cluster.MemberController");

/// An annotation that the node is to have.
pub static NODE_ANNOTATION_SPEC: Definition =
    Definition::published("NodeAnnotationSpecs.k8s.talos.dev", "k8s.NodeAnnotationSpecController");

/// Addresses that the kubelet announces.
pub static NODE_IP: Definition =
    Definition::published("NodeIPs.kubernetes.talos.dev", "k8s.NodeIPController");

/// Networks that these are chosen by.
pub static NODE_IP_CONFIG: Definition =
    Definition::published("NodeIPConfigs.kubernetes.talos.dev", "k8s.NodeIPConfigController");

/// A label that the node is to have.
pub static NODE_LABEL_SPEC: Definition =
    Definition::published("NodeLabelSpecs.k8s.talos.dev", "k8s.NodeLabelSpecController");

/// The node as the cluster has it.
pub static NODE_STATUS: Definition =
    Definition::published("NodeStatuses.kubernetes.talos.dev", "k8s.NodeStatusController");

/// A taint with which the node registers.
pub static NODE_TAINT_SPEC: Definition =
    Definition::published("NodeTaintSpecs.k8s.talos.dev", "k8s.NodeTaintSpecController");

/// The node's name in the cluster.
pub static NODENAME: Definition =
    Definition::published("Nodenames.kubernetes.talos.dev", "k8s.NodenameController");

/// What the scheduler runs with. Sensitive as the environment in it is.
pub static SCHEDULER_CONFIG: Definition = Definition {
    sensitivity: Sensitivity::Sensitive,
    ..Definition::published("SchedulerConfigs.kubernetes.talos.dev", "k8s.ControlPlaneSchedulerController")
};

/// Whether the keys of the static pods are there.
pub static SECRETS_STATUS: Definition =
    Definition::published("SecretStatuses.kubernetes.talos.dev", "k8s.RenderSecretsStaticPodController");

/// What a program of the control plane runs with, as the first generation has it for all of them.
pub static CONTROL_PLANE_CONFIG: Definition = Definition {
    kind: "KubernetesControlPlaneConfigs.config.talos.dev",
    display: "KubernetesControlPlaneConfig",
    namespace: "config",
    // As the types that took its place.
    sensitivity: Sensitivity::Sensitive,
    writer: "config.K8sControlPlaneController",
    ..PLAIN
};

/// Whether the control plane runs as pods of itself, as v0.8 had it: never here.
pub static BOOTSTRAP_STATUS: Definition = Definition {
    kind: "BootstrapStatuses.v1alpha1.talos.dev",
    display: "BootstrapStatus",
    columns: &[Column { name: "Self Hosted", path: "{.selfHostedControlPlane}" }],
    writer: "v1alpha1.BootstrapStatusController",
    ..PLAIN
};

/// What a resource of these types says.
#[derive(Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum KubernetesSpec {
    /// `Manifests`: its objects.
    Manifest(Vec<Value>),
    /// `ManifestStatuses`.
    #[serde(rename_all = "camelCase")]
    ManifestStatus {
        /// Ids of those whose objects are all there.
        manifests_applied: Vec<String>,
    },
    /// `StaticPods`: the pod.
    StaticPod(Value),
    /// `StaticPodStatuses`: the status of Kubernetes' pod.
    StaticPodStatus(Value),
    /// `ExtraManifestsConfigs`.
    #[serde(rename_all = "camelCase")]
    ExtraManifests {
        /// In the order of the config.
        extra_manifests: Vec<ExtraManifest>,
    },
}

/// A manifest that the config names.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExtraManifest {
    /// Address of one that is downloaded, or its own name.
    pub name: String,
    /// Where it lies; empty: in the config.
    pub url: String,
    /// What its id begins with: they are applied in this order.
    pub priority: String,
    /// HTTP headers with which it is downloaded.
    pub extra_headers: BTreeMap<String, String>,
    /// Its text, where it lies in the config.
    pub inline_manifest: String,
}
