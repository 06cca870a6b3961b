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
