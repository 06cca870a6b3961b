//! `xtask fuzz`: random inputs for whatever reads what somebody else wrote, without end, guided by coverage.
//!
//! Owns: which engine runs, and compiling the targets with its instrumentation. Does not: hold targets; the crate
//! `fuzz` does, and its bounded test calls the same ones.
//! Order: AFL++ if it is there and one target is named, else our own loop; both count branches through LLVM's
//! sanitizer coverage, which a stable toolchain has too.
//! Fails by: the file of the input and the command that replays it.

mod engine;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::command::Cmd;
use crate::place;
use crate::step::{note, step};
use engine::{Engine, PROFILE, TARGET};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// One target (docs/users/xtask.md lists them; another word prints the list); without it all of them in turn.
    target: Option<String>,
    /// Call the target with this file, once.
    #[arg(long, value_name = "FILE", requires = "target")]
    replay: Option<PathBuf>,
    /// Stop after this many seconds instead of never.
    #[arg(long)]
    seconds: Option<u64>,
    /// Seed of the random numbers; the time without it.
    #[arg(long)]
    seed: Option<u64>,
    /// What makes the inputs; without it, AFL++ if it is installed and one target is named.
    #[arg(long)]
    engine: Option<Engine>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if let (Some(target), Some(file)) = (&options.target, &options.replay) {
        return replay(target, file);
    }
    match (engine::chosen(options.engine, options.target.is_some())?, &options.target) {
        (Engine::Afl, Some(target)) => afl(target, options),
        (Engine::Afl, None) => bail!("AFL++ runs one target: name it, as in `cargo xtask fuzz config`"),
        (Engine::Own, _) => own(options),
    }
}

/// Where corpora, seeds and programs of fuzzing are.
fn directory() -> PathBuf {
    place::target().join("fuzz")
}

fn findings() -> PathBuf {
    place::target().join("fuzz-findings")
}

fn replay(target: &str, file: &Path) -> Result<()> {
    let program = compile(Engine::Own)?;
    let shown = Cmd::new(program).arg(target).arg("--replay").arg(file).env("RUST_BACKTRACE", "1").show()?;
    ensure!(shown, "{} still breaks {target}", file.display());
    Ok(())
}

fn own(options: &Options) -> Result<()> {
    let program = compile(Engine::Own)?;
    let corpus = directory().join("corpus");
    let numbers = [("--seconds", options.seconds), ("--seed", options.seed)];
    let command = Cmd::new(program).args(&options.target).arg("--corpus").arg(&corpus);
    let given =
        numbers.into_iter().filter_map(|(name, value)| value.map(|value| [name.into(), value.to_string()]));
    let command = given.fold(command, Cmd::args).env("CARGO_TARGET_DIR", place::target());
    if command.show()? {
        return Ok(());
    }
    kept_of_the_dead(&corpus)?;
    bail!("fuzzing ended with a finding; see above")
}

/// After a death that the program could not report: the input that was being called.
fn kept_of_the_dead(corpus: &Path) -> Result<()> {
    for entry in fs::read_dir(corpus).with_context(|| format!("list {}", corpus.display()))? {
        let current = entry?.path();
        let Some(target) = current.file_name().and_then(|n| n.to_str()?.strip_suffix(".current")) else {
            continue;
        };
        let input = fs::read(&current).with_context(|| format!("read {}", current.display()))?;
        // Only the one that still kills the program is a finding.
        let again = Cmd::new(engine::program()).args([target, "--replay"]).arg(&current).output()?;
        if input.is_empty() || again.status.success() {
            continue;
        }
        fs::create_dir_all(findings()).context("create the directory of findings")?;
        let file = findings().join(format!("{target}-last"));
        fs::copy(&current, &file).with_context(|| format!("write {}", file.display()))?;
        note(&format!("replay it with: cargo xtask fuzz {target} --replay {}", file.display()));
    }
    Ok(())
}

fn afl(target: &str, options: &Options) -> Result<()> {
    let program = compile(Engine::Afl)?;
    let (seeds, output) = (directory().join("seeds").join(target), directory().join("afl").join(target));
    Cmd::new(&program).args([target, "--write-seeds"]).arg(&seeds).run()?;
    fs::create_dir_all(&output).with_context(|| format!("create {}", output.display()))?;
    let command = Cmd::new("afl-fuzz").arg("-i").arg(&seeds).arg("-o").arg(&output);
    let seconds = options.seconds.map(|seconds| ["-V".to_owned(), seconds.to_string()]);
    let seed = options.seed.map(|seed| ["-s".to_owned(), seed.to_string()]);
    let command = [seconds, seed].into_iter().flatten().fold(command, Cmd::args);
    // The machine's core pattern and governor are not ours to change.
    let command = command.env("AFL_I_DONT_CARE_ABOUT_MISSING_CRASHES", "1").env("AFL_SKIP_CPUFREQ", "1");
    let ended = command.arg("--").arg(&program).args([target, "--replay", "@@"]).show()?;
    let crashes = output.join("default").join("crashes");
    let found = fs::read_dir(&crashes).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<PathBuf> = found.filter(|path| !path.ends_with("README.txt")).collect();
    found.sort();
    for file in &found {
        note(&format!("replay it with: cargo xtask fuzz {target} --replay {}", file.display()));
    }
    ensure!(found.is_empty(), "AFL++ found {} inputs that break {target}", found.len());
    ensure!(ended, "afl-fuzz ended with an error; see above");
    Ok(())
}

/// Compiles the crate `fuzz` with the engine's instrumentation, apart from other builds.
fn compile(engine: Engine) -> Result<PathBuf> {
    let cargo = Cmd::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--quiet", "--locked", "--profile", PROFILE, "--target", TARGET])
        .args(["--package", "fuzz", "--bin", "fuzz"])
        .arg("--target-dir")
        .arg(engine.build_directory())
        .env("CARGO_ENCODED_RUSTFLAGS", engine.rust_flags()?)
        .directory(&place::repository());
    step("compile the targets with coverage counters", || {
        ensure!(cargo.show()?, "{cargo} failed");
        Ok(())
    })?;
    Ok(engine.build_directory().join(TARGET).join(PROFILE).join("fuzz"))
}
