//! Cordon and drain: pods go elsewhere before the node goes, and may come again when it is back.
//!
//! Owns: the annotation that says that a cordon is this node's own; how long pods may take.
//! Does not: take back the cordon of another hand; evict pods that would come again here (of daemon sets, of files) or nowhere (without
//! a controller).
//! Order: no pod comes any more; those that are here are evicted side by side, which asks budgets; each is waited for.
//! Fails by: a line in the log. The node goes on with what it was about, and stops what is left where it is.
//! Source: kubernetes.io, "Safely Drain a Node" and "API-initiated Eviction"; "NodeRestriction" of the admission controllers, by
//! which a worker may evict the pods that run on it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use http::Request;
use kube::Client;
use kubernetes::{Cluster, images};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::{Error, KubernetesNode, api_server, etcd, kubelet, node_object};

/// Of the node's object: the cordon is the node's own.
const CORDONED: &str = "talos.dev/cordoned";
/// Of a pod that a kubelet made of a file.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// For all pods, whatever budgets say and however long they take to end.
const DRAIN_DEADLINE: Duration = Duration::from_secs(5 * 60);
/// Between two requests for a pod that its budget keeps.
const BUDGET_PERIOD: Duration = Duration::from_secs(5);
/// Between two looks at a pod that ends.
const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// For one answer.
const ANSWER_DEADLINE: Duration = Duration::from_secs(10);
/// Evictions have this version since 1.22, and another one before.
const EVICTION: (&str, &str) = ("policy/v1", "policy/v1beta1");
const EVICTION_SINCE: u32 = 22;
/// As many pods as are named in a line of the log.
const MOST_NAMED: usize = 5;

/// A pod that is to go.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pod {
    namespace: String,
    name: String,
    /// Another pod may have the name by now.
    uid: String,
}

impl Pod {
    fn path(&self) -> String {
        format!("/api/v1/namespaces/{}/pods/{}", self.namespace, self.name)
    }
}

/// A pod that is still here, and why.
struct Stays {
    pod: Pod,
    why: String,
}

impl KubernetesNode {
    /// Has no further pod come to this node, and the pods that are here go elsewhere. A node that is in no cluster has nothing to do.
    pub async fn drain(&self) {
        if !kubelet::has_joined(&self.runtime.root) || !self.is_kubelet_up() {
            return;
        }
        self.draining.store(true, Ordering::SeqCst);
        let begin = Instant::now();
        match tokio::time::timeout(DRAIN_DEADLINE, self.evict_all(begin + DRAIN_DEADLINE)).await {
            Ok(Ok((gone, stays))) => {
                let seconds = begin.elapsed().as_secs_f64();
                self.runtime.journal.say(&format!("drain: {gone} pods are gone in {seconds:.1} s"));
                if !stays.is_empty() {
                    self.runtime.journal.warn(&told(&stays));
                }
            }
            Ok(Err(error)) => {
                self.runtime.journal.warn(&format!("drain: {error}; pods are stopped where they are"));
            }
            Err(_) => self.runtime.journal.warn(&format!(
                "drain: not done within {} s; pods are stopped where they are",
                DRAIN_DEADLINE.as_secs()
            )),
        }
    }

    /// The node stays after all: its cordon goes with the next look at its object, and a member that has left etcd joins anew.
    pub fn stay(&self) {
        self.draining.store(false, Ordering::SeqCst);
        if self.runtime.services.record(etcd::ID).is_some_and(|record| record.state.is_down()) {
            self.runtime.services.start(etcd::ID);
        }
    }

