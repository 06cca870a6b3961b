//! Children that misbehave on purpose: this same program, started with words.
//!
//! Owns: the list of children started here. Does not: reap orphans; that is what init is tested for.

use std::collections::HashMap;
use std::io::{self, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

const OURSELVES: &str = "/proc/self/exe";

fn started() -> &'static Mutex<HashMap<u32, Child>> {
    static STARTED: OnceLock<Mutex<HashMap<u32, Child>>> = OnceLock::new();
    STARTED.get_or_init(Mutex::default)
}

/// Starts this program again; the child inherits stdout, which is the service's log.
pub(crate) fn start(words: &[&str]) -> Result<Value, String> {
    let child = Command::new(OURSELVES)
        .args(words)
        .stdin(Stdio::null())
        .spawn()
        .map_err(|error| format!("start {words:?}: {error}"))?;
    let pid = child.id();
    started().lock().unwrap_or_else(PoisonError::into_inner).insert(pid, child);
    Ok(json!({ "pid": pid }))
}

/// How a child does.
pub(crate) fn state(pid: u32) -> Result<Value, String> {
    let mut started = started().lock().unwrap_or_else(PoisonError::into_inner);
    let child = started.get_mut(&pid).ok_or_else(|| format!("no child {pid} was started here"))?;
    let status = child.try_wait().map_err(|error| format!("wait for {pid}: {error}"))?;
    Ok(match status {
        None => json!({ "running": true }),
        Some(status) => {
            json!({ "running": false, "success": status.success(), "status": status.to_string() })
        }
    })
}

/// Runs what the words ask for; `None` when there are none, for the agent itself.
pub(crate) fn run(words: &[&str]) -> Option<ExitCode> {
    let done = match words {
        [] => return None,
        ["flood", tag, lines, pause_us] => parse(lines)
            .and_then(|lines| Ok((lines, parse(pause_us)?)))
            .and_then(|(lines, pause)| flood(&mut io::stdout().lock(), tag, lines, pause)),
        ["fork-and-die", count] => parse(count).and_then(fork_and_die),
        // Starts a child and dies first, so that the child falls to PID 1.
        ["orphan"] => spawn(&["exit"]).map(drop),
        ["exit"] => Ok(()),
        _ => Err(io::Error::other(format!("unknown words {words:?}"))),
    };
    Some(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("test-agent: {words:?}: {error}");
            ExitCode::FAILURE
        }
    })
}

fn parse(word: &str) -> io::Result<u64> {
    word.parse().map_err(io::Error::other)
}

/// One `write` a line: a line that is cut or missing was lost by the reader.
fn flood(out: &mut impl Write, tag: &str, lines: u64, pause_us: u64) -> io::Result<()> {
    for number in 0..lines {
        out.write_all(format!("flood {tag} {number}\n").as_bytes())?;
        out.flush()?;
        if pause_us > 0 {
            std::thread::sleep(Duration::from_micros(pause_us));
        }
    }
    Ok(())
}

fn fork_and_die(count: u64) -> io::Result<()> {
    for _ in 0..count {
        spawn(&["orphan"])?.wait()?;
    }
    Ok(())
}

fn spawn(words: &[&str]) -> io::Result<Child> {
    Command::new(OURSELVES).args(words).stdin(Stdio::null()).spawn()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_numbered_without_gaps() {
        let mut out = Vec::new();
        flood(&mut out, "t", 3, 0).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "flood t 0\nflood t 1\nflood t 2\n");
    }

    #[test]
    fn unknown_words_fail_and_no_words_are_the_agent() {
        assert!(run(&[]).is_none());
        assert_eq!(run(&["dance"]), Some(ExitCode::FAILURE));
        assert_eq!(run(&["exit"]), Some(ExitCode::SUCCESS));
    }
}
