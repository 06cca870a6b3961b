//! The config on STATE, as clients see it: what the next start of the machine takes.
//!
//! Owns: `MachineConfigs/persistent`, and whether it waits: with `--mode staged` it is another one than the config in force.
//! Order: shown after it is on STATE and before the answer leaves. A change that is made from it loses nothing that waits.
//! Fails by: a warning in the log; without STATE there is none.

use std::collections::BTreeSet;
use std::sync::Arc;

use runtime::store::{MACHINE_CONFIG, MachineDocument, PERSISTENT, Resource, Spec};
use zeroize::Zeroizing;

use super::change::Change;
use super::pending::Kind;
use super::state::CONFIG;
use super::{Judged, judge};
use crate::node::Node;

/// Shows what is on STATE now. A text that this version does not take is not shown: nothing can be made from it.
pub(super) fn publish(node: &Node) {
    let Some(state) = node.configuration.state() else { return };
    let text = match state.read(CONFIG) {
        Ok(Some(text)) => text,
        Ok(None) => return,
        Err(error) => {
            return node.runtime.journal.warn(&format!("read the machine config on STATE: {error}"));
        }
    };
    let Ok(Judged { config, documents, .. }) = judge(node, &text) else { return };
    let spec = Spec::MachineConfig(Arc::new(MachineDocument { text, config, documents }));
    if let Err(error) = node.runtime.store.put(MACHINE_CONFIG.writer, &MACHINE_CONFIG, PERSISTENT, spec) {
        node.runtime.journal.warn(&error.to_string());
    }
}

/// The resource, if it waits for the restart.
pub(super) fn waiting(node: &Node) -> Option<Arc<Resource>> {
    let kept = node.runtime.store.get(&MACHINE_CONFIG, PERSISTENT)?;
    // A config that is tried is on no disk: what it returns to is in force again soon.
    let tried = node.configuration.pending().filter(|pending| pending.kind == Kind::Try);
    let in_force = tried.map(|tried| tried.previous).or_else(|| super::text_in_force(node))?;
    (*text(&kept)? != in_force).then_some(kept)
}

fn text(resource: &Resource) -> Option<&Zeroizing<String>> {
    match &resource.spec {
        Spec::MachineConfig(document) => Some(&document.text),
        _ => None,
    }
}

/// Which fields and documents wait for the restart and are not in this text: it takes them back.
pub(super) fn taken_back(node: &Node, new: &str) -> Vec<String> {
    let (Some(waiting), Some(in_force)) = (waiting(node), super::text_in_force(node)) else {
        return Vec::new();
    };
    let Some(waiting) = text(&waiting) else { return Vec::new() };
    let paths = |old: &str, new: &str| -> BTreeSet<String> {
        let change = Change::between(old, new).unwrap_or_default();
        change.paths().map(str::to_owned).collect()
    };
    paths(&in_force, waiting).intersection(&paths(waiting, new)).cloned().collect()
}
