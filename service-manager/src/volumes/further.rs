//! The user's volumes: made where they are missing, opened, mounted; at boot and with every machine config.
//!
//! | task | reads | writes | ends |
//! |---|---|---|---|
//! | [`follow`] | the config, disks that come, volumes that were opened | further disks, mounts below /var/mnt, `VolumeStatuses` | with machined |
//!
//! Owns: when; what becomes of one that the config does not want any more.
//! Does not: choose disks (`place`); decide what is written (`installer::volumes`); touch `machine.disks` (`user_disks`).
//! Order: not before /var is mounted, below which they are; not once a reset takes volumes out of use.
//! Fails by: a line in the log and the volume's status; the boot goes on. It is tried again with the next config, and
//! where it can help when a disk comes, or while a server has the key; a person's key opens it at any time.
//! Source: docs/users/disks.md.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use installer::Error;
use runtime::errors::chain;
use tokio::sync::watch;

use super::handle::{Awaits, Volumes};
use super::make::{Layout, MakeError, What};
use super::mount::VAR;
use super::specs::{self, PREFIXES, VolumeSpec};
use super::{make, mapping, mount, place, status, wanted};

/// Between two attempts to open what a server has a key of.
const PAUSE: Duration = Duration::from_secs(60);
/// Devices come in bursts: this long after the first one they are looked at once.
const BURST: Duration = Duration::from_millis(200);

/// What a look is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    /// A boot, or a config.
    Config,
    /// A disk came or went.
    Disks,
    /// A volume was opened, perhaps by a person.
    Opened,
    /// A server may answer now.
    Server,
}

/// Makes, opens and mounts all that the config in force wants. At boot, once /var is there.
pub(crate) async fn mount_user_volumes(volumes: &Arc<Volumes>) {
    volumes.begun.send_replace(true);
    look(volumes, Why::Config).await;
}

/// Whether every volume that is wanted has a partition on the disks that are there now.
pub(crate) async fn are_found(volumes: &Arc<Volumes>) -> bool {
    let volumes = volumes.clone();
    let is_there =
        |volumes: &Volumes, spec: &VolumeSpec| matches!(place::find(volumes, &spec.name), Ok(Some(_)));
    let look = move || specs::in_force(&volumes).iter().all(|spec| is_there(&volumes, spec));
    runtime::request::blocking(look).await
}

/// Keeps them as the config wants them. `devices` counts those that came or went.
pub(crate) async fn follow(volumes: Arc<Volumes>, mut devices: watch::Receiver<u64>) {
    let mut config = volumes.runtime.config.subscribe();
    let (mut opened, mut begun) = (volumes.openings(), volumes.begun.subscribe());
    if mount::is_target(VAR) {
        // By an earlier machined: the boot has come past this.
        volumes.begun.send_replace(true);
    }
    if begun.wait_for(|begun| *begun).await.is_err() {
        return;
    }
    // What the boot could not have is not tried again so soon; what an earlier machined has is taken over.
    let mut why = Why::Disks;
    loop {
        config.mark_unchanged();
        devices.mark_unchanged();
        opened.mark_unchanged();
        look(&volumes, why).await;
        let waits_for_server = volumes.awaits(Awaits::Server);
        why = tokio::select! {
            changed = config.changed() => if changed.is_ok() { Why::Config } else { return },
            changed = opened.changed() => if changed.is_ok() { Why::Opened } else { return },
            changed = devices.changed() => if changed.is_ok() { Why::Disks } else { return },
            () = tokio::time::sleep(PAUSE), if waits_for_server => Why::Server,
        };
        if why == Why::Disks {
            tokio::time::sleep(BURST).await;
        }
    }
}

async fn look(volumes: &Arc<Volumes>, why: Why) {
    let worker = volumes.clone();
    runtime::request::blocking(move || bring_all(&worker, why)).await;
}

fn bring_all(volumes: &Volumes, why: Why) {
    let _one_at_a_time = volumes.bringing.lock().unwrap_or_else(PoisonError::into_inner);
    if !*volumes.begun.borrow() {
        return;
    }
    let specs = specs::in_force(volumes);
    leave_unwanted(volumes, &specs);
    for spec in specs.iter().filter(|spec| is_worth_it(volumes.awaited(&spec.name), why)) {
        if let Err((reason, awaits)) = bring(volumes, spec) {
            if volumes.problem(&spec.name).as_deref() != Some(reason.as_str()) {
                volumes.runtime.journal.warn(&reason);
            }
            status::failed_awaiting(volumes, &spec.name, &reason, awaits);
        }
    }
}

/// `awaited`: what one that failed waits for; `None`: it did not.
fn is_worth_it(awaited: Option<Awaits>, why: Why) -> bool {
    match awaited {
        None => true,
        Some(Awaits::Config) => why == Why::Config,
        Some(Awaits::Disk) => matches!(why, Why::Config | Why::Disks),
        Some(Awaits::Server) => matches!(why, Why::Config | Why::Server),
    }
}

