//! How many connections clients may have.
//!
//! Owns: the count of each address and of all. Does not: count connections before the end of their handshake (`api::tls`).
//! Fails by: no place. The caller closes the connection.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most connections.
#[derive(Debug, Clone, Copy)]
pub(super) struct Most {
    of_peer: usize,
    of_all: usize,
}

/// Of clients that showed a certificate. Other nodes forward over one connection for each of their clients'.
pub(super) const KNOWN: Most = Most { of_peer: 128, of_all: 512 };
/// In maintenance mode, where no one shows one.
pub(super) const UNKNOWN: Most = Most { of_peer: 16, of_all: 64 };

/// The connections of one listener.
#[derive(Debug, Clone)]
pub(super) struct Peers {
    most: Most,
    counts: Arc<Mutex<BTreeMap<IpAddr, usize>>>,
}

/// One connection, until the value is dropped.
#[derive(Debug)]
pub(super) struct Held {
    peers: Peers,
    peer: IpAddr,
}

impl Peers {
    pub(super) fn new(most: Most) -> Self {
        Self { most, counts: Arc::default() }
    }

    /// Counts a connection of this address; `None` if it, or all together, have as many as they may.
    pub(super) fn hold(&self, peer: IpAddr) -> Option<Held> {
        let mut counts = self.counts();
        let all: usize = counts.values().sum();
        let of_peer = counts.get(&peer).copied().unwrap_or_default();
        if all >= self.most.of_all || of_peer >= self.most.of_peer {
            return None;
        }
        counts.insert(peer, of_peer.saturating_add(1));
        Some(Held { peers: self.clone(), peer })
    }

    /// Each change of a count is one call, so a panic elsewhere leaves them right.
    fn counts(&self) -> MutexGuard<'_, BTreeMap<IpAddr, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut counts = self.peers.counts();
        let left = counts.get(&self.peer).copied().unwrap_or_default().saturating_sub(1);
        if left == 0 {
            counts.remove(&self.peer);
        } else {
            counts.insert(self.peer, left);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn an_address_and_all_have_a_limit_and_places_come_back() {
        let peers = Peers::new(Most { of_peer: 2, of_all: 3 });
        let peer = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
        let first = peers.hold(peer(1)).unwrap();
        let _second = peers.hold(peer(1)).unwrap();
        assert!(peers.hold(peer(1)).is_none(), "two of one address");
        let third = peers.hold(peer(2)).unwrap();
        assert!(peers.hold(peer(3)).is_none(), "three of all");
        drop(third);
        drop(first);
        let _again = peers.hold(peer(1)).unwrap();
        assert_eq!(peers.counts().len(), 1);
    }
}
