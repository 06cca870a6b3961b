//! Calls that upgrade this node or take it back: `MachineService`'s, and the newer `LifecycleService`.
//!
//! Owns: the answers. What is wrong with a request is answered at once; the work goes on behind the answer.
//! Source: docs/users/upgrading.md.

use runtime::sequencer::{self, Start};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use api::proto::machine as proto;
use api::proto::machine::lifecycle_service_install_progress::Response as Word;
use api::proto::machine::lifecycle_service_server::LifecycleService;
use api::proto::machine::upgrade_request::RebootMode;
use kubernetes_node::etcd;
use runtime::events;
use runtime::request;
use tokio::sync::mpsc;
use tonic::{Request, Response, Status};

use super::answers::{Answers, answers};
use crate::node::Node;
use crate::order::Order;
use crate::upgrade::{self, CALL_PATIENCE, Tell};
use crate::{configuration, install};

/// What both generations of clients print.
const ACKNOWLEDGED: &str = "Upgrade request received";

/// `MachineService.Upgrade`.
pub(super) async fn upgrade(
    node: &Arc<Node>,
    request: &proto::UpgradeRequest,
) -> Result<proto::UpgradeResponse, Status> {
    super::in_container::refuse(node)?;
    let sequence = if request.stage { Order::StageUpgrade } else { Order::Upgrade };
    sequencer::may_start(node, sequence).map_err(|locked| Status::failed_precondition(locked.to_string()))?;
    ask_etcd(node, request).await?;
    if request.stage && request.image.parse().is_ok_and(|image| upgrade::import::is_import(&image)) {
        let text = "--stage: an imported archive lies on EPHEMERAL, which is not mounted yet when a staged upgrade \
                    happens: name an image in a registry";
        return Err(Status::failed_precondition(text));
    }
    let prepared = upgrade::prepare(&node.runtime, &request.image, CALL_PATIENCE).await?;
    remark(node, request);
    let asked = upgrade::Request { image: request.image.clone(), wipe_ephemeral: request.wipe_ephemeral };
    if request.stage {
        upgrade::stage(&node.upgrades, &asked).await?;
    } else {
        node.upgrades.ask(asked);
        node.drains.store(true, Ordering::SeqCst);
    }
    let (how, version) =
        (if request.stage { "staged upgrade" } else { "upgrade" }, &prepared.image.facts.version);
    let actor_id = begin(node, sequence, &format!("{how} to {version}"), false)
        .inspect_err(|_| node.drains.store(false, Ordering::SeqCst))?;
    let answer = proto::Upgrade { metadata: None, ack: ACKNOWLEDGED.to_owned(), actor_id };
    Ok(proto::UpgradeResponse { messages: vec![answer] })
}

/// Whether etcd bears that this node's member is away for a while, or leaves for good.
async fn ask_etcd(node: &Node, request: &proto::UpgradeRequest) -> Result<(), Status> {
    if !etcd::is_member(&node.runtime.root) {
        return Ok(());
    }
    let kubernetes = super::kubernetes::of(node)?;
    if request.wipe_ephemeral {
        if request.stage {
            let text = "--stage: a member of etcd leaves its cluster before --preserve=false wipes its data, which a staged \
                        upgrade cannot have it do: leave out one of both";
            return Err(Status::failed_precondition(text));
        }
        let refused = |error| Status::failed_precondition(format!("--preserve=false: {error}"));
        return kubernetes.may_leave_etcd().await.map_err(refused);
    }
    if request.force {
        return Ok(());
    }
    let refused = |error| Status::failed_precondition(format!("error validating etcd for upgrade: {error}"));
    kubernetes.may_upgrade().await.map_err(refused)
}

