//! A resource as YAML or JSON, and its values for tables.
//!
//! Owns: the order and presence of the metadata's fields; which form of a spec is read: documents show the node's YAML,
//! tables what typed clients see. Source: as talosctl v1.13.9 prints them.

use crate::output::{self, Format};
use anyhow::{Context, Result};
use api::{
    definitions::{published, shown},
    proto::cosi::resource::{Metadata, Resource},
};
use serde_json::{Map, Value};
use std::{borrow::Cow, collections::HashMap, fmt::Write};

/// What happened to a watched resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Created,
    Updated,
    Destroyed,
}

impl Change {
    /// In documents.
    fn word(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Destroyed => "destroyed",
        }
    }

    /// In the first column of a watched table.
    pub(super) fn sign(self) -> &'static str {
        match self {
            Self::Created => "+",
            Self::Updated => "",
            Self::Destroyed => "-",
        }
    }
}

/// A resource that is to be printed.
pub(super) struct Document<'a> {
    node: &'a str,
    change: Option<Change>,
    metadata: Metadata,
    /// The spec as the node wrote it, in its order.
    text: &'a str,
    /// The same, decoded.
    spec: Value,
}

/// The document of one resource.
pub(super) fn document<'a>(
    node: &'a str,
    change: Option<Change>,
    resource: &'a Resource,
) -> Result<Document<'a>> {
    let metadata = resource.metadata.clone().unwrap_or_default();
    let spec = spec(resource).with_context(|| format!("{} `{}`", metadata.r#type, metadata.id))?;
    let text = resource.spec.as_ref().map_or("", |s| s.yaml_spec.as_str()).trim_end();
    Ok(Document { node, change, metadata, text, spec })
}

/// The spec, decoded.
pub(super) fn spec(resource: &Resource) -> Result<Value> {
    let text = resource.spec.as_ref().map_or("", |s| s.yaml_spec.as_str());
    if text.trim().is_empty() {
        return Ok(Value::Null);
    }
    // Words like `no` and `on` are strings in a resource, as in Go's YAML 1.2 reading of untyped values.
    let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
    match serde_saphyr::from_str_with_options(text, options) {
        // A machine configuration of several documents is a text.
        Err(_) if text.lines().any(|line| line == "---") => Ok(Value::String(text.to_owned())),
        read => read.context("its spec is not readable YAML"),
    }
}

/// The spec as a typed client sees it, for tables: the binary form, spelled as the YAML form. A type that no published
/// client knows has the YAML form alone.
pub(super) fn typed(resource: &Resource) -> Result<Value> {
    let yaml = spec(resource)?;
    let kind = resource.metadata.as_ref().map_or("", |m| m.r#type.as_str());
    let Some(message) = published().iter().find(|known| known.kind == kind).and_then(|known| known.message)
    else {
        return Ok(yaml);
    };
    let bytes = resource.spec.as_ref().map_or(&[][..], |spec| spec.proto_spec.as_slice());
    shown(message, bytes, &yaml).context("its binary form is not readable")
}

impl Document<'_> {
    /// The metadata in its order; lists and maps only when there is something in them.
    fn fields(&self) -> Vec<(&'static str, Value)> {
        let m = &self.metadata;
        // A version is a number unless it is `undefined`.
        let version = m.version.parse::<u64>().map_or_else(|_| m.version.as_str().into(), Value::from);
        let pairs = |map: &HashMap<String, String>| {
            Value::Object(map.iter().map(|(key, value)| (key.clone(), value.as_str().into())).collect())
        };
        let always = [
            ("namespace", m.namespace.as_str().into()),
            ("type", m.r#type.as_str().into()),
            ("id", m.id.as_str().into()),
            ("version", version),
            ("owner", m.owner.as_str().into()),
            ("phase", m.phase.as_str().into()),
            ("created", m.created.unwrap_or_default().to_string().into()),
            ("updated", m.updated.unwrap_or_default().to_string().into()),
        ];
        let sometimes = [
            ("labels", pairs(&m.labels), m.labels.is_empty()),
            ("annotations", pairs(&m.annotations), m.annotations.is_empty()),
            ("finalizers", m.finalizers.clone().into(), m.finalizers.is_empty()),
        ];
        always
            .into_iter()
            .chain(sometimes.into_iter().filter(|(.., empty)| !empty).map(|(key, value, _)| (key, value)))
            .collect()
    }

    /// The whole as a value.
    pub(super) fn value(&self) -> Value {
        let mut map = Map::new();
        map.insert("node".to_owned(), self.node.into());
        if let Some(change) = self.change {
            map.insert("event".to_owned(), change.word().into());
        }
        map.insert(
            "metadata".to_owned(),
            self.fields().into_iter().map(|(k, v)| (k.to_owned(), v)).collect(),
        );
        map.insert("spec".to_owned(), self.spec.clone());
        Value::Object(map)
    }

    /// As YAML, with the mark of the document's end.
    pub(super) fn yaml(&self) -> Result<String> {
        let mut out = format!("node: {}\n", plain(self.node));
        if let Some(change) = self.change {
            let _ = writeln!(out, "event: {}", change.word());
        }
        out.push_str("metadata:\n");
        for (key, value) in self.fields() {
            match value {
                Value::String(text) => drop(writeln!(out, "    {key}: {}", plain(&text))),
                Value::Number(number) => drop(writeln!(out, "    {key}: {number}")),
                nested => drop(write!(out, "    {key}:\n{}", indented(&output::yaml(&nested)?, 8))),
            }
        }
        // The node's own text keeps its order; anything but an indented collection is written anew.
        let is_block = match &self.spec {
            Value::Object(map) => !map.is_empty() && !self.text.trim_start().starts_with('{'),
            Value::Array(list) => !list.is_empty() && !self.text.trim_start().starts_with('['),
            _ => false,
        };
        if is_block && !self.text.contains('\t') && !self.text.starts_with(['-', '%', ' ']) {
            let _ = write!(out, "spec:\n{}", indented(self.text, 4));
        } else if self.spec.is_object() || self.spec.is_array() {
            let _ = write!(out, "spec:\n{}", indented(&output::yaml(&self.spec)?, 4));
        } else {
            let _ = writeln!(out, "spec: {}", output::yaml(&self.spec)?.trim_end());
        }
        Ok(out + "---\n")
    }
}

fn indented(text: &str, by: usize) -> String {
    let line = |line: &str| if line.is_empty() { "\n".to_owned() } else { format!("{:by$}{line}\n", "") };
    text.lines().map(line).collect()
}

/// A string as YAML scalar: quoted unless no reader could take it for anything else.
fn plain(text: &str) -> Cow<'_, str> {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b"-_./:".contains(&b);
    let starts_well = text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    let is_other = serde_saphyr::from_str::<Value>(text).map_or(true, |value| !value.is_string());
    if text.is_empty() || (starts_well && text.bytes().all(is_word) && !text.ends_with(':') && !is_other) {
        let quoted = if text.is_empty() { "\"\"" } else { text };
        return Cow::Borrowed(quoted);
    }
    Cow::Owned(Value::from(text).to_string())
}

/// Prints one document; YAML documents are parted by `---`.
pub(super) fn print(document: &Document<'_>, format: Format) -> Result<()> {
    let text = match format {
        Format::Json => output::json(&document.value())?,
        Format::Yaml | Format::Table => document.yaml()?,
    };
    Ok(output::print(text)?)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use api::proto::{cosi::resource::Spec, talos::resource::definitions::v1alpha1::ServiceSpec};
    use prost::Message;
    use prost_types::Timestamp;

    pub(in super::super) fn resource(id: &str, yaml: &str) -> Resource {
        let metadata = Metadata {
            namespace: "runtime".into(),
            r#type: "Services.v1alpha1.talos.dev".into(),
            id: id.into(),
            version: "2".into(),
            owner: "v1alpha1.ServiceController".into(),
            phase: "running".into(),
            created: Some(Timestamp { seconds: 60, nanos: 0 }),
            ..Default::default()
        };
        Resource { metadata: Some(metadata), spec: Some(Spec { proto_spec: vec![], yaml_spec: yaml.into() }) }
    }

    /// A service in both forms, as a node sends it.
    pub(in super::super) fn service(id: &str, running: bool) -> Resource {
        let mut resource = resource(id, &format!("running: {running}\nhealthy: false\n"));
        if let Some(spec) = &mut resource.spec {
            spec.proto_spec = ServiceSpec { running, ..Default::default() }.encode_to_vec();
        }
        resource
    }

    #[test]
    fn the_document_of_a_watched_resource_keeps_the_order_of_its_spec() {
        let resource = resource("apid", "running: true\nlist: [a, no]\ntext: |\n  one\n\n  two\n");
        let document = document("10.0.0.1", Some(Change::Updated), &resource).unwrap();
        assert_eq!(
            document.yaml().unwrap(),
            "node: 10.0.0.1
event: updated
metadata:
    namespace: runtime
    type: Services.v1alpha1.talos.dev
    id: apid
    version: 2
    owner: v1alpha1.ServiceController
    phase: running
    created: 1970-01-01T00:01:00Z
    updated: 1970-01-01T00:00:00Z
spec:
    running: true
    list: [a, no]
    text: |
      one

      two
---
"
        );
        assert_eq!(document.spec["list"], serde_json::json!(["a", "no"]));
    }

    #[test]
    fn every_kind_of_spec_is_yaml_with_the_same_value() {
        for spec_text in [
            "a: 1",
            "{a: 1, b: [x]}",
            "- a\n- b: 1",
            "[]",
            "{}",
            "controlplane",
            "\"no\"",
            "12",
            "|\n  one\n  two",
            // A machine configuration of two documents.
            "a: 1\nb: {c: 2} # a comment\n---\nkind: D\n",
            "",
        ] {
            let mut resource = resource("no", spec_text);
            resource.metadata.as_mut().unwrap().finalizers = vec!["a: b".into()];
            let document = document("fd00::1", None, &resource).unwrap();
            let text = document.yaml().unwrap();
            let options = serde_saphyr::options! { strict_booleans: true };
            let back: Value = serde_saphyr::from_str_with_options(text.trim_end_matches("---\n"), options)
                .map_err(|e| format!("{e}\n{text}"))
                .unwrap();
            assert_eq!((&back["spec"], &back["node"]), (&document.spec, &"fd00::1".into()), "{text}");
            assert_eq!(
                (&back["metadata"]["id"], &back["metadata"]["finalizers"][0]),
                (&"no".into(), &"a: b".into()),
                "{text}"
            );
        }
    }

    #[test]
    fn tables_read_the_binary_form_of_types_that_have_one() {
        let mut resource = resource("apid", "running: true\nhealthy: true\n");
        let seen = |resource: &Resource| typed(resource).unwrap();
        assert_eq!(seen(&resource), serde_json::json!({"running": false, "healthy": false}));
        resource.spec.as_mut().unwrap().proto_spec =
            ServiceSpec { running: true, ..Default::default() }.encode_to_vec();
        assert_eq!(seen(&resource), serde_json::json!({"running": true, "healthy": false}));
        resource.spec.as_mut().unwrap().proto_spec = vec![0xff];
        let error = typed(&resource).unwrap_err().to_string();
        assert_eq!(error, "its binary form is not readable");
        // No published client knows this type.
        resource.metadata.as_mut().unwrap().r#type = "BootTimelines.billet.dev".into();
        assert_eq!(seen(&resource), serde_json::json!({"running": true, "healthy": true}));
    }

    #[test]
    fn a_spec_that_is_no_yaml_is_an_error_with_its_resource() {
        let error = document("n", None, &resource("apid", "a: [")).err().map(|e| format!("{e:#}")).unwrap();
        assert!(
            error.contains("Services.v1alpha1.talos.dev `apid`: its spec is not readable YAML"),
            "{error}"
        );
        assert_eq!(spec(&resource("apid", "")).unwrap(), Value::Null);
    }
}
