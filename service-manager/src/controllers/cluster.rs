//! The cluster that the config names.

use runtime::store::{CLUSTER_INFO, Cluster, MACHINE_CONFIG, RuntimeSpec, Spec};

use super::controller::{Action, Controller, Snapshot};

pub(crate) static CONTROLLER: Controller = Controller {
    name: "cluster.InfoController",
    inputs: &[&MACHINE_CONFIG],
    outputs: &[&CLUSTER_INFO],
    reconcile,
};

fn reconcile(snapshot: &Snapshot<'_>) -> Result<Vec<Action>, String> {
    let Some(document) = snapshot.machine_config() else { return Ok(Vec::new()) };
    let cluster = &document.config.cluster;
    let info = Cluster { cluster_id: cluster.id.clone(), cluster_name: cluster.cluster_name.clone() };
    Ok(vec![Action::Put(&CLUSTER_INFO, "current", Spec::Runtime(RuntimeSpec::Cluster(info)))])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::testing::{snapshot, store_with_config};

    #[test]
    fn id_and_name_come_from_the_config() {
        let store = store_with_config("cluster:\n  id: abc=\n  clusterName: demo\n");
        let actions = reconcile(&snapshot(&store, &Default::default())).unwrap();
        let info = Cluster { cluster_id: "abc=".into(), cluster_name: "demo".into() };
        assert_eq!(
            actions,
            [Action::Put(&CLUSTER_INFO, "current", Spec::Runtime(RuntimeSpec::Cluster(info)))]
        );
    }
}