/// Says what the request's flags come to here.
fn remark(node: &Node, request: &proto::UpgradeRequest) {
    if request.wipe_ephemeral {
        node.runtime
            .journal
            .say("upgrade: preserve=false: the new system wipes EPHEMERAL at its first start");
    }
    if request.force {
        node.runtime.journal.say("upgrade: force: etcd is not asked whether it bears the upgrade");
    }
    if request.reboot_mode() == RebootMode::Powercycle {
        node.runtime
            .journal
            .say("upgrade: reboot mode powercycle: an upgrade always restarts through the firmware");
    }
}

/// `MachineService.Rollback`.
pub(super) async fn rollback(node: &Arc<Node>) -> Result<proto::RollbackResponse, Status> {
    super::in_container::refuse(node)?;
    let entry = upgrade::roll_back(&node.upgrades).await?;
    begin(node, Order::Reboot, &format!("rollback to {entry}"), true)?;
    Ok(proto::RollbackResponse { messages: vec![proto::Rollback { metadata: None }] })
}

fn begin(node: &Arc<Node>, sequence: Order, what: &str, force: bool) -> Result<String, Status> {
    let actor_id = events::actor_id();
    node.runtime.journal.say(&format!("{what} via API received, actor {actor_id}"));
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

    /// Installs to the disk that is named, and keeps the config there; the client restarts the machine afterwards.
    async fn install(
        &self,
        request: Request<proto::LifecycleServiceInstallRequest>,
    ) -> Result<Response<Self::InstallStream>, Status> {
        let request = request.into_inner();
        let image = request.source.unwrap_or_default().image_name;
        let disk = request.destination.unwrap_or_default().disk;
        let node = self.node.clone();
        Ok(answer_while(move |tell| async move {
            let done = {
                let keep = configuration::keep_on_installed(&node.configuration);
                install::on_request(&node.install, &image, &disk, tell, keep).await
            };
            done.map_err(|failure| {
                node.runtime.journal.warn(&format!("install: {failure}"));
                format!("install: {failure}")
            })
        }))
    }

    /// Installs beside the running system; the client restarts the node afterwards.
    async fn upgrade(
        &self,
        request: Request<proto::LifecycleServiceUpgradeRequest>,
    ) -> Result<Response<Self::UpgradeStream>, Status> {
        super::in_container::refuse(&self.node)?;
        let image = request.into_inner().source.unwrap_or_default().image_name;
        let prepared = upgrade::prepare(&self.node.runtime, &image, CALL_PATIENCE).await?;
        let node = self.node.clone();
        Ok(answer_while(move |tell| async move {
            let done = upgrade::install(&node.upgrades, prepared, false, tell).await;
            done.map_err(|failure| {
                node.runtime.journal.warn(&format!("upgrade: {failure}"));
                upgrade::publish_failure(&node.runtime, &image, &failure);
                format!("upgrade: {failure}")
            })
        }))
    }
}

/// An answer of either call.
trait FromWord: Send + 'static {
    fn of(progress: Option<proto::LifecycleServiceInstallProgress>) -> Self;
}

impl FromWord for proto::LifecycleServiceInstallResponse {
    fn of(progress: Option<proto::LifecycleServiceInstallProgress>) -> Self {
        Self { progress }
    }
}

impl FromWord for proto::LifecycleServiceUpgradeResponse {
    fn of(progress: Option<proto::LifecycleServiceInstallProgress>) -> Self {
        Self { progress }
    }
}

/// A line for every step of the work, then what went wrong, then 0 or 1. A client that leaves does not end the work:
/// half an upgrade would be none.
fn answer_while<T: FromWord, W: Future<Output = Result<(), String>> + Send>(
    work: impl FnOnce(Tell) -> W + Send + 'static,
) -> Response<Answers<T>> {
    let (sender, answer) = answers();
    request::feed(sender.clone(), async move {
        let (lines, mut told) = mpsc::unbounded_channel::<String>();
        let forward = sender.clone();
        let forwarding = request::feed(sender.clone(), async move {
            while let Some(line) = told.recv().await {
                if forward.send(Ok(word(Word::Message(line)))).await.is_err() {
                    return;
                }
            }
        });
        let tell = Box::new(move |line: &str| {
            // The client may be gone.
            let _ = lines.send(line.to_owned());
        });
        let done = work(tell).await;
        let _ = forwarding.await;
        let code = i32::from(done.is_err());
        if let Err(text) = done {
            let _ = sender.send(Ok(word(Word::Message(text)))).await;
        }
        let _ = sender.send(Ok(word(Word::ExitCode(code)))).await;
    });
    answer
}

