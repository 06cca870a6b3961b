//! A new system on trial: what it must show before it is kept, and what is told when the loader went back.
//!
//! Owns: the conditions, how long they must hold, how long they may be missing.
//! Order: the record says how far this boot came before the conditions are watched, so that a boot that ends here is
//! told about by the system that runs next.
//! Fails by: a restart. The loader counts: after three starts the old system runs again and reports.

use runtime::sequencer::Start;
use std::sync::Arc;
use std::time::Duration;

use installer::device::Disk;
use installer::entries::Entry;
use installer::esp::Esp;
use installer::upgrade::Installed;
use runtime::clock;
use runtime::store::{MACHINE_STATUS, RuntimeSpec, Spec};
use tokio::time::Instant;

use super::failure::{Failure, blocking};
use super::handle::Upgrades;
use super::image::{Here, here};
use super::{booted, status};
use crate::flight_recorder::{Summary, Trial};
use crate::late_services::may_wait;
use crate::order::Order;
use crate::upgrade_record::{self, Record, State, Verdict};
use crate::{system_disk, time};

/// Between two looks.
const PERIOD: Duration = Duration::from_millis(500);
/// How long all conditions must hold without a break: half as long as it took until they first did, in these bounds.
const SETTLE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));
/// After how long, counted from the kernel's start, a system that does not get well is given up for this start, unless
/// `billet.trial=` says otherwise.
const DEADLINE: Duration = Duration::from_secs(10 * 60);
/// Within these bounds: below, a good system has no time to settle; above, nobody waits for a bad one.
const DEADLINES: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(60 * 60));

/// Conditions outside of the node.
const TIME: &str = "time";
const ADDRESS: &str = "address";

/// The conditions outside of the node that are good now: a new system must not be blamed for the others.
pub(super) fn outside(upgrades: &Upgrades) -> Vec<String> {
    [TIME, ADDRESS].into_iter().filter(|name| is_good(upgrades, name)).map(str::to_owned).collect()
}

fn is_good(upgrades: &Upgrades, condition: &str) -> bool {
    match condition {
        TIME => upgrades.runtime.services.is_up(time::ID),
        ADDRESS => upgrades.readiness.borrow().addressed,
        // Of another version: nothing that this one could look at.
        _ => true,
    }
}

/// What keeps this system from being kept, for people.
fn missing(upgrades: &Upgrades, outside: &[String]) -> Vec<String> {
    let mut missing = Vec::new();
    if !upgrades.readiness.borrow().serving {
        missing.push("the API does not answer".to_owned());
    }
    match stage(upgrades) {
        Some("running" | "maintenance") => {}
        Some(stage) => missing.push(format!("the machine is {stage}")),
        None => missing.push("the machine has not begun to start".to_owned()),
    }
    if let Some(why) = upgrades.maintenance.borrow().lock() {
        missing.push(format!("the machine is locked: {why}"));
    }
    let late = upgrades
        .runtime
        .services
        .ids()
        .into_iter()
        .filter(|id| !may_wait(&upgrades.runtime.root, id) && !upgrades.runtime.services.is_up(id));
    missing.extend(late.map(|id| format!("service {id:?} is not up")));
    let worse = outside.iter().filter(|name| !is_good(upgrades, name));
    missing.extend(worse.map(|name| format!("{name} was good before the upgrade and is not now")));
    missing
}

fn stage(upgrades: &Upgrades) -> Option<&'static str> {
    match &upgrades.runtime.store.get(&MACHINE_STATUS, "machine")?.spec {
        Spec::Runtime(RuntimeSpec::MachineStatus(status)) => Some(status.stage),
        _ => None,
    }
}

/// Judges this start, once; ends when the system is kept, or is none to be checked.
pub(crate) async fn watch(upgrades: Arc<Upgrades>) {
    booted::publish(&upgrades.runtime);
    if system_disk::slot(&upgrades.runtime).is_none() {
        return;
    }
    if let Err(failure) = judge(&upgrades).await {
        upgrades.runtime.journal.warn(&format!("upgrade: {failure}"));
    }
}

