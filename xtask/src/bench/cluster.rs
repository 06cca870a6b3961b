//! What a control plane of three nodes bears: seconds until it is there, and until another node has the shared address.
//!
//! Owns: `target/bench/cluster.json` and its part of docs/benchmarks.md.
//! Order: images from the cache in a registry; three control plane nodes as containers; then rounds: the node with the address dies
//! or is stopped, another one has it and answers by it, the node comes back and is a healthy member; last a snapshot.
//! Does not: judge a machine that has other work: figures are of the machine that it ran on.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::{Value, json};

use super::document;
use super::wait::{LIMIT, until};
use crate::build::Artefacts;
use crate::cluster_images::releases::RELEASES;
use crate::command::Cmd;
use crate::commands::cluster::registry;
use crate::place;
use crate::step::{note, step};

const NAME: &str = "bench";
/// This machine, as nodes see it.
const HOST: &str = "10.5.0.1";
const NODES: u32 = 3;
/// What the nodes share.
const SHARED: &str = "10.5.0.254";
const LOOK: Duration = Duration::from_millis(50);
/// The limits, in seconds: all nodes ready, the address after a death and after a leave, a member that came back.
const LIMITS: [f64; 4] = [180.0, 5.0, 1.0, 60.0];
/// By how much machined may grow for a snapshot, in MiB.
const GROWTH_LIMIT: f64 = 8.0;
/// Objects that are written over and over: etcd keeps each version, and the API server keeps the last one.
const OBJECTS: usize = 40;
const OBJECT_BYTES: usize = 1_000_000;
/// Of etcd's data that a snapshot sends.
const SNAPSHOT_BYTES: u64 = 1 << 30;
const MIB: f64 = 1024.0 * 1024.0;

/// Seconds.
struct Cost {
    ready: f64,
    /// Without the address, by rounds: the node died; it was stopped.
    died: Vec<f64>,
    left: Vec<f64>,
    /// From the start of a node to its healthy member, by rounds.
    back: Vec<f64>,
    snapshot: Snapshot,
}

/// A snapshot of etcd that a client asks a node for.
struct Snapshot {
    bytes: u64,
    seconds: f64,
    /// By how much machined's memory grew for it at its highest, in MiB.
    grown: f64,
}

/// `rounds`: deaths and stops each.
pub(super) fn measure(artefacts: &Artefacts, directory: &Path, rounds: u32) -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "nodes that are containers need root: run this as root");
    let state = directory.join("cluster");
    let _ = fs::remove_dir_all(&state);
    let client = place::repository().join(&artefacts.billetctl);
    let run = || cluster(&client, artefacts, &state, rounds);
    let cost = step("make a control plane of three and take nodes from it", run);
    let words = ["cluster", "destroy", "--name", NAME, "--state"];
    let ended = Cmd::new(&client).args(words).arg(&state).run();
    let stopped = registry::end();
    let cost = cost?;
    ended.and(stopped)?;
    document::keep(directory, "cluster", &cost.json())?;
    document::write("cluster", &cost.table(&document::today()?))
}

/// Who asks.
struct Clients<'a> {
    billetctl: &'a Path,
    kubectl: &'a Path,
    state: &'a Path,
}

impl Clients<'_> {
    fn kubectl(&self, words: &[&str]) -> Result<String> {
        self.kubectl_within("3s", words)
    }

    fn kubectl_within(&self, limit: &str, words: &[&str]) -> Result<String> {
        let kubeconfig = self.state.join("kubeconfig");
        let output = Cmd::new(self.kubectl)
            .args([&format!("--request-timeout={limit}"), "--kubeconfig"])
            .arg(&kubeconfig)
            .args(words)
            .output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn billetctl(&self, words: &[&str]) -> Result<String> {
        let output = Cmd::new(self.billetctl)
            .arg("--talosconfig")
            .arg(self.state.join("talosconfig"))
            .args(words)
            .output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn ready(&self) -> Result<usize> {
        let conditions = "jsonpath={.items[*].status.conditions[?(@.type==\"Ready\")].status}";
        Ok(self.kubectl(&["get", "nodes", "-o", conditions])?.matches("True").count())
    }

    /// Whether the member of the node with this number is well.
    fn is_member(&self, number: u32) -> Result<bool> {
        let said = self.billetctl(&["-n", &address(number), "service", "etcd"])?;
        Ok(said.contains("Running") && said.contains("Health check successful"))
    }
}

fn cluster(client: &Path, artefacts: &Artefacts, state: &Path, rounds: u32) -> Result<Cost> {
    let [release, ..] = &RELEASES;
    fs::create_dir_all(place::cluster_directory()).context("create a directory for the registry")?;
    let served = registry::start(release, HOST)?;
    let mirror = format!("*=http://{}", served.address);
    let count = NODES.to_string();
    let create = Cmd::new(client)
        .args([
            "cluster",
            "create",
            "--name",
            NAME,
            "--controlplanes",
            &count,
            "--workers",
            "0",
            "--wait=false",
        ])
        .args(["--kubernetes-version", release.kubernetes, "--registry-mirror", &mirror])
        .arg("--image")
        .arg(place::repository().join(&artefacts.production.installer))
        .arg("--state")
        .arg(state)
        .arg("--talosconfig")
        .arg(state.join("talosconfig"))
        .arg("--kubeconfig")
        .arg(state.join("kubeconfig"));
    let began = Instant::now();
    create.run()?;
    let clients = Clients { billetctl: client, kubectl: &served.kubectl, state };
    let all = usize::try_from(NODES).context("a number of nodes")?;
    until("three nodes are ready", || Ok(clients.ready()? == all))?;
    let ready = began.elapsed().as_secs_f64();
    let (mut died, mut left, mut returned) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        for dies in [true, false] {
            let (without, back) = take_and_give_back(&clients, dies)?;
            let how = if dies { "died" } else { "was stopped" };
            note(&format!(
                "round {}: the node {how}: {without:.2} s without the address; a member again after {back:.1} s",
                round + 1
            ));
            if dies {
                died.push(without)
            } else {
                left.push(without)
            }
            returned.push(back);
        }
    }
    let snapshot = take_snapshot(&clients)?;
    Ok(Cost { ready, died, left, back: returned, snapshot })
}

