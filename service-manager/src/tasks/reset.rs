//! Resetting the node, and going on with it at boot.
//!
//! Order: services stop, volumes go out of use, other disks are wiped, the system disk is; then the machine restarts or
//! is turned off. What is still in use is left to the next boot, which has nothing mounted yet.
//! Source: docs/users/resetting.md.

use runtime::sequencer::{TaskError, TaskFuture};
use std::sync::Arc;
use std::time::Duration;

use handoff::Action;
use installer::meta::ResetIntent;

use super::finish::finish;
use super::status::{Stage, publish_stage};
use crate::node::Node;
use crate::reset::{self, SHUTDOWN, user_disks};
use crate::system_disk::{self, SystemDisk};
use crate::upgrade::wipe;
use crate::{meta, volumes};

/// How long the drivers of disks may take when the command line wants one wiped.
const SETTLE_DEADLINE: Duration = Duration::from_secs(30);

/// Leaves etcd's cluster and removes the node's object, where the request wants that; then the reset is noted. A node that
/// cannot leave is not wiped, and goes on as it is.
pub fn leave_cluster(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move {
        let worker = node.clone();
        let request = tokio::task::spawn_blocking(move || reset::current(&worker.reset)).await;
        let request = request.map_err(|e| TaskError(e.to_string()))?;
        if request == reset::Request::default() {
            return Err(TaskError(
                "reset: what was asked for is not known any more; reset the node again".into(),
            ));
        }
        if !request.leaves {
            return Ok(());
        }
        let kubernetes =
            node.kubernetes.get().ok_or_else(|| TaskError("reset: etcd is not defined".into()))?;
        let servers = kubernetes.other_api_servers().await;
        if let Err(error) = kubernetes.leave_etcd().await {
            kubernetes.stay();
            return Err(TaskError(format!("failed to leave cluster: {error}; the disk is not wiped")));
        }
        match kubernetes.remove_node_object(&servers).await {
            Ok(()) => node.runtime.journal.say("reset: the node's object is removed from the cluster"),
            Err(error) => node.runtime.journal.warn(&format!(
                "reset: the node's object stays in the cluster ({error}); remove it with `kubectl delete node`"
            )),
        }
        if node.is_container() {
            return Ok(());
        }
        blocking(&node, move |node| reset::note(&node.reset, &request)).await
    })
}

/// Takes STATE and EPHEMERAL out of use, and the user's volumes.
pub fn unmount_system_disk(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move {
        publish_stage(&node, "", &Stage::Resetting);
        blocking(&node, |node| {
            let request = reset::current(&node.reset);
            if request.system.is_none() && !request.user_disks.is_empty() {
                volumes::release_further(&node.volumes);
            }
            if request.system.is_some()
                && let Err(error) = volumes::release(&node.volumes)
            {
                node.runtime.journal.warn(&format!("reset: {error}: the next boot goes on with it"));
            }
            Ok(())
        })
        .await
    })
}

/// Wipes the other disks that were named.
pub fn reset_user_disks(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move {
        blocking(&node, |node| {
            for path in &reset::current(&node.reset).user_disks {
                if let Err(error) = user_disks::wipe(&node.reset, path) {
                    if node.meta.device().is_none() {
                        return Err(error);
                    }
                    node.runtime.journal.warn(&format!("{error}: the next boot goes on with it"));
                }
            }
            Ok(())
        })
        .await
    })
}

/// Wipes the system disk, or what of it was named.
pub fn reset_system_disk(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move {
        blocking(&node, |node| {
            let Some(intent) = reset::current(&node.reset).system else { return Ok(()) };
            let disk = system_disk::find(&node.runtime)?.ok_or("the system disk is gone")?;
            if let Err(error) = reset::wipe_system(&node.reset, &disk, &intent) {
                node.runtime.journal.warn(&format!("reset: {error}: the next boot goes on with it"));
            }
            Ok(())
        })
        .await
    })
}

/// Asks init to restart the machine or to cut the power, as the request says.
pub fn reboot_or_shutdown(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move {
        let asked = node.clone();
        let then =
            tokio::task::spawn_blocking(move || reset::current(&asked.reset).then).await.unwrap_or_default();
        // What could not be wiped needs a boot, whatever comes after that.
        let looker = node.clone();
        let unfinished = tokio::task::spawn_blocking(move || is_unfinished(&looker)).await.unwrap_or(false);
        leave(&node, if unfinished { reset::REBOOT } else { &then }).await
    })
}

fn is_unfinished(node: &Node) -> bool {
    let system =
        || system_disk::known(&node.runtime).is_some_and(|disk| pending(&disk).ok().flatten().is_some());
    user_disks::pending(&node.reset).is_some() || system()
}

/// Goes on with a reset that was cut off, and does what the command line wants wiped.
pub fn resume_reset(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move {
        if node.runtime.parameters.wipe_system.is_some() && system_disk::slot(&node.runtime).is_none() {
            wait_for_disks(&node).await;
        }
        let then = resume_user_disks(&node).await?;
        let worker = node.clone();
        let with_upgrade = wipe::is_due(&node.runtime, &node.meta);
        let done = tokio::task::spawn_blocking(move || resume(&worker, with_upgrade)).await;
        if with_upgrade
            && matches!(done, Ok(Ok(_)))
            && let Err(error) = wipe::done(&node.meta).await
        {
            // It would be wiped again at the next start of this trial.
            return Err(TaskError(error.to_string()));
        }
        match done.map_err(|e| e.to_string()).and_then(|done| done) {
            // The system disk was not named; a restart has been.
            Ok(Next::Boot) if then.as_deref() == Some(SHUTDOWN) => {
                leave(&node, SHUTDOWN).await?;
                std::future::pending().await
            }
            Ok(Next::Boot) => Ok(()),
            Ok(Next::Leave(then)) => {
                leave(&node, &then).await?;
                // Nothing of a wiped system is to be started any more.
                std::future::pending().await
            }
            Err(error) => {
                node.runtime.journal.warn(&format!("reset: {error}"));
                Ok(())
            }
        }
    })
}

