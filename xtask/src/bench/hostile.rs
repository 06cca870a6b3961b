//! What hostile clients cost other clients: the suites of crates/hostile in full, against servers in one process and against a
//! built image.
//!
//! Owns: `target/bench/hostile-*.json`, which tests of service-manager and qemu-tests write, and their part of docs/benchmarks.md.
//! Fails by: a suite that finds a fault; its figures are not written then.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::document;
use crate::command::Cmd;
use crate::place;
use crate::step::step;

/// Name of a suite's file and what its table says.
const SUITES: [(&str, &str); 6] = [
    ("apid", "port 50000, a reader's certificate at one address"),
    ("apid-many-addresses", "port 50000, a reader's certificate at 200 addresses"),
    ("maintenance", "port 50000 in maintenance mode, no certificate, 8 addresses"),
    ("trustd", "port 50001, no certificate, 8 addresses"),
    ("machine-api", "an emulated machine's port 50000, a reader's certificate at one address"),
    ("machine-trust", "an emulated machine's port 50001, no certificate, 8 addresses"),
];

#[derive(Deserialize)]
struct Figures {
    attacks: Vec<Attack>,
}

#[derive(Deserialize)]
struct Attack {
    attack: String,
    connections: u64,
    attempts: u64,
    seconds: f64,
    calls: u64,
    longest_ms: f64,
    baseline_ms: f64,
    grown_bytes: u64,
}

pub(super) fn measure(directory: &Path) -> Result<()> {
    // Before the suites, which take their time: another commit may be checked out meanwhile.
    let commit = document::commit()?;
    step("play hostile clients", || {
        let words = ["test", "--package", "service-manager", "--features", "installer/image", "--lib"];
        let filter = ["hostile_tests", "--", "--test-threads=1", "--nocapture"];
        let command = Cmd::new("cargo").args(words).args(filter).directory(&place::repository());
        command.env("BILLET_LONG", "1").env("BILLET_BENCH", directory).run()
    })?;
    step("play hostile clients against a machine", || {
        let words = ["test", "--package", "qemu-tests", "--test", "nodes", "--", "hostile::", "--nocapture"];
        let command = Cmd::new("cargo").args(words).directory(&place::repository());
        command.env("BILLET_LONG", "1").env("BILLET_BENCH", directory).run()
    })?;
    let mut tables = format!("Measured {} at commit {commit}.\n", document::today()?);
    for (name, what) in SUITES {
        let path = directory.join(format!("hostile-{name}.json"));
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let figures: Figures =
            serde_json::from_str(&text).with_context(|| format!("parse {}", path.display()))?;
        tables.push_str(&figures.table(what));
    }
    document::write("hostile", &tables)
}

impl Figures {
    fn table(&self, what: &str) -> String {
        let rows: String = self.attacks.iter().map(Attack::row).collect();
        format!(
            "\n| {what} | connections | attempts | seconds | other client's calls | longest, ms | alone, ms | memory, MiB |\n\
             |---|---|---|---|---|---|---|---|\n{rows}"
        )
    }
}

impl Attack {
    fn row(&self) -> String {
        format!(
            "| {} | {} | {} | {:.1} | {} | {:.0} | {:.0} | {} |\n",
            self.attack,
            self.connections,
            self.attempts,
            self.seconds,
            self.calls,
            self.longest_ms,
            self.baseline_ms,
            self.grown_bytes >> 20,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suites_file_becomes_a_table() {
        let text = r#"{"suite": "x", "long": true, "attacks": [{"attack": "silent", "connections": 7, "attempts": 8,
            "seconds": 3.04, "calls": 9, "longest_ms": 20.4, "baseline_ms": 2.6, "grown_bytes": 3145728}]}"#;
        let figures: Figures = serde_json::from_str(text).unwrap();
        assert!(figures.table("port").ends_with("| silent | 7 | 8 | 3.0 | 9 | 20 | 3 | 3 |\n"));
    }
}
