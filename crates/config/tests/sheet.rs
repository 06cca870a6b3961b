//! The schema against that of the published interface: kinds, fields, types, allowed values, in both directions.
//!
//! A config of either generation is read, so a field of one of them is enough.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::collections::BTreeSet;

use common::published::{Sheet, sheet};
use config::{
    Config, Document,
    schema::{Section, Shape},
};

/// What is different, and why; `*` stands for the place of a part that several documents have. The test fails for one that is
/// not listed and for a line that is no difference any more.
const DIFFERENCES: &[(&str, &str)] = &[
    ("*.routes.type: not published", "blackhole routes, which v1.12 has"),
    ("*.encryption.keys.recovery: not published", "recovery keys are ours (docs/decisions/0011)"),
    (
        "*.encryption.options: string is published, this is no_read_workqueue|no_write_workqueue|same_cpu_crypt",
        "the words that the mapping takes",
    ),
    (
        "ContainerConfig.dependsOn.networks: addresses|connectivity|hostname|etcfiles is published, this is a list of text",
        "the published words are those of an entry",
    ),
    (
        "ContainerConfig.mounts.userVolume.options: ro|rw|noexec|nosuid|nodev|noatime|rbind|rshared is published, this is a list of text",
        "the published words are those of an entry",
    ),
    ("ExternalVolumeConfig.filesystemType: virtiofs is published, this is text", "the feature is not built"),
    ("ImageVerificationConfig: not published", "missing in the published schema, and there all the same"),
    (
        "NetworkRuleConfig.portSelector.ports: any is published, this is text",
        "numbers and ranges, both read as text",
    ),
    (
        "RoutingRuleConfig.action: integer is published, this is unicast|blackhole|unreachable|prohibit",
        "clients write words",
    ),
    ("SideroLinkConfig.tunnel: not published", "written by clients, missing in the published schema"),
    (
        "v1alpha1.cluster.acceptedCAs: object is published, this is a list of CertificateAndKey",
        "clients write a list",
    ),
    (
        "v1alpha1.machine.acceptedCAs: object is published, this is a list of CertificateAndKey",
        "clients write a list",
    ),
    (
        "v1alpha1.cluster.network.cni.name: flannel|custom|none is published, this is text",
        "checked by a rule with the client's own text",
    ),
    (
        "v1alpha1.machine.install.diskSelector.type: ssd|hdd|nvme|sd is published, this is text",
        "checked where the disk is chosen",
    ),
    (
        "v1alpha1.machine.logging.destinations.endpoint: a v1alpha1.Endpoint is published, this is text",
        "a URL, written as text",
    ),
    (
        "v1alpha1.machine.logging.destinations.format: json_lines is published, this is text",
        "checked by a rule",
    ),
    (
        "v1alpha1.machine.type: controlplane|worker is published, this is controlplane|worker|init|join",
        "the first generation has init and join",
    ),
    ("v1alpha1.version: v1alpha1 is published, this is text", "checked by a rule"),
    ("v1alpha1.cluster.allowSchedulingOnMasters: not published", "older configs have it"),
    ("v1alpha1.cluster.apiServer.disablePodSecurityPolicy: not published", "older configs have it"),
    ("v1alpha1.cluster.etcd.subnet: not published", "older configs have it"),
    ("v1alpha1.cluster.podCheckpointer: not published", "older configs have it"),
    ("v1alpha1.machine.disks: not published", "older configs have it"),
    ("v1alpha1.machine.env: not published", "older configs have it"),
    ("v1alpha1.machine.features.apidCheckExtKeyUsage: not published", "older configs have it"),
    ("v1alpha1.machine.features.rbac: not published", "older configs have it"),
    ("v1alpha1.machine.features.stableHostname: not published", "older configs have it"),
    ("v1alpha1.machine.install.bootloader: not published", "older configs have it"),
    ("v1alpha1.machine.install.extensions: not published", "older configs have it"),
    ("v1alpha1.machine.install.extraKernelArgs: not published", "older configs have it"),
    ("v1alpha1.machine.network: not published", "older configs have it"),
    ("v1alpha1.machine.registries: not published", "older configs have it"),
    ("v1alpha1.machine.systemDiskEncryption: not published", "older configs have it"),
    ("v1alpha1.machine.time: not published", "older configs have it"),
    ("v1alpha1.persist: not published", "older configs have it"),
];

