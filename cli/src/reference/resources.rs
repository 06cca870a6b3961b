//! The part of docs/compatibility.md on resources.
//!
//! Owns: what the node makes of each published type, from its own registry (`runtime::store::ALL`): whether something writes
//! it, who reads it, and what it has otherwise than the published definition; which generation has a type, from the sheets
//! (crates/api/tests/data/resources.tsv).

use super::named;
use runtime::store::{
    ALL, Definition, Sensitivity,
    sheets::{self, DIFFERENCES, SHEETS},
};
use std::collections::{BTreeMap, BTreeSet};

/// What each word of the table's last column stands for.
pub(super) const TESTS: [(&str, &str); 3] = [
    (
        "typed",
        "service-manager/src/server/typed_tests.rs::a_client_of_binary_forms_alone_sees_every_value_of_every_type",
    ),
    ("roles", "service-manager/src/server/typed_tests.rs::sensitive_types_are_read_by_administrators_alone"),
    ("sheet", "crates/runtime/src/store/sheet_tests.rs::every_type_of_the_sheets_is_registered_as_they_say"),
];

/// Heading and first lines.
pub(super) fn head() -> String {
    let [typed, roles, sheet] = TESTS.map(|(_, test)| named(test));
    format!(
        "\n## Resources\n\n\
         Every published type is registered. Namespace, columns, aliases and sensitivity are those of v1.14, but for what the \
         column *otherwise* names with the reason. *has its facts*: something of the node writes it; *empty*: nothing does, \
         `get` prints the heading and a watch waits. *changed*: v1.14 added to the type, all of which a client of v1.13 skips. \
         Tests: *typed* is {typed}, *sheet* is {sheet}; fields of both are in \
         `crates/api/tests/sheets.rs::every_type_field_and_value_of_the_sheets_is_ours`, readers in {roles}.\n\n\
         | type | v1.13 | v1.14 | node | readers | otherwise | test |\n|---|---|---|---|---|---|---|\n"
    )
}

/// A published type.
struct Resource {
    in_older: bool,
    changed: bool,
    /// As the node has it.
    kind: &'static Definition,
    /// What that has otherwise than v1.14.
    otherwise: Vec<&'static str>,
}

impl Resource {
    fn line(&self) -> String {
        let older = if self.in_older { "yes" } else { "–" };
        let newer = match (self.in_older, self.changed) {
            (false, _) => "new",
            (true, true) => "changed",
            (true, false) => "yes",
        };
        let readers = match self.kind.sensitivity {
            Sensitivity::Sensitive => "`os:admin`",
            Sensitivity::NonSensitive => "all roles",
        };
        let (state, test) =
            if self.kind.writer.is_empty() { ("empty", "sheet") } else { ("has its facts", "typed") };
        let otherwise: Vec<_> = self.otherwise.iter().map(|what| self.reason(what)).collect();
        let otherwise = if otherwise.is_empty() { "–".to_owned() } else { otherwise.join("; ") };
        let name = self.kind.kind;
        format!("| `{name}` | {older} | {newer} | {state} | {readers} | {otherwise} | {test} |")
    }

    fn reason(&self, what: &str) -> String {
        let mut known = DIFFERENCES.iter().filter(|(_, generation, ..)| *generation != "v1.13");
        let (.., reason) = known
            .find(|(kind, _, differs, _)| (*kind, *differs) == (self.kind.kind, what))
            .unwrap_or_else(|| panic!("no reason is listed why {} differs in {what}", self.kind.kind));
        format!("{what}: {reason}")
    }
}

/// Every published type, sorted by name; of one that both generations have otherwise the newer line counts.
fn resources() -> Vec<Resource> {
    let fields = SHEETS.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let changed: BTreeSet<&str> =
        fields.filter(|cells| cells[0] == "field" && cells[1] != "both").map(|cells| cells[2]).collect();
    let mut found = BTreeMap::<&str, Resource>::new();
    for row in sheets::rows() {
        let kind = ALL.into_iter().find(|kind| kind.kind == row.kind);
        let kind = kind.unwrap_or_else(|| panic!("{} is not registered", row.kind));
        let was = found.contains_key(row.kind);
        let resource = Resource {
            in_older: was || row.generation != "v1.14",
            changed: was || changed.contains(row.message),
            kind,
            otherwise: sheets::differences(&row, kind),
        };
        found.insert(row.kind, resource);
    }
    found.into_values().collect()
}

/// One line for each type.
pub(super) fn lines() -> Vec<String> {
    resources().iter().map(Resource::line).collect()
}

/// The cells of a type on a page.
fn cells<'a>(page: &'a str, kind: &str) -> Vec<&'a str> {
    let start = format!("| `{kind}` |");
    let line = page.lines().find(|line| line.starts_with(&start));
    let line = line.unwrap_or_else(|| panic!("{kind} is not on the page; BILLET_BLESS=1 writes it anew"));
    line.trim_matches('|').split('|').map(str::trim).collect()
}

#[test]
fn every_resource_type_is_on_the_page_as_the_registry_has_it() {
    let page = super::blessed("docs/compatibility.md", &super::compatibility());
    let mut written = 0;
    let published = |kind: &&&Definition| api::definitions::published().iter().any(|p| p.kind == kind.kind);
    for kind in ALL.iter().filter(published) {
        let cells = cells(&page, kind.kind);
        let (state, test) =
            if kind.writer.is_empty() { ("empty", "sheet") } else { ("has its facts", "typed") };
        let readers = if kind.sensitivity == Sensitivity::Sensitive { "`os:admin`" } else { "all roles" };
        assert_eq!([cells[3], cells[4], cells[6]], [state, readers, test], "{}", kind.kind);
        written += usize::from(!kind.writer.is_empty());
    }
    assert!(written > 100, "{written}");
    for line in lines() {
        assert!(page.contains(&line), "{line} is not on the page; BILLET_BLESS=1 writes it anew");
    }
    assert!(lines().len() >= 195);
}

/// The definitions of these are written in more than one line, or say only a part themselves.
#[test]
fn types_are_told_however_their_definition_is_written() {
    let page = super::compatibility();
    for (kind, readers) in [
        ("AdmissionControlConfigs.kubernetes.talos.dev", "all roles"),
        ("AuthorizationConfigs.kubernetes.talos.dev", "`os:admin`"),
        ("BootstrapManifestsConfigs.kubernetes.talos.dev", "all roles"),
        ("ControllerManagerConfigs.kubernetes.talos.dev", "`os:admin`"),
        ("ExtraManifestsConfigs.kubernetes.talos.dev", "`os:admin`"),
        ("Manifests.kubernetes.talos.dev", "`os:admin`"),
        ("SchedulerConfigs.kubernetes.talos.dev", "`os:admin`"),
    ] {
        assert_eq!(cells(&page, kind)[3..5], ["has its facts", readers], "{kind}");
    }
    let columns = cells(&page, "NodeAddresses.net.talos.dev")[5];
    assert_eq!(columns, "columns: addresses are sorted one way only");
    // That an older generation has it otherwise is no difference from the newer one.
    assert_eq!(cells(&page, "TimeServerSpecs.net.talos.dev")[5], "–");
}
