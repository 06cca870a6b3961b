//! The machine's stage, as clients that wait for a reboot see it.

use api::event::Payload;
use api::proto::machine::MachineStatusEvent;
use api::proto::machine::machine_status_event::machine_status::UnmetCondition;
use api::proto::machine::machine_status_event::{MachineStage, MachineStatus};

use crate::node::Node;

/// Where the machine is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// On its way up.
    Booting,
    /// Up; with the services that are not.
    Running(Vec<String>),
    /// On its way down, to come back.
    Rebooting,
    /// On its way down.
    ShuttingDown,
}

/// Publishes the stage.
pub fn publish_stage(node: &Node, actor_id: &str, stage: &Stage) {
    let (stage, ready, unmet) = match stage {
        Stage::Booting => (MachineStage::Booting, false, &[][..]),
        Stage::Running(unmet) => (MachineStage::Running, unmet.is_empty(), unmet.as_slice()),
        Stage::Rebooting => (MachineStage::Rebooting, false, &[][..]),
        Stage::ShuttingDown => (MachineStage::ShuttingDown, false, &[][..]),
    };
    let unmet = unmet.iter().map(|id| UnmetCondition {
        name: "services".to_owned(),
        reason: format!("service {id:?} is not up"),
    });
    let status = MachineStatus { ready, unmet_conditions: unmet.collect() };
    let event = MachineStatusEvent { stage: stage.into(), status: Some(status) };
    node.events.publish(actor_id, &Payload::MachineStatus(event));
}
