//! Progress on the terminal: one line a step, with its time.
//!
//! Owns: what a person sees while xtask works. On a terminal a running step is a spinner; elsewhere (CI, a pipe)
//! it is a line when it starts and a line when it ends.
//! Does not: print results; those belong to the command.

//! Steps of several threads may run at once: each has its own spinner, and lines come between them, not into them.

use std::io::IsTerminal;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

static VERBOSE: AtomicBool = AtomicBool::new(false);

/// The spinners of all threads.
static SPINNERS: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

/// Steps shorter than this leave no line behind unless `--verbose` is given.
const WORTH_A_LINE: Duration = Duration::from_millis(500);

pub(crate) fn set_verbose(on: bool) {
    VERBOSE.store(on, Ordering::Relaxed);
}

pub(crate) fn verbose() -> bool {
    VERBOSE.load(Ordering::Relaxed)
}

/// Runs `work` as a named step.
pub(crate) fn step<T>(name: &str, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let spinner = start(name);
    let began = Instant::now();
    let result = work();
    let took = began.elapsed();
    if let Some(spinner) = spinner {
        spinner.finish_and_clear();
        SPINNERS.remove(&spinner);
    }
    match &result {
        Ok(_) if took >= WORTH_A_LINE || verbose() => note(&format!("{name}: {:.1} s", took.as_secs_f64())),
        Ok(_) => {}
        Err(_) => note(&format!("{name}: failed after {:.1} s", took.as_secs_f64())),
    }
    result
}

/// A line of its own, for what is worth knowing but is no step.
pub(crate) fn note(text: &str) {
    SPINNERS.suspend(|| println!("  {text}"));
}

/// A line for what may surprise the user later.
pub(crate) fn warn(text: &str) {
    eprintln!("warning: {text}");
}

fn start(name: &str) -> Option<ProgressBar> {
    // Commands that are shown would tear the spinner's line.
    if verbose() || !std::io::stderr().is_terminal() {
        return None;
    }
    let bar = SPINNERS.add(ProgressBar::new_spinner());
    if let Ok(style) = ProgressStyle::with_template("  {spinner} {msg} {elapsed}") {
        bar.set_style(style);
    }
    bar.set_message(name.to_owned());
    bar.enable_steady_tick(Duration::from_millis(120));
    Some(bar)
}
