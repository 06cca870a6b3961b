//! The event stream: what happens on this node, for `events` and for clients that wait.
//!
//! Owns: the ring and the ids.
//! Does not: publish other types than the client's tracker knows: an unknown one makes it give up
//! (crates/api/src/event.rs).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::event::Payload;
use api::proto::common;
use api::proto::machine;
use tokio::sync::broadcast;

/// Events kept (crates/api/src/event.rs).
const RING: usize = 1000;
/// Events at the old end that are not replayed, since new ones would overrun a slow reader.
const GAP: usize = 10;

/// An event as it was published.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Time-ordered id.
    pub id: String,
    /// When, seconds since 1970.
    pub second: i64,
    /// Who asked for it, empty when nobody did.
    pub actor_id: String,
    /// Type and content.
    pub data: prost_types::Any,
}

impl Event {
    /// The wire form.
    pub fn to_proto(&self) -> machine::Event {
        machine::Event {
            metadata: None,
            data: Some(self.data.clone()),
            id: self.id.clone(),
            actor_id: self.actor_id.clone(),
        }
    }
}

/// Which past events a reader wants first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Past {
    /// None.
    None,
    /// All that are kept.
    All,
    /// The last so many.
    Last(usize),
    /// Those after this id.
    After(String),
    /// Those younger than this.
    Younger(Duration),
}

#[derive(Debug)]
struct Ring {
    kept: VecDeque<Arc<Event>>,
    counter: u32,
}

/// A handle to the stream; clones share it.
#[derive(Debug, Clone)]
pub struct Events {
    ring: Arc<Mutex<Ring>>,
    live: broadcast::Sender<Arc<Event>>,
}

impl Default for Events {
    fn default() -> Self {
        let (live, _) = broadcast::channel(RING);
        Self { ring: Arc::new(Mutex::new(Ring { kept: VecDeque::new(), counter: 0 })), live }
    }
}

impl Events {
    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes an event.
    pub fn publish(&self, actor_id: &str, payload: &Payload) {
        let second = crate::clock::now().as_second();
        let mut ring = self.ring();
        ring.counter = ring.counter.wrapping_add(1);
        let id = xid(u32::try_from(second).unwrap_or(0), std::process::id(), ring.counter);
        let event = Arc::new(Event { id, second, actor_id: actor_id.to_owned(), data: payload.pack() });
        if ring.kept.len() == RING {
            ring.kept.pop_front();
        }
        ring.kept.push_back(event.clone());
        // Sent under the lock: a reader that subscribes sees each event in the past or live, never twice.
        let _ = self.live.send(event);
    }

    /// Past events as asked for, then the live ones.
    pub fn subscribe(&self, past: &Past) -> (Vec<Arc<Event>>, broadcast::Receiver<Arc<Event>>) {
        let ring = self.ring();
        let live = self.live.subscribe();
        let all = ring.kept.iter().skip(ring.kept.len().saturating_sub(RING - GAP));
        let past = match past {
            Past::None => Vec::new(),
            Past::All => all.cloned().collect(),
            Past::Last(count) => {
                all.skip(ring.kept.len().min(RING - GAP).saturating_sub(*count)).cloned().collect()
            }
            Past::After(id) => all.filter(|event| event.id > *id).cloned().collect(),
            Past::Younger(age) => {
                let oldest =
                    crate::clock::now().as_second() - i64::try_from(age.as_secs()).unwrap_or(i64::MAX);
                all.filter(|event| event.second >= oldest).cloned().collect()
            }
        };
        (past, live)
    }
}

/// A time-ordered id: 4 bytes seconds, 5 bytes process, 3 bytes counter, as 20 lower-case base32hex characters.
fn xid(second: u32, process: u32, counter: u32) -> String {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&second.to_be_bytes());
    bytes[5..9].copy_from_slice(&process.to_be_bytes());
    bytes[9..].copy_from_slice(&counter.to_be_bytes()[1..]);
    base32hex(&bytes)
}

/// Whether a text has the form of an event's id.
pub fn is_id(text: &str) -> bool {
    text.len() == 20 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'v').contains(&byte))
}

/// A fresh id for an action that a client may wait for.
pub fn actor_id() -> String {
    let mut bytes = [0; 12];
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    let hex = |part: &[u8]| part.iter().map(|b| format!("{b:02x}")).collect::<String>();
    format!("{}-{}-{}", hex(&bytes[..4]), hex(&bytes[4..8]), hex(&bytes[8..]))
}

fn base32hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";
    let bit = |index: usize| bytes.get(index / 8).is_some_and(|byte| byte & (0x80 >> (index % 8)) != 0);
    let digits = (bytes.len() * 8).div_ceil(5);
    (0..digits)
        .map(|digit| {
            let value = (0..5).fold(0, |value, offset| value << 1 | usize::from(bit(digit * 5 + offset)));
            char::from(DIGITS[value])
        })
        .collect()
}

/// The error of a sequence event.
pub fn sequence_error(code: common::Code, message: String) -> common::Error {
    common::Error { code: code.into(), message, details: Vec::new() }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    fn task(name: &str) -> Payload {
        Payload::Task(machine::TaskEvent { task: name.into(), action: 0 })
    }

    fn names(events: &[Arc<Event>]) -> Vec<String> {
        events.iter().map(|e| machine::TaskEvent::decode(e.data.value.as_slice()).unwrap().task).collect()
    }

    #[test]
    fn ids_have_twenty_digits_and_grow() {
        assert_eq!(base32hex(&[0xff; 12]), "vvvvvvvvvvvvvvvvvvvg");
        assert_eq!(xid(0, 0, 0), "0".repeat(20));
        assert!(xid(5, 1, 2) < xid(5, 1, 3) && xid(5, 1, 3) < xid(6, 1, 0));
    }

    #[tokio::test]
    async fn past_and_live_meet_without_gap() {
        let events = Events::default();
        for name in ["a", "b", "c"] {
            events.publish("", &task(name));
        }
        let (past, mut live) = events.subscribe(&Past::Last(2));
        assert_eq!(names(&past), ["b", "c"]);
        let (after, _) = events.subscribe(&Past::After(past[0].id.clone()));
        assert_eq!(names(&after), ["c"]);
        assert_eq!(events.subscribe(&Past::Younger(Duration::from_secs(60))).0.len(), 3);
        assert!(events.subscribe(&Past::None).0.is_empty());
        events.publish("actor", &task("d"));
        let event = live.recv().await.unwrap();
        assert_eq!(
            (event.actor_id.as_str(), names(std::slice::from_ref(&event))),
            ("actor", vec!["d".to_owned()])
        );
    }

    #[test]
    fn a_full_ring_replays_all_but_the_gap() {
        let events = Events::default();
        for number in 0..1500 {
            events.publish("", &task(&number.to_string()));
        }
        let (past, _) = events.subscribe(&Past::All);
        assert_eq!((past.len(), names(&past)[0].as_str()), (990, "510"));
        assert_eq!(names(&events.subscribe(&Past::Last(1)).0), ["1499"]);
    }

    #[test]
    fn type_urls_are_those_the_client_knows() {
        assert_eq!(task("x").pack().type_url, "talos/runtime/machine.TaskEvent");
    }
}
