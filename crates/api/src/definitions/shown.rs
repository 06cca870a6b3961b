//! A message as the YAML form would show it: the values of the binary form in the spelling of the other.
//!
//! Owns: which of both counts: the binary form for each field that the message has, the YAML form for the rest. Where both
//! say the same, the value stands as YAML spells it (words of enums, addresses, times).
//! Fails by: [`Problem`] with the path of the field: bytes that are no message. Fields that a newer node added are passed
//! over, as typed clients do.

use prost::encoding::decode_key;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

use super::decode::{Content, add, content, entry_of, fault};
use super::schema::{PACKAGE, Schema};
use super::{Fault, Problem, encode};

/// The type of a free-form object.
const FREE_FORM: &str = ".google.protobuf.Struct";

/// What a typed client sees of a resource: `bytes` as `message` (a name of types.tsv), spelled as in `yaml`. A YAML form
/// that is no map is the only field of its message, and so is a map where that field is a free-form object whose key the YAML
/// form leaves out.
///
/// # Errors
/// [`Problem`] where the bytes are no message of this type.
pub fn shown(message: &str, bytes: &[u8], yaml: &Value) -> Result<Value, Problem> {
    let descriptor = descriptor(message)?;
    match (yaml, descriptor.field.as_slice()) {
        (_, [] | [_, _, ..]) | (Value::Null, _) => whole(message, bytes, yaml, message),
        (Value::Object(map), [field])
            if field.type_name() != FREE_FORM || map.contains_key(field.json_name()) =>
        {
            whole(message, bytes, yaml, message)
        }
        (only, [field]) => {
            let key = field.json_name();
            let like = Value::Object(Map::from_iter([(key.to_owned(), only.clone())]));
            Ok(whole(message, bytes, &like, message)?.get(key).cloned().unwrap_or_default())
        }
    }
}

fn descriptor(message: &str) -> Result<&'static DescriptorProto, Problem> {
    let found = Schema::get().messages.get(&format!("{PACKAGE}{message}"));
    let undefined = || Fault::Undefined(message.to_owned());
    found.ok_or_else(|| Problem { path: message.to_owned(), fault: undefined() })
}

/// The occurrences of one field: their bytes with the keys, and their contents.
#[derive(Default)]
struct Raw<'a> {
    bytes: Vec<u8>,
    contents: Vec<Content<'a>>,
}

fn whole(message: &str, bytes: &[u8], yaml: &Value, path: &str) -> Result<Value, Problem> {
    let descriptor = descriptor(message)?;
    let mut found = raw(bytes, path)?;
    let mut map = Map::new();
    // In the order of the YAML form.
    for (key, like) in yaml.as_object().into_iter().flatten() {
        let field = descriptor.field.iter().find(|field| field.json_name() == key);
        let value = match field {
            None => like.clone(),
            Some(field) => {
                let raw = found.remove(&field.number().unsigned_abs()).unwrap_or_default();
                value(message, field, raw, like, &format!("{path}.{key}"))?
            }
        };
        map.insert(key.clone(), value);
    }
    for field in &descriptor.field {
        if let Some(raw) = found.remove(&field.number().unsigned_abs()) {
            let key = field.json_name();
            let value = value(message, field, raw, &Value::Null, &format!("{path}.{key}"))?;
            map.insert(key.to_owned(), value);
        }
    }
    Ok(Value::Object(map))
}

/// The fields of a message by their numbers.
fn raw<'a>(mut bytes: &'a [u8], path: &str) -> Result<BTreeMap<u32, Raw<'a>>, Problem> {
    let mut found: BTreeMap<u32, Raw<'a>> = BTreeMap::new();
    while !bytes.is_empty() {
        let start = bytes;
        let (number, wire) = decode_key(&mut bytes).map_err(|e| fault(path, e.to_string()))?;
        let content = content(wire, &mut bytes).map_err(|what| fault(path, what))?;
        let raw = found.entry(number).or_default();
        raw.bytes.extend(&start[..start.len() - bytes.len()]);
        raw.contents.push(content);
    }
    Ok(found)
}

/// One field with all its occurrences; none of them is the zero of its type.
fn value(
    message: &str,
    field: &FieldDescriptorProto,
    raw: Raw<'_>,
    like: &Value,
    path: &str,
) -> Result<Value, Problem> {
    let alone = Value::Object(Map::from_iter([(field.json_name().to_owned(), like.clone())]));
    if !like.is_null() && encode(message, &alone).is_ok_and(|bytes| bytes == raw.bytes) {
        return Ok(like.clone());
    }
    let inner = field.type_name().strip_prefix(PACKAGE).filter(|_| field.r#type() == Type::Message);
    let Some(inner) = inner.filter(|_| entry_of(field).is_none() && like.is_object() | like.is_array())
    else {
        return plain(field, raw.contents, path);
    };
    let one = |content: &Content<'_>, like: &Value| match content {
        Content::Bytes(bytes) => whole(inner, bytes, like, path),
        Content::Number(_) => Err(fault(path, "a number in the place of a message")),
    };
    if field.label() != Label::Repeated {
        return raw.contents.last().map_or(Ok(Value::Null), |content| one(content, like));
    }
    let like = |at: usize| like.get(at).unwrap_or(&Value::Null);
    let items = raw.contents.iter().enumerate().map(|(at, content)| one(content, like(at)));
    items.collect::<Result<Vec<_>, _>>().map(Value::Array)
}

/// A value as `decode` reads it, and the zero of its type where there is none.
fn plain(field: &FieldDescriptorProto, contents: Vec<Content<'_>>, path: &str) -> Result<Value, Problem> {
    if contents.is_empty() {
        return Ok(zero(field));
    }
    if let (Type::Enum, [Content::Number(number)]) = (field.r#type(), contents.as_slice()) {
        return Ok(word(field.type_name(), *number));
    }
    let mut map = Map::new();
    for content in contents {
        add(&mut map, field, content, path)?;
    }
    Ok(map.remove(field.json_name()).unwrap_or_default())
}

fn zero(field: &FieldDescriptorProto) -> Value {
    match field.r#type() {
        _ if entry_of(field).is_some() => Value::Object(Map::new()),
        _ if field.label() == Label::Repeated => Value::Array(Vec::new()),
        Type::String | Type::Bytes => Value::from(""),
        Type::Message => Value::Null,
        Type::Bool => Value::from(false),
        Type::Enum => word(field.type_name(), 0),
        _ => Value::from(0),
    }
}

/// The word of an enum's number: its name without that of the enum, in lower case and without `_`.
fn word(name: &str, number: u64) -> Value {
    let plain = |text: &str| -> String {
        text.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
    };
    let known = Schema::get().enums.get(name);
    let value = known.and_then(|known| {
        let value = known.value.iter().find(|value| i64::from(value.number()).cast_unsigned() == number)?;
        plain(value.name()).strip_prefix(&plain(known.name())).map(str::to_owned)
    });
    value.map_or(Value::from(number), Value::from)
}
