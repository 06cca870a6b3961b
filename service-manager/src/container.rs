//! A node that is a container: disks, drivers, the clock and the network are made by its runtime.

use runtime::Runtime;

/// The platform of such a node.
pub(crate) const PLATFORM: &str = "container";
/// What it answers where only its runtime can do what is asked.
pub(crate) const NOT_SUPPORTED: &str = "method is not supported in container mode";

/// Whether this node is one.
pub(crate) fn is_one(runtime: &Runtime) -> bool {
    runtime.parameters.platform == PLATFORM
}
