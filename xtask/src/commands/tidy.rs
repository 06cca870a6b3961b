//! `xtask tidy`: what the house style and the invariants say about the repository's own text.
//!
//! Owns: one module a rule; each gives a list of faults with path and reason.
//! Does not: format or compile; `xtask test` has cargo do that.

mod circles;
mod dependencies;
mod directions;
mod paths;
mod sources;
#[cfg(test)]
mod tests;
mod text;

use anyhow::{Result, bail};

use crate::place;
use sources::Sources;

/// A rule: its name and what breaks it.
type Rule = (&'static str, fn(&Sources) -> Result<Vec<String>>);

const RULES: [Rule; 11] = [
    ("module headers", text::headers),
    ("file sizes", text::sizes),
    ("unsafe code only where it is allowed", text::unsafe_code),
    ("no host names of registries", text::hosts),
    ("no paths of one machine", text::machine_paths),
    ("cited pages are there", text::pages),
    ("words of the field", text::words),
    ("dependencies point one way", directions::check),
    ("no circles of modules", circles::check),
    ("versions in one place", directions::versions),
    ("crates: bans, duplicates, licences", dependencies::check),
];

pub(crate) fn run() -> Result<()> {
    let faults = faults()?;
    for fault in &faults {
        println!("{fault}");
    }
    if !faults.is_empty() {
        bail!("tidy: {} faults", faults.len());
    }
    println!("tidy: {} rules, no fault", RULES.len());
    Ok(())
}

fn faults() -> Result<Vec<String>> {
    let sources = Sources::read(&place::repository())?;
    let mut faults = Vec::new();
    for (name, rule) in RULES {
        faults.extend(rule(&sources)?.into_iter().map(|fault| format!("{fault} ({name})")));
    }
    Ok(faults)
}
