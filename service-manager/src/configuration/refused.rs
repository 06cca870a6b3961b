//! Machine configs that this node was given and does not take: what `Diagnostics` says of them.
//!
//! Owns: one resource a place, until a config is taken or the place has none any more.
//! Does not: keep a value: what `crates/config` says of a config names no secret, addresses lose user information and queries.

use ondisk::printable::shown;
use ondisk::redact::redacted;
use runtime::Runtime;
use runtime::store::{CONFIG_REFUSAL, ConfigRefusal, RuntimeSpec, Spec};

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
pub(crate) fn note(runtime: &Runtime, place: Place, reason: &str) {
    let refusal = ConfigRefusal { reason: brief(&shown(&redacted(reason))) };
    let spec = Spec::Runtime(RuntimeSpec::ConfigRefusal(refusal));
    if let Err(error) = runtime.store.put(CONFIG_REFUSAL.writer, &CONFIG_REFUSAL, place.id(), spec) {
        runtime.journal.warn(&error.to_string());
    }
}

/// There is no refused config in this place any more.
pub(crate) fn forget(runtime: &Runtime, place: Place) {
    if let Err(error) = runtime.store.remove(CONFIG_REFUSAL.writer, &CONFIG_REFUSAL, place.id()) {
        runtime.journal.warn(&error.to_string());
    }
}

/// A config was taken.
pub(super) fn forget_all(runtime: &Runtime) {
    for place in [Place::State, Place::Outside, Place::Call] {
        forget(runtime, place);
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

    fn reason(runtime: &Runtime, place: Place) -> Option<String> {
        match &runtime.store.get(&CONFIG_REFUSAL, place.id())?.spec {
            Spec::Runtime(RuntimeSpec::ConfigRefusal(refusal)) => Some(refusal.reason.clone()),
            _ => None,
        }
    }

    #[test]
    fn reasons_are_short_and_without_what_opens_a_server() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = Runtime::detached(dir.path().to_owned());
        note(&runtime, Place::Outside, "fetch https://me:geheim@a.example/c?code=s3cret: \u{1b}[2J");
        let found = reason(&runtime, Place::Outside).unwrap();
        assert!(found.contains("a.example/c"), "{found}");
        for hidden in ["geheim", "s3cret", "\u{1b}"] {
            assert!(!found.contains(hidden), "{found}");
        }
        note(&runtime, Place::Call, &"ä".repeat(5_000));
        let found = reason(&runtime, Place::Call).unwrap();
        assert!(found.len() <= MAX_REASON_BYTES + '…'.len_utf8() && found.ends_with("ä…"));
        forget(&runtime, Place::Outside);
        assert!(reason(&runtime, Place::Outside).is_none() && reason(&runtime, Place::Call).is_some());
        forget_all(&runtime);
        assert!(reason(&runtime, Place::Call).is_none());
    }

    #[test]
    fn the_same_reason_again_keeps_its_time() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = Runtime::detached(dir.path().to_owned());
        let version = || runtime.store.get(&CONFIG_REFUSAL, "state").unwrap().metadata.version;
        note(&runtime, Place::State, "line 3: no such field");
        let first = version();
        note(&runtime, Place::State, "line 3: no such field");
        assert_eq!(version(), first);
        note(&runtime, Place::State, "line 4: no such field");
        assert_ne!(version(), first);
    }
}
