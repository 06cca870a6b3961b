//! The loop that `cargo xtask fuzz` runs, and the single call that replays a file or serves AFL++.
//!
//! Owns: progress on the terminal, the corpus on disk, and `current`, the input that is being called: it survives
//! what no program can catch (an overflow of the stack, an abort, a hang that the watchdog ends).
//! Fails by: exit status 1 and the finding's file with the command that replays it.

#![allow(clippy::print_stdout, reason = "a command line tool talks to its user")]

use anyhow::{Context, Result, anyhow, bail};
use clap::Parser;
use fuzz::{
    Session, findings_directory,
    targets::{TARGETS, Target, regressions, target},
};
use std::{
    fs,
    io::{Seek, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// How long one target runs before the next one's turn, where all are run.
const TURN: Duration = Duration::from_secs(60);
/// How often progress is printed.
const REPORT: Duration = Duration::from_secs(10);
/// A call that lasts longer is a hang; the watchdog aborts the program.
const HANG: Duration = Duration::from_secs(60);

#[derive(Parser)]
#[command(about = "Calls a target with random inputs until something breaks")]
struct Arguments {
    /// One target; all in turn without it
    target: Option<String>,
    /// Call the target with this file, once
    #[arg(long, requires = "target")]
    replay: Option<PathBuf>,
    /// Stop after this many seconds [default: never]
    #[arg(long)]
    seconds: Option<u64>,
    /// Seed of the random numbers [default: the time]
    #[arg(long)]
    seed: Option<u64>,
    /// Where the corpus is kept between runs
    #[arg(long, default_value = "target/fuzz/corpus")]
    corpus: PathBuf,
    /// Write a target's seeds into this directory, one file each, and end
    #[arg(long, requires = "target")]
    write_seeds: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // A backtrace of ours says nothing about the target's fault.
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let chosen: Vec<&'static Target> = match &arguments.target {
        Some(name) => vec![target(name).ok_or_else(|| unknown(name))?],
        None => TARGETS.iter().collect(),
    };
    if let Some(file) = &arguments.replay {
        return replayed(chosen[0], file);
    }
    if let Some(directory) = &arguments.write_seeds {
        return write_seeds(chosen[0], directory);
    }
    endless(&chosen, arguments)
}

fn unknown(name: &str) -> anyhow::Error {
    let known: Vec<_> = TARGETS.iter().map(|t| format!("  {:<14}{}", t.name, t.about)).collect();
    anyhow!("there is no target `{name}`; there are:\n{}", known.join("\n"))
}

/// A panic is left alone here: it ends the program as AFL++ and a debugger want it.
fn replayed(target: &'static Target, file: &Path) -> Result<()> {
    let input = fs::read(file).with_context(|| format!("read {}", file.display()))?;
    let outcome = (target.run)(&input);
    let verdict = if outcome.accepted { "accepted" } else { "refused" };
    println!("{} {verdict} it: {}", target.name, outcome.shapes.join(" |"));
    Ok(())
}

fn write_seeds(target: &Target, directory: &Path) -> Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))?;
    for (index, seed) in (target.seeds)().iter().chain(&regressions(target)).enumerate() {
        let file = directory.join(format!("seed-{index:04}"));
        fs::write(&file, seed).with_context(|| format!("write {}", file.display()))?;
    }
    Ok(())
}

fn endless(chosen: &[&'static Target], arguments: &Arguments) -> Result<()> {
    let counters = sys::coverage::counters();
    if counters == 0 {
        println!("engine: our own loop, guided by the kinds of answers (compiled without counters)");
    } else {
        println!(
            "engine: our own loop, guided by coverage of {counters} branches and by the kinds of answers"
        );
    }
    let end = arguments.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut runs = Vec::new();
    for target in chosen {
        runs.push(Run::new(target, arguments.seed.unwrap_or_else(now), &arguments.corpus)?);
    }
    let pulse = watchdog();
    loop {
        for run in &mut runs {
            let turn = if chosen.len() == 1 { None } else { Some(Instant::now() + TURN) };
            let until = [turn, end].into_iter().flatten().min();
            run.until(until, &pulse)?;
            if end.is_some_and(|end| Instant::now() >= end) {
                return Ok(());
            }
        }
    }
}

fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(1, |since| since.as_secs())
}

/// A thread that ends the program when the count it watches does not change for [`HANG`].
fn watchdog() -> Arc<AtomicU64> {
    let pulse = Arc::new(AtomicU64::new(0));
    let watched = pulse.clone();
    std::thread::spawn(move || {
        let (mut last, mut since) = (0, Instant::now());
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let present = watched.load(Ordering::Relaxed);
            if present != last {
                (last, since) = (present, Instant::now());
            } else if since.elapsed() > HANG {
                eprintln!("one input takes longer than {HANG:?}");
                std::process::abort();
            }
        }
    });
    pulse
}

/// The endless run of one target.
struct Run {
    target: &'static Target,
    session: Session,
    directory: PathBuf,
    /// What is called now, for whoever looks after this program died.
    current: fs::File,
}

impl Run {
    fn new(target: &'static Target, seed: u64, corpus: &Path) -> Result<Self> {
        let directory = corpus.join(target.name);
        fs::create_dir_all(&directory).with_context(|| format!("create {}", directory.display()))?;
        let mut kept = regressions(target);
        for entry in fs::read_dir(&directory).with_context(|| format!("list {}", directory.display()))? {
            kept.push(fs::read(entry?.path())?);
        }
        let path = corpus.join(format!("{}.current", target.name));
        let current = fs::File::create(&path).with_context(|| format!("create {}", path.display()))?;
        println!("{}: seed {seed}, {} inputs of earlier runs", target.name, kept.len());
        Ok(Self { target, session: Session::new(target, seed, kept), directory, current })
    }

    fn until(&mut self, end: Option<Instant>, pulse: &AtomicU64) -> Result<()> {
        let mut reported = Instant::now();
        while end.is_none_or(|end| Instant::now() < end) {
            let input = self.session.next_input();
            self.current.set_len(0)?;
            self.current.rewind()?;
            self.current.write_all(&input)?;
            pulse.fetch_add(1, Ordering::Relaxed);
            match self.session.call(&input) {
                Ok(true) => self.keep(&input)?,
                Ok(false) => {}
                Err(finding) => {
                    let (path, command) = finding.keep(&findings_directory())?;
                    bail!(
                        "{}: {}\nthe input is {}; replay it with:\n{command}",
                        self.target.name,
                        finding.message,
                        path.display()
                    );
                }
            }
            if reported.elapsed() >= REPORT {
                reported = Instant::now();
                println!("{}", self.session.progress());
            }
        }
        println!("{}", self.session.progress());
        Ok(())
    }

    fn keep(&self, input: &[u8]) -> Result<()> {
        let file = self.directory.join(format!("{:016x}", fuzz::name_of(input)));
        fs::write(&file, input).with_context(|| format!("write {}", file.display()))
    }
}
