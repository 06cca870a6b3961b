//! What a node's config says about registries.
//!
//! Does not: derive Debug where a secret could be printed.

use std::collections::BTreeMap;
use std::path::PathBuf;

use zeroize::Zeroizing;

use super::Proxies;

/// For all registries.
#[derive(Clone, Default)]
pub struct Settings {
    /// By registry, `*` for all others: who is asked first.
    pub mirrors: BTreeMap<String, Mirror>,
    /// By host and port: how it is spoken to.
    pub hosts: BTreeMap<String, Host>,
    /// A PEM file with the authorities that every host may have its certificate from.
    pub authorities: Option<PathBuf>,
    /// Which hosts are reached through which proxy.
    pub proxies: Proxies,
}

/// Who is asked before a registry.
#[derive(Debug, Clone, Default)]
pub struct Mirror {
    /// Addresses, by preference: `http://host:port` or with a path.
    pub endpoints: Vec<String>,
    /// Their paths are whole; otherwise `/v2` is added.
    pub override_path: bool,
    /// The registry itself is not asked.
    pub skip_fallback: bool,
}

/// How one host is spoken to.
#[derive(Clone, Default)]
pub struct Host {
    /// Certificates.
    pub tls: Tls,
    /// Who we are.
    pub auth: Option<Auth>,
}

/// Certificates.
#[derive(Clone, Default)]
pub struct Tls {
    /// PEM: authorities besides the node's.
    pub authorities: String,
    /// PEM: our own.
    pub identity: Option<Identity>,
    /// Take any certificate.
    pub insecure: bool,
}

/// A certificate with its key, both PEM.
#[derive(Clone)]
pub struct Identity {
    /// With those that signed it.
    pub certificate: String,
    /// Its key.
    pub key: Zeroizing<String>,
}

/// Who we are to a registry.
#[derive(Clone)]
pub enum Auth {
    /// Name and password.
    Password {
        /// Name.
        name: String,
        /// Password.
        password: Zeroizing<String>,
    },
    /// A token that buys tokens.
    Identity(Zeroizing<String>),
}
