//! A forwarding resolver without sockets and clocks.
//!
//! | module | what it does |
//! |---|---|
//! | [`forwarder`] | the questions that are open: whom to ask, when to ask the next, what each client gets |
//! | [`cache`] | answers for as long as they count, and a while longer |
//! | `reply` | an answer in the form that a client can take |
//!
//! Owns: the choice of servers and what is known about their health; every limit on clients and memory.
//! Does not: open a socket or read a clock: the caller passes messages and the time since a start of its own. Validate DNSSEC:
//! the servers do, and their word is passed on.
//! Source: RFC 1035, RFC 2308 (negative answers), RFC 6891 (EDNS), RFC 8767 (answers that are over).
#![warn(missing_docs)]

pub mod cache;
pub mod forwarder;
mod reply;

pub use forwarder::{Forwarder, Health, Output};
pub use reply::Transport;
