//! `xtask test`: every check and every test, and one line at the end that says how it went.
//!
//! Order: what is quick to fail first: format, lints, tidy; then unit tests; then clusters; then the virtual machines. The build, which
//! links on one core for minutes, runs beside everything before the virtual machines.
//! Owns: `target/test/`, one log a suite; the last line `N passed, N failed`, alone on its line.
//! Does not: stop at the first failure. Without a build there are no virtual machines, which counts as a failure.

mod clusters;
mod costs;
mod programs;
mod suite;
mod tally;
mod twice;

use std::ffi::OsString;
use std::path::{self, Path, PathBuf};
use std::thread;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::build::{self, Purpose};
use crate::command::{Cmd, find_program};
use crate::host::{self, Need};
use crate::inputs::Freshness;
use crate::step::note;
use suite::{Suite, Suites};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The long run: more rounds, and a build in another place that must give the same bytes.
    #[arg(long)]
    long: bool,
    /// Only suites whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// The kernel of the nodes: `debian`, `source` (compiled first, an hour), or one of your own (a bzImage).
    #[arg(long, value_name = "KIND|FILE")]
    kernel: Option<PathBuf>,
    /// Its modules: lib/modules/RELEASE, or a directory with that in it.
    #[arg(long, value_name = "DIRECTORY", requires = "kernel")]
    modules: Option<PathBuf>,
}

