//! Test programs side by side. Many of their tests wait, for another program or for a clock, and cargo runs one program after the
//! other.
//!
//! Owns: which programs there are, as cargo tells; that each runs in its package's directory, as cargo runs it.
//! Order: the largest first, since it takes longest; the tests in documentation last, by cargo.
//! Does not: read what they print.
//! Source: The Cargo Book, "External tools", JSON messages.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::{fs, thread};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::command::leave_out_cargo_s;

/// A program, and the directory of its package.
#[derive(Debug, PartialEq)]
struct Program {
    file: PathBuf,
    directory: PathBuf,
}

/// How cargo is called.
pub(super) struct Cargo<'a> {
    pub(super) program: &'a Path,
    /// `test` and what it tests.
    pub(super) arguments: &'a [String],
    pub(super) env: &'a [(&'static str, OsString)],
    pub(super) directory: &'a Path,
}

impl Cargo<'_> {
    /// Compiles the programs and runs as many at once as there are processors. All that they said, one program behind the other,
    /// and whether each succeeded.
    pub(super) fn run(&self) -> Result<(String, bool)> {
        let compiled = self
            .command(&["--no-run", "--message-format=json-render-diagnostics"])
            .output()
            .context("start cargo")?;
        let mut text = String::from_utf8_lossy(&compiled.stderr).into_owned();
        if !compiled.status.success() {
            return Ok((text, false));
        }
        let mut programs = programs(&String::from_utf8_lossy(&compiled.stdout));
        // From the end: the largest first.
        programs.sort_by_key(|program| fs::metadata(&program.file).map_or(0, |file| file.len()));
        let waiting = Mutex::new(programs);
        let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let ended = Mutex::new((String::new(), true));
        thread::scope(|scope| {
            for _ in 0..thread::available_parallelism().map_or(2, usize::from) {
                scope.spawn(|| {
                    while let Some(program) = next() {
                        let (said, succeeded) = self.test(&program);
                        let mut ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
                        ended.0.push_str(&said);
                        ended.1 &= succeeded;
                    }
                });
            }
        });
        let (said, mut succeeded) = ended.into_inner().unwrap_or_else(PoisonError::into_inner);
        text.push_str(&said);
        let documentation = self.command(&["--doc"]).output().context("start cargo")?;
        text.push_str(&both(&documentation));
        succeeded &= documentation.status.success();
        Ok((text, succeeded))
    }

    fn command(&self, further: &[&str]) -> Command {
        let mut command = Command::new(self.program);
        leave_out_cargo_s(&mut command);
        command
            .args(self.arguments)
            .args(further)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .env("CARGO_TERM_COLOR", "never")
            .current_dir(self.directory)
            .stdin(Stdio::null());
        command
    }

    fn test(&self, program: &Program) -> (String, bool) {
        let name = program.file.display();
        let mut command = Command::new(&program.file);
        command
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .env("CARGO", self.program)
            .env("CARGO_MANIFEST_DIR", &program.directory)
            .current_dir(&program.directory)
            .stdin(Stdio::null());
        match command.output() {
            Ok(output) => {
                let end = if output.status.success() {
                    String::new()
                } else {
                    // In cargo's words, for a program that ended in the middle of its tests.
                    format!("error: test failed: {name}: {}\n", output.status)
                };
                (format!("     Running {name}\n{}{end}", both(&output)), output.status.success())
            }
            Err(error) => (format!("error: start {name}: {error}\n"), false),
        }
    }
}

/// What it wrote to both streams. Results are on the first; a test's panic is on the second where the test starts itself anew.
fn both(output: &std::process::Output) -> String {
    let [first, second] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{second}{first}\n")
}

/// The programs among cargo's messages, each once.
fn programs(messages: &str) -> Vec<Program> {
    let mut found = Vec::new();
    for message in messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let text = |value: &Value| value.as_str().map(PathBuf::from);
        let (Some(file), Some(manifest)) = (text(&message["executable"]), text(&message["manifest_path"]))
        else {
            continue;
        };
        let Some(directory) = manifest.parent() else { continue };
        let program = Program { file, directory: directory.to_owned() };
        if message["profile"]["test"] == true && !found.contains(&program) {
            found.push(program);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_programs_are_found_with_the_directories_of_their_packages() {
        let messages = "{\"reason\":\"compiler-artifact\",\"manifest_path\":\"/a/Cargo.toml\",\"profile\":{\"test\":true},\"executable\":\"/t/a-1\"}\n\
            {\"reason\":\"compiler-artifact\",\"manifest_path\":\"/a/Cargo.toml\",\"profile\":{\"test\":false},\"executable\":\"/t/a\"}\n\
            {\"reason\":\"compiler-artifact\",\"manifest_path\":\"/b/Cargo.toml\",\"profile\":{\"test\":true},\"executable\":null}\n\
            no message\n\
            {\"reason\":\"compiler-artifact\",\"manifest_path\":\"/a/Cargo.toml\",\"profile\":{\"test\":true},\"executable\":\"/t/a-1\"}\n";
        assert_eq!(programs(messages), [Program { file: "/t/a-1".into(), directory: "/a".into() }]);
    }

    #[test]
    fn a_program_runs_in_its_directory_and_its_failure_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("program");
        fs::write(&file, "#!/bin/sh\npwd\necho \"$CARGO_MANIFEST_DIR\"\necho why >&2\nexit 3\n").unwrap();
        let mode = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
        fs::set_permissions(&file, mode).unwrap();
        let cargo =
            Cargo { program: Path::new("cargo"), arguments: &[], env: &[], directory: directory.path() };
        let place = directory.path().canonicalize().unwrap();
        let (said, succeeded) = cargo.test(&Program { file, directory: place.clone() });
        assert!(!succeeded && said.contains("why\n") && said.contains("exit status: 3"), "{said}");
        assert_eq!(said.matches(&format!("{}\n", place.display())).count(), 2, "{said}");
    }
}
