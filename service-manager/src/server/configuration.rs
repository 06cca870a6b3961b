//! Calls that change the machine config, and the service of our own.
//!
//! Does not: decide anything; `crate::configuration` and `crate::volumes` do.
//! Source: docs/users/config-lifecycle.md, crates/api/proto/billet.proto.

use std::sync::Arc;

use api::proto::billet as own;
use api::proto::billet::EarlierDmesgRequest;
use api::proto::billet::machine_service_server::MachineService;
use api::proto::common::Data;
use api::proto::machine as proto;
use tonic::{Request, Response, Status};
use zeroize::Zeroizing;

use super::answers::Answers;
use super::streams;
use crate::configuration::apply::{self, Failure};
use crate::configuration::duration;
use crate::identity::certificates;
use crate::node::Node;
use crate::volumes::{self, NotUnlocked};

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
        apply::confirm(&self.node.configuration).await.map_err(|failure| status(&failure))?;
        Ok(Response::new(()))
    }

    async fn recovery_keys(
        &self,
        _request: Request<()>,
    ) -> Result<Response<own::RecoveryKeysResponse>, Status> {
        let node = self.node.clone();
        let offered =
            super::answers::blocking(move || volumes::offered(&node.volumes).map_err(Status::internal))
                .await?;
        let keys = offered.into_iter().map(|key| own::RecoveryKey {
            volume: key.volume,
            slot: key.slot.into(),
            file: key.file,
            recipients: key.recipients,
        });
        let answer = own::RecoveryKeys { metadata: None, keys: keys.collect() };
        Ok(Response::new(own::RecoveryKeysResponse { messages: vec![answer] }))
    }

    async fn renew_certificates(
        &self,
        _request: Request<()>,
    ) -> Result<Response<own::RenewCertificatesResponse>, Status> {
        if self.node.runtime.config().is_none() {
            return Err(Status::failed_precondition(
                "there is no config in force: the node has one certificate until it has one",
            ));
        }
        let renewed = certificates::renew(&self.node.identity).await;
        let answer = own::RenewCertificates { metadata: None, renewed: renewed.ids, failed: renewed.failed };
        Ok(Response::new(own::RenewCertificatesResponse { messages: vec![answer] }))
    }

    async fn unlock(
        &self,
        request: Request<own::UnlockRequest>,
    ) -> Result<Response<own::UnlockResponse>, Status> {
        let own::UnlockRequest { volume, key } = request.into_inner();
        let key = Zeroizing::new(key);
        let node = self.node.clone();
        let unlocked = super::answers::blocking(move || {
            volumes::unlock(&node.volumes, &volume, &key).map_err(not_unlocked)
        })
        .await?;
        let answer = own::Unlock {
            metadata: None,
            slot: unlocked.slot.into(),
            replaced: unlocked.replaced.into_iter().map(u32::from).collect(),
            failed: unlocked.failed,
            next: unlocked.next.to_owned(),
        };
        Ok(Response::new(own::UnlockResponse { messages: vec![answer] }))
    }
}

/// Applies a config in one of the modes.
pub(super) async fn apply(
    node: &Arc<Node>,
    request: &proto::ApplyConfigurationRequest,
) -> Result<proto::ApplyConfigurationResponse, Status> {
    let confirm = duration(request.confirm_timeout.as_ref());
    let answer =
        apply::apply(&node.configuration, request, confirm).await.map_err(|failure| status(&failure))?;
    Ok(proto::ApplyConfigurationResponse { messages: vec![answer] })
}

fn not_unlocked(why: NotUnlocked) -> Status {
    let text = why.to_string();
    match why {
        NotUnlocked::Key(_) | NotUnlocked::Volume(_) => Status::invalid_argument(text),
        NotUnlocked::Refused(_) => Status::failed_precondition(text),
    }
}

fn status(failure: &Failure) -> Status {
    let text = failure.to_string();
    match failure {
        Failure::Wrong(_) | Failure::Refused(_) | Failure::Install(_) | Failure::Encryption(_) => {
            Status::invalid_argument(text)
        }
        Failure::Outdated { .. } | Failure::Waiting => Status::aborted(text),
        Failure::Keep(_) => Status::internal(text),
        Failure::Closed(_) => Status::permission_denied(text),
        Failure::Busy
        | Failure::Rebooting
        | Failure::Locked(_)
        | Failure::Unconfirmed
        | Failure::InContainer
        | Failure::NothingPending => Status::failed_precondition(text),
    }
}
