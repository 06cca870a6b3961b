//! What is known of one service: state, events, health.

use std::collections::VecDeque;

use api::event::Payload;
use api::proto::machine as proto;
use jiff::Timestamp;

use super::health::Health;
use super::machine::State;
use crate::checkpoint::{SavedEvent, SavedService};
use crate::clock;
use crate::store::ServiceStatus;

/// Events kept for each service (as many as Talos keeps).
const EVENTS: usize = 64;

/// One thing that happened to a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventEntry {
    /// Word of the state it entered or was in.
    pub state: &'static str,
    /// Text for people.
    pub message: String,
    /// When.
    pub time: Timestamp,
}

/// Everything that is shown of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Where it stands.
    pub state: State,
    /// The last [`EVENTS`] events, oldest first.
    pub events: VecDeque<EventEntry>,
    /// The last health check.
    pub health: Health,
    /// When its present start began, nanoseconds since boot.
    pub began_ns: u64,
    /// Its process, while it has one.
    pub pid: Option<i32>,
}

impl Default for Record {
    fn default() -> Self {
        Self {
            state: State::Initialized,
            events: VecDeque::new(),
            health: Health::default(),
            began_ns: 0,
            pid: None,
        }
    }
}

impl Record {
    pub(super) fn enter(&mut self, state: State, message: &str) {
        if state != State::Running {
            self.health = Health::default();
        }
        if state == State::Preparing {
            self.began_ns = clock::boottime_ns();
        }
        self.state = state;
        if self.events.len() == EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(EventEntry {
            state: state.text(),
            message: message.to_owned(),
            time: clock::now(),
        });
    }

    pub(super) fn is_up(&self, checked: bool) -> bool {
        match self.state {
            State::Running => !checked || self.health.healthy,
            State::Finished | State::Skipped => true,
            State::Initialized
            | State::Waiting
            | State::Preparing
            | State::Starting
            | State::Pausing
            | State::Stopping
            | State::Killing
            | State::Restarting
            | State::Failed => false,
        }
    }

    pub(super) fn status(&self) -> Option<ServiceStatus> {
        let health = &self.health;
        let shown = self.state == State::Running;
        shown.then_some(ServiceStatus { running: true, healthy: health.healthy, unknown: health.unknown })
    }

    pub(super) fn state_event(&self, id: &str, message: &str) -> Payload {
        Payload::ServiceState(proto::ServiceStateEvent {
            service: id.to_owned(),
            action: self.state.number(),
            message: message.to_owned(),
            health: Some(self.health.to_proto()),
        })
    }

    /// The wire form.
    pub fn to_proto(&self, id: &str) -> proto::ServiceInfo {
        let events = self.events.iter().map(|event| proto::ServiceEvent {
            msg: event.message.clone(),
            state: event.state.to_owned(),
            ts: Some(clock::proto(event.time)),
        });
        proto::ServiceInfo {
            id: id.to_owned(),
            state: self.state.text().to_owned(),
            events: Some(proto::ServiceEvents { events: events.collect() }),
            health: Some(self.health.to_proto()),
        }
    }

    pub(super) fn saved(&self, id: &str, process: Option<(i32, u64)>) -> SavedService {
        let wanted = !self.state.is_down() && !matches!(self.state, State::Stopping | State::Killing);
        let events = self.events.iter().map(|event| SavedEvent {
            state: event.state.to_owned(),
            message: event.message.clone(),
            time_ns: event.time.as_nanosecond(),
        });
        SavedService {
            id: id.to_owned(),
            wanted,
            starting: self.state == State::Starting,
            pid: process.map(|(pid, _)| pid),
            start_ticks: process.map_or(0, |(_, ticks)| ticks),
            events: events.collect(),
        }
    }

    pub(super) fn restore(&mut self, saved: &SavedService) {
        let word = |text: &str| State::ALL.into_iter().map(State::text).find(|word| *word == text);
        let events = saved.events.iter().map(|event| EventEntry {
            state: word(&event.state).unwrap_or("Initialized"),
            message: event.message.clone(),
            time: Timestamp::from_nanosecond(event.time_ns).unwrap_or(Timestamp::UNIX_EPOCH),
        });
        self.events = events.collect();
        let last = self.events.back().map(|event| event.state);
        if !saved.wanted {
            let down = [State::Finished, State::Failed, State::Skipped];
            self.state = down.into_iter().find(|s| Some(s.text()) == last).unwrap_or(State::Initialized);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_events_are_kept() {
        let mut record = Record::default();
        for number in 0..100 {
            record.enter(State::Waiting, &number.to_string());
        }
        assert_eq!((record.events.len(), record.events[0].message.as_str()), (EVENTS, "36"));
    }

    #[test]
    fn up_needs_a_good_check_only_where_there_is_one() {
        let mut record = Record::default();
        record.enter(State::Running, "");
        assert!(record.is_up(false) && !record.is_up(true));
        record.health.set(true, "");
        assert!(record.is_up(true));
        record.enter(State::Failed, "");
        assert!(!record.is_up(false));
        record.enter(State::Finished, "");
        assert!(record.is_up(true) && record.status().is_none());
    }

    #[test]
    fn the_wire_form_never_lacks_a_part() {
        let info = Record::default().to_proto("apid");
        assert!(info.events.is_some() && info.health.unwrap().unknown);
    }

    #[test]
    fn history_survives_a_save() {
        let mut record = Record::default();
        record.enter(State::Waiting, "w");
        record.enter(State::Failed, "f");
        let mut next = Record::default();
        next.restore(&record.saved("x", None));
        assert_eq!((next.state, &next.events), (State::Failed, &record.events));
    }
}
