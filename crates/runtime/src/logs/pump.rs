//! The pump: from a service's pipe to its log file.
//!
//! Fails by: writing one line into the log where bytes had to be dropped.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::pipe::{SpliceFlags, splice};
use tokio::io::Ready;

use super::LogFile;
use crate::watched;

/// Most bytes moved by one call: what a pipe holds.
const CHUNK: usize = 64 * 1024;

/// Moves bytes until every writer has closed the pipe.
pub async fn pump(pipe: OwnedFd, mut log: LogFile) -> io::Result<()> {
    rustix::io::ioctl_fionbio(&pipe, true)?;
    let pipe = watched::readable(pipe)?;
    loop {
        let mut ready = pipe.readable().await?;
        match move_chunk(pipe.get_ref(), &mut log) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(Errno::AGAIN) => ready.clear_ready_matching(Ready::READABLE),
            Err(Errno::INTR) => {}
            Err(_) => drop_chunk(pipe.get_ref(), &mut log)?,
        }
        // A service that floods its log shares the worker with everything else.
        tokio::task::yield_now().await;
    }
}

fn move_chunk(pipe: &OwnedFd, log: &mut LogFile) -> Result<usize, Errno> {
    let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
    let mut moved = splice(pipe, None, log.target(), None, CHUNK, flags);
    for _ in 0..2 {
        if moved != Err(Errno::NOSPC) || log.give_way().is_err() {
            break;
        }
        moved = splice(pipe, None, log.target(), None, CHUNK, flags);
    }
    moved.inspect(|&bytes| log.grew(bytes))
}

/// The file takes nothing any more: reads the pipe empty so that the service is not stopped by it.
fn drop_chunk(pipe: &OwnedFd, log: &mut LogFile) -> io::Result<()> {
    let mut bytes = [0; 4096];
    let mut dropped = 0;
    loop {
        match rustix::io::read(pipe.as_fd(), &mut bytes) {
            Ok(0) | Err(Errno::AGAIN) => break,
            Ok(count) => dropped += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        if dropped >= CHUNK {
            break;
        }
    }
    // When even this line does not fit, the gap stays unmarked: there is no place left to say so.
    let _ = log.append(format!("[{dropped} bytes dropped: the log file could not be written]\n").as_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Duration;

    use super::super::{Logs, MAX_FILE_BYTES, Tail};
    use super::*;

    fn setup() -> (tempfile::TempDir, Logs) {
        let dir = tempfile::tempdir().unwrap();
        let logs = Logs::new(dir.path().join("log"));
        (dir, logs)
    }

    #[tokio::test]
    async fn everything_written_arrives_in_order() {
        let (dir, logs) = setup();
        let (read, write) = std::io::pipe().unwrap();
        let task = tokio::spawn(pump(read.into(), logs.open("svc").unwrap()));
        let writer = std::thread::spawn(move || {
            let mut write = write;
            for number in 0..20_000 {
                writeln!(write, "line {number}").unwrap();
            }
        });
        tokio::time::timeout(Duration::from_secs(20), task).await.unwrap().unwrap().unwrap();
        writer.join().unwrap();
        let text = std::fs::read_to_string(dir.path().join("log/svc.log")).unwrap();
        assert_eq!(text.lines().count(), 20_000);
        assert!(text.lines().enumerate().all(|(number, line)| line == format!("line {number}")));
    }

    #[tokio::test]
    async fn a_pump_that_is_cut_off_loses_and_repeats_nothing() {
        let (dir, logs) = setup();
        let (read, mut write) = std::io::pipe().unwrap();
        let again = read.try_clone().unwrap();
        let first = tokio::spawn(pump(read.into(), logs.open("svc").unwrap()));
        let mut expected = String::new();
        for number in 0..500 {
            let line = format!("line {number}\n");
            write.write_all(line.as_bytes()).unwrap();
            expected.push_str(&line);
            if number == 250 {
                tokio::task::yield_now().await;
                first.abort();
            }
        }
        drop(write);
        let second = pump(again.into(), logs.open("svc").unwrap());
        tokio::time::timeout(Duration::from_secs(20), second).await.unwrap().unwrap();
        assert_eq!(std::fs::read_to_string(dir.path().join("log/svc.log")).unwrap(), expected);
    }

    #[tokio::test]
    async fn a_flood_is_bounded() {
        let (dir, logs) = setup();
        let (read, write) = std::io::pipe().unwrap();
        let writer = std::thread::spawn(move || {
            let mut write = write;
            let line = [b'x'; 1023];
            for _ in 0..5 * 1024 {
                write.write_all(&line).and_then(|()| write.write_all(b"\n")).unwrap();
            }
        });
        let work = pump(read.into(), logs.open("svc").unwrap());
        tokio::time::timeout(Duration::from_secs(20), work).await.unwrap().unwrap();
        writer.join().unwrap();
        let size = |name: &str| std::fs::metadata(dir.path().join(name)).unwrap().len();
        let slack = u64::try_from(CHUNK).unwrap();
        assert!(size("log/svc.log") < MAX_FILE_BYTES + slack);
        assert!(size("log/svc.log.1") < MAX_FILE_BYTES + slack);
    }

    #[tokio::test]
    async fn a_follower_reads_the_tail_and_what_comes_after() {
        let (_dir, logs) = setup();
        let mut file = logs.open("svc").unwrap();
        file.append(b"one\ntwo\nthree\n").unwrap();
        let mut follower = logs.follow("svc", Tail::Lines(2)).unwrap();
        assert_eq!(follower.read_available().unwrap(), b"two\nthree\n");
        assert_eq!(follower.read_available().unwrap(), b"");
        file.append(b"four\n").unwrap();
        tokio::time::timeout(Duration::from_secs(5), follower.grown()).await.unwrap();
        assert_eq!(follower.read_available().unwrap(), b"four\n");
    }

    #[tokio::test]
    async fn a_follower_survives_a_turn_over() {
        let (_dir, logs) = setup();
        let mut file = logs.open("svc").unwrap();
        let block = vec![b'a'; usize::try_from(MAX_FILE_BYTES).unwrap() - 2];
        file.append(&block).unwrap();
        let mut follower = logs.follow("svc", Tail::Lines(0)).unwrap();
        assert_eq!(follower.read_available().unwrap(), b"");
        file.append(b"b\n").unwrap();
        file.append(b"c\n").unwrap();
        let mut seen = Vec::new();
        while seen.len() < 4 {
            let more = follower.read_available().unwrap();
            assert!(!more.is_empty(), "stopped at {seen:?}");
            seen.extend(more);
        }
        assert_eq!(seen, b"b\nc\n");
    }

    #[test]
    fn unknown_logs_are_not_made_up() {
        let (_dir, logs) = setup();
        assert!(logs.follow("nobody", Tail::All).is_none());
    }
}
