//! The sheets of both generations against what the build made of proto/definitions: types, fields, enum values.
//!
//! Owns: every number, type and YAML key of the binary form. Does not: know what the node registers
//! (service-manager's `store/sheet_tests.rs` reads the same data file).
//! Source: tests/data/resources.tsv, which has the published types of v1.13 and v1.14.

use std::collections::{BTreeMap, BTreeSet};

use api::definitions::published;
use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet};

const SHEETS: &str = include_str!("data/resources.tsv");
const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/definitions.bin"));
const PACKAGE: &str = "talos.resource.definitions.";

/// The end of a difference, and why it is there. A line may go, none may come.
const DIFFERENCES: [(&str, &str); 14] = [
    ("google.api.expr.v1alpha1.CheckedExpr, ours bytes", CHECKED),
    ("map<string, ArgValues>, ours map<string, k8s.ArgValues>", "the sheets leave the package out"),
    ("k8s.ArgValues 1 values: not in the sheets", UNDEFINED),
    ("map<string, RegistryMirrorConfig>, ours map<string, bytes>", UNDEFINED),
    ("map<string, RegistryAuthConfig>, ours map<string, bytes>", UNDEFINED),
    ("map<string, RegistryTLSConfig>, ours map<string, bytes>", UNDEFINED),
    ("LoadedKernelModules.runtime.talos.dev: v1.13 has other aliases", MOVED),
    ("TimeServerSpecs.net.talos.dev: v1.13 has other columns", ADDED),
    ("TimeServerStatuses.net.talos.dev: v1.13 has other columns", ADDED),
    ("StaticPodStatuses.kubernetes.talos.dev: both has other columns", "the sheets cut it at a quote"),
    ("NethelpersBondMode _ROUNDROBIN=0: not ours", WORD),
    ("NetworkConfigLayer MACHINE_CONFIGURATION=4: not ours", WORD),
    ("NethelpersLinkType _LOOPBCK=772: not ours", WORD),
    ("NethelpersLinkType _LOCALTLK=773: not ours", WORD),
];
const CHECKED: &str = "a compiled expression, which the node does not make: it keeps the text";
const UNDEFINED: &str = "the sheets do not define the message";
const ADDED: &str = "v1.14 added it";
const WORD: &str = "ours is the word that YAML has";
const MOVED: &str = "v1.14 gave the alias to another type";

fn rows(kind: &str) -> impl Iterator<Item = Vec<&'static str>> {
    let lines = SHEETS.lines().filter(|line| !line.starts_with('#'));
    let kind = kind.to_owned();
    lines.map(|line| line.split('\t').collect::<Vec<_>>()).filter(move |cells| cells[0] == kind)
}

/// Messages and enums by their names without the package.
struct Ours {
    messages: BTreeMap<String, DescriptorProto>,
    enums: BTreeMap<String, Vec<(String, i32)>>,
}

fn ours() -> Ours {
    let set = FileDescriptorSet::decode(DESCRIPTORS).expect("decode the descriptors");
    let mut ours = Ours { messages: BTreeMap::new(), enums: BTreeMap::new() };
    for file in set.file {
        let package = file.package().strip_prefix(PACKAGE).expect("our package").to_owned();
        for found in file.enum_type {
            let values = found.value.iter().map(|value| (value.name().to_owned(), value.number()));
            ours.enums.insert(found.name().to_owned(), values.collect());
        }
        for message in file.message_type {
            ours.messages.insert(format!("{package}.{}", message.name()), message);
        }
    }
    ours
}

/// A field's type in the notation of the sheets.
fn notation(message: &DescriptorProto, package: &str, field: &FieldDescriptorProto) -> String {
    let single = match field.r#type() {
        Type::Message | Type::Enum => {
            let name = field.type_name().trim_start_matches('.');
            if let Some(entry) = message.nested_type.iter().find(|inner| name.ends_with(inner.name())) {
                let part = |at: usize| notation(entry, package, &entry.field[at]);
                return format!("map<{}, {}>", part(0), part(1));
            }
            let name = name.replace("google.protobuf.", "pb.");
            let name = name.strip_prefix(PACKAGE).unwrap_or(&name);
            let name = name.strip_prefix("common.").unwrap_or(name);
            name.strip_prefix(&format!("{package}.")).unwrap_or(name).to_owned()
        }
        simple => format!("{simple:?}").to_lowercase(),
    };
    if field.label() == Label::Repeated { format!("{single}[]") } else { single }
}

