//! Programs in Go: where their source is, and the cache entry of each.
//!
//! Owns: the module that pins everything (xtask/kubernetes/MINOR, with the sources beside it), and what names an entry.
//! Does not: write `go.mod` or `go.sum`: a build that would have to change them fails.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::golang::{Go, Toolchain};
use crate::cache::{Cache, Key, KeyBuilder};
use crate::inputs::Inputs;
use crate::place;
use crate::step::step;

/// Where it lies in the repository.
const DIRECTORY: &str = "xtask/kubernetes";

/// A module: `go.mod` and `go.sum` of one version, and sources that all versions share.
pub(super) struct Module {
    /// The version's directory. One that requires nothing has no `go.sum` there.
    pub(super) name: String,
    /// Files beside it.
    pub(super) sources: &'static [&'static str],
}

/// A program of a module.
pub(super) struct Program {
    pub(super) name: &'static str,
    /// What is compiled: a package of the module or of one that it requires.
    pub(super) package: &'static str,
    /// `variable=value` of the linker.
    pub(super) variables: Vec<String>,
    /// How long it takes, for who waits.
    pub(super) remark: &'static str,
    /// Whether it has parts in C, which the host's compiler makes.
    pub(super) uses_c: bool,
}

/// Compiles programs.
pub(super) struct Compiler<'a> {
    cache: &'a Cache,
    toolchain: Toolchain,
}

impl<'a> Compiler<'a> {
    pub(super) fn new(cache: &'a Cache, toolchain: Toolchain) -> Self {
        Self { cache, toolchain }
    }

    /// The file of a program.
    pub(super) fn program(
        &self,
        inputs: &mut Inputs<'_>,
        module: &Module,
        program: &Program,
    ) -> Result<PathBuf> {
        let key = key(&self.toolchain.identity(), module, program)?;
        let entry = self.cache.entry("go-program", &key, |entry| {
            let go = self.toolchain.unpack(self.cache, inputs)?;
            let scratch = self.cache.scratch()?;
            gather(module, scratch.path())?;
            go.download(scratch.path())?;
            let name = format!("compile {} by Go {}{}", program.name, go.version(), program.remark);
            step(&name, || compile(&go, scratch.path(), program, entry))
        })?;
        Ok(entry.join(program.name))
    }
}

fn compile(go: &Go, module: &Path, program: &Program, entry: &Path) -> Result<()> {
    go.build(module, program.package, &program.variables, program.uses_c, &entry.join(program.name))
}

/// Everything that the bytes depend on.
fn key(toolchain: &str, module: &Module, program: &Program) -> Result<Key> {
    let key = KeyBuilder::new("go program 1").part(toolchain).part(program.name).part(program.package);
    let key = program.variables.iter().fold(key, |key, variable| key.part(variable));
    let files = files(module);
    Ok(files.iter().try_fold(key, |key, (name, path)| key.part(name).file(path))?.finish())
}

/// The module's files as Go finds them.
fn gather(module: &Module, to: &Path) -> Result<()> {
    for (name, from) in files(module) {
        let to = to.join(name);
        let parent = to.parent().context("a file lies in a directory")?;
        fs::create_dir_all(parent).with_context(|| format!("create {}", parent.display()))?;
        fs::copy(&from, &to).with_context(|| format!("copy {}", from.display()))?;
    }
    Ok(())
}

fn files(module: &Module) -> Vec<(&'static str, PathBuf)> {
    let directory = directory();
    let pins = ["go.mod", "go.sum"].map(|name| (name, directory.join(&module.name).join(name)));
    let pins = pins.into_iter().filter(|(name, path)| *name == "go.mod" || path.exists());
    pins.chain(module.sources.iter().map(|name| (*name, directory.join(name)))).collect()
}

/// The directory of all modules.
pub(super) fn directory() -> PathBuf {
    place::repository().join(DIRECTORY)
}

#[cfg(test)]
pub(super) fn pins(module: &Module) -> String {
    let path = directory().join(&module.name).join("go.mod");
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
