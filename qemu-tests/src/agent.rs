//! A client of the fault injector in test images.
//!
//! Owns: one TCP connection a request, so that a connection broken on purpose harms nothing else.
//! Does not: retry; a test that expects a failure asks again itself.
//! Source: qemu-tests/agent/src/request.rs.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::deadline;
use crate::process::POLL_INTERVAL;

/// The agent's port in the guest.
pub const PORT: u16 = 50099;

/// Reading a whole root through decompression and verity on an emulated processor takes this long.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// Signals by their numbers on x86-64 and arm64.
pub mod signal {
    /// Cannot be caught.
    pub const KILL: i32 = 9;
    /// Cannot be caught either; [`CONT`] ends it.
    pub const STOP: i32 = 19;
    /// Continues a stopped process.
    pub const CONT: i32 = 18;
}

/// A process of the node. Pid and start time together name it for good.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Process {
    /// Process id.
    pub pid: i32,
    /// The kernel's short name.
    pub name: String,
    /// `R`, `S`, `Z` and so on.
    pub state: String,
    /// The parent's process id.
    pub ppid: i32,
    /// Clock ticks from boot to its start.
    pub start_ticks: u64,
}

/// What every file below a path looks like.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Fingerprints {
    /// Path -> hash of the content.
    pub files: BTreeMap<String, String>,
    /// Path -> errno of what could not be read.
    pub errors: BTreeMap<String, i32>,
}

/// Where a node's agent is reached.
#[derive(Debug, Clone, Copy)]
pub struct Agent {
    port: u16,
}

impl Agent {
    /// The agent behind a forwarded port on 127.0.0.1.
    pub fn new(port: u16) -> Self {
        Self { port }
    }

    /// Waits until the agent answers.
    pub fn wait(&self, on_reference: Duration) -> Result<()> {
        let limit = deadline(on_reference);
        let end = Instant::now() + limit;
        while let Err(error) = self.ask(json!({ "op": "time" })) {
            if Instant::now() > end {
                return Err(error).with_context(|| format!("the agent did not answer within {limit:?}"));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Sends one request, returns its answer.
    pub fn ask(&self, request: Value) -> Result<Value> {
        let what = || format!("ask the agent {request}");
        let answer = self.exchange(&request).with_context(what)?;
        match answer.get("error") {
            Some(error) => bail!("{}: {}", what(), error.as_str().unwrap_or_default()),
            None => Ok(answer),
        }
    }

    /// All processes.
    pub fn processes(&self) -> Result<Vec<Process>> {
        let answer = self.ask(json!({ "op": "processes" }))?;
        serde_json::from_value(answer["processes"].clone()).context("parse the agent's list of processes")
    }

    /// The only process of that name.
    pub fn process(&self, name: &str) -> Result<Process> {
        let mut named: Vec<Process> = self.processes()?;
        named.retain(|process| process.name == name && process.state != "Z");
        match named.as_slice() {
            [one] => Ok(one.clone()),
            others => bail!("expected one process {name}, found {others:?}"),
        }
    }

    /// Sends a signal to a process.
    pub fn signal(&self, pid: i32, signal: i32) -> Result<()> {
        self.ask(json!({ "op": "kill", "pid": pid, "signal": signal })).map(drop)
    }

    /// Sends a signal to all processes of that name.
    pub fn signal_named(&self, name: &str, signal: i32) -> Result<()> {
        self.ask(json!({ "op": "kill", "name": name, "signal": signal })).map(drop)
    }

    /// Anonymous memory of a process in KiB: what it allocated, its binary aside.
    pub fn anonymous_kib(&self, pid: i32) -> Result<u64> {
        self.ask(json!({ "op": "pss", "pid": pid }))?["anonymous_kib"]
            .as_u64()
            .context("no number from the agent")
    }

    /// A file as text.
    pub fn read(&self, path: &str) -> Result<String> {
        let answer = self.ask(json!({ "op": "read", "path": path }))?;
        Ok(answer["text"].as_str().unwrap_or_default().to_owned())
    }

    /// Every regular file below a path, on its file system only.
    pub fn fingerprints(&self, path: &str) -> Result<Fingerprints> {
        let answer = self.ask(json!({ "op": "fingerprints", "path": path }))?;
        serde_json::from_value(answer).context("parse the agent's fingerprints")
    }

    /// Prints numbered lines `flood <tag> <number>` into the agent's log; returns the child's pid.
    pub fn flood(&self, tag: &str, lines: u64, pause: Duration) -> Result<u64> {
        let pause = u64::try_from(pause.as_micros()).unwrap_or(u64::MAX);
        let answer = self.ask(json!({ "op": "flood", "tag": tag, "lines": lines, "pause_us": pause }))?;
        answer["pid"].as_u64().context("the agent named no pid")
    }

    /// Leaves `count` orphans to PID 1, one after another; returns the child's pid.
    pub fn fork_and_die(&self, count: u64) -> Result<u64> {
        let answer = self.ask(json!({ "op": "fork-and-die", "count": count }))?;
        answer["pid"].as_u64().context("the agent named no pid")
    }

    /// Waits until a child that the agent started ended well.
    pub fn wait_child(&self, pid: u64, on_reference: Duration) -> Result<()> {
        self.wait_child_while(pid, on_reference, || Ok(0))
    }

    /// Waits for a child that starts processes: it may go on as long as there are a hundred new ones within the limit,
    /// more than a node's services start meanwhile.
    pub fn wait_forking_child(&self, pid: u64, on_reference: Duration) -> Result<()> {
        self.wait_child_while(pid, on_reference, || Ok(self.forks()? / 100))
    }

    /// The limit starts anew whenever `progress` is another number.
    fn wait_child_while(
        &self,
        pid: u64,
        on_reference: Duration,
        progress: impl Fn() -> Result<u64>,
    ) -> Result<()> {
        let limit = deadline(on_reference);
        let (mut last, mut end) = (progress()?, Instant::now() + limit);
        loop {
            let state = self.ask(json!({ "op": "child", "pid": pid }))?;
            if state["running"] == false {
                if state["success"] == true {
                    return Ok(());
                }
                bail!("the agent's child {pid} ended with {}", state["status"]);
            }
            let now = progress()?;
            if now != last {
                (last, end) = (now, Instant::now() + limit);
            }
            if Instant::now() > end {
                bail!("the agent's child {pid} still ran after {limit:?} without progress (at {last})");
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// How many processes and threads were ever started on the node.
    fn forks(&self) -> Result<u64> {
        let stat = self.read("/proc/stat")?;
        let line = stat.lines().find_map(|line| line.strip_prefix("processes "));
        line.and_then(|count| count.trim().parse().ok()).context("no `processes` in /proc/stat")
    }

    fn exchange(&self, request: &Value) -> Result<Value> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).context("connect")?;
        stream.set_read_timeout(Some(deadline(ANSWER_LIMIT)))?;
        stream.write_all(format!("{request}\n").as_bytes()).context("send")?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).context("read the answer")?;
        if line.is_empty() {
            bail!("the connection was closed without an answer");
        }
        serde_json::from_str(&line).context("parse the answer")
    }
}
