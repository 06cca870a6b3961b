//! How long a developer waits for a node: from nothing, and after one line of machined has changed.
//!
//! Owns: `target/bench/build.json` and its part of docs/benchmarks.md.
//! Order: a clone of what is committed, with an empty cache of its own; `cargo xtask run` there, until the API answers; then the
//! same after each change of one line. The middle of several changes counts.
//! Does not: count how long crates take to come: cargo's own cache is this machine's.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::document;
use super::measure::middle;
use crate::command::Cmd;
use crate::place;
use crate::step::step;

const CHANGES: usize = 3;
/// A line of machined that every node runs, and the words in it that are changed.
const CHANGED_FILE: &str = "service-manager/src/machined.rs";
const CHANGED_WORDS: &str = "init closed the line";
/// The limits of issue "Floors", in seconds.
const EMPTY_LIMIT: f64 = 420.0;
const CHANGE_LIMIT: f64 = 45.0;

struct Cost {
    empty: Duration,
    change: Duration,
}

pub(super) fn measure(directory: &Path) -> Result<()> {
    // Not below the repository: cargo would read the settings of both.
    let work = tempfile::tempdir().context("create a directory for a clone")?;
    let cost = cost(work.path())?;
    document::keep(directory, "build", &cost.json())?;
    document::write("build", &cost.table(&document::today()?))
}

fn cost(work: &Path) -> Result<Cost> {
    let clone = work.join("clone");
    Cmd::new("git").args(["clone", "--quiet"]).args([&place::repository(), &clone]).run()?;
    let run = || -> Result<Duration> {
        let began = Instant::now();
        let started = xtask(&clone, work, &["run", "--detach"]).show()?;
        let took = began.elapsed();
        let stopped = xtask(&clone, work, &["stop"]).run();
        ensure!(started, "the node of the clone did not answer");
        stopped.map(|()| took)
    };
    let empty = step("from an empty target and cache to the API", run)?;
    let changed_file = clone.join(CHANGED_FILE);
    let source = fs::read_to_string(&changed_file).with_context(|| format!("read {CHANGED_FILE}"))?;
    ensure!(
        source.contains(CHANGED_WORDS),
        "{CHANGED_FILE} no longer says {CHANGED_WORDS:?}: choose another line"
    );
    let mut changes = Vec::new();
    for count in 1..=CHANGES {
        let changed = source.replace(CHANGED_WORDS, &format!("{CHANGED_WORDS} {count}"));
        fs::write(&changed_file, changed).with_context(|| format!("write {CHANGED_FILE}"))?;
        changes.push(step("from one line of machined to the API", run)?);
    }
    Ok(Cost { empty, change: middle(changes) })
}

fn xtask(clone: &Path, work: &Path, words: &[&str]) -> Cmd {
    Cmd::new("cargo")
        .args(["xtask"])
        .args(words)
        .env("XDG_CACHE_HOME", work.join("cache"))
        .env("CARGO_TARGET_DIR", clone.join("target"))
        .directory(clone)
}

impl Cost {
    fn json(&self) -> Value {
        json!({
            "commit": document::commit().unwrap_or_default(),
            "empty_to_api_s": self.empty.as_secs_f64(),
            "changes": CHANGES,
            "one_line_to_api_s": self.change.as_secs_f64(),
        })
    }

    fn table(&self, date: &str) -> String {
        let row = |what: &str, took: Duration, limit: f64| {
            let seconds = took.as_secs_f64();
            let met = if seconds <= limit { "met" } else { "**missed**" };
            format!("| {what} | {seconds:.0} | at most {limit}: {met} |\n")
        };
        format!(
            "Measured {date}, {} processors.\n\n| `cargo xtask run --detach`, until the API answers | seconds | limit |\n|---|---|---|\n{}{}",
            std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            row("from an empty target and cache", self.empty, EMPTY_LIMIT),
            row(
                &format!("after one line of machined was changed, the middle of {CHANGES}"),
                self.change,
                CHANGE_LIMIT
            ),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_too_long_is_shown_as_missed() {
        let cost = |empty, change| {
            Cost { empty: Duration::from_secs(empty), change: Duration::from_secs(change) }.table("today")
        };
        assert!(!cost(420, 45).contains("missed"));
        assert!(cost(421, 45).contains("| from an empty target and cache | 421 | at most 420: **missed** |"));
        assert_eq!(cost(500, 50).matches("missed").count(), 2);
    }
}