/// Fills etcd, and has the first node send a snapshot.
fn take_snapshot(clients: &Clients<'_>) -> Result<Snapshot> {
    let objects = clients.state.join("objects");
    let rounds = usize::try_from(SNAPSHOT_BYTES).context("a number of bytes")? / OBJECT_BYTES / OBJECTS + 1;
    for round in 0..=rounds {
        write_objects(&objects, round)?;
        let verb = if round == 0 { "create" } else { "replace" };
        let path = objects.to_string_lossy();
        // A write that another one overtook is made by the next round.
        clients.kubectl_within("60s", &[verb, "-f", &path])?;
    }
    let found = cluster::find(&clients.state.join("clusters"), NAME)?;
    let machined = machined(found.pid(&format!("{NAME}-controlplane-1"))?)?;
    // Its highest amount of memory counts from now on.
    fs::write(format!("/proc/{machined}/clear_refs"), "5").context("reset the highest amount of memory")?;
    let before = memory_kib(machined, "VmRSS:")?;
    let file = clients.state.join("snapshot");
    let began = Instant::now();
    clients.billetctl(&["-n", &address(0), "etcd", "snapshot", &file.to_string_lossy()])?;
    let seconds = began.elapsed().as_secs_f64();
    let grown = memory_kib(machined, "VmHWM:")?.saturating_sub(before);
    let bytes = fs::metadata(&file).context("the snapshot did not come")?.len();
    ensure!(bytes >= SNAPSHOT_BYTES, "the snapshot has {bytes} bytes; {SNAPSHOT_BYTES} were to be sent");
    note(&format!("a snapshot of {bytes} bytes in {seconds:.1} s: machined grew by {grown} KiB"));
    Ok(Snapshot { bytes, seconds, grown: f64::from(u32::try_from(grown)?) / 1024.0 })
}

/// Files of objects, each as large as etcd takes one. Contents that are the same are written all the same.
fn write_objects(directory: &Path, round: usize) -> Result<()> {
    fs::create_dir_all(directory).context("create a directory for objects")?;
    for number in 0..OBJECTS {
        let name = format!("large-{number}");
        let text = format!("{round} {}", "x".repeat(OBJECT_BYTES));
        let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "x": text } });
        fs::write(directory.join(format!("{name}.json")), object.to_string()).context("write an object")?;
    }
    Ok(())
}

/// The process of machined, a child of this init.
fn machined(init: u32) -> Result<u32> {
    let children = fs::read_to_string(format!("/proc/{init}/task/{init}/children"))?;
    let is_machined = |pid: &&str| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim_end() == "machined")
    };
    let found = children.split_whitespace().find(is_machined).context("no machined runs")?;
    found.parse().context("a number of a process")
}

fn memory_kib(process: u32, line: &str) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let number = status.lines().find_map(|text| text.strip_prefix(line)?.split_whitespace().next());
    number.with_context(|| format!("no {line}"))?.parse().context("an amount of memory")
}

/// Ends the node that has the address, and starts it again. Seconds until another one has the address and answers by it, and until
/// the node's member is well again.
fn take_and_give_back(clients: &Clients<'_>, dies: bool) -> Result<(f64, f64)> {
    let mut holder = None;
    until("a node has the address", || {
        holder = holders().first().copied();
        Ok(holder.is_some())
    })?;
    let holder = holder.context("a node has the address")?;
    let container = format!("{NAME}-controlplane-{}", holder + 1);
    let found = cluster::find(&clients.state.join("clusters"), NAME)?;
    // A node that dies says nothing to the others: its processes are gone at once.
    let process = i32::try_from(found.pid(&container)?).ok().and_then(rustix::process::Pid::from_raw);
    let process = process.context("a process of the node")?;
    let without = std::thread::scope(|scope| {
        let ended = scope.spawn(|| match dies {
            true => {
                rustix::process::kill_process(process, rustix::process::Signal::KILL).context("kill a node")
            }
            false => found.stop(&container).context("stop a node"),
        });
        let without = moved(holder)?;
        ended.join().map_err(|_| anyhow!("the node does not end"))??;
        Ok::<_, anyhow::Error>(without)
    })?;
    until("the API answers by the address", || Ok(clients.kubectl(&["get", "--raw", "/readyz"])? == "ok"))?;
    let begin = Instant::now();
    if dies {
        // What is left of the container.
        found.stop(&container)?;
    }
    found.start(&container)?;
    until("the node's member is well", || clients.is_member(holder))?;
    let back = begin.elapsed();
    let all = usize::try_from(NODES).context("a number of nodes")?;
    until("three nodes are ready", || Ok(clients.ready()? == all))?;
    Ok((without.as_secs_f64(), back.as_secs_f64()))
}

