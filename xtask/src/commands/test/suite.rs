//! Suites: a command whose output is a log, or a check of our own.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};

use super::tally::{Tally, failures};
use crate::command::find_program;
use crate::place;
use crate::step;

/// A cargo command with a name.
pub(super) struct Suite {
    name: &'static str,
    arguments: Vec<String>,
    env: Vec<(&'static str, &'static str)>,
    /// Show each test's line as it ends: for suites that take minutes.
    live: bool,
}

impl Suite {
    pub(super) fn cargo(name: &'static str, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        Self { name, arguments, env: Vec::new(), live: false }
    }

    pub(super) fn env(mut self, name: &'static str, value: &'static str) -> Self {
        self.env.push((name, value));
        self
    }

    pub(super) fn live(mut self) -> Self {
        self.live = true;
        self
    }
}

/// Suites that ran, with their sum.
pub(super) struct Suites {
    folder: PathBuf,
    only: Option<String>,
    tally: Tally,
    /// Name of the suite and why it failed.
    failures: Vec<(String, String)>,
}

impl Suites {
    pub(super) fn new(only: Option<String>) -> Result<Self> {
        let folder = place::target().join("test");
        fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
        Ok(Self { folder, only, tally: Tally::default(), failures: Vec::new() })
    }

    pub(super) fn tally(&self) -> Tally {
        self.tally
    }

    /// A command that passes or fails as a whole.
    pub(super) fn check(&mut self, suite: &Suite) -> bool {
        self.suite(suite, |_, succeeded| Tally { passed: succeeded.into(), failed: (!succeeded).into() })
    }

    /// A command that reports tests the way cargo does.
    pub(super) fn tests(&mut self, suite: &Suite) -> bool {
        self.suite(suite, Tally::of)
    }

    /// A check of our own.
    pub(super) fn call(&mut self, name: &str, check: impl FnOnce() -> Result<()>) -> bool {
        if self.left_out(name) {
            // What is built already may be tested alone.
            return true;
        }
        let began = Instant::now();
        let result = check();
        let tally = Tally { passed: result.is_ok().into(), failed: result.is_err().into() };
        let why = result.err().map(|error| format!("{error:#}"));
        self.record(name, tally, why, began)
    }

    /// The output of everything that failed, once more, where it is not lost above.
    pub(super) fn explain(&self) {
        for (name, why) in &self.failures {
            println!("\n==== {name} failed ====\n{why}");
        }
    }

    fn suite(&mut self, suite: &Suite, count: fn(&str, bool) -> Tally) -> bool {
        if self.left_out(suite.name) {
            return true;
        }
        let began = Instant::now();
        let log = self.folder.join(format!("{}.log", suite.name.replace(' ', "-")));
        let (tally, why) = match output(suite) {
            Ok((text, succeeded)) => {
                // The log is a help; a full disk shows elsewhere.
                let _ = fs::write(&log, &text);
                let why =
                    (!succeeded).then(|| format!("{}\n(all of it: {})", failures(&text), log.display()));
                (count(&text, succeeded), why)
            }
            Err(error) => (Tally { passed: 0, failed: 1 }, Some(format!("{error:#}"))),
        };
        self.record(suite.name, tally, why, began)
    }

    fn left_out(&self, name: &str) -> bool {
        self.only.as_ref().is_some_and(|only| !name.contains(only.as_str()))
    }

    fn record(&mut self, name: &str, tally: Tally, why: Option<String>, began: Instant) -> bool {
        self.tally.add(tally);
        println!("  {name}: {tally} ({:.1} s)", began.elapsed().as_secs_f64());
        let succeeded = why.is_none();
        self.failures.extend(why.map(|why| (name.to_owned(), why)));
        succeeded
    }
}

/// Everything a suite said on both streams, in order, and whether it succeeded.
fn output(suite: &Suite) -> Result<(String, bool)> {
    let cargo =
        std::env::var_os("CARGO").map_or_else(|| find_program("cargo".as_ref()), |path| Some(path.into()));
    let (reader, writer) = std::io::pipe().context("make a pipe")?;
    let mut command = Command::new(cargo.context("cargo is not in PATH")?);
    command
        .args(&suite.arguments)
        .envs(suite.env.iter().copied())
        .env("CARGO_TERM_COLOR", "never")
        .current_dir(place::repository())
        .stdin(Stdio::null())
        .stdout(writer.try_clone().context("share a pipe")?)
        .stderr(writer);
    if step::verbose() {
        println!("  $ cargo {}", suite.arguments.join(" "));
    }
    let mut child = command.spawn().context("start cargo")?;
    // Its ends of the pipe must be the child's alone, or the reader waits for ever.
    drop(command);
    let mut text = String::new();
    for line in BufReader::new(reader).split(b'\n') {
        let line = line.context("read cargo's output")?;
        let line = String::from_utf8_lossy(&line);
        if step::verbose() || (suite.live && line.starts_with("test ")) {
            println!("    {line}");
            std::io::stdout().flush().context("write to the terminal")?;
        }
        text.push_str(&line);
        text.push('\n');
    }
    let status = child.wait().context("wait for cargo")?;
    Ok((text, status.success()))
}