async fn judge(upgrades: &Arc<Upgrades>) -> Result<(), Failure> {
    let opening = upgrades.clone();
    blocking(move || {
        crate::meta::open_on_system_disk(&opening.runtime, &opening.meta);
        Ok(())
    })
    .await?;
    let record = upgrade_record::read(&upgrades.meta);
    let entries = entries(upgrades).await?;
    // Kept, and nothing to tell anew: the UKIs need not be read.
    let known = record.as_ref().is_some_and(|record| record.state != State::Trial);
    let settled = |entry: &Entry| entry.trial.is_none_or(|trial| trial.left == 0 && known);
    if (known || record.is_none()) && entries.iter().all(settled) {
        if let Some(record) = &record {
            status::publish(&upgrades.runtime, &status::of_record(record));
        }
        return Ok(());
    }
    let here = here(&upgrades.runtime).await?;
    let record = record.unwrap_or_default();
    match record.verdict(booted::own_generation(&upgrades.runtime.root), here.entry, &entries) {
        // On trial without a record: the entry was made by hand. It is checked all the same.
        Verdict::Settled if here.entry.trial.is_some() => on_trial(upgrades, record, here).await,
        Verdict::Settled => Ok(()),
        Verdict::OnTrial => on_trial(upgrades, record, here).await,
        Verdict::Kept => settle(upgrades, Record { state: State::Kept, ..record }).await,
        Verdict::FellBack(boots) => fell_back(upgrades, Record { boots, ..record }).await,
        Verdict::Interrupted => {
            let reason = "the upgrade ended before the new system could be started".to_owned();
            let record = Record { state: State::Interrupted, reason, ..record };
            let text = format!("upgrade: {} to {}: {}", record.from, record.to, record.reason);
            upgrades.runtime.journal.warn(&text);
            settle(upgrades, record).await
        }
    }
}

async fn settle(upgrades: &Upgrades, record: Record) -> Result<(), Failure> {
    status::publish(&upgrades.runtime, &status::of_record(&record));
    upgrades.keep(&record).await
}

/// Reports what became of a system that the loader gave up.
async fn fell_back(upgrades: &Upgrades, mut record: Record) -> Result<(), Failure> {
    record.state = State::FellBack;
    if let Some(boot) = last_boot(upgrades, &record).await {
        // What the new system itself wrote down before it gave up is nearer to the matter.
        if record.stage.is_empty() {
            record.stage = boot.stage.as_str().to_owned();
        }
        if record.reason.is_empty() {
            record.reason = boot.end;
        }
        record.last_lines = boot.last_lines;
    }
    if record.stage.is_empty() {
        record.stage = "before machined: in the boot loader, the kernel or init".to_owned();
    }
    if record.reason.is_empty() {
        record.reason = "it did not come far enough to say why".to_owned();
    }
    let text = format!(
        "upgrade: {} is back after {} start(s) of {}; the last one came to: {}; reason: {}",
        record.from, record.boots, record.to, record.stage, record.reason
    );
    upgrades.runtime.journal.warn(&text);
    for line in &record.last_lines {
        upgrades.runtime.journal.warn(&format!("upgrade: | {line}"));
    }
    status::publish_event(&upgrades.runtime, &text);
    settle(upgrades, record).await
}

/// The last boot of the new system that left something.
async fn last_boot(upgrades: &Upgrades, record: &Record) -> Option<Summary> {
    let trial = Trial { version: &record.to, since: &record.since, starts: record.boots };
    upgrades.flight_recorder.last_boot(&trial).await
}

/// Waits until the conditions hold, and keeps the system; or gives this start up.
async fn on_trial(upgrades: &Arc<Upgrades>, mut record: Record, here: Here) -> Result<(), Failure> {
    record.boots = here.entry.trial.map_or(0, |trial| trial.done);
    record.stage = "machined: the machine starts".to_owned();
    record.reason = String::new();
    settle(upgrades, record.clone()).await?;
    upgrades.runtime.journal.say(&format!("upgrade: {} is on trial, start {}", here.entry, record.boots));
    let mut since = None;
    loop {
        let missing = missing(upgrades, &record.outside);
        let now = Instant::now();
        if missing.is_empty() {
            let (begin, settle_time) = *since.get_or_insert_with(|| (now, settle_time()));
            if now.duration_since(begin) >= settle_time {
                return keep_running(upgrades, record, here).await;
            }
        } else {
            since = None;
            if age() >= deadline(upgrades.runtime.parameters.trial_seconds) {
                return give_up(upgrades, record, missing).await;
            }
        }
        tokio::time::sleep(PERIOD).await;
    }
}

