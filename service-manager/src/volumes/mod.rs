//! The volumes of a node: STATE at /system/state and EPHEMERAL at /var on its system disk, the user's on others.
//!
//! | part | owns |
//! |---|---|
//! | `make`, `host` | a partition becomes a device that can be mounted |
//! | `handle`, `state_files`, `filesystem` | what the node remembers of them; STATE and files on it; what a device holds is mounted |
//! | `state`, `look`, `mount`, `user_disks`, `leave` | when, where, and what for; out of use |
//! | `further`, `specs`, `place`, `seed` | the user's volumes: what documents of the config want, and on which disk |
//! | `wanted`, `encryption`, `key`, `salt`, `kms`, `record`, `change` | keys from the config and who unseals them, META's record of STATE, what a new config may change |
//! | `tpm`, `approve` | keys that this machine's TPM unseals, and in which systems it does |
//! | `recovery`, `recovery_vault`, `prompt` | keys that people have: offered as files of age, taken over the API and from the console |
//! | `opening`, `mapping`, `synchronise` | the process that has the keys, mappings, slots in step with the config |
//! | `status`, `told` | what is known of them, for the API and in the log |
//!
//! Owns: STATE whole; making, growing, opening and mounting volumes on this machine; `installer::volumes` decides what is written.
//! Does not: touch a disk that the node was not started from, except where an installation, a person or the config
//! means it, and what it holds is ours or nothing.
//! Order: the table and META through `installer::device`; then the file system; then the mount.
//! Fails by: a sentence; a node without STATE or EPHEMERAL runs, keeps its config and /var in memory, and can be reset.
//! Source: docs/formats/disk.md.

mod approve;
mod change;
mod configs;
mod encryption;
mod filesystem;
mod further;
mod handle;
mod host;
mod key;
mod kms;
mod leave;
mod look;
mod make;
mod mapping;
mod mount;
pub mod opening;
mod place;
mod program;
mod prompt;
mod random;
mod record;
mod recovery;
mod recovery_vault;
mod salt;
mod seed;
mod specs;
mod state;
mod state_files;
mod status;
mod synchronise;
mod told;
mod tpm;
mod user_disks;
mod wanted;

use std::path::Path;
use std::sync::Arc;

use config::Config;
use installer::Error;
use installer::volumes::{EPHEMERAL, STATE, Volume};

use make::{Layout, MakeError, What};
use runtime::errors::chain;

pub(crate) use approve::approve as approve_system;
pub(crate) use change::{Asked, Refusal, check as check_change};
pub(crate) use configs::follow as follow_configs;
pub(crate) use further::{
    are_found, follow as follow_user_volumes, mount_user_volumes, release as release_further,
};
pub use handle::Volumes;
pub(crate) use host::NodeHost;
pub(crate) use leave::{close, release};
pub(crate) use mount::{VAR, is_mounted};
pub(crate) use prompt::watch as watch_console;
pub(crate) use recovery::{NotUnlocked, offered, unlock, waits_for_an_operator};
pub(crate) use state::{provision, provision_system_disk};
pub(crate) use state_files::State;
pub(crate) use synchronise::follow;

/// Has META say how a config wants STATE opened, before that config is on STATE. Blocks.
pub(crate) fn keep_record(volumes: &Volumes, config: &Config) -> Result<(), String> {
    match (volumes.open(STATE), wanted::of_system(config, STATE)) {
        (Some(_), Some(wanted)) => record::keep(volumes, Some(&wanted)),
        // A STATE that is not encrypted needs none, and one that is stays so until it is wiped.
        _ => Ok(()),
    }
}

/// A volume of the config that lies on this disk, or in this partition of it. Blocks.
pub(crate) fn of_config_on(volumes: &Volumes, disk: &Path, partition: Option<u32>) -> Option<String> {
    let is_there = |found: &place::Found| {
        found.disk == disk && partition.is_none_or(|number| number == found.partition.number)
    };
    let names = specs::in_force(volumes).into_iter().map(|spec| spec.name);
    names
        .into_iter()
        .find(|name| place::find(volumes, name).ok().flatten().is_some_and(|found| is_there(&found)))
}

/// What became of EPHEMERAL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ephemeral {
    /// It is at /var.
    Mounted,
    /// Without a disk there is none.
    Nowhere,
    /// No key opens it now, and a server or a person has one.
    Locked {
        /// Why not.
        reason: String,
        /// Whether a server has one, which may answer the next time.
        asks_server: bool,
    },
}

/// Makes EPHEMERAL where it is missing, lets it fill the disk, and mounts it at /var.
pub(crate) async fn mount_ephemeral(volumes: &Arc<Volumes>) -> Result<Ephemeral, String> {
    let volumes = volumes.clone();
    runtime::request::blocking(move || mount_ephemeral_now(&volumes)).await
}

fn mount_ephemeral_now(volumes: &Volumes) -> Result<Ephemeral, String> {
    if is_mounted(VAR) {
        return Ok(Ephemeral::Mounted);
    }
    let Some(disk) = crate::system_disk::find(&volumes.runtime)?.filter(|disk| disk.slot.is_some()) else {
        return Ok(Ephemeral::Nowhere);
    };
    let wanted = volumes.runtime.config().and_then(|config| wanted::of_system(&config, EPHEMERAL));
    let layout = Layout::System(Volume::Ephemeral);
    let what = What { disk: &disk.path, layout, encryption: wanted.as_ref() };
    let made = match make::make(volumes, &what) {
        Ok(made) => made,
        // An image that was not made larger, as in tests: nothing is wrong with it.
        Err(MakeError::Partition(error @ Error::NoRoom { .. })) => {
            volumes.runtime.journal.warn(&format!("{error}; {VAR} is kept in memory until a restart"));
            return Ok(Ephemeral::Nowhere);
        }
        Err(error) => {
            let reason = chain(&error);
            status::failed(volumes, EPHEMERAL, &reason);
            let asks_server = wanted.as_ref().is_some_and(wanted::needs_others);
            let is_worth_it = asks_server || wanted.as_ref().is_some_and(wanted::has_recovery_key);
            return match error {
                MakeError::Locked(_) if is_worth_it => Ok(Ephemeral::Locked { reason, asks_server }),
                _ => Err(reason),
            };
        }
    };
    mount::ephemeral(&made.device)?;
    volumes.runtime.journal.say(&format!("EPHEMERAL is {}, mounted at {VAR}", made.device.display()));
    mount::fill(&made.device)?;
    Ok(Ephemeral::Mounted)
}

/// Makes and mounts the disks of `machine.disks`.
pub(crate) async fn mount_user_disks(volumes: &Arc<Volumes>) -> Result<(), String> {
    let Some(config) = volumes.runtime.config().filter(|config| !config.machine.disks.is_empty()) else {
        return Ok(());
    };
    let volumes = volumes.clone();
    runtime::request::blocking(move || user_disks::mount_all(&volumes, &config.machine.disks)).await
}
