//! Places for peers that are served side by side, for one address and for all.
//!
//! Owns: who has a place; whom a newer peer sends away: the oldest that has not shown that it is there.
//! Does not: send anybody away that has shown it. Where only such ones are left a newer peer gets no place.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// How many places there are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) of_peer: usize,
    pub(crate) of_all: usize,
}

/// The places of one protocol.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    limits: Limits,
    line: Arc<Mutex<Line>>,
}

#[derive(Debug, Default)]
struct Line {
    next: u64,
    /// Oldest first.
    taken: BTreeMap<u64, Taken>,
}

#[derive(Debug)]
struct Taken {
    peer: SocketAddr,
    is_proven: bool,
    /// Dropped, it sends the peer away.
    _end: oneshot::Sender<()>,
}

/// Why a peer gets no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// The same address and port is served already.
    Served,
    /// All places that it may have are taken.
    Taken,
}

/// A place, until the value is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    line: Arc<Mutex<Line>>,
    number: u64,
}

impl Places {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, line: Arc::default() }
    }

    /// A place for this peer, and what ends when it was given to another one.
    pub(crate) fn admit(&self, peer: SocketAddr) -> Result<(Place, oneshot::Receiver<()>), Full> {
        let mut line = lock(&self.line);
        if let Some(number) = line.of(peer) {
            // It asks once more, since it heard nothing.
            line.send_away(|taken| taken.peer == peer).map_err(|_| Full::Served)?;
            debug_assert!(!line.taken.contains_key(&number));
        }
        let is_of_peer = |taken: &Taken| taken.peer.ip() == peer.ip();
        if line.taken.values().filter(|taken| is_of_peer(taken)).count() >= self.limits.of_peer {
            line.send_away(is_of_peer)?;
        }
        if line.taken.len() >= self.limits.of_all {
            line.send_away(|_| true)?;
        }
        let (end, ended) = oneshot::channel();
        let number = line.next;
        line.next = number.wrapping_add(1);
        line.taken.insert(number, Taken { peer, is_proven: false, _end: end });
        Ok((Place { line: self.line.clone(), number }, ended))
    }

    #[cfg(test)]
    pub(crate) fn taken(&self) -> usize {
        lock(&self.line).taken.len()
    }
}

impl Line {
    fn of(&self, peer: SocketAddr) -> Option<u64> {
        self.taken.iter().find(|(_, taken)| taken.peer == peer).map(|(number, _)| *number)
    }

    /// Of these the oldest that is not proven.
    fn send_away(&mut self, of: impl Fn(&Taken) -> bool) -> Result<(), Full> {
        let mut found = self.taken.iter().filter(|(_, taken)| !taken.is_proven && of(taken));
        let number = found.next().map(|(number, _)| *number).ok_or(Full::Taken)?;
        self.taken.remove(&number);
        Ok(())
    }
}

impl Place {
    /// The peer has shown that it is where it says: it keeps its place.
    pub(crate) fn prove(&self) {
        if let Some(taken) = lock(&self.line).taken.get_mut(&self.number) {
            taken.is_proven = true;
        }
    }

    /// Whether it was.
    pub(crate) fn is_proven(&self) -> bool {
        lock(&self.line).taken.get(&self.number).is_some_and(|taken| taken.is_proven)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.line).taken.remove(&self.number);
    }
}

/// Each change is one call, so a panic elsewhere leaves the line whole.
fn lock(line: &Mutex<Line>) -> MutexGuard<'_, Line> {
    line.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(host: u8, port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, host], port))
    }

    #[test]
    fn the_oldest_that_has_not_shown_itself_goes_first() {
        let places = Places::new(Limits { of_peer: 2, of_all: 4 });
        let (first, mut first_ends) = places.admit(peer(1, 1)).unwrap();
        let (_second, mut second_ends) = places.admit(peer(1, 2)).unwrap();
        first.prove();
        let (third, _) = places.admit(peer(1, 3)).unwrap();
        assert!(first_ends.try_recv() == Err(oneshot::error::TryRecvError::Empty));
        assert!(second_ends.try_recv() == Err(oneshot::error::TryRecvError::Closed));
        third.prove();
        assert_eq!(places.admit(peer(1, 4)).unwrap_err(), Full::Taken);
        let others: Vec<_> = (2..50).map(|host| places.admit(peer(host, 1)).unwrap()).collect();
        assert_eq!(places.taken(), 4, "{others:?}");
        drop((first, third));
        assert_eq!(places.taken(), 2);
    }

    #[test]
    fn who_asks_again_takes_its_own_place_unless_it_is_served() {
        let places = Places::new(Limits { of_peer: 2, of_all: 4 });
        let (_first, mut ends) = places.admit(peer(1, 1)).unwrap();
        let (second, _) = places.admit(peer(1, 1)).unwrap();
        assert!(ends.try_recv() == Err(oneshot::error::TryRecvError::Closed));
        assert_eq!(places.taken(), 1);
        second.prove();
        assert_eq!(places.admit(peer(1, 1)).unwrap_err(), Full::Served);
        drop(second);
        places.admit(peer(1, 1)).unwrap();
    }
}
