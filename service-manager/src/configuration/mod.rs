//! The machine config of a running node: where it comes from, how it changes, how it is kept.
//!
//! | part | owns |
//! |---|---|
//! | [`source`], [`volume`], [`bundle`], [`http`], [`address`] | finding a config |
//! | [`state`] | the partition STATE and files on it |
//! | [`change`], [`plan`] | pure: what differs, what that takes, which mode does what |
//! | [`apply`] | one change from request to answer |
//! | [`kept`] | the config on STATE as clients see it |
//! | [`pending`] | changes that undo themselves |
//! | [`refused`] | what `Diagnostics` says of configs that are not taken |
//! | [`maintenance`] | what such a node shows and says |
//!
//! Order: a change is on the disk before it is acknowledged, and in force after it.

mod address;
pub(crate) mod apply;
mod bundle;
pub(crate) mod change;
mod http;
mod kept;
pub(crate) mod maintenance;
pub(crate) mod pending;
pub(crate) mod plan;
pub(crate) mod refused;
pub(crate) mod source;
mod state;
mod volume;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use zeroize::Zeroizing;

use crate::locked::{Look, Maintenance, Memory};
use crate::node::Node;
use pending::{AtBoot, Pending};
use runtime::checkpoint::Keep;
use runtime::store::{IN_FORCE, MACHINE_CONFIG, MachineDocument, Spec};
use state::Found;
pub(crate) use state::{MOUNT_POINT, State, mount_volume};

/// No config is larger, wherever it comes from.
const MAX_BYTES: u64 = config::MAX_BYTES as u64;

/// No refusal is longer: it travels in a header, escaped to up to three times this, and readers take 16 KiB of headers.
const MAX_REFUSAL_BYTES: usize = 4000;

/// What the node remembers about its config besides the config.
pub struct Configuration {
    state: watch::Sender<Option<State>>,
    /// Disks that were there at the start have their drivers, and the kernel has looked at them.
    pub(crate) disks_settled: watch::Sender<bool>,
    /// Drivers of all devices that were there at the start are loaded.
    pub(crate) settled: watch::Sender<bool>,
    /// How the node waits for a config, if it does.
    pub(crate) maintenance: watch::Sender<Maintenance>,
    /// Held by whoever changes the config.
    busy: tokio::sync::Mutex<()>,
    /// A config was applied that takes a restart.
    rebooting: AtomicBool,
    pending: Mutex<Option<Pending>>,
    generation: AtomicU64,
}

impl Default for Configuration {
    fn default() -> Self {
        Self {
            state: watch::channel(None).0,
            disks_settled: watch::channel(false).0,
            settled: watch::channel(false).0,
            maintenance: watch::channel(Maintenance::No).0,
            busy: tokio::sync::Mutex::new(()),
            rebooting: AtomicBool::new(false),
            pending: Mutex::new(None),
            generation: AtomicU64::new(0),
        }
    }
}

impl Configuration {
    /// The mounted STATE.
    pub(crate) fn state(&self) -> Option<State> {
        self.state.borrow().clone()
    }

    /// The mounted STATE, as it comes and goes.
    pub(crate) fn states(&self) -> watch::Receiver<Option<State>> {
        self.state.subscribe()
    }

    /// STATE was mounted.
    pub(crate) fn set_state(&self, state: State) {
        self.state.send_replace(Some(state));
    }

    /// STATE goes out of use.
    pub(crate) fn forget_state(&self) {
        self.state.send_replace(None);
    }

    fn pending(&self) -> Option<Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces what is pending; the clock of the old one sees that its generation is over.
    fn set_pending(&self, pending: Option<Pending>) -> u64 {
        let mut slot = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        *slot = pending;
        self.generation.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }
}

/// Why a text is no config.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Wrong {
    /// It cannot be read.
    #[error("failed to parse config: {0}")]
    Parse(String),
    /// It says something impossible.
    #[error("configuration validation failed: {0}")]
    Validate(String),
}

/// A config that may be used.
struct Judged {
    config: config::Config,
    documents: Vec<config::Document>,
    warnings: Vec<String>,
    /// Why a machine with it is out of reach: for a new config a fault, for one that is there a warning.
    out_of_reach: Option<config::Diagnostic>,
}

/// Reads and judges a config; with the warnings.
fn judge(node: &Node, text: &str) -> Result<Judged, Wrong> {
    let loaded = config::load(text.as_bytes()).map_err(|e| Wrong::Parse(e.brief(MAX_REFUSAL_BYTES)))?;
    let mode = config::Mode::of_platform(&node.runtime.parameters.platform);
    let more = loaded.validate(mode).map_err(|e| Wrong::Validate(e.brief(MAX_REFUSAL_BYTES)))?;
    let warnings = loaded.warnings.iter().chain(&more).map(bare).collect();
    let out_of_reach = loaded.lacks_authority();
    Ok(Judged { config: loaded.config, documents: loaded.documents, warnings, out_of_reach })
}

