//! Objects of manifests, and in which order they are made: what others need comes first.

use std::collections::BTreeSet;

use serde_json::Value;

/// A manifest: its id, and its objects.
#[derive(Clone, PartialEq)]
pub struct Manifest {
    /// `10-kube-proxy`: they are applied in this order.
    pub id: String,
    /// The objects.
    pub objects: Vec<Value>,
}

/// All objects of manifests, each with its manifest's id: namespaces, then definitions of kinds, both by name, then the others
/// in the order of the manifests.
#[must_use]
pub fn ordered(manifests: &[Manifest]) -> Vec<(&str, &Value)> {
    let mut objects: Vec<(&str, &Value)> = manifests
        .iter()
        .flat_map(|manifest| manifest.objects.iter().map(|object| (manifest.id.as_str(), object)))
        .collect();
    objects.sort_by_key(|(_, object)| rank(object));
    objects
}

/// The kinds that these manifests define, as `group/kind`.
#[must_use]
pub fn defined(manifests: &[Manifest]) -> BTreeSet<String> {
    let objects = manifests.iter().flat_map(|manifest| &manifest.objects);
    let definitions = objects.filter(|object| is_definition(object));
    definitions
        .map(|object| format!("{}/{}", word(object, "/spec/group"), word(object, "/spec/names/kind")))
        .collect()
}

fn word<'a>(object: &'a Value, at: &str) -> &'a str {
    object.pointer(at).and_then(Value::as_str).unwrap_or_default()
}

fn is_definition(object: &Value) -> bool {
    word(object, "/kind") == "CustomResourceDefinition"
        && word(object, "/apiVersion").starts_with("apiextensions.k8s.io/")
}

/// Objects with the same rank keep their order.
fn rank(object: &Value) -> (u8, &str) {
    if word(object, "/kind") == "Namespace" && word(object, "/apiVersion") == "v1" {
        (0, word(object, "/metadata/name"))
    } else if is_definition(object) {
        (1, word(object, "/metadata/name"))
    } else {
        (2, "")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(api: &str, kind: &str, name: &str) -> Value {
        json!({ "apiVersion": api, "kind": kind, "metadata": { "name": name } })
    }

    #[test]
    fn namespaces_and_definitions_come_first() {
        let definition = "CustomResourceDefinition";
        let mut first = object("apiextensions.k8s.io/v1", definition, "z");
        first["spec"] = json!({ "group": "example.org", "names": { "kind": "Thing" } });
        let manifests = [
            Manifest { id: "1".into(), objects: vec![object("v1", "Pod", "z"), first] },
            Manifest {
                id: "2".into(),
                objects: vec![
                    object("example.org/v1", "Namespace", "a"),
                    object("v1", "Namespace", "d"),
                    object("apiextensions.k8s.io/v1", definition, "y"),
                    object("v1", "Namespace", "c"),
                    object("v1", "Pod", "a"),
                ],
            },
        ];
        let names: Vec<_> = ordered(&manifests)
            .iter()
            .map(|(id, object)| format!("{id}{}", word(object, "/metadata/name")))
            .collect();
        assert_eq!(names, ["2c", "2d", "2y", "1z", "1z", "2a", "2a"]);
        assert_eq!(defined(&manifests), ["/".to_owned(), "example.org/Thing".to_owned()].into());
    }
}
