//! Objects in the API server: made where they are missing, never changed and never removed.
//!
//! Owns: which address a kind has, and what an answer of the server means.
//! Source: the discovery and object calls of the Kubernetes API; `default` is where kubectl puts what names no namespace.

use std::collections::BTreeMap;

use kube::Client;
use kube::api::{Api, DynamicObject, PostParams};
use kube::core::GroupVersion;
use kube::discovery::{self, ApiResource, Scope};
use serde_json::Value;

use crate::Error;

/// Under which name the server notes who made a field.
const FIELD_MANAGER: &str = "talos";
const DEFAULT_NAMESPACE: &str = "default";

/// Which object it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) namespace: String,
    pub(super) name: String,
}

impl Key {
    pub(super) fn of(object: &Value) -> Self {
        let word = |at: &str| object.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
        Self {
            api_version: word("/apiVersion"),
            kind: word("/kind"),
            namespace: word("/metadata/namespace"),
            name: word("/metadata/name"),
        }
    }

    /// `group/kind`.
    pub(super) fn group_kind(&self) -> String {
        let group = self.api_version.rsplit_once('/').map_or("", |(group, _)| group);
        format!("{group}/{}", self.kind)
    }
}

/// `apps/v1/Deployment kube-system/coredns`.
impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { api_version, kind, namespace, name } = self;
        let separator = if namespace.is_empty() { "" } else { "/" };
        write!(f, "{api_version}/{kind} {namespace}{separator}{name}")
    }
}

/// What became of an object.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is there now.
    Created,
    /// It was there before.
    Exists,
    /// The server does not know its kind, or not yet.
    UnknownKind,
    /// The server's words.
    Refused(String),
}

/// The API server, and the addresses of kinds that it told.
pub(super) struct Server {
    client: Client,
    known: BTreeMap<String, Vec<(ApiResource, Scope)>>,
}

impl Server {
    pub(super) fn new(client: Client) -> Self {
        Self { client, known: BTreeMap::new() }
    }

    /// Makes an object if it is missing.
    ///
    /// # Errors
    /// [`Error::ApiServer`] if the server does not answer.
    pub(super) async fn bring(&mut self, key: &Key, object: &Value) -> Result<Outcome, Error> {
        match self.make_missing(key, object).await {
            Ok(outcome) => Ok(outcome),
            Err(kube::Error::Api(status)) if status.is_already_exists() || status.is_conflict() => {
                Ok(Outcome::Exists)
            }
            Err(kube::Error::Api(status)) => {
                // What the server says of a secret may repeat it.
                let words = if key.kind == "Secret" { &status.reason } else { &status.message };
                let words = if words.is_empty() { "no reason given" } else { words };
                Ok(Outcome::Refused(format!("{words} ({})", status.code)))
            }
            Err(error) => Err(Error::ApiServer {
                what: "ask",
                reason: format!("{key}: {}", runtime::errors::chain(&error)),
            }),
        }
    }

    async fn make_missing(&mut self, key: &Key, object: &Value) -> Result<Outcome, kube::Error> {
        let Some((resource, scope)) = self.resource(key).await? else { return Ok(Outcome::UnknownKind) };
        let api: Api<DynamicObject> = match (scope, key.namespace.as_str()) {
            (Scope::Cluster, _) => Api::all_with(self.client.clone(), &resource),
            (Scope::Namespaced, "") => {
                Api::namespaced_with(self.client.clone(), DEFAULT_NAMESPACE, &resource)
            }
            (Scope::Namespaced, name) => Api::namespaced_with(self.client.clone(), name, &resource),
        };
        if api.get_metadata_opt(&key.name).await?.is_some() {
            return Ok(Outcome::Exists);
        }
        let object = match serde_json::from_value::<DynamicObject>(object.clone()) {
            Ok(object) => object,
            Err(error) => return Ok(Outcome::Refused(format!("metadata: {error}"))),
        };
        let parameters =
            PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        api.create(&parameters, &object).await.map(|_| Outcome::Created)
    }

    /// Where a kind lies; `None`: the server has none of this name.
    async fn resource(&mut self, key: &Key) -> Result<Option<(ApiResource, Scope)>, kube::Error> {
        if !self.known.contains_key(&key.api_version) {
            let Ok(group) = key.api_version.parse::<GroupVersion>() else { return Ok(None) };
            let found = match discovery::pinned_group(&self.client, &group).await {
                Ok(found) => found.versioned_resources(&group.version),
                Err(kube::Error::Api(status)) if status.code == 404 => return Ok(None),
                Err(error) => return Err(error),
            };
            let found = found.into_iter().map(|(resource, about)| (resource, about.scope)).collect();
            self.known.insert(key.api_version.clone(), found);
        }
        let mut found = self.known.get(&key.api_version).into_iter().flatten();
        Ok(found.find(|(resource, _)| resource.kind == key.kind).cloned())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_key_says_what_and_where() {
        let object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "a", "namespace": "b" },
        });
        let key = Key::of(&object);
        assert_eq!(
            (key.to_string().as_str(), key.group_kind().as_str()),
            ("apps/v1/Deployment b/a", "apps/Deployment")
        );
        let key = Key::of(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "a" } }));
        assert_eq!((key.to_string().as_str(), key.group_kind().as_str()), ("v1/Namespace a", "/Namespace"));
    }
}
