//! Labels and annotations of the configuration, brought to the node's object in the cluster; taints with them ([`node_taints`]).
//!
//! `NodeStatuses` shows what was found.
//!
//! Owns: the keys that two annotations of the object name, so that a key which leaves the configuration leaves the node too.
//! Does not: touch keys that someone else set to another value.
//! Order: the list of owned keys changes in the same request as they do.
//! Fails by: a line in the log, once for each reason; it is tried again.
//! Source: kubernetes.io, "Well-Known Labels", and "NodeRestriction" of the admission controllers: which keys a worker may set.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use kubernetes::Cluster;
use serde_json::{Map, Value, json};

use crate::{
    Error, KubernetesNode, config_resources, drain, kubelet, kubelet_credentials, node_object, node_taints,
};

/// The keys of labels that are the configuration's, as JSON.
const OWNED_LABELS: &str = "talos.dev/owned-labels";
/// The keys of annotations that are the configuration's, as JSON.
const OWNED_ANNOTATIONS: &str = "talos.dev/owned-annotations";
/// Between two looks at a node that is as it should be: another program may have changed it, or made it anew.
const IDLE_PERIOD: Duration = Duration::from_secs(60);
/// Between two attempts.
const RETRY_PERIOD: Duration = Duration::from_secs(5);

/// The node's object.
struct Found {
    /// Which keys others hold.
    faults: Vec<String>,
    /// Whether it takes pods; until then it is looked at often, since people wait for it.
    is_ready: bool,
}

impl KubernetesNode {
    /// Keeps labels and annotations as the configuration has them, for as long as this is polled.
    pub async fn keep_node_labels(&self) {
        let mut config = self.runtime.config.subscribe();
        let mut said = String::new();
        loop {
            let (is_settled, fault) = match self.apply_node_labels().await {
                Ok(Some(found)) => (found.is_ready, found.faults.join("; ")),
                Ok(None) => (false, String::new()),
                // Its cluster has yet to begin.
                Err(_) if !kubelet::has_joined(&self.runtime.root) => (false, String::new()),
                Err(error) => (false, error.to_string()),
            };
            if fault != said && !fault.is_empty() {
                self.runtime.journal.warn(&format!("labels of the node: {fault}"));
            }
            let period = if is_settled { IDLE_PERIOD } else { RETRY_PERIOD };
            said = fault;
            tokio::select! {
                changed = config.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(period) => {}
            }
        }
    }

    /// Brings them once; answers what was found, or that the node has no object yet.
    async fn apply_node_labels(&self) -> Result<Option<Found>, Error> {
        let Some(config) = self.runtime.config() else { return Ok(None) };
        if !kubelet_credentials::are_there(&self.runtime.root) {
            return Ok(None);
        }
        let cluster = Cluster::new(&config)?;
        if cluster.kubelet().skip_node_registration == Some(true) {
            return Ok(Some(Found { faults: Vec::new(), is_ready: true }));
        }
        let (client, name) = self.own_object(&cluster).await?;
        let Some(node) = node_object::get(&client, &name).await? else { return Ok(None) };
        let is_ready = config_resources::publish_node(&self.runtime, &name, &node);
        let is_back = is_ready && !self.draining.load(Ordering::SeqCst);
        if let Some(patch) = drain::uncordon(&node).filter(|_| is_back && self.is_kubelet_up()) {
            node_object::patch(&client, &name, &patch).await?;
            self.runtime.journal.say("the node takes pods again: its own cordon is taken back");
        }
        let labels = kubernetes::kubelet::labels(&cluster)?;
        let (patch, faults) = change(&node, &labels, &config.machine.node_annotations);
        if let Some(patch) = patch {
            node_object::patch(&client, &name, &patch).await?;
            self.runtime.journal.say("labels of the node: brought to what the config says");
            // Its taints are looked at when it was read again.
            return Ok(Some(Found { faults, is_ready: false }));
        }
        if cluster.is_control_plane() {
            let taints = kubernetes::resources::taints(&cluster)?;
            let taints: Vec<Value> = taints.into_iter().map(|(_, taint)| taint).collect();
            if let Some(patch) = node_taints::change(&node, &taints) {
                node_object::patch(&client, &name, &patch).await?;
                self.runtime.journal.say("taints of the node: brought to what the config says");
            }
        }
        Ok(Some(Found { faults, is_ready }))
    }
}

