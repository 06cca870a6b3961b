//! Calls that upgrade this node or take it back: `MachineService`'s, and the newer `LifecycleService`.
//!
//! Owns: the answers. What is wrong with a request is answered at once; the work goes on behind the answer.
//! Source: spec/api-wire-facts.md §2.2, §2.5, §3.9; spec/machine-facts.md §9.3.

use std::sync::Arc;

use api::proto::machine as proto;
use api::proto::machine::lifecycle_service_install_progress::Response as Word;
use api::proto::machine::lifecycle_service_server::LifecycleService;
use tokio::sync::mpsc;
use tonic::{Request, Response, Status};

use super::{Answers, Sender, answers};
use crate::events;
use crate::node::Node;
use crate::sequencer::{self, Start, TaskFn};
use crate::sequences::{REBOOT, STAGE_UPGRADE, UPGRADE};
use crate::upgrade::{self, CALL_PATIENCE};

/// What both generations of clients print.
const ACKNOWLEDGED: &str = "Upgrade request received";

/// `MachineService.Upgrade`.
pub(super) async fn upgrade(
    node: &Arc<Node>,
    request: &proto::UpgradeRequest,
) -> Result<proto::UpgradeResponse, Status> {
    let sequence = if request.stage { &STAGE_UPGRADE } else { &UPGRADE };
    sequencer::may_start(node, sequence).map_err(|locked| Status::failed_precondition(locked.to_string()))?;
    let prepared = upgrade::prepare(node, &request.image, CALL_PATIENCE).await?;
    let asked = upgrade::Request { image: request.image.clone() };
    if request.stage {
        upgrade::stage(node, &asked).await?;
    } else {
        node.upgrades.ask(asked);
    }
    let (how, version) = (if request.stage { "staged upgrade" } else { "upgrade" }, &prepared.facts.version);
    let actor_id = begin(node, sequence, &format!("{how} to {version}"), false)?;
    let answer = proto::Upgrade { metadata: None, ack: ACKNOWLEDGED.to_owned(), actor_id };
    Ok(proto::UpgradeResponse { messages: vec![answer] })
}

/// `MachineService.Rollback`.
pub(super) async fn rollback(node: &Arc<Node>) -> Result<proto::RollbackResponse, Status> {
    let entry = upgrade::roll_back(node).await?;
    begin(node, &REBOOT, &format!("rollback to {entry}"), true)?;
    Ok(proto::RollbackResponse { messages: vec![proto::Rollback { metadata: None }] })
}

fn begin(
    node: &Arc<Node>,
    sequence: &'static sequence::Sequence<TaskFn>,
    what: &str,
    force: bool,
) -> Result<String, Status> {
    let actor_id = events::actor_id();
    node.journal.say(&format!("{what} via API received, actor {actor_id}"));
    let start = Start { actor_id: actor_id.clone(), phase: 0, force };
    sequencer::start(node, sequence, start)
        .map_err(|locked| Status::failed_precondition(locked.to_string()))?;
    Ok(actor_id)
}

/// The service.
pub(crate) struct Lifecycle {
    pub(crate) node: Arc<Node>,
}

#[tonic::async_trait]
impl LifecycleService for Lifecycle {
    type InstallStream = Answers<proto::LifecycleServiceInstallResponse>;
    type UpgradeStream = Answers<proto::LifecycleServiceUpgradeResponse>;

    async fn install(
        &self,
        _request: Request<proto::LifecycleServiceInstallRequest>,
    ) -> Result<Response<Self::InstallStream>, Status> {
        Err(Status::unimplemented(
            "install: a Billet node installs the system that it runs; give it a machine configuration with \
             machine.install (apply-config)",
        ))
    }

    /// Installs beside the running system; the client restarts the node afterwards.
    async fn upgrade(
        &self,
        request: Request<proto::LifecycleServiceUpgradeRequest>,
    ) -> Result<Response<Self::UpgradeStream>, Status> {
        let image = request.into_inner().source.unwrap_or_default().image_name;
        let prepared = upgrade::prepare(&self.node, &image, CALL_PATIENCE).await?;
        let (sender, answer) = answers();
        let node = self.node.clone();
        // A client that leaves does not end it: half an upgrade would be none.
        tokio::spawn(async move {
            let (lines, told) = mpsc::unbounded_channel();
            let forwarding = tokio::spawn(forward(told, sender.clone()));
            let tell = Box::new(move |line: &str| {
                // The client may be gone.
                let _ = lines.send(line.to_owned());
            });
            let done = upgrade::install(&node, prepared, tell).await;
            let _ = forwarding.await;
            if let Err(failure) = &done {
                node.journal.warn(&format!("upgrade: {failure}"));
                upgrade::publish_failure(&node, &image, failure);
                let _ = sender.send(Ok(word(Word::Message(format!("upgrade: {failure}"))))).await;
            }
            let _ = sender.send(Ok(word(Word::ExitCode(i32::from(done.is_err()))))).await;
        });
        Ok(answer)
    }
}

async fn forward(
    mut told: mpsc::UnboundedReceiver<String>,
    sender: Sender<proto::LifecycleServiceUpgradeResponse>,
) {
    while let Some(line) = told.recv().await {
        if sender.send(Ok(word(Word::Message(line)))).await.is_err() {
            return;
        }
    }
}

fn word(word: Word) -> proto::LifecycleServiceUpgradeResponse {
    let progress = proto::LifecycleServiceInstallProgress { response: Some(word) };
    proto::LifecycleServiceUpgradeResponse { progress: Some(progress) }
}

#[cfg(test)]
mod tests {
    use api::proto::machine::lifecycle_service_client::LifecycleServiceClient;
    use tonic::Code;

    use super::*;
    use crate::server::tests::fixture;

    #[tokio::test]
    async fn a_node_without_an_installed_disk_says_so() {
        let f = fixture().await;
        let image = "registry.invalid/billet/installer:1".to_owned();
        let request = proto::UpgradeRequest { image: image.clone(), ..Default::default() };
        let status = f.machine().upgrade(request).await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert!(status.message().contains("does not run from an installed disk"), "{status:?}");
        let source = Some(proto::InstallArtifactsSource { image_name: image });
        let request = proto::LifecycleServiceUpgradeRequest { containerd: None, source };
        let mut lifecycle = LifecycleServiceClient::new(f.channel.clone());
        let status = lifecycle.upgrade(request).await.unwrap_err();
        assert!(status.message().contains("does not run from an installed disk"), "{status:?}");
        let status = f.machine().rollback(proto::RollbackRequest {}).await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert!(!crate::upgrade::is_staged(&f.node));
    }

    #[tokio::test]
    async fn a_wrong_reference_is_refused_with_what_to_write() {
        let f = fixture().await;
        let request =
            proto::UpgradeRequest { image: "installer".to_owned(), stage: true, ..Default::default() };
        let status = f.machine().upgrade(request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains("name the registry: host/path:tag"), "{status:?}");
    }
}
