//! One system's figures: plain runs for the cost, one traced run for where it went.
//!
//! Owns: which of the runs counts (the median) and how far they may lie apart.
//! Does not: hide a spread: runs that differ by more than [`SPREAD`] are an error, since nothing but the emulated
//! machine's own randomness (network packets arrive by the host's clock) may differ.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, ensure};

use super::guest::{Guest, START};
use super::schedule::Schedule;
use crate::step::{note, step};

/// Parts of the median that the runs may be apart.
const SPREAD: f64 = 0.02;

/// What a boot cost.
#[derive(Debug, Clone)]
pub(crate) struct Cost {
    /// Guest instructions from the start of init to readiness: the median of the runs.
    pub(crate) instructions: u64,
    /// The largest distance between two runs, in parts of the median.
    pub(crate) spread: f64,
    /// Of a run with the trace: the same span, the trace's own cost included.
    pub(crate) traced: u64,
    /// Where the traced span went: by program, kernel thread or idle.
    pub(crate) usage: BTreeMap<String, u64>,
    /// In the traced run, instructions from the start of init to the first execution of a program.
    pub(crate) executed: BTreeMap<String, u64>,
}

/// Boots `runs` times plainly and once traced.
pub(crate) fn cost(guest: &Guest, directory: &Path, runs: u32) -> Result<Cost> {
    let mut times = Vec::new();
    for run in 1..=runs {
        let booted =
            step(&format!("boot {}, run {run} of {runs}", guest.name), || guest.boot(directory, None))?;
        times.push(booted.ready_ns.saturating_sub(booted.start_ns));
    }
    let schedule =
        step(&format!("boot {} with the scheduler's trace", guest.name), || guest.boot_traced(directory))?;
    with_trace(guest, times, &schedule)
}

fn with_trace(guest: &Guest, times: Vec<u64>, schedule: &Schedule) -> Result<Cost> {
    let (instructions, spread) = median(times)?;
    note(&format!("{}: {:.4} G instructions, spread {spread:.1e}", guest.name, giga(instructions)));
    ensure!(
        spread <= SPREAD,
        "{}: runs are {spread:.3} apart; is something else written to its disk?",
        guest.name
    );
    let (from, to) = (schedule.logged_at(START)?, schedule.logged_at(guest.ready)?);
    let usage = schedule.usage(from, to)?;
    let executed = schedule.executions().into_iter().filter(|(_, at)| (from..to).contains(at));
    Ok(Cost {
        instructions,
        spread,
        traced: (to - from) * 1000,
        usage: usage.into_iter().map(|(name, us)| (name, us * 1000)).collect(),
        executed: executed.map(|(name, at)| (name, (at - from) * 1000)).collect(),
    })
}

/// The middle run and how far the outer ones are apart.
fn median(mut times: Vec<u64>) -> Result<(u64, f64)> {
    times.sort_unstable();
    let (Some(first), Some(last), Some(middle)) = (times.first(), times.last(), times.get(times.len() / 2))
    else {
        anyhow::bail!("at least one run is needed");
    };
    Ok((*middle, ratio(last - first, *middle)))
}

pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    giga(part) / giga(whole)
}

/// Thousands of millions. Guest times are far below 2^53 ns, so nothing is lost.
#[allow(clippy::cast_precision_loss, reason = "see above")]
pub(crate) fn giga(instructions: u64) -> f64 {
    instructions as f64 / 1e9
}

/// The middle one of several times.
pub(super) fn middle(mut list: Vec<std::time::Duration>) -> std::time::Duration {
    list.sort();
    list.get(list.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_middle_run_counts() {
        let (middle, spread) = median(vec![110, 100, 101]).unwrap();
        assert_eq!(middle, 101);
        assert!((spread - 10.0 / 101.0).abs() < 1e-9);
        assert!(median(Vec::new()).is_err());
    }
}
