//! docs/users/configuration.md is made from the schema; `BILLET_BLESS=1` writes it anew.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use config::{
    Config, Document,
    schema::{Field, Section, Shape},
};
use std::{collections::BTreeSet, fmt::Write, fs, path::Path};

const HEAD: &str = "# Configuration reference

Made from the schema by `BILLET_BLESS=1 cargo test -p config --test reference`; do not edit.

A machine configuration is a stream of YAML documents: one *v1alpha1* document, which has `machine:` and `cluster:`, and
any number of others, each with `apiVersion: v1alpha1` and a `kind:`. Fields of both generations of clients are known.
A field marked **later** is accepted, with a warning that names it, and has no effect yet. Unknown fields are errors.
`talosctl validate` and every apply report all errors at once, each with line and column.

";

fn kind(shape: &Shape) -> String {
    match shape {
        Shape::Single(name, _) => (*name).to_owned(),
        Shape::Choice(words) => words.iter().map(|w| format!("`{w}`")).collect::<Vec<_>>().join(", "),
        Shape::Section(section) => format!("[{}](#{})", section.name, section.name.to_lowercase()),
        Shape::List(inner) => format!("list of {}", kind(inner)),
        Shape::Map(inner) => format!("mapping of names to {}", kind(inner)),
        Shape::Any => "anything".to_owned(),
    }
}

fn example(field: &Field) -> String {
    let text = match (field.example, (field.shape)()) {
        ("", Shape::Single(_, text)) => text.to_owned(),
        ("", Shape::Choice(words)) => words[0].to_owned(),
        ("", _) => return String::new(),
        (text, _) => text.to_owned(),
    };
    format!("`{}: {text}`", field.key)
}

fn row(out: &mut String, field: &Field) {
    let mut doc: String = field.doc.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
    if field.newer {
        doc.push_str(" Second generation.");
    }
    if !field.later.is_empty() {
        write!(doc, " **Later:** {}.", field.later).unwrap();
    }
    let default = if field.default.is_empty() { String::new() } else { format!("`{}`", field.default) };
    let cells = [format!("`{}`", field.key), kind(&(field.shape)()), default, example(field), doc];
    writeln!(out, "| {} |", cells.map(|c| c.replace('|', "\\|")).join(" | ")).unwrap();
}

fn section<'a>(out: &mut String, section_: &'a Section, seen: &mut BTreeSet<&'a str>) {
    if !seen.insert(section_.name) {
        return;
    }
    // The rest of a type's text is about Rust.
    let doc = section_.doc[0].trim().trim_end_matches(", so it cannot be printed by accident:");
    writeln!(out, "### {}\n\n{doc}\n", section_.name).unwrap();
    if !section_.fields.is_empty() {
        writeln!(out, "| field | takes | default | example | meaning |\n|---|---|---|---|---|").unwrap();
        section_.fields.iter().for_each(|field| row(out, field));
        out.push('\n');
    }
    for field in section_.fields {
        if let Some(inner) = nested((field.shape)()) {
            section(out, inner, seen);
        }
    }
}

fn nested(shape: Shape) -> Option<&'static Section> {
    match shape {
        Shape::Section(section) => Some(section),
        Shape::List(inner) | Shape::Map(inner) => nested(*inner),
        _ => None,
    }
}

#[test]
fn the_reference_is_that_of_the_schema() {
    let (mut made, mut seen) = (HEAD.to_owned(), BTreeSet::new());
    made.push_str("## The v1alpha1 document\n\n");
    section(&mut made, Config::SECTION, &mut seen);
    made.push_str("## Additional documents\n\n");
    for (_, body) in Document::KINDS {
        section(&mut made, body, &mut seen);
    }
    let made = format!("{}\n", made.trim_end());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/users/configuration.md");
    if std::env::var_os("BILLET_BLESS").is_some() {
        fs::write(&path, &made).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == made, "docs/users/configuration.md is not that of the schema; run with BILLET_BLESS=1");
}

/// Two sections of one name would share a heading, and one of them would be missing.
#[test]
fn names_of_sections_are_their_own() {
    fn walk(section: &'static Section, seen: &mut Vec<&'static Section>) {
        if seen.iter().any(|known| std::ptr::eq(known.fields, section.fields)) {
            return;
        }
        assert!(
            seen.iter().all(|known| known.name != section.name || known.fields.is_empty()),
            "{} twice",
            section.name
        );
        seen.push(section);
        section.fields.iter().filter_map(|f| nested((f.shape)())).for_each(|inner| walk(inner, seen));
    }
    let mut seen = Vec::new();
    walk(Config::SECTION, &mut seen);
    Document::KINDS.iter().for_each(|(_, section)| walk(section, &mut seen));
    assert!(seen.len() > 100, "{}", seen.len());
}
