//! The part of docs/compatibility.md on config documents.
//!
//! Owns: which generation has a kind, from the sheets' facts (crates/config/testdata/documents-v1.13.txt, -v1.14.txt);
//! what it does here and which section says the same, from the schema and `config::rewrite`; its test, from the register of
//! fields (crates/config/testdata/fields.txt).

use config::{
    Document, documents, rewrite,
    schema::{Section, Shape},
};
use std::collections::BTreeSet;

const OLDER: &str = include_str!("../../../crates/config/testdata/documents-v1.13.txt");
const NEWER: &str = include_str!("../../../crates/config/testdata/documents-v1.14.txt");
const FIELDS: &str = include_str!("../../../crates/config/testdata/fields.txt");

/// Kinds of v1.13 that its published schema lacks.
const UNPUBLISHED: [&str; 1] = ["ImageVerificationConfig"];

/// What each word of the table's last column stands for.
pub(super) const TESTS: [(&str, &str); 2] = [
    ("named", "crates/config/tests/fields.rs::each_kind_without_effect_is_named_in_a_warning"),
    ("moved", "crates/config/tests/rewrite.rs::each_kind_becomes_a_section_and_comes_back"),
];

pub(super) const HEAD: &str = "\n## Config documents\n\n\
    Every kind is read with all fields of both generations, and a field that no generation has is refused \
    (`crates/config/tests/sheet.rs::every_published_document_and_field_is_known_and_no_other`). *changed*: v1.14 added fields. \
    *no effect yet*: it is accepted, and a warning names the feature that is missing. The section is the field of the v1alpha1 \
    document that says the same: `billetctl machineconfig rewrite` goes both ways. Tests: *named* is \
    `crates/config/tests/fields.rs::each_kind_without_effect_is_named_in_a_warning`, *moved* is \
    `crates/config/tests/rewrite.rs::each_kind_becomes_a_section_and_comes_back`.\n\n\
    | document | v1.13 | v1.14 | node | section | test |\n|---|---|---|---|---|---|\n";

/// The kinds of a sheet.
fn kinds(sheet: &'static str) -> BTreeSet<&'static str> {
    let lines = sheet.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split(' ').next()).filter(|name| !name.contains('.')).collect()
}

/// One line for each kind.
pub(super) fn lines() -> Vec<String> {
    let (older, newer) = (kinds(OLDER), kinds(NEWER));
    let line = |(kind, section): &(&'static str, &'static Section)| {
        let in_older = older.contains(kind) || UNPUBLISHED.contains(kind);
        let generation = match (in_older, newer.contains(kind)) {
            _ if UNPUBLISHED.contains(kind) => "unknown",
            (true, true) => "changed",
            (true, false) => "yes",
            (false, _) => "new",
        };
        let sections: Vec<_> = rewrite::sections(kind).iter().map(|path| format!("`{path}`")).collect();
        let section_cell = if sections.is_empty() { "–".to_owned() } else { sections.join(", ") };
        format!(
            "| `{kind}` | {} | {generation} | {} | {section_cell} | {} |",
            if in_older { "yes" } else { "–" },
            effect(kind, section),
            test(kind, !sections.is_empty())
        )
    };
    Document::KINDS.iter().map(line).collect()
}

/// What the node makes of it.
fn effect(kind: &str, section: &'static Section) -> String {
    let feature = documents::later(kind);
    if !feature.is_empty() {
        return format!("no effect yet: {feature}");
    }
    let mut waiting = Vec::new();
    without_effect(section, "", &mut waiting);
    match waiting.is_empty() {
        true => "has its effect".to_owned(),
        false => format!("has its effect, but for {}", waiting.join(", ")),
    }
}

fn without_effect(section: &'static Section, path: &str, out: &mut Vec<String>) {
    for field in section.fields {
        let below = if path.is_empty() { field.key.to_owned() } else { format!("{path}.{}", field.key) };
        if !field.later.is_empty() {
            out.push(format!("`{below}`"));
            continue;
        }
        let mut shape = (field.shape)();
        while let Shape::List(inner) | Shape::Map(inner) = shape {
            shape = *inner;
        }
        if let Shape::Section(inner) = shape {
            without_effect(inner, &below, out);
        }
    }
}

/// The test of its effect, else that of its warning; and that of its section.
fn test(kind: &str, has_section: bool) -> String {
    let first = FIELDS.lines().find_map(|line| {
        let (field, test) = line.split_once(" | ")?;
        field.strip_prefix(kind)?.starts_with(' ').then_some(test)
    });
    let own = if documents::later(kind).is_empty() { first.map(|test| format!("`{test}`")) } else { None };
    let own = own.unwrap_or_else(|| "named".to_owned());
    if has_section { format!("{own}, moved") } else { own }
}

#[test]
fn every_kind_of_the_sheets_is_in_the_table() {
    let lines = lines();
    for kind in kinds(OLDER).into_iter().chain(kinds(NEWER)) {
        assert!(lines.iter().any(|line| line.starts_with(&format!("| `{kind}` |"))), "{kind}");
    }
    let count = |word: &str| lines.iter().filter(|line| line.contains(word)).count();
    assert!(count("| – | new |") > 30 && count("| yes | changed |") > 4, "{lines:#?}");
    assert!(count("no effect yet") > 20 && count(", moved |") > 40 && count("| has its effect") > 15);
    assert!(TESTS.iter().all(|(word, test)| HEAD.contains(&format!("*{word}* is `{test}`"))));
    // A kind that has an effect names a test of it.
    let vague = lines.iter().filter(|line| line.contains("| has its effect") && line.contains("| named"));
    assert_eq!(vague.collect::<Vec<_>>(), [""; 0]);
}
