//! A lease: what a REPLY grants, and when it must be renewed.
//!
//! Owns: which addresses a machine can use; T1 and T2; what a renewal changes.
//! Does not: know a clock. The times of a lease are as of [`Lease::obtained_at`].
//! Source: RFC 8415 §14.2 (T1 and T2), §18.2.10.1 (what a renewal changes), §21.4 and §21.6 (lifetimes).

use std::net::Ipv6Addr;
use std::time::Duration;

use crate::duid::{self, Duid};
use crate::message::{self, Association, Heard, Kind, MOST_ADDRESSES, Settings, Status, is_server};

/// All ones in a lifetime.
pub const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);
/// A lease is renewed no sooner after an answer, unless it is shorter: a server that grants a moment would be asked without
/// end.
const LEAST_RENEW: Duration = Duration::from_secs(5);

/// An address of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// A prefix of 128 bits: which network is on the link, routers say.
    pub address: Ipv6Addr,
    /// For so long new connections may use it.
    pub preferred: Duration,
    /// For so long it may be used at all.
    pub valid: Duration,
}

/// What a server granted. A duration of [`FOREVER`] does not pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// At least one.
    pub addresses: Vec<Address>,
    /// From then on its server is asked to prolong it.
    pub t1: Duration,
    /// From then on any server is.
    pub t2: Duration,
    /// Who granted it, and prolongs it.
    pub server_duid: Duid,
    /// Name servers; a link-local one is of the link.
    pub dns_servers: Vec<Ipv6Addr>,
    /// Where names without a dot are looked for.
    pub domains: Vec<String>,
    /// Servers of NTP; a link-local one is of the link.
    pub time_servers: Vec<Ipv6Addr>,
    /// The moment from which the lifetimes, T1 and T2 count.
    pub obtained_at: Duration,
}

impl Lease {
    /// What an answer grants; `None` when that is nothing that a machine can use.
    #[must_use]
    pub fn parse(heard: &Heard, now: Duration) -> Option<Self> {
        let association = heard.association.as_ref().filter(|_| heard.status() == Status::Success)?;
        let addresses = usable(association);
        let (t1, t2) = times(association, &addresses)?;
        Some(Self {
            addresses,
            t1,
            t2,
            server_duid: heard.server.clone(),
            dns_servers: heard.information.dns_servers.clone(),
            domains: heard.information.domains.clone(),
            time_servers: heard.information.time_servers.clone(),
            obtained_at: now,
        })
    }

    /// What this is after an answer to RENEW or REBIND; `None` when that says nothing about its addresses. An address that the
    /// answer does not name stays as it is; one with a lifetime of zero goes. If all go, none is left.
    #[must_use]
    pub(crate) fn renewed(&self, heard: &Heard, now: Duration) -> Option<Self> {
        let association = heard.association.as_ref().filter(|_| heard.status() == Status::Success)?;
        let is_gone = |address: &Ipv6Addr| {
            association.addresses.iter().any(|offered| offered.address == *address && offered.valid == 0)
        };
        let mut old = self.at(now);
        let before = old.addresses.len();
        old.addresses.retain(|old| !is_gone(&old.address));
        let Some(mut lease) = Self::parse(heard, now) else {
            return (old.addresses.len() < before).then_some(old);
        };
        for old in old.addresses {
            let is_new = lease.addresses.iter().any(|new| new.address == old.address);
            if !is_new && lease.addresses.len() < MOST_ADDRESSES {
                lease.addresses.push(old);
            }
        }
        Some(lease)
    }

    /// The same lease with all times as of `now`, without addresses that are over.
    #[must_use]
    pub fn at(&self, now: Duration) -> Self {
        let passed = now.saturating_sub(self.obtained_at);
        let left = |time: Duration| if time == FOREVER { time } else { time.saturating_sub(passed) };
        let addresses = self.addresses.iter().map(|address| Address {
            address: address.address,
            preferred: left(address.preferred),
            valid: left(address.valid),
        });
        Self {
            addresses: addresses.filter(|address| !address.valid.is_zero()).collect(),
            t1: left(self.t1),
            t2: left(self.t2),
            obtained_at: now.max(self.obtained_at),
            ..self.clone()
        }
    }

