//! Fetching the root over HTTP or HTTPS, with a TCP/IP of its own over one Ethernet link.
//!
//! Owns: frames in and out of smoltcp, DHCP or a fixed address, names, an HTTP/1.1 client, TLS with the authorities
//! that the caller brings, and a download that outlives broken connections, slow servers and dead mirrors.
//! Does not: touch the kernel (a [`Link`] carries the frames), or know what the bytes should be (a [`Sink`] judges them).
//! Order: [`Station::new`] → [`Station::take_address`] → [`fetch`] for each file.
//! Fails by: [`Error`], whose text names the address, the deadline or the answer that ended it. Every wait has one of the
//! limits below.
//! Source: RFC 2131 (DHCP), RFC 9112 and RFC 9110 §14 (HTTP/1.1, ranges), IEEE 802.1Q (VLAN tags).

#![cfg_attr(not(test), no_std)]
#![warn(missing_docs)]

extern crate alloc;
#[cfg(any(test, feature = "peer"))]
extern crate std;

mod fetch;
mod frames;
mod http;
#[cfg(any(test, feature = "peer"))]
pub mod peer;
mod station;
#[cfg(test)]
mod tests;
mod tls;
mod url;

use alloc::string::String;
use core::fmt;
use core::net::Ipv4Addr;

pub use fetch::{Item, Mirrors, fetch};
pub use frames::MOST_FRAME_BYTES;
pub use station::{Lease, Setup, Station};
pub use tls::{EARLIEST_S, Trust, TrustError};
pub use url::{Url, UrlError};

/// A second on the link's clock.
const SECOND_NS: u64 = 1_000_000_000;

/// A DHCP server that is there answers within a few seconds; a switch port may take half a minute to let frames pass.
pub const ADDRESS_LIMIT_NS: u64 = 60 * SECOND_NS;

/// A name server that is there answers at once; smoltcp asks the next one after ten seconds.
pub const NAME_LIMIT_NS: u64 = 25 * SECOND_NS;

/// From the first packet to an open connection.
pub const CONNECT_LIMIT_NS: u64 = 10 * SECOND_NS;

/// From the open connection to a server that has proved who it is; an emulated machine takes a second of it.
pub const HANDSHAKE_LIMIT_NS: u64 = 20 * SECOND_NS;

/// In so long a server must begin to answer, and then bring [`LEAST_BYTES`] again and again.
pub const STALL_LIMIT_NS: u64 = 20 * SECOND_NS;

/// What a server must bring in [`STALL_LIMIT_NS`]: less than a modem's rate is a broken network.
pub const LEAST_BYTES: u64 = 64 << 10;

/// So long all servers together may bring less than [`LEAST_BYTES`] that did not come before, until the download is given
/// up.
pub const PATIENCE_NS: u64 = 180 * SECOND_NS;

/// Between two attempts at first; twice as long each time, up to [`LONGEST_PAUSE_NS`].
pub const FIRST_PAUSE_NS: u64 = SECOND_NS;

/// Between two attempts at most.
pub const LONGEST_PAUSE_NS: u64 = 15 * SECOND_NS;

/// A line about a download under way comes so often.
pub const PROGRESS_NS: u64 = 5 * SECOND_NS;

/// How a line is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Progress.
    Note,
    /// Something went wrong, and the work goes on.
    Warning,
}

/// A frame that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrived {
    /// Bytes in the buffer.
    pub length: usize,
    /// The VLAN tag (16 bits) that the card took off.
    pub tag: Option<u16>,
    /// The card will fill in the transport's checksum, or another virtual machine never did.
    pub checksum_missing: bool,
}

/// The link broke for good: one clause that says how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken(pub String);

/// An Ethernet link, a clock, and somebody who listens.
pub trait Link {
    /// Nanoseconds on a clock that does not jump.
    fn now_ns(&mut self) -> u64;
    /// Sends a frame without checksum at its end. A full queue may drop it.
    fn send(&mut self, frame: &[u8]) -> Result<(), Broken>;
    /// The next frame, if there is one; the buffer holds [`MOST_FRAME_BYTES`].
    fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<Arrived>, Broken>;
    /// Waits for a frame, until then at most.
    fn wait(&mut self, until_ns: u64) -> Result<(), Broken>;
    /// One line for people.
    fn say(&mut self, tone: Tone, text: fmt::Arguments<'_>);
}

/// Where a file's bytes go.
pub trait Sink {
    /// Begins anew: what came so far does not count.
    fn restart(&mut self) -> Result<(), Broken>;
    /// The next bytes.
    fn write(&mut self, bytes: &[u8]) -> Result<(), Broken>;
    /// All bytes came. `Some` says how they are not those that were expected.
    fn judge(&mut self) -> Result<Option<String>, Broken>;
}

/// Why there is no root from the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The link, or the place the bytes go to.
    Broken(String),
    /// Nobody gave an address.
    NoAddress {
        /// DHCP servers that were heard all the same.
        heard: alloc::vec::Vec<Ipv4Addr>,
    },
    /// No mirror has the file, or all failed for too long: each with its reason.
    NoMirror {
        /// Which file.
        name: String,
        /// What each said.
        reasons: String,
    },
}

impl From<Broken> for Error {
    fn from(broken: Broken) -> Self {
        Self::Broken(broken.0)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(reason) => f.write_str(reason),
            Self::NoAddress { heard } => {
                write!(f, "no DHCP server gave an address within {} s", ADDRESS_LIMIT_NS / SECOND_NS)?;
                heard.iter().try_for_each(|server| write!(f, "; {server} was heard"))?;
                f.write_str("; give one with ip=ADDRESS::GATEWAY:NETMASK::INTERFACE")
            }
            Self::NoMirror { name, reasons } => write!(f, "layer {name}: {reasons}"),
        }
    }
}

impl core::error::Error for Error {}
