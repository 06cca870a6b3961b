//! What an expression is about: a disk, or a link; and the values that it has.

use super::types::Type;

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value<'a> {
    Bool(bool),
    Int(i64),
    Uint(u64),
    Text(&'a str),
    /// In its text form.
    Hardware(&'a str),
    List(Vec<Value<'a>>),
}

/// A property: its name, its type, and how it is read.
pub(super) type Field<S> = (&'static str, Type, for<'a> fn(&'a S) -> Value<'a>);

/// Something that has properties.
pub(super) trait Subject {
    /// The property with this index among the [`Words`]; `None` for an index that there is not.
    fn property(&self, index: usize) -> Option<Value<'_>>;

    /// Whether it is the disk that the system runs from; `None` while that is not known.
    fn system_disk(&self) -> Option<bool> {
        None
    }
}

/// The names that an expression about a subject has.
pub(super) struct Words {
    /// `disk`
    pub(super) subject: &'static str,
    /// A property with the word before it.
    pub(super) example: &'static str,
    /// The index and the type of a property.
    pub(super) named: fn(&str) -> Option<(usize, Type)>,
    /// All properties.
    pub(super) names: fn() -> Vec<&'static str>,
    /// Whether there is `system_disk`.
    pub(super) has_system_disk: bool,
}
