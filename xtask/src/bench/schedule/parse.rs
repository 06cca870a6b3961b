//! One line of a printed trace.
//!
//! `[    2.321594]  busybox-1         0..... 1738805us : sched_process_exec: filename=/init pid=1 old_pid=1`: the log's
//! time, then who ran when the event happened, processor and flags, the trace's time with a mark, the event.

/// CLONE_THREAD of linux/sched.h: the new task is a thread of its creator's process.
const CLONE_THREAD: u64 = 0x0001_0000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) at_us: u64,
    pub(super) event: Event,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    /// A task stops running.
    Switch { from: u32, comm: String },
    /// A task is made.
    New { parent: u32, child: u32, thread: bool },
    /// A process executes a program; of its path the last name.
    Executed { pid: u32, program: String },
    /// A record enters the kernel log.
    Logged { text: String },
}

pub(super) fn line(line: &str) -> Option<Record> {
    let (head, rest) = line.split_once(": ")?;
    let (name, fields) = rest.split_once(": ")?;
    // The mark between unit and colon says how long after the event before this one came.
    let (head, _mark) = head.rsplit_once("us")?;
    let (head, time) = head.rsplit_once(' ')?;
    let event = match name {
        "sched_switch" => switch(fields)?,
        "task_newtask" => new(running(head)?, fields)?,
        "sched_process_exec" => executed(fields)?,
        "console" => Event::Logged { text: fields.to_owned() },
        _ => return None,
    };
    Some(Record { at_us: time.parse().ok()?, event })
}

/// The task in `[    2.321594]  busybox-1         0.....`.
fn running(head: &str) -> Option<u32> {
    let (_, head) = head.split_once(']')?;
    let (name, _flags) = head.trim_end().rsplit_once(' ')?;
    name.trim_end().rsplit_once('-')?.1.parse().ok()
}

/// Names may hold blanks, so a field is looked for by the name of the next.
fn switch(fields: &str) -> Option<Event> {
    let (comm, rest) = fields.strip_prefix("prev_comm=")?.split_once(" prev_pid=")?;
    Some(Event::Switch { from: first_word(rest)?.parse().ok()?, comm: comm.to_owned() })
}

fn new(parent: u32, fields: &str) -> Option<Event> {
    let (pid, rest) = fields.strip_prefix("pid=")?.split_once(" comm=")?;
    let (_, flags) = rest.rsplit_once(" clone_flags=")?;
    let flags = u64::from_str_radix(first_word(flags)?, 16).ok()?;
    Some(Event::New { parent, child: pid.parse().ok()?, thread: flags & CLONE_THREAD != 0 })
}

fn executed(fields: &str) -> Option<Event> {
    let (path, rest) = fields.strip_prefix("filename=")?.rsplit_once(" pid=")?;
    let program = program_of(path)?.to_owned();
    Some(Event::Executed { pid: first_word(rest)?.parse().ok()?, program })
}

/// The file's name. systemd executes its helper by a descriptor, so that its path tells only a number.
fn program_of(path: &str) -> Option<&str> {
    if path.starts_with("/proc/self/fd/") {
        return Some("executed by descriptor");
    }
    path.rsplit('/').next()
}

fn first_word(text: &str) -> Option<&str> {
    text.split(' ').next()
}
