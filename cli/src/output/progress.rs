//! Progress with rate and time left: one line that is written over on a terminal, a line each tenth elsewhere.

use super::text::{bytes_si, go_duration};
use installer::Progress;
use std::{
    io::{self, IsTerminal as _, Write as _},
    time::{Duration, Instant},
};

/// Between two changes of the line on a terminal.
const REFRESH: Duration = Duration::from_millis(200);

/// What was shown last.
pub(crate) struct Shown {
    is_terminal: bool,
    step: &'static str,
    started: Instant,
    last: Option<Instant>,
    tenth: u64,
}

impl Shown {
    pub(crate) fn new() -> Self {
        let is_terminal = io::stderr().is_terminal();
        Self { is_terminal, step: "", started: Instant::now(), last: None, tenth: 0 }
    }

    pub(crate) fn tell(&mut self, progress: Progress) {
        if progress.step != self.step {
            self.end();
            (self.step, self.started, self.last, self.tenth) = (progress.step, Instant::now(), None, 0);
        }
        if self.is_due(&progress) {
            let text = line(&progress, self.started.elapsed());
            let (start, end) = if self.is_terminal { ("\r\x1b[K", "") } else { ("", "\n") };
            // Who cannot be told is not told.
            let _ = write!(io::stderr(), "{start}{text}{end}");
        }
    }

    /// Leaves the line.
    pub(crate) fn end(&mut self) {
        if self.is_terminal && self.last.take().is_some() {
            eprintln!();
        }
    }

    fn is_due(&mut self, progress: &Progress) -> bool {
        let tenth = progress.done_bytes.saturating_mul(10).checked_div(progress.total_bytes).unwrap_or(10);
        let is_last = progress.done_bytes == progress.total_bytes;
        let due = if self.is_terminal {
            is_last || self.last.is_none_or(|last| last.elapsed() >= REFRESH)
        } else {
            tenth > self.tenth
        };
        if due {
            (self.last, self.tenth) = (Some(Instant::now()), tenth);
        }
        due
    }
}

/// `write 40 %, 120 MB of 300 MB, 60 MB/s, 3s left`
fn line(progress: &Progress, elapsed: Duration) -> String {
    let Progress { step, done_bytes, total_bytes } = *progress;
    let percent = done_bytes.saturating_mul(100).checked_div(total_bytes).unwrap_or(100);
    let mut text = format!("{step} {percent} %, {} of {}", bytes_si(done_bytes), bytes_si(total_bytes));
    let millis = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
    let rate = done_bytes.saturating_mul(1000).checked_div(millis).filter(|rate| *rate > 0);
    if let Some(rate) = rate {
        text.push_str(&format!(", {}/s", bytes_si(rate)));
        let left = (total_bytes - done_bytes.min(total_bytes)).div_ceil(rate);
        if left > 0 {
            text.push_str(&format!(", {} left", go_duration(Duration::from_secs(left))));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_and_time_left_are_told() {
        let progress = |done_bytes| Progress { step: "write", done_bytes, total_bytes: 300_000_000 };
        let text = line(&progress(120_000_000), Duration::from_secs(2));
        assert!(text.starts_with("write 40 %, ") && text.contains("/s, 3s left"), "{text}");
        assert!(!line(&progress(300_000_000), Duration::from_secs(2)).contains("left"));
        assert!(line(&progress(0), Duration::ZERO).starts_with("write 0 %"));
    }
}
