//! `xtask run`: builds a node and runs it in a virtual machine.
//!
//! Order: build; a helper process of its own starts QEMU and leaves ([`machine`]); follow the console, say how to
//! reach the API once it answers; Ctrl-C or the node's own end stops.
//! Why a helper: the terminal sends Ctrl-C to every process of its foreground group. QEMU must not get it, so that
//! the node can be shut down instead of being cut off.
//! Does not: keep a node's disks; every run starts afresh, with fresh keys.

pub(crate) mod machine;
pub(crate) mod state;

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use qemu_tests::accel::KERNEL_VARIABLE;
use qemu_tests::cli::Billetctl;
use qemu_tests::console::Console;

use super::stop;
use crate::build::{self, Artefacts, Purpose};
use crate::host::{self, Need};
use crate::inputs::Freshness;
use crate::place;
use crate::programs;
use crate::step;
use crate::target::Architecture;
use crate::toolchain::Toolchain;
use state::State;

/// From QEMU's start to an API that answers, on the reference machine.
const API_LIMIT: Duration = Duration::from_secs(60);

/// How often console, API and Ctrl-C are looked at.
const LOOK: Duration = Duration::from_millis(50);

/// Time between two calls to an API that does not answer yet.
const CALL_AGAIN: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// Return once the API answers; `xtask stop` ends the node.
    #[arg(long)]
    detach: bool,
    #[command(flatten)]
    machine: machine::Options,
    /// The modules of the kernel of your own: both go into the image that is built and run.
    #[arg(long, value_name = "DIRECTORY", requires = "kernel", conflicts_with = "no_build")]
    modules: Option<PathBuf>,
    /// Ask the mirror for newer packages.
    #[arg(long, conflicts_with = "no_build")]
    update: bool,
    /// Run the images that `build` makes, as small and fast as users get them, which takes minutes more.
    #[arg(long)]
    release: bool,
    /// Run what the last build made.
    #[arg(long)]
    no_build: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    host::ensure_packages(Need::Run)?;
    if let Some(running) = State::running()? {
        bail!("a node is running already (process {}): `cargo xtask stop` ends it", running.pid);
    }
    let freshness = if options.update { Freshness::Now } else { Freshness::Day };
    let mut machine = options.machine.clone();
    let kernel = machine.kernel().map(Path::to_owned);
    let is_named = kernel.as_deref().is_some_and(build::is_name);
    // A file without modules is QEMU's affair, everything else goes into the image.
    let own = match kernel.as_deref().filter(|_| is_named || options.modules.is_some()) {
        Some(kernel) if !options.no_build => {
            build::chosen(Some(kernel), options.modules.as_deref(), freshness)?
        }
        _ => None,
    };
    if is_named {
        machine.use_image_s_kernel();
    }
    let architecture = machine.architecture();
    let purpose = if options.release { Purpose::Release } else { Purpose::Development };
    let directory = match architecture {
        Architecture::Amd64 => purpose.directory(),
        Architecture::Arm64 => place::artefacts_for(architecture),
    };
    let artefacts = match (architecture, options.no_build) {
        (_, true) => Artefacts::read_from(&directory).context("leave --no-build out: that makes images")?,
        (Architecture::Amd64, false) => build::build(freshness, own.as_ref(), purpose)?,
        (Architecture::Arm64, false) => build::build_for_arm64(freshness)?,
    };
    start(&machine, &directory, &artefacts)?;
    let state = State::running()?.context("the node ended at once; its log is target/run/serial.log")?;
    if options.detach { wait_for_api(&state) } else { follow(&state) }
}

/// A billetctl that runs here: the one for another machine does not.
fn client(architecture: Architecture, artefacts: &Artefacts) -> Result<PathBuf> {
    match architecture {
        Architecture::Amd64 => Ok(place::repository().join(&artefacts.billetctl)),
        Architecture::Arm64 => programs::compile(&programs::BILLETCTL, &Toolchain::own()),
    }
}

