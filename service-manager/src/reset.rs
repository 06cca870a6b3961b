//! Reset on this machine: what was asked for, noting it, doing it.
//!
//! Owns: which disk a request concerns; progress in the log.
//! Does not: decide what is wiped in which order (`installer::reset` does); stop services.
//! Order: checked, noted in META, answered, done. A node that leaves its cluster first is noted when it has left: one that cannot
//! leave goes on as it is. A part of the system disk that cannot be taken out of use is wiped by
//! the next boot, which finds the note.
//! Fails by: a sentence with the disk and the partition; the note stays, so the next boot tries again.
//! Source: docs/users/resetting.md.

mod requests;
pub(crate) mod user_disks;

use std::fmt;

use installer::meta::ResetIntent;
use installer::reset::{Target, Wiped};
use installer::{Progress, reset as wiping};
use runtime::errors::chain;

pub(crate) use requests::{Request, Resets};

use crate::system_disk::{self, SystemDisk};
use crate::volumes::{self, NodeHost};

/// Afterwards the machine restarts.
pub(crate) const REBOOT: &str = "reboot";
/// Afterwards the machine is turned off.
pub(crate) const SHUTDOWN: &str = "shutdown";

/// The request of the sequence that runs. A machined that took it over has only the note in META. Blocks.
pub(crate) fn current(resets: &Resets) -> Request {
    resets.get().or_else(|| noted(resets)).unwrap_or_default()
}

fn noted(resets: &Resets) -> Option<Request> {
    let disk = system_disk::known(&resets.runtime)?;
    let system = wiping::pending(&mut host(&disk).ok()?).ok()?;
    let others = user_disks::pending(resets);
    let then =
        system.as_ref().map(|system| &system.then).or(others.as_ref().map(|others| &others.then))?.clone();
    // The names are still those of this boot.
    let user_disks =
        others.into_iter().flat_map(|others| others.disks).map(|disk| disk.path.into()).collect();
    Some(Request { system, user_disks, then, leaves: false })
}

/// Whether it can be done. Blocks.
pub(crate) fn check(resets: &Resets, request: &Request) -> Result<(), String> {
    let disk = system_disk::find(&resets.runtime)?;
    if request.system.is_some() {
        let Some(disk) = &disk else {
            return Err(
                "reset: this machine has no installed disk, so there is no system to wipe; other disks \
                        are wiped with --wipe-mode user-disks"
                    .to_owned(),
            );
        };
        system_disk::refuse_twin(&resets.runtime, &disk.path).map_err(|reason| format!("reset: {reason}"))?;
        if let Some(intent) = &request.system {
            wiping::plan(&disk.table, intent, disk.slot).map_err(|e| chain(&e))?;
        }
    }
    request.user_disks.iter().try_for_each(|path| user_disks::check(path, disk.as_ref()))
}

/// Writes the intent: from here on the reset happens, if not now, then at the next boot. Blocks.
pub(crate) fn note(resets: &Resets, request: &Request) -> Result<(), String> {
    user_disks::note(resets, &request.user_disks, &request.then)?;
    let Some(intent) = &request.system else { return Ok(()) };
    let disk = system_disk::find(&resets.runtime)?.ok_or("the system disk is gone")?;
    wiping::begin(&mut host(&disk)?, intent).map_err(|e| chain(&e))
}

