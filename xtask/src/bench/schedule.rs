//! Who ran when: the kernel's own record of task switches, as the magic key `z` prints it.
//!
//! Owns: parsing the trace and adding up processor time by program.
//! Does not: sample. Every switch is in the trace, so the sum over all programs and idle is the whole time.
//! Fails by: an error when a mark is missing or the buffer was too small, never by a figure that is too low.
//! Source: kernel Documentation/trace/events.rst; include/trace/events/{sched,task,printk}.h.

mod parse;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};

use anyhow::{Context, Result, ensure};

use parse::{Event, Record};

/// What the kernel has to trace, as parameters: the oldest records are kept, from the kernel's start on.
pub(crate) const PARAMETERS: &str = "trace_event=sched:sched_switch,task:task_newtask,sched:sched_process_exec,printk:console \
     trace_options=nooverwrite trace_buf_size=16M sysrq_always_enabled";

/// The task that runs when no other can.
const IDLE: u32 = 0;

/// The first program.
const INIT: u32 = 1;

/// The ancestor of all kernel threads.
const KTHREADD: u32 = 2;

/// Under this name waiting is added up.
pub(crate) const IDLE_NAME: &str = "idle";

/// Precedes the names of kernel threads.
pub(crate) const KERNEL_PREFIX: &str = "kernel: ";

/// A trace, in order. Times are microseconds on the trace's own clock.
#[derive(Debug)]
pub(crate) struct Schedule(Vec<Record>);

impl Schedule {
    /// Reads a dump; lines of other events and other programs are skipped.
    pub(crate) fn parse(dump: &str) -> Result<Self> {
        let records: Vec<Record> = dump.lines().filter_map(parse::line).collect();
        let switches = records.iter().any(|record| matches!(record.event, Event::Switch { .. }));
        ensure!(switches, "the trace holds no task switch");
        Ok(Self(records))
    }

    /// When a record with this text entered the kernel log.
    pub(crate) fn logged_at(&self, needle: &str) -> Result<u64> {
        let wanted = |event: &Event| matches!(event, Event::Logged { text } if text.contains(needle));
        self.first(wanted).with_context(|| format!("the trace holds no log line {needle:?}"))
    }

    /// When each program, named by its file, was first executed.
    pub(crate) fn executions(&self) -> BTreeMap<String, u64> {
        let mut first = BTreeMap::new();
        for record in &self.0 {
            if let Event::Executed { program, .. } = &record.event {
                first.entry(program.clone()).or_insert(record.at_us);
            }
        }
        first
    }

    fn first(&self, wanted: impl Fn(&Event) -> bool) -> Option<u64> {
        self.0.iter().find(|record| wanted(&record.event)).map(|record| record.at_us)
    }

    /// Microseconds of processor time by program between two times.
    pub(crate) fn usage(&self, from_us: u64, to_us: u64) -> Result<BTreeMap<String, u64>> {
        let is_switch = |record: &&Record| matches!(record.event, Event::Switch { .. });
        let last_us = self.0.iter().rfind(is_switch).map_or(0, |record| record.at_us);
        ensure!(
            last_us >= to_us,
            "the trace ends at {last_us} us, before {to_us} us: its buffer is too small"
        );
        let mut tasks = Tasks::default();
        let mut usage = BTreeMap::new();
        let mut since_us = 0;
        for record in &self.0 {
            if let Some(name) = tasks.ends_turn(&record.event) {
                let spent_us = record.at_us.clamp(from_us, to_us) - since_us.clamp(from_us, to_us);
                if spent_us > 0 {
                    *usage.entry(name).or_default() += spent_us;
                }
                since_us = record.at_us;
            }
            tasks.learn(&record.event);
        }
        Ok(usage)
    }
}

/// Which task belongs to which program.
#[derive(Debug, Default)]
struct Tasks {
    /// Threads by their process.
    process: HashMap<u32, u32>,
    /// Processes by the program they executed last, or their parent did.
    program: HashMap<u32, String>,
    kernel: HashSet<u32>,
}

impl Tasks {
    /// The name under which the time until this event counts, if the event ends somebody's turn.
    fn ends_turn(&self, event: &Event) -> Option<String> {
        match event {
            Event::Switch { from, comm } => Some(self.name(*from, comm)),
            // One processor: who executes a program is who runs. Until here it was another program.
            Event::Executed { pid, .. } => Some(self.name(*pid, "")),
            Event::New { .. } | Event::Logged { .. } => None,
        }
    }

    fn learn(&mut self, event: &Event) {
        match event {
            Event::New { parent, child, thread } => self.add(*parent, *child, *thread),
            Event::Executed { pid, program } => {
                self.process.insert(*pid, *pid);
                self.program.insert(*pid, program.clone());
            }
            Event::Switch { .. } | Event::Logged { .. } => {}
        }
    }

    fn add(&mut self, parent: u32, child: u32, thread: bool) {
        if child == KTHREADD || self.kernel.contains(&parent) {
            self.kernel.insert(child);
            return;
        }
        // Process ids are used again.
        self.kernel.remove(&child);
        let parent = self.process_of(parent);
        self.process.insert(child, if thread { parent } else { child });
        if let (false, Some(program)) = (thread, self.program.get(&parent).cloned()) {
            self.program.insert(child, program);
        }
    }

    fn process_of(&self, pid: u32) -> u32 {
        self.process.get(&pid).copied().unwrap_or(pid)
    }

    fn name(&self, pid: u32, comm: &str) -> String {
        if pid == IDLE {
            return IDLE_NAME.to_owned();
        }
        match self.program.get(&self.process_of(pid)) {
            Some(program) if !self.kernel.contains(&pid) => program.clone(),
            // `kworker/0:1`: which of them ran is random.
            _ if pid == INIT => format!("{KERNEL_PREFIX}start"),
            _ => format!("{KERNEL_PREFIX}{}", comm.split('/').next().unwrap_or(comm)),
        }
    }
}
