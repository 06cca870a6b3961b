//! machined's own voice: the console, the kernel log, the logs `machined` and `controller-runtime`, and those of the
//! services that are tasks of machined.
//!
//! Owns: the prefix of each line and where it goes.
//! Does not: know secrets; callers pass text that people may read. Of addresses only what people may read is written.
//! Fails by: staying silent. A line that cannot be written anywhere is lost, nothing else happens.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use ondisk::redact::redacted;

use crate::clock;
use crate::logs::{LogFile, Logs};

/// Services that are tasks of machined. Lines that begin with `NAME:` or `service[NAME]` are in a log of theirs as well.
const TASKS: [&str; 3] = ["networkd", "timed", "udevd"];

/// A handle to the journal; clones share it.
#[derive(Debug, Clone)]
pub struct Journal {
    sinks: Arc<Sinks>,
}

#[derive(Debug)]
struct Sinks {
    kmsg: Option<OwnedFd>,
    machined: Mutex<Option<LogFile>>,
    controllers: Mutex<Option<LogFile>>,
    /// In the order of [`TASKS`].
    tasks: [Mutex<Option<LogFile>>; TASKS.len()],
}

impl Journal {
    /// A journal that writes to the kernel log, when there is one, and to the log files.
    pub fn new(kmsg: Option<OwnedFd>, logs: &Logs) -> Self {
        let sinks = Sinks {
            kmsg,
            machined: Mutex::new(logs.open("machined").ok()),
            controllers: Mutex::new(logs.open("controller-runtime").ok()),
            tasks: TASKS.map(|id| Mutex::new(logs.open_copy(id).ok())),
        };
        Self { sinks: Arc::new(sinks) }
    }

    /// A line of machined's: `billet: machined: …`.
    pub fn say(&self, text: &str) {
        self.tell("<6>billet: machined: ", text);
    }

    /// A line about something that went wrong.
    pub fn warn(&self, text: &str) {
        self.tell("<4>billet: machined: ", text);
    }

    /// A line of a service or a sequence, without machined's name: `billet: service[apid](Running): …`.
    pub fn progress(&self, text: &str) {
        self.tell("<6>billet: ", text);
    }

    /// A line of a controller: only in the log `controller-runtime`, stamped as the troubleshooting guide shows it.
    pub fn controller(&self, text: &str) {
        let stamp = clock::now().strftime("%Y/%m/%d %H:%M:%S ").to_string();
        write_line(&self.sinks.controllers, &stamp, &redacted(text));
    }

    /// To the kernel log, with a head, to the log `machined`, and to the log of the task that the line is about.
    fn tell(&self, head: &str, text: &str) {
        let text = redacted(text);
        self.kernel(&format!("{head}{text}"));
        append(&self.sinks.machined, &text);
        if let Some(log) = task_of(&text).and_then(|index| self.sinks.tasks.get(index)) {
            append(log, &text);
        }
    }

    fn kernel(&self, record: &str) {
        if let Some(kmsg) = &self.sinks.kmsg {
            // It goes to the console, and servers and neighbours choose some of the words.
            let _ = sys::console::write_record(kmsg, &ondisk::printable::line(record));
        }
    }
}

/// The index in [`TASKS`] of the one that a line begins with.
fn task_of(text: &str) -> Option<usize> {
    let text = text.strip_prefix("service[").unwrap_or(text);
    let begins = |name: &&str| text.strip_prefix(*name).is_some_and(|rest| rest.starts_with([':', ']']));
    TASKS.iter().position(begins)
}

fn append(file: &Mutex<Option<LogFile>>, text: &str) {
    write_line(file, &clock::now().to_string(), text);
}

fn write_line(file: &Mutex<Option<LogFile>>, stamp: &str, text: &str) {
    if let Some(file) = file.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
        let _ = file.append(format!("{stamp} {text}\n").as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel prints them on the console.
    #[test]
    fn what_others_say_does_not_act_on_the_console() {
        let dir = tempfile::tempdir().unwrap();
        let kmsg = std::fs::File::create(dir.path().join("kmsg")).unwrap();
        let journal = Journal::new(Some(kmsg.into()), &Logs::new(dir.path().to_owned()));
        journal.warn("fetch the config: it answers \x1b[2J\u{9b}31m\u{202e}\r\nbillet: all is well");
        let record = std::fs::read_to_string(dir.path().join("kmsg")).unwrap();
        assert_eq!(
            record,
            "<4>billet: machined: fetch the config: it answers \\x1b[2J\\x9b31m\\u{202e}\\x0d\\nbillet: all is well\n"
        );
    }

    #[test]
    fn tasks_of_machined_have_logs_of_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let logs = Logs::new(dir.path().to_owned());
        let journal = Journal::new(None, &logs);
        journal.say("networkd: eth0: 10.0.0.2 from 10.0.0.1 for 60 s");
        journal.warn("timed: no server answers");
        journal.progress("service[timed](Running): Service started as goroutine");
        journal.say("network: timed: udevd of a line");
        journal.say("networkd2: another");
        let lines = |name: &str| {
            let text = std::fs::read_to_string(dir.path().join(format!("{name}.log"))).unwrap();
            text.lines().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(lines("networkd"), ["networkd: eth0: 10.0.0.2 from 10.0.0.1 for 60 s"]);
        let timed = ["timed: no server answers", "service[timed](Running): Service started as goroutine"];
        assert_eq!(lines("timed"), timed);
        assert!(lines("udevd").is_empty());
        assert_eq!(lines("machined").len(), 5);
        // A receiver of logs gets each line once.
        assert_eq!(logs.sources(), ["controller-runtime", "machined"]);
        assert_eq!(logs.ids(), ["controller-runtime", "machined", "networkd", "timed", "udevd"]);
    }

    #[test]
    fn lines_go_to_the_log_they_belong_to() {
        let dir = tempfile::tempdir().unwrap();
        let logs = Logs::new(dir.path().to_owned());
        let journal = Journal::new(None, &logs);
        journal.say("hello");
        journal.warn("fetch https://u:secret@h/c?token=secret: refused");
        journal.controller("reconciled");
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        let lines = read("machined.log");
        let mut lines = lines.lines();
        assert!(lines.next().unwrap().ends_with(" hello"));
        assert!(lines.next().unwrap().ends_with(" fetch https://<hidden>@h/c?<hidden> refused"));
        assert!(read("controller-runtime.log").ends_with(" reconciled\n"));
    }
}
