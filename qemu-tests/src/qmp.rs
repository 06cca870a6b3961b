//! A client of QEMU's machine protocol.
//!
//! Owns: the JSON lines on one Unix socket; events that arrive while an answer is awaited are kept in order.
//! Does not: know what commands mean.
//! Fails by: the command's name and QEMU's own description, or "QEMU closed the socket".
//! Source: QEMU's docs/interop/qmp-spec.txt.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Value, json};

use crate::process::POLL_INTERVAL;

/// QEMU answers from its main loop, which a busy host delays.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// A connection past the greeting.
#[derive(Debug)]
pub struct Qmp {
    reader: BufReader<UnixStream>,
    partial: Vec<u8>,
    events: VecDeque<Value>,
    closed: bool,
}

impl Qmp {
    /// Connects once the socket exists, and negotiates.
    pub fn connect(path: &Path, limit: Duration) -> Result<Self> {
        let end = Instant::now() + limit;
        let stream = loop {
            match UnixStream::connect(path) {
                Ok(stream) => break stream,
                Err(error) if Instant::now() > end => {
                    return Err(error).with_context(|| format!("connect to {}", path.display()));
                }
                Err(_) => std::thread::sleep(POLL_INTERVAL),
            }
        };
        Self::negotiate(stream)
    }

    fn negotiate(stream: UnixStream) -> Result<Self> {
        let mut qmp = Self {
            reader: BufReader::new(stream),
            partial: Vec::new(),
            events: VecDeque::new(),
            closed: false,
        };
        let greeting = qmp.read(Instant::now() + ANSWER_LIMIT)?.context("no greeting from QEMU")?;
        if greeting.get("QMP").is_none() {
            bail!("expected QEMU's greeting, read {greeting}");
        }
        qmp.execute("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    /// Runs a command and returns its answer.
    pub fn execute(&mut self, command: &str, arguments: Value) -> Result<Value> {
        let line = format!("{}\n", json!({ "execute": command, "arguments": arguments }));
        self.reader
            .get_mut()
            .write_all(line.as_bytes())
            .with_context(|| format!("send {command} to QEMU"))?;
        let end = Instant::now() + ANSWER_LIMIT;
        loop {
            let message = self
                .read(end)?
                .ok_or_else(|| anyhow!("QEMU did not answer {command} within {ANSWER_LIMIT:?}"))?;
            if let Some(answer) = message.get("return") {
                return Ok(answer.clone());
            }
            if let Some(error) = message.get("error") {
                bail!("QEMU refused {command}: {}", error["desc"].as_str().unwrap_or("no reason given"));
            }
            self.events.push_back(message);
        }
    }

    /// Runs a command of the human monitor and returns what it prints.
    pub fn human(&mut self, line: &str) -> Result<String> {
        let answer = self.execute("human-monitor-command", json!({ "command-line": line }))?;
        Ok(answer.as_str().unwrap_or_default().to_owned())
    }

    /// Waits for the next event of that name; earlier other events stay queued.
    pub fn wait_event(&mut self, name: &str, limit: Duration) -> Result<Value> {
        let end = Instant::now() + limit;
        loop {
            if let Some(at) = self.events.iter().position(|event| event["event"] == name) {
                return self.events.remove(at).context("invariant: the position was just found");
            }
            let message = self.read(end)?;
            self.events
                .push_back(message.ok_or_else(|| anyhow!("no event {name} from QEMU within {limit:?}"))?);
        }
    }

    /// Takes the events that arrived so far.
    pub fn take_events(&mut self) -> Result<Vec<Value>> {
        while let Some(message) = self.read(Instant::now())? {
            self.events.push_back(message);
        }
        Ok(self.events.drain(..).collect())
    }

    /// One message, or `None` at the deadline.
    fn read(&mut self, end: Instant) -> Result<Option<Value>> {
        loop {
            if self.closed {
                bail!("QEMU closed the monitor socket");
            }
            let left = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            self.reader
                .get_ref()
                .set_read_timeout(Some(left))
                .context("set the timeout of the monitor socket")?;
            match self.reader.read_until(b'\n', &mut self.partial) {
                Ok(0) => self.closed = true,
                Ok(_) if self.partial.ends_with(b"\n") => {
                    let line = std::mem::take(&mut self.partial);
                    return serde_json::from_slice(&line).map(Some).context("parse QEMU's message");
                }
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    if Instant::now() >= end {
                        return Ok(None);
                    }
                }
                Err(error) if error.kind() == ErrorKind::ConnectionReset => self.closed = true,
                Err(error) => return Err(error).context("read from QEMU's monitor"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// A QEMU that greets, acknowledges, and then plays the given lines, one after each command.
    fn peer(answers: Vec<&'static str>) -> Qmp {
        let (ours, theirs) = UnixStream::pair().unwrap();
        thread::spawn(move || {
            let mut lines = BufReader::new(theirs.try_clone().unwrap()).lines();
            let mut out = theirs;
            out.write_all(b"{\"QMP\":{}}\n").unwrap();
            lines.next().unwrap().unwrap();
            out.write_all(b"{\"return\":{}}\n").unwrap();
            for answer in answers {
                lines.next().unwrap().unwrap();
                out.write_all(answer.as_bytes()).unwrap();
            }
        });
        Qmp::negotiate(ours).unwrap()
    }

    #[test]
    fn events_before_the_answer_are_kept() {
        let mut qmp = peer(vec!["{\"event\":\"RESET\"}\n{\"event\":\"STOP\"}\n{\"return\":7}\n"]);
        assert_eq!(qmp.execute("x", json!({})).unwrap(), json!(7));
        assert_eq!(qmp.wait_event("STOP", Duration::ZERO).unwrap()["event"], "STOP");
        assert_eq!(qmp.take_events().unwrap_or_default().len(), 0, "closing is an error, not an event");
    }

    #[test]
    fn a_refusal_names_command_and_reason() {
        let mut qmp = peer(vec!["{\"error\":{\"class\":\"GenericError\",\"desc\":\"no such disk\"}}\n"]);
        let text = qmp.execute("eject", json!({})).unwrap_err().to_string();
        assert!(text.contains("eject") && text.contains("no such disk"), "{text}");
    }

    #[test]
    fn a_closed_socket_is_said() {
        let mut qmp = peer(vec![]);
        assert!(qmp.wait_event("RESET", Duration::from_secs(5)).unwrap_err().to_string().contains("closed"));
    }
}
