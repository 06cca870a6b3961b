//! A disk that might be installed to.

use std::fmt;

use runtime::store::Disk;

/// A disk that might be installed to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// What is known of it.
    pub(crate) disk: Disk,
    /// What it calls itself (`device/name` in sysfs); few kinds do.
    pub(crate) name: String,
    /// What is on it.
    pub(crate) holds: Holds,
}

/// What is on a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Holds {
    /// Zeros.
    Nothing,
    /// An installation of ours without STATE: it was reset.
    Reset,
    /// An installation of ours.
    Billet,
    /// What another program put there, in words.
    Foreign(String),
    /// This machine runs from it; how, in words.
    Medium(&'static str),
    /// It cannot be looked at, or not be written; why.
    Unusable(String),
}

impl fmt::Display for Holds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing"),
            Self::Reset => f.write_str("Billet that was reset"),
            Self::Billet => f.write_str("Billet with its configuration"),
            Self::Foreign(what) => f.write_str(what),
            Self::Medium(how) => write!(f, "what this machine {how}"),
            Self::Unusable(why) => write!(f, "nothing that can be read ({why})"),
        }
    }
}
