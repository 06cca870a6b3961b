//! Where the cluster's control plane nodes are, and which authority their node API has: what its API server tells a kubelet.
//!
//! Does not: say that those addresses are control plane nodes; whoever asks them verifies that.
//! Order: the API server is verified with the authority that the kubelet joined with.
//! Source: docs/users/certificates.md.

use std::net::IpAddr;

use kubernetes::{manifests, paths};
use serde_json::Value;

use crate::{Error, KubernetesNode, api_server, kubelet_credentials};

/// More control plane nodes than any cluster has.
const MAX_ADDRESSES: usize = 32;

impl KubernetesNode {
    /// The addresses of the cluster's API servers; none before this node's kubelet has joined the cluster.
    ///
    /// # Errors
    /// [`Error::File`] before the kubelet has its kubeconfig; [`Error::ApiServer`].
    pub async fn control_planes(&self) -> Result<Vec<IpAddr>, Error> {
        let object = self.read(manifests::API_SERVERS_PATH).await?;
        Ok(object.as_ref().map(addresses).unwrap_or_default())
    }

    /// The authority of the node API, PEM; `None` before this node's kubelet has joined the cluster.
    ///
    /// # Errors
    /// [`Error::File`] before the kubelet has its kubeconfig; [`Error::ApiServer`].
    pub async fn machine_authority(&self) -> Result<Option<String>, Error> {
        let object = self.read(manifests::MACHINE_CA_PATH).await?;
        Ok(object.and_then(|object| object["data"][manifests::MACHINE_CA_KEY].as_str().map(str::to_owned)))
    }

    /// What the API server has at a path, as this node's kubelet may read it.
    async fn read(&self, path: &str) -> Result<Option<Value>, Error> {
        if !kubelet_credentials::are_there(&self.runtime.root) {
            return Ok(None);
        }
        let client = api_server::client_of_file(&self.runtime.root, paths::KUBELET_KUBECONFIG).await?;
        api_server::get(&client, path).await.map(Some)
    }
}

/// Of an Endpoints object.
pub(crate) fn addresses(object: &Value) -> Vec<IpAddr> {
    let subsets = object["subsets"].as_array().into_iter().flatten();
    let of_subset = subsets.flat_map(|subset| subset["addresses"].as_array().into_iter().flatten());
    of_subset.filter_map(|address| address["ip"].as_str()?.parse().ok()).take(MAX_ADDRESSES).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn addresses_of_all_subsets_are_found_and_others_passed_over() {
        let object = json!({ "subsets": [
            { "addresses": [{ "ip": "10.0.0.3" }, { "ip": "not an address" }, {}], "ports": [{ "port": 6443 }] },
            { "notReadyAddresses": [{ "ip": "10.0.0.9" }] },
            { "addresses": [{ "ip": "fd00::3" }] },
        ]});
        let found: Vec<String> = addresses(&object).iter().map(IpAddr::to_string).collect();
        assert_eq!(found, ["10.0.0.3", "fd00::3"]);
        for empty in [json!(null), json!({}), json!({ "subsets": "x" })] {
            assert!(addresses(&empty).is_empty());
        }
        let many = json!({ "subsets": [{ "addresses": vec![json!({ "ip": "10.0.0.3" }); 1000] }] });
        assert_eq!(addresses(&many).len(), MAX_ADDRESSES);
    }
}
