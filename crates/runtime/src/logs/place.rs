//! Where the files of a log are.

use std::path::{Path, PathBuf};

/// The files of one log.
#[derive(Debug, Clone)]
pub(super) struct LogPlace {
    /// What is written to.
    pub(super) current: PathBuf,
    /// What was written before that, until it is full again.
    pub(super) older: PathBuf,
}

impl LogPlace {
    pub(super) fn new(dir: &Path, id: &str) -> Self {
        Self { current: dir.join(format!("{id}.log")), older: dir.join(format!("{id}.log.1")) }
    }
}
