//! Calls that change the machine config, and the service of our own.
//!
//! Does not: decide anything; `crate::configuration` does.
//! Source: spec/api-wire-facts.md §3.6, §3.9.

use std::sync::Arc;

use api::proto::billet::EarlierDmesgRequest;
use api::proto::billet::machine_service_server::MachineService;
use api::proto::common::Data;
use api::proto::machine as proto;
use tonic::{Request, Response, Status};

use super::{Answers, streams};
use crate::configuration::apply::{self, Failure};
use crate::configuration::duration;
use crate::node::Node;

/// `billet.MachineService`: what talosctl has no call for.
pub(crate) struct Own {
    pub(crate) node: Arc<Node>,
}

#[tonic::async_trait]
impl MachineService for Own {
    type EarlierDmesgStream = Answers<Data>;

    async fn earlier_dmesg(
        &self,
        request: Request<EarlierDmesgRequest>,
    ) -> Result<Response<Self::EarlierDmesgStream>, Status> {
        streams::earlier_dmesg(&self.node, request.get_ref().back).await
    }

    async fn confirm_configuration(&self, _request: Request<()>) -> Result<Response<()>, Status> {
        apply::confirm(&self.node).await.map_err(|failure| status(&failure))?;
        Ok(Response::new(()))
    }
}

/// Applies a config in one of the modes.
pub(super) async fn apply(
    node: &Arc<Node>,
    request: &proto::ApplyConfigurationRequest,
) -> Result<proto::ApplyConfigurationResponse, Status> {
    let confirm = duration(request.confirm_timeout.as_ref());
    let answer = apply::apply(node, request, confirm).await.map_err(|failure| status(&failure))?;
    Ok(proto::ApplyConfigurationResponse { messages: vec![answer] })
}

fn status(failure: &Failure) -> Status {
    let text = failure.to_string();
    match failure {
        Failure::Wrong(_) | Failure::Refused(_) | Failure::Install(_) | Failure::Encryption(_) => {
            Status::invalid_argument(text)
        }
        Failure::Keep(_) => Status::internal(text),
        Failure::Busy
        | Failure::Rebooting
        | Failure::Locked(_)
        | Failure::Unconfirmed
        | Failure::NothingPending => Status::failed_precondition(text),
    }
}
