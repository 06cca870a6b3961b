//! What a cluster on this machine costs: seconds from `cluster create` to pods that find each other by name, memory of its nodes.
//!
//! Owns: `target/bench/kubernetes.json` and its part of docs/benchmarks.md.
//! Order: images from the cache in a registry; [`ROUNDS`] times a node of ours alone and one of kubeadm; then a control plane node and
//! a worker as containers; memory last, after [`SETTLE`] without a change by us.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::document;
use super::kubeadm::{self, Peer};
use super::wait::until;
use crate::build::Artefacts;
use crate::cluster_images::releases::RELEASES;
use crate::command::Cmd;
use crate::commands::cluster::registry;
use crate::place;
use crate::step::step;

const NAME: &str = "bench";
/// Control plane nodes of each kind that start alone.
const ROUNDS: usize = 3;
/// Of the time that a node of kubeadm takes.
const RATIO_LIMIT: f64 = 0.8;
/// This machine, as nodes see it.
const HOST: &str = "10.5.0.1";
/// Programs have what they need by then.
const SETTLE: Duration = Duration::from_secs(20);
/// The issue's limits: seconds to an answered name, MiB of a control plane node with a pod, of a worker, of Billet's own part.
const LIMITS: [f64; 4] = [20.0, 510.0, 275.0, 30.0];
/// Billet's own programs on a node.
const OWN: [&str; 4] = ["init", "machined", "apid", "trustd"];
/// Ends well when the API server answered under the name that the cluster's DNS gives it. The variables, by which a pod finds the API
/// server, hold an address otherwise; with `--server` kubectl would not show the pod's token.
const POD: &str = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "asks"}, "spec": {"restartPolicy": "Never",
    "containers": [{"name": "main", "image": "registry.example.org/kube-proxy:vVERSION", "command": ["kubectl", "get", "--raw=/readyz"],
    "env": [{"name": "KUBERNETES_SERVICE_HOST", "value": "kubernetes.default.svc.cluster.local"}]}]}}"#;

struct Cost {
    /// Seconds since the start of `cluster create`: it has ended (the cluster has begun), both nodes are ready, a pod has asked
    /// for a name and had an answer.
    begun: f64,
    ready: f64,
    answered: f64,
    /// MiB that a node's control group holds and could not give back: of the control plane node, of the worker.
    nodes: [f64; 2],
    /// MiB of Billet's own programs on the control plane node, pages that several share counted in parts.
    own: f64,
}

/// Seconds from the start of a control plane node that is alone until it is ready, in each round.
#[derive(Default)]
struct Alone {
    ours: Vec<f64>,
    kubeadm: Vec<f64>,
}

struct Bench<'a> {
    client: PathBuf,
    artefacts: &'a Artefacts,
    /// Where clusters of ours are.
    state: PathBuf,
    served: registry::Made,
}

pub(super) fn measure(artefacts: &Artefacts, directory: &Path) -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "nodes that are containers need root: run this as root");
    let state = directory.join("kubernetes");
    let _ = fs::remove_dir_all(&state);
    fs::create_dir_all(place::cluster_directory()).context("create a directory for the registry")?;
    let served = registry::start(&RELEASES[0], HOST)?;
    let client = place::repository().join(&artefacts.billetctl);
    let bench = Bench { client, artefacts, state, served };
    let measured = bench.alone().and_then(|alone| Ok((alone, bench.pair()?)));
    let stopped = registry::end();
    let (alone, cost) = measured?;
    stopped?;
    let mut figures = cost.json();
    figures["alone_ready_s"] = json!(alone.ours);
    figures["kubeadm_ready_s"] = json!(alone.kubeadm);
    document::keep(directory, "kubernetes", &figures)?;
    document::write("kubernetes", &(cost.table(&document::today()?) + &alone.table()))
}

