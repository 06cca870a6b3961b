//! What a client is doing, and what it has.
//!
//! Does not: change; the client does.
//! Source: RFC 8415 §18.2.

use std::net::Ipv6Addr;
use std::time::Duration;

use crate::duid::Duid;
use crate::lease::Lease;

/// A lease that the client has.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) lease: Box<Lease>,
    pub(super) in_use: bool,
}

/// A server that offers something, and what.
#[derive(Debug)]
pub(super) struct Offer {
    pub(super) server: Duid,
    pub(super) preference: u8,
    pub(super) addresses: Vec<Ipv6Addr>,
}

/// Addresses that their server is told about.
#[derive(Debug)]
pub(super) struct Given {
    pub(super) server: Duid,
    pub(super) addresses: Vec<Ipv6Addr>,
}

#[derive(Debug)]
pub(super) enum State {
    /// For the start, or for this time.
    Waiting(Option<Duration>),
    Confirming,
    /// With the best offer so far.
    Selecting(Option<Offer>),
    Requesting(Offer),
    Bound,
    Renewing,
    Rebinding,
    Declining(Given),
    Releasing(Given),
    Informing,
    /// Up to this time.
    Informed(Option<Duration>),
}

impl State {
    /// An exchange runs.
    pub(super) fn asks(&self) -> bool {
        !matches!(self, Self::Waiting(_) | Self::Bound | Self::Informed(_))
    }

    /// The lease is one that its server, or any, prolongs.
    pub(super) fn prolongs(&self) -> bool {
        matches!(self, Self::Bound | Self::Renewing | Self::Rebinding | Self::Declining(_))
    }

    /// It has no sense without a lease.
    pub(super) fn needs_lease(&self) -> bool {
        matches!(self, Self::Confirming | Self::Bound | Self::Renewing | Self::Rebinding)
    }
}