struct Walk {
    sheet: Sheet,
    found: BTreeSet<String>,
}

impl Walk {
    /// Compares a section with the published document or part of this name.
    fn section(&mut self, at: &str, part: &str, section: &Section) {
        let Some(fields) = self.sheet.get(part).cloned() else {
            self.found.insert(format!("{at}: not published"));
            return;
        };
        for field in section.fields {
            let below = format!("{at}.{}", field.key);
            match fields.get(field.key) {
                Some(published) => self.value(&below, &published.kind, &(field.shape)()),
                None => drop(self.found.insert(format!("{below}: not published"))),
            }
        }
        for key in fields.keys().filter(|key| !section.fields.iter().any(|field| field.key == key.as_str())) {
            self.found.insert(format!("{at}.{key}: not known here"));
        }
    }

    fn value(&mut self, at: &str, kind: &str, shape: &Shape) {
        if self.sheet.contains_key(kind) {
            match shape {
                Shape::Section(section) => self.section(at, kind, section),
                _ => drop(self.found.insert(format!("{at}: a {kind} is published, this is {}", name(shape)))),
            }
            return;
        }
        if let (Some(item), Shape::List(inner)) = (kind.strip_suffix("[]"), shape) {
            return self.value(at, item, inner);
        }
        if let (Some(value), Shape::Map(inner)) =
            (kind.strip_prefix("map<").and_then(|kind| kind.strip_suffix('>')), shape)
        {
            return self.value(at, value, inner);
        }
        let fits = match shape {
            Shape::Single("true or false", _) => kind == "boolean",
            Shape::Single("whole number", _) => kind == "integer",
            Shape::Single("file mode, octal", _) => kind == "integer",
            Shape::Single(..) => kind == "string",
            Shape::Choice(words) => {
                let published: BTreeSet<_> = kind.split('|').collect();
                published == words.iter().copied().collect()
            }
            // Free forms are published as objects.
            Shape::Any | Shape::Section(_) | Shape::Map(_) => matches!(kind, "object"),
            Shape::List(_) => false,
        };
        if !fits {
            self.found.insert(format!("{at}: {kind} is published, this is {}", name(shape)));
        }
    }
}

fn name(shape: &Shape) -> String {
    match shape {
        Shape::Single(name, _) => (*name).to_owned(),
        Shape::Choice(words) => words.join("|"),
        Shape::Section(section) => section.name.to_owned(),
        Shape::List(inner) => format!("a list of {}", name(inner)),
        Shape::Map(inner) => format!("a mapping to {}", name(inner)),
        Shape::Any => "anything".to_owned(),
    }
}

#[test]
fn every_published_document_and_field_is_known_and_no_other() {
    let mut walk = Walk { sheet: sheet(), found: BTreeSet::new() };
    walk.section("v1alpha1", "v1alpha1.Config", Config::SECTION);
    for (kind, section) in Document::KINDS {
        walk.section(kind, kind, section);
    }
    let kinds: BTreeSet<_> = Document::KINDS.iter().map(|(kind, _)| *kind).collect();
    let documents = walk.sheet.keys().filter(|name| !name.contains('.'));
    let unknown: Vec<_> = documents.filter(|name| !kinds.contains(name.as_str())).cloned().collect();
    walk.found.extend(unknown.into_iter().map(|kind| format!("{kind}: not known here")));
    let is = |listed: &str, found: &str| match listed.strip_prefix('*') {
        Some(end) => found.ends_with(end),
        None => found == listed,
    };
    let is_listed = |found: &&String| DIFFERENCES.iter().any(|(listed, _)| is(listed, found));
    let new: Vec<_> = walk.found.iter().filter(|found| !is_listed(found)).collect();
    let is_gone = |listed: &&str| !walk.found.iter().any(|found| is(listed, found));
    let gone: Vec<_> = DIFFERENCES.iter().map(|(listed, _)| *listed).filter(is_gone).collect();
    assert!(new.is_empty() && gone.is_empty(), "not listed: {new:#?}; no difference any more: {gone:#?}");
    assert!(DIFFERENCES.iter().all(|(_, why)| !why.is_empty()));
}
