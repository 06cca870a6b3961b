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

/// Something that expressions are about.
pub(super) trait Subject: Sized + 'static {
    /// What an expression calls it: `disk`.
    const NAME: &'static str;
    /// A property with that word before it.
    const EXAMPLE: &'static str;
    /// What may follow the word and a dot.
    const FIELDS: &'static [Field<Self>];
    /// Whether there is `system_disk`.
    const HAS_SYSTEM_DISK: bool = false;

    /// Whether it is the disk that the system runs from; `None` while that is not known.
    fn system_disk(&self) -> Option<bool> {
        None
    }
}

/// A subject that an expression is evaluated for.
pub(super) trait Known {
    /// The property with this index among the fields; `None` for an index that there is not.
    fn property(&self, index: usize) -> Option<Value<'_>>;

    /// As [`Subject::system_disk`].
    fn is_system_disk(&self) -> Option<bool>;
}

impl<S: Subject> Known for S {
    fn property(&self, index: usize) -> Option<Value<'_>> {
        S::FIELDS.get(index).map(|(_, _, read)| read(self))
    }

    fn is_system_disk(&self) -> Option<bool> {
        self.system_disk()
    }
}

/// The names that an expression about a subject has.
#[derive(Clone, Copy)]
pub(super) struct Words {
    pub(super) subject: &'static str,
    pub(super) example: &'static str,
    pub(super) has_system_disk: bool,
    /// The index and the type of a property.
    pub(super) named: fn(&str) -> Option<(usize, Type)>,
    /// All properties.
    pub(super) names: fn() -> Vec<&'static str>,
}

impl Words {
    pub(super) fn of<S: Subject>() -> Self {
        Self {
            subject: S::NAME,
            example: S::EXAMPLE,
            has_system_disk: S::HAS_SYSTEM_DISK,
            named: |name| {
                let mut fields = S::FIELDS.iter().enumerate();
                fields.find(|(_, (field, ..))| *field == name).map(|(index, (_, of, _))| (index, *of))
            },
            names: || S::FIELDS.iter().map(|(field, ..)| *field).collect(),
        }
    }
}
