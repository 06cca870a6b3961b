//! Where the time went, as the node says it, and times as people read them.

use serde::Deserialize;

/// The resource's spec. Times are on the node's CLOCK_BOOTTIME, which begins with the kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Timeline {
    pub(super) firmware_ns: u64,
    pub(super) loader_ns: u64,
    pub(super) kernel_ns: u64,
    pub(super) entries: Vec<Entry>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Entry {
    pub(super) source: String,
    pub(super) phase: String,
    pub(super) task: String,
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
}

/// Milliseconds below a second, else seconds.
pub(super) fn seconds(ns: u64) -> String {
    let micros = ns / 1000;
    if micros < 1_000_000 {
        return format!("{}.{:03}ms", micros / 1000, micros % 1000);
    }
    format!("{}.{:03}s", micros / 1_000_000, micros / 1000 % 1000)
}