impl Options {
    /// What `xtask build` has to be told, in whatever directory, for the same kernel.
    fn kernel_arguments(&self) -> Result<Vec<OsString>> {
        let mut arguments = Vec::new();
        for (option, given) in [("--kernel", &self.kernel), ("--modules", &self.modules)] {
            let Some(given) = given else { continue };
            let named = option == "--kernel" && build::is_name(given);
            let given = if named { given.clone() } else { path::absolute(given)? };
            arguments.extend([option.into(), given.into()]);
        }
        Ok(arguments)
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let began = Instant::now();
    host::ensure_packages(if options.long { Need::LongTest } else { Need::Test })?;
    let mut suites = Suites::new(options.only.clone())?;
    let was_built = thread::scope(|scope| {
        let build = suites.begin(scope, "build", || built(options));
        without_machines(&mut suites, options.long);
        suites.end(build)
    });
    if was_built {
        with_what_was_built(&mut suites, options);
    }
    suites.explain();
    let minutes = began.elapsed().as_secs() / 60;
    println!("\ntook {minutes} min {} s", began.elapsed().as_secs() % 60);
    println!("{}", suites.tally());
    suites.any()?;
    if suites.tally().failed > 0 {
        bail!("some tests failed; their logs are in target/test");
    }
    Ok(())
}

fn built(options: &Options) -> Result<()> {
    let kernel = build::chosen(options.kernel.as_deref(), options.modules.as_deref(), Freshness::Day)?;
    let purpose = if options.long { Purpose::Release } else { Purpose::Tests };
    build::build(Freshness::Day, kernel.as_ref(), purpose).map(drop)
}

/// What needs sources alone.
fn without_machines(suites: &mut Suites, long: bool) {
    suites.check(&Suite::cargo("format", &["fmt", "--all", "--check"]));
    suites.check(&Suite::cargo("lints", &LINTS));
    suites.check(&Suite::cargo("lints of the machines' tests", &MACHINE_LINTS));
    suites.check(&Suite::cargo("lints of the installer on a node", &INSTALLER_LINTS));
    suites.check(&Suite::cargo("lints of PID 1", &INIT_LINTS));
    suites.call("tidy", super::tidy::run);
    if find_program("cargo-deny".as_ref()).is_some() {
        // Not advisories: they need a database from the network, and a test must not fail for want of that.
        suites.check(&Suite::cargo("dependencies", &["deny", "check", "bans", "licenses", "sources"]));
    }
    suites.tests(&Suite::cargo("unit tests", &UNIT_TESTS).long(long).side_by_side());
    if long {
        suites.tests(&Suite::cargo("DHCP servers", &DHCP_TESTS));
    }
    // Now, beside the build, which links on one core for minutes.
    suites.check(&Suite::cargo(
        "machines' tests compile",
        &[&MACHINE_TESTS[..], &["--test", "cluster", "--no-run"]].concat(),
    ));
    if rustix::process::geteuid().is_root() && has_loop_device() {
        suites.tests(&Suite::cargo("loop devices", &LOOP_TESTS));
    } else {
        note("left out without root and loop devices: the tests that flash to a disk of this machine");
    }
    if rustix::process::geteuid().is_root() {
        suites.tests(&Suite::cargo("roots of services", &ROOT_TESTS));
    } else {
        note("left out without root: the tests that give a program a root of its own");
    }
    suites.call("power-cut certificate", || super::certify::run(&super::certify::Options::all(long)));
}

/// Whether the kernel gives one out that this machine, which may be a container, has a file for.
fn has_loop_device() -> bool {
    Cmd::new("losetup").arg("--find").read().is_ok_and(|path| Path::new(path.trim()).exists())
}

fn with_what_was_built(suites: &mut Suites, options: &Options) {
    let long = options.long;
    // They start the containerd that the build unpacked, which mounts what it unpacks.
    if rustix::process::geteuid().is_root() {
        suites.tests(&Suite::cargo("containerd", &CONTAINERD_TESTS));
    } else {
        note("left out without root: the tests that start containerd on this machine");
    }
    if long {
        suites.call("build for arm64", || build::build_for_arm64(Freshness::Day).map(drop));
        suites.call("build with the hardened kernel", || build::build_hardened(Freshness::Day).map(drop));
    }
    if rustix::process::geteuid().is_root() && has_loop_device() {
        clusters::run(suites, long);
    } else {
        note("left out without root and loop devices: the tests of clusters, whose nodes are containers");
    }
    costs::begin();
    let whole: &[&str] = if long { &["--", "--include-ignored"] } else { &[] };
    let machines = [&MACHINE_TESTS[..], whole].concat();
    suites.tests(&Suite::cargo("virtual machines", &machines).long(long).live());
    costs::show();
    if long {
        suites.call("same bytes twice", || {
            // Nothing to do but where this suite was asked for alone.
            built(options)?;
            twice::run(&options.kernel_arguments()?)
        });
    }
}

const LINTS: [&str; 7] = ["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"];

/// Cargo's "all targets" are those that `cargo test` runs by itself.
const MACHINE_LINTS: [&str; 8] = ["clippy", "--workspace", "--test", "*", "--quiet", "--", "-D", "warnings"];

/// The installer as a node has it: without what builds images.
const INSTALLER_LINTS: [&str; 8] =
    ["clippy", "--package", "installer", "--no-default-features", "--quiet", "--", "-D", "warnings"];

/// The freestanding binary is no part of the workspace's default: it links no standard library.
const INIT_LINTS: [&str; 12] = [
    "clippy",
    "--package",
    "init",
    "--features",
    "pid1",
    "--bin",
    "init",
    // Without std there is no unwinding, which this profile leaves out. Not the image's profile: the build beside this
    // holds the lock of that one's directory for minutes.
    "--profile",
    "freestanding",
    "--quiet",
    "--",
    "-Dwarnings",
];

// Each of these asks for the whole workspace, though one package may have all the tests: asked for alone, cargo would
// compile what they need anew, with fewer features.

const UNIT_TESTS: [&str; 3] = ["test", "--workspace", "--no-fail-fast"];

const LOOP_TESTS: [&str; 6] = ["test", "--workspace", "--lib", "on_a_loop_device", "--", "--ignored"];

const ROOT_TESTS: [&str; 6] = ["test", "--workspace", "--lib", "in_a_root_of_its_own", "--", "--ignored"];

const DHCP_TESTS: [&str; 8] =
    ["test", "--workspace", "--lib", "--", "--ignored", "kea_tests", "dnsmasq_tests", "hostile_server_tests"];

const CONTAINERD_TESTS: [&str; 6] = ["test", "--workspace", "--lib", "by_containerd", "--", "--ignored"];

/// All of `qemu-tests`, by name, since they run in no other way. What is marked as ignored belongs to the long run.
const MACHINE_TESTS: [&str; 13] = [
    "test",
    "--workspace",
    "--no-fail-fast",
    "--test",
    "api",
    "--test",
    "effects",
    "--test",
    "fixture",
    "--test",
    "nodes",
    "--test",
    "resources",
];
