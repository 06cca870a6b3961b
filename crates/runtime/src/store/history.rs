//! The latest changes of each type, for watches that go on where an earlier one ended.
//!
//! Owns: how many are kept, and what a bookmark means: a position in the order of all changes of one store.
//! Fails by: [`BadBookmark`] when the position is another store's, or its following changes are no longer kept.

use std::collections::{BTreeMap, VecDeque};

use super::Change;

/// Changes kept of each type.
const KEPT: usize = 100;

/// A bookmark that nothing can be continued from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadBookmark {
    /// It was not made here.
    #[error("the bookmark is not of this server: start the watch anew")]
    Foreign,
    /// Changes after it are forgotten.
    #[error("the bookmark is too old, {KEPT} changes of a type are kept: start the watch anew")]
    TooOld,
}

/// A position: which store (made at its start), how many changes had happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bookmark {
    /// Distinguishes the stores of two runs.
    pub store: u64,
    /// Changes of the store so far.
    pub position: u64,
}

impl Bookmark {
    /// Store at 0 and position at 8, both little endian.
    pub fn to_bytes(self) -> Vec<u8> {
        [self.store.to_le_bytes(), self.position.to_le_bytes()].concat()
    }

    /// Reads what [`Self::to_bytes`] wrote.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BadBookmark> {
        let (store, position) = bytes.split_at_checked(8).ok_or(BadBookmark::Foreign)?;
        let number =
            |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).map_err(|_| BadBookmark::Foreign);
        Ok(Self { store: number(store)?, position: number(position)? })
    }
}

#[derive(Debug, Default)]
struct Kept {
    changes: VecDeque<Change>,
    /// Position of the last change that was dropped.
    forgotten: u64,
}

/// The changes of all types.
#[derive(Debug)]
pub(super) struct History {
    store: u64,
    position: u64,
    kinds: BTreeMap<&'static str, Kept>,
}

impl Default for History {
    fn default() -> Self {
        let mut bytes = [0; 8];
        let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
        Self { store: u64::from_le_bytes(bytes), position: 0, kinds: BTreeMap::new() }
    }
}

impl History {
    /// Adds a change and returns it with its position.
    pub(super) fn add(&mut self, mut change: Change) -> Change {
        self.position += 1;
        change.bookmark = self.bookmark();
        let kept = self.kinds.entry(change.resource.metadata.kind).or_default();
        if kept.changes.len() == KEPT
            && let Some(oldest) = kept.changes.pop_front()
        {
            kept.forgotten = oldest.bookmark.position;
        }
        kept.changes.push_back(change.clone());
        change
    }

    pub(super) fn bookmark(&self) -> Bookmark {
        Bookmark { store: self.store, position: self.position }
    }

    /// The kept changes of a type, oldest first.
    pub(super) fn of(&self, kind: &str) -> Vec<Change> {
        self.kinds.get(kind).map(|kept| kept.changes.iter().cloned().collect()).unwrap_or_default()
    }

    /// The changes of a type after a bookmark.
    pub(super) fn after(&self, kind: &str, bookmark: Bookmark) -> Result<Vec<Change>, BadBookmark> {
        if bookmark.store != self.store || bookmark.position > self.position {
            return Err(BadBookmark::Foreign);
        }
        let Some(kept) = self.kinds.get(kind) else { return Ok(Vec::new()) };
        if bookmark.position < kept.forgotten {
            return Err(BadBookmark::TooOld);
        }
        let later = |change: &&Change| change.bookmark.position > bookmark.position;
        Ok(kept.changes.iter().filter(later).cloned().collect())
    }
}
