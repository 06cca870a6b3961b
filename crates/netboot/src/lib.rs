//! A boot server for one network: machines without any system start from a bundle.
//!
//! | part | what |
//! |---|---|
//! | [`dhcp`] | pure: what a machine that asks for an address or a boot file is told |
//! | [`pool`] | pure: addresses, where there is no other DHCP server |
//! | [`tftp`] | the file that firmware loads |
//! | [`http`] | the script for iPXE, the bundle's files, configs |
//! | [`files`] | what may be fetched |
//! | `configs` | which config is whose, and what is wrong with the directory |
//! | `idle` | connections that end when nothing moves on them |
//! | `interface` | the address that the machines find this one at |
//! | `mac` | a machine's hardware address |
//! | `patience` | which errors of a socket pass |
//! | `places` | how many machines are served side by side, and whose place a newer one takes |
//! | `rate` | pure: how often somebody is answered |
//! | `uki` | the EFI program of a machine whose firmware loads no iPXE |
//! | [`tls`] | the certificate, where layers are served by HTTPS too |
//! | [`server`] | sockets, and the loop |
//!
//! Owns: everything between a machine's first broadcast and the kernel.
//! Does not: build bundles; serve networks behind a relay, or IPv6.
//! Anybody on the network can send it anything under any address: an address that has not shown that it takes answers costs
//! a place, of which there are few, and is sent no more than it sent.
//! Fails by: [`Error`] before it serves. Afterwards what goes wrong with one machine is an [`Event`], and the others are
//! served on.
//! Source: RFC 2131, 2132 and 4578 (DHCP and its PXE options), the PXE specification 2.1, RFC 1350, 2347 to 2349 (TFTP),
//! the UEFI specification 2.10 §24.7 (HTTP boot).

#![warn(missing_docs)]

mod configs;
pub mod dhcp;
mod event;
pub mod files;
mod http;
mod idle;
mod interface;
mod mac;
mod patience;
mod places;
pub mod pool;
mod rate;
pub mod server;
pub mod tftp;
pub mod tls;
mod uki;

pub use configs::Judge;
pub use event::{Event, Tell};
pub use files::Files;
pub use mac::Mac;
pub use ondisk::architecture::Architecture;
pub use pool::{Pool, Range};
pub use server::{Server, Settings};
pub use tls::Secure;

use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;

/// Why nothing is served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A port could not be had.
    #[error("listen for {what} on port {port} of {interface}{}", hint(source))]
    Listen {
        /// `DHCP`, `TFTP`, …
        what: &'static str,
        /// UDP or TCP port.
        port: u16,
        /// The interface.
        interface: String,
        /// Why.
        source: io::Error,
    },
    /// The interface is none.
    #[error("there is no interface {interface}: this machine has {there}")]
    NoInterface {
        /// As given.
        interface: String,
        /// The names of those that there are.
        there: String,
    },
    /// The interface has no address.
    #[error(
        "the interface {interface} has no IPv4 address; give it one first: ip address add 192.168.7.1/24 dev \
         {interface}"
    )]
    NoAddress {
        /// Its name.
        interface: String,
    },
    /// Machines do not reach the interface.
    #[error(
        "the interface {interface} has only {address}, which leads nowhere else; name the one to the machines"
    )]
    Loopback {
        /// Its name.
        interface: String,
        /// Its address.
        address: Ipv4Addr,
    },
    /// The kernel does not tell.
    #[error("ask the kernel for the addresses of {interface}")]
    Interface {
        /// Its name.
        interface: String,
        /// Why.
        source: io::Error,
    },
    /// The bundle misses something.
    #[error("{path}: {reason}")]
    Bundle {
        /// The directory or file.
        path: PathBuf,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// The certificate or its key cannot be used.
    #[error("{path}: {reason}")]
    Certificate {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A range of addresses cannot be used.
    #[error("the range {text:?} {reason}")]
    Range {
        /// As given.
        text: String,
        /// What is wrong.
        reason: String,
    },
    /// A socket failed for good.
    #[error("serve {what}")]
    Socket {
        /// Which.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
}

/// Stands before the reason of the system.
fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            " (run it as root, or give it CAP_NET_BIND_SERVICE and CAP_NET_RAW)"
        }
        io::ErrorKind::AddrInUse => ", which another server has (dnsmasq, for instance): stop that one",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_cannot_be_had_is_said_once_with_what_to_do() {
        for (kind, hint) in [
            (io::ErrorKind::AddrInUse, ", which another server has (dnsmasq, for instance): stop that one"),
            (
                io::ErrorKind::PermissionDenied,
                " (run it as root, or give it CAP_NET_BIND_SERVICE and CAP_NET_RAW)",
            ),
            (io::ErrorKind::Other, ""),
        ] {
            let interface = "eth1".to_owned();
            let error = Error::Listen { what: "DHCP", port: 67, interface, source: kind.into() };
            assert_eq!(error.to_string(), format!("listen for DHCP on port 67 of eth1{hint}"));
            assert!(std::error::Error::source(&error).is_some());
        }
    }
}
