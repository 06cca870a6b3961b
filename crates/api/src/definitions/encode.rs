//! Writes a message from the tree that the YAML form shows.
//!
//! Numbers, texts and lists follow their field's type. Values that YAML writes as one text (addresses, durations,
//! URLs) become the messages that carry them. Zero values are left out, as the format demands.

use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, Timestamp};
use serde_json::{Map, Value};

use super::decode::entry_of;
use super::schema::{PACKAGE, Schema};
use super::{Fault, Problem, text};

/// Messages in whose place the YAML form shows their only field.
const BARE: [&str; 2] = ["k8s.SingleManifest", "k8s.ArgValues"];

/// The binary form of a value, as `message` (a name of types.tsv, for instance `network.LinkStatusSpec`).
pub fn encode(message: &str, value: &Value) -> Result<Vec<u8>, Problem> {
    let mut out = Vec::new();
    let mut path = message.to_owned();
    whole(&format!("{PACKAGE}{message}"), value, &mut path, &mut out)?;
    Ok(out)
}

fn fault(path: &str, fault: Fault) -> Problem {
    Problem { path: path.to_owned(), fault }
}

fn shape(path: &str, expected: &'static str, found: &Value) -> Problem {
    fault(path, text::shape(expected, &found.to_string()))
}

/// One message, without its length.
fn whole(name: &str, value: &Value, path: &mut String, out: &mut Vec<u8>) -> Result<(), Problem> {
    let descriptor = Schema::get().messages.get(name);
    let descriptor = descriptor.ok_or_else(|| fault(path, Fault::Undefined(name.to_owned())))?;
    let short = name.strip_prefix(PACKAGE).unwrap_or(name);
    if let ([only], true) = (descriptor.field.as_slice(), BARE.contains(&short)) {
        return field(only, value, path, out);
    }
    let map = match value {
        Value::Null => return Ok(()),
        Value::Object(map) => map,
        other => return Err(shape(path, "a map", other)),
    };
    for (key, value) in map {
        let length = path.len();
        path.push('.');
        path.push_str(key);
        let field = descriptor.field.iter().find(|field| field.json_name() == key);
        let field = field.ok_or_else(|| fault(path, Fault::UnknownKey))?;
        match text::flags_of(short, key) {
            Some(names) if value.is_string() => flags(field, names, value, path, out)?,
            _ => self::field(field, value, path, out)?,
        }
        path.truncate(length);
    }
    Ok(())
}

fn field(
    field: &FieldDescriptorProto,
    value: &Value,
    path: &mut String,
    out: &mut Vec<u8>,
) -> Result<(), Problem> {
    if value.is_null() {
        return Ok(());
    }
    if field.label() != Label::Repeated {
        return single(field, value, false, path, out);
    }
    if let Some(entry) = entry_of(field) {
        let map = value.as_object().ok_or_else(|| shape(path, "a map", value))?;
        return map.iter().try_for_each(|(key, value)| pair(field, entry, key, value, path, out));
    }
    let list = value.as_array().ok_or_else(|| shape(path, "a list", value))?;
    if matches!(field.r#type(), Type::String | Type::Bytes | Type::Message) {
        return list.iter().try_for_each(|item| single(field, item, true, path, out));
    }
    // Numbers stand in one packed field.
    let mut packed = Vec::new();
    for item in list {
        number(field, item, path, &mut packed)?;
    }
    if !packed.is_empty() {
        delimited(field, &packed, out);
    }
    Ok(())
}

fn pair(
    field: &FieldDescriptorProto,
    entry: &DescriptorProto,
    key: &str,
    value: &Value,
    path: &mut String,
    out: &mut Vec<u8>,
) -> Result<(), Problem> {
    let mut inner = Vec::new();
    for part in &entry.field {
        let key = Value::String(key.to_owned());
        single(part, if part.number() == 1 { &key } else { value }, false, path, &mut inner)?;
    }
    delimited(field, &inner, out);
    Ok(())
}

