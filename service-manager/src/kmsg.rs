//! The kernel log: records of `/dev/kmsg` and their text form.
//!
//! Owns: the record parser and the line that clients get.
//! Does not: write to the log ([`crate::journal`] does).
//! Source: Documentation/ABI/testing/dev-kmsg of the kernel; spec/api-wire-facts.md §3.5.

use std::fs::OpenOptions;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::io::Errno;
use tokio::io::Ready;
use tokio::io::unix::AsyncFd;

use crate::{clock, watched};

/// The kernel gives at most this many bytes a record (PRINTK_MESSAGE_MAX of 6.12 is 2048; older kernels 8192).
const MAX_RECORD_BYTES: usize = 8192;

const FACILITIES: [&str; 12] =
    ["kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp"];
const PRIORITIES: [&str; 8] = ["emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"];

/// One entry of the kernel log.
#[derive(Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// syslog facility, 0 is the kernel.
    pub facility: usize,
    /// syslog priority, 0 to 7.
    pub priority: usize,
    /// Counts every record since boot.
    pub sequence: u64,
    /// Microseconds since boot.
    pub stamp_us: u64,
    /// The message, escapes as the kernel made them.
    pub message: &'a str,
}

impl<'a> Record<'a> {
    /// Reads `prefix,sequence,stamp,flags[,…];message\n KEY=value…`; `None` for anything else.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let text = valid_start(bytes);
        let (head, rest) = text.split_once(';')?;
        let mut fields = head.split(',');
        let prefix: usize = fields.next()?.parse().ok()?;
        let sequence = fields.next()?.parse().ok()?;
        let stamp_us = fields.next()?.parse().ok()?;
        let message = rest.split('\n').next()?;
        Some(Self { facility: prefix >> 3, priority: prefix & 7, sequence, stamp_us, message })
    }

    /// The facility's name.
    pub fn facility_name(&self) -> String {
        facility(self.facility)
    }

    /// The priority's name.
    pub fn priority_name(&self) -> &'static str {
        PRIORITIES[self.priority & 7]
    }

    /// The line that `dmesg` of the API prints.
    pub fn line(&self) -> String {
        let time = clock::at_boot_us(self.stamp_us);
        format!(
            "{}: {:>7}: [{time}]: {}\n",
            facility(self.facility),
            PRIORITIES[self.priority & 7],
            self.message
        )
    }
}

fn valid_start(bytes: &[u8]) -> &str {
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
    }
}

fn facility(number: usize) -> String {
    match number {
        0..=11 => FACILITIES[number].to_owned(),
        16..=23 => format!("local{}", number - 16),
        other => format!("facility{other}"),
    }
}

/// A reader of the kernel log.
#[derive(Debug)]
pub struct Reader {
    file: AsyncFd<OwnedFd>,
}

impl Reader {
    /// Opens the log at its oldest record, or after its newest.
    pub fn open(path: &Path, from_end: bool) -> io::Result<Self> {
        let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
        let mut file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        if from_end {
            file.seek(SeekFrom::End(0))?;
        }
        Ok(Self { file: watched::readable(file.into())? })
    }

    /// The next line that is there now, `None` at the end.
    pub fn next_now(&self) -> io::Result<Option<String>> {
        let mut line = None;
        self.next_record(|record| line = Some(record.line()))?;
        Ok(line)
    }

    /// Gives the next record that is there now to `take`; says whether there was one.
    pub fn next_record(&self, take: impl FnOnce(&Record<'_>)) -> io::Result<bool> {
        let mut bytes = [0; MAX_RECORD_BYTES];
        loop {
            match rustix::io::read(self.file.get_ref(), &mut bytes) {
                Ok(0) | Err(Errno::AGAIN) => return Ok(false),
                Ok(length) => {
                    if let Some(record) = Record::parse(&bytes[..length]) {
                        take(&record);
                        return Ok(true);
                    }
                }
                // EPIPE: the ring overtook this reader; the next read goes on at the oldest record.
                Err(Errno::INTR | Errno::PIPE) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Waits until there may be another line.
    pub async fn wait(&self) -> io::Result<()> {
        loop {
            let mut ready = self.file.readable().await?;
            // Poll once more after clearing, or a record that came in between would be missed.
            ready.clear_ready_matching(Ready::READABLE);
            if self.has_more()? {
                return Ok(());
            }
        }
    }

    fn has_more(&self) -> io::Result<bool> {
        use rustix::event::{PollFd, PollFlags, poll};
        let mut fds = [PollFd::new(self.file.get_ref(), PollFlags::IN)];
        poll(&mut fds, Some(&rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 }))?;
        Ok(fds[0].revents().contains(PollFlags::IN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_split_into_their_parts() {
        let record =
            Record::parse(b"6,339,5140900,-,caller=T1;NET: Registered protocol family 10\n SUBSYSTEM=net\n");
        let expected = Record {
            facility: 0,
            priority: 6,
            sequence: 339,
            stamp_us: 5_140_900,
            message: "NET: Registered protocol family 10",
        };
        assert_eq!(record, Some(expected));
    }

    #[test]
    fn lines_have_the_layout_of_the_spec() {
        let line = Record::parse(b"30,1,0,-;hello; there").unwrap().line();
        assert!(line.starts_with("daemon:    info: ["), "{line}");
        assert!(line.ends_with("]: hello; there\n"), "{line}");
        let line = Record::parse(b"3,1,0,-;bad").unwrap().line();
        assert!(line.starts_with("kern:     err: ["), "{line}");
        assert_eq!(facility(17), "local1");
    }

    #[test]
    fn foreign_bytes_are_no_record() {
        for bytes in [&b""[..], b"6;x", b"a,1,2;x", b"6,1", &[0xff, 0xfe]] {
            assert_eq!(Record::parse(bytes), None);
        }
        let cut = Record::parse(b"6,1,2,-;caf\xc3").unwrap();
        assert_eq!(cut.message, "caf");
    }
}
