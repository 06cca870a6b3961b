//! EPHEMERAL that goes with an upgrade: the note that binds the wipe to the new system.
//!
//! Owns: the note in META, and when it is due.
//! Does not: wipe (`crate::reset` does, in the phase `wipeDisks`, before anything is mounted).
//! Order: the note is written, or an older one removed, before the new system's boot entry appears. That entry is what
//! makes the upgrade count, and the wipe with it: after a power cut before it the old system runs and keeps its data,
//! after it the new one finds the note. It turns the note into a reset's intent, which survives power cuts by itself,
//! and removes it when the partition is unreadable.
//! Source: docs/decisions/0007-upgrades-keep-ephemeral.md; docs/formats/meta.md (tag 0x42490011).

use installer::volumes::EPHEMERAL;
use runtime::Runtime;

use super::booted;
use crate::meta::{Meta, MetaError};
use crate::upgrade_record::{self, State};

/// Its tag: beyond the one byte that clients can name.
const TAG: u32 = 0x4249_0011;

/// Has the system of this generation wipe EPHEMERAL at its first start; `None`: nobody does. Durable when this returns.
pub(super) async fn note(meta: &Meta, generation: Option<u32>) -> Result<(), MetaError> {
    match generation {
        Some(generation) => meta.set(TAG, generation.to_string().as_bytes()).await,
        None => remove(meta).await,
    }
}

/// Whether the running system is the one, on trial, that is to wipe it.
pub(crate) fn is_due(runtime: &Runtime, meta: &Meta) -> bool {
    let noted = meta.get(TAG).and_then(|text| std::str::from_utf8(&text).ok()?.parse::<u32>().ok());
    let Some(noted) = noted else { return false };
    // Once it is kept its data is in use: a note that was left over counts for nothing.
    let on_trial = upgrade_record::read(meta)
        .is_some_and(|record| record.state == State::Trial && record.generation == noted);
    on_trial && booted::started_generation(&runtime.root) == Some(noted)
}

/// It is wiped.
pub(crate) async fn done(meta: &Meta) -> Result<(), MetaError> {
    remove(meta).await
}

/// What is wiped.
pub(crate) fn partition() -> String {
    EPHEMERAL.to_owned()
}

async fn remove(meta: &Meta) -> Result<(), MetaError> {
    match meta.get(TAG) {
        Some(_) => meta.delete(TAG).await.map(drop),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::node::Node;
    use crate::upgrade_record::Record;

    fn node(dir: &std::path::Path, command_line: &str) -> Arc<Node> {
        std::fs::create_dir_all(dir.join("proc")).unwrap();
        std::fs::write(dir.join("proc/cmdline"), command_line).unwrap();
        crate::server::tests_node(dir.to_owned())
    }

    /// Each line is a state that a power cut may leave, and who boots then.
    #[tokio::test]
    async fn only_the_new_system_on_trial_wipes() {
        let dir = tempfile::tempdir().unwrap();
        let new = node(&dir.path().join("new"), "quiet billet.generation=7");
        let old = node(&dir.path().join("old"), "quiet");
        for node in [&new, &old] {
            let due = || is_due(&node.runtime, &node.meta);
            assert!(!due(), "nothing was asked for");
            note(&node.meta, Some(7)).await.unwrap();
            assert!(!due(), "the note alone");
            let mut record = Record { generation: 7, ..Record::default() };
            upgrade_record::keep(&node.meta, &record).await.unwrap();
            assert_eq!(due(), Arc::ptr_eq(node, &new), "the entry is there");
            record.generation = 8;
            upgrade_record::keep(&node.meta, &record).await.unwrap();
            assert!(!due(), "a later upgrade was begun");
            record.generation = 7;
            for state in [State::Kept, State::FellBack, State::Interrupted, State::RolledBack] {
                upgrade_record::keep(&node.meta, &Record { state, ..record.clone() }).await.unwrap();
                assert!(!due(), "{}", state.word());
            }
            upgrade_record::keep(&node.meta, &record).await.unwrap();
            done(&node.meta).await.unwrap();
            assert!(!due(), "once only");
        }
    }

    /// A signed UKI names no generation: the loader says which it started.
    #[tokio::test]
    async fn under_secure_boot_the_loader_tells_who_wipes() {
        let dir = tempfile::tempdir().unwrap();
        let node = node(dir.path(), "quiet");
        note(&node.meta, Some(7)).await.unwrap();
        upgrade_record::keep(&node.meta, &Record { generation: 7, ..Record::default() }).await.unwrap();
        assert!(!is_due(&node.runtime, &node.meta), "no mark asks for it");
        let directory = dir.path().join("sys/firmware/efi/efivars");
        std::fs::create_dir_all(&directory).unwrap();
        for (word, due) in [("billet-000006.efi", false), ("billet-000007+2-1.efi", true)] {
            let text = format!("{word}\0");
            let value: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
            let path = directory.join(format!("LoaderEntrySelected-{}", ondisk::efi::LOADER));
            std::fs::write(path, ondisk::efi::variable_file(6, &value)).unwrap();
            assert_eq!(is_due(&node.runtime, &node.meta), due, "{word}");
        }
    }

    #[tokio::test]
    async fn an_upgrade_that_keeps_takes_an_older_note_away() {
        let dir = tempfile::tempdir().unwrap();
        let node = node(dir.path(), "billet.generation=7");
        note(&node.meta, Some(7)).await.unwrap();
        note(&node.meta, None).await.unwrap();
        // The generation is used again when the first upgrade never got its entry.
        upgrade_record::keep(&node.meta, &Record { generation: 7, ..Record::default() }).await.unwrap();
        assert!(!is_due(&node.runtime, &node.meta) && node.meta.get(TAG).is_none());
    }
}
