//! A config that is in force for a while only, as the node remembers it, and as machined hands it to its next process.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// Why it is for a while only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// `--mode=try`.
    Try,
    /// `--confirm`.
    Confirm,
}

/// What is to be undone, and when.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Pending {
    pub(super) kind: Kind,
    pub(super) timeout: Duration,
    /// On `CLOCK_BOOTTIME`; `None` until the node is back.
    pub(super) deadline_ns: Option<u64>,
    /// The config to return to.
    pub(super) previous: Zeroizing<String>,
}

/// What machined keeps beside the text for its next process.
#[derive(Serialize, Deserialize)]
struct Header {
    kind: Kind,
    timeout_ms: u64,
    deadline_ns: Option<u64>,
}

impl Pending {
    /// Whether it is a try: nothing of it is on a disk.
    pub(super) fn is_try(&self) -> bool {
        self.kind == Kind::Try
    }

    /// One line of JSON, then the config.
    pub(super) fn to_text(&self) -> Zeroizing<String> {
        let header =
            Header { kind: self.kind, timeout_ms: milliseconds(self.timeout), deadline_ns: self.deadline_ns };
        let header = serde_json::to_string(&header).unwrap_or_default();
        Zeroizing::new(format!("{header}\n{}", self.previous.as_str()))
    }

    pub(super) fn from_text(text: &str) -> Option<Self> {
        let (header, previous) = text.split_once('\n')?;
        let header: Header = serde_json::from_str(header).ok()?;
        Some(Self {
            kind: header.kind,
            timeout: Duration::from_millis(header.timeout_ms),
            deadline_ns: header.deadline_ns,
            previous: Zeroizing::new(previous.to_owned()),
        })
    }
}

/// On the wire and on disks.
pub(super) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
