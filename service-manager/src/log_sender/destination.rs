//! A receiver of logs, as the config has it.

use std::collections::BTreeMap;

/// Which log a receiver gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Log {
    Services,
    Kernel,
}

impl Log {
    /// As in its status.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Services => "services",
            Self::Kernel => "kernel",
        }
    }
}

/// A receiver and what it gets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Destination {
    pub(super) log: Log,
    pub(super) endpoint: String,
    pub(super) tags: BTreeMap<String, String>,
}

impl Destination {
    /// The id of its status.
    pub(super) fn id(&self) -> String {
        format!("{}/{}", self.log.name(), self.endpoint)
    }
}
