//! Installing this machine: from a config and what runs now to a disk that starts by itself.
//!
//! | part | owns |
//! |---|---|
//! | [`choose`], [`selector`] | pure: which disk |
//! | [`disks`] | what the disks of this machine hold |
//! | [`source`] | what is installed: the running system or an image |
//! | [`firmware`] | the boot entry |
//!
//! Owns: when a machine installs itself, and the order of it. `installer` decides and writes every byte.
//! A disk of a machine without UEFI, or one that is to start on such a machine too, also gets GRUB.
//! Order: disk → UKI → plan, printed → apply → partitions known to the kernel → boot entry; STATE with the config
//! comes in a phase of its own, so that a machined that is started again goes on there.
//! Fails by: a sentence; the machine stays up and answers, and tries again when its config or its disks change.
//! Source: docs/users/installing.md.

mod candidate;
mod choose;
mod disks;
mod failure;
mod firmware;
mod handle;
mod selector;
mod source;

use runtime::Runtime;
use runtime::sequencer::Start;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::event::Payload;
use api::proto::machine::{TaskEvent, task_event};
use config::Config;
use config::v1alpha1::Install;
use installer::boot_volume;
use installer::device::Disk;
use installer::install::{self as writing, Identity, Plan, Spec};
use installer::system;
use installer::upgrade::NewSystem;
use ondisk::manifest::Layer;
use ondisk::{Architecture, fat};
use rustix::rand::{GetRandomFlags, getrandom};

pub(crate) use failure::Failure;
pub(crate) use handle::Installation;

use candidate::{Candidate, Holds};
use choose::{Refused, Wanted, choose};
use source::{Prepared, Source};

use crate::container;
use crate::order::Order;
use crate::upgrade::Tell;
use crate::{secure_boot, system_disk};

/// Devices come in bursts: this long after one the disks are looked at again.
const BURST: Duration = Duration::from_secs(1);
/// Between two attempts to reach the registry of the config's image.
const REGISTRY_PAUSE: Duration = Duration::from_secs(30);
/// How often progress is told, in percent.
const STEP_PERCENT: u64 = 10;

/// Whether this machine, given this config, is to install itself: it runs from something else than a disk's slot, no
/// disk of it has a STATE, and the config names a disk.
pub(crate) fn is_due(installation: &Installation, config: &Config) -> bool {
    let install = &config.machine.install;
    install.names_a_disk()
        && !installation.runtime.parameters.no_install
        && !container::is_one(&installation.runtime)
        && !installation.runtime.boot.root_source.contains("(ROOT-")
        && installation.volumes.state().is_none()
}

/// The same, of the config in force.
pub(crate) fn is_due_now(installation: &Installation) -> bool {
    installation.runtime.config().is_some_and(|config| is_due(installation, &config))
}

/// Says what an installation with this config would do; `None` if there would be none. `whole`: with the plan.
pub(crate) async fn preview(
    installation: &Arc<Installation>,
    config: &Config,
    whole: bool,
) -> Result<Option<String>, Failure> {
    if !is_due(installation, config) {
        return Ok(None);
    }
    let (installation, install) = (installation.clone(), config.machine.install.clone());
    let source = match whole {
        true => source::choose(&installation.runtime, &install.image).await?,
        false => Source::Running,
    };
    blocking(move || {
        let chosen = pick(&installation.runtime, &install)?;
        secure_boot::check_arguments(&installation.runtime.root, &install.extra_kernel_args)
            .map_err(Failure::Other)?;
        if !whole {
            return Ok(Some(format!("Billet is installed to {}", chosen.describe())));
        }
        let prepared = Prepared::new(&installation.runtime, &source, &install)?;
        let mut disk = Disk::open(Path::new(&chosen.disk.dev_path))?;
        let spec = SpecParts::new(&prepared, &install, &chosen)?;
        let plan = writing::plan(&mut disk, identity(&chosen), &spec.borrow())?;
        Ok(Some(format!("Billet would be installed like this:\n{plan}")))
    })
    .await
}

/// Installs to the disk that the config names.
pub(crate) async fn run(installation: &Arc<Installation>) -> Result<(), Failure> {
    let config = installation
        .runtime
        .config()
        .ok_or_else(|| Failure::Other("there is no machine config".to_owned()))?;
    let (working, install) = (installation.clone(), config.machine.install.clone());
    let work = async {
        let source = source::choose(&installation.runtime, &install.image).await?;
        blocking(move || install_now(&working, &install, &source, &|_| {})).await
    };
    match work.await {
        Ok(path) => {
            installation.target.send_replace(Some(path));
            Ok(())
        }
        Err(failure) => {
            let waits = match failure {
                Failure::Refused(_) | Failure::Gone(_) => Waits::Disk,
                Failure::Image(..) => Waits::Registry,
                _ => Waits::Config,
            };
            tokio::spawn(again(installation.clone(), config, waits));
            Err(failure)
        }
    }
}

