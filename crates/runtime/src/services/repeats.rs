//! Which lines of a service that cannot start are news: the first of each failure, then reminders.
//!
//! Owns: the time between two lines about one failure. Events and `service ID` show each attempt.
//! Order: a request to start, a process or another failure makes everything news again.

use std::time::Duration;

use tokio::time::Instant;

use super::machine::{Event, State};

/// Until a failure that stays the same is said a second time; it doubles up to the longest.
const FIRST_REMINDER: Duration = Duration::from_secs(10);
const LONGEST_REMINDER: Duration = Duration::from_secs(60);

/// What was said last of a service that cannot start.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    failure: Option<Failure>,
}

#[derive(Debug)]
struct Failure {
    event: Event,
    message: String,
    said: Instant,
    reminder: Duration,
}

impl Repeats {
    /// Whether people should read this line of a transition into `state`.
    pub(super) fn is_news(&mut self, state: State, event: Event, message: &str) -> bool {
        match (state, event) {
            (State::Pausing, Event::PrepareFailed | Event::SpawnFailed) => self.failed(event, message),
            // An attempt after a failure is not news; how far it comes may be.
            (State::Preparing, Event::PauseOver) => self.failure.is_none(),
            (State::Starting, _) => {
                self.failure.as_ref().is_none_or(|failure| failure.event != Event::SpawnFailed)
            }
            _ => {
                self.failure = None;
                true
            }
        }
    }

    fn failed(&mut self, event: Event, message: &str) -> bool {
        let now = Instant::now();
        match &mut self.failure {
            Some(last) if last.message == message => {
                let is_due = now.duration_since(last.said) >= last.reminder;
                if is_due {
                    last.said = now;
                    last.reminder = (last.reminder * 2).min(LONGEST_REMINDER);
                }
                is_due
            }
            last => {
                let message = message.to_owned();
                *last = Some(Failure { event, message, said: now, reminder: FIRST_REMINDER });
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seconds of the first ten minutes at which a line is written, where each attempt takes this long and fails so.
    async fn said(event: Event, attempt: Duration, message: impl Fn(u64) -> String) -> Vec<u64> {
        let (mut repeats, begin) = (Repeats::default(), Instant::now());
        let mut seconds = Vec::new();
        while begin.elapsed() < Duration::from_secs(600) {
            let second = begin.elapsed().as_secs();
            if repeats.is_news(State::Pausing, event, &message(second)) {
                seconds.push(second);
            }
            assert!(!repeats.is_news(State::Preparing, Event::PauseOver, "Running pre state"));
            tokio::time::sleep(attempt).await;
        }
        seconds
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_that_stays_is_said_ever_more_rarely_up_to_once_a_minute() {
        let seconds =
            said(Event::PrepareFailed, Duration::from_secs(5), |_| "the registry is down".into()).await;
        assert_eq!(seconds, [0, 10, 30, 70, 130, 190, 250, 310, 370, 430, 490, 550]);
    }

    #[tokio::test(start_paused = true)]
    async fn another_failure_is_said_at_once_and_begins_anew() {
        let message = |second| if second < 95 { "down".to_owned() } else { "no such image".to_owned() };
        let seconds = said(Event::PrepareFailed, Duration::from_secs(5), message).await;
        assert_eq!(seconds[..7], [0, 10, 30, 70, 95, 105, 125]);
    }

    #[tokio::test(start_paused = true)]
    async fn how_far_an_attempt_comes_is_news_once() {
        let mut repeats = Repeats::default();
        assert!(repeats.is_news(State::Preparing, Event::ConditionsMet, "Running pre state"));
        assert!(repeats.is_news(State::Pausing, Event::PrepareFailed, "down"));
        assert!(!repeats.is_news(State::Preparing, Event::PauseOver, "Running pre state"));
        assert!(repeats.is_news(State::Starting, Event::Prepared, "Creating service runner"));
        assert!(repeats.is_news(State::Pausing, Event::SpawnFailed, "no space"));
        assert!(!repeats.is_news(State::Preparing, Event::PauseOver, "Running pre state"));
        assert!(!repeats.is_news(State::Starting, Event::Prepared, "Creating service runner"));
        assert!(!repeats.is_news(State::Pausing, Event::SpawnFailed, "no space"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_and_a_request_make_everything_news_again() {
        for (state, event) in [(State::Running, Event::Spawned), (State::Preparing, Event::StartAsked)] {
            let mut repeats = Repeats::default();
            for _ in 0..2 {
                assert!(repeats.is_news(State::Pausing, Event::PrepareFailed, "down"));
                assert!(!repeats.is_news(State::Pausing, Event::PrepareFailed, "down"));
                assert!(repeats.is_news(state, event, "an end of it"));
            }
        }
        // A crash is news each time: a process was there.
        let mut repeats = Repeats::default();
        for _ in 0..2 {
            assert!(repeats.is_news(State::Running, Event::Spawned, "started"));
            assert!(repeats.is_news(State::Pausing, Event::Crashed, "exit status 7"));
            assert!(repeats.is_news(State::Preparing, Event::PauseOver, "Running pre state"));
        }
    }
}
