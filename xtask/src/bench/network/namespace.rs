//! Network namespaces of the bench, by ip(8).
//!
//! Owns: their names. One that an earlier run left is made anew.

use std::ffi::OsStr;
use std::process::Command;

use anyhow::{Result, ensure};

use crate::command::Cmd;

/// The module of service-manager whose ignored tests run in them.
pub(super) const MODULE: &str = "network::figures";

/// A namespace that lives as long as this.
pub(super) struct Namespace(&'static str);

impl Namespace {
    pub(super) fn new(name: &'static str) -> Result<Self> {
        // Without one there is nothing to end.
        let _ = Cmd::new("ip").args(["netns", "del", name]).output();
        Cmd::new("ip").args(["netns", "add", name]).run()?;
        let namespace = Self(name);
        namespace.ip("link set lo up")?;
        Ok(namespace)
    }

    pub(super) fn name(&self) -> &'static str {
        self.0
    }

    /// Runs ip(8) with the words of this text; what it printed.
    pub(super) fn ip(&self, words: &str) -> Result<String> {
        let output = Cmd::new("ip").args(["-netns", self.0]).args(words.split(' ')).output()?;
        ensure!(
            output.status.success(),
            "ip {words} in {}: {}",
            self.0,
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// A program that runs there. Its process is the one that is started.
    pub(super) fn inside(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", self.0]).arg(program);
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Cmd::new("ip").args(["netns", "del", self.0]).output();
    }
}

/// A process that is killed with this.
pub(super) struct Running(pub(super) std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
