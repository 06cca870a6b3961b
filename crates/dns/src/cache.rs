//! Answers for as long as they count, and a while longer for the time when no server answers.
//!
//! Owns: the memory of answers: at most [`MAX_ENTRIES`] of at most [`MAX_BYTES`] together. The one that is over first goes first.
//! Source: RFC 1035 §4.1.3 (TTL), RFC 2308 §5 (negative answers), RFC 8767 §4 (limits, answers that are over).

use std::collections::BTreeMap;
use std::time::Duration;

use hickory_proto::op::Message;
use hickory_proto::rr::{DNSClass, Name, RData, RecordType};

/// Answers that are kept.
pub const MAX_ENTRIES: usize = 4096;
/// Their messages together, as they are on the wire.
pub const MAX_BYTES: usize = 1 << 20;
/// A larger answer is not kept.
const MAX_ENTRY_BYTES: usize = 16 << 10;
/// The longest time that an answer counts.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// The same of one that says that there is no such name or record.
const LONGEST_NEGATIVE: Duration = Duration::from_secs(60 * 60);
/// So long after its end an answer is given if no server answers.
const STALE: Duration = Duration::from_secs(24 * 60 * 60);

/// What makes two questions one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// In lower case.
    pub name: Name,
    /// Which records.
    pub kind: RecordType,
    /// The internet's, as a rule.
    pub class: DNSClass,
    /// With signatures.
    pub dnssec: bool,
    /// Answers that failed a check of the server's are wanted, too.
    pub unchecked: bool,
}

/// An answer that was kept.
#[derive(Debug, Clone)]
pub struct Kept {
    /// As the server gave it.
    pub message: Vec<u8>,
    /// How long ago.
    pub age: Duration,
    /// Its time is over.
    pub is_stale: bool,
}

#[derive(Debug)]
struct Entry {
    message: Vec<u8>,
    began: Duration,
    ends: Duration,
    number: u64,
}

/// The answers.
#[derive(Debug, Default)]
pub struct Cache {
    entries: BTreeMap<Key, Entry>,
    /// By their end, for what goes first.
    by_end: BTreeMap<(Duration, u64), Key>,
    bytes: usize,
    count: u64,
}

impl Cache {
    /// The answer to a question, also one that is over.
    pub fn get(&mut self, now: Duration, key: &Key) -> Option<Kept> {
        let entry = self.entries.get(key)?;
        if now >= entry.ends.saturating_add(STALE) {
            self.remove(key);
            return None;
        }
        let age = now.saturating_sub(entry.began);
        Some(Kept { message: entry.message.clone(), age, is_stale: now >= entry.ends })
    }

    /// Keeps an answer for as long as it says.
    pub fn put(&mut self, now: Duration, key: Key, answer: &Message, bytes: &[u8]) {
        let Some(life) = life(answer) else { return };
        if life.is_zero() || bytes.len() > MAX_ENTRY_BYTES {
            return;
        }
        self.remove(&key);
        self.count += 1;
        let (ends, number) = (now.saturating_add(life), self.count);
        self.bytes += bytes.len();
        self.by_end.insert((ends, number), key.clone());
        self.entries.insert(key, Entry { message: bytes.to_vec(), began: now, ends, number });
        while self.entries.len() > MAX_ENTRIES || self.bytes > MAX_BYTES {
            let Some((_, first)) = self.by_end.first_key_value() else { break };
            let first = first.clone();
            self.remove(&first);
        }
    }

    /// Forgets everything: what one server said may be wrong by another.
    pub fn clear(&mut self) {
        *self = Self { count: self.count, ..Self::default() };
    }

    fn remove(&mut self, key: &Key) {
        if let Some(entry) = self.entries.remove(key) {
            self.by_end.remove(&(entry.ends, entry.number));
            self.bytes -= entry.message.len();
        }
    }
}

