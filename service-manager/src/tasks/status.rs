//! The machine's stage, as clients that wait for a reboot see it.

use std::sync::Arc;

use api::event::Payload;
use api::proto::machine::MachineStatusEvent;
use api::proto::machine::machine_status_event::machine_status::UnmetCondition;
use api::proto::machine::machine_status_event::{MachineStage, MachineStatus};
use runtime::store::{
    MACHINE_STATUS, MachineStatus as StatusSpec, RuntimeSpec, SERVICE, Spec, StageStatus,
    UnmetCondition as Unmet,
};

use crate::late_services::may_wait;
use crate::node::Node;

/// Where the machine is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// On its way up.
    Booting,
    /// Up; with the services that are not.
    Running(Vec<String>),
    /// Up, and writing to a disk.
    Installing,
    /// Up, without a config.
    Maintenance,
    /// Up, with a config that it cannot open; why.
    Locked(String),
    /// On its way down, to come back.
    Rebooting,
    /// On its way down.
    ShuttingDown,
    /// Wiping its disk.
    Resetting,
}

/// What conditions of services are called.
const SERVICES: &str = "services";
/// What the condition is called that a locked machine does not meet.
const STATE: &str = "state";

fn not_up(id: &str) -> String {
    format!("service {id:?} is not up")
}

/// A condition that is not met.
struct Missing {
    name: &'static str,
    reason: String,
}

/// The same as the event, for those who come later.
fn put_resource(node: &Node, stage: MachineStage, ready: bool, unmet: &[Missing]) {
    let name = match stage {
        MachineStage::Unknown => "unknown",
        MachineStage::Booting => "booting",
        MachineStage::Installing => "installing",
        MachineStage::Maintenance => "maintenance",
        MachineStage::Running => "running",
        MachineStage::Rebooting => "rebooting",
        MachineStage::ShuttingDown => "shutting down",
        MachineStage::Resetting => "resetting",
        MachineStage::Upgrading => "upgrading",
    };
    let unmet = unmet.iter().map(|one| Unmet { name: one.name.to_owned(), reason: one.reason.clone() });
    let status = StageStatus { ready, unmet_conditions: unmet.collect() };
    let spec = Spec::Runtime(RuntimeSpec::MachineStatus(StatusSpec { stage: name, status }));
    if let Err(error) = node.runtime.store.put(MACHINE_STATUS.writer, &MACHINE_STATUS, "machine", spec) {
        node.runtime.journal.warn(&error.to_string());
    }
}

/// Follows the services of a running machine: one that falls, or comes back, changes its status.
pub(super) async fn follow_services(node: Arc<Node>) {
    let mut changes = node.runtime.store.follow(&[&SERVICE]);
    loop {
        changes.next().await;
        if let Some(told) = unmet_of_running(&node) {
            let ids = node.runtime.services.ids();
            let late: Vec<String> = ids
                .into_iter()
                .filter(|id| !may_wait(&node.runtime.root, id) && !node.runtime.services.is_up(id))
                .collect();
            if told != late.iter().map(|id| not_up(id)).collect::<Vec<_>>() {
                publish_stage(&node, "", &Stage::Running(late));
            }
        }
    }
}

/// What was told last of a machine that runs; `None` in every other stage.
fn unmet_of_running(node: &Node) -> Option<Vec<String>> {
    match &node.runtime.store.get(&MACHINE_STATUS, "machine")?.spec {
        Spec::Runtime(RuntimeSpec::MachineStatus(status)) if status.stage == "running" => {
            Some(status.status.unmet_conditions.iter().map(|unmet| unmet.reason.clone()).collect())
        }
        _ => None,
    }
}

/// Publishes the stage.
pub fn publish_stage(node: &Node, actor_id: &str, stage: &Stage) {
    let unmet: Vec<Missing> = match stage {
        Stage::Running(services) => {
            services.iter().map(|id| Missing { name: SERVICES, reason: not_up(id) }).collect()
        }
        Stage::Locked(why) => vec![Missing { name: STATE, reason: why.clone() }],
        _ => Vec::new(),
    };
    let (stage, ready) = match stage {
        Stage::Booting => (MachineStage::Booting, false),
        Stage::Running(unmet) => (MachineStage::Running, unmet.is_empty()),
        Stage::Installing => (MachineStage::Installing, false),
        Stage::Maintenance => (MachineStage::Maintenance, true),
        // Clients know no stage of its own.
        Stage::Locked(_) => (MachineStage::Maintenance, false),
        Stage::Rebooting => (MachineStage::Rebooting, false),
        Stage::ShuttingDown => (MachineStage::ShuttingDown, false),
        Stage::Resetting => (MachineStage::Resetting, false),
    };
    put_resource(node, stage, ready, &unmet);
    let unmet = unmet.into_iter().map(|one| UnmetCondition { name: one.name.to_owned(), reason: one.reason });
    let status = MachineStatus { ready, unmet_conditions: unmet.collect() };
    let event = MachineStatusEvent { stage: stage.into(), status: Some(status) };
    node.runtime.events.publish(actor_id, &Payload::MachineStatus(event));
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use runtime::store::ServiceStatus;

    use super::*;

    fn yaml(node: &Node) -> String {
        node.runtime.store.get(&MACHINE_STATUS, "machine").unwrap().spec.yaml().unwrap()
    }

    #[tokio::test]
    async fn the_status_names_what_is_not_up_and_follows_it() {
        let dir = tempfile::tempdir().unwrap();
        let node = crate::server::tests_node(dir.path().to_owned());
        publish_stage(&node, "", &Stage::Running(vec!["cri".to_owned()]));
        let text = yaml(&node);
        assert!(text.contains("stage: running\n") && text.contains("ready: false"), "{text}");
        assert!(text.contains("name: services") && text.contains("cri"), "{text}");
        tokio::spawn(follow_services(node.clone()));
        let ready = async {
            let mut running = false;
            while !yaml(&node).contains("ready: true") {
                // No service is defined here, so none is missing: any news makes the node look again.
                running = !running;
                let spec = Spec::Service(ServiceStatus { running, healthy: true, unknown: false });
                node.runtime.store.put(SERVICE.writer, &SERVICE, "cri", spec).unwrap();
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), ready).await.unwrap();
    }

    #[test]
    fn maintenance_is_a_stage_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let node = crate::server::tests_node(dir.path().to_owned());
        publish_stage(&node, "", &Stage::Maintenance);
        assert!(yaml(&node).contains("stage: maintenance\n"));
        assert!(unmet_of_running(&node).is_none());
        publish_stage(&node, "", &Stage::Locked("no key matched".to_owned()));
        let text = yaml(&node);
        for part in ["stage: maintenance\n", "ready: false\n", "name: state\n", "reason: no key matched\n"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
