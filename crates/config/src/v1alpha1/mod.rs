//! The v1alpha1 document, one file for each section.
//!
//! Unknown fields are refused everywhere: a misspelt field would otherwise be silently without effect.
//! No type here has `Debug`, since most of them hold secrets somewhere below.
//! Source: shared/spec/machine-facts.md §1.1 to §1.3.

mod cluster;
mod machine;
mod network;

pub use cluster::{Cluster, ControlPlane, Etcd, ServiceAccount};
pub use machine::{
    File, FileMode, FileOp, Install, Kernel, KernelModule, Machine, MachineType, Registries, RegistryAuth,
    RegistryConfig, RegistryMirror, RegistryTls, Time, Udev,
};
pub use network::{Dhcp, Interface, Network, Route};

use serde::{Deserialize, Serialize};

/// The only value of `version`.
pub const VERSION: &str = "v1alpha1";

/// A machine configuration. It holds secrets, so it cannot be printed by accident:
///
/// ```compile_fail
/// fn printed<T: std::fmt::Debug>(_: T) {}
/// printed(config::parse("").unwrap_or_else(|_| unreachable!()));
/// ```
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Config {
    /// `v1alpha1`.
    pub version: String,
    /// Copy every service's log to the console too.
    #[serde(default)]
    pub debug: bool,
    /// Whether the configuration is kept on the node.
    #[serde(default)]
    pub persist: bool,
    /// What concerns this machine.
    pub machine: Machine,
    /// What concerns its cluster.
    #[serde(default)]
    pub cluster: Cluster,
}

/// For `skip_serializing_if`.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
