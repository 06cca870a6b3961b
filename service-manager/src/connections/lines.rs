//! Log lines about clients, bounded: so many about one client and so many about all, whatever clients do.
//!
//! Owns: the rates, the length of a line, and the lines that say how many were left out.
//! Does not: know what a line says, or who a client is.
//! Fails by: leaving lines out, and saying so within [`REPORT`].

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

/// Lines in a row, and lines a second after that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rate {
    pub(crate) burst: u32,
    pub(crate) per_second: u32,
}

/// Rates of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rates {
    /// About one client.
    pub(crate) of_one: Rate,
    /// About all of them.
    pub(crate) of_all: Rate,
}

/// After the first line that was left out.
const REPORT: Duration = Duration::from_secs(10);
/// Clients that a report names; the others are one line.
const MOST_REPORTED: usize = 8;
/// Clients whose lines are counted. Others have no lines until one of these is quiet.
const MOST_CLIENTS: usize = 512;
/// Bytes of a line.
const MOST_LINE_BYTES: usize = 512;

/// Where a line goes.
pub(crate) type Write = Arc<dyn Fn(&str) + Send + Sync>;

/// The lines about the clients of one server; clones share them.
pub(crate) struct Lines<K> {
    write: Write,
    state: Arc<Mutex<State<K>>>,
}

#[derive(Debug)]
struct State<K> {
    rates: Rates,
    all: Bucket,
    clients: BTreeMap<K, Client>,
    /// Lines about clients that found no place among those.
    about_others: u64,
    is_report_due: bool,
}

#[derive(Debug)]
struct Client {
    bucket: Bucket,
    name: String,
    left_out: u64,
}

#[derive(Debug)]
struct Bucket {
    rate: Rate,
    /// Thousandths of a line.
    level: u64,
    since: Instant,
}

impl<K> Clone for Lines<K> {
    fn clone(&self) -> Self {
        Self { write: self.write.clone(), state: self.state.clone() }
    }
}

impl<K> fmt::Debug for Lines<K> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Lines").finish_non_exhaustive()
    }
}

impl<K: Ord + Clone + Send + 'static> Lines<K> {
    pub(crate) fn new(rates: Rates, write: Write) -> Self {
        let all = Bucket::full(rates.of_all, Instant::now());
        let state = State { rates, all, clients: BTreeMap::new(), about_others: 0, is_report_due: false };
        Self { write, state: Arc::new(Mutex::new(state)) }
    }

    /// Writes a line about this client, if it is one of those that may be written; `name` is for the report of those that
    /// are left out.
    pub(crate) fn tell(&self, client: &K, name: impl FnOnce() -> String, text: impl FnOnce() -> String) {
        let is_admitted = self.state().admit(client, name, Instant::now());
        if is_admitted {
            (self.write)(&bounded(&text()));
        } else {
            self.report_later();
        }
    }

    fn report_later(&self) {
        // Without a runtime, at the end of the process, nothing is reported.
        let Ok(runtime) = Handle::try_current() else { return };
        if std::mem::replace(&mut self.state().is_report_due, true) {
            return;
        }
        let lines = self.clone();
        runtime.spawn(async move {
            sleep(REPORT).await;
            let report = lines.state().report();
            report.iter().for_each(|line| (lines.write)(&bounded(line)));
        });
    }

    /// Each change is one call, so a panic elsewhere leaves it whole.
    fn state(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Ord + Clone> State<K> {
    /// Whether a line may be written now; counts it if not.
    fn admit(&mut self, key: &K, name: impl FnOnce() -> String, now: Instant) -> bool {
        if !self.clients.contains_key(key) {
            self.forget_quiet(now);
            if self.clients.len() >= MOST_CLIENTS {
                self.about_others = self.about_others.saturating_add(1);
                return false;
            }
            let bucket = Bucket::full(self.rates.of_one, now);
            let client = Client { bucket, name: name(), left_out: 0 };
            self.clients.insert(key.clone(), client);
        }
        let Some(client) = self.clients.get_mut(key) else { return false };
        let is_admitted = client.bucket.take(now) && self.all.take(now);
        if !is_admitted {
            client.left_out = client.left_out.saturating_add(1);
        }
        is_admitted
    }

    /// Makes room when there is none.
    fn forget_quiet(&mut self, now: Instant) {
        if self.clients.len() >= MOST_CLIENTS {
            self.clients.retain(|_, client| client.left_out > 0 || !client.bucket.is_full(now));
        }
    }

    /// How many lines were left out since the last report, of whom most first.
    fn report(&mut self) -> Vec<String> {
        self.is_report_due = false;
        let take = |client: &mut Client| (std::mem::take(&mut client.left_out), client.name.clone());
        let mut counts: Vec<_> =
            self.clients.values_mut().map(take).filter(|(count, _)| *count > 0).collect();
        counts.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        let rest = counts.split_off(counts.len().min(MOST_REPORTED));
        let others = std::mem::take(&mut self.about_others);
        let others = rest.iter().fold(others, |sum, (count, _)| sum.saturating_add(*count));
        let named = counts.iter().map(|(count, name)| format!("left out {count} lines about {name}"));
        let others = (others > 0).then(|| format!("left out {others} lines about other clients"));
        named.chain(others).collect()
    }
}

impl Bucket {
    fn full(rate: Rate, now: Instant) -> Self {
        Self { rate, level: u64::from(rate.burst).saturating_mul(1000), since: now }
    }

    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.since).as_millis();
        let passed = u64::try_from(passed).unwrap_or(u64::MAX);
        let most = u64::from(self.rate.burst).saturating_mul(1000);
        self.level = self.level.saturating_add(passed.saturating_mul(self.rate.per_second.into())).min(most);
        // Parts of a millisecond count at the next time.
        self.since = self.since.checked_add(Duration::from_millis(passed)).unwrap_or(now);
    }

    fn take(&mut self, now: Instant) -> bool {
        self.fill(now);
        let left = self.level.checked_sub(1000);
        self.level = left.unwrap_or(self.level);
        left.is_some()
    }

    fn is_full(&mut self, now: Instant) -> bool {
        self.fill(now);
        self.level >= u64::from(self.rate.burst).saturating_mul(1000)
    }
}

