//! What the API server answers while the node is locked.
//!
//! Owns: refusing every other call, whoever brings it: apid refuses them too, and learns a moment later than the node
//! that it is locked; which resources may be read then.
//! Does not: decide that the node is locked (`locked`), or which calls there are then (`api::roles`).
//! Fails by: PermissionDenied with the reason and the ways out.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::{Either, Ready, ready};
use http::{Request, Response};
use runtime::store::{Definition, MACHINE_STATUS, NAMESPACE, RESOURCE_DEFINITION, VOLUME_STATUS};
use tonic::Status;
use tonic::body::Body;
use tower::{Layer, Service};

use crate::locked::refusal;
use crate::node::Node;

/// What says why the node is locked, and what a client needs to show it.
static SHOWN: [&Definition; 4] = [&MACHINE_STATUS, &VOLUME_STATUS, &RESOURCE_DEFINITION, &NAMESPACE];

/// Whether resources of this type may be read now.
pub(super) fn may_read(node: &Node, kind: &Definition) -> Result<(), Status> {
    if SHOWN.iter().any(|shown| shown.kind == kind.kind) {
        return Ok(());
    }
    match node.configuration.maintenance.borrow().lock() {
        Some(why) => Err(Status::permission_denied(refusal(kind.kind, why))),
        None => Ok(()),
    }
}

/// Puts [`Guarded`] around the services.
#[derive(Clone)]
pub(super) struct Guard(pub(super) Arc<Node>);

impl<S> Layer<S> for Guard {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Guarded<S> {
        Guarded { inner, node: self.0.clone() }
    }
}

/// Services that a locked node offers in part.
#[derive(Clone)]
pub(super) struct Guarded<S> {
    inner: S,
    node: Arc<Node>,
}

impl<S, B> Service<Request<B>> for Guarded<S>
where
    S: Service<Request<B>, Response = Response<Body>>,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Either<S::Future, Ready<Result<Self::Response, S::Error>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let path = request.uri().path();
        let refused = match self.node.configuration.maintenance.borrow().lock() {
            Some(why) if !api::roles::is_offered_locked(path) => {
                Some(Status::permission_denied(refusal(path, why)))
            }
            _ => None,
        };
        match refused {
            Some(status) => Either::Right(ready(Ok(status.into_http()))),
            None => Either::Left(self.inner.call(request)),
        }
    }
}
