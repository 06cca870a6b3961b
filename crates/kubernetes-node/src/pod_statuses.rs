//! How the static pods of a control plane node do, as its kubelet tells.
//!
//! | task | reads | writes | ends |
//! |---|---|---|---|
//! | [`KubernetesNode::keep_pod_statuses`] | the kubelet's pods, every 15 s | `StaticPodStatuses` | with machined |
//!
//! Order: the kubelet asks its API server who may ask, so nothing is known before that serves. Where the kubelet does not run
//! there are no statuses; where it does not answer, the last ones stay.
//! Does not: run on workers, which have no key for a client certificate.
//! Fails by: [`Error`], said where an answer was there before.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::Client;
use kubernetes::Cluster;
use runtime::services::machine::State;
use serde_json::Value;

use crate::{Error, KubernetesNode, api_server, facts, kubelet, pod_resources as resources};

const PERIOD: Duration = Duration::from_secs(15);
/// Where the kubelet's pods are.
const PODS: &str = "/pods";
/// Says where the kubelet has a pod from; from the API server: `api`.
const SOURCE: &str = "kubernetes.io/config.source";

impl KubernetesNode {
    /// Has the statuses be there, for as long as this is polled.
    pub async fn keep_pod_statuses(&self) {
        let mut client = None;
        let mut was_answered = false;
        loop {
            match self.look_at_pods(&mut client).await {
                Ok(statuses) => {
                    was_answered = !statuses.is_empty();
                    resources::publish_statuses(&self.runtime, statuses);
                }
                Err(error) => {
                    // A node that has no API server yet is asked in vain.
                    if was_answered {
                        self.runtime.journal.warn(&format!("ask the kubelet how static pods do: {error}"));
                    }
                    // The kubelet may have another certificate.
                    (client, was_answered) = (None, false);
                }
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// Asks once, with a client that is kept.
    async fn look_at_pods(&self, client: &mut Option<Client>) -> Result<BTreeMap<String, Value>, Error> {
        let config = self.runtime.config().ok_or(Error::NoConfig)?;
        let cluster = Cluster::new(&config)?;
        if !cluster.is_control_plane() || !self.is_kubelet_up() {
            return Ok(BTreeMap::new());
        }
        let connected = match client.take() {
            Some(connected) => connected,
            None => {
                let node = facts::node(&self.runtime, &cluster, self.is_container)?;
                api_server::client_of_kubelet(&self.runtime.root, &cluster, &node).await?
            }
        };
        let pods = api_server::get(&connected, PODS).await?;
        *client = Some(connected);
        Ok(statuses(&pods))
    }

    pub(crate) fn is_kubelet_up(&self) -> bool {
        let record = self.runtime.services.record(kubelet::ID);
        record.is_some_and(|record| record.state == State::Running)
    }
}

/// Those of static pods, by `namespace/name`.
fn statuses(pods: &Value) -> BTreeMap<String, Value> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let is_static =
        |pod: &&Value| !matches!(text(&pod["metadata"]["annotations"][SOURCE]).as_str(), "" | "api");
    let pods = pods["items"].as_array().map_or(&[][..], Vec::as_slice);
    let one = |pod: &Value| {
        let metadata = &pod["metadata"];
        (format!("{}/{}", text(&metadata["namespace"]), text(&metadata["name"])), pod["status"].clone())
    };
    pods.iter().filter(is_static).map(one).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_pods_of_files_count() {
        let pod = |name: &str, source: Option<&str>| {
            let annotations = source.map(|source| json!({ SOURCE: source }));
            json!({
                "metadata": { "namespace": "kube-system", "name": name, "annotations": annotations },
                "status": { "phase": name },
            })
        };
        let pods = [pod("a", Some("file")), pod("b", Some("api")), pod("c", None), pod("d", Some("http"))];
        let found = statuses(&json!({ "kind": "PodList", "items": pods }));
        let wanted = [("kube-system/a", "a"), ("kube-system/d", "d")];
        let wanted = wanted.map(|(id, phase)| (id.to_owned(), json!({ "phase": phase })));
        assert_eq!(found, wanted.into());
        assert!(statuses(&json!({ "items": null })).is_empty());
    }
}
