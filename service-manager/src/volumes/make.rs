//! One volume from a partition to a device that can be mounted.
//!
//! Order: made where it is missing (`installer::volumes`: the system's in one way, the user's in another); EPHEMERAL grows
//! before its mapping is made, so that the mapping has the new length; opened, unless init or an earlier machined did that.
//! Fails by: [`MakeError`]; what is there and cannot be opened is never written over.

use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use installer::Error;
use installer::host::Host as _;
use installer::volumes::{Did, Ready, Volume, provision_named};
use rustix::rand::{GetRandomFlags, getrandom};
use unlock::Record;

use super::handle::Volumes;
use super::host::NodeHost;
use super::key::VolumeKey;
use super::opening::Done;
use super::specs::VolumeSpec;
use super::status::{Encrypted, Place};
use super::{mapping, seed, status, told};
use crate::system_disk::{self, partition_path};

/// A volume that can be mounted.
pub(super) struct Made {
    /// What is mounted.
    pub(super) device: PathBuf,
    /// What its header went through, if it was made or opened now.
    pub(super) done: Option<Done>,
}

/// A volume that is to be made or opened.
pub(super) struct What<'a> {
    /// The node of its disk.
    pub(super) disk: &'a Path,
    pub(super) layout: Layout<'a>,
    /// How it is to be encrypted.
    pub(super) encryption: Option<&'a Record>,
}

/// How its partition is made.
#[derive(Clone, Copy)]
pub(super) enum Layout<'a> {
    /// On the system's disk, under an intent in META.
    System(Volume),
    /// On another one, where the entry in the table is the last thing.
    Named(&'a VolumeSpec),
}

impl Layout<'_> {
    fn name(&self) -> &str {
        match self {
            Self::System(volume) => volume.name(),
            Self::Named(spec) => &spec.name,
        }
    }

    /// What is on it, as its status says.
    fn filesystem(&self) -> &'static str {
        match self {
            Self::Named(spec) if spec.mount.is_none() => "none",
            Self::System(_) | Self::Named(_) => "xfs",
        }
    }

    fn provision(&self, host: &mut NodeHost, disk: &Path) -> Result<Ready, Error> {
        match self {
            Self::System(volume) => installer::volumes::provision(host, *volume, &random()),
            Self::Named(spec) => {
                let wanted = spec.named(host.disk().bytes());
                provision_named(host, &disk.display().to_string(), &wanted, &seed::of_disk(disk))
            }
        }
    }
}

/// Why a volume cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum MakeError {
    /// Its partition.
    #[error(transparent)]
    Partition(#[from] Error),
    /// Its encryption.
    #[error("{0}")]
    Locked(String),
    /// Its disk is there twice.
    #[error("{0}")]
    Twin(String),
}

/// Makes a volume where it is missing, and opens it. Blocks.
pub(super) fn make(volumes: &Volumes, what: &What<'_>) -> Result<Made, MakeError> {
    make_with(volumes, what, &[])
}

/// The same, with what a person gave to open it.
pub(super) fn make_with(
    volumes: &Volumes,
    what: &What<'_>,
    recovery: &[VolumeKey],
) -> Result<Made, MakeError> {
    let What { disk, layout, encryption: wanted } = *what;
    let name = layout.name();
    let _one_at_a_time = volumes.changing.lock().unwrap_or_else(PoisonError::into_inner);
    system_disk::refuse_twin(&volumes.runtime, disk)
        .map_err(|reason| MakeError::Twin(format!("{name}: {reason}")))?;
    let mut host = NodeHost::open(disk).map_err(Error::from)?;
    if let Some(record) = wanted {
        host.seal(volumes, name, record);
    }
    let mut ready = layout.provision(&mut host, disk)?;
    say(volumes, name, disk, ready.did, wanted.is_some());
    if ready.did == Did::Nothing && matches!(layout, Layout::System(Volume::Ephemeral)) {
        let bytes = installer::volumes::grow(&mut host, Volume::Ephemeral)?;
        if bytes > 0 {
            volumes
                .runtime
                .journal
                .say(&format!("EPHEMERAL: the disk has become larger: {} MiB more", bytes >> 20));
            ready.table = installer::host::read_table(&mut host)?.table;
            let grown = ready.table.by_name(name).cloned();
            ready.partition = grown.unwrap_or(ready.partition);
        }
    }
    let partition = partition_path(disk, ready.partition.number);
    let place =
        Place { disk, table: &ready.table, partition: &ready.partition, filesystem: layout.filesystem() };
    let Some(wanted) = wanted else {
        status::ready(volumes, name, &place, None);
        return Ok(Made { device: partition, done: None });
    };
    let device = mapping::path(name);
    let made = host.made();
    let is_new = made.is_some();
    let done = match made {
        Some(done) => Some(done),
        None if mapping::is_there(name, &partition) => {
            if volumes.open(name).is_some() {
                // By this machined, which knows how: a person unlocked it before it was mounted.
                return Ok(Made { device, done: None });
            }
            None
        }
        None => Some(host.unlock(&ready.partition, recovery).map_err(MakeError::Locked)?),
    };
    let before = by_init(volumes, name).filter(|_| done.is_none());
    match (&done, &before) {
        (Some(done), _) => {
            told::header(volumes, name, done);
            told::recovery_key(volumes, name, wanted, done, is_new);
            volumes.runtime.journal.say(&opened(name, &done.kind, done.slot));
        }
        (None, Some((slot, kind))) => volumes.runtime.journal.say(&opened(name, kind, *slot)),
        (None, None) => volumes.runtime.journal.say(&format!("{name} is open")),
    }
    let encrypted = Encrypted { wanted, done: done.as_ref(), before };
    status::ready(volumes, name, &place, Some(&encrypted));
    Ok(Made { device, done })
}

fn opened(volume: &str, kind: &str, slot: u8) -> String {
    format!("{volume} is encrypted, opened by the {kind} key in slot {slot}")
}

/// Slot and kind of the key that init opened the volume with.
pub(super) fn by_init(volumes: &Volumes, volume: &str) -> Option<(u8, String)> {
    let report = volumes.runtime.boot.unlock.as_ref().filter(|report| report.volume == volume)?;
    report.opened.as_ref().map(|opened| (opened.slot, opened.kind.clone()))
}

fn say(volumes: &Volumes, name: &str, disk: &Path, did: Did, is_encrypted: bool) {
    let disk = disk.display();
    let how = if is_encrypted { "encrypted and formatted" } else { "formatted" };
    match did {
        Did::Nothing => {}
        Did::Made => volumes.runtime.journal.say(&format!("{name} was made on {disk}")),
        Did::Formatted => volumes.runtime.journal.say(&format!("{name} on {disk} was empty: {how}")),
        Did::Resumed => {
            volumes
                .runtime
                .journal
                .say(&format!("{name} on {disk}: making it was cut off; it was {how} again"));
        }
    }
}

fn random() -> [u8; 32] {
    let mut bytes = [0; 32];
    // Blocks until the kernel has entropy, which it has long before a disk is found.
    let _ = getrandom(&mut bytes, GetRandomFlags::empty());
    bytes
}
