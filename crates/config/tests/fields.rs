//! Each documented field has a test that shows its effect, or a warning that it has none yet.
//!
//! `testdata/fields.txt` is the register; it is checked against the schema and against the tests that it names.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::places::{Place, places};
use config::{Document, load, schema::Shape};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Field to test, as the register has it.
fn register() -> BTreeMap<String, String> {
    let text = fs::read_to_string(root().join("crates/config/testdata/fields.txt")).unwrap();
    let rows: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let cells = rows.iter().map(|row| row.split_once(" | ").unwrap_or_else(|| panic!("no row: {row}")));
    let register: BTreeMap<_, _> = cells.map(|(field, test)| (field.to_owned(), test.to_owned())).collect();
    assert_eq!(register.len(), rows.len(), "a field stands there twice");
    register
}

/// Kinds of documents whose feature is not built.
fn kinds_without_effect() -> BTreeSet<&'static str> {
    let warns = |kind: &str| {
        let text = format!("machine: {{}}\n---\napiVersion: v1alpha1\nkind: {kind}\n");
        let loaded = load(text.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
        loaded
            .warnings
            .iter()
            .any(|w| w.message.starts_with("accepted, but without effect") && w.path == kind)
    };
    Document::KINDS.iter().map(|(kind, _)| *kind).filter(|kind| warns(kind)).collect()
}

/// Whether sections are inside: then their fields are what has an effect.
fn holds_sections(shape: &Shape) -> bool {
    match shape {
        Shape::Section(_) => true,
        Shape::List(inner) | Shape::Map(inner) => holds_sections(inner),
        Shape::Single(..) | Shape::Choice(_) | Shape::Any => false,
    }
}

#[test]
fn each_field_with_an_effect_is_in_the_register_and_no_other() {
    let without = kinds_without_effect();
    let has_effect = |place: &&Place| {
        let is_field = place.field.is_some() && !holds_sections(&place.shape);
        is_field && !place.later && !without.contains(place.kind)
    };
    let fields: BTreeSet<String> = places().iter().filter(has_effect).map(Place::name).collect();
    let known: BTreeSet<String> = register().into_keys().collect();
    let missing: Vec<_> = fields.difference(&known).collect();
    let surplus: Vec<_> = known.difference(&fields).collect();
    assert!(
        missing.is_empty() && surplus.is_empty(),
        "crates/config/testdata/fields.txt: not there: {missing:#?}; no field with an effect: {surplus:#?}"
    );
}

#[test]
fn the_tests_of_the_register_exist() {
    for (field, test) in register() {
        let (file, name) =
            test.split_once("::").unwrap_or_else(|| panic!("{field}: {test} is no `file::test`"));
        let text = fs::read_to_string(root().join(file)).unwrap_or_else(|e| panic!("{field}: {file}: {e}"));
        let lines: Vec<_> = text.lines().map(str::trim_start).collect();
        let start = [format!("fn {name}("), format!("async fn {name}(")];
        let at = lines.iter().position(|line| start.iter().any(|start| line.starts_with(start.as_str())));
        let at = at.unwrap_or_else(|| panic!("{field}: there is no test {name} in {file}"));
        let marked =
            lines[at.saturating_sub(4)..at].iter().any(|l| l.starts_with("#[test]") || l.contains("::test"));
        assert!(marked, "{field}: {name} in {file} is no test");
    }
}

/// A value that the place takes.
fn good(place: &Place) -> String {
    match (place.field.map_or("", |field| field.example), &place.shape) {
        ("", Shape::Single(_, example)) => (*example).to_owned(),
        ("", Shape::Choice(words)) => format!("{:?}", words[0]),
        ("", Shape::List(_)) => "[]".to_owned(),
        ("", _) => "{}".to_owned(),
        (example, _) => example.to_owned(),
    }
}

#[test]
fn each_kind_without_effect_is_named_in_a_warning() {
    for (kind, _) in Document::KINDS {
        let text = format!("machine: {{}}\n---\napiVersion: v1alpha1\nkind: {kind}\n");
        let loaded = load(text.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
        let feature = config::documents::later(kind);
        let named = format!("accepted, but without effect, since {feature} is not built yet: {kind}");
        let is_named = loaded.warnings.iter().any(|w| w.message == named && w.path == *kind);
        assert_eq!(is_named, !feature.is_empty(), "{kind}: {:?}", loaded.warnings);
    }
    assert!(kinds_without_effect().len() > 20);
}

#[test]
fn each_field_without_effect_is_named_in_a_warning() {
    let without = kinds_without_effect();
    let mut tried = 0;
    for place in places().iter().filter(|place| !without.contains(place.kind)) {
        let Some(feature) = place.field.map(|field| field.later).filter(|feature| !feature.is_empty()) else {
            continue;
        };
        let made = place.text(&good(place));
        let loaded = load(made.text.as_bytes()).unwrap_or_else(|e| panic!("{e}\n{}", made.text));
        // A field around it that waits for something is named in its stead.
        let path = place.path();
        let names = |message: &str| match message.split_once(" is not built yet: ") {
            Some((head, named)) => {
                let own = named == path && head.ends_with(feature);
                head.starts_with("accepted, but without effect, since ") && (own || path.starts_with(named))
            }
            None => false,
        };
        let found: Vec<_> = loaded.warnings.iter().filter(|w| names(&w.message)).collect();
        assert_eq!(found.len(), 1, "{path}: {:?}\n{}", loaded.warnings, made.text);
        assert_eq!((found[0].document, found[0].line), (made.document, made.line), "{}", made.text);
        tried += 1;
    }
    assert!(tried > 20, "{tried}");
}
