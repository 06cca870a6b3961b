//! The walk over a tree: where it is, what it found wrong.
//!
//! Owns: paths, places, remarks, the report of unknown and not yet built fields.
//! Fails by: remarks; the walk goes on after each.

use super::{Decode, Field, Section};
use crate::{
    diagnostic::{Diagnostic, Severity},
    yaml::{Mark, Node, shortened},
};
use std::collections::HashMap;

/// Remarks that one configuration may get before the rest is only counted.
const MAX_REMARKS: usize = 200;

/// Where each field of a document stands.
#[derive(Clone, Default)]
pub(crate) struct Places(HashMap<String, Mark>);

impl Places {
    /// The place of `path`, else of the nearest section around it.
    pub(crate) fn nearest(&self, path: &str) -> Mark {
        let mut rest = path;
        loop {
            if let Some(mark) = self.0.get(rest) {
                return *mark;
            }
            let Some(end) = rest.rfind(['.', '[']) else { break };
            rest = &rest[..end];
        }
        self.0.get("").copied().unwrap_or(Mark { line: 1, column: 1 })
    }
}

/// Fields that have no effect because one feature is not built.
struct Later {
    feature: &'static str,
    document: usize,
    first: Mark,
    paths: Vec<String>,
}

/// What a walk found, beside the values.
#[derive(Default)]
pub(crate) struct Findings {
    /// Without snippets; those come when all secrets are known.
    pub(crate) remarks: Vec<Diagnostic>,
    /// First and last line of values that must not be shown.
    pub(crate) secret_lines: Vec<(usize, usize)>,
    /// Fields without effect, by the feature that is missing.
    later: Vec<Later>,
    left_out: usize,
    /// The list of kinds is long: one remark has it.
    kinds_listed: bool,
}

impl Findings {
    pub(crate) fn add(&mut self, severity: Severity, document: usize, at: Mark, path: &str, message: String) {
        if self.remarks.len() == MAX_REMARKS {
            self.left_out += 1;
            return;
        }
        let (line, column, path) = (at.line, at.column, path.to_owned());
        self.remarks.push(Diagnostic {
            severity,
            document,
            line,
            column,
            path,
            message,
            snippet: String::new(),
        });
    }

    fn add_later(&mut self, feature: &'static str, document: usize, at: Mark, path: String) {
        match self.later.iter_mut().find(|l| l.feature == feature) {
            Some(known) => known.paths.push(path),
            None => self.later.push(Later { feature, document, first: at, paths: vec![path] }),
        }
    }

    /// One warning for each feature that is not built, with all fields that wait for it.
    pub(crate) fn name_later(&mut self) {
        for l in std::mem::take(&mut self.later) {
            let message = format!(
                "accepted, but without effect, since {} is not built yet: {}",
                l.feature,
                l.paths.join(", ")
            );
            self.add(Severity::Warning, l.document, l.first, &l.paths[0], message);
        }
    }

    /// Remarks that were not kept.
    pub(crate) fn left_out(&self) -> usize {
        self.left_out
    }
}

