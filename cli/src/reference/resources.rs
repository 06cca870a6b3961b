//! The part of docs/compatibility.md on resources.
//!
//! Owns: what the node makes of each published type, from its own registry (`runtime::store::ALL`): whether something writes
//! it, who reads it, and what it has otherwise than the published definition; which generation has a type, from the sheets
//! (crates/api/tests/data/resources.tsv).

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
    let [typed, roles, sheet] = TESTS.map(|(_, test)| format!("`{test}`"));
    format!(
        "\n## Resources\n\n\
         Every published type is registered. Namespace, columns, aliases and sensitivity are those of v1.14, but for what the \
         column *otherwise* names with the reason. *has its facts*: something of the node writes it; *empty*: nothing does, \
         `get` prints the heading and a watch waits. `CPUStats` and `MemoryStats` are empty on purpose: they change all the time, \
         and a node keeps the last hundred changes of a type in memory; the calls `SystemStat` and `Memory` have the same figures. \
         `RegistryConfigs` is empty because the sheets do not say how its binary form is made. *changed*: v1.14 added to the type, all of which a client of v1.13 skips. \
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
