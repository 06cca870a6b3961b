//! Requests in which one field has an extreme value, made from the descriptors of the API.
//!
//! Owns: which values each type of field gets, and their bytes. A field of a message within the request gets them there,
//! [`DEEPEST`] messages deep; a repeated one also comes very often.
//! Source: protobuf's wire format.

use std::collections::HashMap;

use prost::Message;
use prost::encoding::encode_varint;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet};

/// Messages within messages that are entered: some hold themselves.
const DEEPEST: usize = 4;
/// Elements of a repeated field that comes very often.
const MANY: usize = 100_000;
/// Bytes of a long text.
const LONG_BYTES: usize = 1 << 20;

/// A call, as its descriptor says.
#[derive(Default)]
pub(crate) struct Method {
    pub(crate) path: String,
    pub(crate) input: String,
    /// Whether its answer is a stream.
    pub(crate) streams: bool,
}

/// One request.
pub(crate) struct Case {
    /// Field and value.
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

/// The API's messages by their full names.
pub(crate) struct Schema {
    messages: HashMap<String, DescriptorProto>,
    pub(crate) methods: Vec<Method>,
}

impl Schema {
    pub(crate) fn of_the_api() -> Self {
        let set = FileDescriptorSet::decode(api::proto::DESCRIPTORS).unwrap();
        let mut schema = Self { messages: HashMap::new(), methods: Vec::new() };
        for file in &set.file {
            for message in &file.message_type {
                schema.add(&format!(".{}", file.package()), message);
            }
            for service in &file.service {
                let path = |name| format!("/{}.{}/{name}", file.package(), service.name());
                schema.methods.extend(service.method.iter().map(|method| Method {
                    path: path(method.name()),
                    input: method.input_type().to_owned(),
                    streams: method.server_streaming(),
                }));
            }
        }
        for (name, fields) in GOOGLES {
            schema.messages.insert((*name).to_owned(), googles(fields));
        }
        schema
    }

    fn add(&mut self, within: &str, message: &DescriptorProto) {
        let name = format!("{within}.{}", message.name());
        for nested in &message.nested_type {
            self.add(&name, nested);
        }
        self.messages.insert(name, message.clone());
    }

    /// The request as it is, empty, and with each field at each extreme behind what `base` says.
    pub(crate) fn cases(&self, input: &str, base: &[u8]) -> Vec<Case> {
        let mut cases = vec![
            Case { name: "empty".to_owned(), bytes: Vec::new() },
            Case { name: "base".to_owned(), bytes: base.to_vec() },
        ];
        for (name, bytes) in self.extremes(input, 0) {
            cases.push(Case { name, bytes: [base, &bytes].concat() });
        }
        cases
    }

    /// Field and value, with the bytes of the fields around it.
    fn extremes(&self, message: &str, depth: usize) -> Vec<(String, Vec<u8>)> {
        let Some(message) = self.messages.get(message) else { panic!("{message} is not described") };
        message.field.iter().flat_map(|field| self.of_field(field, depth)).collect()
    }

    fn of_field(&self, field: &FieldDescriptorProto, depth: usize) -> Vec<(String, Vec<u8>)> {
        let is_repeated = field.label() == Label::Repeated;
        let mut all = Vec::new();
        let mut add = |value: &str, bytes| all.push((format!("{} = {value}", field.name()), bytes));
        if field.r#type() == Type::Message {
            add("an empty message", delimited(field, &[]));
            if is_repeated {
                add("many empty messages", delimited(field, &[]).repeat(MANY));
            }
            if depth < DEEPEST {
                let below = self.extremes(field.type_name(), depth + 1);
                all.extend(
                    below
                        .into_iter()
                        .map(|(name, bytes)| (format!("{}.{name}", field.name()), delimited(field, &bytes))),
                );
            }
            return all;
        }
        for (value, bytes) in values(field) {
            if is_repeated && bytes.len() < 16 {
                add(&format!("{value}, {MANY} times"), bytes.repeat(MANY));
            }
            add(&value, bytes);
        }
        all
    }
}

/// What the set of the API leaves out: fields by number.
const GOOGLES: &[(&str, &[(&str, Type)])] = &[
    (".google.protobuf.Empty", &[]),
    (".google.protobuf.Duration", &[("seconds", Type::Int64), ("nanos", Type::Int32)]),
    (".google.protobuf.Timestamp", &[("seconds", Type::Int64), ("nanos", Type::Int32)]),
    (".google.protobuf.Any", &[("type_url", Type::String), ("value", Type::Bytes)]),
];

