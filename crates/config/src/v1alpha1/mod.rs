//! The v1alpha1 document, one file for each section.
//!
//! Both generations of clients: fields that only the second one writes are marked `newer`; fields whose feature this
//! image does not have yet are marked `later` and named in a warning. Unknown fields are refused everywhere: a
//! misspelt field would otherwise be silently without effect. No type here has `Debug`, since most hold secrets.
//! Source: docs/users/configuration.md.

mod cluster;
mod control_plane;
mod encryption;
mod features;
mod files;
mod install;
mod interface;
mod kernel;
mod kubelet;
mod link;
mod machine;
mod network;
mod registries;

pub use cluster::*;
pub use control_plane::*;
pub use encryption::*;
pub use features::*;
pub use files::*;
pub use install::*;
pub use interface::*;
pub use kernel::*;
pub use kubelet::*;
pub use link::*;
pub use machine::*;
pub use network::*;
pub use registries::*;

pub use crate::schema::FileMode;

use crate::schema::section;

/// The only value of `version`.
pub const VERSION: &str = "v1alpha1";

section! {
    /// A machine configuration. It holds secrets, so it cannot be printed by accident:
    ///
    /// ```compile_fail
    /// fn printed<T: std::fmt::Debug>(_: T) {}
    /// printed(config::parse("").unwrap_or_else(|_| unreachable!()));
    /// ```
    Config {
        /// The form of this document: `v1alpha1`.
        version "version": String { example "v1alpha1" };
        /// Copy every service's log to the console too; without effect yet, which a warning says.
        debug "debug": bool { default "false" };
        /// Whether the configuration is kept on the node; without it, it is fetched again at each boot.
        persist "persist": bool { default "false" };
        /// What concerns this machine.
        machine "machine": Machine {};
        /// What concerns its cluster.
        cluster "cluster": Cluster {};
    }
}