/// How long an answer counts; `None` if it is not to be kept.
fn life(answer: &Message) -> Option<Duration> {
    let records = answer.answers.iter().chain(&answer.authorities);
    let shortest = records.map(|record| record.ttl).min();
    let kind = answer.queries.first()?.query_type();
    let is_positive = answer.answers.iter().any(|record| record.record_type() == kind)
        || (kind == RecordType::ANY && !answer.answers.is_empty());
    if is_positive {
        return Some(Duration::from_secs(shortest?.into()).min(LONGEST));
    }
    // Without its zone's word a negative answer says nothing about its time (RFC 2308 §5).
    let minimum = answer.authorities.iter().find_map(|record| match &record.data {
        RData::SOA(zone) => Some(zone.minimum),
        _ => None,
    })?;
    Some(Duration::from_secs(shortest?.min(minimum).into()).min(LONGEST_NEGATIVE))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::str::FromStr;

    use fastrand::Rng;
    use hickory_proto::op::{OpCode, Query};
    use hickory_proto::rr::Record;
    use hickory_proto::rr::rdata::{A, SOA};

    use super::*;

    fn key(name: &str) -> Key {
        let name = Name::from_str(name).unwrap();
        Key { name, kind: RecordType::A, class: DNSClass::IN, dnssec: false, unchecked: false }
    }

    fn answer(name: &str, ttl: Option<u32>, zone: Option<(u32, u32)>) -> Message {
        let name = Name::from_str(name).unwrap();
        let mut message = Message::response(7, OpCode::Query);
        message.add_query(Query::query(name.clone(), RecordType::A));
        if let Some(ttl) = ttl {
            let address = RData::A(A(Ipv4Addr::new(192, 0, 2, 1)));
            message.add_answer(Record::from_rdata(name.clone(), ttl, address));
        }
        if let Some((ttl, minimum)) = zone {
            let zone = SOA::new(name.clone(), name.clone(), 1, 2, 3, 4, minimum);
            message.add_authority(Record::from_rdata(name, ttl, RData::SOA(zone)));
        }
        message
    }

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn an_answer_counts_for_its_shortest_time() {
        let life = |ttl, zone| life(&answer("a.example.", ttl, zone));
        assert_eq!(life(Some(60), None), Some(seconds(60)));
        assert_eq!(life(Some(60), Some((30, 5))), Some(seconds(30)), "an authority's record counts, too");
        assert_eq!(life(Some(u32::MAX), None), Some(LONGEST));
        assert_eq!(life(None, Some((300, 20))), Some(seconds(20)));
        assert_eq!(life(None, Some((300_000, 200_000))), Some(LONGEST_NEGATIVE));
        assert_eq!(life(None, None), None);
    }

    #[test]
    fn an_answer_is_over_and_a_day_later_gone() {
        let mut cache = Cache::default();
        let message = answer("a.example.", Some(60), None);
        cache.put(seconds(10), key("a.example."), &message, &message.to_vec().unwrap());
        let stale =
            |cache: &mut Cache, now| cache.get(seconds(now), &key("a.example.")).map(|it| it.is_stale);
        assert_eq!(stale(&mut cache, 69), Some(false));
        assert_eq!(stale(&mut cache, 70), Some(true));
        assert_eq!(stale(&mut cache, 70 + 86_400), None);
        assert_eq!((cache.bytes, cache.entries.len(), cache.by_end.len()), (0, 0, 0));
        let none = answer("a.example.", Some(0), None);
        cache.put(seconds(10), key("a.example."), &none, &none.to_vec().unwrap());
        assert!(cache.get(seconds(10), &key("a.example.")).is_none(), "a TTL of 0 is for one client");
    }

    /// Beside a list of all that was put: what was last put is given for as long as it counts and a day longer; what is over
    /// first goes first.
    #[test]
    fn it_is_like_a_list_of_answers_with_an_end() {
        rounds::play(rounds::count(40, 4_000), |seed| {
            let mut random = Rng::with_seed(seed);
            let (mut cache, mut now) = (Cache::default(), 0);
            // Name, beginning, end, length.
            let mut list: Vec<(String, u64, u64, usize)> = Vec::new();
            for _ in 0..500 {
                now += [0, 0, 1, 60, 4_000, 90_000][random.usize(..6)];
                let name = format!("n{}.", random.u8(..));
                let bytes = MAX_ENTRY_BYTES + 500 - random.usize(..6_000);
                let time = [0, 1, 60, 3_000, 100_000][random.usize(..5)];
                match random.u8(..120) {
                    0 => {
                        cache.clear();
                        list.clear();
                    }
                    1..100 => {
                        let message = answer(&name, Some(time), None);
                        cache.put(seconds(now), key(&name), &message, &vec![7; bytes]);
                        if time == 0 || bytes > MAX_ENTRY_BYTES {
                            continue;
                        }
                        list.retain(|known| known.0 != name);
                        list.push((name, now, now + u64::from(time).min(LONGEST.as_secs()), bytes));
                        while list.iter().map(|known| known.3).sum::<usize>() > MAX_BYTES {
                            let first = (0..list.len()).min_by_key(|index| list[*index].2).unwrap();
                            list.remove(first);
                        }
                    }
                    _ => {
                        let known = list.iter().find(|known| known.0 == name);
                        let known = known.filter(|known| now < known.2 + STALE.as_secs());
                        let expected = known.map(|known| (known.3, now - known.1, now >= known.2));
                        let kept = cache.get(seconds(now), &key(&name));
                        let found = kept.map(|it| (it.message.len(), it.age.as_secs(), it.is_stale));
                        assert_eq!(found, expected, "{name} at {now} s");
                        if found.is_none() {
                            list.retain(|known| known.0 != name);
                        }
                    }
                }
                let held: usize = cache.entries.values().map(|entry| entry.message.len()).sum();
                assert!(cache.bytes == held && held <= MAX_BYTES && cache.entries.len() == list.len());
            }
        });
    }

    #[test]
    fn it_holds_so_much_and_no_more() {
        let mut cache = Cache::default();
        for number in 0..2 * MAX_ENTRIES {
            let name = format!("n{number}.example.");
            let message = answer(&name, Some(60 + u32::try_from(number).unwrap()), None);
            cache.put(Duration::ZERO, key(&name), &message, &message.to_vec().unwrap());
            assert!(cache.entries.len() <= MAX_ENTRIES && cache.bytes <= MAX_BYTES);
        }
        assert_eq!(cache.entries.len(), MAX_ENTRIES);
        assert!(cache.get(Duration::ZERO, &key("n0.example.")).is_none(), "the shortest goes first");
        let mut large = answer("large.example.", Some(60), None);
        let record = large.answers[0].clone();
        large.answers = vec![record; 1200];
        let bytes = large.to_vec().unwrap();
        assert!(bytes.len() > MAX_ENTRY_BYTES);
        cache.put(Duration::ZERO, key("large.example."), &large, &bytes);
        assert!(cache.get(Duration::ZERO, &key("large.example.")).is_none());
        cache.clear();
        assert_eq!((cache.bytes, cache.entries.len(), cache.by_end.len()), (0, 0, 0));
    }
}