impl Bench<'_> {
    fn alone(&self) -> Result<Alone> {
        let registry = self.served.address.to_string();
        let address = format!("{HOST}/24").parse::<::cluster::network::Network>()?.node(0);
        let address = address.context("no address for a node")?;
        let peer = Peer::prepare(self.artefacts, &RELEASES[0], &registry, address, &self.state.join("peer"))?;
        let mut alone = Alone::default();
        for round in 1..=ROUNDS {
            let ours = || self.with_cluster(0, |kubeconfig, began| self.is_ready(kubeconfig, 1, began));
            alone.ours.push(step(&format!("start a node alone, round {round} of {ROUNDS}"), ours)?);
            let theirs = || self.kubeadm(&peer);
            alone.kubeadm.push(step(&format!("start a node of kubeadm, round {round} of {ROUNDS}"), theirs)?);
        }
        Ok(alone)
    }

    fn pair(&self) -> Result<Cost> {
        step("make a cluster and ask in it", || {
            self.with_cluster(1, |kubeconfig, began| self.ask(kubeconfig, began))
        })
    }

    /// Makes a cluster of ours with so many workers, and ends it after `measured`.
    fn with_cluster<T>(
        &self,
        workers: usize,
        measured: impl FnOnce(&Path, Instant) -> Result<T>,
    ) -> Result<T> {
        let kubeconfig = self.state.join("kubeconfig");
        let mirror = format!("*=http://{}", self.served.address);
        let create = Cmd::new(&self.client)
            .args(["cluster", "create", "--name", NAME, "--wait=false", "--workers"])
            .arg(workers.to_string())
            .args(["--kubernetes-version", RELEASES[0].kubernetes, "--registry-mirror", &mirror])
            .args(["--config-patch", "cluster: {allowSchedulingOnControlPlanes: true}"])
            .arg("--image")
            .arg(place::repository().join(&self.artefacts.production.installer))
            .arg("--state")
            .arg(&self.state)
            .arg("--talosconfig")
            .arg(self.state.join("talosconfig"))
            .arg("--kubeconfig")
            .arg(&kubeconfig);
        let began = Instant::now();
        let found = create.run().and_then(|()| measured(&kubeconfig, began));
        let words = ["cluster", "destroy", "--name", NAME, "--state"];
        let ended = Cmd::new(&self.client).args(words).arg(&self.state).run();
        found.and_then(|found| ended.map(|()| found))
    }

    /// Seconds until a node of kubeadm is ready.
    fn kubeadm(&self, peer: &Peer) -> Result<f64> {
        let began = Instant::now();
        let cluster = peer.start(&self.state.join("kubeadm"), NAME)?;
        let kubeconfig = kubeadm::kubeconfig(&cluster);
        let measured = until("kubeadm has ended", || Ok(kubeconfig.exists()))
            .and_then(|()| self.is_ready(&kubeconfig, 1, began))
            .with_context(|| {
                format!("see {}/log", cluster.node_directory(kubeadm::NODE).join("var").display())
            });
        if measured.is_ok() {
            cluster.destroy(&mut |_| {})?;
        }
        measured
    }

    fn kubectl(&self, kubeconfig: &Path, words: &[&str]) -> Result<String> {
        let output =
            Cmd::new(&self.served.kubectl).arg("--kubeconfig").arg(kubeconfig).args(words).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Waits until so many nodes are ready; seconds since `began`.
    fn is_ready(&self, kubeconfig: &Path, nodes: usize, began: Instant) -> Result<f64> {
        let conditions = "jsonpath={.items[*].status.conditions[?(@.type==\"Ready\")].status}";
        let wanted = vec!["True"; nodes].join(" ");
        until(&format!("{nodes} nodes are ready"), || {
            Ok(self.kubectl(kubeconfig, &["get", "nodes", "-o", conditions])?.trim() == wanted)
        })?;
        Ok(began.elapsed().as_secs_f64())
    }

    fn ask(&self, kubeconfig: &Path, began: Instant) -> Result<Cost> {
        let since = || began.elapsed().as_secs_f64();
        let begun = since();
        let ready = self.is_ready(kubeconfig, 2, began)?;
        let pod = self.state.join("pod.json");
        fs::write(&pod, POD.replace("VERSION", RELEASES[0].kubernetes)).context("write the pod")?;
        let path = pod.to_string_lossy().into_owned();
        let kubectl = |words: &[&str]| self.kubectl(kubeconfig, words);
        let dns =
            ["get", "deployment", "coredns", "-n", "kube-system", "-o", "jsonpath={.status.readyReplicas}"];
        until("the cluster has a DNS", || Ok(!kubectl(&dns)?.trim().is_empty()))?;
        // The account that a pod needs comes a moment after the nodes.
        until("a pod is made", || Ok(kubectl(&["apply", "-f", &path])?.contains("pod/asks")))?;
        let phase = ["get", "pod", "asks", "-o", "jsonpath={.status.phase}"];
        until("the pod has its answer", || match kubectl(&phase)?.as_str() {
            // A name that the DNS did not know yet.
            "Failed" => kubectl(&["replace", "--force", "-f", &path]).map(|_| false),
            phase => Ok(phase == "Succeeded"),
        })?;
        let answered = since();
        std::thread::sleep(SETTLE);
        let nodes = [format!("{NAME}-controlplane-1"), format!("{NAME}-worker-1")];
        let [first, second] = nodes.each_ref().map(|node| group_mib(node));
        Ok(Cost { begun, ready, answered, nodes: [first?, second?], own: own_mib(&nodes[0])? })
    }
}