fn word<T: FromWord>(word: Word) -> T {
    T::of(Some(proto::LifecycleServiceInstallProgress { response: Some(word) }))
}

#[cfg(test)]
mod tests {
    use api::proto::machine::lifecycle_service_client::LifecycleServiceClient;
    use tonic::Code;

    use super::*;
    use crate::server::tests::{Fixture, fixture};

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
        assert!(!crate::upgrade::is_staged(&f.node.meta));
    }

    /// The words of a stream, and its code.
    async fn install(f: &Fixture, image: &str, disk: &str) -> (Vec<String>, Option<i32>) {
        let request = proto::LifecycleServiceInstallRequest {
            containerd: None,
            source: Some(proto::InstallArtifactsSource { image_name: image.to_owned() }),
            destination: Some(proto::InstallDestination { disk: disk.to_owned() }),
        };
        let mut stream =
            LifecycleServiceClient::new(f.channel.clone()).install(request).await.unwrap().into_inner();
        let (mut lines, mut code) = (Vec::new(), None);
        while let Some(answer) = stream.message().await.unwrap() {
            assert_eq!(code, None, "the code comes last");
            match answer.progress.unwrap().response.unwrap() {
                Word::Message(line) => lines.push(line),
                Word::ExitCode(number) => code = Some(number),
            }
        }
        (lines, code)
    }

    #[tokio::test]
    async fn an_installation_that_cannot_be_ends_with_the_reason_and_a_code() {
        let f = fixture().await;
        let (lines, code) = install(&f, "", "/dev/nothing-here").await;
        assert_eq!(code, Some(1));
        assert!(
            lines[0].contains("specified install disk does not exist: \"/dev/nothing-here\""),
            "{lines:?}"
        );
        let (lines, _) = install(&f, "", "").await;
        assert!(lines[0].contains("name the disk to install to"), "{lines:?}");
        let (lines, code) = install(&f, "installer", "/dev/nothing-here").await;
        assert_eq!(code, Some(1));
        assert!(lines[0].contains("name the registry: host/path:tag"), "{lines:?}");
        let _upgrade = f.node.upgrades.try_begin().unwrap();
        let (lines, _) = install(&f, "", "/dev/nothing-here").await;
        assert!(lines[0].contains("is under way"), "{lines:?}");
    }

    /// It is asked before a registry is.
    #[tokio::test]
    async fn a_member_of_etcd_is_upgraded_where_etcd_bears_it() {
        let f = fixture().await;
        std::fs::create_dir_all(f.node.runtime.path("/var/lib/etcd/member")).unwrap();
        let upgrade = async |wipe_ephemeral, stage, force| {
            let request = proto::UpgradeRequest { wipe_ephemeral, stage, force, ..Default::default() };
            f.machine().upgrade(request).await.unwrap_err()
        };
        let status = upgrade(true, false, false).await;
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert!(status.message().starts_with("--preserve=false: etcd has not started"), "{status:?}");
        let status = upgrade(true, true, false).await;
        assert!(status.message().starts_with("--stage: a member of etcd"), "{status:?}");
        let status = upgrade(false, false, false).await;
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert!(status.message().starts_with("error validating etcd for upgrade: "), "{status:?}");
        assert!(status.message().ends_with("--force upgrades without asking etcd"), "{status:?}");
        let status = upgrade(false, false, true).await;
        assert_eq!(status.code(), Code::InvalidArgument, "the reference is looked at next: {status:?}");
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
