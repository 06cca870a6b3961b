//! What a section of the configuration is made of: one description for reading, writing and the reference.
//!
//! Owns: the `section!` and `choice!` macros, the walk over a tree that reports every fault with its place, and the
//! description of fields. Does not: know any field.
//! Source: the sections themselves, in `v1alpha1` and `documents`.

mod scalars;
mod values;
mod walk;

pub use scalars::{ByteSize, FileMode, GoDuration};
pub use values::{Arguments, Value};
pub(crate) use walk::{Findings, Places, Walk, is_default};

use crate::yaml::Node;

/// A value that can be read from a tree.
pub(crate) trait Decode: Sized {
    /// Reads `node`; `None` after a fault was reported.
    fn decode(node: &Node, walk: &mut Walk<'_>) -> Option<Self>;
    /// What the reference says about values of this type.
    fn shape() -> Shape;
    /// What an absent or empty value means, where that is something.
    fn absent() -> Option<Self> {
        None
    }
}

/// What kind of value a field takes.
pub enum Shape {
    /// A single value: what it is called and one that is accepted.
    Single(&'static str, &'static str),
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A mapping with fixed fields.
    Section(&'static Section),
    /// A list.
    List(Box<Shape>),
    /// A mapping with free keys.
    Map(Box<Shape>),
    /// Anything: it is handed on to another program.
    Any,
}

/// A mapping with fixed fields.
pub struct Section {
    /// Name of the type.
    pub name: &'static str,
    /// What it is.
    pub doc: &'static [&'static str],
    /// Its fields, in the order of the reference.
    pub fields: &'static [Field],
}

/// A field of a section.
pub struct Field {
    /// Its name in a document.
    pub key: &'static str,
    /// What it does.
    pub doc: &'static [&'static str],
    /// What it takes.
    pub shape: fn() -> Shape,
    /// What holds where it is absent; empty for nothing.
    pub default: &'static str,
    /// A value as it could be written; empty for the shape's own.
    pub example: &'static str,
    /// Whether only the second generation of clients knows it.
    pub newer: bool,
    /// Whether its text must never be shown.
    pub secret: bool,
    /// The feature that this image does not have yet; empty if it has effect.
    pub later: &'static str,
}

impl Field {
    pub(crate) const fn new(key: &'static str, doc: &'static [&'static str], shape: fn() -> Shape) -> Self {
        Self { key, doc, shape, default: "", example: "", newer: false, secret: false, later: "" }
    }

    pub(crate) const fn default(mut self, text: &'static str) -> Self {
        self.default = text;
        self
    }

    pub(crate) const fn example(mut self, text: &'static str) -> Self {
        self.example = text;
        self
    }

    pub(crate) const fn newer(mut self, yes: bool) -> Self {
        self.newer = yes;
        self
    }

    pub(crate) const fn secret(mut self, yes: bool) -> Self {
        self.secret = yes;
        self
    }

    pub(crate) const fn later(mut self, feature: &'static str) -> Self {
        self.later = feature;
        self
    }
}

/// Declares a section: the type, how it is read and written, and its description.
///
/// `name "key": Type { attribute value, … };` where the attributes are those of [`Field`]. An absent field has the
/// `Default` of its type, and a field with that value is not written. Types have no `Debug`: most hold secrets.
/// Fields behind `folded` are of documents beside the v1alpha1 one, which say more than its section can: they are
/// neither read nor written here (`documents::fold` sets them).
macro_rules! section {
    ($(#[doc = $sdoc:literal])+ $name:ident {
        $($(#[doc = $fdoc:literal])+ $field:ident $key:literal : $ty:ty { $($attr:ident $val:literal),* };)*
    } $(folded { $($(#[doc = $odoc:literal])+ $other:ident: $oty:ty;)+ })?) => {
        $(#[doc = $sdoc])+
        #[derive(Clone, Default, PartialEq, serde::Serialize)]
        pub struct $name {
            $($(#[doc = $fdoc])+
            #[serde(rename = $key, skip_serializing_if = "crate::schema::is_default")]
            pub $field: $ty,)*
            $($($(#[doc = $odoc])+
            #[serde(skip)]
            pub $other: $oty,)+)?
        }

        impl $name {
            /// The description that the reader and the reference use.
            pub const SECTION: &'static crate::schema::Section = &crate::schema::Section {
                name: stringify!($name),
                doc: &[$($sdoc),+],
                fields: &[$(
                    crate::schema::Field::new($key, &[$($fdoc),+], <$ty as crate::schema::Decode>::shape)$(.$attr($val))*
                ),*],
            };
        }

        impl crate::schema::Decode for $name {
            fn decode(node: &crate::yaml::Node, walk: &mut crate::schema::Walk<'_>) -> Option<Self> {
                #[allow(unused_mut, reason = "a section without fields")]
                let mut out = Self::default();
                #[allow(unused_variables, reason = "a section without fields")]
                let whole = walk.section(node, Self::SECTION, &mut |field, value, walk| match field {
                    $($key => {
                        if let Some(read) = walk.value(value) {
                            out.$field = read;
                        }
                    })*
                    _ => {}
                });
                whole.then_some(out)
            }

            fn shape() -> crate::schema::Shape {
                crate::schema::Shape::Section(Self::SECTION)
            }

            fn absent() -> Option<Self> {
                Some(Self::default())
            }
        }
    };
}

/// Declares a word out of a few; the first is the default.
macro_rules! choice {
    ($(#[doc = $doc:literal])+ $name:ident { $($(#[doc = $vdoc:literal])+ $variant:ident $word:literal $(| $other:literal)*;)+ }) => {
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
        pub enum $name {
            $($(#[doc = $vdoc])+ #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            /// The words, each as it is written.
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            /// The word.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        #[allow(clippy::derivable_impls, reason = "the macro cannot mark the first variant")]
        impl Default for $name {
            fn default() -> Self {
                [$(Self::$variant),+][0]
            }
        }

        impl crate::schema::Decode for $name {
            fn decode(node: &crate::yaml::Node, walk: &mut crate::schema::Walk<'_>) -> Option<Self> {
                match walk.scalar(node)? {
                    $($word $(| $other)* => Some(Self::$variant),)+
                    other => walk.not_allowed(node, other, Self::WORDS),
                }
            }

            fn shape() -> crate::schema::Shape {
                crate::schema::Shape::Choice(Self::WORDS)
            }
        }
    };
}

pub(crate) use {choice, section};