/// The merge patch that makes a node what is wanted, if it is not, and which keys others hold.
fn change(
    node: &Value,
    labels: &BTreeMap<String, String>,
    annotations: &BTreeMap<String, String>,
) -> (Option<Value>, Vec<String>) {
    let metadata = &node["metadata"];
    let mut faults = Vec::new();
    let mut of = |part: &str, owned_key: &str, wanted: &BTreeMap<String, String>| {
        let owned = metadata["annotations"][owned_key].as_str().unwrap_or("[]");
        let owned: BTreeSet<String> = serde_json::from_str(owned).unwrap_or_default();
        let mut changed = Map::new();
        let mut kept = BTreeSet::new();
        for (key, value) in wanted {
            let there = metadata[part][key].as_str();
            if there.is_some_and(|there| there != value) && !owned.contains(key) {
                faults.push(format!("{key} of {part} has another value already, set by someone else"));
                continue;
            }
            kept.insert(key.clone());
            if there != Some(value.as_str()) {
                changed.insert(key.clone(), json!(value));
            }
        }
        for key in owned.difference(&kept).filter(|key| !wanted.contains_key(*key)) {
            if !metadata[part][key].is_null() {
                changed.insert(key.clone(), Value::Null);
            }
        }
        let list = (kept != owned).then(|| match kept.is_empty() {
            true => Value::Null,
            false => json!(json!(kept).to_string()),
        });
        (changed, list)
    };
    let (labels, own_labels) = of("labels", OWNED_LABELS, labels);
    let (mut annotations, own_annotations) = of("annotations", OWNED_ANNOTATIONS, annotations);
    for (key, list) in [(OWNED_LABELS, own_labels), (OWNED_ANNOTATIONS, own_annotations)] {
        if let Some(list) = list {
            annotations.insert(key.to_owned(), list);
        }
    }
    let is_empty = labels.is_empty() && annotations.is_empty();
    let patch = (!is_empty).then(|| json!({ "metadata": { "labels": labels, "annotations": annotations } }));
    (patch, faults)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    /// What a server makes of a merge patch.
    fn merged(node: &Value, patch: &Value) -> Value {
        let mut node = node.clone();
        for part in ["labels", "annotations"] {
            let object = node["metadata"][part].as_object_mut().unwrap();
            for (key, value) in patch["metadata"][part].as_object().unwrap() {
                match value {
                    Value::Null => drop(object.remove(key)),
                    value => drop(object.insert(key.clone(), value.clone())),
                }
            }
        }
        node
    }

    #[test]
    fn keys_come_change_and_go_with_the_configuration() {
        let bare =
            json!({ "metadata": { "labels": { "kubernetes.io/os": "linux" }, "annotations": { "x": "y" } } });
        let none = map(&[]);
        assert_eq!(change(&bare, &none, &none), (None, Vec::new()));
        let (patch, _) = change(&bare, &map(&[("zone", "a"), ("rack", "1")]), &map(&[("owner", "me")]));
        let node = merged(&bare, &patch.unwrap());
        assert_eq!(
            node["metadata"]["labels"],
            json!({"kubernetes.io/os": "linux", "zone": "a", "rack": "1"})
        );
        assert_eq!(node["metadata"]["annotations"][OWNED_LABELS], "[\"rack\",\"zone\"]");
        assert_eq!(change(&node, &map(&[("zone", "a"), ("rack", "1")]), &map(&[("owner", "me")])).0, None);
        // One has another value, one is gone.
        let (patch, faults) = change(&node, &map(&[("zone", "b")]), &none);
        let node = merged(&node, &patch.unwrap());
        assert_eq!(node["metadata"]["labels"], json!({"kubernetes.io/os": "linux", "zone": "b"}));
        assert_eq!(faults, Vec::<String>::new());
        let (patch, _) = change(&node, &none, &none);
        assert_eq!(merged(&node, &patch.unwrap()), bare);
    }

    #[test]
    fn what_someone_else_set_stays() {
        let node = json!({ "metadata": { "labels": { "zone": "theirs", "rack": "1" }, "annotations": {} } });
        let (patch, faults) = change(&node, &map(&[("zone", "ours"), ("rack", "1")]), &map(&[]));
        assert_eq!(faults, ["zone of labels has another value already, set by someone else"]);
        // The same value becomes the configuration's.
        let node = merged(&node, &patch.unwrap());
        assert_eq!(node["metadata"]["labels"], json!({ "zone": "theirs", "rack": "1" }));
        assert_eq!(node["metadata"]["annotations"][OWNED_LABELS], "[\"rack\"]");
    }
}
