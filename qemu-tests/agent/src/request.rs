//! What tests may ask for.
//!
//! Owns: the request's JSON and the dispatch. Source: qemu-tests/src/agent.rs, the only client.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{block, children, files, processes};

/// One request; `op` names the variant.
#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub(crate) enum Request {
    /// `{pid, start_ticks, ppid, name, state}` of every process.
    Processes,
    /// Sends a signal to a pid, or to every process of that name.
    Kill { pid: Option<i32>, name: Option<String>, signal: i32 },
    /// Proportional set size in KiB.
    Pss { pid: i32 },
    /// A file as text (lossy) and its size.
    Read { path: String },
    /// Replaces a file's content.
    Write { path: String, text: String },
    /// Writes a file until the file system is full, or until that many bytes.
    Fill { path: String, bytes: Option<u64> },
    /// Removes a file.
    Remove { path: String },
    /// A fingerprint of every regular file below a path; unreadable ones with their errno.
    Fingerprints { path: String },
    /// Drops clean caches, so that the next read comes from the device.
    DropCaches,
    /// Flips bits of one byte of a file or block device and writes it through.
    FlipByte { path: String, offset: u64, mask: u8 },
    /// Starts a child that prints `lines` lines `flood <tag> <number>` on the agent's own stdout.
    Flood { tag: String, lines: u64, pause_us: u64 },
    /// Starts a child that leaves `count` orphans, one after another.
    ForkAndDie { count: u64 },
    /// Whether a child that was started here still runs, and how it ended.
    Child { pid: u32 },
    /// Milliseconds since the epoch and since boot.
    Time,
}

pub(crate) fn run(request: Request) -> Result<Value, String> {
    match request {
        Request::Processes => processes::list(),
        Request::Kill { pid, name, signal } => processes::kill(pid, name.as_deref(), signal),
        Request::Pss { pid } => processes::pss_kib(pid),
        Request::Read { path } => files::read(&path),
        Request::Write { path, text } => files::write(&path, &text),
        Request::Fill { path, bytes } => files::fill(&path, bytes),
        Request::Remove { path } => files::remove(&path),
        Request::Fingerprints { path } => files::fingerprints(&path),
        Request::DropCaches => files::write("/proc/sys/vm/drop_caches", "3"),
        Request::FlipByte { path, offset, mask } => block::flip_byte(&path, offset, mask),
        Request::Flood { tag, lines, pause_us } => {
            children::start(&["flood", &tag, &lines.to_string(), &pause_us.to_string()])
        }
        Request::ForkAndDie { count } => children::start(&["fork-and-die", &count.to_string()]),
        Request::Child { pid } => children::state(pid),
        Request::Time => time(),
    }
}

fn time() -> Result<Value, String> {
    let epoch = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_err(|_| "the clock is before 1970".to_owned())?;
    let uptime =
        std::fs::read_to_string("/proc/uptime").map_err(|error| format!("read /proc/uptime: {error}"))?;
    let seconds: f64 = uptime
        .split(' ')
        .next()
        .and_then(|word| word.parse().ok())
        .ok_or_else(|| format!("parse /proc/uptime: {uptime:?}"))?;
    Ok(json!({ "epoch_ms": u64::try_from(epoch.as_millis()).unwrap_or(u64::MAX), "uptime_s": seconds }))
}
