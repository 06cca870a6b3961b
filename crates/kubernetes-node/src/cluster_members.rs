//! The nodes of the cluster, as `get members` shows them.
//!
//! | task | reads | writes | ends |
//! |---|---|---|---|
//! | [`KubernetesNode::keep_members`] | the nodes that the API server lists | `Members`, `Affiliates` | with machined |
//!
//! Owns: the ids: of a member the node's name, of an affiliate the node's identity, or its name where the node is another one.
//! Does not: ask a discovery service. A worker may read its own object alone, and shows that.
//! Fails by: nothing; what was known last stays.
//! Source: Kubernetes API reference, "Node"; docs/users/kubernetes.md.

use std::time::Duration;

use kubernetes::Cluster;
use runtime::store::{AFFILIATE, IDENTITY, MEMBER, RuntimeSpec, Spec};
use serde_json::{Value, json};

use crate::published::replace;
use crate::{Error, KubernetesNode, api_server, kubelet_credentials, node_object};

/// Of all nodes.
const NODES: &str = "/api/v1/nodes";
/// More nodes than a cluster may have.
const MOST: usize = 8192;
/// Labels by which a node is one of the control plane, of both generations.
const ROLES: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];
/// Nodes come and go seldom.
const LONG_PERIOD: Duration = Duration::from_secs(10);
/// Until the first answer, which people wait for.
const SHORT_PERIOD: Duration = Duration::from_secs(5);

impl KubernetesNode {
    /// Has the resources be as the cluster's nodes are, for as long as this is polled.
    pub async fn keep_members(&self) {
        loop {
            let period = match self.nodes_of_cluster().await {
                Ok(nodes) if !nodes.is_empty() => {
                    let affiliates = nodes.iter().map(|(name, node)| affiliate(name, node));
                    replace(&self.runtime, &AFFILIATE, affiliates);
                    let members = nodes.into_iter().map(|(id, node)| (id, Spec::Fields(node)));
                    replace(&self.runtime, &MEMBER, members);
                    LONG_PERIOD
                }
                Ok(_) | Err(_) => SHORT_PERIOD,
            };
            tokio::time::sleep(period).await;
        }
    }

    async fn nodes_of_cluster(&self) -> Result<Vec<(String, Value)>, Error> {
        let Some(config) = self.runtime.config() else { return Ok(Vec::new()) };
        if !kubelet_credentials::are_there(&self.runtime.root) {
            return Ok(Vec::new());
        }
        let cluster = Cluster::new(&config)?;
        let (own, name) = self.own_object(&cluster).await?;
        let nodes = if cluster.is_control_plane() {
            let client = api_server::first_ready(own, &cluster).await?;
            api_server::get(&client, NODES).await?["items"].as_array().cloned().unwrap_or_default()
        } else {
            node_object::get(&own, &name).await?.into_iter().collect()
        };
        let port = cluster.api_port();
        let one = |node: &Value| {
            let is_own = node["metadata"]["name"].as_str() == Some(name.as_str());
            let identity = if is_own { self.identity() } else { String::new() };
            // Its label comes a moment later than its object.
            let is_control_plane = has_role(node) || (is_own && cluster.is_control_plane());
            member(node, is_control_plane.then_some(port), identity)
        };
        Ok(nodes.iter().take(MOST).filter_map(one).collect())
    }

    fn identity(&self) -> String {
        let found = self.runtime.store.get(&IDENTITY, "local");
        match found.as_ref().map(|resource| &resource.spec) {
            Some(Spec::Runtime(RuntimeSpec::Identity(identity))) => identity.node_id.clone(),
            _ => String::new(),
        }
    }
}

/// Whether a node's labels say that it is one of the control plane.
fn has_role(node: &Value) -> bool {
    ROLES.iter().any(|label| !node["metadata"]["labels"][label].is_null())
}

/// A node's object as the resource has it: id and fields. `api_port`: that of a control plane node.
fn member(node: &Value, api_port: Option<u16>, identity: String) -> Option<(String, Value)> {
    let name = node["metadata"]["name"].as_str()?;
    let addresses = node["status"]["addresses"].as_array().map(Vec::as_slice).unwrap_or_default().iter();
    let addresses: Vec<&str> = addresses
        .filter(|address| matches!(address["type"].as_str(), Some("InternalIP" | "ExternalIP")))
        .filter_map(|address| address["address"].as_str())
        .collect();
    let mut fields = json!({
        "nodeId": identity,
        "addresses": addresses,
        "hostname": name,
        "machineType": if api_port.is_some() { "controlplane" } else { "worker" },
        "operatingSystem": node["status"]["nodeInfo"]["osImage"].as_str().unwrap_or_default(),
    });
    if let Some(port) = api_port {
        fields["controlPlane"] = json!({ "port": port });
    }
    Some((name.to_owned(), fields))
}

/// A member as clients look for it that know discovery services.
fn affiliate(name: &str, member: &Value) -> (String, Spec) {
    let mut fields = member.clone();
    fields["nodename"] = json!(name);
    let id = member["nodeId"].as_str().filter(|id| !id.is_empty()).unwrap_or(name).to_owned();
    (id, Spec::Fields(fields))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_shown_with_its_role_and_its_addresses() {
        let node = json!({
            "metadata": { "name": "cp-1", "labels": { "node-role.kubernetes.io/control-plane": "" } },
            "status": {
                "addresses": [
                    { "type": "InternalIP", "address": "10.0.0.3" },
                    { "type": "Hostname", "address": "cp-1" },
                    { "type": "ExternalIP", "address": "fd00::3" },
                ],
                "nodeInfo": { "osImage": "Billet (v0.1.0)" },
            },
        });
        assert!(has_role(&node) && !has_role(&json!({})));
        let (id, fields) = member(&node, Some(6443), "identity".into()).unwrap();
        assert_eq!(id, "cp-1");
        assert_eq!(
            fields,
            json!({
                "nodeId": "identity", "addresses": ["10.0.0.3", "fd00::3"], "hostname": "cp-1",
                "machineType": "controlplane", "operatingSystem": "Billet (v0.1.0)", "controlPlane": { "port": 6443 },
            })
        );
        let (id, spec) = affiliate("cp-1", &fields);
        let Spec::Fields(shown) = spec else { panic!("{id} is no type of fields") };
        assert_eq!(
            (id.as_str(), &shown["nodename"], &shown["nodeId"]),
            ("identity", &json!("cp-1"), &json!("identity"))
        );
        let (_, fields) = member(&json!({ "metadata": { "name": "w" } }), None, String::new()).unwrap();
        assert_eq!((&fields["machineType"], &fields["controlPlane"]), (&json!("worker"), &Value::Null));
        assert_eq!(affiliate("w", &fields).0, "w", "another node's identity is not known");
        assert_eq!(member(&json!({}), None, String::new()), None);
    }
}
