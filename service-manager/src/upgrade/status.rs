//! What `get upgradestatus` shows: the upgrade under way, or what became of the last one.

use runtime::Runtime;
use runtime::sequencer;
use runtime::store::{RuntimeSpec, Spec, UPGRADE_STATUS, UpgradeStatus};

use crate::order::Order;
use crate::upgrade_record::Record;

const ID: &str = "upgrade";

/// Shows it.
pub(crate) fn publish(runtime: &Runtime, status: &UpgradeStatus) {
    let spec = Spec::Runtime(RuntimeSpec::UpgradeStatus(Box::new(status.clone())));
    if let Err(error) = runtime.store.put(UPGRADE_STATUS.writer, &UPGRADE_STATUS, ID, spec) {
        runtime.journal.warn(&error.to_string());
    }
}

/// An upgrade that has begun.
pub(super) fn running(runtime: &Runtime, image: &str, to: &str) -> UpgradeStatus {
    UpgradeStatus {
        state: "running",
        from: runtime.boot.version.clone(),
        to: to.to_owned(),
        image: image.to_owned(),
        ..UpgradeStatus::default()
    }
}

/// One that ended before it changed what boots.
pub(super) fn failed(runtime: &Runtime, image: &str, reason: &str) -> UpgradeStatus {
    UpgradeStatus { state: "failed", reason: reason.to_owned(), ..running(runtime, image, "") }
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

/// The end of an upgrade whose caller is gone, as an event.
pub(super) fn publish_event(runtime: &Runtime, text: &str) {
    sequencer::noop(runtime, Order::Upgrade.name(), "", api::proto::common::Code::Fatal, text.to_owned());
}
