//! The services that are processes, as `containers`, `stats` and `restart` of the API see them.

use std::path::PathBuf;

use super::{Runner, Services};

/// A service that is a process of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The service's id.
    pub id: String,
    /// Its program.
    pub program: String,
    /// Its process, while it has one.
    pub pid: Option<u32>,
    /// Its control group below the root of the tree.
    pub group: PathBuf,
}

impl Services {
    /// Those that were started, sorted by id. Tasks of machined are none.
    pub fn processes(&self) -> Vec<Listed> {
        let entries = self.entries();
        let listed = entries.iter().filter_map(|(id, entry)| {
            let Runner::Process(program) = &entry.definition.runner else { return None };
            if entry.record.events.is_empty() {
                return None;
            }
            Some(Listed {
                id: id.clone(),
                program: program.argv.first().cloned().unwrap_or_default(),
                pid: entry.record.pid.and_then(|pid| u32::try_from(pid).ok()),
                group: PathBuf::from(&entry.definition.share.group),
            })
        });
        listed.collect()
    }
}
