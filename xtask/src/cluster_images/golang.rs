//! Go from Debian's packages, and programs compiled by it.
//!
//! Owns: where its files lie (`<cache>/go-home`: modules and what was compiled of them), its settings, retries of downloads.
//! Does not: know any program. The host's own Go is not used.
//! Source: `go help environment`, `go help build`; the host's GOPROXY, GONOSUMDB and the like hold, as environment and as
//! what `go env -w` wrote.

use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;
use std::{env, fs};

use anyhow::{Context, Result};

use crate::cache::{Cache, KeyBuilder};
use crate::command::Cmd;
use crate::inputs::{Inputs, Package};
use crate::step::{note, step};

/// How often modules are asked for, and the wait between: a proxy that is busy, or a connection that broke.
const DOWNLOAD_ATTEMPTS: u32 = 5;
const DOWNLOAD_WAIT: Duration = Duration::from_secs(5);

/// As Kubernetes builds its releases: without gRPC's traces, which keep the linker from leaving out what is never called.
const TAGS: &str = "-tags=grpcnotrace,notest";

/// Go's own code for names of hosts and users, in programs with C too: that of the C library needs files at run time.
const PURE_TAGS: &str = "netgo,osusergo";

/// Directories of the second package that no build reads.
const NEVER_READ: [&str; 3] = ["api", "misc", "test"];

/// What a person can do.
const PROXY_HINT: &str = "fetch Go modules: they come from where GOPROXY says (the variable, or `go env -w`)";

/// A version of Go as packages: resolved, not yet fetched.
pub(super) struct Toolchain {
    version: &'static str,
    packages: Vec<Package>,
}

/// Go, ready to run.
pub(super) struct Go {
    version: &'static str,
    /// What it calls GOROOT.
    root: PathBuf,
    home: PathBuf,
}

impl Toolchain {
    /// The archive's packages of this version.
    pub(super) fn resolve(inputs: &mut Inputs<'_>, version: &'static str) -> Result<Self> {
        let names = ["go", "src"].map(|part| format!("golang-{version}-{part}"));
        let packages = inputs.resolve(&names.each_ref().map(String::as_str))?;
        Ok(Self { version, packages })
    }

    /// Changes with the compiler.
    pub(super) fn identity(&self) -> String {
        self.packages.iter().map(|package| package.sha256.as_str()).collect()
    }

    /// Puts its files together: both packages have some of each directory.
    pub(super) fn unpack(&self, cache: &Cache, inputs: &mut Inputs<'_>) -> Result<Go> {
        let key = KeyBuilder::new("go 1").part(self.identity()).finish();
        let name = format!("go-{}", self.version);
        let entry = cache.entry("go", &key, |entry| {
            let directories = inputs.unpack(&self.packages)?;
            step(&format!("put Go {} together", self.version), || {
                for directory in directories.values() {
                    Cmd::new("cp")
                        .args(["-a", "--reflink=auto"])
                        .arg(directory.join("usr"))
                        .arg(entry)
                        .run()?;
                }
                let share = entry.join("usr/share").join(&name);
                NEVER_READ.iter().try_for_each(|part| remove(&share.join(part)))?;
                remove(&entry.join("usr/share/doc"))
            })
        })?;
        let root = entry.join("usr/lib").join(name);
        Ok(Go { version: self.version, root, home: cache.root().join("go-home") })
    }
}

fn remove(directory: &Path) -> Result<()> {
    fs::remove_dir_all(directory).with_context(|| format!("remove {}", directory.display()))
}

impl Go {
    pub(super) fn version(&self) -> &'static str {
        self.version
    }

    /// Fetches every module that the one in this directory names; each is compared with its go.sum.
    pub(super) fn download(&self, module: &Path) -> Result<()> {
        step("fetch Go modules", || {
            for attempt in 1..DOWNLOAD_ATTEMPTS {
                match self.command(module).args(["mod", "download"]).run() {
                    Ok(()) => return Ok(()),
                    Err(fault) => {
                        note(&format!("fetch Go modules, attempt {attempt}: {}", last_line(&fault)))
                    }
                }
                sleep(DOWNLOAD_WAIT);
            }
            self.command(module).args(["mod", "download"]).run().context(PROXY_HINT)
        })
    }

    /// Compiles a package of the module in this directory, as the same bytes wherever that directory lies. What is written in
    /// C the host's compiler makes; the program needs no library all the same.
    pub(super) fn build(
        &self,
        module: &Path,
        package: &str,
        variables: &[String],
        uses_c: bool,
        to: &Path,
    ) -> Result<()> {
        let set = variables.iter().map(|variable| format!(" -X {variable}")).collect::<String>();
        let (tags, linked) = match uses_c {
            false => (TAGS.to_owned(), format!("-ldflags=-s -w{set}")),
            true => (format!("{TAGS},{PURE_TAGS}"), format!("-ldflags=-s -w -extldflags=-static{set}")),
        };
        let build = self.command(module).args(["build", "-mod=readonly", "-buildvcs=false", "-trimpath"]);
        let build = build.env("CGO_ENABLED", if uses_c { "1" } else { "0" });
        build.arg(tags).arg(linked).arg("-o").arg(to).arg(package).run()
    }

    /// Compiles a package that lies in this GOPATH with all that it imports, without modules: as old source wants it.
    pub(super) fn build_in(
        &self,
        gopath: &Path,
        package: &str,
        variables: &[String],
        to: &Path,
    ) -> Result<()> {
        let set = variables.iter().map(|variable| format!(" -X {variable}")).collect::<String>();
        let build = self.run_in(gopath, &self.program(), gopath).args(["build", "-trimpath", TAGS]);
        let build = build.env("CGO_ENABLED", "0").arg(format!("-ldflags=-s -w{set}"));
        build.arg("-o").arg(to).arg(package).run()
    }

    /// A program that reads source in this GOPATH, started in `directory`.
    pub(super) fn run_in(&self, gopath: &Path, program: &Path, directory: &Path) -> Cmd {
        let run = self.environment(Cmd::new(program).directory(directory));
        run.env("GO111MODULE", "off").env("GOPATH", gopath).env("GOFLAGS", "")
    }

    fn command(&self, directory: &Path) -> Cmd {
        self.environment(Cmd::new(self.program()).directory(directory))
    }

    fn program(&self) -> PathBuf {
        self.root.join("bin/go")
    }

    fn environment(&self, command: Cmd) -> Cmd {
        let path = env::var_os("PATH").unwrap_or_default();
        let paths = [self.root.join("bin")].into_iter().chain(env::split_paths(&path));
        // A PATH with a colon in a directory's name cannot be had: Go finds its own tools without.
        let path = env::join_paths(paths).unwrap_or(path);
        command
            .env("PATH", path)
            .env("GOROOT", &self.root)
            .env("GOCACHE", self.home.join("build"))
            .env("GOMODCACHE", self.home.join("modules"))
            // So that `clean --cache` can remove them.
            .env("GOFLAGS", "-modcacherw")
            .env("GOTOOLCHAIN", "local")
            .env("GOWORK", "off")
            .env("GOOS", "linux")
            .env("GOARCH", "amd64")
            .env("GOAMD64", "v1")
    }
}

fn last_line(fault: &anyhow::Error) -> String {
    fault.to_string().lines().last().unwrap_or_default().to_owned()
}
