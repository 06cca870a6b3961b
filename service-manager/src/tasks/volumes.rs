//! The system disk: META, STATE and EPHEMERAL.
//!
//! Order: META first, since it says what was cut off and how STATE is encrypted; STATE before the config is looked for,
//! or, where there is none yet, with the first config; EPHEMERAL before /var is filled.
//! An EPHEMERAL whose key a server or a person has is waited for: tried again while a server cannot be reached, with every
//! new config, and when somebody has unlocked it.
//! Fails by: without META and STATE the node goes on and says so, since a person can then give it a config or reset
//! it; an EPHEMERAL that holds something foreign, or that no key opens, ends the boot sequence.
//! Source: docs/formats/disk.md.

use runtime::sequencer::{TaskError, TaskFuture};
use std::sync::Arc;
use std::time::Duration;

use crate::node::Node;
use crate::system_disk;
use crate::volumes::Ephemeral;
use crate::{meta, volumes};

/// How long the drivers of disks may take that the config names.
const SETTLE_DEADLINE: Duration = Duration::from_secs(30);
/// How long a key server, or who has the recovery key, may be away at boot: somebody has noticed by then.
const UNLOCK_DEADLINE: Duration = Duration::from_secs(24 * 3600);
/// Between two attempts, each of which waits for the server by itself.
const UNLOCK_PAUSE: Duration = Duration::from_secs(10);

/// Reads META of the disk that the root came from.
pub fn reload_meta(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move {
        if system_disk::slot(&node.runtime).is_none() {
            // Its disk, if it has one, has no driver yet: META is found with STATE.
            return Ok(());
        }
        let reader = node.clone();
        tokio::task::spawn_blocking(move || meta::open_on_system_disk(&reader.runtime, &reader.meta))
            .await
            .map_err(|e| TaskError(format!("read META: {e}")))
    })
}

/// Opens and mounts STATE of the disk that the root came from. One that is missing is made with the first config.
pub fn mount_state_partition(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move {
        if let Err(error) = volumes::provision_system_disk(&node.volumes, node.runtime.config()).await {
            node.runtime
                .journal
                .warn(&format!("{error}; without STATE the machine config lasts until a restart"));
        }
        Ok(())
    })
}

/// Makes EPHEMERAL on the disk that the root came from, if it is missing, and mounts it at /var.
pub fn mount_ephemeral_partition(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move {
        let end = tokio::time::Instant::now() + UNLOCK_DEADLINE;
        let mut said = String::new();
        let (mut config, mut opened) = (node.runtime.config.subscribe(), node.volumes.openings());
        loop {
            config.mark_unchanged();
            opened.mark_unchanged();
            let (reason, asks_server) =
                match volumes::mount_ephemeral(&node.volumes).await.map_err(TaskError)? {
                    Ephemeral::Mounted | Ephemeral::Nowhere => return Ok(()),
                    Ephemeral::Locked { reason, asks_server } => (reason, asks_server),
                };
            if tokio::time::Instant::now() >= end {
                let hours = UNLOCK_DEADLINE.as_secs() / 3600;
                return Err(TaskError(format!("{reason}; tried for {hours} h (deadline unlockEphemeral)")));
            }
            if said != reason {
                let next = if asks_server { "trying again" } else { "waiting for its recovery key" };
                node.runtime.journal.warn(&format!("{reason}; {next}"));
                said = reason;
            }
            let next = if asks_server { tokio::time::Instant::now() + UNLOCK_PAUSE } else { end };
            tokio::select! {
                () = tokio::time::sleep_until(next) => {}
                _ = config.changed() => {}
                _ = opened.changed() => {}
            }
        }
    })
}

/// Makes the disks of `machine.disks`, once, while they are empty, and mounts them.
pub fn mount_user_disks(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move {
        let wanted = node.runtime.config().map(|config| config.machine.disks.clone()).unwrap_or_default();
        if wanted.iter().any(|disk| !std::path::Path::new(&disk.device).exists()) {
            wait_for_disks(&node, "mountUserDisks").await;
        }
        volumes::mount_user_disks(&node.volumes).await.map_err(TaskError)
    })
}

/// Makes, opens and mounts the volumes of the config's documents. One that cannot be had is told, and tried again later.
pub fn mount_user_volumes(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move {
        if !volumes::are_found(&node.volumes).await {
            // A new one goes to the first disk that is meant: of all, not of those that were quick.
            wait_for_disks(&node, "mountUserVolumes").await;
        }
        volumes::mount_user_volumes(&node.volumes).await;
        Ok(())
    })
}

async fn wait_for_disks(node: &Node, deadline: &str) {
    let mut settled = node.configuration.disks_settled.subscribe();
    if tokio::time::timeout(SETTLE_DEADLINE, settled.wait_for(|settled| *settled)).await.is_err() {
        let seconds = SETTLE_DEADLINE.as_secs();
        node.runtime
            .journal
            .warn(&format!("drivers of disks took longer than {seconds} s (deadline {deadline})"));
    }
}
