//! Both sheets against what is registered: names, namespaces, sensitivity, aliases, columns.
//!
//! Does not: look at fields (crates/api/tests/sheets.rs reads the same data file).

use super::*;

const SHEETS: &str = include_str!("../../../api/tests/data/resources.tsv");

/// Type, generation, what differs, and why. A line may go, none may come.
const DIFFERENCES: [(&str, &str, &str, &str); 12] = [
    ("BlockDevices.block.talos.dev", "both", "columns", "the node does not count a device's changes"),
    (
        "ControllerManagerConfigs.kubernetes.talos.dev",
        "both",
        "sensitivity",
        "the environment may have passwords",
    ),
    (
        "ExtraManifestsConfigs.kubernetes.talos.dev",
        "both",
        "sensitivity",
        "the headers with which manifests are downloaded may be passwords",
    ),
    (
        "KernelModuleSpecs.runtime.talos.dev",
        "both",
        "columns",
        "whether the config's module is there, and why not, is in no other type",
    ),
    ("LoadedKernelModules.runtime.talos.dev", "v1.13", "aliases", "v1.14 gave them to KernelModuleStatuses"),
    (
        "Manifests.kubernetes.talos.dev",
        "both",
        "sensitivity",
        "one of them is the bootstrap token, with which any machine joins",
    ),
    ("NodeAddresses.net.talos.dev", "both", "columns", "addresses are sorted one way only"),
    ("SchedulerConfigs.kubernetes.talos.dev", "both", "sensitivity", "the environment may have passwords"),
    ("SecurityStates.talos.dev", "both", "columns", "the node does not know fingerprints of keys"),
    ("StaticPodStatuses.kubernetes.talos.dev", "both", "columns", "the sheets cut the path at a quote"),
    ("TimeServerSpecs.net.talos.dev", "v1.13", "columns", "v1.14 added one"),
    ("TimeServerStatuses.net.talos.dev", "v1.13", "columns", "v1.14 added one"),
];

/// Types under the suffix of the published ones that no sheet has, and why.
const OURS: [(&str, &str); 3] = [
    ("BootstrapStatuses.v1alpha1.talos.dev", "clients of v0.9 ask for it before they upgrade Kubernetes"),
    (
        "KubernetesControlPlaneConfigs.config.talos.dev",
        "the same clients read the version of what runs from it",
    ),
    ("UdevRuleStatuses.files.talos.dev", "device rules have no other status"),
];

/// A line of the sheets.
struct Row {
    generation: &'static str,
    kind: &'static str,
    namespace: &'static str,
    sensitive: bool,
    aliases: Vec<&'static str>,
    columns: &'static str,
}

fn rows() -> Vec<Row> {
    let lines = SHEETS.lines().filter_map(|line| line.strip_prefix("type\t"));
    let row = |line: &'static str| {
        let [generation, kind, namespace, sensitive, _, aliases, columns] =
            line.split('\t').collect::<Vec<_>>()[..]
        else {
            panic!("{line}")
        };
        let aliases = aliases.split(';').filter(|alias| !alias.is_empty()).collect();
        Row { generation, kind, namespace, sensitive: sensitive == "sensitive", aliases, columns }
    };
    lines.map(row).collect()
}

fn differences(row: &Row, kind: &Definition) -> Vec<&'static str> {
    let columns: Vec<_> =
        kind.columns.iter().map(|column| format!("{}={}", column.name, column.path)).collect();
    let names = kind.all_aliases();
    let has = |alias: &&str| names.iter().any(|name| name == alias);
    let differs = [
        ("namespace", kind.namespace != row.namespace),
        ("sensitivity", (kind.sensitivity == Sensitivity::Sensitive) != row.sensitive),
        ("aliases", !row.aliases.iter().all(has)),
        ("columns", columns.join(";") != row.columns),
    ];
    differs.into_iter().filter_map(|(what, differs)| differs.then_some(what)).collect()
}

#[test]
fn every_type_of_the_sheets_is_registered_as_they_say() {
    let rows = rows();
    assert!(rows.len() >= 198, "{}", rows.len());
    let mut found = Vec::new();
    for row in &rows {
        let kind = ALL.iter().find(|kind| kind.kind == row.kind && !kind.internal);
        let kind = kind.unwrap_or_else(|| panic!("{} is not registered", row.kind));
        for what in differences(row, kind) {
            found.push((row.kind, row.generation, what));
        }
    }
    let known: Vec<_> =
        DIFFERENCES.iter().map(|(kind, generation, what, _)| (*kind, *generation, *what)).collect();
    assert_eq!(found, known);
}

#[test]
fn every_type_of_a_published_suffix_is_in_a_sheet() {
    let rows = rows();
    let ours = ALL.iter().filter(|kind| kind.kind.ends_with(".talos.dev") && !kind.internal);
    let unknown: Vec<_> =
        ours.map(|kind| kind.kind).filter(|kind| rows.iter().all(|row| row.kind != *kind)).collect();
    assert_eq!(unknown, OURS.map(|(kind, _)| kind));
}
