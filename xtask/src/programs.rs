//! Our own programs, compiled for an image: small, and the same bytes whatever directory they are compiled in.
//!
//! Owns: cargo's flags for that. Paths of this machine are mapped to fixed names.
//! Does not: decide what is linked; the crates do, and `tidy` checks init's binary.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::command::Cmd;
use crate::image::elf;
use crate::place;
use crate::step::step;
use crate::target::{self, Architecture};
use crate::toolchain::Toolchain;

/// The cargo profiles in the workspace's Cargo.toml: init has one of its own, and so has what answers requests.
const PROFILE: &str = "image";
const INIT_PROFILE: &str = "image-init";
const MACHINED_PROFILE: &str = "image-machined";

/// Relocations of a position-independent program as a bitmap: 2 % of their size in a table, and less to read at start. GNU's
/// linker, which makes programs for other machines, does not know it.
const PACKED_RELOCATIONS: &str = "-Clink-arg=-Wl,--pack-dyn-relocs=relr";

/// Between flags in CARGO_ENCODED_RUSTFLAGS: paths may hold blanks.
const FLAG_SEPARATOR: &str = "\u{1f}";

/// A program: its package, the features it is built with, the binary's name.
pub(crate) struct Program {
    pub(crate) package: &'static str,
    pub(crate) features: &'static [&'static str],
    pub(crate) binary: &'static str,
}

impl Program {
    fn profile(&self) -> &'static str {
        match self.package {
            package if package == INIT.package => INIT_PROFILE,
            package if package == MACHINED.package => MACHINED_PROFILE,
            _ => PROFILE,
        }
    }
}

pub(crate) const INIT: Program = Program { package: "init", features: &["pid1"], binary: "init" };
pub(crate) const MACHINED: Program =
    Program { package: "service-manager", features: &[], binary: "machined" };
pub(crate) const BILLETCTL: Program = Program { package: "billetctl", features: &[], binary: "billetctl" };
pub(crate) const TEST_AGENT: Program = Program { package: "test-agent", features: &[], binary: "test-agent" };

/// Compiles a program and gives the path of its binary.
pub(crate) fn compile(program: &Program, toolchain: &Toolchain) -> Result<PathBuf> {
    let architecture = toolchain.architecture;
    let triple = target::triple(architecture);
    // One at a time: together, cargo would give each the features of all.
    let cargo = cargo()
        .args(["build", "--quiet", "--locked", "--profile", program.profile(), "--target", triple])
        .args(["--package", program.package, "--bin", program.binary])
        .env("CARGO_ENCODED_RUSTFLAGS", rust_flags(architecture)?)
        .env("CFLAGS", c_flags())
        .env("CC_SHELL_ESCAPED_FLAGS", "1");
    let cargo = program.features.iter().fold(cargo, |cargo, feature| cargo.args(["--features", feature]));
    let cargo = toolchain.settings.iter().fold(cargo, |cargo, (name, value)| cargo.env(name, value));
    shown(&format!("compile {}{}", program.binary, toolchain.purpose()), &cargo)?;
    Ok(place::target().join(triple).join(program.profile()).join(program.binary))
}

/// A program as this one has it, which has compiled most of it already: it is linked in seconds.
pub(crate) fn dev(program: &Program) -> Result<PathBuf> {
    // With this package: alone, libraries have other features and are compiled once more.
    let packages = ["--package", env!("CARGO_PKG_NAME"), "--package", program.package];
    let cargo = cargo().args(["build", "--quiet", "--locked"]).args(packages).args(["--bin", program.binary]);
    shown(&format!("compile {} without optimisation", program.binary), &cargo)?;
    Ok(place::target().join(target::triple(Architecture::Amd64)).join("debug").join(program.binary))
}

/// machined like that, without what a debugger reads, which is most of it.
pub(crate) fn dev_machined() -> Result<PathBuf> {
    let binary = dev(&MACHINED)?;
    let stripped = binary.with_extension("stripped");
    Cmd::new("strip").args([Path::new("-o"), &stripped, &binary]).run()?;
    Ok(stripped)
}

/// A test that starts billetctl, which cargo therefore makes with it.
const DEV_TEST: &str = "commands";

/// billetctl as the unit tests of the workspace have it, which have compiled most of it already: whole-program optimisation
/// of another binary takes as long as all tests of the sources.
pub(crate) fn dev_billetctl() -> Result<PathBuf> {
    // Not `cargo build`: without what tests depend on, libraries have other features and are compiled once more.
    let cargo = cargo().args(["test", "--no-run", "--quiet", "--locked", "--workspace", "--test", DEV_TEST]);
    shown("compile billetctl for tests", &cargo)?;
    Ok(place::target().join(target::triple(Architecture::Amd64)).join("debug").join(BILLETCTL.binary))
}

fn cargo() -> Cmd {
    Cmd::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())).directory(&place::repository())
}

