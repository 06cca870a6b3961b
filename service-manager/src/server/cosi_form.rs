//! A resource as the current client generation reads it.
//!
//! Source: crates/api/proto/cosi/resource/state.proto.

use std::collections::HashMap;
use std::error::Error;

use api::proto::cosi::resource as proto;
use runtime::clock;
use runtime::store::{Definition, Resource};
use tonic::Status;

/// A resource that is not there: both submessages are present all the same.
pub(super) fn tombstone(kind: &Definition, id: &str) -> proto::Resource {
    let metadata = proto::Metadata {
        namespace: kind.namespace.to_owned(),
        r#type: kind.kind.to_owned(),
        id: id.to_owned(),
        version: "undefined".to_owned(),
        phase: "running".to_owned(),
        ..Default::default()
    };
    proto::Resource { metadata: Some(metadata), spec: Some(proto::Spec::default()) }
}

/// With the spec in both forms.
pub(super) fn encode(resource: &Resource) -> Result<proto::Resource, Status> {
    let metadata = &resource.metadata;
    let map = |from: &std::collections::BTreeMap<String, String>| -> HashMap<String, String> {
        from.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    let kind = metadata.kind;
    let metadata = proto::Metadata {
        namespace: metadata.namespace.to_owned(),
        r#type: kind.to_owned(),
        id: metadata.id.clone(),
        version: metadata.version.to_string(),
        owner: metadata.owner.to_owned(),
        phase: metadata.phase.text().to_owned(),
        created: Some(clock::proto(metadata.created)),
        updated: Some(clock::proto(metadata.updated)),
        finalizers: metadata.finalizers.clone(),
        labels: map(&metadata.labels),
        annotations: map(&metadata.annotations),
    };
    let yaml_spec = resource.spec.yaml().map_err(|e| Status::internal(e.to_string()))?;
    let proto_spec = resource.spec.binary(kind).map_err(|e| {
        Status::internal(format!("{e}: {}", e.source().map_or_else(String::new, ToString::to_string)))
    })?;
    Ok(proto::Resource { metadata: Some(metadata), spec: Some(proto::Spec { proto_spec, yaml_spec }) })
}
