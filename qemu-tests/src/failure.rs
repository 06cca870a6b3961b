//! Tells why a test failed when it fails. The harness keeps that until the last test is through, which a run that is ended
//! after an hour never comes to.
//!
//! Owns: lines `test NAME: …` on standard error, beside what the harness shows in the end.

use std::io::Write as _;
use std::panic;
use std::sync::Once;

/// The first lines have the reason and the serial log's path; a console may follow.
const MOST_LINES: usize = 12;

/// From now on every panic of this process is told.
pub(crate) fn tell_at_once() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            usual(panic);
            let thread = std::thread::current();
            let place = panic.location().map(ToString::to_string).unwrap_or_default();
            let reason = panic.payload_as_str().unwrap_or("it panicked without words");
            let text = lines(thread.name().unwrap_or("without a name"), &place, reason);
            // Not by `eprintln`, which the harness keeps as well. Where it cannot be written, the harness has it.
            let _ = std::io::stderr().write_all(text.as_bytes());
        }));
    });
}

fn lines(test: &str, place: &str, reason: &str) -> String {
    let reason = reason.lines().take(MOST_LINES);
    std::iter::once(place).chain(reason).map(|line| format!("test {test}: {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_names_its_test_and_a_console_is_cut() {
        let console = "line\n".repeat(MOST_LINES);
        let told = lines("boot::a", "boot.rs:7:1", &format!("no API; serial log: x\n{console}"));
        assert!(told.starts_with(
            "test boot::a: boot.rs:7:1\ntest boot::a: no API; serial log: x\ntest boot::a: line\n"
        ));
        assert_eq!(told.lines().count(), 1 + MOST_LINES);
    }
}
