//! The schema as the build wrote it: messages, enums, and the message of each type.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use prost::Message;
use prost_types::{DescriptorProto, EnumDescriptorProto, FileDescriptorSet};

/// Compiled by build.rs from proto/definitions.
static SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/definitions.bin"));
static TYPES: &str = include_str!("../../proto/definitions/types.tsv");

/// Messages of this package are named without it in errors and in types.tsv.
pub(super) const PACKAGE: &str = ".talos.resource.definitions.";

/// What clients expect of one type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// `<PluralCamel>.<suffix>`.
    pub kind: &'static str,
    /// Where its resources live.
    pub namespace: &'static str,
    /// Only `os:admin` reads it.
    pub sensitive: bool,
    /// The message of the binary form, without the package's prefix.
    pub message: Option<&'static str>,
    /// Declared short names.
    pub aliases: Vec<&'static str>,
    /// Heading and JSONPath of each column.
    pub columns: Vec<(&'static str, &'static str)>,
}

/// Every type of the sheets, in the order of types.tsv.
pub fn published() -> &'static [Published] {
    static PUBLISHED: OnceLock<Vec<Published>> = OnceLock::new();
    PUBLISHED.get_or_init(|| TYPES.lines().filter(|line| !line.starts_with('#')).map(row).collect())
}

fn row(line: &'static str) -> Published {
    let mut cells = line.split('\t');
    let mut cell = || cells.next().unwrap_or_default();
    let list = |text: &'static str| text.split(';').filter(|item| !item.is_empty());
    Published {
        kind: cell(),
        namespace: cell(),
        sensitive: cell() == "sensitive",
        message: Some(cell()).filter(|&name| name != "-"),
        aliases: list(cell()).collect(),
        columns: list(cell()).filter_map(|column| column.split_once('=')).collect(),
    }
}

/// Messages and enums by their full names, with the leading dot that fields use.
#[derive(Default)]
pub(super) struct Schema {
    pub(super) messages: BTreeMap<String, DescriptorProto>,
    pub(super) enums: BTreeMap<String, EnumDescriptorProto>,
}

impl Schema {
    pub(super) fn get() -> &'static Self {
        static SCHEMA: OnceLock<Schema> = OnceLock::new();
        // The build wrote the bytes; an empty schema makes every encoding fail with the name that it lacks.
        SCHEMA.get_or_init(|| Self::read(FileDescriptorSet::decode(SET).unwrap_or_default()))
    }

    fn read(set: FileDescriptorSet) -> Self {
        let mut schema = Self::default();
        for file in set.file {
            let package = format!(".{}", file.package());
            for found in file.enum_type {
                schema.enums.insert(format!("{package}.{}", found.name()), found);
            }
            for message in file.message_type {
                schema.insert(&package, message);
            }
        }
        schema
    }

    /// A map field has its entry as a message inside.
    fn insert(&mut self, scope: &str, mut message: DescriptorProto) {
        let name = format!("{scope}.{}", message.name());
        for inner in std::mem::take(&mut message.nested_type) {
            self.insert(&name, inner);
        }
        self.messages.insert(name, message);
    }
}
