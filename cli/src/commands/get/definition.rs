//! Finding the type of resource that a word means.
//!
//! Owns: the match of ids and aliases without regard to case, and the errors for none and for several.
//! Source: crates/api/proto/cosi/resource/meta.proto (resolution is the client's work).

use crate::session::Session;
use anyhow::{Context, Result, anyhow, bail};
use api::{
    client,
    proto::cosi::resource::{
        ListRequest, Resource,
        meta::{ResourceDefinitionSpec, resource_definition_spec::Sensitivity},
    },
};
use prost::Message;

/// Type of the resources that describe types.
const DEFINITIONS: &str = "ResourceDefinitions.meta.cosi.dev";
/// Their namespace.
const META: &str = "meta";

/// A type of resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Definition {
    /// Full name: `Services.v1alpha1.talos.dev`.
    pub(crate) kind: String,
    /// Name in the TYPE column.
    pub(crate) display: String,
    /// Namespace unless another is given.
    pub(crate) default_namespace: String,
    /// Heading and JSONPath of the further columns.
    pub(crate) columns: Vec<(String, String)>,
    /// Whether only administrators may read it.
    pub(crate) sensitive: bool,
}

impl Definition {
    /// The type that `word` means on `node`.
    pub(crate) async fn find(session: &Session, node: Option<&str>, word: &str) -> Result<Self> {
        choose(&definitions(session, node).await?, word)
    }

    /// All types of `node`.
    pub(crate) async fn all(session: &Session, node: Option<&str>) -> Result<Vec<Self>> {
        let all = definitions(session, node).await?;
        all.iter().map(|resource| Ok(definition(&decode(resource)?))).collect()
    }
}

/// The resources that describe types.
async fn definitions(session: &Session, node: Option<&str>) -> Result<Vec<Resource>> {
    let request = ListRequest { namespace: META.to_owned(), r#type: DEFINITIONS.to_owned(), options: None };
    let mut state = session.client.state();
    let response = state.list(client::to_node(request, node)).await;
    let mut stream =
        response.map_err(|s| session.error(&s)).context("ask for the types of resources")?.into_inner();
    let mut definitions = Vec::new();
    while let Some(item) = stream.message().await.map_err(|s| session.error(&s))? {
        definitions.extend(item.resource);
    }
    Ok(definitions)
}

fn choose(definitions: &[Resource], word: &str) -> Result<Definition> {
    let wanted = word.to_lowercase();
    let mut found = Vec::new();
    for resource in definitions {
        let id = resource.metadata.as_ref().map_or("", |m| m.id.as_str());
        let spec = decode(resource).with_context(|| format!("definition `{id}`"))?;
        let names = spec.all_aliases.iter().map(String::as_str).chain([id]);
        if names.into_iter().any(|name| name.to_lowercase() == wanted) {
            found.push(spec);
        }
    }
    match found.as_slice() {
        [] => bail!("there is no type of resource `{word}`; `billetctl get rd` lists them"),
        [one] => Ok(definition(one)),
        several => {
            let names: Vec<_> = several.iter().map(|s| s.resource_type.as_str()).collect();
            bail!("`{word}` could be {}; write one of these", names.join(" or "))
        }
    }
}

fn decode(resource: &Resource) -> Result<ResourceDefinitionSpec> {
    let spec = resource.spec.as_ref().ok_or_else(|| anyhow!("it has no spec"))?;
    Ok(ResourceDefinitionSpec::decode(spec.proto_spec.as_slice())?)
}

fn definition(spec: &ResourceDefinitionSpec) -> Definition {
    Definition {
        kind: spec.resource_type.clone(),
        display: spec.display_type.clone(),
        default_namespace: spec.default_namespace.clone(),
        columns: spec.print_columns.iter().map(|c| (c.name.to_uppercase(), c.json_path.clone())).collect(),
        sensitive: spec.sensitivity() != Sensitivity::NonSensitive,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::proto::cosi::resource::{Metadata, Spec, meta::PrintColumn};

    fn resource(kind: &str, aliases: &[&str]) -> Resource {
        let spec = ResourceDefinitionSpec {
            resource_type: kind.into(),
            display_type: kind.split('.').next().unwrap_or_default().trim_end_matches('s').into(),
            default_namespace: "runtime".into(),
            all_aliases: aliases.iter().map(ToString::to_string).collect(),
            print_columns: vec![PrintColumn { name: "Running".into(), json_path: "{.running}".into() }],
            ..Default::default()
        };
        Resource {
            metadata: Some(Metadata { id: kind.to_lowercase(), ..Default::default() }),
            spec: Some(Spec { proto_spec: spec.encode_to_vec(), yaml_spec: String::new() }),
        }
    }

    #[test]
    fn words_find_their_type() {
        let all = [
            resource("Services.v1alpha1.talos.dev", &["services", "service", "svc"]),
            resource("StaticPods.k.dev", &["sps"]),
            resource("StaticPodStatuses.k.dev", &["sps"]),
        ];
        for word in ["svc", "Service", "SERVICES.v1alpha1.talos.dev"] {
            let definition = choose(&all, word).unwrap();
            assert_eq!(
                (definition.kind.as_str(), definition.display.as_str()),
                ("Services.v1alpha1.talos.dev", "Service")
            );
            assert_eq!(definition.columns, [("RUNNING".to_owned(), "{.running}".to_owned())]);
        }
        let error = |word: &str| choose(&all, word).unwrap_err().to_string();
        assert_eq!(
            error("sps"),
            "`sps` could be StaticPods.k.dev or StaticPodStatuses.k.dev; write one of these"
        );
        assert!(error("x").contains("billetctl get rd"));
    }
}