/// What a diagnostic says without its severity: whoever prints a warning says that it is one.
fn bare(diagnostic: &config::Diagnostic) -> String {
    let text = diagnostic.to_string();
    text.strip_prefix("warning: ").or_else(|| text.strip_prefix("error: ")).unwrap_or(&text).to_owned()
}

/// Puts a config into force and keeps a copy for the next machined.
pub(crate) fn put_into_force(node: &Node, text: Zeroizing<String>) -> Result<(), Wrong> {
    publish(node, text)?;
    take_effect(node);
    Ok(())
}

/// Makes a config the one that clients read and that the next change starts from; its effect comes after.
fn publish(node: &Node, text: Zeroizing<String>) -> Result<(), Wrong> {
    let Judged { config: parsed, documents, warnings, out_of_reach } = judge(node, &text)?;
    for warning in warnings.into_iter().chain(out_of_reach.as_ref().map(bare)) {
        node.runtime.journal.warn(&format!("machine config: {warning}"));
    }
    if let Err(error) = Keep::save(Keep::CONFIG, &text, &node.runtime.init) {
        node.runtime.journal.warn(&format!("keep the machine config for a restart: {error}"));
    }
    if node.register.keeps(change::is_for_keeps(&text)) {
        // Keys of the TPM demand another next start.
        node.volumes.bring_anew();
    }
    let document = MachineDocument { text, config: parsed, documents };
    let spec = Spec::MachineConfig(Arc::new(document));
    if let Err(error) = node.runtime.store.put(MACHINE_CONFIG.writer, &MACHINE_CONFIG, IN_FORCE, spec) {
        node.runtime.journal.warn(&error.to_string());
    }
    show_kept(node);
    refused::forget_all(node);
    Ok(())
}

/// Shows the config that is on STATE now. A text that this version does not take is not shown: nothing can be made from it.
fn show_kept(node: &Node) {
    let Some(state) = node.configuration.state() else { return };
    let text = match state.read(state::CONFIG) {
        Ok(Some(text)) => text,
        Ok(None) => return,
        Err(error) => {
            return node.runtime.journal.warn(&format!("read the machine config on STATE: {error}"));
        }
    };
    if let Ok(Judged { config, documents, .. }) = judge(node, &text) {
        kept::show(node, MachineDocument { text, config, documents });
    }
}

/// Gives the node the config that is published now, which may be a later one than the caller's.
fn take_effect(node: &Node) {
    let Some(resource) = node.runtime.store.get(&MACHINE_CONFIG, IN_FORCE) else { return };
    let Spec::MachineConfig(document) = &resource.spec else { return };
    node.runtime.config.send_replace(Some(Arc::new(document.config.clone())));
    node.configuration.maintenance.send_replace(Maintenance::No);
}

/// Notes in META that this machine has a config on STATE: it is not given one by others when STATE is not there any more.
/// Once the config is on STATE. Blocks.
pub(crate) fn remember(node: &Node) {
    let tag = installer::meta::tags::CONFIGURED;
    // A value in memory would say nothing to the next boot.
    if node.configuration.state().is_none() || node.meta.device().is_none() || node.meta.get(tag).is_some() {
        return;
    }
    if let Err(error) = node.meta.set_now(tag, b"1") {
        node.runtime.journal.warn(&format!("note in META that this machine has a configuration: {error}"));
    }
}

/// What META of this machine's disk says of a config. Blocks.
pub(crate) fn memory(node: &Node) -> Memory {
    if node.meta.device().is_none()
        && let Err(error) = crate::meta::try_open_on_system_disk(&node.runtime, &node.meta)
    {
        return Memory::Unreadable(error);
    }
    match node.meta.get(installer::meta::tags::CONFIGURED) {
        Some(_) => Memory::Configured,
        None => Memory::Nothing,
    }
}

/// The text of the config in force.
pub(crate) fn text_in_force(node: &Node) -> Option<Zeroizing<String>> {
    let resource = node.runtime.store.get(&MACHINE_CONFIG, IN_FORCE)?;
    match &resource.spec {
        Spec::MachineConfig(document) => Some(document.text.clone()),
        _ => None,
    }
}

/// Mounts STATE if it is there; says what keeps it from that. Blocks.
pub(crate) fn look_for_state(node: &Node) -> Look {
    look_in(node, Path::new(crate::block::CLASS))
}

fn several(devices: &[PathBuf]) -> Look {
    let names: Vec<String> = devices.iter().map(|device| device.display().to_string()).collect();
    let names = names.join(", ");
    Look::Several(format!(
        "several partitions are labelled STATE ({names}): none is used; detach or relabel all but one"
    ))
}

