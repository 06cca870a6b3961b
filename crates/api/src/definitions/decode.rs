//! Reads a message into the tree that a typed client has of it, by the definitions alone.
//!
//! Owns: the way back of `encode`, for clients that decode binary forms only and for tests.
//! Does not: make words of enum values and flags (they stay numbers) or texts of addresses and times (they stay messages).
//! Fails by: [`Problem`] with the path of the field: bytes that are no message, or a number that the message does not have.

use prost::bytes::Buf;
use prost::encoding::{WireType, decode_key, decode_varint};
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto};
use serde_json::{Map, Value};

use super::schema::{PACKAGE, Schema};
use super::{Fault, Problem};

/// The tree of a message (a name of types.tsv, for instance `network.LinkStatusSpec`), with YAML's keys.
pub fn decode(message: &str, bytes: &[u8]) -> Result<Value, Problem> {
    whole(&format!("{PACKAGE}{message}"), bytes, message)
}

pub(super) fn fault(path: &str, what: impl Into<String>) -> Problem {
    let fault = Fault::Shape { expected: "a message of this type", found: what.into() };
    Problem { path: path.to_owned(), fault }
}

fn whole(name: &str, mut bytes: &[u8], path: &str) -> Result<Value, Problem> {
    // Messages of google.protobuf are not of the definitions: whether they are there is all that is told.
    let Some(descriptor) = Schema::get().messages.get(name) else {
        return Ok(Value::String(format!("{} bytes", bytes.len())));
    };
    let mut map = Map::new();
    while bytes.has_remaining() {
        let (number, wire) = decode_key(&mut bytes).map_err(|e| fault(path, e.to_string()))?;
        let field = descriptor.field.iter().find(|field| field.number().unsigned_abs() == number);
        let field = field.ok_or_else(|| fault(path, format!("field {number}")))?;
        let path = format!("{path}.{}", field.json_name());
        let content = content(wire, &mut bytes).map_err(|what| fault(&path, what))?;
        add(&mut map, field, content, &path)?;
    }
    Ok(Value::Object(map))
}

/// What stands behind a field's key.
pub(super) enum Content<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

pub(super) fn content<'a>(wire: WireType, bytes: &mut &'a [u8]) -> Result<Content<'a>, String> {
    match wire {
        WireType::Varint => decode_varint(bytes).map(Content::Number).map_err(|e| e.to_string()),
        WireType::ThirtyTwoBit if bytes.len() >= 4 => Ok(Content::Number(bytes.get_u32_le().into())),
        WireType::SixtyFourBit if bytes.len() >= 8 => Ok(Content::Number(bytes.get_u64_le())),
        WireType::LengthDelimited => {
            let length = decode_varint(bytes).map_err(|e| e.to_string())?;
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            let (inner, rest) = bytes.split_at_checked(length).ok_or("a length past the end")?;
            *bytes = rest;
            Ok(Content::Bytes(inner))
        }
        other => Err(format!("wire type {other:?}")),
    }
}

/// Adds one occurrence of a field.
pub(super) fn add(
    map: &mut Map<String, Value>,
    field: &FieldDescriptorProto,
    content: Content<'_>,
    path: &str,
) -> Result<(), Problem> {
    let key = field.json_name().to_owned();
    if let Some(entry) = entry_of(field) {
        let Content::Bytes(bytes) = content else {
            return Err(fault(path, "a number in the place of an entry"));
        };
        let pair = whole(field.type_name(), bytes, path)?;
        let part = |at: usize| entry.field.get(at).and_then(|part| pair.get(part.json_name())).cloned();
        let name = part(0).unwrap_or_default().as_str().unwrap_or_default().to_owned();
        let entries = map.entry(key).or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(entries) = entries {
            entries.insert(name, part(1).unwrap_or_default());
        }
        return Ok(());
    }
    let mut values = Vec::new();
    match content {
        Content::Number(number) => values.push(numeric(field, number)),
        Content::Bytes(bytes) => text_or_more(field, bytes, path, &mut values)?,
    }
    if field.label() != Label::Repeated {
        map.extend(values.pop().map(|value| (key, value)));
    } else if let Value::Array(list) = map.entry(key).or_insert_with(|| Value::Array(Vec::new())) {
        list.append(&mut values);
    }
    Ok(())
}

fn text_or_more(
    field: &FieldDescriptorProto,
    mut bytes: &[u8],
    path: &str,
    out: &mut Vec<Value>,
) -> Result<(), Problem> {
    match field.r#type() {
        Type::String => {
            let text = std::str::from_utf8(bytes).map_err(|_| fault(path, "bytes that are no text"))?;
            out.push(Value::String(text.to_owned()));
        }
        Type::Bytes => out.push(Value::Array(bytes.iter().map(|byte| Value::from(*byte)).collect())),
        Type::Message => out.push(whole(field.type_name(), bytes, path)?),
        // Numbers of a list, packed.
        _ => {
            while bytes.has_remaining() {
                let number = decode_varint(&mut bytes).map_err(|e| fault(path, e.to_string()))?;
                out.push(numeric(field, number));
            }
        }
    }
    Ok(())
}

#[expect(clippy::cast_possible_wrap, reason = "the wire carries the two's complement")]
fn numeric(field: &FieldDescriptorProto, number: u64) -> Value {
    match field.r#type() {
        Type::Double => Value::from(f64::from_bits(number)),
        Type::Bool => Value::from(number != 0),
        Type::Int32 | Type::Int64 | Type::Enum => Value::from(number as i64),
        _ => Value::from(number),
    }
}

/// The message of a map's entries.
pub(super) fn entry_of(field: &FieldDescriptorProto) -> Option<&'static DescriptorProto> {
    let entry = Schema::get().messages.get(field.type_name())?;
    entry.options.as_ref().is_some_and(prost_types::MessageOptions::map_entry).then_some(entry)
}
