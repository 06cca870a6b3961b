//! runc: one container a node, known by its name below the cluster's directory.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::Error;
use crate::program::{run, run_to_file};

/// Between two looks at a node that is to end.
const LOOK: Duration = Duration::from_millis(50);
/// How long a killed node may take.
const KILL_DEADLINE: Duration = Duration::from_secs(20);

/// What `runc state` says of a container (OCI runtime specification, "State").
#[derive(serde::Deserialize)]
struct State {
    status: String,
    pid: u32,
}

/// runc with a directory of its own for what it keeps.
pub(crate) struct Runtime {
    root: PathBuf,
}

impl Runtime {
    pub(crate) fn new(cluster: &Path) -> Self {
        Self { root: cluster.join("runc") }
    }

    fn runc(&self, words: &[&str]) -> Result<String, Error> {
        let root = self.root.display().to_string();
        run("runc", &[&["--root", &root], words].concat())
    }

    /// Starts a container from a bundle; what is left of an earlier one of its name goes first.
    pub(crate) fn run(&self, container: &str, bundle: &Path, log: &Path) -> Result<(), Error> {
        self.remove(container)?;
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(log);
        let file = file.map_err(|source| Error::File { what: "open", path: log.to_owned(), source })?;
        let (root, bundle) = (self.root.display().to_string(), bundle.display().to_string());
        let words = ["--root", &root, "run", "--detach", "--bundle", &bundle, container];
        run_to_file("runc", &words, &file).map_err(|error| match error {
            Error::Program { command, said } => {
                let words = std::fs::read_to_string(log).unwrap_or_default();
                let last =
                    words.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
                Error::Program { command, said: format!("{last} ({said}, {})", log.display()) }
            }
            other => other,
        })
    }

    /// Whether it runs; one that is not known does not.
    pub(crate) fn is_running(&self, container: &str) -> Result<bool, Error> {
        if !self.root.join(container).exists() {
            return Ok(false);
        }
        Ok(self.state(container)?.status == "running")
    }

    /// The process that is its PID 1, as this machine counts processes.
    pub(crate) fn pid(&self, container: &str) -> Result<u32, Error> {
        Ok(self.state(container)?.pid)
    }

    fn state(&self, container: &str) -> Result<State, Error> {
        let text = self.runc(&["state", container])?;
        serde_json::from_str(&text)
            .map_err(|source| Error::Record { path: self.root.join(container), source })
    }

    /// Asks its PID 1 to end, and kills it when that takes too long.
    pub(crate) fn stop(&self, container: &str, deadline: Duration) -> Result<(), Error> {
        if self.is_running(container)? {
            self.runc(&["kill", container, "TERM"])?;
            if !self.wait_for_end(container, deadline)? {
                return self.kill(container);
            }
        }
        self.remove(container)
    }

    /// Ends it at once.
    pub(crate) fn kill(&self, container: &str) -> Result<(), Error> {
        if self.is_running(container)? {
            self.runc(&["kill", container, "KILL"])?;
            if !self.wait_for_end(container, KILL_DEADLINE)? {
                let said = format!("it still runs {} s after SIGKILL", KILL_DEADLINE.as_secs());
                return Err(Error::Program { command: format!("runc kill {container} KILL"), said });
            }
        }
        self.remove(container)
    }

    fn wait_for_end(&self, container: &str, deadline: Duration) -> Result<bool, Error> {
        let end = Instant::now() + deadline;
        while self.is_running(container)? {
            if Instant::now() > end {
                return Ok(false);
            }
            std::thread::sleep(LOOK);
        }
        Ok(true)
    }

    fn remove(&self, container: &str) -> Result<(), Error> {
        if !self.root.join(container).exists() {
            return Ok(());
        }
        self.runc(&["delete", "--force", container]).map(drop)
    }
}
