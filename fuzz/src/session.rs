//! One run of one target: take an input, change it, call the target, keep what was new.
//!
//! Order: the seeds first, unchanged; then changed inputs of the corpus, for as long as the caller asks.
//! Fails by: [`Finding`], which [`Finding::keep`] writes as a file with the command that replays it.

use crate::{Random, corpus::Corpus, mutate, name_of, targets::Target};
use std::{
    any::Any,
    fs, io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    time::Duration,
};

/// Processor time that no input may take, also not in a debug build.
const MOST_TIME: Duration = Duration::from_secs(10);

/// An input that broke something.
#[derive(Debug)]
pub struct Finding {
    /// The target's name.
    pub target: &'static str,
    /// The input.
    pub input: Vec<u8>,
    /// What the target said.
    pub message: String,
}

impl Finding {
    /// Writes the input into `directory`; answers its path and how it is replayed.
    ///
    /// # Errors
    /// The directory or the file can not be written.
    pub fn keep(&self, directory: &Path) -> io::Result<(PathBuf, String)> {
        fs::create_dir_all(directory)?;
        let name = format!("{}-{:016x}", self.target, name_of(&self.input));
        let path = directory.join(name);
        fs::write(&path, &self.input)?;
        let path = path.canonicalize()?;
        let command = format!("cargo xtask fuzz {} --replay {}", self.target, path.display());
        Ok((path, command))
    }
}

/// A run of one target.
pub struct Session {
    target: &'static Target,
    random: Random,
    corpus: Corpus,
    /// Seeds that were not called yet.
    seeds: Vec<Vec<u8>>,
    /// Inputs called.
    calls: u64,
    accepted: u64,
}

impl Session {
    /// Begins with the target's seeds and `more` inputs of earlier runs.
    pub fn new(target: &'static Target, seed: u64, more: Vec<Vec<u8>>) -> Self {
        let mut seeds = more;
        seeds.extend((target.seeds)());
        seeds.reverse();
        Self { target, random: Random::new(seed), corpus: Corpus::new(), seeds, calls: 0, accepted: 0 }
    }

    /// The next input.
    pub fn next_input(&mut self) -> Vec<u8> {
        if let Some(seed) = self.seeds.pop() {
            return seed;
        }
        let other = self.corpus.pick(&mut self.random.clone()).to_vec();
        let input = self.corpus.pick(&mut self.random).to_vec();
        mutate::mutated(&input, &other, self.target.words, &mut self.random)
    }

    /// Calls the target; true if it did something new.
    ///
    /// # Errors
    /// [`Finding`].
    pub fn call(&mut self, input: &[u8]) -> Result<bool, Finding> {
        self.calls += 1;
        Corpus::forget_counts();
        let outcome = called(self.target, input)?;
        self.accepted += u64::from(outcome.accepted);
        Ok(self.corpus.offer(input, outcome.shapes))
    }

    /// Inputs called, and how many of them were accepted.
    pub fn counts(&self) -> (u64, u64) {
        (self.calls, self.accepted)
    }

    /// How far this came, for a person.
    pub fn progress(&self) -> String {
        let reached = match self.corpus.reached() {
            0 => String::new(),
            reached => format!(", {reached} branches reached"),
        };
        format!(
            "{}: {} inputs, {} accepted, {} kept, {} kinds of answers{reached}",
            self.target.name,
            self.calls,
            self.accepted,
            self.corpus.len(),
            self.corpus.shapes()
        )
    }
}

/// Calls a target with one input, as the loop does.
///
/// # Errors
/// [`Finding`].
pub fn replay(target: &'static Target, input: &[u8]) -> Result<(), Finding> {
    called(target, input).map(drop)
}

fn called(target: &'static Target, input: &[u8]) -> Result<crate::targets::Outcome, Finding> {
    let finding = |message| Finding { target: target.name, input: input.to_vec(), message };
    let before = processor_time();
    let outcome = catch_unwind(AssertUnwindSafe(|| (target.run)(input)))
        .map_err(|panic| finding(said(panic.as_ref())))?;
    let took = processor_time().saturating_sub(before);
    if took > MOST_TIME {
        return Err(finding(format!("took {took:?} of processor time, at most {MOST_TIME:?} is allowed")));
    }
    Ok(outcome)
}

/// Of this thread: a busy machine makes no finding.
fn processor_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(now).unwrap_or_default()
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}
