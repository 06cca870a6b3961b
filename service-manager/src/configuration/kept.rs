//! The config on STATE, as clients see it: what the next start of the machine takes.
//!
//! Owns: `MachineConfigs/persistent`, and whether it waits: with `--mode staged` it is another one than the config in force.
//! Order: shown after it is on STATE and before the answer leaves. A change that is made from it loses nothing that waits.
//! Fails by: a warning in the log; without STATE there is none.

use std::collections::BTreeSet;
use std::sync::Arc;

use runtime::store::{IN_FORCE, MACHINE_CONFIG, MachineDocument, PERSISTENT, Resource, Spec};

use super::change::Change;
use super::handle::Configuration;

/// Shows this as what is on STATE.
pub(super) fn show(configuration: &Configuration, document: Arc<MachineDocument>) {
    let spec = Spec::MachineConfig(document);
    if let Err(error) =
        configuration.runtime.store.put(MACHINE_CONFIG.writer, &MACHINE_CONFIG, PERSISTENT, spec)
    {
        configuration.runtime.journal.warn(&error.to_string());
    }
}

/// The resource, if it waits for the restart.
pub(super) fn waiting(configuration: &Configuration) -> Option<Arc<Resource>> {
    let kept = configuration.runtime.store.get(&MACHINE_CONFIG, PERSISTENT)?;
    // A config that is tried is on no disk: what it returns to is in force again soon.
    let tried = configuration.pending().filter(|pending| pending.is_try());
    let in_force = match &tried {
        Some(tried) => tried.previous.to_string(),
        None => text(&*configuration.runtime.store.get(&MACHINE_CONFIG, IN_FORCE)?)?.to_owned(),
    };
    (text(&kept)? != in_force).then_some(kept)
}

fn text(resource: &Resource) -> Option<&str> {
    match &resource.spec {
        Spec::MachineConfig(document) => Some(&document.text),
        _ => None,
    }
}

/// Which fields and documents wait for the restart and are not in this text: it takes them back.
pub(super) fn taken_back(configuration: &Configuration, new: &str) -> Vec<String> {
    let in_force = configuration.runtime.store.get(&MACHINE_CONFIG, IN_FORCE);
    let (Some(waiting), Some(in_force)) = (waiting(configuration), in_force) else { return Vec::new() };
    let (Some(waiting), Some(in_force)) = (text(&waiting), text(&in_force)) else { return Vec::new() };
    let paths = |old: &str, new: &str| -> BTreeSet<String> {
        let change = Change::between(old, new).unwrap_or_default();
        change.paths().map(str::to_owned).collect()
    };
    paths(in_force, waiting).intersection(&paths(waiting, new)).cloned().collect()
}
