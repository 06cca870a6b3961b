//! What holds for every target that is fed from outside: bounded memory, and refusals that can be shown.
//!
//! Fails by: a panic, which is a finding.

use sys::heap::{Held, held_by};

/// Longest refusal, in bytes: it goes into a log line or the status of a call.
const MOST_TEXT: usize = 2048;

/// Runs `work`, which may hold so many bytes at one time.
pub(crate) fn within<T>(most_bytes: usize, work: impl FnOnce() -> T) -> T {
    let (result, held) = held_by(work);
    assert!(
        held.most_bytes <= most_bytes,
        "held {} bytes, at most {most_bytes} are allowed",
        held.most_bytes
    );
    result
}

/// Runs `work`, which may allocate nothing.
pub(crate) fn without_heap<T>(work: impl FnOnce() -> T) -> T {
    let (result, held) = held_by(work);
    assert!(held == Held::default(), "allocated {held:?} where nothing may be");
    result
}

/// A text for people that has words of whoever is out there: short, and nothing in it acts on a terminal.
pub(crate) fn shown(text: &str) {
    assert!(!text.is_empty(), "refused without a word");
    assert!(text.len() <= MOST_TEXT, "a text of {} bytes: {:.200}", text.len(), text);
    assert!(!text.chars().any(char::is_control), "a text with control characters: {text:?}");
}

/// A text that must not have a secret in it.
pub(crate) fn without(text: &str, secret: &str) {
    assert!(!text.contains(secret), "a secret is in {text:?}");
}
