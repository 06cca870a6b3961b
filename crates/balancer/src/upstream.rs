//! What the caller names, and what is known of it.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// Where an upstream is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// An address and a port.
    Address(SocketAddr),
    /// A name that is looked up at each dial, by the system's resolver.
    Host {
        /// As the resolver takes it.
        name: String,
        /// Of TCP.
        port: u16,
    },
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Host { name, port } => write!(f, "{name}:{port}"),
        }
    }
}

impl From<SocketAddr> for Target {
    fn from(address: SocketAddr) -> Self {
        Self::Address(address)
    }
}

/// A server that connections may go to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    /// Names it: of two with one address the first counts.
    pub address: Target,
    /// Lower is taken first: others get connections only when none of it is healthy.
    pub priority: u8,
}

/// What is known of an upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamHealth {
    /// The upstream.
    pub address: Target,
    /// The last dial or probe reached it. An upstream that was not tried yet is not healthy, and has no error.
    pub is_healthy: bool,
    /// Why it is not healthy.
    pub error: Option<String>,
    /// How long the last connect took that succeeded, without the look-up of a name.
    pub connect_time: Option<Duration>,
}
