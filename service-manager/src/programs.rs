//! apid and trustd, the programs of this node that the network reaches: what they and machined agree on.
//!
//! Owns: their users, ports and sockets, and the header by which apid names a caller. What they serve with is
//! [`crate::material`].

use std::path::Path;

/// Where a program inherits its listening socket.
pub(crate) const LISTENER_FD: i32 = 3;
/// Where apid finds machined.
pub(crate) const MACHINED_SOCKET: &str = "/system/run/machined/machine.sock";
/// The header in which apid says who asks: the client's address, of IPv6 its /64. What a client wrote there itself apid
/// leaves out; what a node wrote that passes a client's request on, it takes.
pub(crate) const CALLER: &str = "billet-caller";

/// A program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    /// The API's front end.
    Apid,
    /// The signer of node certificates.
    Trustd,
}

impl Program {
    /// The name of its service.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Apid => "apid",
            Self::Trustd => "trustd",
        }
    }

    /// Its user and group.
    pub(crate) const fn user(self) -> u32 {
        match self {
            Self::Apid => 50,
            Self::Trustd => 51,
        }
    }

    /// The TCP port that it serves.
    pub(crate) const fn port(self) -> u16 {
        match self {
            Self::Apid => 50000,
            Self::Trustd => 50001,
        }
    }

    /// machined's socket that gives it its material.
    pub(crate) fn socket(self) -> &'static Path {
        Path::new(match self {
            Self::Apid => "/system/run/machined/apid.sock",
            Self::Trustd => "/system/run/machined/trustd.sock",
        })
    }
}
