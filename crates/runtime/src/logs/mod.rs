//! Logs of services: one bounded file each, and the pump that fills it.
//!
//! Owns: `/run/log/<id>.log` and `<id>.log.1`, the generation counters that followers wait on.
//! Does not: parse lines. Bytes go from the service's pipe to the file by splice(2), so a machined that dies between
//! two calls neither loses nor repeats any: they are in the pipe (which init keeps open) or in the file.
//! Fails by: dropping the oldest. A full tmpfs costs the older file, then the newer one, then what is in the pipe;
//! a service never blocks on its log.
//!
//! | task | reads | writes | ends |
//! |---|---|---|---|
//! | [`pump::pump`] (one a service) | the pipe | `<id>.log` | with machined, or when every writer closed the pipe |
//! | [`follow::Follower`] (one a reader) | both files | the reader's stream | when the reader goes |

mod file;
mod follow;
mod place;
pub mod pump;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

pub use file::{LogFile, LogFileError, MAX_FILE_BYTES};
pub use follow::{Follower, Tail, seek_tail};
use place::LogPlace;

/// All logs of the node.
#[derive(Debug, Clone)]
pub struct Logs {
    dir: PathBuf,
    ids: Arc<Mutex<BTreeMap<String, Registered>>>,
    count: watch::Sender<usize>,
}

/// A log that can be asked for.
#[derive(Debug)]
struct Registered {
    grown: watch::Sender<u64>,
    /// Each of its lines is in another log as well.
    is_copy: bool,
}

impl Logs {
    /// Logs below a directory, which is made when the first one is opened.
    pub fn new(dir: PathBuf) -> Self {
        Self { dir, ids: Arc::default(), count: watch::channel(0).0 }
    }

    /// Registers a log and opens its file for appending.
    pub fn open(&self, id: &str) -> Result<LogFile, LogFileError> {
        self.open_as(id, false)
    }

    /// The same for a log whose every line is in another one as well: [`Logs::sources`] leaves it out.
    pub fn open_copy(&self, id: &str) -> Result<LogFile, LogFileError> {
        self.open_as(id, true)
    }

    fn open_as(&self, id: &str, is_copy: bool) -> Result<LogFile, LogFileError> {
        let grown = self.register(id, is_copy);
        LogFile::open(&self.dir, LogPlace::new(&self.dir, id), grown)
    }

    fn register(&self, id: &str, is_copy: bool) -> watch::Sender<u64> {
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Registered { grown: watch::channel(0).0, is_copy };
        let grown = ids.entry(id.to_owned()).or_insert_with(new).grown.clone();
        self.count.send_replace(ids.len());
        grown
    }

    /// Changes when there is a new log.
    pub fn registered(&self) -> watch::Receiver<usize> {
        self.count.subscribe()
    }

    /// The ids that have a log, sorted.
    pub fn ids(&self) -> Vec<String> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    /// The ids of the logs that hold each line once.
    pub fn sources(&self) -> Vec<String> {
        let ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        ids.iter().filter(|(_, log)| !log.is_copy).map(|(id, _)| id.clone()).collect()
    }

    /// A reader of a log, `None` when no such log was registered.
    pub fn follow(&self, id: &str, tail: Tail) -> Option<Follower> {
        let ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        let grown = ids.get(id)?.grown.subscribe();
        Some(Follower::new(LogPlace::new(&self.dir, id), grown, tail))
    }
}