fn googles(fields: &[(&str, Type)]) -> DescriptorProto {
    let field = fields.iter().zip(1..).map(|((name, kind), number)| FieldDescriptorProto {
        name: Some((*name).to_owned()),
        number: Some(number),
        r#type: Some((*kind).into()),
        ..Default::default()
    });
    DescriptorProto { field: field.collect(), ..Default::default() }
}

/// The values of a field that is no message, each with its tag.
fn values(field: &FieldDescriptorProto) -> Vec<(String, Vec<u8>)> {
    match field.r#type() {
        Type::Bool => numbers(&[0, 1, -1], |n| varint(field, n)),
        Type::Enum => {
            let all = (-1..=6).chain([9999, i64::from(i32::MAX), i64::from(i32::MIN), i64::MAX]);
            numbers(&all.collect::<Vec<_>>(), |n| varint(field, n))
        }
        Type::Int32 | Type::Int64 | Type::Uint32 | Type::Uint64 | Type::Sint32 | Type::Sint64 => {
            numbers(&INTEGERS, |n| varint(field, n))
        }
        Type::Fixed32 | Type::Sfixed32 => numbers(&INTEGERS, |n| fixed(field, 5, &n.to_le_bytes()[..4])),
        Type::Fixed64 | Type::Sfixed64 => numbers(&INTEGERS, |n| fixed(field, 1, &n.to_le_bytes())),
        Type::Float => FLOATS.map(|n| (n.to_string(), fixed(field, 5, &n.to_le_bytes()))).to_vec(),
        Type::Double => DOUBLES.map(|n| (n.to_string(), fixed(field, 1, &n.to_le_bytes()))).to_vec(),
        Type::String | Type::Bytes => {
            texts().into_iter().map(|(name, text)| (name, delimited(field, &text))).collect()
        }
        Type::Message | Type::Group => Vec::new(),
    }
}

const INTEGERS: [i64; 14] = [
    0,
    1,
    -1,
    2,
    63,
    65_536,
    i32::MAX as i64,
    i32::MIN as i64,
    u32::MAX as i64,
    u32::MAX as i64 - 1,
    i64::MAX,
    i64::MAX - 1,
    i64::MIN,
    // 1 s less than what nanoseconds in 64 bits count.
    9_223_372_035,
];

const FLOATS: [f32; 7] = [0.0, -0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN];

const DOUBLES: [f64; 9] =
    [0.0, -0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, f64::MIN, f64::MIN_POSITIVE];

/// Texts that end, hold or look like what code cuts them at.
const TEXTS: [&str; 21] = [
    "",
    " ",
    "a",
    "é",
    "/",
    "//",
    ".",
    "..",
    "../../../../..",
    "*",
    "-1",
    "18446744073709551616",
    "[",
    "]:",
    "::1",
    ":@/",
    "a=b",
    "\0",
    "\u{1b}[2J\r\n\t\u{7f}",
    "{[(",
    "\u{202e}\u{feff}\u{10ffff}",
];

fn texts() -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<_> = TEXTS.iter().map(|text| (format!("{text:?}"), text.as_bytes().to_vec())).collect();
    all.push(("1 MiB of a".to_owned(), vec![b'a'; LONG_BYTES]));
    // Every cut at an odd number of bytes is within a character.
    all.push(("1 MiB of é".to_owned(), "é".repeat(LONG_BYTES / 2).into_bytes()));
    all.push(("a, then 1000 of é".to_owned(), format!("a{}", "é".repeat(1000)).into_bytes()));
    all.push(("100 KiB of [".to_owned(), vec![b'['; 100 << 10]));
    all.push(("1000 lines".to_owned(), b"a: b\n".repeat(1000)));
    all.push(("no UTF-8".to_owned(), vec![0xff; 64]));
    all
}

fn numbers(all: &[i64], bytes: impl Fn(i64) -> Vec<u8>) -> Vec<(String, Vec<u8>)> {
    all.iter().map(|number| (number.to_string(), bytes(*number))).collect()
}

fn tag(field: &FieldDescriptorProto, wire: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_varint(u64::try_from(field.number()).unwrap() << 3 | wire, &mut bytes);
    bytes
}

fn varint(field: &FieldDescriptorProto, number: i64) -> Vec<u8> {
    let mut bytes = tag(field, 0);
    encode_varint(number.cast_unsigned(), &mut bytes);
    bytes
}

fn fixed(field: &FieldDescriptorProto, wire: u64, number: &[u8]) -> Vec<u8> {
    let mut bytes = tag(field, wire);
    bytes.extend(number);
    bytes
}

fn delimited(field: &FieldDescriptorProto, content: &[u8]) -> Vec<u8> {
    let mut bytes = tag(field, 2);
    encode_varint(u64::try_from(content.len()).unwrap(), &mut bytes);
    bytes.extend(content);
    bytes
}
