//! Entries `NAME=value` of a document, and what is found wrong while they are read.
//!
//! Does not: repeat the value of an entry that is not known: it may be a secret under a mistyped name.

use std::collections::BTreeMap;

use crate::documents::{Document, ExtensionServiceConfig};

/// What is wrong with an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    /// Place in `environment`; `None`: the document lacks something.
    pub entry: Option<usize>,
    /// What is wrong and what to write.
    pub message: String,
    /// It is taken all the same.
    pub is_warning: bool,
}

impl Problem {
    pub(super) fn missing(message: impl Into<String>) -> Self {
        Self { entry: None, message: message.into(), is_warning: false }
    }
}

/// The documents whose names are wanted.
pub(super) fn named<'a>(
    documents: &'a [Document],
    mut is_wanted: impl FnMut(&str) -> bool + 'a,
) -> impl Iterator<Item = &'a ExtensionServiceConfig> + 'a {
    documents.iter().filter_map(move |document| match document {
        Document::ExtensionServiceConfig(d) if is_wanted(&d.name) => Some(d),
        _ => None,
    })
}

/// Entries by their names.
pub(super) struct Entries<'a> {
    values: BTreeMap<&'a str, (usize, &'a str)>,
    pub(super) problems: Vec<Problem>,
}

impl<'a> Entries<'a> {
    /// Splits the entries; other names than these are problems.
    pub(super) fn new(environment: &'a [String], known: &[&str]) -> Self {
        let mut entries = Self { values: BTreeMap::new(), problems: Vec::new() };
        for (index, entry) in environment.iter().enumerate() {
            let (name, value) = entry.split_once('=').unwrap_or((entry, ""));
            let message = if !entry.contains('=') {
                "a setting is written NAME=value".to_owned()
            } else if !known.contains(&name) {
                format!("there is no setting of this name: {}", known.join(", "))
            } else if entries.values.insert(name, (index, value)).is_some() {
                format!("{name} is given twice")
            } else {
                continue;
            };
            entries.refuse(index, message);
        }
        entries
    }

    pub(super) fn refuse(&mut self, entry: usize, message: impl Into<String>) {
        self.problems.push(Problem { entry: Some(entry), message: message.into(), is_warning: false });
    }

    pub(super) fn warn(&mut self, entry: usize, message: impl Into<String>) {
        self.problems.push(Problem { entry: Some(entry), message: message.into(), is_warning: true });
    }

    pub(super) fn missing(&mut self, message: impl Into<String>) {
        self.problems.push(Problem::missing(message));
    }

    /// The value of a setting, with its place.
    pub(super) fn get(&self, name: &str) -> Option<(usize, &'a str)> {
        self.values.get(name).copied().filter(|(_, value)| !value.is_empty())
    }

    pub(super) fn text(&self, name: &str) -> Option<&'a str> {
        self.get(name).map(|(_, value)| value)
    }

    /// The value as `read` takes it; a problem where it takes none.
    pub(super) fn parsed<T>(
        &mut self,
        name: &str,
        wanted: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        let (index, value) = self.get(name)?;
        let parsed = read(value);
        if parsed.is_none() {
            self.refuse(index, format!("{name}: `{value}` is no {wanted}"));
        }
        parsed
    }
}
