//! Whether the cluster is well, as its API server tells a control plane node.
//!
//! Owns: what holds for nodes and for pods of the system.
//! Does not: wait, or know in which words the conditions are asked for; the health check does.
//! Fails by: a sentence that names what is missing.

use std::collections::BTreeSet;
use std::net::IpAddr;

use kube::Client;
use kubernetes::{Cluster, controller_manager, scheduler};
use serde_json::Value;
use tokio::sync::OnceCell;

use crate::{Error, KubernetesNode, api_server, facts};

/// Where pods of the system are.
const SYSTEM: &str = "kube-system";
/// The label by which Kubernetes' own parts find each other.
const PART: &str = "k8s-app";

/// Something that holds in a cluster that is well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// Each node that is expected has an object.
    Reported,
    /// Each node is ready.
    Ready,
    /// The static pods of each control plane node are ready.
    ControlPlane,
    /// kube-proxy is ready on each node that has it.
    Proxy,
    /// The cluster's DNS is ready.
    Dns,
    /// Pods may come to each node.
    Schedulable,
}

/// How a condition that holds does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// By what was looked at.
    Yes,
    /// There is nothing to look at: the configuration wants none of it.
    Skipped,
}

/// One check, with one client: a client has a certificate of its own, which is made for it.
pub struct Health {
    node: KubernetesNode,
    client: OnceCell<Client>,
}

impl KubernetesNode {
    /// A check, where this node may ask: workers have no rights for it, and a machine without a config has no cluster.
    #[must_use]
    pub fn health(&self) -> Option<Health> {
        let config = self.runtime.config()?;
        let is_control_plane = config.machine.machine_type.is_control_plane();
        is_control_plane.then(|| Health { node: self.clone(), client: OnceCell::new() })
    }
}

impl Health {
    /// Whether the condition holds now. `expected`: addresses of nodes; what is no address is left out.
    ///
    /// # Errors
    /// What keeps it from holding.
    pub async fn holds(&self, condition: Condition, expected: &[String]) -> Result<Holds, String> {
        let said = |error: Error| error.to_string();
        let config = self.node.runtime.config().ok_or_else(|| said(Error::NoConfig))?;
        let cluster = Cluster::new(&config).map_err(|error| error.to_string())?;
        if condition == Condition::Proxy && cluster.proxy().disabled
            || condition == Condition::Dns && has_no_dns(&cluster)
        {
            return Ok(Holds::Skipped);
        }
        let client = self.client.get_or_try_init(|| api_server::client(&cluster)).await.map_err(said)?;
        let list = async |path: &str| api_server::get(client, path).await.map_err(said);
        match condition {
            Condition::Reported => {
                let expected = expected.iter().filter_map(|text| text.parse().ok()).collect();
                reported(&list("/api/v1/nodes").await?, &expected)?;
            }
            Condition::Ready => ready(&list("/api/v1/nodes").await?)?,
            Condition::Schedulable => schedulable(&list("/api/v1/nodes").await?)?,
            Condition::Proxy => pods_ready(&list(&pods_of("kube-proxy")).await?)?,
            Condition::Dns => pods_ready(&list(&pods_of("kube-dns")).await?)?,
            Condition::ControlPlane => {
                let node = facts::node(&self.node.runtime, &cluster, self.node.is_container).map_err(said)?;
                let pods = list(&format!("/api/v1/namespaces/{SYSTEM}/pods")).await?;
                let wanted = [
                    ("kube-apiserver", true),
                    ("kube-controller-manager", controller_manager::is_wanted(&cluster)),
                    ("kube-scheduler", scheduler::is_wanted(&cluster)),
                ];
                let name = cluster.node_name(&node);
                for (program, _) in wanted.iter().filter(|(_, is_wanted)| *is_wanted) {
                    pod_ready(&pods, &format!("{program}-{name}"))?;
                }
            }
        }
        Ok(Holds::Yes)
    }
}

fn has_no_dns(cluster: &Cluster<'_>) -> bool {
    cluster.config().cluster.core_dns.as_ref().is_some_and(|dns| dns.disabled == Some(true))
}

fn pods_of(part: &str) -> String {
    format!("/api/v1/namespaces/{SYSTEM}/pods?labelSelector={PART}%3D{part}")
}