/// Starts this program once more, in a process group of its own.
fn start(options: &machine::Options, images: &Path, artefacts: &Artefacts) -> Result<()> {
    let client = client(options.architecture(), artefacts)?;
    // Not by its path: a later build may have replaced the file.
    let mut helper = Command::new("/proc/self/exe");
    helper
        .arg("start-machine")
        .args(options.arguments())
        .arg("--images")
        .arg(images)
        .arg("--client")
        .arg(client);
    if options.architecture() == Architecture::Amd64 {
        // What accelerators there are is tried with what was built here; there may be no other build.
        helper.env(KERNEL_VARIABLE, place::repository().join(&artefacts.vmlinuz));
    }
    helper.stdin(Stdio::null()).process_group(0);
    step::step("start the machine", || {
        let status = helper.status().context("start the helper process")?;
        ensure!(status.success(), "the machine did not start");
        Ok(())
    })
}

fn wait_for_api(state: &State) -> Result<()> {
    let end = Instant::now() + qemu_tests::deadline(API_LIMIT);
    step::step("boot the node", || {
        while !answers(&state.billetctl()) {
            ensure!(state.alive(), "the node ended; its log is {}", state.console.display());
            ensure!(Instant::now() < end, "the API does not answer; the log is {}", state.console.display());
            std::thread::sleep(CALL_AGAIN);
        }
        Ok(())
    })?;
    print_addresses(state);
    println!("  stop it      cargo xtask stop");
    Ok(())
}

/// Shows the console until the node ends or the user does.
fn follow(state: &State) -> Result<()> {
    let interrupted = watch_for_interrupt()?;
    let console = Console::new(&state.console);
    let answered = ask_beside(state);
    let (mut shown, mut is_printed) = (0, false);
    loop {
        let text = console.text();
        // The log only grows; a character that is half written is shown whole the next time.
        if let Some(new) = text.get(shown..).filter(|new| !new.is_empty()) {
            print!("{new}");
            std::io::stdout().flush().context("write to the terminal")?;
            shown = text.len();
        }
        if !is_printed && answered.load(Ordering::Relaxed) {
            is_printed = true;
            print_addresses(state);
            println!("  Ctrl-C       shuts the node down\n");
        }
        if !state.alive() {
            println!("\nthe node has ended");
            return State::forget();
        }
        if interrupted.load(Ordering::Relaxed) {
            println!("\nshutting the node down; Ctrl-C once more cuts it off");
            interrupted.store(false, Ordering::Relaxed);
            return stop::end(state, &interrupted);
        }
        std::thread::sleep(LOOK);
    }
}

/// Asks the API itself: the console is silent where the command line says `quiet`.
fn answers(client: &Billetctl) -> bool {
    client.run(&["version"]).is_ok_and(|output| output.success)
}

/// Asks until the API answers, beside the console, which a call without an answer would hold up.
fn ask_beside(state: &State) -> Arc<AtomicBool> {
    let answered = Arc::new(AtomicBool::new(false));
    let (told, client) = (Arc::clone(&answered), state.billetctl());
    std::thread::spawn(move || {
        while !answers(&client) {
            std::thread::sleep(CALL_AGAIN);
        }
        told.store(true, Ordering::Relaxed);
    });
    answered
}

fn print_addresses(state: &State) {
    let own = |path: &PathBuf| {
        let here = std::env::current_dir().unwrap_or_default();
        path.strip_prefix(here).unwrap_or(path).display().to_string()
    };
    let (client, config) = (own(&state.client), own(&state.talosconfig));
    println!("\n  API          127.0.0.1:{}", state.api_port);
    println!("  talosconfig  {config}");
    println!("  try          {client} --talosconfig {config} version");
}

/// True once Ctrl-C was pressed.
pub(crate) fn watch_for_interrupt() -> Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("make a runtime")?;
    let seen = Arc::clone(&flag);
    std::thread::spawn(move || {
        runtime.block_on(async {
            while tokio::signal::ctrl_c().await.is_ok() {
                seen.store(true, Ordering::Relaxed);
            }
        });
    });
    Ok(flag)
}