/// How long no node has the address, until another one than this has it.
fn moved(from: u32) -> Result<Duration> {
    let (begin, mut last, mut without) = (Instant::now(), Instant::now(), Duration::ZERO);
    loop {
        let now = holders();
        ensure!(now.len() <= 1, "{now:?} have the address");
        if now.is_empty() {
            without += last.elapsed();
        }
        last = Instant::now();
        if now.first().is_some_and(|holder| *holder != from) {
            return Ok(without);
        }
        ensure!(begin.elapsed() < LIMIT, "no other node has the address within {} s", LIMIT.as_secs());
        std::thread::sleep(LOOK);
    }
}

fn address(number: u32) -> String {
    format!("10.5.0.{}", number + 2)
}

/// The nodes, by their numbers, whose kernels have the address.
fn holders() -> Vec<u32> {
    let has_it = |number: &u32| {
        let namespace = format!("{NAME}.{NAME}-controlplane-{}", number + 1);
        let listed =
            Cmd::new("ip").args(["-netns", &namespace, "-4", "-brief", "address", "show", "dev", "eth0"]);
        let text = listed.output().map(|output| output.stdout).unwrap_or_default();
        String::from_utf8_lossy(&text).contains(&format!("{SHARED}/32"))
    };
    (0..NODES).filter(has_it).collect()
}

impl Cost {
    fn json(&self) -> Value {
        let Snapshot { bytes, seconds, grown } = &self.snapshot;
        let snapshot = json!({ "bytes": bytes, "seconds": seconds, "machined_grew_mib": grown });
        json!({
            "ready_s": self.ready, "died_s": self.died, "left_s": self.left, "back_s": self.back, "snapshot": snapshot,
        })
    }

    fn table(&self, today: &str) -> String {
        let [ready, died, left, back] = LIMITS;
        let met = |value: f64, limit: f64| if value <= limit { "met" } else { "**missed**" };
        let row = |what: &str, values: &[f64], limit: f64| {
            let mut sorted = values.to_vec();
            sorted.sort_by(f64::total_cmp);
            let (Some(least), Some(most)) = (sorted.first(), sorted.last()) else { return String::new() };
            let middle = sorted.get(sorted.len() / 2).unwrap_or(most);
            format!(
                "| {what} | {least:.2} | {middle:.2} | {most:.2} | at most {limit}: {} |\n",
                met(*most, limit)
            )
        };
        format!(
            "{today}, {} processors, Kubernetes {}, {} rounds\n\n| three control plane nodes, seconds | least | middle | most | limit \
             |\n|---|---|---|---|---|\n{}{}{}{}\nA snapshot of {:.0} MiB that a client asked for took {:.1} s; machined grew by {:.1} MiB \
             (at most {GROWTH_LIMIT}: {}).\n",
            std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            RELEASES[0].kubernetes,
            self.died.len(),
            row("until all are ready", &[self.ready], ready),
            row("without the shared address, its holder died", &self.died, died),
            row("the same, its holder was stopped", &self.left, left),
            row("from a node's start to its healthy member", &self.back, back),
            self.snapshot.bytes as f64 / MIB,
            self.snapshot.seconds,
            self.snapshot.grown,
            met(self.snapshot.grown, GROWTH_LIMIT),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_longer_once_misses_its_limit() {
        let small = |grown: f64| Snapshot { bytes: SNAPSHOT_BYTES, seconds: 9.0, grown };
        let cost = |died: &[f64]| Cost {
            ready: 90.0,
            died: died.to_vec(),
            left: vec![0.0],
            back: vec![20.0],
            snapshot: small(2.0),
        };
        let table = cost(&[2.0, 4.9, 3.0]).table("today");
        assert!(
            table.contains("| 2.00 | 3.00 | 4.90 | at most 5: met |") && !table.contains("missed"),
            "{table}"
        );
        assert_eq!(cost(&[2.0, 5.1]).table("today").matches("**missed**").count(), 1);
        let grown = Cost { snapshot: small(8.1), ..cost(&[2.0]) };
        assert!(grown.table("today").contains("A snapshot of 1024 MiB that a client asked for took 9.0 s; machined grew by 8.1 MiB (at most 8: **missed**)."));
    }
}
