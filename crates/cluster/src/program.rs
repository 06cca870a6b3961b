//! Programs of the host: iproute2, mount, nftables, runc.

use std::fs::File;
use std::process::{Command, Stdio};

use crate::Error;

/// What has each program, on Debian.
const PACKAGES: [(&str, &str); 4] =
    [("ip", "iproute2"), ("mount", "mount"), ("nft", "nftables"), ("runc", "runc")];

/// Runs a program to its end and returns what it wrote to its output.
///
/// # Errors
/// [`Error::NoProgram`], [`Error::Program`].
pub fn run(program: &'static str, arguments: &[&str]) -> Result<String, Error> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|source| missing(program, source))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(failed(program, arguments, said.trim(), output.status))
}

/// Runs a program whose output, and that of what it leaves running, goes to a file.
///
/// # Errors
/// [`Error::NoProgram`], [`Error::Program`].
pub fn run_to_file(program: &'static str, arguments: &[&str], file: &File) -> Result<(), Error> {
    let copy = || file.try_clone().map_err(|source| missing(program, source));
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(copy()?).stderr(copy()?);
    let status = command.status().map_err(|source| missing(program, source))?;
    if status.success() { Ok(()) } else { Err(failed(program, arguments, "see its log", status)) }
}

fn missing(program: &'static str, source: std::io::Error) -> Error {
    let package = PACKAGES.iter().find(|(name, _)| *name == program).map_or(program, |(_, package)| *package);
    Error::NoProgram { program, package, source }
}

fn failed(program: &str, arguments: &[&str], said: &str, status: std::process::ExitStatus) -> Error {
    let command = [&[program], arguments].concat().join(" ");
    Error::Program { command, said: format!("{said} ({status})") }
}
