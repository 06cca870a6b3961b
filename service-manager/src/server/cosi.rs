//! `cosi.resource.State`: resources as the current client generation reads them.
//!
//! The client resolves names itself from the definitions' `proto_spec`; every resource carries both submessages; the
//! first message of a watch is empty (spec/api-wire-facts.md §2.4).

use std::collections::HashMap;
use std::sync::Arc;

use api::proto::cosi::resource as proto;
use api::proto::cosi::resource::meta;
use api::proto::cosi::resource::state_server::State as StateService;
use prost::Message;
use tokio::sync::broadcast::Receiver;
use tonic::{Request, Response, Status};

use super::{Answers, Sender, answer_with, answers, is_admin, query};
use crate::clock;
use crate::node::Node;
use crate::store::{Change, ChangeKind, Definition, Resource, Sensitivity, Spec};

/// The service.
pub(crate) struct State {
    pub(crate) node: Arc<Node>,
}

#[tonic::async_trait]
impl StateService for State {
    type ListStream = Answers<proto::ListResponse>;
    type WatchStream = Answers<proto::WatchResponse>;

    async fn get(&self, request: Request<proto::GetRequest>) -> Result<Response<proto::GetResponse>, Status> {
        let admin = is_admin(&request);
        let request = request.into_inner();
        let kind = query::exact(&request.r#type, &request.namespace, admin)?;
        let found = self.node.store.get(kind, &request.id).filter(|_| query::is_in(kind, &request.namespace));
        let resource = found.ok_or_else(|| query::not_found(kind, &request.namespace, &request.id))?;
        Ok(Response::new(proto::GetResponse { resource: Some(encode(&resource)?) }))
    }

    async fn list(&self, request: Request<proto::ListRequest>) -> Result<Response<Self::ListStream>, Status> {
        let admin = is_admin(&request);
        let request = request.into_inner();
        let kind = query::exact(&request.r#type, &request.namespace, admin)?;
        let options = request.options.unwrap_or_default();
        refuse_queries(&options.label_query, options.id_query.as_ref())?;
        let found = self.node.store.list(kind);
        let found = found.iter().filter(|_| query::is_in(kind, &request.namespace));
        let messages: Vec<_> = found
            .map(|r| encode(r).map(|resource| proto::ListResponse { resource: Some(resource) }))
            .collect();
        Ok(answer_with(messages))
    }

    async fn watch(
        &self,
        request: Request<proto::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let admin = is_admin(&request);
        let request = request.into_inner();
        let kind = query::exact(&request.r#type, &request.namespace, admin)?;
        let options = request.options.clone().unwrap_or_default();
        refuse_queries(&options.label_query, options.id_query.as_ref())?;
        if options.start_from_bookmark.is_some() {
            return Err(Status::failed_precondition("this server keeps no bookmarks: start the watch anew"));
        }
        let (now, later) = self.node.store.watch(kind);
        let now = if query::is_in(kind, &request.namespace) { now } else { Vec::new() };
        let (sender, answer) = answers();
        let watch = Watch {
            kind,
            id: request.id,
            bootstrap: options.bootstrap_contents,
            version: request.api_version,
        };
        tokio::spawn(async move {
            // The first message says only that the watch has begun.
            if sender.send(Ok(proto::WatchResponse { event: Vec::new() })).await.is_ok() {
                let _ = watch.run(now, later, &sender).await;
            }
        });
        Ok(answer)
    }

    async fn create(
        &self,
        _request: Request<proto::CreateRequest>,
    ) -> Result<Response<proto::CreateResponse>, Status> {
        Err(read_only())
    }

    async fn update(
        &self,
        _request: Request<proto::UpdateRequest>,
    ) -> Result<Response<proto::UpdateResponse>, Status> {
        Err(read_only())
    }

    async fn destroy(
        &self,
        _request: Request<proto::DestroyRequest>,
    ) -> Result<Response<proto::DestroyResponse>, Status> {
        Err(read_only())
    }
}

fn read_only() -> Status {
    Status::permission_denied("resources are written by the node's own controllers only")
}

fn refuse_queries(labels: &[proto::LabelQuery], id: Option<&proto::IdQuery>) -> Result<(), Status> {
    if labels.iter().any(|query| !query.terms.is_empty()) || id.is_some_and(|query| !query.regexp.is_empty())
    {
        return Err(Status::unimplemented(
            "label and id queries are not built yet on this version of Billet",
        ));
    }
    Ok(())
}

struct Watch {
    kind: &'static Definition,
    id: Option<String>,
    bootstrap: bool,
    version: i32,
}

impl Watch {
    fn wants(&self, resource: &Resource) -> bool {
        resource.metadata.kind == self.kind.kind
            && self.id.as_ref().is_none_or(|id| *id == resource.metadata.id)
    }

    /// Sends the present, then every change. Ends when the reader goes or falls a whole ring behind.
    async fn run(
        &self,
        now: Vec<Arc<Resource>>,
        mut later: Receiver<Change>,
        sender: &Sender<proto::WatchResponse>,
    ) -> Result<(), ()> {
        for event in self.present(&now) {
            send(sender, event).await?;
        }
        loop {
            let change = tokio::select! {
                change = later.recv() => change,
                () = sender.closed() => return Err(()),
            };
            match change {
                Ok(change) if self.wants(&change.resource) => send(sender, changed(&change)).await?,
                Ok(_) => {}
                Err(_) => {
                    let text = "the watch fell behind: too many changes at once";
                    return sender.send(Err(Status::resource_exhausted(text))).await.map_err(drop);
                }
            }
        }
    }

    /// With an id: its state or a tombstone. Without: everything, if wished, then BOOTSTRAPPED.
    fn present(&self, now: &[Arc<Resource>]) -> Vec<Result<proto::Event, Status>> {
        let wanted = now.iter().filter(|resource| self.wants(resource));
        let created =
            |resource: &Arc<Resource>| Ok(event(proto::EventType::Created, encode(resource)?, None));
        match &self.id {
            Some(id) => match wanted.map(created).next() {
                Some(created) => vec![created],
                None => vec![Ok(event(proto::EventType::Destroyed, tombstone(self.kind, id), None))],
            },
            None if self.bootstrap => {
                let mut events: Vec<_> = wanted.map(created).collect();
                if self.version >= 1 {
                    events.push(Ok(event(proto::EventType::Bootstrapped, tombstone(self.kind, ""), None)));
                }
                events
            }
            None => Vec::new(),
        }
    }
}

async fn send(sender: &Sender<proto::WatchResponse>, event: Result<proto::Event, Status>) -> Result<(), ()> {
    sender.send(event.map(|event| proto::WatchResponse { event: vec![event] })).await.map_err(drop)
}

fn changed(change: &Change) -> Result<proto::Event, Status> {
    let kind = match change.kind {
        ChangeKind::Created => proto::EventType::Created,
        ChangeKind::Updated => proto::EventType::Updated,
        ChangeKind::Destroyed => proto::EventType::Destroyed,
    };
    let old = change.old.as_ref().map(|old| encode(old)).transpose()?;
    Ok(event(kind, encode(&change.resource)?, old))
}

fn event(kind: proto::EventType, resource: proto::Resource, old: Option<proto::Resource>) -> proto::Event {
    proto::Event { resource: Some(resource), event_type: kind.into(), old, error: None, bookmark: None }
}

/// A resource that is not there: both submessages are present all the same.
fn tombstone(kind: &Definition, id: &str) -> proto::Resource {
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

fn encode(resource: &Resource) -> Result<proto::Resource, Status> {
    let metadata = &resource.metadata;
    let map = |from: &std::collections::BTreeMap<String, String>| -> HashMap<String, String> {
        from.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    let metadata = proto::Metadata {
        namespace: metadata.namespace.to_owned(),
        r#type: metadata.kind.to_owned(),
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
    Ok(proto::Resource {
        metadata: Some(metadata),
        spec: Some(proto::Spec { proto_spec: proto_spec(&resource.spec), yaml_spec }),
    })
}

/// The binary form, for the types whose client reads it.
fn proto_spec(spec: &Spec) -> Vec<u8> {
    match spec {
        Spec::Definition(kind) => definition(kind).encode_to_vec(),
        Spec::Namespace { description } => {
            meta::NamespaceSpec { description: (*description).to_owned() }.encode_to_vec()
        }
        _ => Vec::new(),
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