/// The state of a reading.
pub(crate) struct Walk<'a> {
    pub(crate) document: usize,
    pub(crate) places: Places,
    path: String,
    findings: &'a mut Findings,
    /// Inside a field whose feature is not built: it was named already.
    later: bool,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(document: usize, findings: &'a mut Findings) -> Self {
        Self { document, places: Places::default(), path: String::new(), findings, later: false }
    }

    pub(crate) fn error(&mut self, at: Mark, message: impl Into<String>) {
        self.findings.add(Severity::Error, self.document, at, &self.path, message.into());
    }

    pub(crate) fn warn(&mut self, at: Mark, message: impl Into<String>) {
        self.findings.add(Severity::Warning, self.document, at, &self.path, message.into());
    }

    /// A remark on another path than the present one.
    pub(crate) fn warn_at(&mut self, path: &str, at: Mark, message: impl Into<String>) {
        self.findings.add(Severity::Warning, self.document, at, path, message.into());
    }

    /// A fault on another path than the present one.
    pub(crate) fn error_at(&mut self, path: &str, at: Mark, message: impl Into<String>) {
        self.findings.add(Severity::Error, self.document, at, path, message.into());
    }

    /// A whole document without effect.
    pub(crate) fn not_built(&mut self, feature: &'static str, at: Mark, kind: &str) {
        self.findings.add_later(feature, self.document, at, kind.to_owned());
        self.later = true;
    }

    /// A document of a kind that does not exist.
    pub(crate) fn unknown_kind(&mut self, at: Mark, kind: &str, known: &[&str]) {
        let hint = nearest(kind, known).map_or(String::new(), |near| format!("; did you mean `{near}`?"));
        let mut message = format!("documents of kind `{}` are not known{hint}", shortened(kind));
        if !std::mem::replace(&mut self.findings.kinds_listed, true) {
            message.push_str(&format!(" (known: {})", known.join(", ")));
        }
        self.error_at("kind", at, message);
    }

    /// Runs `read` with `step` appended to the path; `step` has its own separator.
    pub(crate) fn inside<R>(&mut self, step: &str, at: Mark, read: impl FnOnce(&mut Self) -> R) -> R {
        let length = self.path.len();
        self.path.push_str(if length == 0 { step.trim_start_matches('.') } else { step });
        self.places.0.insert(self.path.clone(), at);
        let result = read(self);
        self.path.truncate(length);
        result
    }

    /// The lines of `node` must not be shown.
    pub(crate) fn hide(&mut self, node: &Node) {
        self.findings.secret_lines.push((node.mark.line, node.last_line));
    }

    /// Reads each field of a section; false if `node` is no mapping.
    pub(crate) fn section(
        &mut self,
        node: &Node,
        section: &'static Section,
        read: &mut dyn FnMut(&'static str, &Node, &mut Self),
    ) -> bool {
        self.places.0.entry(self.path.clone()).or_insert(node.mark);
        if node.is_null() {
            return true;
        }
        if !self.is_map(node) {
            return false;
        }
        for entry in node.entries() {
            let Some(field) = section.fields.iter().find(|f| f.key == entry.key) else {
                self.hide(&entry.value);
                self.inside(&format!(".{}", shortened(&entry.key)), entry.mark, |walk| {
                    walk.error(entry.mark, unknown(&entry.key, section.fields));
                });
                continue;
            };
            self.inside(&format!(".{}", field.key), entry.mark, |walk| walk.known(field, &entry.value, read));
        }
        true
    }

    fn known(
        &mut self,
        field: &'static Field,
        value: &Node,
        read: &mut dyn FnMut(&'static str, &Node, &mut Self),
    ) {
        if field.secret {
            self.hide(value);
        }
        let names_later = !field.later.is_empty() && !self.later && !value.is_null();
        if names_later {
            self.findings.add_later(field.later, self.document, value.mark, self.path.clone());
        }
        let before = self.later;
        self.later |= names_later;
        read(field.key, value, self);
        self.later = before;
    }

    /// Reads a value of any type; one that is empty leaves the default.
    pub(crate) fn value<T: Decode>(&mut self, node: &Node) -> Option<T> {
        if node.is_null() { T::absent() } else { T::decode(node, self) }
    }

    /// The text of a single value.
    pub(crate) fn scalar<'n>(&mut self, node: &'n Node) -> Option<&'n str> {
        match node.text() {
            Some(text) => Some(text),
            None => {
                self.error(node.mark, format!("a single value is needed here, this is {}", node.kind()));
                None
            }
        }
    }

    pub(crate) fn is_map(&mut self, node: &Node) -> bool {
        let is = matches!(node.content, crate::yaml::Content::Map(_));
        if !is {
            self.hide(node);
            self.error(
                node.mark,
                format!("a mapping (`name: value`) is needed here, this is {}", node.kind()),
            );
        }
        is
    }

    /// Reports a word that is none of `allowed`.
    pub(crate) fn not_allowed<T>(&mut self, node: &Node, word: &str, allowed: &[&str]) -> Option<T> {
        let hint = nearest(word, allowed).map_or(String::new(), |near| format!("; did you mean `{near}`?"));
        self.error(node.mark, format!("`{}` is not one of: {}{hint}", shortened(word), allowed.join(", ")));
        None
    }
}

fn unknown(key: &str, fields: &[Field]) -> String {
    let known: Vec<_> = fields.iter().map(|f| f.key).collect();
    let what = shortened(key);
    match nearest(key, &known) {
        Some(near) => {
            format!("unknown field `{what}`; did you mean `{near}`? (known here: {})", known.join(", "))
        }
        None if known.is_empty() => format!("unknown field `{what}`; this section has no fields"),
        None => format!("unknown field `{what}` (known here: {})", known.join(", ")),
    }
}

/// For `skip_serializing_if`.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The known name that a typo of at most two letters turns into `word`.
pub(crate) fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    if word.len() > 40 {
        return None;
    }
    known
        .iter()
        .map(|name| (distance(word, name), *name))
        .filter(|(d, _)| *d <= 2)
        .min()
        .map(|(_, name)| name)
}

/// Edit distance without regard to case.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.to_lowercase(), b.to_lowercase());
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.chars().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[row.len() - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        assert_eq!(distance("certSAN", "certSANs"), 1);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("Kitten", "sitting"), 3);
    }

    #[test]
    fn a_missing_field_is_placed_at_its_section() {
        let mut places = Places::default();
        places.0.insert("a.b[1]".into(), Mark { line: 3, column: 5 });
        assert_eq!(places.nearest("a.b[1].c.d").line, 3);
        assert_eq!(places.nearest("x").line, 1);
    }
}
