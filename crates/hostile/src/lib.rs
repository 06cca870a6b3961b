//! Attacks on a node's TCP ports, 50000 (apid) and 50001 (trustd), and the measure of what they cost other clients.
//!
//! | part | what |
//! |---|---|
//! | [`Target`] | whom to attack: address, authority, certificate, source addresses |
//! | [`attacks`] | the list of attacks for a port; a module for each family |
//! | [`Witness`] | another client: its calls are timed while an attack runs |
//! | [`Suite`] | plays attacks one after the other and makes a [`Record`] of each |
//!
//! Owns: what is sent. Does not: start servers; the same attacks run in process (service-manager) and against a virtual
//! machine (qemu-tests), which is why they are a crate below both.
//! Fails by: [`Fault`], which names the attack, when the server kept what it must end, answered what it must refuse, or left
//! the witness waiting.
//! Source: RFC 9113 (HTTP/2), RFC 7541 (HPACK), RFC 8446 (TLS 1.3), docs/users/ports.md (the limits).

mod client;
mod crowd;
mod fan_out;
mod floods;
mod headers;
mod malformed;
mod messages;
mod silence;
mod strangers;
mod suite;
mod target;
mod tls_faults;
mod windows;
mod wire;
mod witness;

use std::pin::Pin;
use std::time::Duration;

pub use strangers::{Stranger, strangers};
pub use suite::{Gauge, LONGEST_CALL, Record, Suite};
pub use target::{Form, Port, Target};
pub use witness::Witness;

/// What an attack did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// TCP connections that were opened.
    pub connections: u64,
    /// Requests, frames or handshakes that were begun on them.
    pub attempts: u64,
}

/// What a server did wrong, or why an attack could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// No connection for the attack.
    #[error("connect for the attack: {0}")]
    Connect(String),
    /// A connection stayed that has to be closed.
    #[error("{what} is still connected after {after:?}")]
    Kept {
        /// Which connection.
        what: &'static str,
        /// How long the attack waited.
        after: Duration,
    },
    /// A request was answered that has to be refused.
    #[error("{what} was answered")]
    Answered {
        /// Which request.
        what: String,
    },
    /// A request was not answered that has to be.
    #[error("{what} got no answer: {why}")]
    Unanswered {
        /// Which request.
        what: &'static str,
        /// The error.
        why: String,
    },
    /// The other client.
    #[error("another client's call during {attack}: {why}")]
    Witness {
        /// The attack.
        attack: &'static str,
        /// The error, or the time it waited.
        why: String,
    },
    /// The server's memory.
    #[error("{attack}: memory grew by {grown} bytes, the bound is {bound}")]
    Memory {
        /// The attack.
        attack: &'static str,
        /// Highest reading less the one before the attack.
        grown: u64,
        /// The bound.
        bound: u64,
    },
    /// Places of connections or calls that did not come back.
    #[error("{attack}: clients that are gone hold {left} places after {after:?}")]
    Places {
        /// The attack.
        attack: &'static str,
        /// How many.
        left: u64,
        /// How long they were waited for.
        after: Duration,
    },
    /// An attack that does not end.
    #[error("{attack} did not end within {after:?}")]
    Endless {
        /// The attack.
        attack: &'static str,
        /// Its deadline.
        after: Duration,
    },
}

type Running = Pin<Box<dyn Future<Output = Result<Load, Fault>> + Send>>;

/// One attack.
#[derive(Clone, Copy)]
pub struct Attack {
    /// Unique, kebab case.
    pub name: &'static str,
    /// Whether it takes more than some seconds in its short form.
    pub patient: bool,
    run: fn(Target, Form) -> Running,
}

impl Attack {
    const fn quick(name: &'static str, run: fn(Target, Form) -> Running) -> Self {
        Self { name, patient: false, run }
    }

    const fn patient(name: &'static str, run: fn(Target, Form) -> Running) -> Self {
        Self { name, patient: true, run }
    }
}

/// Every attack on this port, in the order in which they are played.
#[must_use]
pub fn attacks(port: Port) -> Vec<Attack> {
    let mut all = Vec::new();
    for family in
        [tls_faults::ALL, floods::ALL, headers::ALL, malformed::ALL, windows::ALL, messages::ALL, crowd::ALL]
    {
        all.extend_from_slice(family);
    }
    if port == Port::Api {
        all.extend_from_slice(fan_out::ALL);
    }
    all.extend_from_slice(silence::ALL);
    all
}

/// Boxes an attack for the list.
macro_rules! attack {
    ($attack:path) => {
        |target, form| Box::pin($attack(target, form))
    };
}
pub(crate) use attack;
