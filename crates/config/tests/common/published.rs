//! The published schema of both generations: kinds, fields, types, patterns.
//!
//! Source: `testdata/documents-v1.13.txt` and `-v1.14.txt`. The second has what is new or changed.

use std::{collections::BTreeMap, fs, path::Path};

/// A field as it is published.
#[derive(Debug, Clone)]
pub(crate) struct Published {
    /// Type: `string`, `network.RouteConfig[]`, `map<string>`, `tcp|udp`.
    pub(crate) kind: String,
    /// Whether a document needs it.
    pub(crate) required: bool,
    /// What its values, or the entries of its list, look like.
    pub(crate) pattern: Option<String>,
}

/// Fields of a document or part, by name.
pub(crate) type Fields = BTreeMap<String, Published>;
/// By name of the document or part.
pub(crate) type Sheet = BTreeMap<String, Fields>;

/// Both generations together.
pub(crate) fn sheet() -> Sheet {
    let mut sheet = Sheet::new();
    for name in ["documents-v1.13.txt", "documents-v1.14.txt"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name);
        for line in fs::read_to_string(path).unwrap().lines().filter(|line| !line.starts_with('#')) {
            let (line, pattern) = match line.split_once(" ~") {
                Some((line, pattern)) => (line, Some(pattern.to_owned())),
                None => (line, None),
            };
            let mut cells = line.splitn(3, ' ');
            let fields = sheet.entry(cells.next().unwrap().to_owned()).or_default();
            if let (Some(field), Some(kind)) = (cells.next(), cells.next()) {
                let (name, required) = match field.strip_suffix('!') {
                    Some(name) => (name, true),
                    None => (field, false),
                };
                fields.insert(name.to_owned(), Published { kind: kind.to_owned(), required, pattern });
            }
        }
    }
    sheet
}

/// The type of a list's or mapping's entries; of anything else the type itself.
pub(crate) fn entry(kind: &str) -> &str {
    let kind = kind.strip_suffix("[]").unwrap_or(kind);
    kind.strip_prefix("map<").and_then(|kind| kind.strip_suffix('>')).unwrap_or(kind)
}
