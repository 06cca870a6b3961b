//! What each VM cost: `cargo xtask test` has a bound in minutes, and this says who takes them.
//!
//! Owns: `target/qemu-tests/costs.tsv`, a line a VM in the order of their ends; xtask empties it before a run and sums it up
//! behind it.
//! Does not: fail a test. A figure that cannot be had is left out.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

/// Ticks of `/proc/PID/stat` in a second: the kernel's interface has this unit on every architecture we run on.
const TICKS: u32 = 100;

/// User and system time of a process that runs, or has ended and was not waited for yet.
pub(crate) fn processor_time(pid: u32) -> Option<Duration> {
    parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Fields 14 and 15, counted behind the name, which may hold anything.
fn parse(stat: &str) -> Option<Duration> {
    let (_, behind) = stat.rsplit_once(')')?;
    let mut fields = behind.split_whitespace().skip(11);
    let (user, system): (u32, u32) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(Duration::from_secs(1) * user.checked_add(system)? / TICKS)
}

/// Adds a line: name, seconds from start to end, seconds of processor time.
pub(crate) fn note(
    directory: &Path,
    name: &str,
    alive: Duration,
    processor: Duration,
) -> std::io::Result<()> {
    let mut file = File::options().append(true).create(true).open(directory.join("costs.tsv"))?;
    let line = format!("{name}\t{:.1}\t{:.1}\n", alive.as_secs_f64(), processor.as_secs_f64());
    // In one write: other tests append too.
    file.write_all(line.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_times_are_counted_whatever_the_name() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 9 0 0 0 250 51 0 0 20 0 1 0 1 1 1";
        assert_eq!(parse(stat), Some(Duration::from_millis(3010)));
        assert_eq!(parse("7 (a"), None);
        assert!(processor_time(std::process::id()).is_some());
    }

    #[test]
    fn lines_follow_one_another() {
        let dir = tempfile::tempdir().unwrap();
        note(dir.path(), "first", Duration::from_millis(1520), Duration::from_secs(1)).unwrap();
        note(dir.path(), "second", Duration::from_secs(2), Duration::ZERO).unwrap();
        let text = std::fs::read_to_string(dir.path().join("costs.tsv")).unwrap();
        assert_eq!(text, "first\t1.5\t1.0\nsecond\t2.0\t0.0\n");
    }
}