fn bring(volumes: &Volumes, spec: &VolumeSpec) -> Result<(), (String, Awaits)> {
    let name = &spec.name;
    let at_mount = |target: &str| mount::source(target).map(std::path::PathBuf::from);
    if let Some(device) = volumes.mount_location(name)
        && spec.mount.as_ref().is_none_or(|mount| at_mount(&mount.target) == Some(device))
    {
        return Ok(());
    }
    let later = |reason: String| (reason, Awaits::Disk);
    let disk = match place::find(volumes, name).map_err(later)? {
        Some(found) => found.disk,
        None => place::choose(volumes, spec).map_err(|none| later(none.to_string()))?,
    };
    let what = What { disk: &disk, layout: Layout::Named(spec), encryption: spec.encryption.as_ref() };
    let made = make::make(volumes, &what).map_err(|error| {
        let asks_server = spec.encryption.as_ref().is_some_and(wanted::needs_others);
        (chain(&error), awaits(&error, asks_server))
    })?;
    let device = made.device.display();
    match &spec.mount {
        None => volumes.runtime.journal.say(&format!("{name} is {device}")),
        Some(place) => {
            mount::named(&made.device, name, place).map_err(|reason| (reason, Awaits::Config))?;
            volumes.runtime.journal.say(&format!("{name} is {device}, mounted at {}", place.target));
        }
    }
    Ok(())
}

/// What may help. Not a disk where something was begun: what that does to the disk would have it begun again.
fn awaits(error: &MakeError, asks_server: bool) -> Awaits {
    match error {
        MakeError::Locked(_) if asks_server => Awaits::Server,
        MakeError::Twin(_)
        | MakeError::Partition(
            Error::ForeignDisk { .. }
            | Error::OtherVolume { .. }
            | Error::Contradiction { .. }
            | Error::NoRoom { .. },
        ) => Awaits::Disk,
        MakeError::Locked(_) | MakeError::Partition(_) => Awaits::Config,
    }
}

/// Takes out of use what the config does not name. Its partition stays as it is.
fn leave_unwanted(volumes: &Volumes, specs: &[VolumeSpec]) {
    let is_wanted = |name: &String| specs.iter().any(|spec| spec.name == *name);
    for name in in_use(volumes).into_iter().filter(|name| !is_wanted(name)) {
        if !mapping::names().contains(&name) && volumes.mount_location(&name).is_none() {
            // It could not be had, and is not wanted any more.
            status::closed(volumes, &name);
            continue;
        }
        match leave(volumes, &name) {
            Ok(()) => volumes
                .runtime
                .journal
                .say(&format!("{name} is not wanted any more: closed; its partition stays")),
            Err(reason) => {
                volumes
                    .runtime
                    .journal
                    .warn(&format!("{reason}; it is not wanted any more, and stays until a restart"));
            }
        }
    }
}

/// Unmounts a volume and takes its mapping away.
fn leave(volumes: &Volumes, name: &str) -> Result<(), String> {
    if let Some(directory) = name.strip_prefix(PREFIXES[0]) {
        mount::leave(&format!("{}/{directory}", specs::MOUNTS))?;
    }
    mapping::close(name)?;
    status::closed(volumes, name);
    Ok(())
}

/// The user's volumes that machined or the kernel knows.
pub(super) fn in_use(volumes: &Volumes) -> Vec<String> {
    let mut names: Vec<String> = volumes.names().into_iter().chain(mapping::names()).collect();
    names.retain(|name| PREFIXES.iter().any(|prefix| name.starts_with(prefix)));
    names.sort();
    names.dedup();
    names
}

/// From now on none is mounted any more. Blocks until whoever is at it is done.
pub(super) fn stop(volumes: &Volumes) {
    volumes.begun.send_replace(false);
    drop(volumes.bringing.lock().unwrap_or_else(PoisonError::into_inner));
}

/// Takes them all out of use, for good. What cannot be left is told. Blocks.
pub(crate) fn release(volumes: &Volumes) {
    stop(volumes);
    for name in in_use(volumes) {
        if let Err(error) = leave(volumes, &name) {
            volumes.runtime.journal.warn(&error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_is_tried_again_where_that_can_help() {
        let tried = |awaited| {
            [Why::Config, Why::Disks, Why::Opened, Why::Server].map(|why| is_worth_it(awaited, why))
        };
        assert_eq!(tried(None), [true; 4]);
        assert_eq!(tried(Some(Awaits::Config)), [true, false, false, false]);
        assert_eq!(tried(Some(Awaits::Disk)), [true, true, false, false]);
        assert_eq!(tried(Some(Awaits::Server)), [true, false, false, true]);
    }

    #[test]
    fn what_a_failure_waits_for_follows_from_it() {
        let name = || "u-data".to_owned();
        let full = Error::NoRoom { name: name(), needed_bytes: 2, room_bytes: 1 };
        let format = Error::Format { name: name(), reason: "it failed".to_owned() };
        assert_eq!(awaits(&MakeError::Partition(full), true), Awaits::Disk);
        assert_eq!(
            awaits(&MakeError::Partition(format), true),
            Awaits::Config,
            "or it would be begun for ever"
        );
        let locked = || MakeError::Locked("no key matched".to_owned());
        assert_eq!((awaits(&locked(), true), awaits(&locked(), false)), (Awaits::Server, Awaits::Config));
    }
}
