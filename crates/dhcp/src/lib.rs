//! DHCPv4 for a client, without sockets and clocks: every call takes the time and answers what is to be done.
//!
//! | module | owns |
//! |---|---|
//! | [`client`] | the states of RFC 2131: what is sent when, which answers count, when a lease is over |
//! | [`conflict`] | RFC 5227: whether another machine has the address |
//! | [`frame`] | Ethernet, IPv4, UDP and ARP around the messages; the filters of their sockets |
//! | [`lease`] | what an answer grants |
//! | [`message`] | the fields and options of what the client says |
//!
//! Does not: send, wait, or touch a link: networkd does.
//! Time is a [`std::time::Duration`] since any fixed moment.

pub mod client;
pub mod conflict;
pub mod frame;
pub mod lease;
pub mod message;

pub use client::{Client, Loss, Output};
pub use conflict::Guard;
pub use lease::{Lease, granted};
pub use message::{Identifier, Settings};
