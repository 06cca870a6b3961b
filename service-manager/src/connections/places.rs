//! Places that clients hold: connections or calls, so many of one client and so many of all.
//!
//! Owns: the counts. Does not: know what a place is, or whose key this is.
//! Fails by: no place ([`Places::hold`]), or the end of the oldest one ([`Places::take`]): the caller chooses.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Most places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Most {
    /// Of one client.
    pub(crate) of_one: usize,
    /// Of all clients.
    pub(crate) of_all: usize,
}

/// The places of one kind.
#[derive(Debug)]
pub(crate) struct Places<K: Ord> {
    most: Most,
    state: Arc<Mutex<State<K>>>,
}

#[derive(Debug)]
struct State<K> {
    all: usize,
    counts: BTreeMap<K, usize>,
    next: u64,
    /// Of places that may be taken away, oldest first. Dropped, the sender ends the place.
    ends: BTreeMap<u64, (K, oneshot::Sender<()>)>,
}

/// A place, or several, until the value is dropped.
#[derive(Debug)]
pub(crate) struct Held<K: Ord> {
    places: Places<K>,
    key: K,
    weight: usize,
    number: Option<u64>,
}

impl<K: Ord> Clone for Places<K> {
    fn clone(&self) -> Self {
        Self { most: self.most, state: self.state.clone() }
    }
}

impl<K: Ord + Clone> Places<K> {
    pub(crate) fn new(most: Most) -> Self {
        let state = State { all: 0, counts: BTreeMap::new(), next: 0, ends: BTreeMap::new() };
        Self { most, state: Arc::new(Mutex::new(state)) }
    }

    /// So many places for this client; `None` if it, or all together, have as many as they may.
    pub(crate) fn hold(&self, key: &K, weight: usize) -> Option<Held<K>> {
        self.hold_of(key, weight, self.most.of_one)
    }

    /// The same with another limit for this client.
    pub(crate) fn hold_of(&self, key: &K, weight: usize, of_one: usize) -> Option<Held<K>> {
        let mut state = self.state();
        let count = state.counts.get(key).copied().unwrap_or_default().saturating_add(weight);
        if count > of_one || state.all.saturating_add(weight) > self.most.of_all {
            return None;
        }
        state.add(key, weight);
        Some(Held { places: self.clone(), key: key.clone(), weight, number: None })
    }

    /// A place for this client in any case, and what tells when it has to end: where there is none, the oldest ends, of this
    /// client or of the one that has most.
    pub(crate) fn take(&self, key: &K) -> (Held<K>, oneshot::Receiver<()>) {
        let mut state = self.state();
        if state.counts.get(key).copied().unwrap_or_default() >= self.most.of_one {
            state.end_oldest(key);
        }
        self.admit(&mut state, key)
    }

    /// The same; `None` if the client itself has as many as it may.
    pub(crate) fn take_within(&self, key: &K) -> Option<(Held<K>, oneshot::Receiver<()>)> {
        let mut state = self.state();
        if state.counts.get(key).copied().unwrap_or_default() >= self.most.of_one {
            return None;
        }
        Some(self.admit(&mut state, key))
    }

    fn admit(&self, state: &mut State<K>, key: &K) -> (Held<K>, oneshot::Receiver<()>) {
        if state.all >= self.most.of_all
            && let Some(key) =
                state.counts.iter().max_by_key(|(_, count)| **count).map(|(key, _)| key.clone())
        {
            state.end_oldest(&key);
        }
        state.add(key, 1);
        let number = state.next;
        state.next = number.wrapping_add(1);
        let (end, ended) = oneshot::channel();
        state.ends.insert(number, (key.clone(), end));
        (Held { places: self.clone(), key: key.clone(), weight: 1, number: Some(number) }, ended)
    }

    /// Places that are held.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.state().all
    }
}

impl<K: Ord> Places<K> {
    /// Each change of the counts is one call, so a panic elsewhere leaves them right.
    fn state(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Ord + Clone> State<K> {
    fn add(&mut self, key: &K, weight: usize) {
        self.all = self.all.saturating_add(weight);
        let count = self.counts.entry(key.clone()).or_default();
        *count = count.saturating_add(weight);
    }

    /// Its holder gives it back as soon as it hears of it; until then it is counted.
    fn end_oldest(&mut self, of: &K) {
        let oldest = self.ends.iter().find(|(_, (key, _))| key == of).map(|(number, _)| *number);
        if let Some(number) = oldest {
            self.ends.remove(&number);
        }
    }
}

impl<K: Ord> Drop for Held<K> {
    fn drop(&mut self) {
        let mut state = self.places.state();
        state.all = state.all.saturating_sub(self.weight);
        let left = state.counts.get(&self.key).copied().unwrap_or_default().saturating_sub(self.weight);
        if left == 0 {
            state.counts.remove(&self.key);
        } else if let Some(count) = state.counts.get_mut(&self.key) {
            *count = left;
        }
        if let Some(number) = self.number {
            state.ends.remove(&number);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot::error::TryRecvError;

    use super::*;

    const MOST: Most = Most { of_one: 2, of_all: 3 };

    #[test]
    fn an_address_and_all_have_a_limit_and_places_come_back() {
        let places = Places::new(MOST);
        let first = places.hold(&1, 1).unwrap();
        let _second = places.hold(&1, 1).unwrap();
        assert!(places.hold(&1, 1).is_none(), "two of one");
        let third = places.hold(&2, 1).unwrap();
        assert!(places.hold(&3, 1).is_none(), "three of all");
        drop(third);
        assert!(places.hold(&2, 2).is_none(), "two at once, and there is one");
        drop(first);
        let two = places.hold(&2, 2).unwrap();
        assert_eq!(places.held(), 3);
        drop(two);
        assert_eq!(places.state().counts.len(), 1);
    }

    #[test]
    fn who_comes_takes_the_oldest_place_of_its_own_or_of_who_has_most() {
        let places = Places::new(MOST);
        let ended = |end: &mut oneshot::Receiver<()>| end.try_recv() == Err(TryRecvError::Closed);
        let (first, mut first_end) = places.take(&1);
        let (_second, mut second_end) = places.take(&1);
        let (_third, mut third_end) = places.take(&1);
        assert!(ended(&mut first_end) && !ended(&mut second_end), "the oldest of its own");
        drop(first);
        let (_other, mut other_end) = places.take(&2);
        let (_newest, mut newest_end) = places.take(&3);
        assert!(ended(&mut second_end), "the oldest of who has most");
        assert!(!ended(&mut third_end) && !ended(&mut other_end) && !ended(&mut newest_end));
    }
}
