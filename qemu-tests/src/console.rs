//! What a VM printed on its serial console.
//!
//! Owns: the growing text of one log file, a cursor for tests that read it in order.
//! Does not: know when the VM ends; the caller says so through [`Watch`].
//! Fails by: what was awaited, for how long, and the last lines seen.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::process::POLL_INTERVAL;

/// A kernel that panicked prints its trace and reboots; nobody waits for more than that.
const AFTER_PANIC: Duration = Duration::from_secs(5);

/// Lines shown when a wait fails.
const TAIL_LINES: usize = 15;

/// The text so far and how far a test has read it.
#[derive(Debug)]
pub struct Console {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    text: String,
    bytes_read: u64,
    cursor: usize,
}

impl Console {
    /// Follows `path`, which need not exist yet.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_path_buf(), state: Mutex::default() }
    }

    /// The log file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Everything printed so far, without carriage returns.
    pub fn text(&self) -> String {
        let mut state = self.lock();
        self.grow(&mut state);
        state.text.clone()
    }

    /// Waits until `needle` appears behind the cursor, moves the cursor behind it, returns its whole line.
    ///
    /// `ended` says why nothing more will come, once that is so.
    pub fn expect(
        &self,
        needle: &str,
        limit: Duration,
        ended: impl FnMut() -> Option<String>,
    ) -> Result<String> {
        self.expect_with(&format!("{needle:?}"), limit, ended, |unread| {
            let at = unread.find(needle)?;
            let start = unread[..at].rfind('\n').map_or(0, |newline| newline + 1);
            let end = at + unread[at..].find('\n')?;
            Some((unread[start..end].to_owned(), end))
        })
    }

    /// Waits until `find` returns a value and how much of the unread text it used up.
    pub fn expect_with<T>(
        &self,
        what: &str,
        limit: Duration,
        mut ended: impl FnMut() -> Option<String>,
        mut find: impl FnMut(&str) -> Option<(T, usize)>,
    ) -> Result<T> {
        let end = Instant::now() + limit;
        let mut panicked_at = None;
        loop {
            // Asked before reading: what was printed before the end must still be seen.
            let over = ended();
            let mut state = self.lock();
            self.grow(&mut state);
            if let Some((value, used)) = find(&state.text[state.cursor..]) {
                state.cursor += used;
                return Ok(value);
            }
            if panicked_at.is_none() && state.text[state.cursor..].contains("Kernel panic - not syncing") {
                panicked_at = Some(Instant::now());
            }
            if let Some(reason) = over {
                bail!("waited for {what} on the console, but {reason}{}", self.tail(&state));
            }
            if panicked_at.is_some_and(|at| at.elapsed() > AFTER_PANIC) {
                bail!("waited for {what} on the console, but the kernel panicked{}", self.tail(&state));
            }
            if Instant::now() > end {
                bail!("{what} did not appear on the console within {limit:?}{}", self.tail(&state));
            }
            drop(state);
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Waits until `needle` stands anywhere in the log, read or not; the cursor stays.
    pub fn wait_for(
        &self,
        needle: &str,
        limit: Duration,
        mut ended: impl FnMut() -> Option<String>,
    ) -> Result<()> {
        let end = Instant::now() + limit;
        loop {
            let over = ended();
            if self.text().contains(needle) {
                return Ok(());
            }
            if over.is_some() || Instant::now() > end {
                let why = over.unwrap_or_else(|| format!("{limit:?} passed"));
                bail!("{needle:?} is nowhere on the console, and {why}{}", self.tail(&self.lock()));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A test that panicked while it held the lock leaves text that is still right.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what was added; a missing file is an empty one.
    fn grow(&self, state: &mut State) {
        if let Ok(bytes) = self.read_from(state.bytes_read) {
            state.bytes_read += u64::try_from(bytes.len()).unwrap_or(0);
            state.text.push_str(&String::from_utf8_lossy(&bytes).replace('\r', ""));
        }
    }

    fn read_from(&self, offset: u64) -> Result<Vec<u8>> {
        let mut file = File::open(&self.path).with_context(|| format!("open {}", self.path.display()))?;
        file.seek(SeekFrom::Start(offset))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn tail(&self, state: &State) -> String {
        let lines: Vec<&str> = state.text.lines().collect();
        let shown = lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n  ");
        format!("; the log is {} and ends with\n  {shown}", self.path.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn console(text: &str) -> (tempfile::TempDir, Console, File) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("serial.log");
        let mut file = File::create(&path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        (dir, Console::new(&path), file)
    }

    #[test]
    fn matches_come_in_order_and_whole_lines() {
        let (_dir, console, mut file) = console("one\r\nready: 1\r\n");
        assert_eq!(console.expect("ready", Duration::ZERO, || None).unwrap(), "ready: 1");
        assert!(console.expect("ready", Duration::ZERO, || None).is_err(), "a match is used up");
        file.write_all(b"ready: 2\n").unwrap();
        assert_eq!(console.expect("ready", Duration::ZERO, || None).unwrap(), "ready: 2");
    }

    #[test]
    fn the_last_words_are_seen_after_the_end() {
        let (_dir, console, _file) = console("bye\n");
        let ended = || Some("QEMU ended".to_owned());
        assert_eq!(console.expect("bye", Duration::from_secs(60), ended).unwrap(), "bye");
        let error = console.expect("more", Duration::from_secs(60), ended).unwrap_err().to_string();
        assert!(
            error.contains("\"more\"") && error.contains("QEMU ended") && error.contains("bye"),
            "{error}"
        );
    }

    #[test]
    fn what_was_read_can_still_be_looked_for() {
        let (_dir, console, _file) = console("one\ntwo\n");
        console.expect("two", Duration::ZERO, || None).unwrap();
        console.wait_for("one", Duration::ZERO, || None).unwrap();
        let error = console.wait_for("three", Duration::ZERO, || None).unwrap_err().to_string();
        assert!(error.contains("\"three\"") && error.contains("two"), "{error}");
    }

    #[test]
    fn an_unfinished_line_is_not_a_match_yet() {
        let (_dir, console, mut file) = console("root_hash=ab");
        assert!(console.expect("root_hash=", Duration::ZERO, || None).is_err());
        file.write_all(b"cd\n").unwrap();
        assert_eq!(console.expect("root_hash=", Duration::ZERO, || None).unwrap(), "root_hash=abcd");
    }
}
