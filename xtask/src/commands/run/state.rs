//! The node that `run` started: `target/run/vm.json`.
//!
//! Owns: telling that very process from another one that got its number later: its start time is kept too.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use qemu_tests::cli::Billetctl;
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};

use crate::place;

/// Field of `/proc/<pid>/stat` with the start time in ticks since boot, counted from the one after the name.
/// Source: proc_pid_stat(5), field 22.
const START_TIME: usize = 19;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) pid: i32,
    /// Start time of the process.
    pub(crate) started: u64,
    /// QEMU's directory with its monitor socket; removed with the state.
    pub(crate) directory: PathBuf,
    pub(crate) console: PathBuf,
    pub(crate) talosconfig: PathBuf,
    pub(crate) api_port: u16,
    /// billetctl, for machines like this one.
    pub(crate) client: PathBuf,
}

impl State {
    /// The node that runs now; the file of one that ended is removed.
    pub(crate) fn running() -> Result<Option<Self>> {
        let path = path();
        if !path.exists() {
            return Ok(None);
        }
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let state: Option<Self> = serde_json::from_str(&text).ok();
        if state.as_ref().is_some_and(Self::alive) {
            return Ok(state);
        }
        if let Some(state) = state {
            state.remove_directory();
        }
        Self::forget()?;
        Ok(None)
    }

    pub(crate) fn write(&self) -> Result<()> {
        let path = path();
        let text = serde_json::to_string_pretty(self).context("serialise the node's state")?;
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))
    }

    pub(crate) fn forget() -> Result<()> {
        let path = path();
        if path.exists() {
            fs::remove_file(&path).with_context(|| format!("remove {}", path.display()))?;
        }
        Ok(())
    }

    /// The client of an admin.
    pub(crate) fn billetctl(&self) -> Billetctl {
        Billetctl::of(&self.client, &self.talosconfig)
    }

    /// Whether the process still runs and is the one that was started.
    pub(crate) fn alive(&self) -> bool {
        start_time(self.pid) == Some(self.started)
    }

    /// Ends the process at once, if it is the one that was started.
    pub(crate) fn kill(&self) -> Result<()> {
        match Pid::from_raw(self.pid).filter(|_| self.alive()) {
            Some(pid) => rustix::process::kill_process(pid, Signal::KILL).context("kill QEMU"),
            None => Ok(()),
        }
    }

    pub(crate) fn remove_directory(&self) {
        // Only sockets and a variable store: what is left behind is no harm.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Start time of a process; `None` when there is none, or only its exit status is left.
pub(crate) fn start_time(pid: i32) -> Option<u64> {
    parse_start_time(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The name may hold blanks and brackets, so fields are counted from the last bracket.
fn parse_start_time(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    let started = fields.nth(START_TIME - 1)?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(started)
}

fn path() -> PathBuf {
    place::run_directory().join("vm.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(pid: i32, started: u64) -> State {
        let none = PathBuf::from("/nonexistent/directory");
        let [directory, console, talosconfig, client] = [none.clone(), none.clone(), none.clone(), none];
        State { pid, started, directory, console, talosconfig, api_port: 1, client }
    }

    #[test]
    fn a_process_is_told_from_a_later_one_of_the_same_number() {
        let own = i32::try_from(std::process::id()).unwrap();
        let started = start_time(own).unwrap();
        assert!(state(own, started).alive());
        let other = state(own, started + 1);
        assert!(!other.alive());
        other.kill().unwrap();
    }

    #[test]
    fn a_name_with_blanks_and_brackets_does_not_shift_fields() {
        let rest = (3..=52).map(|field| if field == 3 { "S".into() } else { field.to_string() });
        let stat = format!("7 (a) b) {}", rest.collect::<Vec<_>>().join(" "));
        assert_eq!(parse_start_time(&stat), Some(22));
        assert_eq!(parse_start_time(&stat.replace(") S", ") Z")), None);
    }
}
