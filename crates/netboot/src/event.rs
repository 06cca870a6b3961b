//! What happens, for whoever watches.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use crate::dhcp::Mac;

/// Something that a person wants to see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A machine was told what to load.
    Offered {
        /// The machine.
        mac: Mac,
        /// `BIOS`, `UEFI x86-64`, `iPXE`, …
        kind: &'static str,
        /// The file or address.
        file: String,
    },
    /// A machine asks for something that the bundle has not.
    Unserved {
        /// The machine.
        mac: Mac,
        /// What it is.
        kind: &'static str,
        /// What is missing.
        reason: String,
    },
    /// A machine got an address.
    Leased {
        /// The machine.
        mac: Mac,
        /// Its address.
        address: Ipv4Addr,
    },
    /// All addresses are taken.
    Exhausted {
        /// The machine that got none.
        mac: Mac,
    },
    /// Another DHCP server gives addresses here, and we were told to as well.
    OtherServer {
        /// Its address.
        address: Ipv4Addr,
    },
    /// A file was fetched to its end.
    Sent {
        /// By whom.
        to: IpAddr,
        /// `TFTP` or `HTTP`.
        by: &'static str,
        /// What.
        name: String,
        /// Length.
        bytes: u64,
        /// From the request on.
        took: Duration,
    },
    /// A machine took its config.
    Config {
        /// By whom.
        to: IpAddr,
        /// The file's name in the folder.
        name: String,
    },
    /// A transfer did not come to its end, or a request was none.
    Failed {
        /// Whose.
        to: IpAddr,
        /// `TFTP`, `HTTP`, `DHCP`.
        by: &'static str,
        /// What was asked for, if that is known.
        name: String,
        /// Why.
        reason: String,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Offered { mac, kind, file } => write!(f, "{mac} ({kind}): loads {file}"),
            Self::Unserved { mac, kind, reason } => write!(f, "{mac} ({kind}): not served: {reason}"),
            Self::Leased { mac, address } => write!(f, "{mac}: has the address {address}"),
            Self::Exhausted { mac } => write!(f, "{mac}: gets no address: all of the range are taken"),
            Self::OtherServer { address } => write!(
                f,
                "another DHCP server, {address}, gives addresses on this network too: leave out --dhcp-range"
            ),
            Self::Sent { to, by, name, bytes, took } => {
                write!(f, "{to}: {name} by {by}, {} KiB in {:.1} s", bytes / 1024, took.as_secs_f64())
            }
            Self::Config { to, name } => write!(f, "{to}: took the config {name}"),
            Self::Failed { to, by, name, reason } => write!(f, "{to}: {name} by {by}: {reason}"),
        }
    }
}
