//! Child processes: run one, keep what it said, and name it when it fails.
//!
//! Owns: the form of a failed command's error (the command line, the exit status, its last lines of output).
//! Does not: go through a shell; arguments reach the program as they are.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail};

use crate::step;

/// Lines of a failed command's output that its error repeats.
const TAIL_LINES: usize = 25;

/// Directories where Debian keeps administration programs and that a normal user's PATH lacks.
const ADMIN_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Variables by which cargo describes the package whose program it starts.
const CARGO_S: [&str; 3] = ["CARGO_BIN_NAME", "CARGO_CRATE_NAME", "OUT_DIR"];
const CARGO_S_PREFIXES: [&str; 2] = ["CARGO_MANIFEST_", "CARGO_PKG_"];

/// A command being put together.
pub(crate) struct Cmd {
    program: OsString,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    directory: Option<PathBuf>,
}

impl Cmd {
    pub(crate) fn new(program: impl AsRef<OsStr>) -> Self {
        Self { program: program.as_ref().to_owned(), args: Vec::new(), env: Vec::new(), directory: None }
    }

    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    pub(crate) fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.into(), value.as_ref().to_owned()));
        self
    }

    pub(crate) fn directory(mut self, directory: &Path) -> Self {
        self.directory = Some(directory.to_owned());
        self
    }

    /// Runs it with its output kept; an exit status other than 0 is an error.
    pub(crate) fn read(&self) -> Result<String> {
        let output = self.output()?;
        if !output.status.success() {
            bail!("{self}: {}\n{}", output.status, tail(&output));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Like [`Self::read`], for a command that says nothing of use.
    pub(crate) fn run(&self) -> Result<()> {
        self.read().map(drop)
    }

    /// Runs it with the terminal as its output; true when it succeeded.
    pub(crate) fn show(&self) -> Result<bool> {
        let status = self.prepare().status().with_context(|| format!("start {self}"))?;
        Ok(status.success())
    }

    /// Runs it and gives back whatever it did.
    pub(crate) fn output(&self) -> Result<Output> {
        let mut command = self.prepare();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.output().with_context(|| format!("start {self}"))
    }

    fn prepare(&self) -> Command {
        if step::verbose() {
            println!("  $ {self}");
        }
        let program = find_program(&self.program).map_or_else(|| self.program.clone(), Into::into);
        let mut command = Command::new(program);
        leave_out_cargo_s(&mut command);
        command.args(&self.args).env("LC_ALL", "C");
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        command
    }
}

impl std::fmt::Display for Cmd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.program.to_string_lossy())?;
        self.args.iter().try_for_each(|arg| write!(f, " {}", arg.to_string_lossy()))
    }
}

/// Leaves out what cargo said of this program when it started it. Build scripts look at these variables (ring's does), so that
/// a cargo that has them would compile again what the cargo in a terminal has compiled, and the other way round.
pub(crate) fn leave_out_cargo_s(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let is_cargo_s = name.to_str().is_some_and(|name| {
            CARGO_S.contains(&name) || CARGO_S_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        });
        if is_cargo_s {
            command.env_remove(name);
        }
    }
}

/// The file that `program` names: as given, in PATH, or in a directory of administration programs.
pub(crate) fn find_program(program: &OsStr) -> Option<PathBuf> {
    let given = Path::new(program);
    if given.components().count() > 1 {
        return given.is_file().then(|| given.to_owned());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let admin = ADMIN_FOLDERS.iter().map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(admin)
        .map(|directory| directory.join(given))
        .find(|file| file.is_file())
}

/// The last lines of both streams.
fn tail(output: &Output) -> String {
    let text = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).join("\n");
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let from = lines.len().saturating_sub(TAIL_LINES);
    lines.get(from..).unwrap_or_default().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_command_status_and_last_words() {
        let error = Cmd::new("ls").arg("/no such directory").run().unwrap_err().to_string();
        assert!(error.starts_with("ls /no such directory: exit status: 2"), "{error}");
        assert!(error.contains("No such file or directory"), "{error}");
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = Cmd::new("no-such-program-of-billet").run().unwrap_err().to_string();
        assert_eq!(error, "start no-such-program-of-billet");
    }

    #[test]
    fn arguments_reach_the_program_unchanged() {
        assert_eq!(Cmd::new("printf").args(["%s|", "a b", "$HOME;"]).read().unwrap(), "a b|$HOME;|");
    }
}
