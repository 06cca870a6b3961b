//! A YAML stream as trees of nodes that know their place.
//!
//! Owns: places, duplicate and merge keys, aliases, limits on size, depth and expansion. Does not: give meaning.
//! Fails by: remarks in the caller's list; what could be read is returned all the same.

mod elision;
mod read;
mod source;

pub(crate) use read::read;
pub(crate) use source::{Source, shortened};

use zeroize::Zeroizing;

/// A place in the stream; both counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mark {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// A value and where it stands.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) content: Content,
    pub(crate) mark: Mark,
    /// Last line of the value.
    pub(crate) last_line: usize,
}

#[derive(Clone)]
pub(crate) enum Content {
    Scalar(Scalar),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

#[derive(Clone)]
pub(crate) struct Scalar {
    /// It may be a secret.
    pub(crate) text: Zeroizing<String>,
    /// Without quotes: it may mean a number, a truth value or nothing.
    pub(crate) plain: bool,
}

#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) mark: Mark,
    pub(crate) value: Node,
}

impl Node {
    /// Whether this stands for no value.
    pub(crate) fn is_null(&self) -> bool {
        matches!(&self.content, Content::Scalar(s) if s.plain && matches!(s.text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    /// What a person would call this.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.content {
            _ if self.is_null() => "nothing",
            Content::Scalar(_) => "a single value",
            Content::List(_) => "a list",
            Content::Map(_) => "a mapping",
        }
    }

    /// The text of a scalar.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.content {
            Content::Scalar(scalar) => Some(&scalar.text),
            _ => None,
        }
    }

    /// The value of `key`, if this is a mapping that has it.
    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        self.entries().iter().find(|e| e.key == key).map(|e| &e.value)
    }

    /// The value of `key`, to change it.
    pub(crate) fn get_mut(&mut self, key: &str) -> Option<&mut Node> {
        match &mut self.content {
            Content::Map(entries) => entries.iter_mut().find(|e| e.key == key).map(|e| &mut e.value),
            _ => None,
        }
    }

    /// The entries of a mapping; none for anything else.
    pub(crate) fn entries(&self) -> &[Entry] {
        match &self.content {
            Content::Map(entries) => entries,
            _ => &[],
        }
    }
}
