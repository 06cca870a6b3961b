//! The upstreams: health, turns, and the signal that ends connections.
//!
//! Owns: what every dial and probe changes, and who is told.
//! Does not: use sockets and clocks: results come from the tasks that have them.

use std::time::Duration;

use tokio::sync::watch;

use crate::choice::{self, Candidate, State};
use crate::upstream::{Target, Upstream, UpstreamHealth};

/// Names an upstream for as long as it is in the list; one that comes back has another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Id(u64);

/// Why an upstream was not reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) text: String,
    /// Refusal or silence. Otherwise it says nothing of connections that are open: the node has no descriptors left, or no
    /// name server answers.
    pub(crate) is_of_peer: bool,
}

/// How long the connect took, or why it failed.
pub(crate) type Outcome = Result<Duration, Failure>;

/// An upstream for one connection.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) id: Id,
    pub(crate) target: Target,
    /// Changes, or closes, when the connection must end. As long as it is held the connection counts as open.
    pub(crate) end: watch::Receiver<()>,
}

#[derive(Debug)]
struct Entry {
    id: Id,
    upstream: Upstream,
    state: State,
    error: Option<String>,
    connect_time: Option<Duration>,
    /// In a row, by the peer.
    failed_probes: u32,
    last_turn: u64,
    /// To its connections. Dropped with the entry, which ends them too.
    end: watch::Sender<()>,
}

#[derive(Debug)]
pub(crate) struct Pool {
    entries: Vec<Entry>,
    probe_failures: u32,
    last_id: u64,
    turn: u64,
    health: watch::Sender<Vec<UpstreamHealth>>,
}

impl Pool {
    pub(crate) fn new(probe_failures: u32) -> Self {
        Self { entries: Vec::new(), probe_failures, last_id: 0, turn: 0, health: watch::Sender::default() }
    }

    pub(crate) fn health(&self) -> watch::Receiver<Vec<UpstreamHealth>> {
        self.health.subscribe()
    }

    /// Takes another list and answers what is new in it. Connections of those that left end.
    pub(crate) fn replace(&mut self, upstreams: &[Upstream]) -> Vec<(Id, Target)> {
        let mut before = std::mem::take(&mut self.entries);
        let mut added = Vec::new();
        for upstream in upstreams {
            if self.entries.iter().any(|entry| entry.upstream.address == upstream.address) {
                continue;
            }
            let known = before.iter().position(|entry| entry.upstream.address == upstream.address);
            let mut entry = known.map_or_else(
                || {
                    self.last_id += 1;
                    added.push((Id(self.last_id), upstream.address.clone()));
                    Entry::new(Id(self.last_id), upstream.clone())
                },
                |place| before.swap_remove(place),
            );
            entry.upstream.priority = upstream.priority;
            self.entries.push(entry);
        }
        self.publish();
        added
    }

    pub(crate) fn contains(&self, id: Id) -> bool {
        self.entries.iter().any(|entry| entry.id == id)
    }

    /// The upstream that a client gets after those that it tried.
    pub(crate) fn choose(&mut self, tried: &[Id]) -> Option<Chosen> {
        let candidates = self.entries.iter().map(|entry| entry.candidate(tried));
        let entry = choice::choose(candidates).and_then(|place| self.entries.get_mut(place))?;
        self.turn += 1;
        entry.last_turn = self.turn;
        Some(Chosen { id: entry.id, target: entry.upstream.address.clone(), end: entry.end.subscribe() })
    }

    /// A client's dial. One that fails ends no connections: a burst of clients would take a moment for an outage.
    pub(crate) fn dialled(&mut self, id: Id, outcome: Outcome) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.id == id) {
            entry.learn(outcome);
            self.publish();
        }
    }

    /// A probe. The last of several in a row that fail ends the connections: their host may be dead, which they would
    /// notice in minutes only.
    pub(crate) fn probed(&mut self, id: Id, outcome: Outcome) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.id == id) {
            let is_of_peer = outcome.as_ref().is_err_and(|failure| failure.is_of_peer);
            entry.learn(outcome);
            if is_of_peer {
                entry.failed_probes = entry.failed_probes.saturating_add(1);
                if entry.failed_probes >= self.probe_failures {
                    entry.end.send_replace(());
                }
            }
            self.publish();
        }
    }

    fn publish(&self) {
        let now: Vec<UpstreamHealth> = self.entries.iter().map(Entry::health).collect();
        self.health.send_if_modified(|before| {
            let is_other = *before != now;
            *before = now;
            is_other
        });
    }
}

impl Entry {
    fn new(id: Id, upstream: Upstream) -> Self {
        Self {
            id,
            upstream,
            state: State::Unknown,
            error: None,
            connect_time: None,
            failed_probes: 0,
            last_turn: 0,
            end: watch::Sender::new(()),
        }
    }

    fn candidate(&self, tried: &[Id]) -> Candidate {
        Candidate {
            state: self.state,
            priority: self.upstream.priority,
            open: self.end.receiver_count(),
            last_turn: self.last_turn,
            is_tried: tried.contains(&self.id),
        }
    }

    fn learn(&mut self, outcome: Outcome) {
        match outcome {
            Ok(took) => {
                self.state = State::Healthy;
                self.error = None;
                self.connect_time = Some(took);
                self.failed_probes = 0;
            }
            Err(failure) => {
                self.state = State::Unhealthy;
                self.error = Some(failure.text);
            }
        }
    }

    fn health(&self) -> UpstreamHealth {
        UpstreamHealth {
            address: self.upstream.address.clone(),
            is_healthy: self.state == State::Healthy,
            error: self.error.clone(),
            connect_time: self.connect_time,
        }
    }
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
