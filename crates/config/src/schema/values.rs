//! Lists, mappings, free-form values and the other composite types.

use super::{Decode, Shape, Walk};
use crate::yaml::{Content, Node};
use serde::{Serialize, Serializer, ser::SerializeMap};
use std::collections::BTreeMap;

impl<T: Decode> Decode for Option<T> {
    fn decode(node: &Node, walk: &mut Walk<'_>) -> Option<Self> {
        // Current clients write fields that are not set as empty text: `provider: ""`.
        if matches!(T::shape(), Shape::Choice(_)) && node.text() == Some("") {
            return Some(None);
        }
        T::decode(node, walk).map(Some)
    }

    fn shape() -> Shape {
        T::shape()
    }

    /// `name:` with nothing behind it is the same as no such line.
    fn absent() -> Option<Self> {
        None
    }
}

impl<T: Decode> Decode for Vec<T> {
    fn decode(node: &Node, walk: &mut Walk<'_>) -> Option<Self> {
        let Content::List(items) = &node.content else {
            walk.hide(node);
            walk.error(node.mark, format!("a list (`- value`) is needed here, this is {}", node.kind()));
            return None;
        };
        let read = items.iter().enumerate().map(|(index, item)| {
            walk.inside(&format!("[{index}]"), item.mark, |walk| {
                if item.is_null() && item.text() == Some("") {
                    walk.error(item.mark, "an empty entry of a list");
                    return None;
                }
                T::decode(item, walk)
            })
        });
        // Every item is read, so that every fault is found.
        let read: Vec<_> = read.collect();
        read.into_iter().collect()
    }

    fn shape() -> Shape {
        Shape::List(Box::new(T::shape()))
    }
}

impl<T: Decode> Decode for BTreeMap<String, T> {
    fn decode(node: &Node, walk: &mut Walk<'_>) -> Option<Self> {
        if !walk.is_map(node) {
            return None;
        }
        let mut out = Self::new();
        let mut good = true;
        for entry in node.entries() {
            let step = format!(".{}", entry.key);
            match walk.inside(&step, entry.mark, |walk| map_value(&entry.value, walk)) {
                Some(value) => drop(out.insert(entry.key.clone(), value)),
                None => good = false,
            }
        }
        good.then_some(out)
    }

    fn shape() -> Shape {
        Shape::Map(Box::new(T::shape()))
    }
}

/// Nothing behind a key is an empty text or section, where the type has one.
fn map_value<T: Decode>(node: &Node, walk: &mut Walk<'_>) -> Option<T> {
    let empty = if node.is_null() { T::absent() } else { None };
    empty.or_else(|| T::decode(node, walk))
}

/// The value of a command-line argument: once, or several times.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Arguments(pub Vec<String>);

impl Decode for Arguments {
    fn decode(node: &Node, walk: &mut Walk<'_>) -> Option<Self> {
        match &node.content {
            Content::List(_) => Vec::decode(node, walk).map(Self),
            _ => String::decode(node, walk).map(|one| Self(vec![one])),
        }
    }

    fn shape() -> Shape {
        Shape::Single("text, or a list of texts", "value")
    }

    fn absent() -> Option<Self> {
        Some(Self(vec![String::new()]))
    }
}

impl Serialize for Arguments {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [one] => serializer.serialize_str(one),
            several => several.serialize(serializer),
        }
    }
}

/// Anything that YAML can say; it is handed on to another program.
#[derive(Clone, Default, PartialEq)]
pub enum Value {
    /// Nothing.
    #[default]
    Null,
    /// A truth value.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Another number.
    Float(f64),
    /// Text.
    Text(String),
    /// A list.
    List(Vec<Value>),
    /// A mapping, in its order.
    Map(Vec<(String, Value)>),
}

impl Value {
    /// What a mapping has under this key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Self> {
        let Self::Map(entries) = self else { return None };
        entries.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// The text, where it is one.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        let Self::Text(text) = self else { return None };
        Some(text)
    }
}

impl Decode for Value {
    fn decode(node: &Node, _walk: &mut Walk<'_>) -> Option<Self> {
        Some(value(node))
    }

    fn shape() -> Shape {
        Shape::Any
    }

    fn absent() -> Option<Self> {
        Some(Self::Null)
    }
}

fn value(node: &Node) -> Value {
    match &node.content {
        _ if node.is_null() => Value::Null,
        Content::List(items) => Value::List(items.iter().map(value).collect()),
        Content::Map(entries) => {
            Value::Map(entries.iter().map(|e| (e.key.clone(), value(&e.value))).collect())
        }
        Content::Scalar(scalar) if !scalar.plain => Value::Text(scalar.text.to_string()),
        Content::Scalar(scalar) => plain(&scalar.text),
    }
}

/// YAML 1.2's core schema; `yes` and `no` stay texts, as in Kubernetes' own reader.
fn plain(text: &str) -> Value {
    match text {
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    let number = text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.'));
    match (text.parse::<i64>(), text.parse::<f64>()) {
        (Ok(int), _) if number => Value::Int(int),
        (_, Ok(float)) if number && float.is_finite() => Value::Float(float),
        _ => Value::Text(text.to_owned()),
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(b) => serializer.serialize_bool(*b),
            Self::Int(i) => serializer.serialize_i64(*i),
            Self::Float(f) => serializer.serialize_f64(*f),
            Self::Text(t) => serializer.serialize_str(t),
            Self::List(items) => items.serialize(serializer),
            Self::Map(entries) => {
                let mut map = serializer.serialize_map(Some(entries.len()))?;
                for (key, value) in entries {
                    map.serialize_entry(key, value)?;
                }
                map.end()
            }
        }
    }
}