/// One value. An element of a list is written even when it is zero.
fn single(
    field: &FieldDescriptorProto,
    value: &Value,
    element: bool,
    path: &mut String,
    out: &mut Vec<u8>,
) -> Result<(), Problem> {
    match field.r#type() {
        Type::String | Type::Bytes => {
            let found = value.as_str().ok_or_else(|| shape(path, "a text", value))?;
            let bytes = match field.r#type() {
                Type::Bytes => text::bytes(found).map_err(|e| fault(path, e))?,
                _ => found.as_bytes().to_vec(),
            };
            if element || !bytes.is_empty() {
                delimited(field, &bytes, out);
            }
        }
        Type::Message => {
            let mut inner = Vec::new();
            if known(field.type_name(), value, path, &mut inner)? {
                delimited(field, &inner, out);
            }
        }
        _ => {
            let mut bytes = Vec::new();
            number(field, value, path, &mut bytes)?;
            if bytes.iter().any(|&byte| byte != 0) {
                let wire =
                    if field.r#type() == Type::Double { WireType::SixtyFourBit } else { WireType::Varint };
                encode_key(tag(field), wire, out);
                out.extend(bytes);
            }
        }
    }
    Ok(())
}

/// Writes a number, a truth value or an enum's value without its key.
fn number(field: &FieldDescriptorProto, value: &Value, path: &str, out: &mut Vec<u8>) -> Result<(), Problem> {
    let found = match field.r#type() {
        Type::Double => {
            let found = value.as_f64().ok_or_else(|| shape(path, "a number", value))?;
            out.extend(found.to_le_bytes());
            return Ok(());
        }
        Type::Bool => u64::from(value.as_bool().ok_or_else(|| shape(path, "true or false", value))?),
        Type::Enum => word(field.type_name(), value, path)?,
        _ => integer(value).ok_or_else(|| shape(path, "an integer", value))?,
    };
    encode_varint(found, out);
    Ok(())
}

/// Negative numbers take the form that the wire has for them: the two's complement of 64 bits.
#[expect(clippy::cast_sign_loss, reason = "the wire carries the two's complement")]
fn integer(value: &Value) -> Option<u64> {
    if let Value::String(text) = value {
        return text.parse::<i64>().map(|n| n as u64).or_else(|_| text.parse()).ok();
    }
    value.as_u64().or_else(|| value.as_i64().map(|n| n as u64))
}

/// The number of an enum's word. Case, `-`, `_` and spaces do not count; a number stands for itself.
fn word(name: &str, value: &Value, path: &str) -> Result<u64, Problem> {
    if let Some(number) = integer(value) {
        return Ok(number);
    }
    let found = value.as_str().ok_or_else(|| shape(path, "a word", value))?;
    if found.is_empty() {
        return Ok(0);
    }
    value_named(name, found).map_err(|e| fault(path, e))
}

#[expect(clippy::cast_sign_loss, reason = "the wire carries the two's complement")]
fn value_named(name: &str, word: &str) -> Result<u64, Fault> {
    let found = Schema::get().enums.get(name).ok_or_else(|| Fault::Undefined(name.to_owned()))?;
    let plain = |text: &str| -> String {
        text.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
    };
    let wanted = format!("{}{}", plain(found.name()), plain(word));
    let value = found.value.iter().find(|value| plain(value.name()) == wanted);
    let short = name.rsplit('.').next().unwrap_or(name);
    value
        .map(|value| i64::from(value.number()) as u64)
        .ok_or_else(|| Fault::UnknownWord(word.to_owned(), short.to_owned()))
}

