//! The schema as the build wrote it: messages, enums, and the message of each type.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use prost::Message;
use prost_types::{DescriptorProto, EnumDescriptorProto, FileDescriptorSet};

/// Compiled by build.rs from proto/definitions.
static SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/definitions.bin"));

/// Messages of this package are named without it in errors and in types.tsv.
pub(super) const PACKAGE: &str = ".talos.resource.definitions.";

/// One column that `get` prints beside the standard ones.
#[derive(Debug, PartialEq, Eq)]
pub struct Column {
    /// Heading.
    pub name: &'static str,
    /// JSONPath in braces over the YAML spec.
    pub path: &'static str,
}

/// What clients expect of one type.
#[derive(Debug, PartialEq, Eq)]
pub struct Published {
    /// `<PluralCamel>.<suffix>`.
    pub kind: &'static str,
    /// Singular, for tables: `MachineConfig`.
    pub display: &'static str,
    /// Where its resources live.
    pub namespace: &'static str,
    /// Only `os:admin` reads it.
    pub sensitive: bool,
    /// The message of the binary form, without the package's prefix.
    pub message: Option<&'static str>,
    /// Declared short names.
    pub aliases: &'static [&'static str],
    /// Columns of a table.
    pub columns: &'static [Column],
}

include!(concat!(env!("OUT_DIR"), "/published.rs"));

/// Every type of the sheets, sorted by name.
pub fn published() -> &'static [Published] {
    PUBLISHED
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
