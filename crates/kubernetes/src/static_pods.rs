//! Static pods that the configuration names: `machine.pods`, and the documents `KubeStaticPodConfig`.

use serde_json::Value;

use crate::file::headed;
use crate::{Cluster, Error};

const FIELD: &str = "machine.pods";

/// Each with its id, `namespace-name`, as the kubelet reads it.
///
/// # Errors
/// [`Error::NotAMapping`], [`Error::Missing`].
pub fn configured(cluster: &Cluster<'_>) -> Result<Vec<(String, Value)>, Error> {
    let one = |given| {
        let id = config::static_pod_id(given);
        let id = id.ok_or(Error::Missing { field: FIELD, hint: "write the name of each pod" })?;
        let mut pod = headed(FIELD, given, "v1", "Pod")?;
        // Where pods are read from a list, the case of this word does not count.
        pod["kind"] = "Pod".into();
        Ok((id, pod))
    };
    cluster.config().machine.pods.iter().map(one).collect()
}