fn look_in(node: &Node, class: &Path) -> Look {
    if node.configuration.state().is_some() {
        return Look::Mounted;
    }
    if let Some(state) = State::mounted() {
        node.configuration.set_state(state);
        show_kept(node);
        return Look::Mounted;
    }
    let device = match state::find(class) {
        Found::Nothing => return Look::Nothing,
        Found::One(device) => device,
        Found::Several(devices) => return several(&devices),
    };
    let mounted = match crate::volumes::usable(node, &device) {
        Ok(None) => return Look::Empty,
        Ok(Some(device)) => State::mount(&device).map(|state| (state, device)),
        Err(why) => return Look::Closed(why),
    };
    match mounted {
        Ok((state, device)) => {
            // Opening and mounting take time, in which another disk may have come.
            if let Found::Several(devices) = state::find(class) {
                if let Err(why) = State::unmount() {
                    node.runtime.journal.warn(&format!("STATE on {}: {why}", device.display()));
                }
                return several(&devices);
            }
            node.runtime.journal.say(&format!("STATE is {}", device.display()));
            // Set twice only by two looks at the same partition.
            node.configuration.set_state(state);
            show_kept(node);
            Look::Mounted
        }
        Err(why) => Look::Closed(why),
    }
}

/// What a config says, if it may be used.
pub(crate) fn read(node: &Node, text: &str) -> Result<config::Config, Wrong> {
    judge(node, text).map(|judged| judged.config)
}

/// The config that the node returns to if the one in force is not confirmed.
pub(crate) fn way_back(node: &Node) -> Option<(config::Config, Vec<config::Document>)> {
    let pending = node.configuration.pending()?;
    judge(node, &pending.previous).ok().map(|judged| (judged.config, judged.documents))
}

/// Looks whether the config on STATE waits for confirmation. Once a boot, before it is read.
pub(crate) fn begin_boot(node: &Arc<Node>) -> Option<Pending> {
    let state = node.configuration.state()?;
    match pending::at_boot(&state) {
        Ok(AtBoot::Waits(pending)) => Some(pending),
        Ok(AtBoot::GivenUp(reason)) => {
            pending::report(node, &reason);
            None
        }
        Ok(AtBoot::Settled) => {
            if let Ok(Some(note)) = state.read(state::RETURNED) {
                pending::report(node, note.trim());
                // Said once; the log and the events have it now.
                let _ = state.remove(state::RETURNED);
            }
            None
        }
        Err(error) => {
            node.runtime.journal.warn(&format!("read what is pending on STATE: {error}"));
            None
        }
    }
}

/// Keeps the config that was just taken on STATE, if there is one.
pub(crate) fn keep_on_state(node: &Node, text: &str) {
    let Some(state) = node.configuration.state() else { return };
    match state.write(state::CONFIG, text) {
        Ok(()) => {
            remember(node);
            show_kept(node);
        }
        Err(error) => node.runtime.journal.warn(&format!("keep the machine config on STATE: {error}")),
    }
}

/// Keeps a config on a STATE that was just made.
pub(crate) fn save(node: &Node, state: &State, text: &str) -> Result<(), String> {
    state.write(state::CONFIG, text)?;
    remember(node);
    show_kept(node);
    Ok(())
}

/// A length of time from the wire; `None` for none, nonsense and zero.
pub(crate) fn duration(wire: Option<&prost_types::Duration>) -> Option<Duration> {
    let wire = wire?;
    let time = Duration::new(u64::try_from(wire.seconds).ok()?, u32::try_from(wire.nanos).ok()?);
    (!time.is_zero()).then_some(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_states_are_named_and_lock_the_machine() {
        let dir = tempfile::tempdir().unwrap();
        let node = crate::server::tests_node(dir.path().join("root"));
        let class = dir.path().join("class");
        std::fs::create_dir(&class).unwrap();
        assert_eq!(look_in(&node, &class), Look::Nothing);
        for name in ["vda5", "vdb1"] {
            std::fs::create_dir(class.join(name)).unwrap();
            std::fs::write(class.join(name).join("uevent"), "PARTNAME=STATE\n").unwrap();
        }
        let look = look_in(&node, &class);
        assert!(matches!(&look, Look::Several(why) if why.contains("(/dev/vda5, /dev/vdb1)")), "{look:?}");
        assert!(crate::locked::decide(&look, &memory(&node), false).lock().is_some());
    }

    #[test]
    fn meta_remembers_a_config_only_where_it_outlives_the_boot() {
        let dir = tempfile::tempdir().unwrap();
        let node = crate::server::tests_node(dir.path().join("root"));
        remember(&node);
        node.configuration.set_state(State::at(dir.path()));
        remember(&node);
        assert_eq!(memory(&node), Memory::Nothing, "values in memory are lost with it");
        let meta = dir.path().join("meta.img");
        std::fs::File::create(&meta).unwrap().set_len(ondisk::meta::PARTITION_BYTES).unwrap();
        node.meta.open(&meta).unwrap();
        remember(&node);
        assert_eq!(memory(&node), Memory::Configured);
        let mut disk = installer::device::Disk::open_shared(&meta).unwrap();
        installer::meta::end_reset(&mut disk, false).unwrap();
        node.meta.refresh().unwrap();
        assert_eq!(memory(&node), Memory::Configured, "STATE was not wiped");
        installer::meta::end_reset(&mut disk, true).unwrap();
        node.meta.refresh().unwrap();
        assert_eq!(memory(&node), Memory::Nothing);
    }
}
