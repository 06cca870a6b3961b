//! `xtask advisories`: whether a known hole is in a crate from outside.
//!
//! Owns: finding cargo-deny, and what a person hears who does not have it.
//! Does not: belong to `test`: the answer changes with a database in the network, and the same source must give the same
//! result tomorrow. Does not install anything.
//! Source: the RustSec advisory database; deny.toml, `[advisories]`.

use std::ffi::OsStr;

use anyhow::{Result, bail};

use crate::command::{Cmd, find_program};
use crate::place;
use crate::step::note;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Ask the database as it was fetched the last time; the network is left alone.
    #[arg(long)]
    as_fetched: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let check = check(options, "cargo-deny")?;
    note(if options.as_fetched {
        "asks the RustSec database as it was fetched the last time"
    } else {
        "fetches the RustSec database, from github.com into cargo's home, unless deny.toml names another place"
    });
    if !check.show()? {
        bail!(
            "{check}: it found what is above; update the crate, or name the advisory in deny.toml with the reason"
        );
    }
    Ok(())
}

/// The command, if its program is there.
fn check(options: &Options, program: impl AsRef<OsStr>) -> Result<Cmd> {
    let program = program.as_ref();
    let Some(found) = find_program(program) else {
        bail!(
            "{} is not installed: cargo install --locked cargo-deny (it compiles for some minutes), or a package of it",
            program.to_string_lossy()
        );
    };
    let fetch = options.as_fetched.then_some("--disable-fetch");
    let check = Cmd::new(found).arg("check").args(fetch).arg("advisories");
    Ok(check.directory(&place::repository()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_lacks_the_program_hears_how_to_install_it() {
        let error = check(&Options { as_fetched: false }, "no-such-program-of-billet").err().unwrap();
        let text = error.to_string();
        assert!(
            text.starts_with("no-such-program-of-billet is not installed: cargo install --locked"),
            "{text}"
        );
    }

    #[test]
    fn the_database_is_fetched_unless_that_is_left_out() {
        // Any program that is there.
        let asked = |as_fetched| check(&Options { as_fetched }, "/bin/sh").unwrap().to_string();
        assert_eq!(asked(false), "/bin/sh check advisories");
        assert_eq!(asked(true), "/bin/sh check --disable-fetch advisories");
    }

    /// A test must not fail because of what somebody found out today.
    #[test]
    fn no_test_asks_for_advisories() {
        assert!(!include_str!("test.rs").contains("\"advisories\""));
    }
}
