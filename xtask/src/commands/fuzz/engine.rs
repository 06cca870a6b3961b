//! What makes the inputs, and how a program is compiled for it.
//!
//! Source: LLVM's SanitizerCoverage for the flags; AFL++'s `afl-compiler-rt.o`, which answers them for afl-fuzz.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::directory;
use crate::command::find_program;
use crate::step::note;

/// With `--target`, the flags reach neither build scripts nor procedural macros, which run without counters.
pub(super) const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The cargo profile in the workspace's Cargo.toml.
pub(super) const PROFILE: &str = "fuzz";

/// Between flags in CARGO_ENCODED_RUSTFLAGS: paths may hold blanks.
const FLAG_SEPARATOR: &str = "\u{1f}";

/// Branches are counted: level 3 is every edge.
const COVERAGE: [&str; 2] = ["-Cpasses=sancov-module", "-Cllvm-args=-sanitizer-coverage-level=3"];

/// Directories where AFL++ keeps its runtime, after `AFL_PATH`.
const AFL_DIRECTORIES: [&str; 3] = ["/usr/lib/afl", "/usr/local/lib/afl", "/usr/lib/x86_64-linux-gnu/afl"];

/// What makes the inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Engine {
    /// AFL++.
    Afl,
    /// The loop of the crate `fuzz`.
    Own,
}

impl Engine {
    pub(super) fn build_directory(self) -> PathBuf {
        // Other flags mean other objects: one directory each, or every change of the engine would compile all anew.
        directory().join(match self {
            Self::Afl => "build-afl",
            Self::Own => "build",
        })
    }

    pub(super) fn rust_flags(self) -> Result<String> {
        let mut flags: Vec<String> = COVERAGE.map(str::to_owned).into();
        match self {
            Self::Own => flags.push("-Cllvm-args=-sanitizer-coverage-inline-8bit-counters".to_owned()),
            Self::Afl => {
                let runtime =
                    afl_runtime().context("afl-compiler-rt.o of AFL++ is not found; set AFL_PATH")?;
                flags.push("-Cllvm-args=-sanitizer-coverage-trace-pc-guard".to_owned());
                flags.push("-Cpanic=abort".to_owned());
                flags.push(format!("-Clink-arg={}", runtime.display()));
            }
        }
        Ok(flags.join(FLAG_SEPARATOR))
    }
}

/// Our own loop's program, once it is compiled.
pub(super) fn program() -> PathBuf {
    Engine::Own.build_directory().join(TARGET).join(PROFILE).join("fuzz")
}

/// The engine that was asked for, else the best that is there.
pub(super) fn chosen(wanted: Option<Engine>, one_target: bool) -> Result<Engine> {
    let afl = find_program(OsStr::new("afl-fuzz")).is_some() && afl_runtime().is_some();
    let engine = match wanted {
        Some(Engine::Afl) if !afl => {
            anyhow::bail!(
                "AFL++ is not installed (afl-fuzz in PATH, afl-compiler-rt.o in {})",
                AFL_DIRECTORIES[0]
            )
        }
        Some(engine) => engine,
        None if afl && one_target => Engine::Afl,
        None => Engine::Own,
    };
    note(match engine {
        Engine::Afl => "engine: AFL++",
        Engine::Own if afl => "engine: our own loop with coverage counters (AFL++ is here: `--engine afl`)",
        Engine::Own => "engine: our own loop with coverage counters (AFL++ is not installed)",
    });
    Ok(engine)
}

fn afl_runtime() -> Option<PathBuf> {
    let given = std::env::var_os("AFL_PATH").map(PathBuf::from);
    let directories =
        given.into_iter().chain(AFL_DIRECTORIES.iter().map(|directory| Path::new(directory).to_owned()));
    directories.map(|directory| directory.join("afl-compiler-rt.o")).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_loop_needs_nothing() {
        assert_eq!(chosen(Some(Engine::Own), true).unwrap(), Engine::Own);
        let flags = Engine::Own.rust_flags().unwrap();
        assert!(flags.split(FLAG_SEPARATOR).all(|flag| flag.starts_with("-C")), "{flags}");
        assert!(flags.contains("inline-8bit-counters"), "{flags}");
    }
}
