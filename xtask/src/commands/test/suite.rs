//! Suites: a command whose output is a log, or a check of our own.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};

use super::programs::Cargo;
use super::tally::{Tally, failures};
use crate::command::{find_program, leave_out_cargo_s};
use crate::place;
use crate::step;

/// A cargo command with a name.
pub(super) struct Suite {
    name: String,
    arguments: Vec<String>,
    env: Vec<(&'static str, OsString)>,
    /// Show each test's line as it ends: for suites that take minutes.
    live: bool,
    /// Its programs run side by side.
    side_by_side: bool,
}

impl Suite {
    pub(super) fn cargo(name: &str, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        Self { name: name.to_owned(), arguments, env: Vec::new(), live: false, side_by_side: false }
    }

    /// Tests that count rounds read this.
    pub(super) fn long(mut self, long: bool) -> Self {
        self.env.push(("BILLET_LONG", if long { "1" } else { "0" }.into()));
        self
    }

    /// Sets a variable of its processes.
    pub(super) fn with(mut self, name: &'static str, value: &Path) -> Self {
        self.env.push((name, value.into()));
        self
    }

    /// For programs whose tests share nothing of the machine with those of others.
    pub(super) fn side_by_side(mut self) -> Self {
        self.side_by_side = true;
        self
    }

    pub(super) fn live(mut self) -> Self {
        self.live = true;
        self
    }
}

/// How a check of our own ended, and how long it took.
struct Timed {
    result: Result<()>,
    seconds: f64,
}

impl Timed {
    fn of(check: impl FnOnce() -> Result<()>) -> Self {
        let began = Instant::now();
        let result = check();
        Self { result, seconds: began.elapsed().as_secs_f64() }
    }
}

/// A check that runs in a thread of its own, or none where it is left out.
#[must_use]
pub(super) struct Begun<'scope> {
    name: &'static str,
    thread: Option<ScopedJoinHandle<'scope, Timed>>,
}

/// Suites that ran, with their sum.
pub(super) struct Suites {
    directory: PathBuf,
    only: Option<String>,
    tally: Tally,
    /// Name of the suite and why it failed.
    failures: Vec<(String, String)>,
}

impl Suites {
    pub(super) fn new(only: Option<String>) -> Result<Self> {
        let directory = place::target().join("test");
        fs::create_dir_all(&directory).with_context(|| format!("create {}", directory.display()))?;
        Ok(Self { directory, only, tally: Tally::default(), failures: Vec::new() })
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

    /// A check of our own. One that is left out counts as done: what is built already may be tested alone.
    pub(super) fn call(&mut self, name: &str, check: impl FnOnce() -> Result<()>) -> bool {
        self.left_out(name) || self.timed(name, Timed::of(check))
    }

    /// Begins a check of our own beside the suites that follow. [`Suites::end`] waits for it.
    pub(super) fn begin<'scope>(
        &self,
        scope: &'scope Scope<'scope, '_>,
        name: &'static str,
        check: impl FnOnce() -> Result<()> + Send + 'scope,
    ) -> Begun<'scope> {
        let thread = (!self.left_out(name)).then(|| scope.spawn(|| Timed::of(check)));
        Begun { name, thread }
    }

    /// The end of a check that was begun.
    pub(super) fn end(&mut self, begun: Begun<'_>) -> bool {
        let Some(thread) = begun.thread else { return true };
        let panicked = |_| Timed { result: Err(anyhow!("it panicked: see above")), seconds: 0.0 };
        self.timed(begun.name, thread.join().unwrap_or_else(panicked))
    }

    fn timed(&mut self, name: &str, timed: Timed) -> bool {
        let tally = Tally { passed: timed.result.is_ok().into(), failed: timed.result.is_err().into() };
        let why = timed.result.err().map(|error| format!("{error:#}"));
        self.record(name, tally, why, timed.seconds)
    }

    /// The output of everything that failed, once more, where it is not lost above.
    pub(super) fn explain(&self) {
        for (name, why) in &self.failures {
            println!("\n==== {name} failed ====\n{why}");
        }
    }

    fn suite(&mut self, suite: &Suite, count: fn(&str, bool) -> Tally) -> bool {
        if self.left_out(&suite.name) {
            return true;
        }
        let began = Instant::now();
        let log = self.directory.join(format!("{}.log", suite.name.replace(' ', "-")));
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
        self.record(&suite.name, tally, why, began.elapsed().as_secs_f64())
    }

    /// Fails when all were left out: a name that was mistyped must not look like success.
    pub(super) fn any(&self) -> Result<()> {
        match &self.only {
            Some(only) if self.tally.passed + self.tally.failed == 0 => {
                bail!(
                    "no suite has {only:?} in its name, or it has no tests; without --only all run and are named"
                )
            }
            _ => Ok(()),
        }
    }

    fn left_out(&self, name: &str) -> bool {
        self.only.as_ref().is_some_and(|only| !name.contains(only.as_str()))
    }

    fn record(&mut self, name: &str, tally: Tally, why: Option<String>, seconds: f64) -> bool {
        self.tally.add(tally);
        step::note(&format!("{name}: {tally} ({seconds:.1} s)"));
        let succeeded = why.is_none();
        if let Some(why) = &why {
            // At once too: a run that is ended before its end must not keep it to itself.
            println!("{why}");
        }
        self.failures.extend(why.map(|why| (name.to_owned(), why)));
        succeeded
    }
}

/// Everything a suite said on both streams, in order, and whether it succeeded.
fn output(suite: &Suite) -> Result<(String, bool)> {
    let cargo =
        std::env::var_os("CARGO").map_or_else(|| find_program("cargo".as_ref()), |path| Some(path.into()));
    let cargo: PathBuf = cargo.context("cargo is not in PATH")?;
    if suite.side_by_side {
        let directory = place::repository();
        let (program, arguments, env) = (&cargo, &suite.arguments, &suite.env);
        return Cargo { program, arguments, env, directory: &directory }.run();
    }
    let (reader, writer) = std::io::pipe().context("make a pipe")?;
    let mut command = Command::new(cargo);
    leave_out_cargo_s(&mut command);
    command
        .args(&suite.arguments)
        .envs(suite.env.iter().map(|(name, value)| (name, value)))
        .env("CARGO_TERM_COLOR", "never")
        .current_dir(place::repository())
        .stdin(Stdio::null())
        .stdout(writer.try_clone().context("share a pipe")?)
        .stderr(writer);
    if step::verbose() {
        step::note(&format!("$ cargo {}", suite.arguments.join(" ")));
    }
    let mut child = command.spawn().context("start cargo")?;
    // Its ends of the pipe must be the child's alone, or the reader waits for ever.
    drop(command);
    let mut text = String::new();
    for line in BufReader::new(reader).split(b'\n') {
        let line = line.context("read cargo's output")?;
        let line = String::from_utf8_lossy(&line);
        if step::verbose() || (suite.live && line.starts_with("test ")) {
            step::note(&format!("  {line}"));
        }
        text.push_str(&line);
        text.push('\n');
    }
    let status = child.wait().context("wait for cargo")?;
    Ok((text, status.success()))
}
