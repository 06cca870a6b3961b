//! Panics on request, and what tests learn of those that no request contains.

use std::sync::{Mutex, Once, PoisonError};

use super::install;

/// Panics of this process outside requests: thread, place and message.
static OTHERS: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

/// Has the places of panics noted, as on a node; others fail their test, as always.
pub fn note_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        install(move |panic, text| {
            let thread = std::thread::current().name().unwrap_or_default().to_owned();
            OTHERS.lock().unwrap_or_else(PoisonError::into_inner).push((thread, text.to_owned()));
            before(panic);
        });
    });
}

/// The panics outside requests so far that are not of another test's own thread.
pub fn other_panics() -> Vec<String> {
    let others = OTHERS.lock().unwrap_or_else(PoisonError::into_inner);
    let own = std::thread::current().name().map(str::to_owned);
    let others = others.iter().filter(|(thread, _)| !thread.contains("::") || Some(thread) == own.as_ref());
    others.map(|(thread, text)| format!("{thread}: {text}")).collect()
}

/// Panics where a test asks for it: `wanted` is text of a request.
#[track_caller]
pub fn fault(place: &str, wanted: &str) {
    if wanted.trim_start_matches('/').strip_prefix("panic-in-") == Some(place) {
        note_panics();
        panic!("a test asked for it: {place}");
    }
}
