//! The volumes that a node keeps on its system disk: STATE at /system/state, EPHEMERAL at /var.
//!
//! Owns: making, growing and mounting them on this machine; `installer::volumes` decides what is written.
//! Does not: touch a disk that the node was not started from, except where an installation or a person names it.
//! Order: the table and META through `installer::device`; then the file system; then the mount.
//! Fails by: a sentence; a node without STATE or EPHEMERAL runs, keeps its config and /var in memory, and can be reset.
//! Source: docs/formats/disk.md, spec/machine-facts.md §3.1, §4.4, §11.2.

mod host;
mod mount;
mod program;
mod user_disks;

use std::path::Path;
use std::sync::Arc;

use installer::Error;
use installer::volumes::{Did, Ready, Volume};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::configuration::State;
use crate::node::Node;
use crate::system_disk::partition_path;

pub(crate) use host::NodeHost;
pub(crate) use mount::{VAR, is_mounted, release};

/// Makes STATE on an installed disk where it is missing, and mounts it.
///
/// META of that disk is the node's from then on. Used by the boot, and after an installation for the config.
pub(crate) async fn provision(node: &Arc<Node>, disk: &Path) -> Result<State, String> {
    let (node, disk) = (node.clone(), disk.to_owned());
    blocking(move || provision_now(&node, &disk)).await
}

/// The same for the disk that the root came from. Nothing happens where it came from elsewhere.
pub(crate) async fn provision_system_disk(node: &Arc<Node>) -> Result<(), String> {
    let finder = node.clone();
    let found = blocking(move || crate::system_disk::find(&finder)).await?;
    match found.filter(|disk| disk.slot.is_some()) {
        Some(disk) => provision(node, &disk.path).await.map(drop),
        None => Ok(()),
    }
}

fn provision_now(node: &Node, disk: &Path) -> Result<State, String> {
    if let Some(state) = node.configuration.state() {
        return Ok(state);
    }
    if let Some(state) = State::mounted() {
        // By an earlier machined.
        node.configuration.set_state(state.clone());
        return Ok(state);
    }
    let ready = make(node, disk, Volume::State).map_err(|e| chain(&e))?;
    if let Some(meta) = ready.table.by_name("META") {
        node.meta.open(&partition_path(disk, meta.number)).map_err(|e| e.to_string())?;
    }
    let device = partition_path(disk, ready.partition.number);
    let state = State::mount(&device)?;
    node.journal.say(&format!("STATE is {}", device.display()));
    node.configuration.set_state(state.clone());
    Ok(state)
}

/// Makes EPHEMERAL where it is missing, lets it fill the disk, and mounts it at /var. Says whether it did: without
/// a disk there is none.
pub(crate) async fn mount_ephemeral(node: &Arc<Node>) -> Result<bool, String> {
    let node = node.clone();
    blocking(move || mount_ephemeral_now(&node)).await
}

fn mount_ephemeral_now(node: &Node) -> Result<bool, String> {
    if is_mounted(VAR) {
        return Ok(true);
    }
    let Some(disk) = crate::system_disk::find(node)?.filter(|disk| disk.slot.is_some()) else {
        return Ok(false);
    };
    let ready = match make(node, &disk.path, Volume::Ephemeral) {
        Ok(ready) => ready,
        // An image that was not made larger, as in tests: nothing is wrong with it.
        Err(error @ Error::NoRoom { .. }) => {
            node.journal.warn(&format!("{error}; {VAR} is kept in memory until a restart"));
            return Ok(false);
        }
        Err(error) => return Err(chain(&error)),
    };
    if ready.did == Did::Nothing {
        let mut host = NodeHost::open(&disk.path).map_err(|e| chain(&e))?;
        let bytes = installer::volumes::grow(&mut host, Volume::Ephemeral).map_err(|e| chain(&e))?;
        if bytes > 0 {
            node.journal.say(&format!("EPHEMERAL: the disk has become larger: {} MiB more", bytes >> 20));
        }
    }
    let device = partition_path(&disk.path, ready.partition.number);
    mount::ephemeral(&device)?;
    node.journal.say(&format!("EPHEMERAL is {}, mounted at {VAR}", device.display()));
    mount::fill(&device)?;
    Ok(true)
}

/// Makes and mounts the disks of `machine.disks`.
pub(crate) async fn mount_user_disks(node: &Arc<Node>) -> Result<(), String> {
    let Some(config) = node.config().filter(|config| !config.machine.disks.is_empty()) else { return Ok(()) };
    let node = node.clone();
    blocking(move || user_disks::mount_all(&node, &config.machine.disks)).await
}

fn make(node: &Node, disk: &Path, volume: Volume) -> Result<Ready, Error> {
    let mut host = NodeHost::open(disk)?;
    let ready = installer::volumes::provision(&mut host, volume, &random())?;
    let (name, disk) = (volume.name(), disk.display());
    match ready.did {
        Did::Nothing => {}
        Did::Made => node.journal.say(&format!("{name} was made on {disk}")),
        Did::Formatted => node.journal.say(&format!("{name} on {disk} was empty: formatted")),
        Did::Resumed => {
            node.journal.say(&format!("{name} on {disk}: making it was cut off; it was formatted again"));
        }
    }
    Ok(ready)
}

/// Whether STATE of a disk that the node was not started from may be used: not while it is half made or half wiped.
/// META of that disk becomes the node's. Blocks.
pub(crate) fn check_foreign_state(node: &Node, device: &Path) -> Result<(), String> {
    let Ok(Some(disk)) = crate::system_disk::find(node) else { return Ok(()) };
    let is_it = |partition: &&ondisk::gpt::Partition| disk.partition_path(partition) == device;
    let Some(state) = disk.table.by_name(Volume::State.name()).filter(is_it) else { return Ok(()) };
    let mut host = NodeHost::open(&disk.path).map_err(|e| chain(&e))?;
    let name = disk.path.display();
    if installer::reset::pending(&mut host).map_err(|e| chain(&e))?.is_some() {
        return Err(format!("a reset of {name} was cut off: start the machine from that disk to finish it"));
    }
    if installer::volumes::is_half_made(&mut host, state).map_err(|e| chain(&e))? {
        return Err(format!("STATE on {name} is half made: start the machine from that disk to finish it"));
    }
    crate::meta::open_on_system_disk(node);
    Ok(())
}

fn random() -> [u8; 32] {
    let mut bytes = [0; 32];
    // Blocks until the kernel has entropy, which it has long before a disk is found.
    let _ = getrandom(&mut bytes, GetRandomFlags::empty());
    bytes
}

/// An error with everything below it.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut below = error.source();
    while let Some(error) = below {
        text.push_str(&format!(": {error}"));
        below = error.source();
    }
    text
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(error.to_string()))
}
