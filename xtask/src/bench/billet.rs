//! Billet in the exact machine: the production image from the initramfs, with a config volume, up to its API.
//!
//! Owns: the node's config and keys, made once for all runs; the split of the time into its programs.
//! Order: plain runs, the traced run, one run whose API is asked for the node's own timeline, which also shows that
//! the line that ends the measurement is true.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use api::generate::{Request, Secrets};
use qemu_tests::cli::Billetctl;
use qemu_tests::config_volume;
use qemu_tests::node::{API_PORT, READY_LINE};
use serde::Deserialize;

use super::guest::Guest;
use super::measure::{self, Cost};
use crate::build::Artefacts;
use crate::place;
use crate::step::step;

/// init's phases that make the root; see `cargo xtask plan`.
const ROOT_PHASES: [&str; 2] = ["root", "switch"];

/// The API answers at once after its ready line; a busy host may need its time.
const CALL_LIMIT: Duration = Duration::from_secs(120);

/// Between two calls.
const CALL_AGAIN: Duration = Duration::from_millis(200);

/// What the boot of a node costs.
#[derive(Debug)]
pub(crate) struct BootCost {
    pub(crate) cost: Cost,
    pub(crate) split: Split,
    /// One entry a task, in order of their start.
    pub(crate) timeline: Vec<Bar>,
}

/// The whole span in consecutive parts, in instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Split {
    /// From the kernel's start of init to the start of machined, without the root.
    pub(crate) init: u64,
    /// Of init's: verity, mounts, overlay, switch.
    pub(crate) root_assembly: u64,
    /// From its start to the start of apid.
    pub(crate) machined: u64,
    /// From its start to readiness; machined and others run at the same time.
    pub(crate) apid: u64,
}

/// A row of `billetctl boot -o json`.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Bar {
    pub(crate) source: String,
    pub(crate) phase: String,
    pub(crate) task: String,
    #[serde(rename = "startNs")]
    pub(crate) start_ns: u64,
    #[serde(rename = "durationNs")]
    pub(crate) duration_ns: u64,
}

/// Keys and a config for a node that only this measurement knows.
pub(super) struct Config {
    secrets: Secrets,
    volume: PathBuf,
}

impl Config {
    pub(super) fn make(directory: &Path) -> Result<Self> {
        let secrets = Secrets::generate().context("make keys")?;
        let config = secrets.machine_config(&request(0), config::MachineType::ControlPlane)?;
        let volume = config_volume::write(&directory.join("config.img"), config.expose_secret())?;
        Ok(Self { secrets, volume })
    }

    pub(super) fn volume(&self) -> &Path {
        &self.volume
    }

    /// billetctl for the node behind that port of this host.
    pub(super) fn client(&self, directory: &Path, port: u16) -> Result<Billetctl> {
        let path = directory.join("talosconfig");
        let lifetime = api::pki::Lifetime::from_now(api::pki::CA_LIFETIME);
        self.secrets.talosconfig(&request(port), Some(api::roles::Role::Admin), lifetime)?.save(&path)?;
        Ok(Billetctl::new(&path))
    }
}

fn request(port: u16) -> Request {
    Request {
        cluster_name: "bench".into(),
        endpoint: "https://10.0.2.15:6443".into(),
        cert_sans: vec!["127.0.0.1".into(), "localhost".into()],
        hostname: Some("bench".into()),
        api_endpoints: vec![format!("127.0.0.1:{port}")],
        api_nodes: Vec::new(),
    }
}

pub(crate) fn measure(artefacts: &Artefacts, directory: &Path, runs: u32) -> Result<BootCost> {
    let config = Config::make(directory)?;
    let root = place::repository();
    let guest = Guest {
        name: "billet".to_owned(),
        kernel: root.join(&artefacts.vmlinuz),
        initramfs: root.join(&artefacts.production.initramfs_full),
        command_line: artefacts.memory_cmdline(),
        drives: vec![config.volume.clone()],
        ready: READY_LINE,
    };
    let cost = measure::cost(&guest, directory, runs)?;
    let timeline = step("boot billet and ask for its timeline", || timeline(&guest, &config, directory))?;
    let split = split(&cost.executed, cost.traced, &timeline)?;
    Ok(BootCost { cost, split, timeline })
}

fn timeline(guest: &Guest, config: &Config, directory: &Path) -> Result<Vec<Bar>> {
    let booted = guest.boot(directory, Some(API_PORT))?;
    let client = config.client(directory, booted.port()?)?;
    let text = answer(&client, &["boot", "-o", "json"])?;
    let mut bars: Vec<Bar> = serde_json::from_str(&text).context("parse the boot timeline")?;
    bars.sort_by_key(|bar| bar.start_ns);
    Ok(bars)
}

/// Calls until there is an answer.
pub(super) fn answer(client: &Billetctl, words: &[&str]) -> Result<String> {
    let end = Instant::now() + CALL_LIMIT;
    loop {
        match client.ok(words) {
            Ok(text) => return Ok(text),
            Err(error) if Instant::now() > end => {
                return Err(error).with_context(|| format!("the API did not answer within {CALL_LIMIT:?}"));
            }
            Err(_) => std::thread::sleep(CALL_AGAIN),
        }
    }
}

/// Starts of programs are the trace's, so that nobody's own account is taken for it.
fn split(executed: &BTreeMap<String, u64>, whole: u64, timeline: &[Bar]) -> Result<Split> {
    let at = |program: &str| {
        executed.get(program).copied().with_context(|| format!("{program} was never executed"))
    };
    let (machined, apid) = (at("machined")?, at("apid")?);
    let in_root = |bar: &&Bar| bar.source == "init" && ROOT_PHASES.contains(&bar.phase.as_str());
    let root_assembly = timeline.iter().filter(in_root).map(|bar| bar.duration_ns).sum();
    if !(root_assembly <= machined && machined <= apid && apid <= whole) {
        bail!("parts out of order: root {root_assembly}, machined {machined}, apid {apid}, whole {whole}");
    }
    Ok(Split { init: machined - root_assembly, root_assembly, machined: apid - machined, apid: whole - apid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_to_the_whole() {
        let bar = |source: &str, phase: &str, duration_ns| Bar {
            source: source.into(),
            phase: phase.into(),
            task: String::new(),
            start_ns: 0,
            duration_ns,
        };
        let timeline = [
            bar("init", "root", 30),
            bar("init", "modules", 5),
            bar("init", "switch", 10),
            bar("machined", "root", 9),
        ];
        let executed = BTreeMap::from([("machined".to_owned(), 100), ("apid".to_owned(), 150)]);
        let split = split(&executed, 220, &timeline).unwrap();
        assert_eq!(split, Split { init: 60, root_assembly: 40, machined: 50, apid: 70 });
        assert!(super::split(&executed, 149, &timeline).is_err(), "apid started before the end");
        assert!(super::split(&BTreeMap::new(), 220, &timeline).is_err());
    }
}
