//! Compilers for other machines than the one that builds.
//!
//! Owns: which rustc makes programs for an architecture: cargo's own where it has that architecture's standard library
//! (`rustup target add`), else Debian's newest, `rustc-web`, from the archive, which is run out of the cache.
//! Does not: install anything; Debian's packages are unpacked and started by their own dynamic linker.
//! Order: packages → `runtime/`, the compiler with its libraries; `sysroot/`, the standard libraries of both machines;
//! `rustc`, which starts the one with the other.
//! Fails by: naming the package that the archive lacks.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::cache::{Cache, KeyBuilder};
use crate::command::Cmd;
use crate::inputs::{Freshness, Inputs, Package};
use crate::step::{note, step};
use crate::target::{self, Architecture};

/// The compiler and the libraries that it is linked with; two more have versions in their names.
const COMPILER: [&str; 15] = [
    "rustc-web",
    "libbsd0",
    "libc6",
    "libedit2",
    "libffi8",
    "libgcc-s1",
    "liblzma5",
    "libmd0",
    "libstdc++6",
    "libtinfo6",
    "libxml2",
    "libz3-4",
    "libzstd1",
    "zlib1g",
    LIBRARY,
];

/// Rust's standard library, of each machine.
const LIBRARY: &str = "libstd-rust-web-dev";
/// How the names of the two begin: the standard library for programs that share it, as the compiler does, and LLVM.
const SHARED_LIBRARY: &str = "libstd-rust-web-";
const LLVM: &str = "libllvm";

/// Starts the compiler with its own libraries, wherever the cache lies.
const SCRIPT: &str = "#!/bin/sh
here=$(dirname \"$(readlink -f \"$0\")\")
libraries=$here/runtime/usr/lib/x86_64-linux-gnu
exec \"$libraries/ld-linux-x86-64.so.2\" --library-path \"$libraries\" \"$here/runtime/usr/bin/rustc\" \\
    --sysroot \"$here/sysroot\" \"$@\"
";

/// How cargo is told to compile for an architecture.
pub(crate) struct Toolchain {
    pub(crate) architecture: Architecture,
    /// Variables of cargo's environment.
    pub(crate) settings: Vec<(String, PathBuf)>,
}

impl Toolchain {
    /// cargo's own, for machines like this one.
    pub(crate) fn own() -> Self {
        Self { architecture: Architecture::Amd64, settings: Vec::new() }
    }

    /// One for these machines.
    pub(crate) fn find(cache: &Cache, freshness: Freshness, architecture: Architecture) -> Result<Self> {
        if architecture == Architecture::Amd64 {
            return Ok(Self::own());
        }
        let variable = target::triple(architecture).replace('-', "_").to_uppercase();
        let linker = "aarch64-linux-gnu-gcc";
        let mut settings = vec![(format!("CARGO_TARGET_{variable}_LINKER"), linker.into())];
        if !has_library(architecture)? {
            settings.push(("RUSTC".to_owned(), debians(cache, freshness, architecture)?));
        }
        Ok(Self { architecture, settings })
    }

    /// Behind what is being done: for which machines.
    pub(crate) fn purpose(&self) -> String {
        match self.architecture {
            Architecture::Amd64 => String::new(),
            other => format!(" for {}", other.name()),
        }
    }
}

/// Whether cargo's own compiler has the standard library for these machines.
fn has_library(architecture: Architecture) -> Result<bool> {
    let sysroot = Cmd::new("rustc").args(["--print", "sysroot"]).read()?;
    Ok(Path::new(sysroot.trim()).join("lib/rustlib").join(target::triple(architecture)).join("lib").is_dir())
}

fn debians(cache: &Cache, freshness: Freshness, architecture: Architecture) -> Result<PathBuf> {
    let mut here = Inputs::open(cache, freshness)?;
    let compiler = compiler(&mut here)?;
    let runtime = here.unpack(&compiler)?;
    drop(here);
    let mut there = Inputs::open_for(cache, freshness, architecture)?;
    let library = there.resolve(&[LIBRARY])?;
    let others = there.unpack(&library)?;
    drop(there);
    let key = compiler
        .iter()
        .chain(&library)
        .fold(KeyBuilder::new("rustc 1").part(SCRIPT), |key, package| key.part(&package.sha256));
    let entry = cache.entry("rustc", &key.finish(), |entry| {
        note(&format!("cargo's rustc has no standard library for {}: Debian's is used", architecture.name()));
        step("put Debian's rustc together", || {
            let usr = entry.join("runtime/usr");
            runtime.values().try_for_each(|package| copy(&package.join("usr"), &usr))?;
            let sysroot = entry.join("sysroot/lib/rustlib");
            let libraries = runtime.get(LIBRARY).into_iter().chain(others.values());
            for package in libraries.map(|package| package.join("usr/lib/rustlib")) {
                copy(&package, &sysroot)?;
            }
            let script = entry.join("rustc");
            fs::write(&script, SCRIPT).context("write the compiler's script")?;
            fs::set_permissions(&script, fs::Permissions::from_mode(0o755))
                .context("make the compiler's script a program")
        })
    })?;
    Ok(entry.join("rustc"))
}

/// The packages by their names of today.
fn compiler(inputs: &mut Inputs<'_>) -> Result<Vec<Package>> {
    let mut packages = inputs.resolve(&COMPILER)?;
    for beginning in [SHARED_LIBRARY, LLVM] {
        let names = packages.iter().flat_map(|package| &package.depends);
        let mut found = names.filter(|name| name.starts_with(beginning) && *name != LIBRARY);
        let name = found.next().with_context(|| format!("rustc-web depends on no {beginning}…"))?.clone();
        packages.extend(inputs.resolve(&[&name])?);
    }
    Ok(packages)
}

/// A directory over what is there, links as links.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("create {}", to.display()))?;
    Cmd::new("cp").arg("-a").arg("--reflink=auto").arg(from.join(".")).arg(to).run()
}