fn items(list: &Value) -> &[Value] {
    list["items"].as_array().map_or(&[], Vec::as_slice)
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Whether an object has a condition of this type that is true.
fn has(object: &Value, kind: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    conditions.iter().any(|condition| condition["type"] == kind && condition["status"] == "True")
}

fn reported(nodes: &Value, expected: &BTreeSet<IpAddr>) -> Result<(), String> {
    let addresses = |node: &Value| {
        let all = node["status"]["addresses"].as_array().cloned().unwrap_or_default();
        all.iter().filter_map(|address| address["address"].as_str()?.parse().ok()).collect::<Vec<IpAddr>>()
    };
    let known: BTreeSet<IpAddr> = items(nodes).iter().flat_map(addresses).collect();
    let missing: Vec<String> = expected.difference(&known).map(IpAddr::to_string).collect();
    match (missing.is_empty(), items(nodes).is_empty()) {
        (false, _) => Err(format!("no node of Kubernetes has the address {}", missing.join(", "))),
        (true, true) => Err("Kubernetes has no node".to_owned()),
        (true, false) => Ok(()),
    }
}

fn none_of(nodes: &Value, what: &str, is_wrong: impl Fn(&Value) -> bool) -> Result<(), String> {
    let wrong: Vec<&str> = items(nodes).iter().filter(|node| is_wrong(node)).map(name).collect();
    if wrong.is_empty() { Ok(()) } else { Err(format!("some nodes are not {what}: {}", wrong.join(", "))) }
}

fn ready(nodes: &Value) -> Result<(), String> {
    none_of(nodes, "ready", |node| !has(node, "Ready"))
}

fn schedulable(nodes: &Value) -> Result<(), String> {
    none_of(nodes, "schedulable", |node| node["spec"]["unschedulable"] == true)
}

fn pods_ready(pods: &Value) -> Result<(), String> {
    if items(pods).is_empty() {
        return Err("there is no pod of it".to_owned());
    }
    let wrong: Vec<&str> = items(pods).iter().filter(|pod| !has(pod, "Ready")).map(name).collect();
    if wrong.is_empty() { Ok(()) } else { Err(format!("some pods are not ready: {}", wrong.join(", "))) }
}

fn pod_ready(pods: &Value, wanted: &str) -> Result<(), String> {
    match items(pods).iter().find(|pod| name(pod) == wanted) {
        Some(pod) if has(pod, "Ready") => Ok(()),
        Some(_) => Err(format!("pod {wanted} is not ready")),
        None => Err(format!("there is no pod {wanted}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(name: &str, ready: &str) -> Value {
        json!({
            "metadata": { "name": name },
            "status": {
                "conditions": [{ "type": "Ready", "status": ready }, { "type": "MemoryPressure", "status": "False" }],
                "addresses": [{ "type": "InternalIP", "address": "10.5.0.2" }, { "type": "Hostname", "address": name }],
            },
        })
    }

    fn list(items: &[Value]) -> Value {
        json!({ "items": items })
    }

    #[test]
    fn nodes_are_missed_by_their_addresses() {
        let expected = |text: &str| BTreeSet::from([text.parse().unwrap()]);
        let nodes = list(&[object("cp-1", "True")]);
        assert_eq!(reported(&nodes, &expected("10.5.0.2")), Ok(()));
        assert_eq!(
            reported(&nodes, &expected("10.5.0.3")).unwrap_err(),
            "no node of Kubernetes has the address 10.5.0.3"
        );
        assert_eq!(reported(&list(&[]), &BTreeSet::new()).unwrap_err(), "Kubernetes has no node");
    }

    #[test]
    fn what_is_not_ready_is_named() {
        let both = list(&[object("a", "True"), object("b", "Unknown")]);
        assert_eq!(ready(&both).unwrap_err(), "some nodes are not ready: b");
        assert_eq!(pods_ready(&both).unwrap_err(), "some pods are not ready: b");
        assert_eq!(pods_ready(&list(&[])).unwrap_err(), "there is no pod of it");
        assert_eq!(pod_ready(&both, "a"), Ok(()));
        assert_eq!(pod_ready(&both, "b").unwrap_err(), "pod b is not ready");
        assert_eq!(pod_ready(&both, "c").unwrap_err(), "there is no pod c");
        let mut cordoned = object("a", "True");
        assert_eq!(schedulable(&list(std::slice::from_ref(&cordoned))), Ok(()));
        cordoned["spec"]["unschedulable"] = json!(true);
        assert_eq!(schedulable(&list(&[cordoned])).unwrap_err(), "some nodes are not schedulable: a");
    }
}
