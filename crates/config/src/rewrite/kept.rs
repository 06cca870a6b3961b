//! What has no counterpart in the other form: named, with the reason.
//!
//! Owns: which fields the v1alpha1 document keeps in the newer form too ([`AT_HOME`]) and why others stay
//! ([`REASONS`]). Fails by: a field without a reason says that no document has it.

use crate::{
    Document,
    documents::Concern,
    schema::{Section, Shape},
    v1alpha1::Config,
    yaml::{self, Node},
};
use std::fmt;

/// Something that stays as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// A field (`machine.install.extraKernelArgs`) or a document (`KubeFlannelCNIConfig`, `VolumeConfig STATE`).
    pub what: String,
    /// Why.
    pub reason: String,
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} stays: {}", self.what, self.reason)
    }
}

impl Kept {
    pub(super) fn document(document: &Document, reason: String) -> Self {
        let what = format!("{} {}", document.kind(), document.name().unwrap_or_default());
        Self { what: what.trim_end().to_owned(), reason }
    }
}

/// Fields that have their place in the v1alpha1 document in both forms.
///
/// Source: what v1.14's schema leaves there (`testdata/documents-v1.14.txt`), and `version`, `debug`, `persist`.
pub(super) const AT_HOME: &[&str] = &[
    "version",
    "debug",
    "persist",
    "machine.type",
    "machine.token",
    "machine.ca",
    "machine.acceptedCAs",
    "machine.certSANs",
    "machine.features.diskQuotaSupport",
    "machine.features.nodeAddressSortAlgorithm",
    "machine.logging",
    "machine.seccompProfiles",
    "cluster.token",
    "cluster.etcd",
    "cluster.externalCloudProvider",
    "cluster.adminKubeconfig",
];

/// Why a field stays where the documents that could be made of its section are made.
pub(super) const REASONS: &[(&str, &str)] = &[
    ("machine.kubelet.extraMounts", "no document has mounts of the kubelet"),
    ("machine.kubelet", "KubeletConfig needs `image`, and goes with `disableManifestsDirectory: true` only"),
    (
        "machine.network.interfaces",
        "LinkConfig has the name, addresses, routes and mtu of a link; the documents for the rest have no effect yet",
    ),
    ("machine.disks", "UserVolumeConfig describes volumes, not the partitions of one disk"),
    ("machine.files", "EtcFileConfig has no effect yet, and no document writes files elsewhere"),
    (
        "machine.install.disk",
        "provisioning.diskSelector of UnattendedInstallConfig takes the name of a device, not a link to one",
    ),
    (
        "machine.install.diskSelector",
        "provisioning.diskSelector of UnattendedInstallConfig is an expression; write it by hand",
    ),
    ("machine.install.image", "UnattendedInstallConfig needs to know the disk"),
    ("machine.install.wipe", "UnattendedInstallConfig needs to know the disk"),
    ("machine.install", "no document says how the installed system is started"),
    ("machine.registries", "a registry without endpoints, certificates and credentials says nothing"),
    ("machine.features.rbac", "always on; no document has it"),
    ("machine.features.apidCheckExtKeyUsage", "always on; no document has it"),
    ("machine.controlPlane", "the part's document needs its image, which the cluster section does not name"),
    ("cluster.controlPlane", "KubeClusterConfig and KubeAPIServerConfig need name, endpoint and image"),
    ("cluster.clusterName", "KubeClusterConfig needs the endpoint too"),
    ("cluster.network.cni", "documents have flannel only"),
    (
        "cluster.aescbcEncryptionSecret",
        "KubeEtcdEncryptionConfig names the key as it stands in etcd; write it by hand",
    ),
    (
        "cluster.secretboxEncryptionSecret",
        "KubeEtcdEncryptionConfig names the key as it stands in etcd; write it by hand",
    ),
    ("cluster.ca", "no document has the key of an accepted CA"),
    ("cluster.acceptedCAs", "no document has the key of an accepted CA"),
    ("cluster.aggregatorCA", "KubeAggregatorCAConfig needs the key"),
    ("cluster.serviceAccount", "KubeServiceAccountConfig names the endpoint, which is not given"),
    ("cluster.apiServer.extraVolumes", "no document has directories of the host in pods"),
    ("cluster.apiServer.disablePodSecurityPolicy", "pod security policies are gone; no document has it"),
    ("cluster.apiServer.authorizationConfig", "KubeAuthorizerConfig has Node, RBAC and Webhook only"),
    ("cluster.apiServer", "KubeAPIServerConfig needs the image"),
    ("cluster.controllerManager", "KubeControllerManagerConfig needs the image, and has no `extraVolumes`"),
    ("cluster.scheduler", "KubeSchedulerConfig needs the image, and has no `extraVolumes`"),
    ("cluster.proxy", "KubeProxyConfig needs the image"),
    ("cluster.id", "DiscoveryIdentityConfig needs the secret too"),
    ("cluster.secret", "DiscoveryIdentityConfig needs the id too"),
    (
        "cluster.discovery",
        "DiscoveryServiceConfig names the endpoint of a server, and no document has Kubernetes as the place to look",
    ),
    ("cluster.podCheckpointer", "a dead setting; no document has it"),
    ("cluster.extraManifestHeaders", "KubeExternalManifestConfig needs an address"),
];