fn age() -> Duration {
    Duration::from_nanos(clock::boottime_ns())
}

fn deadline(wanted_seconds: Option<u64>) -> Duration {
    wanted_seconds.map_or(DEADLINE, |wanted| Duration::from_secs(wanted).clamp(DEADLINES.0, DEADLINES.1))
}

fn settle_time() -> Duration {
    (age() / 2).clamp(SETTLE.0, SETTLE.1)
}

async fn keep_running(upgrades: &Arc<Upgrades>, record: Record, here: Here) -> Result<(), Failure> {
    let entry = here.entry;
    let blessed = blocking(move || {
        let mut disk = Disk::open_shared(&here.disk.path).map_err(installer::Error::from)?;
        Ok(Installed { disk: &mut disk, table: here.disk.table }.bless(entry)?)
    })
    .await?;
    upgrades.runtime.journal.progress(&format!(
        "upgrade: version {} proved itself and is kept as {blessed}",
        upgrades.runtime.boot.version
    ));
    if record.generation == 0 {
        return Ok(());
    }
    let record = Record { state: State::Kept, stage: String::new(), last_lines: Vec::new(), ..record };
    settle(upgrades, record).await?;
    upgrades.volumes.bring_anew();
    Ok(())
}

async fn give_up(upgrades: &Arc<Upgrades>, mut record: Record, missing: Vec<String>) -> Result<(), Failure> {
    let limit = deadline(upgrades.runtime.parameters.trial_seconds).as_secs();
    record.stage = format!("machined: {}", stage(upgrades).unwrap_or("starting"));
    record.reason = format!("not well within {limit} s (deadline trial): {}", missing.join("; "));
    upgrades.runtime.journal.warn(&format!("upgrade: {}; restarting", record.reason));
    settle(upgrades, record).await?;
    let how = Start { force: true, ..Start::default() };
    upgrades.orders.start(Order::Reboot, how).map_err(|locked| Failure::Outside(locked.to_string()))
}

/// The entries on the ESP.
async fn entries(upgrades: &Arc<Upgrades>) -> Result<Vec<Entry>, Failure> {
    let upgrades = upgrades.clone();
    blocking(move || {
        let disk = crate::system_disk::find(&upgrades.runtime).map_err(Failure::Outside)?;
        let disk = disk.ok_or_else(|| Failure::Outside("the system disk is not there any more".into()))?;
        let efi = disk.table.by_name("EFI").ok_or(installer::Error::NoPartition { name: "EFI" })?;
        let (start, length) = (disk.table.offset_bytes(efi), disk.table.size_bytes(efi));
        let mut device = Disk::open_shared(&disk.path).map_err(installer::Error::from)?;
        Ok(Esp::new(&mut device, start, length).entries()?)
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_moves_the_deadline_within_bounds() {
        assert_eq!(deadline(None), DEADLINE);
        assert_eq!(deadline(Some(90)), Duration::from_secs(90));
        assert_eq!((deadline(Some(0)), deadline(Some(u64::MAX))), DEADLINES);
    }
    #[test]
    fn a_system_that_ends_locked_is_not_kept() {
        let dir = tempfile::tempdir().unwrap();
        let node = crate::server::tests_node(dir.path().to_owned());
        node.readiness.send_modify(|readiness| readiness.serving = true);
        let stage = crate::tasks::Stage::Locked("no key matched".to_owned());
        crate::tasks::publish_stage(&node, "", &stage);
        assert_eq!(missing(&node.upgrades, &[]), [""; 0], "the stage alone counts as well");
        let locked = crate::locked::Maintenance::Locked("no key matched".to_owned());
        node.configuration.maintenance.send_replace(locked);
        assert_eq!(missing(&node.upgrades, &[]), ["the machine is locked: no key matched"]);
    }
}
