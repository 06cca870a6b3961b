//! What clients see of static pods: `StaticPods`, `StaticPodStatuses`.
//!
//! Owns: their ids: that of the manifest, and `namespace/name` as Kubernetes has it.

use std::collections::BTreeMap;

use runtime::Runtime;
use runtime::store::{KubernetesSpec, STATIC_POD, STATIC_POD_STATUS};
use serde_json::Value;

use crate::published::replace;

/// Has the static pods be these, by the ids of their manifests.
pub(crate) fn publish_pods(runtime: &Runtime, pods: &BTreeMap<String, Value>) {
    let wanted = pods.iter().map(|(id, pod)| (id.clone(), KubernetesSpec::StaticPod(pod.clone())));
    replace(runtime, &STATIC_POD, wanted);
}

/// Has their statuses be these, by `namespace/name`.
pub(crate) fn publish_statuses(runtime: &Runtime, statuses: BTreeMap<String, Value>) {
    let wanted = statuses.into_iter().map(|(id, status)| (id, KubernetesSpec::StaticPodStatus(status)));
    replace(runtime, &STATIC_POD_STATUS, wanted);
}
