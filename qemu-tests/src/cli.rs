//! billetctl, run the way a person runs it.
//!
//! Owns: the built binary, its talosconfig, its output as text. Does not: speak the API itself.
//! Fails by: the command line with everything it printed.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::artifacts::build;
use crate::console::Console;
use crate::deadline;
use crate::process::Owned;

/// A command that does not follow anything answers within this.
const COMMAND_LIMIT: Duration = Duration::from_secs(20);

/// What a command printed and how it ended.
#[derive(Debug, Clone)]
pub struct Output {
    /// Whether it ended with 0.
    pub success: bool,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// billetctl with one talosconfig.
#[derive(Debug)]
pub struct Billetctl {
    program: PathBuf,
    talosconfig: PathBuf,
    dir: PathBuf,
    runs: AtomicU32,
}

impl Billetctl {
    /// Uses that talosconfig; output goes to files beside it.
    pub fn new(talosconfig: &Path) -> Self {
        Self::of(&build().billetctl, talosconfig)
    }

    /// The same of another build.
    pub fn of(program: &Path, talosconfig: &Path) -> Self {
        let dir = talosconfig.parent().unwrap_or(Path::new(".")).to_path_buf();
        let (program, talosconfig) = (program.to_path_buf(), talosconfig.to_path_buf());
        Self { program, talosconfig, dir, runs: AtomicU32::new(0) }
    }

    /// Runs a command that must succeed; returns what it printed.
    pub fn ok(&self, words: &[&str]) -> Result<String> {
        self.ok_within(words, COMMAND_LIMIT)
    }

    /// The same for a command that takes long by nature.
    pub fn ok_within(&self, words: &[&str], on_reference: Duration) -> Result<String> {
        let output = self.run_within(words, on_reference)?;
        if !output.success {
            bail!("billetctl {} failed: {}{}", words.join(" "), output.stdout, output.stderr);
        }
        Ok(output.stdout)
    }

    /// Runs a command that must fail; returns what it said.
    pub fn refused(&self, words: &[&str]) -> Result<String> {
        self.refused_within(words, COMMAND_LIMIT)
    }

    /// The same for a command that takes long by nature.
    pub fn refused_within(&self, words: &[&str], on_reference: Duration) -> Result<String> {
        let output = self.run_within(words, on_reference)?;
        if output.success {
            bail!("billetctl {} succeeded and printed {}", words.join(" "), output.stdout);
        }
        Ok(output.stderr)
    }

    /// Runs a command to its end.
    pub fn run(&self, words: &[&str]) -> Result<Output> {
        self.run_within(words, COMMAND_LIMIT)
    }

    fn run_within(&self, words: &[&str], on_reference: Duration) -> Result<Output> {
        let follower = self.follow(words)?;
        let ended = follower.process().wait(deadline(on_reference));
        let (stdout, stderr) = (follower.text(), follower.errors());
        match ended {
            Ok(status) => {
                follower.remove_files()?;
                Ok(Output { success: status.success(), stdout, stderr })
            }
            Err(error) => Err(error).with_context(|| format!("it printed: {stdout}{stderr}")),
        }
    }

    /// Starts a command that goes on until dropped.
    pub fn follow(&self, words: &[&str]) -> Result<Follower> {
        let number = self.runs.fetch_add(1, Ordering::Relaxed);
        let file_name = |what: &str| self.dir.join(format!("billetctl-{number}.{what}"));
        let (out, err) = (file_name("out"), file_name("err"));
        let what = format!("billetctl {}", words.join(" "));
        let (stdout, stderr) = (File::create(&out)?, File::create(&err)?);
        let program = self.program.to_str().context("a path that is not UTF-8")?;
        let process = Owned::spawn(&what, program, true, |command| {
            command.arg("--talosconfig").arg(&self.talosconfig).args(words);
            command.env_remove("TALOSCONFIG").env_remove("BILLETCONFIG");
            command.stdin(Stdio::null()).stdout(stdout).stderr(stderr);
        })?;
        Ok(Follower { what, process: Mutex::new(process), out: Console::new(&out), err })
    }
}

/// A command that still runs.
#[derive(Debug)]
pub struct Follower {
    what: String,
    process: Mutex<Owned>,
    out: Console,
    err: PathBuf,
}

impl Follower {
    /// Waits for a text in its output behind all texts awaited before; returns the line.
    pub fn expect(&self, needle: &str, on_reference: Duration) -> Result<String> {
        let ended = || match self.process().ended() {
            Ok(None) => None,
            Ok(Some(status)) => Some(format!("it ended with {status}: {}", self.errors())),
            Err(error) => Some(format!("{error:#}")),
        };
        self.out.expect(needle, deadline(on_reference), ended).with_context(|| self.what.clone())
    }

    /// Everything it printed so far.
    pub fn text(&self) -> String {
        self.out.text()
    }

    /// What a finished command printed is with the caller: a poll would leave hundreds of files.
    fn remove_files(&self) -> Result<()> {
        for file in [self.out.path(), &self.err] {
            std::fs::remove_file(file).with_context(|| format!("remove {}", file.display()))?;
        }
        Ok(())
    }

    fn errors(&self) -> String {
        std::fs::read_to_string(&self.err).unwrap_or_default()
    }

    fn process(&self) -> MutexGuard<'_, Owned> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
