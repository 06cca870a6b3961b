//! Resource types of Kubernetes on a control plane node: what a bootstrap creates, and how far that is.
//!
//! Does not: derive Debug: manifests hold the token with which nodes join, and what users write into theirs.
//! Source: crates/api/tests/data/resources.tsv.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::definition::{Column, Definition, Sensitivity};

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
