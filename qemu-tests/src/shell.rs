//! A shell that runs a page's commands one by one, as a person would.
//!
//! Owns: one `sh` in a directory of its own, with billetctl in its path and nothing of our environment; variables and
//! functions live as long as it does. Does not: judge answers.
//! Order: each command is followed by one that prints a mark with the exit status; what stands before the mark is the
//! answer, standard error included.
//! Fails by: the command with everything it printed.

use std::fs::File;
use std::io::{PipeWriter, Write};
use std::path::Path;
use std::process::Stdio;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::cli::Output;
use crate::console::Console;
use crate::deadline;
use crate::process::Owned;

/// Ends an answer; no command prints it.
const MARK: &str = "\u{1}ended ";

/// A running shell.
pub struct Shell {
    process: Mutex<Owned>,
    input: PipeWriter,
    answers: Console,
}

impl Shell {
    /// Starts a shell in `directory`, with the directories in `path` searched before the system's.
    pub fn start(directory: &Path, path: &Path) -> Result<Self> {
        let (reader, input) = std::io::pipe().context("make the shell's input")?;
        let log = directory.with_extension("answers");
        let stdout = File::create(&log).with_context(|| format!("create {}", log.display()))?;
        let stderr = stdout.try_clone().context("the shell's standard error")?;
        let process = Owned::spawn("the shell", "sh", true, |command| {
            command.env_clear().env("HOME", directory).env("TMPDIR", directory);
            command.env("PATH", format!("{}:/usr/bin:/bin", path.display()));
            command.current_dir(directory).stdin(Stdio::from(reader)).stdout(stdout).stderr(stderr);
        })?;
        Ok(Self { process: Mutex::new(process), input, answers: Console::new(&log) })
    }

    /// Runs one command to its end.
    pub fn run(&mut self, command: &str, on_reference: Duration) -> Result<Output> {
        // In braces, so that one redirection serves every form of command and variables stay.
        let script = format!("{{\n{command}\n}} < /dev/null\nprintf '\\n{MARK}%d\\n' $?\n");
        self.input.write_all(script.as_bytes()).with_context(|| format!("type `{command}`"))?;
        let process = &self.process;
        let ended = || match process.lock().map_or(Ok(None), |mut process| process.ended()) {
            Ok(None) => None,
            Ok(Some(status)) => Some(format!("the shell ended with {status}")),
            Err(error) => Some(format!("{error:#}")),
        };
        let what = format!("the end of `{command}`");
        let (status, answer) = self.answers.expect_with(&what, deadline(on_reference), ended, |unread| {
            let (answer, rest) = unread.split_once(MARK)?;
            let (status, _) = rest.split_once('\n')?;
            let used = answer.len() + MARK.len() + status.len() + 1;
            Some(((status.to_owned(), answer.to_owned()), used))
        })?;
        Ok(Output { success: status == "0", stdout: answer, stderr: String::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    #[test]
    fn commands_share_variables_and_directory_and_tell_their_status() {
        let dir = tempfile::tempdir().unwrap();
        let directory = dir.path().join("work");
        std::fs::create_dir(&directory).unwrap();
        let mut shell = Shell::start(&directory, Path::new("/nonexistent")).unwrap();
        assert!(shell.run("A=one", LIMIT).unwrap().success);
        let answer = shell.run("printf '%s' \"$A\" > f; cat f; echo two >&2", LIMIT).unwrap();
        assert_eq!(answer.stdout.trim_end(), "onetwo");
        assert!(!shell.run("false", LIMIT).unwrap().success);
        // Nothing of the script is read by a command.
        assert_eq!(shell.run("cat; echo done", LIMIT).unwrap().stdout.trim(), "done");
        assert!(shell.run("exit 3", LIMIT).unwrap_err().to_string().contains("the shell ended"));
    }
}
