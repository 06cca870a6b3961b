//! The sheets of published resource types, and what the registry has otherwise: for tests of this crate and of others.
//!
//! Owns: the lines of the sheets, how one is compared with a registered type, and why each difference is there.
//! Does not: look at fields (crates/api/tests/sheets.rs reads the same data file).
//! Source: crates/api/tests/data/resources.tsv.

use super::definition::{Definition, Sensitivity};

/// The data file.
pub const SHEETS: &str = include_str!("../../../api/tests/data/resources.tsv");

/// Type, generation, what differs, and why. A line may go, none may come.
pub const DIFFERENCES: [(&str, &str, &str, &str); 12] = [
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

/// A type as one generation has it, or both.
pub struct Row {
    /// `v1.13`, `v1.14` or `both`.
    pub generation: &'static str,
    /// `<PluralCamel>.<suffix>`.
    pub kind: &'static str,
    /// Where its resources live.
    pub namespace: &'static str,
    /// Whether `os:admin` alone reads it.
    pub sensitive: bool,
    /// Message of the binary form; `-`: none.
    pub message: &'static str,
    /// Short words for it.
    pub aliases: Vec<&'static str>,
    /// `heading=JSONPath`, parted by `;`.
    pub columns: &'static str,
}

/// Every type of the sheets; one that the generations have otherwise is there twice.
pub fn rows() -> Vec<Row> {
    let lines = SHEETS.lines().filter_map(|line| line.strip_prefix("type\t"));
    let row = |line: &'static str| {
        let [generation, kind, namespace, sensitive, message, aliases, columns] =
            line.split('\t').collect::<Vec<_>>()[..]
        else {
            panic!("{line}")
        };
        let aliases = aliases.split(';').filter(|alias| !alias.is_empty()).collect();
        let sensitive = sensitive == "sensitive";
        Row { generation, kind, namespace, sensitive, message, aliases, columns }
    };
    lines.map(row).collect()
}

/// What a registered type has otherwise than the sheets say.
pub fn differences(row: &Row, kind: &Definition) -> Vec<&'static str> {
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