/// Wipes the other disks that a reset did not get to; says what was to follow, if none is left: a machine whose disk
/// is gone for good is not turned off at each start.
async fn resume_user_disks(node: &Arc<Node>) -> Result<Option<String>, TaskError> {
    let reader = node.clone();
    let pending = tokio::task::spawn_blocking(move || user_disks::pending(&reader.reset)).await;
    let Some(intent) = pending.map_err(|e| TaskError(e.to_string()))? else { return Ok(None) };
    node.runtime.journal.say("the wiping of other disks was cut off: going on with it");
    if !user_disks::is_there(&node.reset, &intent) {
        wait_for_disks(node).await;
    }
    let then = intent.then.clone();
    let worker = node.clone();
    let left = tokio::task::spawn_blocking(move || {
        user_disks::resume(&worker.reset, &intent);
        user_disks::pending(&worker.reset)
    })
    .await;
    Ok(left.map_err(|e| TaskError(e.to_string()))?.is_none().then_some(then))
}

async fn wait_for_disks(node: &Node) {
    let mut settled = node.configuration.disks_settled.subscribe();
    if tokio::time::timeout(SETTLE_DEADLINE, settled.wait_for(|settled| *settled)).await.is_err() {
        let seconds = SETTLE_DEADLINE.as_secs();
        node.runtime.journal.warn(&format!(
            "drivers of disks took longer than {seconds} s (deadline resumeReset): looking at those that are there"
        ));
    }
}

/// What follows a reset at boot.
enum Next {
    /// The boot goes on; there may have been nothing to do.
    Boot,
    /// The machine restarts or is turned off.
    Leave(String),
}

/// `with_upgrade`: an upgrade to this system was to wipe EPHEMERAL.
fn resume(node: &Node, with_upgrade: bool) -> Result<Next, String> {
    if system_disk::slot(&node.runtime).is_none() && node.runtime.parameters.wipe_system.is_none() {
        return Ok(Next::Boot);
    }
    let Some(disk) = system_disk::find(&node.runtime)? else {
        node.runtime
            .journal
            .warn("the command line wants the system disk wiped: this machine has no installed disk");
        return Ok(Next::Boot);
    };
    let asked = node.runtime.parameters.wipe_system.clone();
    let asked = asked.map(|partitions| ResetIntent { partitions, then: reset::REBOOT.to_owned() });
    let of_upgrade = of_upgrade(&disk).filter(|_| with_upgrade);
    let asked = asked.or_else(|| of_upgrade.clone());
    let mut intent = match (pending(&disk)?, asked) {
        (Some(noted), _) => {
            node.runtime.journal.say("a reset was cut off: going on with it");
            noted
        }
        (None, Some(asked)) => {
            let why = match with_upgrade && node.runtime.parameters.wipe_system.is_none() {
                true => "the upgrade to this version was to wipe EPHEMERAL (preserve=false)",
                false => "the command line wants the system disk wiped (experimental.wipe)",
            };
            node.runtime.journal.say(why);
            let request = reset::Request { system: Some(asked.clone()), ..Default::default() };
            reset::note(&node.reset, &request)?;
            asked
        }
        (None, None) => return Ok(Next::Boot),
    };
    // What is wiped beside it for another reason: named partitions only, the whole disk has it all.
    for partition in of_upgrade.into_iter().flat_map(|intent| intent.partitions) {
        if !intent.partitions.is_empty() && !intent.partitions.contains(&partition) {
            intent.partitions.push(partition);
        }
    }
    publish_stage(node, "", &Stage::Resetting);
    reset::wipe_system(&node.reset, &disk, &intent)?;
    let whole = intent.partitions.is_empty();
    if intent.then == SHUTDOWN || whole && disk.slot.is_some() {
        return Ok(Next::Leave(intent.then));
    }
    if !whole {
        meta::open_on_system_disk(&node.runtime, &node.meta);
    }
    publish_stage(node, "", &Stage::Booting);
    Ok(Next::Boot)
}

/// What an upgrade that does not preserve wipes; `None` where there is none.
fn of_upgrade(disk: &SystemDisk) -> Option<ResetIntent> {
    let partition = wipe::partition();
    disk.table.by_name(&partition)?;
    Some(ResetIntent { partitions: vec![partition], then: reset::REBOOT.to_owned() })
}

fn pending(disk: &SystemDisk) -> Result<Option<ResetIntent>, String> {
    let mut host = volumes::NodeHost::open(&disk.path).map_err(|e| runtime::errors::chain(&e))?;
    installer::reset::pending(&mut host).map_err(|e| runtime::errors::chain(&e))
}

async fn leave(node: &Node, then: &str) -> Result<(), TaskError> {
    let (stage, action) = match then {
        SHUTDOWN if node.runtime.parameters.halt_on_shutdown => (Stage::ShuttingDown, Action::Halt),
        SHUTDOWN => (Stage::ShuttingDown, Action::PowerOff),
        _ => (Stage::Rebooting, Action::Reboot),
    };
    publish_stage(node, "", &stage);
    finish(node, action, "reset sequence").await
}

async fn blocking(
    node: &Arc<Node>,
    work: impl FnOnce(&Node) -> Result<(), String> + Send + 'static,
) -> Result<(), TaskError> {
    let node = node.clone();
    let done = tokio::task::spawn_blocking(move || work(&node)).await;
    done.unwrap_or_else(|error| Err(error.to_string())).map_err(TaskError)
}