/// What a node's group holds, without file pages that nothing has used for a while: what the kubelet calls its working set.
fn group_mib(node: &str) -> Result<f64> {
    let at = |path: PathBuf| fs::read_to_string(&path).with_context(|| format!("read {}", path.display()));
    let (old, new) = (Path::new("/sys/fs/cgroup/memory/billet"), Path::new("/sys/fs/cgroup/billet"));
    let (group, usage, inactive) = match old.exists() {
        true => (old, "memory.usage_in_bytes", "total_inactive_file"),
        false => (new, "memory.current", "inactive_file"),
    };
    let group = group.join(NAME).join(node);
    let usage: f64 = at(group.join(usage))?.trim().parse().context("a number of bytes")?;
    let inactive = field(&at(group.join("memory.stat"))?, inactive).unwrap_or(0.0);
    Ok((usage - inactive) / f64::from(1 << 20))
}

/// A line `name value`.
fn field(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Proportional memory of Billet's own programs in the network of a node.
fn own_mib(node: &str) -> Result<f64> {
    use std::os::unix::fs::MetadataExt as _;
    let inode = |path: PathBuf| fs::metadata(path).map(|status| status.ino()).ok();
    let network =
        inode(PathBuf::from(format!("/run/netns/{NAME}.{node}"))).context("the node's network is gone")?;
    let mut kib = 0.0;
    for entry in fs::read_dir("/proc").context("list processes")?.flatten() {
        let process = entry.path();
        let words = fs::read(process.join("cmdline")).unwrap_or_default();
        let first = words.split(|byte| *byte == 0).next().unwrap_or_default();
        let name = first.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        if inode(process.join("ns/net")) == Some(network) && OWN.iter().any(|own| own.as_bytes() == name) {
            let text = fs::read_to_string(process.join("smaps_rollup")).unwrap_or_default();
            kib += field(&text, "Pss:").unwrap_or(0.0);
        }
    }
    ensure!(kib > 0.0, "no program of Billet runs on {node}");
    Ok(kib / 1024.0)
}

impl Alone {
    fn table(&self) -> String {
        let (ours, kubeadm) = (middle(&self.ours), middle(&self.kubeadm));
        let ratio = ours / kubeadm;
        let met = if ratio <= RATIO_LIMIT { "met" } else { "**missed**" };
        format!(
            "\n| a control plane node alone, from the start of its container | seconds until it is ready, middle of {} | ratio |\n\
             |---|---|---|\n| Billet | {ours:.1} | {ratio:.2}, at most {RATIO_LIMIT}: {met} |\n| kubeadm | {kubeadm:.1} | |\n",
            self.ours.len()
        )
    }
}

fn middle(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

impl Cost {
    fn json(&self) -> Value {
        json!({
            "begun_s": self.begun, "ready_s": self.ready, "answered_s": self.answered,
            "control_plane_mib": self.nodes[0], "worker_mib": self.nodes[1], "own_mib": self.own,
        })
    }

    fn table(&self, today: &str) -> String {
        let [answered, control_plane, worker, own] = LIMITS;
        let row = |what: &str, value: f64, limit: f64| {
            let met = if value <= limit { "met" } else { "**missed**" };
            format!("| {what} | {value:.1} | at most {limit}: {met} |\n")
        };
        format!(
            "{today}, {} processors, Kubernetes {}\n\n| a cluster of two nodes | value | limit |\n|---|---|---|\n\
             | seconds until it has begun | {:.1} | |\n| seconds until both nodes are ready | {:.1} | |\n{}{}{}{}",
            std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            RELEASES[0].kubernetes,
            self.begun,
            self.ready,
            row(
                "seconds until a pod had an answer under a name of the cluster's DNS",
                self.answered,
                answered
            ),
            row("MiB of the control plane node", self.nodes[0], control_plane),
            row("MiB of the worker", self.nodes[1], worker),
            row("MiB of Billet's own programs on the control plane node", self.own, own),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_or_large_cluster_misses_its_limits() {
        let cost = |answered, own| Cost { begun: 1.0, ready: 2.0, answered, nodes: [500.0, 200.0], own };
        assert!(!cost(19.0, 29.0).table("today").contains("missed"));
        assert_eq!(cost(21.0, 31.0).table("today").matches("**missed**").count(), 2);
        assert_eq!(cost(21.0, 31.0).json()["answered_s"], json!(21.0));
    }

    #[test]
    fn the_middle_of_the_rounds_is_compared() {
        let alone = Alone { ours: vec![9.0, 30.0, 8.0], kubeadm: vec![10.0, 11.0, 12.0] };
        assert!(
            alone.table().contains("| Billet | 9.0 | 0.82, at most 0.8: **missed** |"),
            "{}",
            alone.table()
        );
        let alone = Alone { ours: vec![8.0], kubeadm: vec![10.0] };
        assert!(alone.table().contains("0.80, at most 0.8: met"), "{}", alone.table());
    }

    #[test]
    fn fields_are_found_by_their_whole_name() {
        assert_eq!(field("inactive_file 5\ntotal_inactive_file 7\n", "total_inactive_file"), Some(7.0));
        assert_eq!(field("Pss_Dirty: 1 kB\nPss:   12 kB\n", "Pss:"), Some(12.0));
        assert_eq!(field("", "Pss:"), None);
    }
}