/// Bits that YAML names, separated by commas or `|`.
fn flags(
    field: &FieldDescriptorProto,
    names: &str,
    value: &Value,
    path: &str,
    out: &mut Vec<u8>,
) -> Result<(), Problem> {
    let mut bits = 0;
    let words = value.as_str().unwrap_or_default().split([',', '|']).map(str::trim);
    for word in words.filter(|word| !word.is_empty()) {
        let bit = if names.is_empty() { text::interface_flag(word) } else { value_named(names, word) };
        bits |= bit.map_err(|e| fault(path, e))?;
    }
    if bits != 0 {
        encode_key(tag(field), WireType::Varint, out);
        encode_varint(bits, out);
    }
    Ok(())
}

/// A message, of which some are written as one text. False: there is nothing to write.
fn known(name: &str, value: &Value, path: &mut String, out: &mut Vec<u8>) -> Result<bool, Problem> {
    let short = name.strip_prefix(PACKAGE).unwrap_or(name);
    let is_text =
        short.starts_with("common.Net") || short == "common.URL" || name.starts_with(".google.protobuf.");
    if !is_text {
        whole(name, value, path, out)?;
        return Ok(!value.is_null());
    }
    if short == ".google.protobuf.Struct" {
        let map = value.as_object().ok_or_else(|| shape(path, "a map", value))?;
        out.extend(structure(map).encode_to_vec());
        return Ok(true);
    }
    let found = value.as_str().ok_or_else(|| shape(path, "a text", value))?;
    if found.is_empty() {
        return Ok(false);
    }
    let failed = |e| fault(path, e);
    match short {
        "common.NetIP" => bytes(1, &text::address(found).map_err(failed)?, out),
        "common.URL" => bytes(1, found.as_bytes(), out),
        "common.NetIPPrefix" | "common.NetIPPort" => {
            let separator = if short == "common.NetIPPrefix" { '/' } else { ':' };
            let (address, number) = text::pair(found, separator).map_err(failed)?;
            bytes(1, &address, out);
            if number != 0 {
                encode_key(2, WireType::Varint, out);
                encode_varint(number, out);
            }
        }
        ".google.protobuf.Duration" => {
            let nanoseconds = text::duration(found).map_err(failed)?;
            let too_long = || fault(path, text::shape("a duration", found));
            let seconds = i64::try_from(nanoseconds / 1_000_000_000).map_err(|_| too_long())?;
            let nanos = i32::try_from(nanoseconds % 1_000_000_000).map_err(|_| too_long())?;
            out.extend(prost_types::Duration { seconds, nanos }.encode_to_vec());
        }
        ".google.protobuf.Timestamp" => {
            let time: Timestamp = found.parse().map_err(|_| fault(path, text::shape("a time", found)))?;
            out.extend(time.encode_to_vec());
        }
        other => return Err(fault(path, Fault::Undefined(other.to_owned()))),
    }
    Ok(true)
}

fn structure(map: &Map<String, Value>) -> prost_types::Struct {
    prost_types::Struct { fields: map.iter().map(|(key, value)| (key.clone(), any(value))).collect() }
}

fn any(value: &Value) -> prost_types::Value {
    use prost_types::value::Kind;
    let kind = match value {
        Value::Null => Kind::NullValue(0),
        Value::Bool(found) => Kind::BoolValue(*found),
        Value::Number(found) => Kind::NumberValue(found.as_f64().unwrap_or_default()),
        Value::String(found) => Kind::StringValue(found.clone()),
        Value::Array(list) => {
            Kind::ListValue(prost_types::ListValue { values: list.iter().map(any).collect() })
        }
        Value::Object(map) => Kind::StructValue(structure(map)),
    };
    prost_types::Value { kind: Some(kind) }
}

fn tag(field: &FieldDescriptorProto) -> u32 {
    field.number().unsigned_abs()
}

fn delimited(field: &FieldDescriptorProto, content: &[u8], out: &mut Vec<u8>) {
    bytes(tag(field), content, out);
}

fn bytes(tag: u32, content: &[u8], out: &mut Vec<u8>) {
    encode_key(tag, WireType::LengthDelimited, out);
    encode_varint(content.len() as u64, out);
    out.extend(content);
}
