//! The upgrade itself, and the way back.
//!
//! Order: the note about EPHEMERAL and the record in META, so that a fallback is never without its reason; then the
//! new system is approved to the TPM (`crate::volumes`); then the slot, read back; then the UKI, on trial. The UKI's parts are read before the slot is written and their digests compared: nothing that boots is made
//! of bytes that were not checked.

use std::sync::Arc;

use api::event::Payload;
use api::proto::machine::{TaskEvent, task_event};
use installer::device::Disk;
use installer::system::System;
use installer::upgrade::{Installed, NewSystem, Running};
use installer::{Error, Progress};
use ondisk::manifest::Layer;
use runtime::store::UpgradeStatus;

use super::failure::{Failure, blocking};
use super::handle::Upgrades;
use super::image::{Here, Prepared, extra_arguments, here};
use super::{booted, import, status, trial, wipe};
use crate::flight_recorder;
use crate::order::Order;
use crate::secure_boot;
use crate::upgrade_record::{self, Record, State};

/// Who is told how far it is, besides the status and the console.
pub(crate) type Tell = Box<dyn Fn(&str) + Send>;

/// Installs a system beside the running one and has the loader try it at the next start. `wipe_ephemeral`: that start
/// wipes EPHEMERAL first.
pub(crate) async fn install(
    upgrades: &Arc<Upgrades>,
    prepared: Prepared,
    wipe_ephemeral: bool,
    tell: Tell,
) -> Result<(), Failure> {
    let Some(_one_at_a_time) = upgrades.try_begin() else {
        return Err(Failure::Refused("another upgrade or rollback is under way".into()));
    };
    let mut teller = Teller::new(upgrades, &prepared, tell);
    let Prepared { image, here } = prepared;
    teller.line(&format!("upgrade: version {} from {}", image.facts.version, image.name));
    let (disk, table) = (here.disk.path.clone(), here.disk.table.clone());
    let generation = {
        let (disk, table) = (disk.clone(), table.clone());
        let next = move || {
            let mut disk = Disk::open_shared(&disk).map_err(Error::from)?;
            Ok(Installed { disk: &mut disk, table }.next_entry()?.generation)
        };
        blocking(next).await?
    };
    let record = Record {
        from: upgrades.runtime.boot.version.clone(),
        to: image.facts.version.clone(),
        image: image.name.clone(),
        generation,
        since: flight_recorder::boot_id(&upgrades.runtime),
        outside: trial::outside(upgrades),
        ..Record::default()
    };
    let wiped = wipe_ephemeral.then_some(generation);
    wipe::note(&upgrades.meta, wiped).await.map_err(|error| Failure::Outside(error.to_string()))?;
    upgrades.keep(&record).await?;
    let (arguments, own) = (extra_arguments(&upgrades.runtime), [booted::argument(generation)]);
    let running = Running { slot: here.slot, entry: here.entry };
    let (root, name) = (upgrades.runtime.root.clone(), image.name.clone());
    let worker = upgrades.clone();
    let written = blocking(move || {
        let path = disk;
        let mut disk = Disk::open_shared(&path).map_err(Error::from)?;
        let (boot, layers) = image.open()?;
        let system = System { manifest: image.manifest, boot };
        let uki =
            secure_boot::uki(&worker.runtime, &name, &system, &arguments, &own).map_err(Failure::Refused)?;
        // Before that system can start: what it needs to open the volumes is there.
        crate::volumes::approve_system(&worker.volumes, &path, &table, &uki).map_err(Failure::Refused)?;
        let System { manifest, boot } = system;
        // Kernel and initramfs are in the UKI now; both would be held otherwise.
        drop(boot);
        let mut layers = |layer: &Layer| layers.layer(layer);
        let new = NewSystem { uki: &uki, manifest: &manifest };
        let mut installed = Installed { disk: &mut disk, table };
        let entry =
            installed.upgrade(running, new, &mut layers, &mut |progress| teller.progress(progress))?;
        import::forget(&root, &name);
        teller.line(&format!("upgrade: {entry} will be tried at the next start"));
        Ok(())
    });
    if let Err(failure) = written.await {
        let reason = failure.to_string();
        let record = Record { state: State::Interrupted, reason, ..record };
        // The failure itself is told; a META that cannot be written is told beside it.
        if let Err(error) = upgrades.keep(&record).await {
            upgrades.runtime.journal.warn(&error.to_string());
        }
        return Err(failure);
    }
    status::publish(&upgrades.runtime, &status::of_record(&record));
    Ok(())
}

/// Has the loader start the other system from now on; returns its entry's name.
pub(crate) async fn roll_back(upgrades: &Arc<Upgrades>) -> Result<String, Failure> {
    let Some(_one_at_a_time) = upgrades.try_begin() else {
        return Err(Failure::Refused("another upgrade or rollback is under way".into()));
    };
    let Here { disk, entry, .. } = here(&upgrades.runtime).await?;
    let next = blocking(move || {
        let mut device = Disk::open_shared(&disk.path).map_err(Error::from)?;
        Ok(Installed { disk: &mut device, table: disk.table }.roll_back(entry)?)
    })
    .await?;
    if let Some(record) = upgrade_record::read(&upgrades.meta) {
        let record = Record { state: State::RolledBack, ..record };
        upgrades.keep(&record).await?;
        status::publish(&upgrades.runtime, &status::of_record(&record));
    }
    upgrades.runtime.journal.say(&format!("rollback: {next} starts from now on"));
    Ok(next.to_string())
}

/// Tells how far it is: a line each tenth of a step.
struct Teller {
    upgrades: Arc<Upgrades>,
    status: UpgradeStatus,
    tell: Tell,
    step: &'static str,
    tenth: u64,
}

impl Teller {
    fn new(upgrades: &Arc<Upgrades>, prepared: &Prepared, tell: Tell) -> Self {
        let status = status::running(&upgrades.runtime, &prepared.image.name, &prepared.image.facts.version);
        Self { upgrades: upgrades.clone(), status, tell, step: "", tenth: 0 }
    }

    fn line(&mut self, text: &str) {
        self.upgrades.runtime.journal.progress(text);
        self.status.stage = text.to_owned();
        status::publish(&self.upgrades.runtime, &self.status);
        let event = TaskEvent { task: text.to_owned(), action: task_event::Action::Start.into() };
        self.upgrades
            .runtime
            .events
            .publish(&self.upgrades.orders.actor_id(Order::Upgrade), &Payload::Task(event));
        (self.tell)(text);
    }

    fn progress(&mut self, progress: Progress) {
        let tenth = progress.done_bytes.saturating_mul(10).checked_div(progress.total_bytes).unwrap_or(10);
        if (self.step, self.tenth) == (progress.step, tenth) {
            return;
        }
        (self.step, self.tenth) = (progress.step, tenth);
        let megabytes = progress.total_bytes / 1_000_000;
        self.line(&format!("upgrade: {}: {} % of {megabytes} MB", progress.step, tenth * 10));
    }
}
