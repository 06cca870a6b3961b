//! Every key at once: those at hand one after another, those that must be unsealed as they come.
//!
//! | thread | does | ends |
//! |---|---|---|
//! | one a sealed key | has it unsealed, posts the passphrase | with its vault's deadline, wanted or not |
//! | the caller's | derives slots' keys, one at a time: a gigabyte is not needed twice | with the first key that works |
//!
//! Order: what was unsealed goes before the next key that is at hand. Those are tried in the order of their slots.
//! Fails by: a key that is still not unsealed [`UNSEAL_DEADLINE`] after the start, with nothing else left to try, is
//! refused by that name.

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use ondisk::luks2::{Header, Secret};
use unlock::{Candidate, KeyKind, Refused, SealedKey};

use super::{Key, KeySecret};

/// Longer than any vault waits by itself.
pub(super) const UNSEAL_DEADLINE: Duration = Duration::from_secs(60);

type Answer = (u8, Result<Secret, String>);

/// Keys as they come.
pub(super) struct Race {
    at_hand: VecDeque<Result<Candidate, Refused>>,
    awaited: BTreeMap<u8, KeyKind>,
    answers: Receiver<Answer>,
    end: Instant,
}

impl Race {
    /// Starts unsealing what the header holds.
    pub(super) fn start(header: &Header, keys: Vec<Result<Key, Refused>>) -> Self {
        let (post, answers) = channel();
        let mut race = Self {
            at_hand: VecDeque::new(),
            awaited: BTreeMap::new(),
            answers,
            end: Instant::now() + UNSEAL_DEADLINE,
        };
        for key in keys {
            match key {
                Ok(key) => race.enter(header, key, &post),
                Err(refused) => race.at_hand.push_back(Err(refused)),
            }
        }
        race
    }

    fn enter(&mut self, header: &Header, key: Key, post: &Sender<Answer>) {
        let (slot, kind) = (key.slot, key.kind.clone());
        if let KeySecret::Known(secret) = key.secret {
            return self.at_hand.push_back(Ok(Candidate { slot, kind, secret }));
        }
        let sealed = SealedKey::of(header, slot);
        let post = post.clone();
        let refused = key.refused("no thread to unseal it in".to_owned());
        // The receiver is gone when another key has worked.
        let work = move || drop(post.send((slot, key.unseal(sealed.as_ref()))));
        match std::thread::Builder::new().name(format!("unseal-{slot}")).spawn(work) {
            Ok(_) => drop(self.awaited.insert(slot, kind)),
            Err(_) => self.at_hand.push_back(Err(refused)),
        }
    }

    fn arrived(&mut self, (slot, secret): Answer) -> Option<Result<Candidate, Refused>> {
        let kind = self.awaited.remove(&slot)?;
        Some(match secret {
            Ok(secret) => Ok(Candidate { slot, kind, secret }),
            Err(why) => Err(Refused { slot, kind, why }),
        })
    }
}

impl Iterator for Race {
    type Item = Result<Candidate, Refused>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Ok(answer) = self.answers.try_recv() {
            return self.arrived(answer);
        }
        if let Some(key) = self.at_hand.pop_front() {
            return Some(key);
        }
        if self.awaited.is_empty() {
            return None;
        }
        let left = self.end.saturating_duration_since(Instant::now());
        if let Ok(answer) = self.answers.recv_timeout(left) {
            return self.arrived(answer);
        }
        let (slot, kind) = self.awaited.pop_first()?;
        let seconds = UNSEAL_DEADLINE.as_secs();
        let why = format!("not unsealed within {seconds} s (deadline unsealKey)");
        Some(Err(Refused { slot, kind, why }))
    }
}
