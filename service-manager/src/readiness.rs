//! How far this node's API is.

use std::time::Duration;

/// How long the API may take to answer once there is a config.
pub(crate) const API_READY_DEADLINE: Duration = Duration::from_secs(60);

/// How far the API is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Readiness {
    /// apid serves with a certificate.
    pub serving: bool,
    /// A certificate names at least one address that others can reach.
    pub addressed: bool,
    /// The wait for an address was given up.
    pub gave_up: bool,
    /// `API ready` was printed.
    pub announced: bool,
}
