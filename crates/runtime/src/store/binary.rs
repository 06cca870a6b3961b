//! The binary form of a spec, which typed clients read.
//!
//! Owns: the keys that are ours alone. Does not: know field numbers (api::definitions does).
//! Types of `billet.dev` have no binary form: no published client knows them.

use api::definitions::{self, Problem, published};
use api::proto::cosi::resource::meta;
use api::proto::talos::resource::definitions::config::MachineConfigSpec;
use prost::Message;
use serde_json::{Value, json};

use super::spec::Tree;
use super::{Definition, KubernetesSpec, Sensitivity, Spec};

/// Keys of published types that the published messages do not have: only the YAML form shows them. A key within others stands
/// behind theirs, with dots.
pub const OURS: &[(&str, &str)] = &[
    // Why a volume could not be read.
    ("DiscoveredVolumes.block.talos.dev", "error"),
    // Whether the module is there, and why not.
    ("KernelModuleSpecs.runtime.talos.dev", "loaded"),
    ("KernelModuleSpecs.runtime.talos.dev", "error"),
    // What `wg show` says besides.
    ("LinkStatuses.net.talos.dev", "wireguard.peers.lastHandshake"),
    ("LinkStatuses.net.talos.dev", "wireguard.peers.receivedBytes"),
    ("LinkStatuses.net.talos.dev", "wireguard.peers.transmittedBytes"),
    // Where the key came from that opened the volume.
    ("VolumeStatuses.block.talos.dev", "encryptionKey"),
];

/// A spec without a binary form that should have one: a fault of the node.
#[derive(Debug, thiserror::Error)]
pub enum BinaryError {
    /// The spec cannot be shown.
    #[error("show the spec of {0} as a tree")]
    Tree(&'static str, #[source] serde_json::Error),
    /// A value does not fit its field.
    #[error("write the binary form of {0}")]
    Field(&'static str, #[source] Problem),
}

impl Spec {
    /// The binary form of a resource of that type, empty where there is none.
    pub fn binary(&self, kind: &'static str) -> Result<Vec<u8>, BinaryError> {
        match self {
            Self::Definition(kind) => return Ok(definition(kind).encode_to_vec()),
            Self::Namespace { description } => {
                let description = (*description).to_owned();
                return Ok(meta::NamespaceSpec { description }.encode_to_vec());
            }
            Self::MachineConfig(document) => {
                let yaml_marshalled = document.text.as_bytes().to_vec();
                return Ok(MachineConfigSpec { yaml_marshalled }.encode_to_vec());
            }
            _ => {}
        }
        let Some(message) =
            published().iter().find(|known| known.kind == kind).and_then(|known| known.message)
        else {
            return Ok(Vec::new());
        };
        let mut tree = serde_json::to_value(Tree(self)).map_err(|e| BinaryError::Tree(kind, e))?;
        if let Self::MachineType(name) = self {
            tree = json!({ "machineType": name });
        }
        // What the YAML form shows bare is a field of the message.
        if let Self::Kubernetes(spec) = self {
            tree = match spec {
                KubernetesSpec::Manifest(_) => json!({ "items": tree }),
                KubernetesSpec::StaticPod(_) => json!({ "pod": tree }),
                KubernetesSpec::StaticPodStatus(_) => json!({ "podStatus": tree }),
                KubernetesSpec::ManifestStatus { .. } | KubernetesSpec::ExtraManifests { .. } => tree,
            };
        }
        for (_, path) in OURS.iter().filter(|(of, _)| *of == kind) {
            remove(&mut tree, path);
        }
        definitions::encode(message, &tree).map_err(|e| BinaryError::Field(kind, e))
    }
}

/// Removes a key from a tree, in each element of a list that is on the way.
fn remove(tree: &mut Value, path: &str) {
    match (tree, path.split_once('.')) {
        (Value::Array(items), _) => items.iter_mut().for_each(|item| remove(item, path)),
        (Value::Object(map), Some((first, rest))) => {
            if let Some(inner) = map.get_mut(first) {
                remove(inner, rest);
            }
        }
        (Value::Object(map), None) => drop(map.remove(path)),
        _ => {}
    }
}

fn definition(kind: &Definition) -> meta::ResourceDefinitionSpec {
    let columns = kind.columns.iter();
    let sensitivity = match kind.sensitivity {
        Sensitivity::NonSensitive => meta::resource_definition_spec::Sensitivity::NonSensitive,
        Sensitivity::Sensitive => meta::resource_definition_spec::Sensitivity::Sensitive,
    };
    meta::ResourceDefinitionSpec {
        resource_type: kind.kind.to_owned(),
        display_type: kind.display.to_owned(),
        default_namespace: kind.namespace.to_owned(),
        aliases: kind.short_aliases(),
        all_aliases: kind.all_aliases(),
        print_columns: columns
            .map(|c| meta::PrintColumn { name: c.name.to_owned(), json_path: c.path.to_owned() })
            .collect(),
        sensitivity: sensitivity.into(),
    }
}

#[cfg(test)]
mod tests;