/// What differs between the sheets and the messages.
fn fields(ours: &Ours, out: &mut Vec<String>) {
    let mut known = BTreeSet::new();
    for cells in rows("field") {
        let [_, _, message, number, name, wanted, key, _] = cells[..] else { panic!("{cells:?}") };
        known.insert((message, number));
        let package = message.split_once('.').map_or(message, |(package, _)| package);
        let Some(found) = ours.messages.get(message) else {
            out.push(format!("{message}: not ours"));
            continue;
        };
        let Some(field) = found.field.iter().find(|field| field.number().to_string() == number) else {
            out.push(format!("{message} {number} {name}: not ours"));
            continue;
        };
        if field.name() != name {
            out.push(format!("{message} {number} {name}: ours is {}", field.name()));
        }
        if key != "-" && field.json_name() != key {
            out.push(format!("{message} {number} {name}: YAML key {key}, ours {}", field.json_name()));
        }
        let is = notation(found, package, field);
        if is != wanted {
            out.push(format!("{message} {number} {name}: {wanted}, ours {is}"));
        }
    }
    for (name, message) in &ours.messages {
        // What the sheets describe in their notation, and the two types whose messages stand beside it.
        if name.starts_with("common.") || name.starts_with("config.") {
            continue;
        }
        for field in &message.field {
            if !known.contains(&(name.as_str(), field.number().to_string().as_str())) {
                out.push(format!("{name} {} {}: not in the sheets", field.number(), field.name()));
            }
        }
    }
}

/// The sheets have the values' names cut short: without the enum's, in places without a letter or with a part of it.
fn values(ours: &Ours, out: &mut Vec<String>) {
    let plain = |text: &str| text.replace('_', "");
    for cells in rows("value") {
        let [_, _, name, end, number] = cells[..] else { panic!("{cells:?}") };
        let cut = ["ADDRESS_", "ROUTE_", "VLAN_PROTOCOL"].iter().find_map(|part| end.strip_prefix(part));
        let cut = if end.ends_with("UNSPECIFIED") { "UNSPECIFIED" } else { cut.unwrap_or(end) };
        let found = ours.enums.get(name).map(Vec::as_slice).unwrap_or_default();
        let same =
            |(ours, at): &(String, i32)| at.to_string() == number && plain(ours).ends_with(&plain(cut));
        if !found.iter().any(same) {
            out.push(format!("{name} {end}={number}: not ours"));
        }
    }
}

/// types.tsv against the sheets: it has the line of v1.14 where that has one.
fn types(out: &mut Vec<String>) {
    let mut known = BTreeSet::new();
    for cells in rows("type") {
        let [_, generation, name, namespace, sensitive, message, aliases, columns] = cells[..] else {
            panic!("{cells:?}")
        };
        known.insert(name);
        let Some(ours) = published().iter().find(|ours| ours.kind == name) else {
            out.push(format!("{name}: not ours"));
            continue;
        };
        let mut differ = |same: bool, what: &str| {
            if !same {
                out.push(format!("{name}: {generation} has {what}"));
            }
        };
        differ(ours.namespace == namespace, "another namespace");
        differ(ours.sensitive == (sensitive == "sensitive"), "another sensitivity");
        let is_config = name.ends_with(".config.talos.dev");
        differ(is_config || ours.message.unwrap_or("-") == message, "another message");
        differ(ours.aliases.join(";") == aliases, "other aliases");
        let is: Vec<_> =
            ours.columns.iter().map(|column| format!("{}={}", column.name, column.path)).collect();
        differ(is.join(";") == columns, "other columns");
    }
    for ours in published().iter().filter(|ours| !known.contains(ours.kind)) {
        out.push(format!("{}: not in the sheets", ours.kind));
    }
}

#[test]
fn every_type_field_and_value_of_the_sheets_is_ours() {
    assert!(rows("type").count() >= 198 && rows("field").count() > 1200 && rows("value").count() > 300);
    let ours = ours();
    let mut found = Vec::new();
    types(&mut found);
    fields(&ours, &mut found);
    values(&ours, &mut found);
    let has = |line: &str| DIFFERENCES.iter().any(|(end, _)| line.ends_with(end));
    let new: Vec<_> = found.iter().filter(|line| !has(line)).collect();
    assert!(new.is_empty(), "{new:#?}");
    let gone: Vec<_> =
        DIFFERENCES.iter().filter(|(end, _)| !found.iter().any(|line| line.ends_with(end))).collect();
    assert!(gone.is_empty(), "these differences are no more: {gone:#?}");
}