    async fn evict_all(&self, until: Instant) -> Result<(usize, Vec<Stays>), Error> {
        let config = self.runtime.config().ok_or(Error::NoConfig)?;
        let cluster = Cluster::new(&config)?;
        let (own, name) = self.own_object(&cluster).await?;
        // That of a control plane node may not have started yet.
        let client = match cluster.is_control_plane() {
            true => api_server::first_ready(own, &cluster).await?,
            false => own,
        };
        let Some(node) = node_object::get(&client, &name).await? else { return Ok((0, Vec::new())) };
        if let Some(patch) = cordon(&node) {
            node_object::patch(&client, &name, &patch).await?;
            self.runtime.journal.say("drain: no further pods come to this node");
        }
        let list = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{name}");
        let pods = evictable(&api_server::get(&client, &list).await?);
        let minor = images::kubelet_version(&cluster).map_or(u32::MAX, |version| version.minor);
        let version = if minor >= EVICTION_SINCE { EVICTION.0 } else { EVICTION.1 };
        let count = pods.len();
        self.runtime.journal.say(&format!("drain: {count} pods go elsewhere"));
        let mut evictions = JoinSet::new();
        for pod in pods {
            let (client, journal) = (client.clone(), self.runtime.journal.clone());
            evictions.spawn(async move {
                let waits = |why: &str| {
                    journal.say(&format!("drain: {}/{} waits: {why}", pod.namespace, pod.name));
                };
                let why = evict(&client, &pod, version, until, waits).await.err()?;
                Some(Stays { pod, why })
            });
        }
        let mut stays = Vec::new();
        while let Some(ended) = evictions.join_next().await {
            stays.extend(ended.ok().flatten());
        }
        stays.sort_by(|a, b| (&a.pod.namespace, &a.pod.name).cmp(&(&b.pod.namespace, &b.pod.name)));
        Ok((count - stays.len(), stays))
    }
}

/// The merge patch that takes back the node's own cordon; `None` where there is none.
pub(crate) fn uncordon(node: &Value) -> Option<Value> {
    node["metadata"]["annotations"][CORDONED].as_str()?;
    Some(json!({ "metadata": { "annotations": { CORDONED: null } }, "spec": { "unschedulable": null } }))
}

/// The merge patch that cordons a node. One that is cordoned stays as it is, and whose the cordon is.
fn cordon(node: &Value) -> Option<Value> {
    if node["spec"]["unschedulable"] == true {
        return None;
    }
    Some(json!({ "metadata": { "annotations": { CORDONED: "true" } }, "spec": { "unschedulable": true } }))
}