/// Runs it with its output here.
fn shown(name: &str, cargo: &Cmd) -> Result<()> {
    step(name, || {
        if !cargo.show()? {
            bail!("{cargo} failed");
        }
        Ok(())
    })
}

/// Largest init in bytes, stripped (invariant 3).
const MOST_INIT_BYTES: u64 = 1_500_000;

/// Checks what invariant 3 says of init's binary: small, without libc, dynamic linker and thread-local storage.
pub(crate) fn check_init(binary: &Path) -> Result<()> {
    let bytes = std::fs::read(binary).with_context(|| format!("read {}", binary.display()))?;
    let size = u64::try_from(bytes.len()).context("size of init")?;
    ensure!(size <= MOST_INIT_BYTES, "init has {size} bytes, {MOST_INIT_BYTES} at most");
    let kinds = elf::segment_kinds(&bytes).with_context(|| format!("parse {}", binary.display()))?;
    let forbidden = [(elf::PT_INTERP, "PT_INTERP"), (elf::PT_DYNAMIC, "PT_DYNAMIC"), (elf::PT_TLS, "PT_TLS")];
    for (kind, name) in forbidden {
        ensure!(!kinds.contains(&kind), "init has a segment {name}: something of libc was linked");
    }
    // glibc's start-up and stdio leave these words in any binary that holds them.
    for word in ["__libc_", "GLIBC_", "/etc/nsswitch.conf"] {
        let found = bytes.windows(word.len()).any(|window| window == word.as_bytes());
        ensure!(!found, "init holds {word:?}: something of libc was linked");
    }
    Ok(())
}

fn rust_flags(architecture: Architecture) -> Result<OsString> {
    let mut flags = vec![OsString::from("-Ctarget-feature=+crt-static")];
    if architecture == Architecture::Amd64 {
        flags.push(PACKED_RELOCATIONS.into());
    }
    for (from, to) in mapped_directories()? {
        let mut flag = OsString::from("--remap-path-prefix=");
        flag.push(from);
        flag.push(format!("={to}"));
        flags.push(flag);
    }
    Ok(flags.join(FLAG_SEPARATOR.as_ref()))
}

/// For the C and assembly parts of crates, quoted as for a shell: a directory's name may hold blanks.
fn c_flags() -> String {
    let directories = mapped_directories().unwrap_or_default();
    let flags =
        directories.iter().map(|(from, to)| quoted(&format!("-ffile-prefix-map={}={to}", from.display())));
    flags.collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Directories whose paths the compilers would write into a binary; later ones go first where both fit.
fn mapped_directories() -> Result<Vec<(PathBuf, &'static str)>> {
    let mut directories = vec![(place::repository(), "/billet"), (place::target(), "/billet/target")];
    // The directory below holds one directory for each registry, named after its address.
    let crates = cargo_home()?.join("registry/src");
    for item in std::fs::read_dir(&crates).with_context(|| format!("list {}", crates.display()))? {
        directories.push((item.with_context(|| format!("list {}", crates.display()))?.path(), "/crates"));
    }
    directories.sort();
    Ok(directories)
}

fn cargo_home() -> Result<PathBuf> {
    if let Some(home) = std::env::var_os("CARGO_HOME") {
        return Ok(home.into());
    }
    let home = std::env::var_os("HOME").context("neither CARGO_HOME nor HOME is set")?;
    Ok(Path::new(&home).join(".cargo"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{BILLETCTL, MACHINED, cargo, quoted};

    /// Each library that these packages need, with its features.
    fn libraries(packages: &[&str]) -> BTreeSet<String> {
        let words = ["tree", "--locked", "--offline", "--edges=normal,build", "--prefix=none"];
        let target = ["--target", "x86_64-unknown-linux-gnu", "--format", "{p}|{f}"];
        let cargo = packages
            .iter()
            .fold(cargo().args(words).args(target), |cargo, package| cargo.args(["--package", package]));
        let lines = cargo.read().unwrap();
        lines.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
    }

    #[test]
    fn development_programs_have_no_library_of_ours_with_other_features() {
        let own = env!("CARGO_PKG_NAME");
        let ours = libraries(&[own]);
        for program in [&BILLETCTL, &MACHINED] {
            let all = libraries(&[own, program.package]);
            let other: Vec<_> = ours.difference(&all).collect();
            assert!(
                other.is_empty(),
                "{} has these with other features, so that `cargo xtask run` compiles them and all above anew; name the \
                 features in xtask/Cargo.toml: {other:?}",
                program.binary
            );
        }
    }

    #[test]
    fn a_flag_with_blanks_and_quotes_is_one_word_of_a_shell() {
        let flag = "-ffile-prefix-map=/a b/it's $HOME=/billet";
        let script = format!("printf %s {}", quoted(flag));
        let said = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8(said.stdout).unwrap(), flag);
    }
}