/// Wipes the system disk as the intent says. Blocks.
pub(crate) fn wipe_system(resets: &Resets, disk: &SystemDisk, intent: &ResetIntent) -> Result<(), String> {
    if intent.partitions.is_empty() && disk.slot.is_some() {
        // What this program needs to its end lies on the disk that goes.
        if let Err(errno) = sys::system::lock_memory() {
            resets.runtime.journal.warn(&format!("keep machined in memory while its disk is wiped: {errno}"));
        }
    }
    let mut said = String::new();
    let mut tell = |target: &Target, _: Progress| {
        if said != target.name() {
            said = target.name().to_owned();
            resets.runtime.journal.say(&format!("reset: wiping {said} of {}", disk.path.display()));
        }
    };
    volumes::close(&resets.volumes, &intent.partitions)?;
    let done = wiping::run(&mut host(disk)?, intent, disk.slot, &mut tell).map_err(|e| chain(&e))?;
    if intent.partitions.is_empty() || intent.partitions.iter().any(|name| name == "META") {
        resets.meta.close();
    } else if let Err(error) = resets.meta.refresh() {
        // How STATE was encrypted went with it.
        resets.runtime.journal.warn(&error.to_string());
    }
    for line in outcome(intent, &done, &disk.path.display()) {
        resets.runtime.journal.say(&line);
    }
    Ok(())
}

/// What was done, for the log: of all that reads as zeros a line, of each volume that is only unreadable another.
fn outcome(intent: &ResetIntent, done: &[(Target, Wiped)], disk: &dyn fmt::Display) -> Vec<String> {
    if intent.partitions.is_empty() {
        return vec![format!("reset: the whole disk of {disk} reads as zeros")];
    }
    let zeros = done.iter().filter(|(_, wiped)| matches!(wiped, Wiped::Zeros));
    let zeros: Vec<_> = zeros.map(|(target, _)| target.name()).collect();
    let unreadable = done.iter().filter_map(|(target, wiped)| match wiped {
        Wiped::Unreadable(how) => Some(format!("reset: {} of {disk} is unreadable: {how}", target.name())),
        Wiped::Zeros => None,
    });
    let mut lines: Vec<String> = unreadable.collect();
    if !zeros.is_empty() {
        lines.push(format!("reset: {} of {disk} reads as zeros", zeros.join(", ")));
    }
    lines
}

fn host(disk: &SystemDisk) -> Result<NodeHost, String> {
    NodeHost::open(&disk.path).map_err(|e| chain(&e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_tells_zeros_from_what_is_only_unreadable() {
        let named = |name: &str| {
            Target::Partition(ondisk::gpt::Partition {
                number: 1,
                type_guid: ondisk::gpt::types::LINUX,
                guid: ondisk::gpt::Guid::from_seed(b"1"),
                first_lba: 34,
                last_lba: 40,
                attributes: 0,
                name: name.to_owned(),
            })
        };
        let how = installer::reset::Unreadable {
            zeroed_bytes: 34 << 20,
            discarded_bytes: 3 << 20,
            kept_bytes: 5 << 20,
            kept_because: Some("the disk cannot discard".into()),
        };
        let done = [
            (named("EPHEMERAL"), Wiped::Unreadable(how)),
            (named("STATE"), Wiped::Zeros),
            (named("META"), Wiped::Zeros),
        ];
        let intent = ResetIntent { partitions: vec!["STATE".into()], ..ResetIntent::default() };
        let expected = [
            "reset: EPHEMERAL of /dev/vda is unreadable: 34 MiB of headers and superblocks read as zeros, 3 MiB \
             discarded, 5 MiB left as they are (the disk cannot discard)",
            "reset: STATE, META of /dev/vda reads as zeros",
        ];
        assert_eq!(outcome(&intent, &done, &"/dev/vda"), expected);
        assert_eq!(outcome(&intent, &done[1..2], &"/dev/vda"), ["reset: STATE of /dev/vda reads as zeros"]);
    }

    #[test]
    fn a_node_without_a_disk_has_nothing_to_reset() {
        let dir = tempfile::tempdir().unwrap();
        let resets = crate::server::tests_node(dir.path().to_owned()).reset.clone();
        let system = Request { system: Some(ResetIntent::default()), ..Request::default() };
        assert!(check(&resets, &system).unwrap_err().contains("no installed disk"));
        let file = Request { user_disks: vec![dir.path().to_owned()], ..Request::default() };
        let error = check(&resets, &file).unwrap_err();
        assert!(error.starts_with("reset user disk failed: ") && error.ends_with("is no disk"), "{error}");
        assert_eq!(current(&resets), Request::default());
    }
}