/// The pods of a list that go elsewhere.
fn evictable(list: &Value) -> Vec<Pod> {
    let is_to_go = |pod: &&Value| {
        let metadata = &pod["metadata"];
        let owners = metadata["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
        let controller = owners.iter().find(|owner| owner["controller"] == true);
        let has_ended = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        let is_of_file = !metadata["annotations"][MIRROR].is_null();
        !has_ended && !is_of_file && controller.is_some_and(|owner| owner["kind"] != "DaemonSet")
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let pods = list["items"].as_array().map(Vec::as_slice).unwrap_or_default().iter().filter(is_to_go);
    let pod = |pod: &Value| Pod {
        namespace: text(&pod["metadata"]["namespace"]),
        name: text(&pod["metadata"]["name"]),
        uid: text(&pod["metadata"]["uid"]),
    };
    pods.map(pod).collect()
}

/// Has a pod go, with the grace that it has for itself. `waits` hears each new reason why it does not go yet. Fails by why it
/// stays.
async fn evict(
    client: &Client,
    pod: &Pod,
    version: &str,
    until: Instant,
    waits: impl Fn(&str),
) -> Result<(), String> {
    let object = json!({
        "apiVersion": version,
        "kind": "Eviction",
        "metadata": { "namespace": pod.namespace, "name": pod.name },
        "deleteOptions": { "preconditions": { "uid": pod.uid } },
    });
    let body = object.to_string().into_bytes();
    let mut said = String::new();
    loop {
        let request =
            Request::post(format!("{}/eviction", pod.path())).header("content-type", "application/json");
        let request = request.body(body.clone()).map_err(|error| error.to_string())?;
        let why = match tokio::time::timeout(ANSWER_DEADLINE, client.request_text(request)).await {
            Ok(Ok(_)) => break,
            // It is gone, or another pod has its name.
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => return Ok(()),
            Ok(Err(kube::Error::Api(status))) if status.code == 429 => status.message.clone(),
            // What a worker may not evict is none of its pods any more, or it has no right to.
            Ok(Err(kube::Error::Api(status))) if status.code < 500 => {
                let why = status.message.clone();
                return if is_there(client, pod).await { Err(why) } else { Ok(()) };
            }
            Ok(Err(error)) => runtime::errors::chain(&error),
            Err(_) => format!("no answer within {} s", ANSWER_DEADLINE.as_secs()),
        };
        if Instant::now() + BUDGET_PERIOD >= until {
            return Err(why);
        }
        if why != said {
            waits(&why);
            said = why;
        }
        tokio::time::sleep(BUDGET_PERIOD).await;
    }
    while is_there(client, pod).await {
        if Instant::now() + LOOK_PERIOD >= until {
            return Err("it has not ended".to_owned());
        }
        tokio::time::sleep(LOOK_PERIOD).await;
    }
    Ok(())
}

/// Whether the very pod is still there, as far as is known.
async fn is_there(client: &Client, pod: &Pod) -> bool {
    let Ok(request) = Request::get(pod.path()).body(Vec::new()) else { return false };
    match tokio::time::timeout(ANSWER_DEADLINE, client.request::<Value>(request)).await {
        Ok(Ok(found)) => found["metadata"]["uid"].as_str() == Some(pod.uid.as_str()),
        // A worker may ask for its own pods alone: one that is gone is none of them.
        Ok(Err(kube::Error::Api(status))) => !matches!(status.code, 403 | 404),
        Ok(Err(_)) | Err(_) => true,
    }
}

fn told(stays: &[Stays]) -> String {
    let named = stays.iter().take(MOST_NAMED);
    let named: Vec<String> =
        named.map(|stays| format!("{}/{}: {}", stays.pod.namespace, stays.pod.name, stays.why)).collect();
    let more = stays.len().saturating_sub(MOST_NAMED);
    let more = if more == 0 { String::new() } else { format!("; and {more} more") };
    format!("drain: {} pods are stopped where they are: {}{more}", stays.len(), named.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, owner: Option<&str>, phase: &str, annotations: &Value) -> Value {
        let owners = owner.map(|kind| json!([{ "kind": kind, "controller": true }]));
        json!({
            "metadata": {
                "namespace": "a", "name": name, "uid": format!("uid-{name}"), "ownerReferences": owners,
                "annotations": annotations,
            },
            "status": { "phase": phase },
        })
    }

    #[test]
    fn pods_that_would_come_again_or_nowhere_stay() {
        let none = json!({});
        let list = json!({ "items": [
            pod("set", Some("ReplicaSet"), "Running", &none),
            pod("pending", Some("Job"), "Pending", &none),
            pod("daemon", Some("DaemonSet"), "Running", &none),
            pod("alone", None, "Running", &none),
            pod("done", Some("Job"), "Succeeded", &none),
            pod("failed", Some("ReplicaSet"), "Failed", &none),
            pod("file", Some("Node"), "Running", &json!({ MIRROR: "x" })),
        ] });
        let names: Vec<String> = evictable(&list).into_iter().map(|pod| pod.name).collect();
        assert_eq!(names, ["set", "pending"]);
        assert_eq!(evictable(&json!({})), []);
        assert_eq!(evictable(&list)[0].path(), "/api/v1/namespaces/a/pods/set");
    }

    #[test]
    fn the_cordon_of_another_hand_stays() {
        let free = json!({ "metadata": {}, "spec": {} });
        let patch = cordon(&free).unwrap();
        assert_eq!(patch["spec"]["unschedulable"], true);
        assert_eq!(uncordon(&free), None);
        let foreign = json!({ "metadata": { "annotations": {} }, "spec": { "unschedulable": true } });
        assert_eq!((cordon(&foreign), uncordon(&foreign)), (None, None));
        let own = json!({
            "metadata": { "annotations": { CORDONED: "true" } }, "spec": { "unschedulable": true },
        });
        assert_eq!(cordon(&own), None);
        assert_eq!(
            uncordon(&own).unwrap(),
            json!({ "metadata": { "annotations": { CORDONED: null } }, "spec": { "unschedulable": null } })
        );
    }

    #[test]
    fn what_stays_is_named() {
        let stays = |name: &str| Stays {
            pod: Pod { namespace: "a".into(), name: name.into(), uid: String::new() },
            why: "its budget".into(),
        };
        assert_eq!(told(&[stays("b")]), "drain: 1 pods are stopped where they are: a/b: its budget");
        let many: Vec<Stays> = (0..7).map(|number| stays(&number.to_string())).collect();
        assert!(told(&many).ends_with("a/4: its budget; and 2 more"));
    }
}
