//! Where the boot time goes: one bar a task of init, a task of machined, a service.
//!
//! Owns: the `BootTimelines` resource.
//! Does not: keep later starts: the timeline ends with the boot sequence.
//! Source: Boot Loader Interface of systemd for the two EFI variables.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use handoff::BootReport;

use crate::checkpoint::Checkpoint;
use crate::journal::Journal;
use crate::store::{BOOT_TIMELINE, BootTimeline, Spec, Store, TimelineEntry};

/// Vendor of the loader's variables.
const LOADER_GUID: &str = "4a67b082-0a4c-41cf-b6c7-440b29bb8c4f";

/// A handle to the timeline; clones share it.
#[derive(Debug, Clone)]
pub struct Timeline {
    inner: Arc<Mutex<Inner>>,
    store: Store,
    checkpoint: Checkpoint,
    journal: Journal,
}

#[derive(Debug)]
struct Inner {
    timeline: BootTimeline,
    closed: bool,
}

impl Timeline {
    /// Begins with init's report, or takes over the timeline of an earlier machined.
    pub fn new(
        report: &BootReport,
        efi: &Path,
        store: Store,
        checkpoint: Checkpoint,
        journal: Journal,
    ) -> Self {
        let saved = checkpoint.memory().timeline;
        let timeline = if saved.entries.is_empty() { from_report(report, efi) } else { saved };
        let timeline = Self {
            inner: Arc::new(Mutex::new(Inner { timeline, closed: false })),
            store,
            checkpoint,
            journal,
        };
        timeline.publish();
        timeline
    }

    /// Adds a bar, unless the boot is over.
    pub fn record(&self, source: &str, phase: &str, task: &str, start_ns: u64, end_ns: u64) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if !inner.closed {
            let (source, phase, task) = (source.to_owned(), phase.to_owned(), task.to_owned());
            inner.timeline.entries.push(TimelineEntry { source, phase, task, start_ns, end_ns });
        }
    }

    /// Makes what was recorded visible.
    pub fn publish(&self) {
        let timeline = self.inner.lock().unwrap_or_else(PoisonError::into_inner).timeline.clone();
        self.checkpoint.remember(|memory| memory.timeline = timeline.clone());
        if let Err(error) =
            self.store.put(BOOT_TIMELINE.writer, &BOOT_TIMELINE, "boot", Spec::BootTimeline(timeline))
        {
            self.journal.warn(&format!("publish the boot timeline: {error}"));
        }
    }

    /// The boot is over.
    pub fn close(&self) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.publish();
    }
}

fn from_report(report: &BootReport, efi: &Path) -> BootTimeline {
    let entries = report.spans.iter().map(|span| TimelineEntry {
        source: "init".to_owned(),
        phase: span.phase.clone(),
        task: span.task.clone(),
        start_ns: span.start_ns,
        end_ns: span.end_ns,
    });
    let firmware = loader_time(efi, "LoaderTimeInitUSec");
    let loader = loader_time(efi, "LoaderTimeExecUSec");
    BootTimeline {
        firmware_ns: firmware.unwrap_or(0),
        loader_ns: loader.zip(firmware).map_or(0, |(exec, init)| exec.saturating_sub(init)),
        kernel_ns: report.spans.first().map_or(0, |span| span.start_ns),
        entries: entries.collect(),
    }
}

/// A time in microseconds, as UTF-16 decimal text after four bytes of attributes.
fn loader_time(efi: &Path, name: &str) -> Option<u64> {
    let bytes = std::fs::read(efi.join(format!("{name}-{LOADER_GUID}"))).ok()?;
    parse_loader_time(&bytes)
}

fn parse_loader_time(bytes: &[u8]) -> Option<u64> {
    let digits = bytes.get(4..)?.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
    let text: String =
        char::decode_utf16(digits.take_while(|&unit| unit != 0)).collect::<Result<_, _>>().ok()?;
    text.parse::<u64>().ok()?.checked_mul(1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::init_link::InitLink;
    use crate::logs::Logs;

    #[test]
    fn loader_times_are_utf16_text() {
        let mut bytes = vec![6, 0, 0, 0];
        for unit in "1234".encode_utf16().chain([0]) {
            bytes.extend(unit.to_le_bytes());
        }
        assert_eq!(parse_loader_time(&bytes), Some(1_234_000));
        assert_eq!(parse_loader_time(&[6, 0, 0, 0, b'x', 0]), None);
        assert_eq!(parse_loader_time(&[]), None);
    }

    #[test]
    fn init_comes_first_and_nothing_follows_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::new(None, &Logs::new(dir.path().to_owned()));
        let span = handoff::Span { phase: "root".into(), task: "find".into(), start_ns: 7, end_ns: 9 };
        let report = BootReport { spans: vec![span], ..BootReport::default() };
        let store = Store::new();
        let checkpoint = Checkpoint::open(None, &InitLink::detached());
        let timeline = Timeline::new(&report, dir.path(), store.clone(), checkpoint, journal);
        timeline.record("machined", "etc", "createEtc", 10, 11);
        timeline.close();
        timeline.record("machined", "late", "late", 12, 13);
        timeline.publish();
        let resource = store.get(&BOOT_TIMELINE, "boot").unwrap();
        let Spec::BootTimeline(spec) = &resource.spec else { panic!("another spec") };
        assert_eq!(spec.kernel_ns, 7);
        assert_eq!(spec.entries.iter().map(|e| e.task.as_str()).collect::<Vec<_>>(), ["find", "createEtc"]);
    }
}
