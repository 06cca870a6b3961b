//! The last snapshot that the node took by itself, and where it was put: in a file beside them, so that a restart forgets nothing.

use std::path::Path;

use config::own::SnapshotTarget;
use jiff::Timestamp;
use runtime::journal::Journal;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::kept::{Kept, Made};

/// A snapshot at the target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PutRecord {
    pub(super) file: String,
    /// As it is shown.
    pub(super) target: String,
    pub(super) at: Timestamp,
}

/// What is known of the last ones.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Record {
    pub(super) made: Option<Made>,
    pub(super) put: Option<PutRecord>,
    /// Why the last attempt failed.
    pub(super) error: Option<String>,
}

impl Record {
    /// Without the file, or with one that cannot be read, nothing is known: a snapshot is taken soon.
    pub(super) fn load(root: &Path) -> Self {
        let text = Kept::open(root).and_then(|kept| kept.record());
        let mut record: Self =
            text.ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        // It may have been removed since.
        let names = Kept::open(root).and_then(|kept| kept.names()).unwrap_or_default();
        record.made = record.made.filter(|made| names.contains(&made.file));
        record
    }

    pub(super) fn store(&self, root: &Path, journal: &Journal) {
        let stored = serde_json::to_vec(self).map_err(|error| error.to_string()).and_then(|text| {
            Kept::open(root).and_then(|kept| kept.set_record(&text)).map_err(|e| e.to_string())
        });
        if let Err(error) = stored {
            journal.warn(&format!("snapshot of etcd: {error}"));
        }
    }

    /// As the resource has it.
    pub(super) fn fields(
        &self,
        kept: usize,
        next: Option<Timestamp>,
        target: Option<&SnapshotTarget>,
    ) -> Value {
        let time = |time: Timestamp| format!("{time:.0}");
        let made = self.made.as_ref();
        let target = target.map(SnapshotTarget::shown);
        // What is at another target says nothing of this one.
        let put = self.put.as_ref().filter(|put| Some(&put.target) == target.as_ref());
        json!({
            "file": made.map_or("", |made| &made.file),
            "taken": made.map(|made| time(made.taken)).unwrap_or_default(),
            "size": made.map_or(0, |made| made.bytes),
            "sha256": made.map_or("", |made| &made.sha256),
            "kept": kept,
            "next": next.map(time).unwrap_or_default(),
            "target": target.unwrap_or_default(),
            "putFile": put.map_or("", |put| &put.file),
            "put": put.map(|put| time(put.at)).unwrap_or_default(),
            "error": self.error.as_deref().unwrap_or_default(),
        })
    }
}
