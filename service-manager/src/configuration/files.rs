//! The files of STATE that hold the machine config and what it waits for.
//!
//! Source: docs/users/config-lifecycle.md.

/// The config that the next boot takes.
pub(crate) const CONFIG: &str = "config.yaml";
/// The last config that someone confirmed, while a newer one waits for that.
pub(crate) const CONFIRMED: &str = "config.confirmed.yaml";
/// That a config waits for confirmation.
pub(crate) const MARKER: &str = "config.unconfirmed.json";
/// Why the node returned to an older config, until the next change.
pub(crate) const RETURNED: &str = "config.returned";
