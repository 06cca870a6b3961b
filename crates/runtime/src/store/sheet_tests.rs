//! Both sheets against what is registered: names, namespaces, sensitivity, aliases, columns.
//!
//! Does not: look at fields (crates/api/tests/sheets.rs reads the same data file).

use super::sheets::{DIFFERENCES, differences, rows};
use super::*;

/// Types under the suffix of the published ones that no sheet has, and why.
const OURS: [(&str, &str); 3] = [
    ("BootstrapStatuses.v1alpha1.talos.dev", "clients of v0.9 ask for it before they upgrade Kubernetes"),
    (
        "KubernetesControlPlaneConfigs.config.talos.dev",
        "the same clients read the version of what runs from it",
    ),
    ("UdevRuleStatuses.files.talos.dev", "device rules have no other status"),
];

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
