//! The machine config of a running node: where it comes from, how it changes, how it is kept.
//!
//! | part | owns |
//! |---|---|
//! | [`source`], [`found`], [`volume`], [`bundle`], [`http`], [`address`] | finding a config |
//! | [`files`] | its files on STATE |
//! | [`change`], [`plan`] | pure: what differs, what that takes, which mode does what |
//! | [`apply`] | one change from request to answer |
//! | [`kept`] | the config on STATE as clients see it |
//! | [`handle`], [`waiting`] | what the node remembers besides the config |
//! | [`pending`] | changes that undo themselves |
//! | [`refused`] | what `Diagnostics` says of configs that are not taken |
//! | [`maintenance`] | what such a node shows and says |
//!
//! Order: a change is on the disk before it is acknowledged, and in force after it.

mod address;
pub(crate) mod apply;
mod bundle;
pub(crate) mod change;
mod files;
pub(crate) mod found;
mod handle;
mod http;
mod kept;
pub(crate) mod maintenance;
pub(crate) mod pending;
pub(crate) mod plan;
pub(crate) mod refused;
pub(crate) mod source;
mod volume;
pub(crate) mod waiting;

use std::sync::Arc;
use std::time::Duration;

use zeroize::Zeroizing;

pub(crate) use handle::{Configuration, Parts};

use crate::locked::{Look, Maintenance, Memory};
use crate::{system_disk, volumes};
use runtime::Runtime;
use runtime::checkpoint::Keep;
use runtime::store::{IN_FORCE, MACHINE_CONFIG, MachineDocument, Spec};

/// No config is larger, wherever it comes from.
const MAX_BYTES: u64 = config::MAX_BYTES as u64;

/// No refusal is longer: it travels in a header, escaped to up to three times this, and readers take 16 KiB of headers.
const MAX_REFUSAL_BYTES: usize = 4000;

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
struct CheckedConfig {
    config: config::Config,
    documents: Vec<config::Document>,
    warnings: Vec<String>,
    /// Why a machine with it is out of reach: for a new config a fault, for one that is there a warning.
    out_of_reach: Option<config::Diagnostic>,
}

/// Reads and validates a config; with the warnings.
fn check(runtime: &Runtime, text: &str) -> Result<CheckedConfig, Wrong> {
    let loaded = config::load(text.as_bytes()).map_err(|e| Wrong::Parse(e.brief(MAX_REFUSAL_BYTES)))?;
    let mode = config::Mode::of_platform(&runtime.parameters.platform);
    let more = loaded.validate(mode).map_err(|e| Wrong::Validate(e.brief(MAX_REFUSAL_BYTES)))?;
    let warnings = loaded.warnings.iter().chain(&more).map(bare).collect();
    let out_of_reach = loaded.lacks_authority();
    Ok(CheckedConfig { config: loaded.config, documents: loaded.documents, warnings, out_of_reach })
}

/// What a diagnostic says without its severity: whoever prints a warning says that it is one.
fn bare(diagnostic: &config::Diagnostic) -> String {
    let text = diagnostic.to_string();
    text.strip_prefix("warning: ").or_else(|| text.strip_prefix("error: ")).unwrap_or(&text).to_owned()
}

/// Puts a config into force and keeps a copy for the next machined.
pub(crate) fn put_into_force(configuration: &Configuration, text: Zeroizing<String>) -> Result<(), Wrong> {
    publish(configuration, text)?;
    take_effect(configuration);
    Ok(())
}