/// Installs an image to a disk because somebody asked for it, with the settings of the config if there is one, and
/// has `keep` put that config on it. An empty image is the running system, an empty disk the config's. `tell` hears of
/// every step.
pub(crate) async fn on_request(
    installation: &Arc<Installation>,
    image: &str,
    disk: &str,
    tell: Tell,
    keep: impl Future<Output = Result<(), String>>,
) -> Result<(), Failure> {
    if system_disk::slot(&installation.runtime).is_some() || installation.volumes.state().is_some() {
        return Err(Failure::Installed("this machine is installed: upgrade it, or reset it first"));
    }
    if container::is_one(&installation.runtime) {
        return Err(Failure::Installed(container::NOT_SUPPORTED));
    }
    let Some(_one_at_a_time) = installation.upgrades.try_begin() else {
        return Err(Failure::Installed("another installation or upgrade is under way"));
    };
    installation.orders.may_start(Order::Install).map_err(|locked| Failure::Other(locked.to_string()))?;
    let mut install =
        installation.runtime.config().map(|config| config.machine.install.clone()).unwrap_or_default();
    if !disk.is_empty() {
        install.disk = disk.to_owned();
        (install.disk_selector, install.disk_expression) = (None, String::new());
    }
    if !install.names_a_disk() {
        return Err(Failure::Refused(Refused::of_config("name the disk to install to".to_owned())));
    }
    let source = match image {
        "" => Source::Running,
        name => source::image(&installation.runtime, name)
            .await
            .map_err(|failure| Failure::Other(failure.to_string()))?,
    };
    let working = installation.clone();
    let path = blocking(move || install_now(&working, &install, &source, &tell)).await?;
    installation.target.send_replace(Some(path));
    match installation.runtime.config() {
        Some(_) => keep.await.map_err(Failure::Other),
        None => Ok(()),
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    runtime::request::blocking(work).await
}

/// What an installation that failed needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waits {
    Config,
    Disk,
    Registry,
}

/// Starts the sequence once more when the config says something else; if only a disk was missing, when there is one; if
/// only the image was, after a while.
async fn again(installation: Arc<Installation>, tried: Arc<Config>, waits: Waits) {
    let (mut config, mut devices) =
        (installation.runtime.config.subscribe(), installation.devices.subscribe());
    let (wants_disk, wants_image) = (waits == Waits::Disk, waits == Waits::Registry);
    loop {
        tokio::select! {
            changed = config.changed() => if changed.is_err() { return },
            changed = devices.changed(), if wants_disk => if changed.is_err() { return },
            () = tokio::time::sleep(REGISTRY_PAUSE), if wants_image => {}
        }
        tokio::time::sleep(BURST).await;
        devices.mark_unchanged();
        let Some(now) = installation.runtime.config().filter(|config| is_due(&installation, config)) else {
            return;
        };
        let other = now.machine.install != tried.machine.install;
        if other || wants_image || (wants_disk && preview(&installation, &now, false).await.is_ok()) {
            // Whoever runs now, a restart for instance, makes this needless.
            let _ = installation.orders.start(Order::Install, Start::default());
            return;
        }
    }
}

/// The disk that the config means.
fn pick(runtime: &Runtime, install: &Install) -> Result<Candidate, Refused> {
    let resolve = |path: &str| {
        let real = std::fs::canonicalize(path).ok()?;
        real.to_str().map(str::to_owned)
    };
    let wanted = Wanted::read(install, resolve).map_err(Refused::of_config)?;
    choose(&wanted, install.wipe, &disks::candidates(runtime)).cloned()
}

fn identity(chosen: &Candidate) -> Identity {
    let disk = &chosen.disk;
    Identity { path: disk.dev_path.clone(), model: disk.model.clone(), serial: disk.serial.clone() }
}

/// The parts of a [`Spec`] that it borrows.
struct SpecParts<'p> {
    prepared: &'p Prepared,
    loader: Vec<fat::File<'p>>,
    wipe: bool,
    seed: [u8; 32],
}

