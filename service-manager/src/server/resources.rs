//! `resource.ResourceService`: resources as the first client generation reads them.
//!
//! The server resolves the typed word; the definition travels with the answer (crates/api/proto/resource/resource.proto).

use std::sync::Arc;

use api::proto::resource as proto;
use api::proto::resource::resource_service_server::ResourceService;
use runtime::request;
use runtime::store::{
    Change, ChangeKind, Definition, IN_FORCE, MACHINE_CONFIG, RESOURCE_DEFINITION, Resource,
};
use tokio::sync::broadcast::Receiver;
use tonic::{Request, Response, Status};

use super::answers::{Answers, Sender, answers, is_admin};
use super::lists::answer_as_read;
use super::{locked, query};
use crate::node::Node;

/// The service.
pub(crate) struct Resources {
    pub(crate) node: Arc<Node>,
}

#[tonic::async_trait]
impl ResourceService for Resources {
    type ListStream = Answers<proto::ListResponse>;
    type WatchStream = Answers<proto::WatchResponse>;

    async fn get(&self, request: Request<proto::GetRequest>) -> Result<Response<proto::GetResponse>, Status> {
        let admin = is_admin(&request);
        let request = request.into_inner();
        let definition = query::readable(&request.r#type, &request.namespace, admin)?;
        locked::may_read(&self.node, definition)?;
        let found = self
            .node
            .runtime
            .store
            .get(definition, &request.id)
            .filter(|_| query::is_in(definition, &request.namespace));
        let resource = found.ok_or_else(|| query::not_found(definition, &request.namespace, &request.id))?;
        let answer = proto::Get {
            metadata: None,
            definition: Some(self.definition(definition)?),
            resource: Some(encode(&resource)?),
        };
        Ok(Response::new(proto::GetResponse { messages: vec![answer] }))
    }

    async fn list(&self, request: Request<proto::ListRequest>) -> Result<Response<Self::ListStream>, Status> {
        let admin = is_admin(&request);
        let request = request.into_inner();
        let definition = query::readable(&request.r#type, &request.namespace, admin)?;
        locked::may_read(&self.node, definition)?;
        let first = proto::ListResponse {
            metadata: None,
            definition: Some(self.definition(definition)?),
            resource: None,
        };
        let found = self.node.runtime.store.list(definition).into_iter();
        let found =
            found.filter(|resource| is_known(resource) && query::is_in(definition, &request.namespace));
        let found = found.map(Some);
        Ok(answer_as_read(std::iter::once(None).chain(found).collect(), move |resource| match resource {
            None => Ok(first.clone()),
            Some(resource) => {
                let resource = Some(encode(resource)?);
                Ok(proto::ListResponse { metadata: None, definition: None, resource })
            }
        }))
    }

    async fn watch(
        &self,
        request: Request<proto::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let admin = is_admin(&request);
        let request = request.into_inner();
        let kind = query::readable(&request.r#type, &request.namespace, admin)?;
        locked::may_read(&self.node, kind)?;
        let definition = self.definition(kind)?;
        let (now, later) = self.node.runtime.store.watch(kind);
        let now = if query::is_in(kind, &request.namespace) { now } else { Vec::new() };
        let (sender, answer) = answers();
        request::feed(sender.clone(), async move {
            let first = proto::WatchResponse { definition: Some(definition), ..Default::default() };
            if sender.send(Ok(first)).await.is_ok() {
                let _ = follow(kind, &request.id, now, later, &sender).await;
            }
        });
        Ok(answer)
    }
}

impl Resources {
    fn definition(&self, of: &'static Definition) -> Result<proto::Resource, Status> {
        let resource = self.node.runtime.store.get(&RESOURCE_DEFINITION, &of.id());
        encode(&*resource.ok_or_else(|| Status::internal(format!("{} is not registered", of.kind)))?)
    }
}

/// Whether clients of this generation take a resource of a list for what it is: `patch` and `edit` change every config that they
/// are shown, and would send one of them in the place of the other.
fn is_known(resource: &Resource) -> bool {
    resource.metadata.kind != MACHINE_CONFIG.kind || resource.metadata.id == IN_FORCE
}

/// Sends the present, then every change. Ends when the reader goes or falls a whole ring behind.
async fn follow(
    kind: &'static Definition,
    id: &str,
    now: Vec<Arc<Resource>>,
    mut later: Receiver<Change>,
    sender: &Sender<proto::WatchResponse>,
) -> Result<(), ()> {
    let wanted = |resource: &Resource| {
        let is_asked = if id.is_empty() { is_known(resource) } else { resource.metadata.id == id };
        resource.metadata.kind == kind.kind && is_asked
    };
    let send = async |event: proto::EventType, resource: Result<proto::Resource, Status>| {
        let message = resource.map(|resource| proto::WatchResponse {
            metadata: None,
            event_type: event.into(),
            definition: None,
            resource: Some(resource),
        });
        sender.send(message).await.map_err(drop)
    };
    let present: Vec<_> = now.iter().filter(|resource| wanted(resource)).collect();
    if present.is_empty() && !id.is_empty() {
        send(proto::EventType::Destroyed, Ok(tombstone(kind, id))).await?;
    }
    for resource in present {
        send(proto::EventType::Created, encode(resource)).await?;
    }
    loop {
        let change = tokio::select! {
            change = later.recv() => change,
            () = sender.closed() => return Err(()),
        };
        let Ok(change) = change else {
            let text = "the watch fell behind: too many changes at once";
            return sender.send(Err(Status::resource_exhausted(text))).await.map_err(drop);
        };
        if wanted(&change.resource) {
            let event = match change.kind {
                ChangeKind::Created => proto::EventType::Created,
                ChangeKind::Updated => proto::EventType::Updated,
                ChangeKind::Destroyed => proto::EventType::Destroyed,
            };
            send(event, encode(&change.resource)).await?;
        }
    }
}

fn tombstone(kind: &Definition, id: &str) -> proto::Resource {
    let metadata = proto::Metadata {
        namespace: kind.namespace.to_owned(),
        r#type: kind.kind.to_owned(),
        id: id.to_owned(),
        version: "undefined".to_owned(),
        phase: "running".to_owned(),
        finalizers: Vec::new(),
    };
    proto::Resource { metadata: Some(metadata), spec: Some(proto::Spec::default()) }
}

fn encode(resource: &Resource) -> Result<proto::Resource, Status> {
    let metadata = &resource.metadata;
    let yaml = resource.spec.yaml().map_err(|e| Status::internal(e.to_string()))?;
    Ok(proto::Resource {
        metadata: Some(proto::Metadata {
            namespace: metadata.namespace.to_owned(),
            r#type: metadata.kind.to_owned(),
            id: metadata.id.clone(),
            version: metadata.version.to_string(),
            phase: metadata.phase.text().to_owned(),
            finalizers: metadata.finalizers.clone(),
        }),
        spec: Some(proto::Spec { yaml: yaml.into_bytes() }),
    })
}