/// Makes a config the one that clients read and that the next change starts from; its effect comes after.
fn publish(configuration: &Configuration, text: Zeroizing<String>) -> Result<(), Wrong> {
    let CheckedConfig { config: parsed, documents, warnings, out_of_reach } =
        check(&configuration.runtime, &text)?;
    for warning in warnings.into_iter().chain(out_of_reach.as_ref().map(bare)) {
        configuration.runtime.journal.warn(&format!("machine config: {warning}"));
    }
    if let Err(error) = Keep::save(Keep::CONFIG, &text, &configuration.runtime.init) {
        configuration.runtime.journal.warn(&format!("keep the machine config for a restart: {error}"));
    }
    if configuration.register.keeps(change::is_for_keeps(&text)) {
        // Keys of the TPM demand another next start.
        configuration.volumes.bring_anew();
    }
    let spec = Spec::MachineConfig(Arc::new(MachineDocument::new(text, parsed, documents)));
    if let Err(error) =
        configuration.runtime.store.put(MACHINE_CONFIG.writer, &MACHINE_CONFIG, IN_FORCE, spec)
    {
        configuration.runtime.journal.warn(&error.to_string());
    }
    show_kept(configuration);
    refused::forget_all(&configuration.runtime);
    Ok(())
}

/// Shows the config that is on STATE now. A text that this version does not take is not shown: nothing can be made from it.
fn show_kept(configuration: &Configuration) {
    let Some(state) = configuration.volumes.state() else { return };
    let text = match state.read(files::CONFIG) {
        Ok(Some(text)) => text,
        Ok(None) => return,
        Err(error) => {
            return configuration.runtime.journal.warn(&format!("read the machine config on STATE: {error}"));
        }
    };
    // Mostly it is the config in force, which is read already.
    if let Some(in_force) = configuration.runtime.document().filter(|document| document.text == text) {
        kept::show(configuration, in_force);
    } else if let Ok(CheckedConfig { config, documents, .. }) = check(&configuration.runtime, &text) {
        kept::show(configuration, Arc::new(MachineDocument::new(text, config, documents)));
    }
}

/// Gives the node the config that is published now, which may be a later one than the caller's.
fn take_effect(configuration: &Configuration) {
    let Some(resource) = configuration.runtime.store.get(&MACHINE_CONFIG, IN_FORCE) else { return };
    let Spec::MachineConfig(document) = &resource.spec else { return };
    configuration.runtime.config.send_replace(Some(document.config.clone()));
    configuration.maintenance.send_replace(Maintenance::No);
}

/// Notes in META that this machine has a config on STATE: it is not given one by others when STATE is not there any more.
/// Once the config is on STATE. Blocks.
pub(crate) fn remember(configuration: &Configuration) {
    let tag = installer::meta::tags::CONFIGURED;
    // A value in memory would say nothing to the next boot.
    if configuration.volumes.state().is_none()
        || configuration.meta.device().is_none()
        || configuration.meta.get(tag).is_some()
    {
        return;
    }
    if let Err(error) = configuration.meta.set_now(tag, b"1") {
        configuration
            .runtime
            .journal
            .warn(&format!("note in META that this machine has a configuration: {error}"));
    }
}

/// What META of this machine's disk says of a config. Blocks.
pub(crate) fn memory(configuration: &Configuration) -> Memory {
    if configuration.meta.device().is_none()
        && let Err(error) = crate::meta::try_open_on_system_disk(&configuration.runtime, &configuration.meta)
    {
        return Memory::Unreadable(error);
    }
    match configuration.meta.get(installer::meta::tags::CONFIGURED) {
        Some(_) => Memory::Configured,
        None => Memory::Nothing,
    }
}

/// The text of the config in force.
pub(crate) fn text_in_force(runtime: &Runtime) -> Option<Zeroizing<String>> {
    let resource = runtime.store.get(&MACHINE_CONFIG, IN_FORCE)?;
    match &resource.spec {
        Spec::MachineConfig(document) => Some(document.text.clone()),
        _ => None,
    }
}

/// Mounts STATE if it is there, and shows its config; says what keeps it from that. Blocks.
pub(crate) fn look_for_state(configuration: &Configuration) -> Look {
    let was_there = configuration.volumes.state().is_some();
    let look = configuration.volumes.look_for_state();
    if !was_there && look == Look::Mounted {
        show_kept(configuration);
    }
    look
}

/// What a config says, if it may be used.
pub(crate) fn read(runtime: &Runtime, text: &str) -> Result<config::Config, Wrong> {
    check(runtime, text).map(|checked| checked.config)
}

