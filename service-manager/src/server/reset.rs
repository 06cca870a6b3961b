//! `Reset`: what may be asked for, the note in META, the start of the sequence.
//!
//! Order: the disk is looked at, the lock too; then META has the intent; then the caller is answered: from there on a
//! power cut does not undo the promise. A member of etcd that is to leave first is noted by the sequence, when it has left.
//! Fails by: InvalidArgument for what contradicts itself, FailedPrecondition without an installed disk.
//! Source: docs/users/resetting.md.

use runtime::sequencer::{self, Start};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use api::proto::machine::ResetRequest;
use api::proto::machine::reset_request::WipeMode;
use installer::meta::ResetIntent;
use kubernetes_node::etcd;
use runtime::events;
use tonic::Status;

use crate::node::Node;
use crate::order::Order;
use crate::reset::{self, Request};

/// System partitions that a reset may name (docs/users/resetting.md).
const LABELS: [&str; 6] = ["EFI", "BIOS", "BOOT", "META", "STATE", "EPHEMERAL"];

/// Starts the reset and returns who asked, for the events.
pub(super) async fn reset(node: &Arc<Node>, request: ResetRequest) -> Result<String, Status> {
    let mut wanted = wanted(&request)?;
    wanted.leaves = request.graceful && wanted.wipes_etcd() && etcd::is_member(&node.runtime.root);
    let graceful = if request.graceful { "graceful" } else { "at once" };
    let worker = node.clone();
    let checked = wanted.clone();
    // A container has no disks: it stops, and its runtime removes what it kept.
    if !node.is_container() {
        super::answers::blocking(move || {
            reset::check(&worker.reset, &checked).map_err(Status::failed_precondition)
        })
        .await?;
    }
    if wanted.leaves {
        let kubernetes = super::kubernetes::of(node)?;
        let refused = |error| Status::failed_precondition(format!("reset: {error}"));
        kubernetes.may_leave_etcd().await.map_err(refused)?;
    }
    let locked = |locked: sequencer::Locked| Status::failed_precondition(locked.to_string());
    sequencer::may_start(node, Order::Reset).map_err(locked)?;
    let worker = node.clone();
    let noted = wanted.clone();
    if !node.is_container() && !wanted.leaves {
        super::answers::blocking(move || reset::note(&worker.reset, &noted).map_err(Status::internal))
            .await?;
    }
    let actor_id = events::actor_id();
    node.runtime.journal.say(&format!("reset via API received ({graceful}), actor {actor_id}"));
    node.reset.put(wanted);
    node.drains.store(request.graceful, Ordering::SeqCst);
    let start = Start { actor_id: actor_id.clone(), phase: 0, force: false };
    if let Err(error) = sequencer::start(node, Order::Reset, start) {
        node.drains.store(false, Ordering::SeqCst);
        return Err(locked(error));
    }
    Ok(actor_id)
}

/// What is wiped, and what comes after.
pub(super) fn wanted(request: &ResetRequest) -> Result<Request, Status> {
    let named = request.system_partitions_to_wipe.iter();
    let partitions: Vec<String> = named.filter(|spec| spec.wipe).map(|spec| spec.label.clone()).collect();
    if let Some(label) = partitions.iter().find(|label| !LABELS.contains(&label.as_str())) {
        let label = super::query::quoted(label);
        return Err(Status::invalid_argument(format!("label {label} is not supported")));
    }
    let contradicts = |mode: &str, parameter: &str| {
        Status::invalid_argument(format!(
            "reset failed: invalid input, wipe mode {mode} doesn't support {parameter} parameter"
        ))
    };
    let disks = &request.user_disks_to_wipe;
    match request.mode() {
        WipeMode::SystemDisk if !disks.is_empty() => {
            return Err(contradicts("SYSTEM_DISK", "UserDisksToWipe"));
        }
        WipeMode::UserDisks if !partitions.is_empty() => {
            return Err(contradicts("USER_DISKS", "SystemPartitionsToWipe"));
        }
        WipeMode::UserDisks if disks.is_empty() => {
            return Err(Status::invalid_argument("reset failed: wipe mode USER_DISKS names no disk"));
        }
        _ => {}
    }
    let then = if request.reboot { reset::REBOOT } else { reset::SHUTDOWN };
    let system =
        (request.mode() != WipeMode::UserDisks).then(|| ResetIntent { partitions, then: then.to_owned() });
    let user_disks = disks.iter().map(PathBuf::from).collect();
    Ok(Request { system, user_disks, then: then.to_owned(), leaves: false })
}

#[cfg(test)]
mod tests {
    use api::proto::machine::ResetPartitionSpec;

    use super::*;

    fn request(labels: &[&str], disks: &[&str], mode: WipeMode) -> ResetRequest {
        let spec = |label: &&str| ResetPartitionSpec { label: (*label).to_owned(), wipe: true };
        ResetRequest {
            graceful: true,
            reboot: true,
            system_partitions_to_wipe: labels.iter().map(spec).collect(),
            user_disks_to_wipe: disks.iter().map(|disk| (*disk).to_owned()).collect(),
            mode: mode.into(),
        }
    }

    #[test]
    fn what_may_be_asked_for() {
        let all = wanted(&request(&[], &[], WipeMode::All)).unwrap();
        assert_eq!((all.system.unwrap().partitions, all.then.as_str()), (vec![], "reboot"));
        let some = wanted(&request(&["STATE"], &["/dev/sdb"], WipeMode::All)).unwrap();
        assert_eq!(some.system.unwrap().partitions, ["STATE"]);
        assert_eq!(some.user_disks, [PathBuf::from("/dev/sdb")]);
        assert!(wanted(&request(&[], &["/dev/sdb"], WipeMode::UserDisks)).unwrap().system.is_none());
    }

    #[test]
    fn contradictions_are_named() {
        let refused = |labels: &[&str], disks: &[&str], mode| {
            wanted(&request(labels, disks, mode)).unwrap_err().message().to_owned()
        };
        assert_eq!(refused(&["x"], &[], WipeMode::All), "label \"x\" is not supported");
        assert_eq!(
            refused(&[], &["/dev/sdb"], WipeMode::SystemDisk),
            "reset failed: invalid input, wipe mode SYSTEM_DISK doesn't support UserDisksToWipe parameter"
        );
        assert!(
            refused(&["STATE"], &["/dev/sdb"], WipeMode::UserDisks).contains("USER_DISKS doesn't support")
        );
        assert!(refused(&[], &[], WipeMode::UserDisks).contains("names no disk"));
    }
}
