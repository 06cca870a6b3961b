//! The kernel log: reading `/dev/kmsg`, and the text form of its records.
//!
//! Owns: the reader and the line that clients get. Every reader gets records without secrets of the command line.
//! Does not: take records apart (`ondisk::kmsg` does) or write to the log ([`crate::journal`] does).
//! Source: Documentation/ABI/testing/dev-kmsg of the kernel; docs/users/logs.md.

use std::fs::OpenOptions;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use jiff::Timestamp;
use ondisk::kmsg::{MAX_RECORD_BYTES, Record};
use ondisk::redact::redacted;
use rustix::io::Errno;
use tokio::io::Ready;
use tokio::io::unix::AsyncFd;

use crate::{clock, watched};

const FACILITIES: [&str; 12] =
    ["kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp"];
const PRIORITIES: [&str; 8] = ["emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"];

/// The facility's name.
pub fn facility_name(prefix: u16) -> String {
    facility(usize::from(prefix >> 3))
}

/// The priority's name.
pub fn priority_name(prefix: u16) -> &'static str {
    PRIORITIES[usize::from(prefix & 7)]
}

/// The line that `dmesg` of the API prints.
pub fn line(prefix: u16, time: Timestamp, text: &str) -> String {
    format!("{}: {:>7}: [{time}]: {text}\n", facility_name(prefix), priority_name(prefix))
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
        let mut found = None;
        self.next_record(|record| {
            found = Some(line(record.prefix, clock::at_boot_us(record.stamp_us), record.text));
        })?;
        Ok(found)
    }

    /// Gives the next record that is there now to `take`; says whether there was one.
    pub fn next_record(&self, take: impl FnOnce(&Record<'_>)) -> io::Result<bool> {
        let mut bytes = [0; MAX_RECORD_BYTES];
        loop {
            match rustix::io::read(self.file.get_ref(), &mut bytes) {
                Ok(0) | Err(Errno::AGAIN) => return Ok(false),
                Ok(length) => {
                    if let Some(record) = Record::parse(&bytes[..length]) {
                        let text = redacted(record.text);
                        take(&Record { text: &text, ..record });
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
    use std::io::Write as _;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    /// A FIFO stands for the kernel's log. `Dmesg`, the senders of logs and the flight recorder read by these two ways.
    #[tokio::test]
    async fn no_reader_gets_secrets_of_the_command_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kmsg");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        // Open for both, so that neither end waits for the other.
        let mut log = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let reader = Reader::open(&path, false).unwrap();
        let record = b"6,1,10,-;Kernel command line: billet.config.inline=c2VjcmV0 \
                       billet.config=https://u:secret@h.example/c?token=secret quiet\n";
        let shown = "Kernel command line: billet.config.inline=<hidden> \
                     billet.config=https://<hidden>@h.example/c?<hidden> quiet";
        log.write_all(record).unwrap();
        let mut texts = Vec::new();
        assert!(reader.next_record(|record| texts.push(record.text.to_owned())).unwrap());
        assert_eq!(texts, [shown]);
        log.write_all(record).unwrap();
        let line = reader.next_now().unwrap().unwrap();
        assert!(line.ends_with(&format!("]: {shown}\n")), "{line}");
    }

    #[test]
    fn lines_have_the_layout_of_the_spec() {
        let time = Timestamp::from_second(1).unwrap();
        assert_eq!(line(30, time, "hello"), "daemon:    info: [1970-01-01T00:00:01Z]: hello\n");
        assert_eq!(line(3, time, "bad"), "kern:     err: [1970-01-01T00:00:01Z]: bad\n");
        assert_eq!(facility(17), "local1");
    }
}
