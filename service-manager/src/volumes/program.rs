//! A program of the image that is run to its end: mkfs.xfs, xfs_growfs, machined itself for opening volumes.
//!
//! Owns: its output, of which an error carries the last lines, or which is its answer; its deadline.
//! Order: the program ends with machined: whoever follows begins it again.
//! Fails by: a sentence with the program's name, its status and what it said.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, pidfd_send_signal};
use sys::process::{Child, Spawn, spawn, wait_pidfd};

/// How much of what it printed is kept.
const MOST_OUTPUT_BYTES: usize = 64 << 10;
/// How many lines of that an error has.
const LAST_LINES: usize = 6;

/// Runs a program and waits. Blocks.
pub(super) fn run(program: &str, arguments: &[&str], limit: Duration) -> Result<(), String> {
    let failed = |what: &str, error: &dyn std::fmt::Display| format!("{what} {program}: {error}");
    let texts = std::iter::once(program).chain(arguments.iter().copied());
    let argv: Vec<CString> =
        texts.map(CString::new).collect::<Result<_, _>>().map_err(|e| failed("arguments of", &e))?;
    let path = argv.first().ok_or_else(|| "no program".to_owned())?;
    let null = File::open("/dev/null").map_err(|e| failed("open /dev/null for", &e))?;
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(|e| failed("make a pipe for", &e))?;
    let child = spawn(&Spawn {
        program: path,
        argv: &argv.iter().map(CString::as_c_str).collect::<Vec<_>>(),
        descriptors: &[(null.as_fd(), 0), (write.as_fd(), 1), (write.as_fd(), 2)],
        directory: Some(c"/"),
        session: true,
        death_signal: Some(Signal::KILL),
        ..Spawn::default()
    })
    .map_err(|e| failed("run", &e))?;
    drop(write);
    let mut output = Vec::new();
    let ended = follow(&child, &File::from(read), &mut output, limit);
    if ended.is_err() {
        // It may have ended meanwhile.
        let _ = pidfd_send_signal(&child.pidfd, Signal::KILL);
    }
    let status = wait_pidfd(&child.pidfd, true).map_err(|e| failed("wait for", &e))?;
    ended.map_err(|e| failed("follow", &e))?;
    match status {
        Some(0) => Ok(()),
        status => Err(format!("{program}: {}: {}", how(status.unwrap_or(-1)), last_lines(&output))),
    }
}

/// Runs a program with a question on its standard input; the answer is what it writes. Blocks.
pub(super) fn ask(
    program: &CStr,
    arguments: &[&CStr],
    question: &[u8],
    limit: Duration,
) -> Result<Vec<u8>, String> {
    let failed = |what: &str, error: &dyn std::fmt::Display| format!("{what} {program:?}: {error}");
    let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
    let (stdin, to) = pipe().map_err(|e| failed("make a pipe for", &e))?;
    let (from, stdout) = pipe().map_err(|e| failed("make a pipe for", &e))?;
    let child = spawn(&Spawn {
        program,
        argv: arguments,
        descriptors: &[(stdin.as_fd(), 0), (stdout.as_fd(), 1)],
        directory: Some(c"/"),
        session: true,
        death_signal: Some(Signal::KILL),
        ..Spawn::default()
    })
    .map_err(|e| failed("run", &e))?;
    drop((stdin, stdout));
    let mut answer = Vec::new();
    // It reads all of it before it writes anything.
    let asked = File::from(to).write_all(question).map_err(|e| failed("ask", &e));
    let ended = asked.and_then(|()| follow(&child, &File::from(from), &mut answer, limit));
    if ended.is_err() {
        // It may have ended meanwhile.
        let _ = pidfd_send_signal(&child.pidfd, Signal::KILL);
    }
    let status = wait_pidfd(&child.pidfd, true).map_err(|e| failed("wait for", &e))?;
    ended?;
    match status {
        Some(0) => Ok(answer),
        status => Err(format!("its process ended: {}", how(status.unwrap_or(-1)))),
    }
}

/// How a program ended, for people.
fn how(status: i32) -> String {
    match (status & 0x7f, (status >> 8) & 0xff) {
        (0, code) => format!("exit status {code}"),
        (signal, _) => format!("signal {signal}"),
    }
}

/// Reads what it prints until it ends.
fn follow(child: &Child, output: &File, kept: &mut Vec<u8>, limit: Duration) -> Result<(), String> {
    let end = Instant::now() + limit;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(format!("it did not end within {} s", limit.as_secs()));
        }
        let (says, over) = wait(output.as_fd(), &child.pidfd, left)?;
        if says {
            let mut chunk = [0; 4096];
            let count = (&*output).read(&mut chunk).map_err(|e| e.to_string())?;
            kept.extend_from_slice(chunk.get(..count).unwrap_or_default());
            let surplus = kept.len().saturating_sub(MOST_OUTPUT_BYTES);
            kept.drain(..surplus);
            if count > 0 {
                continue;
            }
        }
        if over {
            return Ok(());
        }
        if says {
            // It closed its output and runs on: only its end is left to wait for.
            wait_for_end(&child.pidfd, end.saturating_duration_since(Instant::now()))?;
            return Ok(());
        }
    }
}

fn wait(output: BorrowedFd<'_>, pidfd: &OwnedFd, left: Duration) -> Result<(bool, bool), String> {
    let mut both = [PollFd::from_borrowed_fd(output, PollFlags::IN), PollFd::new(pidfd, PollFlags::IN)];
    let limit = Timespec::try_from(left).map_err(|e| e.to_string())?;
    match poll(&mut both, Some(&limit)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(errno) => return Err(errno.to_string()),
    }
    let [output, pidfd] = both;
    Ok((!output.revents().is_empty(), !pidfd.revents().is_empty()))
}

fn wait_for_end(pidfd: &OwnedFd, left: Duration) -> Result<(), String> {
    let limit = Timespec::try_from(left).map_err(|e| e.to_string())?;
    let mut one = [PollFd::new(pidfd, PollFlags::IN)];
    match poll(&mut one, Some(&limit)) {
        Ok(0) => Err("it closed its output and did not end".to_owned()),
        Ok(_) => Ok(()),
        Err(errno) => Err(errno.to_string()),
    }
}

fn last_lines(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.get(lines.len().saturating_sub(LAST_LINES)..).unwrap_or_default().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn success_is_silent_and_an_error_carries_the_last_lines() {
        assert_eq!(run("/bin/true", &[], LONG), Ok(()));
        let script = "seq 1 30000; echo 'cannot open device' >&2; exit 3";
        let error = run("/bin/sh", &["-c", script], LONG).unwrap_err();
        assert!(error.starts_with("/bin/sh: exit status 3: "), "{error}");
        assert!(error.ends_with("29999; 30000; cannot open device"), "{error}");
    }

    #[test]
    fn a_question_gets_its_answer() {
        let ask = |script: &CStr| ask(c"/bin/sh", &[c"sh", c"-c", script], b"keys", LONG);
        assert_eq!(ask(c"tr a-z A-Z").unwrap(), b"KEYS");
        assert_eq!(ask(c"cat; exit 3").unwrap_err(), "its process ended: exit status 3");
        assert_eq!(ask(c"cat; kill -9 $$").unwrap_err(), "its process ended: signal 9");
    }

    #[test]
    fn one_that_hangs_is_ended() {
        let error = run("/bin/sleep", &["60"], Duration::from_millis(100)).unwrap_err();
        assert!(error.contains("/bin/sleep") && error.contains("did not end within"), "{error}");
        assert!(run("/nonexistent", &[], LONG).unwrap_err().contains("/nonexistent"));
    }
}
