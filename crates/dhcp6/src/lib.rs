//! DHCPv6 for a client, without sockets and clocks: every call takes the time and answers what is to be done.
//!
//! | module | owns |
//! |---|---|
//! | [`client`] | the states of RFC 8415: what is sent when, which answers count, when a lease is over |
//! | [`duid`] | who client and servers are |
//! | [`kept`] | a lease in the form that outlives the machine's memory |
//! | [`lease`] | what an answer grants, and when it must be renewed |
//! | [`message`] | the fields and options of what the client says and hears |
//! | `options` | options in bytes, with every length checked |
//! | `exchange` | when a message is repeated, and how many are sent at most |
//!
//! Does not: send, wait, or touch a link: networkd does. Delegate prefixes (`IA_PD`), assign temporary addresses (`IA_TA`),
//! authenticate, or take RECONFIGURE: the client does not offer to accept it, and ignores it.
//! Order: DUID and options, messages, leases, exchanges, client; each module uses those before it.
//! Fails by: ignoring what is malformed or not for the client, and asking again at the pace of RFC 8415 §15.
//! Source: RFC 8415. Time is a [`std::time::Duration`] since any fixed moment.
#![warn(missing_docs)]

pub mod client;
pub mod duid;
mod exchange;
pub mod kept;
pub mod lease;
pub mod message;
mod options;
#[cfg(test)]
mod testing;

pub use client::{Client, Loss, Output};
pub use duid::Duid;
pub use kept::Kept;
pub use lease::{Address, FOREVER, Lease, granted};
pub use message::{Information, Settings};
