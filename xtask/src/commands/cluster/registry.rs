//! A registry on this machine with every image that a cluster pulls: a process of its own, as long as the cluster lives.
//!
//! Owns: its process, by number and start time (`registry.json`).
//! Order: it waits for its address, which the cluster's bridge brings, and serves until it is ended.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use oci::server::{Behaviour, Server};
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};

use crate::cache::Cache;
use crate::cluster_images::{self, releases::Release};
use crate::commands::run::state::start_time;
use crate::inputs::Freshness;
use crate::place;

const PORT: u16 = 5000;
/// From the start of `cluster create` to the network of its nodes.
const ADDRESS_LIMIT: Duration = Duration::from_secs(600);
/// Between two looks for the address.
const LOOK: Duration = Duration::from_millis(100);

/// What nodes and people use of it.
pub(crate) struct Made {
    pub(crate) address: SocketAddr,
    pub(crate) kubectl: PathBuf,
}

/// `serve-images`: what [`start`] starts.
#[derive(Debug, clap::Args)]
pub(crate) struct Serve {
    /// Where it answers.
    address: SocketAddr,
    /// A list of images as JSON.
    list: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct Archive {
    repository: String,
    tag: String,
    archive: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct State {
    pid: i32,
    /// Start time of the process: another one may get its number later.
    started: u64,
}

/// Makes the images and starts the registry. An earlier one ends.
pub(crate) fn start(release: &'static Release, host: &str) -> Result<Made> {
    let cache = Cache::open(&place::cache()?)?;
    let images = cluster_images::make(&cache, Freshness::Day, release)?;
    let program = cluster_images::kubernetes(&cache, Freshness::Day, release)?;
    let list: Vec<_> = images
        .into_iter()
        .map(|image| Archive {
            repository: image.repository.to_owned(),
            tag: image.tag,
            archive: image.archive,
        })
        .collect();
    let path = place::cluster_directory().join("images.json");
    write(&path, &serde_json::to_vec_pretty(&list)?)?;
    end()?;
    let address: SocketAddr = format!("{host}:{PORT}").parse().context("the registry's address")?;
    let log_path = place::cluster_directory().join("registry.log");
    let log = File::create(&log_path).with_context(|| format!("create {}", log_path.display()))?;
    let mut command = Command::new("/proc/self/exe");
    command.arg("serve-images").arg(address.to_string()).arg(&path).stdin(Stdio::null()).process_group(0);
    let child = command.stdout(log.try_clone()?).stderr(log).spawn().context("start the registry")?;
    let pid = i32::try_from(child.id()).context("the registry's process id")?;
    let started = start_time(pid).context("the registry ended at once")?;
    write(&state(), &serde_json::to_vec(&State { pid, started })?)?;
    Ok(Made { address, kubectl: kubectl(&program)? })
}

/// The program is kubectl by its name.
fn kubectl(program: &Path) -> Result<PathBuf> {
    let link = place::cluster_directory().join("kubectl");
    if link.is_symlink() {
        fs::remove_file(&link).with_context(|| format!("remove {}", link.display()))?;
    }
    symlink(program, &link).with_context(|| format!("create {}", link.display()))?;
    Ok(link)
}

/// Serves until somebody ends the process.
pub(crate) fn serve(options: &Serve) -> Result<()> {
    let text = fs::read(&options.list).with_context(|| format!("read {}", options.list.display()))?;
    let images: Vec<Archive> = serde_json::from_slice(&text).context("parse the list of images")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let begin = Instant::now();
    let server = loop {
        match runtime.block_on(Server::start_at(options.address, None, Behaviour::default())) {
            Ok(server) => break server,
            Err(error) => ensure!(begin.elapsed() < ADDRESS_LIMIT, "no address {}: {error}", options.address),
        }
        std::thread::sleep(LOOK);
    };
    for image in images {
        server.serve(&image.archive, &image.repository, &image.tag)?;
    }
    runtime.block_on(std::future::pending())
}

/// Ends the registry, if the process is the one that was started.
pub(crate) fn end() -> Result<()> {
    let Ok(text) = fs::read(state()) else { return Ok(()) };
    let state: State = serde_json::from_slice(&text).context("parse the registry's state")?;
    if start_time(state.pid) != Some(state.started) {
        return Ok(());
    }
    let Some(pid) = Pid::from_raw(state.pid) else { return Ok(()) };
    rustix::process::kill_process(pid, Signal::TERM).context("end the registry")
}

fn state() -> PathBuf {
    place::cluster_directory().join("registry.json")
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).with_context(|| format!("write {}", path.display()))
}