/// One line that a terminal shows as it is.
fn bounded(text: &str) -> String {
    let mut line = ondisk::printable::line(text);
    if line.len() > MOST_LINE_BYTES {
        let end = (0..=MOST_LINE_BYTES).rev().find(|end| line.is_char_boundary(*end)).unwrap_or_default();
        line.truncate(end);
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATES: Rates =
        Rates { of_one: Rate { burst: 3, per_second: 1 }, of_all: Rate { burst: 5, per_second: 100 } };

    fn lines() -> (Lines<u32>, Arc<Mutex<Vec<String>>>) {
        let written = Arc::new(Mutex::new(Vec::new()));
        let to = written.clone();
        let write: Write = Arc::new(move |line| to.lock().unwrap().push(line.to_owned()));
        (Lines::new(RATES, write), written)
    }

    fn taken(written: &Mutex<Vec<String>>) -> Vec<String> {
        std::mem::take(&mut *written.lock().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn one_client_has_its_rate_and_the_rest_is_counted() {
        let (lines, written) = lines();
        for number in 0..1000 {
            lines.tell(&1, || "one".to_owned(), || format!("line {number}"));
        }
        lines.tell(&2, || "two".to_owned(), || "another".to_owned());
        assert_eq!(taken(&written), ["line 0", "line 1", "line 2", "another"]);
        sleep(REPORT + Duration::from_millis(1)).await;
        assert_eq!(taken(&written), ["left out 997 lines about one"]);
        for _ in 0..9 {
            lines.tell(&1, || "one".to_owned(), || "again".to_owned());
        }
        assert_eq!(taken(&written).len(), 3, "a full burst after a pause, and no more");
        sleep(Duration::from_secs(1)).await;
        lines.tell(&1, || "one".to_owned(), || "later".to_owned());
        lines.tell(&1, || "one".to_owned(), || "too early".to_owned());
        assert_eq!(taken(&written), ["later"]);
    }

    /// An attacker with many addresses fills no log either, and takes no memory.
    #[tokio::test(start_paused = true)]
    async fn many_clients_together_have_a_rate_too() {
        let (lines, written) = lines();
        for client in 0..10_000 {
            lines.tell(&client, || format!("client {client}"), || "line".to_owned());
        }
        assert_eq!(taken(&written).len(), 5);
        assert_eq!(lines.state().clients.len(), MOST_CLIENTS);
        sleep(REPORT + Duration::from_millis(1)).await;
        let report = taken(&written);
        assert_eq!(report.len(), MOST_REPORTED + 1);
        assert_eq!(report[0], "left out 1 lines about client 5");
        assert_eq!(
            report[MOST_REPORTED],
            format!("left out {} lines about other clients", 9995 - MOST_REPORTED)
        );
        // Who is quiet gives up the place.
        lines.tell(&20_000, || "new".to_owned(), || "heard".to_owned());
        assert_eq!(taken(&written), ["heard"]);
        assert_eq!(lines.state().clients.len(), 1);
    }

    #[tokio::test]
    async fn a_line_is_one_printable_line_of_bounded_length() {
        let (lines, written) = lines();
        lines.tell(&1, || "one".to_owned(), || "\x1b[2J\na\u{202e}".to_owned());
        lines.tell(&1, || "one".to_owned(), || "ü".repeat(5000));
        let written = taken(&written);
        assert_eq!(written[0], "\\x1b[2J\\na\\u{202e}");
        assert!(written[1].len() <= MOST_LINE_BYTES + '…'.len_utf8() && written[1].ends_with('…'));
    }
}
