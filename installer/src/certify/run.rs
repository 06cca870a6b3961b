//! Certifying: every state of every job, on all cores; then every flush left out in turn.

use std::num::NonZero;
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::Fault;
use super::case::{Bad, Case};
use super::jobs::{Job, Scope};
use super::verdicts::Verdicts;
use crate::device::Tears;

/// Most bad states that are described: one is enough to begin with.
const DESCRIBED: usize = 5;

/// What became of a job.
#[derive(Debug)]
pub struct Outcome {
    /// The job.
    pub job: Job,
    /// How many states were checked.
    pub states: usize,
    /// How many different contents of the disk were among them.
    pub different: usize,
    /// How many broke the rule.
    pub bad: usize,
    /// The first of them.
    pub first_bad: Vec<Bad>,
    /// Promises made.
    pub acknowledgements: usize,
    /// Each flush by its name, and the state that its absence makes bad.
    pub flushes: Vec<(String, Option<Bad>)>,
    /// How long it took.
    pub took: Duration,
}

/// Judges every state of the jobs. `tell` hears of each job that is done, in no order; the outcomes are in theirs.
pub fn certify(jobs: &[Job], scope: &Scope, tell: &(dyn Fn(&Outcome) + Sync)) -> Result<Vec<Outcome>, Fault> {
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(Vec::new());
    let work = || -> Result<(), Fault> {
        while let Some(number) =
            Some(next.fetch_add(1, Ordering::Relaxed)).filter(|number| *number < jobs.len())
        {
            let Some(job) = jobs.get(number) else { break };
            let outcome = outcome(*job, scope)?;
            tell(&outcome);
            outcomes.lock().map_err(|_| "another worker failed")?.push((number, outcome));
        }
        Ok(())
    };
    let workers = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|threads| {
        let workers: Vec<_> = (0..workers).map(|_| threads.spawn(work)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().map_err(|_| Fault::from("a worker panicked"))?)
    })?;
    let mut outcomes = outcomes.into_inner().map_err(|_| "a worker failed")?;
    outcomes.sort_by_key(|(number, _)| *number);
    Ok(outcomes.into_iter().map(|(_, outcome)| outcome).collect())
}

fn outcome(job: Job, scope: &Scope) -> Result<Outcome, Fault> {
    let began = Instant::now();
    let mut case = job.case(&scope.loader)?;
    let mut verdicts = Verdicts::new(&case);
    let (mut bad, mut first_bad) = (0, Vec::new());
    let states = case.each_state(Tears::Each, |number, mut state| {
        if let Err(why) = verdicts.of(&case, &mut state) {
            bad += 1;
            if first_bad.len() < DESCRIBED {
                first_bad.push(Bad { number, cut: case.describe(&state), why });
            }
        }
        ControlFlow::Continue(())
    });
    let acknowledgements = case.acknowledgements();
    let different = verdicts.different();
    let mut flushes = Vec::new();
    for (index, name) in case.flushes().into_iter().enumerate() {
        let (found, whole) = without_flush(case, index, &mut verdicts);
        flushes.push((name, found));
        case = whole;
    }
    let took = began.elapsed();
    Ok(Outcome { job, states, different, bad, first_bad, acknowledgements, flushes, took })
}

/// The state that is bad without a flush; and the case as it was.
fn without_flush(mut case: Case, index: usize, verdicts: &mut Verdicts) -> (Option<Bad>, Case) {
    let Some(without) = case.recording.without_flush(index) else { return (None, case) };
    let whole = std::mem::replace(&mut case.recording, without);
    let found = case.first_bad(verdicts);
    case.recording = whole;
    (found, case)
}
