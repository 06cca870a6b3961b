//! `xtask stop`: ends the node that `run` started.
//!
//! Order: ask the node's API to shut down, then QEMU's monitor to quit, then the kernel to kill QEMU.
//! Does not: touch any process that it cannot prove to be the one that `run` started.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use qemu_tests::qmp::Qmp;
use serde_json::json;

use super::run::state::State;
use crate::step::{note, step};

/// A node's own shutdown, on the reference machine.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(30);

/// QEMU ends at once when its monitor says so.
const QUIT_LIMIT: Duration = Duration::from_secs(5);

const LOOK: Duration = Duration::from_millis(50);

pub(crate) fn run() -> Result<()> {
    match State::running()? {
        Some(state) => end(&state, &AtomicBool::new(false)),
        None => {
            note("no node is running");
            Ok(())
        }
    }
}

/// Ends the node, in order if it can; `hurry` cuts the waiting short.
pub(crate) fn end(state: &State, hurry: &AtomicBool) -> Result<()> {
    step("shut the node down", || {
        let asked = state.billetctl().run(&["shutdown"]);
        if !asked.as_ref().is_ok_and(|output| output.success) {
            note("the node's API does not take a shutdown; cutting it off");
            return Ok(());
        }
        if !ends_within(state, qemu_tests::deadline(SHUTDOWN_LIMIT), hurry) {
            note("the node has not ended; cutting it off");
        }
        Ok(())
    })?;
    if state.alive() {
        // Without a monitor, or when its answer is lost with the process, the kill below has the last word.
        let _ = Qmp::connect(&state.directory.join("qmp"), QUIT_LIMIT)
            .and_then(|mut qmp| qmp.execute("quit", json!({})));
        ends_within(state, QUIT_LIMIT, &AtomicBool::new(false));
    }
    state.kill()?;
    state.remove_directory();
    State::forget()
}

fn ends_within(state: &State, limit: Duration, hurry: &AtomicBool) -> bool {
    let end = Instant::now() + limit;
    while state.alive() {
        if Instant::now() > end || hurry.load(Ordering::Relaxed) {
            return false;
        }
        std::thread::sleep(LOOK);
    }
    true
}