/// What is left in the v1alpha1 document, and why; `refused` are the concerns whose documents would not do.
pub(super) fn sections(own: &Config, refused: &[(&Concern, String)]) -> Vec<Kept> {
    let Ok(text) = crate::write(own, &[]) else { return Vec::new() };
    let mut paths = Vec::new();
    if let Some(root) = yaml::read(&text).documents.first() {
        walk(root, Config::SECTION, "", &mut paths);
    }
    paths.into_iter().map(|what| Kept { reason: reason(&what, refused), what }).collect()
}

fn reason(path: &str, refused: &[(&Concern, String)]) -> String {
    let is_of = |section: &str| is_below(path, section) || is_below(section, path);
    let known = refused.iter().find(|(concern, _)| concern.sections.iter().any(|section| is_of(section)));
    if let Some((concern, why)) = known {
        return format!("as {}: {why}", concern.kinds.join(", "));
    }
    let known = REASONS.iter().filter(|(section, _)| is_below(path, section)).max_by_key(|(s, _)| s.len());
    known.map_or("no document has it", |(_, why)| why).to_owned()
}

/// Whether `path` is `section` or in it.
fn is_below(path: &str, section: &str) -> bool {
    path.strip_prefix(section).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// Adds the fields that are set, each as deep as its sections tell it from others.
fn walk(node: &Node, section: &Section, path: &str, out: &mut Vec<String>) {
    for entry in node.entries() {
        let below = if path.is_empty() { entry.key.clone() } else { format!("{path}.{}", entry.key) };
        // Generated configurations write an empty text for what is not set.
        if AT_HOME.contains(&below.as_str()) || entry.value.text() == Some("") {
            continue;
        }
        let has_deeper = || REASONS.iter().any(|(place, _)| *place != below && is_below(place, &below));
        if REASONS.iter().any(|(place, _)| *place == below) && !has_deeper() {
            out.push(below);
            continue;
        }
        let field = section.fields.iter().find(|field| field.key == entry.key);
        match field.map(|field| (field.shape)()) {
            Some(Shape::Section(inner)) if !entry.value.entries().is_empty() => {
                walk(&entry.value, inner, &below, out);
            }
            _ => out.push(below),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const SHEET: &str = include_str!("../../testdata/documents-v1.14.txt");

    /// Every field of the v1alpha1 document that is no section, by its path.
    fn leaves(section: &Section, path: &str, out: &mut BTreeSet<String>) {
        for field in section.fields {
            let below = if path.is_empty() { field.key.to_owned() } else { format!("{path}.{}", field.key) };
            match (field.shape)() {
                Shape::Section(inner) => leaves(inner, &below, out),
                _ => drop(out.insert(below)),
            }
        }
    }

    #[test]
    fn every_field_is_at_home_or_goes_or_has_a_reason_to_stay() {
        let mut all = BTreeSet::new();
        leaves(Config::SECTION, "", &mut all);
        let places: Vec<_> = AT_HOME
            .iter()
            .chain(REASONS.iter().map(|(place, _)| place))
            .chain(crate::documents::concerns().flat_map(|concern| concern.sections))
            .collect();
        let missing: Vec<_> =
            all.iter().filter(|leaf| !places.iter().any(|place| is_below(leaf, place))).collect();
        assert!(missing.is_empty(), "write documents/unfold.rs or a reason for {missing:?}");
        let unknown: Vec<_> =
            places.iter().filter(|place| !all.iter().any(|leaf| is_below(leaf, place))).collect();
        assert!(unknown.is_empty(), "there is no field {unknown:?}");
    }

    #[test]
    fn at_home_is_what_the_newer_schema_leaves_there() {
        let fields = |name: &str| -> Vec<&str> {
            let lines = SHEET.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            lines.filter_map(|line| Some(line.split(' ').next()?.trim_end_matches('!'))).collect()
        };
        let mut published: BTreeSet<String> = ["version", "debug", "persist"].map(str::to_owned).into();
        for (name, path) in [
            ("v1alpha1.MachineConfig", "machine"),
            ("v1alpha1.FeaturesConfig", "machine.features"),
            ("v1alpha1.ClusterConfig", "cluster"),
        ] {
            published.extend(fields(name).iter().map(|field| format!("{path}.{field}")));
        }
        published.remove("machine.features");
        assert_eq!(published, AT_HOME.iter().map(|path| (*path).to_owned()).collect());
    }
}