/// The config that the node returns to if the one in force is not confirmed.
fn way_back(configuration: &Configuration) -> Option<(config::Config, Vec<config::Document>)> {
    let pending = configuration.pending()?;
    check(&configuration.runtime, &pending.previous).ok().map(|checked| (checked.config, checked.documents))
}

/// Keeps the config that was just taken on STATE, if there is one.
pub(crate) fn keep_on_state(configuration: &Configuration, text: &str) {
    let Some(state) = configuration.volumes.state() else { return };
    match state.write(files::CONFIG, text) {
        Ok(()) => {
            remember(configuration);
            show_kept(configuration);
        }
        Err(error) => {
            configuration.runtime.journal.warn(&format!("keep the machine config on STATE: {error}"))
        }
    }
}

/// Makes STATE on the disk that was installed to and keeps the config there.
pub(crate) async fn keep_on_installed(configuration: &Configuration) -> Result<(), String> {
    let target = configuration.install.target();
    // Another machined installed: by now there is exactly one such disk.
    let target = target.or_else(|| system_disk::known(&configuration.runtime).map(|disk| disk.path));
    let target = target.ok_or("no disk of this machine was installed to")?;
    let text = text_in_force(&configuration.runtime).ok_or("there is no machine config")?;
    let state = volumes::provision(&configuration.volumes, &target).await?;
    state.write(files::CONFIG, &text)?;
    remember(configuration);
    show_kept(configuration);
    configuration
        .runtime
        .journal
        .say(&format!("the machine config is kept on STATE of {}", target.display()));
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
    use crate::volumes::State;

    #[tokio::test]
    async fn a_config_that_is_applied_again_stays_the_one_in_force() {
        let dir = tempfile::tempdir().unwrap();
        let configuration = crate::server::tests_node(dir.path().join("root")).configuration.clone();
        let runtime = &configuration.runtime;
        let put = |name: &str| {
            let text = format!(
                "version: v1alpha1\ncluster: {{controlPlane: {{endpoint: 'https://10.0.0.1:6443'}}}}\nmachine: {{type: worker, \
                 token: a.b, install: {{disk: /dev/vda}}, network: {{hostname: {name}}}}}\n"
            );
            put_into_force(&configuration, Zeroizing::new(text)).unwrap();
            (runtime.document().unwrap(), runtime.config().unwrap())
        };
        let (first, config) = put("n1");
        assert!(Arc::ptr_eq(&first.config, &config), "it is held once");
        let (again, same) = put("n1");
        assert!(Arc::ptr_eq(&first, &again) && Arc::ptr_eq(&config, &same));
        let (other, changed) = put("n2");
        assert!(!Arc::ptr_eq(&first, &other) && Arc::ptr_eq(&other.config, &changed));
        assert_eq!(changed.machine.network.hostname, "n2");
    }

    #[test]
    fn meta_remembers_a_config_only_where_it_outlives_the_boot() {
        let dir = tempfile::tempdir().unwrap();
        let configuration = crate::server::tests_node(dir.path().join("root")).configuration.clone();
        remember(&configuration);
        configuration.volumes.set_state(State::at(dir.path()));
        remember(&configuration);
        assert_eq!(memory(&configuration), Memory::Nothing, "values in memory are lost with it");
        let meta = dir.path().join("meta.img");
        std::fs::File::create(&meta).unwrap().set_len(ondisk::meta::PARTITION_BYTES).unwrap();
        configuration.meta.open(&meta).unwrap();
        remember(&configuration);
        assert_eq!(memory(&configuration), Memory::Configured);
        let mut disk = installer::device::Disk::open_shared(&meta).unwrap();
        installer::meta::end_reset(&mut disk, false).unwrap();
        configuration.meta.refresh().unwrap();
        assert_eq!(memory(&configuration), Memory::Configured, "STATE was not wiped");
        installer::meta::end_reset(&mut disk, true).unwrap();
        configuration.meta.refresh().unwrap();
        assert_eq!(memory(&configuration), Memory::Nothing);
    }
}
