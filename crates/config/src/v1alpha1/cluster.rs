//! The `cluster` section.

use super::is_default;
use crate::{CertificateAndKey, EncodedSecret, Secret};
use serde::{Deserialize, Serialize};

/// What concerns the cluster. The secrets are carried now and used by the Kubernetes issue.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Cluster {
    /// Identifier of the cluster, base64 of 32 bytes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub id: String,
    /// Shared secret of cluster discovery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Secret>,
    /// Where the Kubernetes API answers.
    #[serde(default)]
    pub control_plane: ControlPlane,
    /// The cluster's name.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cluster_name: String,
    /// Bootstrap token with which a kubelet joins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Secret>,
    /// Key that encrypts secrets in etcd.
    #[serde(rename = "aescbcEncryptionSecret", default, skip_serializing_if = "Option::is_none")]
    pub aescbc_encryption_secret: Option<Secret>,
    /// CA of Kubernetes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ca: CertificateAndKey,
    /// CA of the aggregation layer.
    #[serde(rename = "aggregatorCA", default, skip_serializing_if = "is_default")]
    pub aggregator_ca: CertificateAndKey,
    /// Key that signs service account tokens.
    #[serde(default, skip_serializing_if = "is_default")]
    pub service_account: ServiceAccount,
    /// The etcd cluster.
    #[serde(default, skip_serializing_if = "is_default")]
    pub etcd: Etcd,
}

/// Where the Kubernetes API answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ControlPlane {
    /// `https://host:port`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub endpoint: String,
}

/// Key that signs service account tokens.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ServiceAccount {
    /// PEM of the private key.
    #[serde(default)]
    pub key: EncodedSecret,
}

/// The etcd cluster.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Etcd {
    /// CA of etcd.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ca: CertificateAndKey,
}
