//! Rules of the `cluster` section.

use super::machine::accepted_authorities;
use super::{Problems, text};
use crate::v1alpha1::{Cluster, ClusterNetwork, Config};
use std::collections::BTreeSet;

/// Arguments of etcd that are always set.
const ETCD_ARGS: &[&str] = &[
    "name",
    "data-dir",
    "listen-peer-urls",
    "listen-client-urls",
    "cert-file",
    "key-file",
    "trusted-ca-file",
    "peer-client-cert-auth",
    "peer-cert-file",
    "peer-key-file",
    "peer-trusted-ca-file",
];

pub(super) fn check(config: &Config, problems: &mut Problems) {
    let cluster = &config.cluster;
    if *cluster == Cluster::default() {
        problems.add("cluster", "cluster instructions are required");
    }
    problems.expect("cluster.controlPlane.endpoint", text::api_endpoint(&cluster.control_plane.endpoint));
    if cluster.control_plane.local_api_server_port == Some(0) {
        problems.add("cluster.controlPlane.localAPIServerPort", "port number must be between 1 and 65535");
    }
    let name = &cluster.cluster_name;
    if !name.is_empty() && name.split('.').any(|label| !text::is_label(label)) {
        problems.add("cluster.clusterName", format!("`{name}` is not a DNS name"));
    }
    if let Some(network) = &cluster.network {
        self::network(network, problems);
    }
    for key in cluster.etcd.extra_args.keys().filter(|k| ETCD_ARGS.contains(&k.as_str())) {
        problems.add(format!("cluster.etcd.extraArgs.{key}"), format!("extra arg {key:?} is not allowed"));
    }
    secrets(cluster, problems);
    accepted_authorities("cluster", &cluster.accepted_cas, problems);
    manifests(cluster, problems);
}

fn network(network: &ClusterNetwork, problems: &mut Problems) {
    if let Some(cni) = &network.cni {
        match cni.name.as_str() {
            "" | "flannel" | "none" => {}
            "custom" if cni.urls.is_empty() => {
                let message = "at least one url should be specified if using \"custom\" option for CNI";
                problems.add("cluster.network.cni.urls", message);
            }
            "custom" => {}
            _ => problems.add("cluster.network.cni.name", "cni name should be one of [custom,flannel,none]"),
        }
    }
    let domain = &network.dns_domain;
    if !domain.is_empty() && !text::is_host_name(domain) {
        problems.add("cluster.network.dnsDomain", format!("{domain:?} is not a valid DNS name"));
    }
    for (key, subnets) in [("podSubnets", &network.pod_subnets), ("serviceSubnets", &network.service_subnets)]
    {
        for (index, subnet) in subnets.iter().enumerate() {
            problems.expect(format!("cluster.network.{key}[{index}]"), text::cidr(subnet));
        }
    }
}

fn secrets(cluster: &Cluster, problems: &mut Problems) {
    let keys = [
        ("aescbcEncryptionSecret", &cluster.aescbc_encryption_secret),
        ("secretboxEncryptionSecret", &cluster.secretbox_encryption_secret),
    ];
    for (key, secret) in keys {
        if let Some(secret) = secret.as_ref().filter(|s| !s.is_empty()) {
            problems.expect(format!("cluster.{key}"), text::key_of_32_bytes(secret.expose_secret()));
        }
    }
}

fn manifests(cluster: &Cluster, problems: &mut Problems) {
    let mut names = BTreeSet::new();
    for (index, manifest) in cluster.inline_manifests.iter().enumerate() {
        let field = format!("cluster.inlineManifests[{index}].name");
        if manifest.name.is_empty() {
            problems.add(field, "missing; each manifest needs a name");
        } else if !names.insert(&manifest.name) {
            problems.add(field, format!("inline manifest name {:?} is used twice", manifest.name));
        }
    }
    for (index, url) in cluster.extra_manifests.iter().enumerate() {
        problems.expect(format!("cluster.extraManifests[{index}]"), text::http_url(url));
    }
}
