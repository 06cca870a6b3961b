//! `xtask certify`: the power-cut certificate.
//!
//! Owns: how much is certified, `target/certify.json`, the table, showing a single state.
//! Does not: know operations or judge them; `installer::certify` does, which the crate's own tests share.
//! Fails by: the first bad state of each operation, with the command that shows it again.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail, ensure};
use installer::certify::{self, Case, Job, Report, Scope};
use installer::device::{State, Tears};

use crate::place;
use crate::step::note;

/// Seeds of the bounded run and of the long one: about 57,000 states each.
const SEEDS: u64 = 1;
const LONG_SEEDS: u64 = 8;

/// What stands for the boot loader: nobody starts it here.
const LOADER: &[u8] = b"the loader";

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The long run: disks of more seeds.
    #[arg(long)]
    long: bool,
    /// First seed of the disks.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only jobs whose name begins like this: meta, or upgrade-b-to-a-512-3.
    #[arg(long)]
    operation: Option<String>,
    /// Show this state of a single job.
    #[arg(long, requires = "operation")]
    state: Option<usize>,
    /// With --state: write it as a disk image.
    #[arg(long, requires = "state", value_name = "FILE")]
    image: Option<PathBuf>,
    /// Print only the sum.
    #[arg(skip)]
    quiet: bool,
}

impl Options {
    /// Everything, for `xtask test`.
    pub(crate) fn all(long: bool) -> Self {
        Self { long, seed: 1, operation: None, state: None, image: None, quiet: true }
    }

    fn scope(&self) -> Scope {
        let seeds = if self.long { LONG_SEEDS } else { SEEDS };
        Scope { seeds: self.seed..self.seed.saturating_add(seeds), loader: LOADER.to_vec() }
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if let (Some(name), Some(number)) = (&options.operation, options.state) {
        return show(name, number, options.image.as_deref());
    }
    let began = Instant::now();
    let scope = options.scope();
    let wanted = |job: &Job| options.operation.as_ref().is_none_or(|name| job.name().starts_with(name));
    let jobs: Vec<Job> = certify::jobs(&scope).into_iter().filter(wanted).collect();
    ensure!(!jobs.is_empty(), "no job has a name that begins like this; without --operation all are done");
    let tell = |outcome: &certify::Outcome| {
        let (name, states, bad) = (outcome.job.name(), outcome.states, outcome.bad);
        if !options.quiet {
            note(&format!("{name}: {states} states, {bad} bad, {:.1} s", outcome.took.as_secs_f64()));
        }
    };
    let outcomes = certify::certify(&jobs, &scope, &tell).map_err(|error| anyhow!(error))?;
    let report = Report::new(&outcomes, scope.seeds);
    let path = place::target().join("certify.json");
    let json = serde_json::to_vec_pretty(&report).context("write the certificate as JSON")?;
    std::fs::write(&path, json).with_context(|| format!("write {}", path.display()))?;
    if options.quiet {
        note(&format!("{} states, {} bad: {}", report.states, report.bad, path.display()));
    } else {
        println!("{report}\ntook {:.1} s; {}", began.elapsed().as_secs_f64(), path.display());
    }
    let faults = report.faults();
    ensure!(faults.is_empty(), "the certificate is void:\n{}", faults.join("\n"));
    Ok(())
}

/// Prints one state of one job: what was done, when the power went, what is on the disk, what the judge says.
fn show(name: &str, number: usize, image: Option<&Path>) -> Result<()> {
    let job = find(name)?;
    let case = job.case(LOADER).map_err(|error| anyhow!(error))?;
    for (at, event) in case.recording.events.iter().enumerate() {
        println!("{at:>5} {}", case.event(event));
    }
    let mut result = Ok(());
    let mut shown = false;
    case.each_state(Tears::Each, |at, mut state| {
        if at < number {
            return ControlFlow::Continue(());
        }
        shown = true;
        result = describe(&case, &mut state, image);
        ControlFlow::Break(())
    });
    ensure!(shown, "{name} has fewer than {number} states");
    result
}

/// The job of this name, whatever its seed.
fn find(name: &str) -> Result<Job> {
    let seed = name.rsplit('-').next().and_then(|seed| seed.parse::<u64>().ok());
    let seed = seed.with_context(|| format!("{name} is no whole name, as upgrade-b-to-a-512-3 is"))?;
    let scope = Scope { seeds: seed..seed + 1, loader: LOADER.to_vec() };
    match certify::jobs(&scope).into_iter().find(|job| job.name() == name) {
        Some(job) => Ok(job),
        None => bail!("there is no job {name}"),
    }
}

fn describe(case: &Case, state: &mut State<'_>, image: Option<&Path>) -> Result<()> {
    println!("\n{}", case.describe(state));
    println!(
        "promised: {}",
        if state.promises.is_empty() { "nothing".into() } else { state.promises.join(", ") }
    );
    let mut changed: BTreeMap<&str, u64> = BTreeMap::new();
    for (at, _) in state.disk.blocks_unlike(&case.recording.before) {
        *changed.entry(case.area(at)).or_default() += 1;
    }
    for (area, blocks) in changed {
        println!("{area}: {blocks} blocks of 4 KiB are not as before");
    }
    match case.judge().start(&mut state.disk) {
        Ok(started) => println!("starts: {started}"),
        Err(why) => println!("starts nothing: {why}"),
    }
    if let Some(image) = image {
        state.disk.save(image).with_context(|| format!("write {}", image.display()))?;
        println!("written to {}", image.display());
    }
    match case.check(&mut case.judge(), state) {
        Ok(()) => println!("the rule is kept"),
        Err(why) => bail!("the rule is broken: {why}"),
    }
    Ok(())
}
