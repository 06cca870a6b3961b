//! Resource types of the secrets that everything else is made from: views of the machine config, so that no key is kept twice.
//!
//! Source: crates/api/tests/data/resources.tsv; docs/decisions/0006 for who sees them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::definition::Definition;
use super::document::MachineDocument;

/// The CA of the node API with its key, and the token of trustd.
pub static OS_ROOT_SECRET: Definition =
    Definition::published("OSRootSecrets.secrets.talos.dev", "secrets.RootOSController");

/// The CA of Kubernetes with its key, and what else a cluster is made from.
pub static KUBERNETES_ROOT_SECRET: Definition =
    Definition::published("KubernetesRootSecrets.secrets.talos.dev", "secrets.RootKubernetesController");

/// Secrets of the node API: a view of the machine config, so that no key is kept twice.
#[derive(Clone, PartialEq)]
pub struct OsRoot(pub Arc<MachineDocument>);

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OsRootTree<'a> {
    #[serde(rename = "issuingCA")]
    issuing_ca: &'a config::CertificateAndKey,
    #[serde(rename = "certSANIPs")]
    ips: Vec<&'a String>,
    #[serde(rename = "certSANDNSNames")]
    names: Vec<&'a String>,
    token: &'a config::Secret,
    #[serde(rename = "acceptedCAs")]
    accepted: Vec<BTreeMap<&'static str, &'a config::EncodedPem>>,
}

impl Serialize for OsRoot {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let machine = &self.0.config.machine;
        let is_address = |name: &&String| name.parse::<std::net::IpAddr>().is_ok();
        let accepted = std::iter::once(&machine.ca).chain(&machine.accepted_cas);
        OsRootTree {
            issuing_ca: &machine.ca,
            ips: machine.cert_sans.iter().filter(is_address).collect(),
            names: machine.cert_sans.iter().filter(|name| !is_address(name)).collect(),
            token: &machine.token,
            accepted: accepted.map(|pair| BTreeMap::from([("crt", &pair.crt)])).collect(),
        }
        .serialize(to)
    }
}

/// Secrets of Kubernetes: the same.
#[derive(Clone, PartialEq)]
pub struct KubernetesRoot {
    /// The config.
    pub document: Arc<MachineDocument>,
    /// Where the API server of this node answers.
    pub local_endpoint: String,
    /// Addresses of the API server in the service networks.
    pub api_addresses: Vec<IpAddr>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct KubernetesRootTree<'a> {
    name: &'a str,
    endpoint: &'a str,
    #[serde(rename = "local_endpoint")]
    local_endpoint: &'a str,
    #[serde(rename = "certSANs")]
    names: &'a [String],
    dns_domain: &'a str,
    #[serde(rename = "issuingCA")]
    issuing_ca: &'a config::CertificateAndKey,
    service_account: BTreeMap<&'static str, &'a config::EncodedSecret>,
    #[serde(rename = "aggregatorCA")]
    aggregator_ca: &'a config::CertificateAndKey,
    #[serde(rename = "aesCBCEncryptionSecret", skip_serializing_if = "Option::is_none")]
    aescbc: Option<&'a config::Secret>,
    #[serde(rename = "secretboxEncryptionSecret", skip_serializing_if = "Option::is_none")]
    secretbox: Option<&'a config::Secret>,
    #[serde(rename = "bootstrapTokenID")]
    token_id: &'a str,
    #[serde(rename = "bootstrapTokenSecret")]
    token_secret: &'a str,
    #[serde(rename = "apiServerIPs")]
    api_addresses: &'a [IpAddr],
    #[serde(rename = "acceptedCAs")]
    accepted: Vec<BTreeMap<&'static str, &'a config::EncodedPem>>,
}

impl Serialize for KubernetesRoot {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let cluster = &self.document.config.cluster;
        let token = cluster.token.as_ref().map_or("", config::Secret::expose_secret);
        let (token_id, token_secret) = token.split_once('.').unwrap_or(("", token));
        let accepted = std::iter::once(&cluster.ca).chain(&cluster.accepted_cas);
        KubernetesRootTree {
            name: &cluster.cluster_name,
            endpoint: &cluster.control_plane.endpoint,
            local_endpoint: &self.local_endpoint,
            names: cluster.api_server.as_ref().map_or(&[], |server| server.cert_sans.as_slice()),
            dns_domain: cluster.network.as_ref().map_or("", |network| network.dns_domain.as_str()),
            issuing_ca: &cluster.ca,
            service_account: BTreeMap::from([("key", &cluster.service_account.key)]),
            aggregator_ca: &cluster.aggregator_ca,
            aescbc: cluster.aescbc_encryption_secret.as_ref(),
            secretbox: cluster.secretbox_encryption_secret.as_ref(),
            token_id,
            token_secret,
            api_addresses: &self.api_addresses,
            accepted: accepted.map(|pair| BTreeMap::from([("crt", &pair.crt)])).collect(),
        }
        .serialize(to)
    }
}
