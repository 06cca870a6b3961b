//! A control plane node that kubeadm makes, beside ours: the same root, containerd, programs, images and network, and a start in common,
//! the start of the node's container.
//!
//! Owns: what lies in that node besides the image's own layer. Its PID 1 is a script (`kubeadm/init.sh`).
//! Does not: tune kubeadm. What it does before the kubelet starts counts, as it does for who types `kubeadm init`.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use ::cluster::{Cluster, spec::Image, spec::NodeSpec};
use anyhow::{Context, Result};
use installer::layer;
use installer::tree::Tree;
use serde_json::json;

use crate::build::Artefacts;
use crate::cache::Cache;
use crate::cluster_images::{self, releases::Release};
use crate::inputs::{Freshness, Inputs};
use crate::place;
use crate::step::step;

pub(super) const NODE: &str = "controlplane";
const INIT: &str = include_str!("kubeadm/init.sh");
const CONFIGURATION: &str = include_str!("kubeadm/kubeadm.yaml");
const BUSYBOX: &str = "busybox-static";
/// The image's own settings of containerd.
const CONTAINERD: &str = "rootfs-overlay/etc/cri/containerd.toml";
const MIRRORS: &str =
    "\n[plugins.\"io.containerd.grpc.v1.cri\".registry]\n  config_path = \"/etc/kubeadm/certs.d\"\n";
/// Fast to write; the node reads it from memory.
const ZSTD_LEVEL: u32 = 1;

/// What a node of kubeadm starts from.
pub(super) struct Peer {
    image: Image,
    address: Ipv4Addr,
}

impl Peer {
    /// Makes the node's files in a directory. `registry` is `ADDRESS:PORT`.
    pub(super) fn prepare(
        artefacts: &Artefacts,
        release: &'static Release,
        registry: &str,
        address: Ipv4Addr,
        directory: &Path,
    ) -> Result<Self> {
        fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))?;
        let files = files(release, registry, address)?;
        let spec = layer::Spec { zstd_level: ZSTD_LEVEL, ..layer::Spec::new("kubeadm", release.kubernetes) };
        let squash = || layer::build(&files, &spec, directory, &mut installer::silent);
        let own = step("squash the layer of a node of kubeadm", || squash().map_err(Into::into))?;
        let init = directory.join("init.sh");
        fs::write(&init, INIT).with_context(|| format!("write {}", init.display()))?;
        let base = artefacts.production.layers.iter().find(|layer| layer.name == "base");
        let base = place::repository().join(&base.context("the build has no base layer")?.file);
        let manifest = place::repository().join(&artefacts.production.manifest);
        let image = Image { layers: vec![base, directory.join(own.file_name())], init, manifest };
        Ok(Self { image, address })
    }

    /// Starts the node.
    pub(super) fn start(&self, state: &Path, name: &str) -> Result<Cluster> {
        let node =
            NodeSpec { name: NODE.to_owned(), address: self.address, is_control_plane: true, config: None };
        let network = format!("{}/24", self.address).parse()?;
        Ok(::cluster::create(state, name, network, self.image.clone(), &[node], &mut |_| {})?)
    }
}

/// Where the node leaves its administrator's credentials when `kubeadm init` has ended.
pub(super) fn kubeconfig(cluster: &Cluster) -> PathBuf {
    cluster.node_directory(NODE).join("var/admin.conf")
}

fn files(release: &'static Release, registry: &str, address: Ipv4Addr) -> Result<Tree> {
    let cache = Cache::open(&place::cache()?)?;
    let mut files = cluster_images::kubelet_files(&cache, Freshness::Day, release)?;
    let mut inputs = Inputs::open(&cache, Freshness::Day)?;
    let packages = inputs.resolve(&[BUSYBOX])?;
    let directories = inputs.unpack(&packages)?;
    let package = directories.get(BUSYBOX).with_context(|| format!("{BUSYBOX} was not unpacked"))?;
    files.file("usr/bin/busybox", 0o755, package.join("usr/bin/busybox"))?;
    let path = place::repository().join(CONTAINERD);
    let settings = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let settings = settings + MIRRORS;
    // Where nodes are adapted to what this machine withholds.
    files.bytes("etc/cri/containerd.toml", 0o644, settings)?;
    let mirror = format!("[host.\"http://{registry}\"]\n  capabilities = [\"pull\", \"resolve\"]\n");
    files.bytes("etc/kubeadm/certs.d/_default/hosts.toml", 0o644, mirror)?;
    files.bytes("etc/kubeadm/kubeadm.yaml", 0o644, configuration(release, address))?;
    files.bytes("etc/kubeadm/network.json", 0o644, network(release)?)?;
    files.bytes("etc/resolv.conf", 0o644, format!("nameserver {}\n", registry_host(registry)))?;
    Ok(files)
}

fn registry_host(registry: &str) -> &str {
    registry.split_once(':').map_or(registry, |(host, _)| host)
}

fn configuration(release: &Release, address: Ipv4Addr) -> String {
    CONFIGURATION
        .replace("ADDRESS", &address.to_string())
        .replace("VERSION", release.kubernetes)
        .replace("ETCD", release.etcd_tag)
        .replace("COREDNS", release.core_dns)
}

/// The network of pods that our nodes have, as one list of objects.
fn network(release: &Release) -> Result<String> {
    let text = format!(
        "version: v1alpha1\nmachine:\n  type: controlplane\n  kubelet: {{image: \"registry.example.org/kubelet:v{}\"}}\ncluster:\n  \
         token: aaaaaa.bbbbbbbbbbbbbbbb\n  controlPlane: {{endpoint: \"https://demo.example.org:6443\"}}\n",
        release.kubernetes
    );
    let config = config::parse(&text).context("a configuration to render from")?;
    let cluster = ::kubernetes::Cluster::new(&config)?;
    let manifests = ::kubernetes::manifests::rendered(&cluster)?;
    let network = manifests.into_iter().find(|manifest| manifest.id == "05-flannel");
    let objects = network.context("no manifest of a network is rendered")?.objects;
    Ok(json!({ "apiVersion": "v1", "kind": "List", "items": objects }).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster_images::releases::RELEASES;

    #[test]
    fn kubeadm_is_told_the_images_that_are_made() {
        let text = configuration(&RELEASES[0], Ipv4Addr::new(10, 5, 0, 2));
        for line in [
            "advertiseAddress: 10.5.0.2,",
            "kubernetesVersion: v1.34.10",
            "imageTag: 3.6.4-0",
            "imageTag: 1.12.4",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }

    #[test]
    fn the_network_of_pods_is_ours() {
        let text = network(&RELEASES[0]).unwrap();
        assert!(text.contains("kube-flannel-cfg") && text.contains("DaemonSet"), "{text}");
    }
}
