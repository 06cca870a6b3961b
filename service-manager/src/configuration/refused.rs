//! Machine configs that this node was given and does not take: what `Diagnostics` says of them.
//!
//! Owns: one resource a place, until a config is taken or the place has none any more.
//! Does not: keep a value: what `crates/config` says of a config names no secret, addresses lose user information and queries.

use ondisk::printable::shown;
use ondisk::redact::redacted;
use runtime::store::{CONFIG_REFUSAL, ConfigRefusal, RuntimeSpec, Spec};

use crate::node::Node;

/// What is kept of a reason. The whole of it is in the log and in the client's answer.
const MAX_REASON_BYTES: usize = 1000;

/// Where a refused config lies or came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The partition STATE.
    State,
    /// Image, kernel parameter, volume, bundle or server.
    Outside,
    /// A client's call.
    Call,
}

impl Place {
    fn id(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Outside => "outside",
            Self::Call => "call",
        }
    }
}

/// Notes why a config is not taken. The same reason again keeps its time.
pub(crate) fn note(node: &Node, place: Place, reason: &str) {
    let refusal = ConfigRefusal { reason: brief(&shown(&redacted(reason))) };
    let spec = Spec::Runtime(RuntimeSpec::ConfigRefusal(refusal));
    if let Err(error) = node.runtime.store.put(CONFIG_REFUSAL.writer, &CONFIG_REFUSAL, place.id(), spec) {
        node.runtime.journal.warn(&error.to_string());
    }
}

/// There is no refused config in this place any more.
pub(crate) fn forget(node: &Node, place: Place) {
    if let Err(error) = node.runtime.store.remove(CONFIG_REFUSAL.writer, &CONFIG_REFUSAL, place.id()) {
        node.runtime.journal.warn(&error.to_string());
    }
}

/// A config was taken.
pub(super) fn forget_all(node: &Node) {
    for place in [Place::State, Place::Outside, Place::Call] {
        forget(node, place);
    }
}

/// Its beginning.
fn brief(text: &str) -> String {
    if text.len() <= MAX_REASON_BYTES {
        return text.to_owned();
    }
    let end = (0..=MAX_REASON_BYTES).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    format!("{}…", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(node: &Node, place: Place) -> Option<String> {
        match &node.runtime.store.get(&CONFIG_REFUSAL, place.id())?.spec {
            Spec::Runtime(RuntimeSpec::ConfigRefusal(refusal)) => Some(refusal.reason.clone()),
            _ => None,
        }
    }

    #[test]
    fn reasons_are_short_and_without_what_opens_a_server() {
        let dir = tempfile::tempdir().unwrap();
        let node = crate::server::tests_node(dir.path().to_owned());
        note(&node, Place::Outside, "fetch https://me:geheim@a.example/c?code=s3cret: \u{1b}[2J");
        let found = reason(&node, Place::Outside).unwrap();
        assert!(found.contains("a.example/c"), "{found}");
        for hidden in ["geheim", "s3cret", "\u{1b}"] {
            assert!(!found.contains(hidden), "{found}");
        }
        note(&node, Place::Call, &"ä".repeat(5_000));
        let found = reason(&node, Place::Call).unwrap();
        assert!(found.len() <= MAX_REASON_BYTES + '…'.len_utf8() && found.ends_with("ä…"));
        forget(&node, Place::Outside);
        assert!(reason(&node, Place::Outside).is_none() && reason(&node, Place::Call).is_some());
        forget_all(&node);
        assert!(reason(&node, Place::Call).is_none());
    }

    #[test]
    fn the_same_reason_again_keeps_its_time() {
        let dir = tempfile::tempdir().unwrap();
        let node = crate::server::tests_node(dir.path().to_owned());
        let version = || node.runtime.store.get(&CONFIG_REFUSAL, "state").unwrap().metadata.version;
        note(&node, Place::State, "line 3: no such field");
        let first = version();
        note(&node, Place::State, "line 3: no such field");
        assert_eq!(version(), first);
        note(&node, Place::State, "line 4: no such field");
        assert_ne!(version(), first);
    }
}
