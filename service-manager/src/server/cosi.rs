//! `cosi.resource.State`: resources as the current client generation reads them.
//!
//! The client resolves names itself from the definitions' `proto_spec`; every resource carries both submessages
//! (crates/api/proto/cosi/resource/state.proto). Does not: write: each type has one writer on the node.

use std::sync::Arc;

use api::proto::cosi::resource as proto;
use api::proto::cosi::resource::state_server::State as StateService;
use runtime::request;
use tonic::{Request, Response, Status};

use super::answers::{Answers, answers, is_admin};
use super::cosi_form::encode;
use super::lists::answer_as_read;
use super::selection::Selection;
use super::{cosi_watch, locked, query};
use crate::node::Node;

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
        locked::may_read(&self.node, kind)?;
        let found =
            self.node.runtime.store.get(kind, &request.id).filter(|_| query::is_in(kind, &request.namespace));
        let resource = found.ok_or_else(|| query::not_found(kind, &request.namespace, &request.id))?;
        Ok(Response::new(proto::GetResponse { resource: Some(encode(&resource)?) }))
    }

    async fn list(&self, request: Request<proto::ListRequest>) -> Result<Response<Self::ListStream>, Status> {
        let admin = is_admin(&request);
        let request = request.into_inner();
        let kind = query::exact(&request.r#type, &request.namespace, admin)?;
        locked::may_read(&self.node, kind)?;
        let options = request.options.unwrap_or_default();
        let selection = Selection::new(&options.label_query, options.id_query.as_ref())?;
        let found = self.node.runtime.store.list(kind);
        let found = found.into_iter();
        let found = found.filter(|r| query::is_in(kind, &request.namespace) && selection.selects(r));
        Ok(answer_as_read(found.collect(), |resource| {
            encode(resource).map(|resource| proto::ListResponse { resource: Some(resource) })
        }))
    }

    async fn watch(
        &self,
        request: Request<proto::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let admin = is_admin(&request);
        let request = request.into_inner();
        let kind = query::exact(&request.r#type, &request.namespace, admin)?;
        locked::may_read(&self.node, kind)?;
        let watch = cosi_watch::Request::new(kind, request)?;
        let present = watch.observe(&self.node)?;
        let (sender, answer) = answers();
        request::feed(sender.clone(), async move {
            // An error means that the reader is gone.
            let _ = watch.run(present, &sender).await;
        });
        Ok(answer)
    }

    async fn create(
        &self,
        request: Request<proto::CreateRequest>,
    ) -> Result<Response<proto::CreateResponse>, Status> {
        let metadata = request.into_inner().resource.and_then(|resource| resource.metadata);
        Err(self.refuse("create", metadata))
    }

    async fn update(
        &self,
        request: Request<proto::UpdateRequest>,
    ) -> Result<Response<proto::UpdateResponse>, Status> {
        let metadata = request.into_inner().new_resource.and_then(|resource| resource.metadata);
        Err(self.refuse("update", metadata))
    }

    async fn destroy(
        &self,
        request: Request<proto::DestroyRequest>,
    ) -> Result<Response<proto::DestroyResponse>, Status> {
        let request = request.into_inner();
        let named = proto::Metadata {
            namespace: request.namespace,
            r#type: request.r#type,
            id: request.id,
            ..Default::default()
        };
        Err(self.refuse("destroy", Some(named)))
    }
}

impl State {
    /// Clients read; every type has its one writer on the node. The codes are those by which the state API's client tells
    /// its own errors: NotFound, AlreadyExists for a conflict, PermissionDenied for another owner.
    fn refuse(&self, verb: &str, named: Option<proto::Metadata>) -> Status {
        let Some(named) = named else {
            return Status::invalid_argument(format!("{verb}: the resource has no metadata"));
        };
        let kind = match query::exact(&named.r#type, &named.namespace, true) {
            Ok(kind) => kind,
            Err(status) => return status,
        };
        let (namespace, id) = (query::shortened(&named.namespace), query::shortened(&named.id));
        let name = format!("{}({namespace}/{id})", kind.kind);
        match (verb, self.node.runtime.store.get(kind, &named.id)) {
            ("create", Some(_)) => Status::already_exists(format!("resource {name} already exists")),
            ("create", None) | (_, Some(_)) => Status::permission_denied(format!(
                "resource {name} is owned by {:?}: {verb} is for its owner; use ApplyConfiguration to change the node",
                kind.writer
            )),
            (_, None) => query::not_found(kind, &named.namespace, &named.id),
        }
    }
}