    /// Whether the link has this address by it.
    #[must_use]
    pub fn has(&self, address: Ipv6Addr) -> bool {
        self.addresses.iter().any(|known| known.address == address)
    }

    /// When T1 is.
    #[must_use]
    pub fn renew_at(&self) -> Duration {
        self.moment(self.t1)
    }

    /// When T2 is.
    #[must_use]
    pub fn rebind_at(&self) -> Duration {
        self.moment(self.t2)
    }

    /// When the first address is over.
    pub(crate) fn first_end(&self) -> Duration {
        let ends = self.addresses.iter().map(|address| self.moment(address.valid));
        ends.min().unwrap_or(self.obtained_at)
    }

    pub(crate) fn list(&self) -> Vec<Ipv6Addr> {
        self.addresses.iter().map(|address| address.address).collect()
    }

    /// The longest time of all is never over.
    fn moment(&self, time: Duration) -> Duration {
        if time == FOREVER { Duration::MAX } else { self.obtained_at.saturating_add(time) }
    }
}

/// What a packet grants, if it is an answer to this exchange: the way of an answer without sockets, for the fuzzer.
#[must_use]
pub fn granted(packet: &[u8], xid: u32, settings: &Settings) -> Option<Lease> {
    let heard = message::decode(packet, duid::iaid(&settings.hardware)).ok()?;
    let is_ours = heard.xid == xid && heard.client == settings.identifier();
    let lease = Lease::parse(&heard, Duration::ZERO).filter(|_| is_ours)?;
    matches!(heard.kind, Kind::Advertise | Kind::Reply).then_some(lease)
}

/// Whether a machine can have it by DHCP: one of the link it makes itself.
pub(crate) fn is_host(address: &Ipv6Addr) -> bool {
    is_server(address) && !address.is_unicast_link_local()
}

/// Each address once; one whose times are out of order does not count.
pub(crate) fn usable(association: &Association) -> Vec<Address> {
    let mut addresses: Vec<Address> = Vec::new();
    for offered in &association.addresses {
        let is_known = addresses.iter().any(|known| known.address == offered.address);
        let has_times = offered.valid > 0 && offered.preferred <= offered.valid;
        if !is_known && has_times && is_host(&offered.address) {
            addresses.push(Address {
                address: offered.address,
                preferred: Duration::from_secs(offered.preferred.into()),
                valid: Duration::from_secs(offered.valid.into()),
            });
        }
    }
    addresses
}

/// T1 and T2; `None` without an address. What the server leaves open is 0.5 and 0.8 of the shortest preferred lifetime. So is
/// what lies behind the shortest valid lifetime, all ones included: the address would be lost while a server would prolong it.
fn times(association: &Association, addresses: &[Address]) -> Option<(Duration, Duration)> {
    let valid = addresses.iter().map(|address| address.valid).min()?;
    let preferred = shortest_preferred(addresses).unwrap_or(valid);
    let given = |seconds: u32| {
        let time = Duration::from_secs(seconds.into());
        let counts = seconds != 0 && (time < valid || valid == FOREVER);
        counts.then_some(time)
    };
    let (t1, t2) = (given(association.t1), given(association.t2));
    let (half, most) = fractions(preferred);
    let (t1, t2) = match (t1, t2) {
        (Some(t1), t2) => (t1, t2.unwrap_or(most.max(t1))),
        (None, Some(t2)) => (half.min(t2), t2),
        (None, None) => (half, most),
    };
    let t1 = t1.max(LEAST_RENEW.min(valid / 2));
    Some((t1, t2.max(t1)))
}

/// T1 and T2 of a preferred lifetime.
pub(crate) fn fractions(preferred: Duration) -> (Duration, Duration) {
    if preferred == FOREVER { (FOREVER, FOREVER) } else { (preferred / 2, preferred / 10 * 8) }
}

/// Of the addresses that are preferred at all.
pub(crate) fn shortest_preferred(addresses: &[Address]) -> Option<Duration> {
    addresses.iter().map(|address| address.preferred).filter(|preferred| !preferred.is_zero()).min()
}

#[cfg(test)]
#[path = "lease_tests.rs"]
mod tests;
