//! What `get upgradestatus` shows: the upgrade under way, or what became of the last one.

use runtime::store::{RuntimeSpec, Spec, UPGRADE_STATUS, UpgradeStatus};

use crate::node::Node;
use crate::upgrade_record::Record;

const ID: &str = "upgrade";

/// Shows it.
pub(crate) fn publish(node: &Node, status: &UpgradeStatus) {
    let spec = Spec::Runtime(RuntimeSpec::UpgradeStatus(Box::new(status.clone())));
    if let Err(error) = node.runtime.store.put(UPGRADE_STATUS.writer, &UPGRADE_STATUS, ID, spec) {
        node.runtime.journal.warn(&error.to_string());
    }
}

/// An upgrade that has begun.
pub(super) fn running(node: &Node, image: &str, to: &str) -> UpgradeStatus {
    UpgradeStatus {
        state: "running",
        from: node.runtime.boot.version.clone(),
        to: to.to_owned(),
        image: image.to_owned(),
        ..UpgradeStatus::default()
    }
}

/// One that ended before it changed what boots.
pub(super) fn failed(node: &Node, image: &str, reason: &str) -> UpgradeStatus {
    UpgradeStatus { state: "failed", reason: reason.to_owned(), ..running(node, image, "") }
}

/// What META says of the last one.
pub(super) fn of_record(record: &Record) -> UpgradeStatus {
    UpgradeStatus {
        state: record.state.word(),
        from: record.from.clone(),
        to: record.to.clone(),
        image: record.image.clone(),
        stage: record.stage.clone(),
        reason: record.reason.clone(),
        boots: record.boots,
        last_lines: record.last_lines.clone(),
    }
}