impl<'p> SpecParts<'p> {
    fn new(prepared: &'p Prepared, install: &Install, chosen: &Candidate) -> Result<Self, Failure> {
        let mut seed = [0; 32];
        let count = getrandom(&mut seed, GetRandomFlags::empty());
        if count != Ok(seed.len()) {
            return Err(Failure::Other("the kernel gives no random numbers".to_owned()));
        }
        let mut loader = vec![
            fat::File { path: boot_volume::loader_path(Architecture::OWN), content: &prepared.loader },
            fat::File { path: system::LOADER_CONFIG_PATH, content: prepared.loader_config.as_bytes() },
        ];
        loader.extend(prepared.addons.iter().map(|(path, content)| fat::File { path, content }));
        // A reset disk of ours holds nothing that anybody wants.
        let wipe = install.wipe || chosen.holds == Holds::Reset;
        Ok(Self { prepared, loader, wipe, seed })
    }

    fn borrow(&self) -> Spec<'_> {
        let system = NewSystem { uki: &self.prepared.uki, manifest: &self.prepared.manifest };
        let grub = self.prepared.grub.as_ref();
        Spec { grub, wipe: self.wipe, ..Spec::new(system, &self.loader, self.seed) }
    }
}

fn install_now(
    installation: &Installation,
    install: &Install,
    source: &Source,
    tell: &dyn Fn(&str),
) -> Result<PathBuf, Failure> {
    let chosen = pick(&installation.runtime, install)?;
    let path = PathBuf::from(&chosen.disk.dev_path);
    let prepared = Prepared::new(&installation.runtime, source, install)?;
    let parts = SpecParts::new(&prepared, install, &chosen)?;
    let spec = parts.borrow();
    let mut disk = Disk::open(&path)?;
    let plan = writing::plan(&mut disk, identity(&chosen), &spec)?;
    // On the descriptor that is written to, before the first write.
    disks::check_same(&installation.runtime, &chosen, &mut disk).map_err(Failure::Other)?;
    for line in plan.to_string().lines() {
        installation.runtime.journal.say(&format!("install plan: {line}"));
        tell(&format!("install plan: {line}"));
    }
    let mut told = ProgressReport::default();
    let mut layers = |layer: &Layer| prepared.layer(&installation.runtime, layer);
    let mut progress = |progress| told.tell(installation, progress, tell);
    let applied = writing::apply(&mut disk, &plan, &spec, &mut layers, &mut progress);
    // Writing to a disk that was pulled out fails in many ways.
    applied.map_err(|error| {
        if disk.is_gone() { Failure::Gone(chosen.disk.dev_path.clone()) } else { error.into() }
    })?;
    drop(disk);
    let done = format!("installed Billet {} to {}", prepared.manifest.version, path.display());
    installation.runtime.journal.say(&done);
    tell(&done);
    after(&installation.runtime, &path, &plan);
    Ok(path)
}

/// What makes the installed disk known: failing is said and stops nothing.
fn after(runtime: &Runtime, path: &Path, plan: &Plan) {
    if let Err(error) = system_disk::reread(path) {
        runtime.journal.warn(&error);
    }
    match firmware::add(&runtime.path(firmware::VARIABLES), &plan.table) {
        Ok(Some(name)) => {
            runtime.journal.say(&format!("the firmware starts {} first ({name})", path.display()))
        }
        Ok(None) => runtime.journal.say("no EFI variables: the firmware starts the disk by its own order"),
        Err(error) => {
            let hint = "the disk starts where firmware looks for EFI/BOOT by itself";
            runtime.journal.warn(&format!("add a boot entry to the firmware: {error}; {hint}"));
        }
    }
}

/// What was told of the progress.
#[derive(Default)]
struct ProgressReport {
    step: &'static str,
    percent: u64,
}

impl ProgressReport {
    fn tell(&mut self, installation: &Installation, progress: installer::Progress, tell: &dyn Fn(&str)) {
        if let Some(text) = self.next(progress) {
            tell(&format!("install: {text}"));
            installation.runtime.journal.progress(&format!("install: {text}"));
            let event =
                TaskEvent { task: format!("install: {text}"), action: task_event::Action::Start.into() };
            installation
                .runtime
                .events
                .publish(&installation.orders.actor_id(Order::Install), &Payload::Task(event));
        }
    }

    /// What there is to tell, a line each [`STEP_PERCENT`].
    fn next(&mut self, progress: installer::Progress) -> Option<String> {
        let percent = match progress.total_bytes {
            0 => 100,
            total => progress.done_bytes.saturating_mul(100) / total,
        };
        let due = progress.step != self.step || percent >= self.percent + STEP_PERCENT;
        if !due {
            return None;
        }
        (self.step, self.percent) = (progress.step, percent / STEP_PERCENT * STEP_PERCENT);
        Some(format!("{} {percent} %", progress.step))
    }
}

#[cfg(test)]
mod tests;
