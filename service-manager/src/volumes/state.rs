//! STATE on this machine: made once it is known how, opened by META's record or the config, mounted.
//!
//! Owns: when STATE is made: not before there is a config, which says whether it is to be encrypted.
//! Order: META's record of the encryption; the partition (`installer::volumes`); the mapping; the mount.
//! Fails by: a sentence; the node then runs without STATE, and never writes over one that it cannot open.
//! Source: docs/users/encryption.md.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use config::Config;
use installer::volumes::{Holds, STATE, Volume};
use runtime::errors::chain;

use super::handle::Volumes;
use super::host::NodeHost;
use super::make::{Layout, What};
use super::state_files::State;
use super::{make, record, status, wanted};
use crate::system_disk::{self, partition_path};

/// Makes STATE on an installed disk where it is missing, as the config in force wants it, and mounts it.
///
/// META of that disk is the node's from then on. After an installation.
pub(crate) async fn provision(volumes: &Arc<Volumes>, disk: &Path) -> Result<State, String> {
    let (volumes, disk) = (volumes.clone(), disk.to_owned());
    let config = volumes.runtime.config().ok_or("there is no machine config")?;
    let made = runtime::request::blocking(move || provision_now(&volumes, &disk, Some(&config))).await?;
    made.ok_or_else(|| "STATE was not made".to_owned())
}

/// The same for the disk that the root came from. Nothing happens where it came from elsewhere. Without a config a STATE
/// that is there is mounted, and none is made.
pub(crate) async fn provision_system_disk(
    volumes: &Arc<Volumes>,
    config: Option<Arc<Config>>,
) -> Result<(), String> {
    if volumes.state().is_some() || system_disk::slot(&volumes.runtime).is_none() {
        return Ok(());
    }
    let worker = volumes.clone();
    let work = move || {
        let Some(disk) = system_disk::find(&worker.runtime)? else { return Ok(()) };
        provision_now(&worker, &disk.path, config.as_deref()).map(drop)
    };
    let done = runtime::request::blocking(work).await;
    if let Err(error) = &done {
        status::failed(volumes, STATE, error);
    }
    done
}

fn provision_now(volumes: &Volumes, disk: &Path, config: Option<&Config>) -> Result<Option<State>, String> {
    if let Some(state) = volumes.state() {
        return Ok(Some(state));
    }
    if let Some(state) = State::mounted() {
        // By an earlier machined.
        volumes.set_state(state.clone());
        return Ok(Some(state));
    }
    let mut host = NodeHost::open(disk).map_err(|e| chain(&e))?;
    let held = installer::volumes::holds(&mut host, STATE).map_err(|e| chain(&e))?;
    let table = system_disk::read_table(&volumes.runtime, disk)?;
    if let Some(meta) = table.by_name("META") {
        volumes.meta.open(&partition_path(disk, meta.number)).map_err(|e| e.to_string())?;
    }
    let is_missing = matches!(held, None | Some((Holds::Nothing, _)));
    let wanted = match config {
        Some(config) => wanted::of_system(config, STATE),
        None if is_missing => {
            volumes
                .runtime
                .journal
                .say(&format!("STATE of {} is made once there is a machine config", disk.display()));
            return Ok(None);
        }
        None => record::read(volumes)?,
    };
    if is_missing {
        record::keep(volumes, wanted.as_ref())?;
    }
    let made = make::make(
        volumes,
        &What { disk, layout: Layout::System(Volume::State), encryption: wanted.as_ref() },
    )
    .map_err(|e| chain(&e))?;
    if !is_missing && wanted.is_some() {
        record::keep(volumes, wanted.as_ref())?;
    }
    mount(volumes, &made.device).map(Some)
}

fn mount(volumes: &Volumes, device: &Path) -> Result<State, String> {
    let state = State::mount(device)?;
    volumes.runtime.journal.say(&format!("STATE is {}", device.display()));
    volumes.set_state(state.clone());
    Ok(state)
}

/// What of a STATE that was found is mounted: its partition, or its mapping; `None` while it is yet to be made. One of a
/// disk that the node was not started from is not used while it is half made or half wiped. META of that disk becomes
/// the node's. Blocks.
pub(super) fn usable(volumes: &Volumes, device: &Path) -> Result<Option<PathBuf>, String> {
    let as_it_is = Ok(Some(device.to_owned()));
    let Ok(Some(disk)) = system_disk::find(&volumes.runtime) else { return as_it_is };
    let is_it = |partition: &&ondisk::gpt::Partition| disk.partition_path(partition) == device;
    let Some(state) = disk.table.by_name(STATE).filter(is_it) else { return as_it_is };
    system_disk::refuse_twin(&volumes.runtime, &disk.path).map_err(|reason| format!("STATE: {reason}"))?;
    let mut host = NodeHost::open(&disk.path).map_err(|e| chain(&e))?;
    let name = disk.path.display();
    if installer::reset::pending(&mut host).map_err(|e| chain(&e))?.is_some() {
        return Err(format!("a reset of {name} was cut off: start the machine from that disk to finish it"));
    }
    if disk.slot.is_none() && installer::volumes::is_half_made(&mut host, state).map_err(|e| chain(&e))? {
        return Err(format!("STATE on {name} is half made: start the machine from that disk to finish it"));
    }
    crate::meta::open_on_system_disk(&volumes.runtime, &volumes.meta);
    match installer::volumes::holds(&mut host, STATE).map_err(|e| chain(&e))? {
        None | Some((Holds::Nothing, _)) => Ok(None),
        // Somebody put a plain one in the place of one that is to be encrypted: refused by name.
        Some((Holds::Other, _)) if record::read(volumes)?.is_none() => as_it_is,
        Some(_) => open(volumes, &disk.path).map(Some),
    }
}

/// Opens an encrypted STATE by the config in force, or by META's record. One that could not be opened is tried again only
/// where a server has a key: others are the same, and deriving one takes seconds.
fn open(volumes: &Volumes, disk: &Path) -> Result<PathBuf, String> {
    let wanted = match volumes.runtime.config().and_then(|config| wanted::of_system(&config, STATE)) {
        Some(wanted) => Some(wanted),
        None => record::read(volumes)?,
    };
    if let Some(problem) = volumes.problem(STATE)
        && !wanted.as_ref().is_some_and(wanted::needs_others)
    {
        return Err(problem);
    }
    let made = make::make(
        volumes,
        &What { disk, layout: Layout::System(Volume::State), encryption: wanted.as_ref() },
    )
    .map_err(|e| chain(&e));
    made.map(|made| made.device).inspect_err(|error| status::failed(volumes, STATE, error))
}
