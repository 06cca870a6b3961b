//! Calls about etcd: its members, who leads, the state of this node's, alarms, snapshots, downgrades.
//!
//! Owns: the codes of the answers. Source: docs/users/etcd.md.

use api::proto::common::Data;
use api::proto::machine as proto;
use kubernetes_node::KubernetesNode;
use kubernetes_node::etcd::{Alarm, AlarmKind, Downgrade, MemberError, Snapshot};
use runtime::request;
use tokio::sync::{mpsc, oneshot};
use tonic::Status;

use super::kubernetes::{failed, of};
use crate::node::Node;

/// Of a control plane node: the others run no etcd.
fn member(node: &Node) -> Result<&KubernetesNode, Status> {
    let kubernetes = of(node)?;
    let config = node.runtime.config();
    match config {
        Some(config) if !config.machine.machine_type.is_control_plane() => {
            Err(Status::failed_precondition("this node is a worker: etcd runs on control plane nodes alone"))
        }
        _ => Ok(kubernetes),
    }
}

fn refused(error: &MemberError) -> Status {
    let text = error.to_string();
    match error {
        MemberError::Unknown(_) => Status::not_found(text),
        MemberError::Ambiguous(..)
        | MemberError::Quorum(_)
        | MemberError::Alone
        | MemberError::UnderWay
        | MemberError::NoSuccessor(_) => Status::failed_precondition(text),
        MemberError::Other(error) => failed(error),
    }
}

/// `EtcdMemberList`.
pub(super) async fn members(node: &Node) -> Result<proto::EtcdMemberListResponse, Status> {
    let members = member(node)?.etcd_members().await.map_err(|error| failed(&error))?;
    let legacy_members = members.iter().map(|member| member.name.clone()).collect();
    let member = |member: kubernetes_node::etcd::Member| proto::EtcdMember {
        id: member.id,
        hostname: member.name,
        peer_urls: member.peer_urls,
        client_urls: member.client_urls,
        is_learner: member.is_learner,
    };
    let members = members.into_iter().map(member).collect();
    let list = proto::EtcdMembers { metadata: None, legacy_members, members };
    Ok(proto::EtcdMemberListResponse { messages: vec![list] })
}

/// `EtcdRemoveMember`, of the first generation: by the member's name.
pub(super) async fn remove(
    node: &Node,
    request: proto::EtcdRemoveMemberRequest,
) -> Result<proto::EtcdRemoveMemberResponse, Status> {
    member(node)?.remove_etcd_member(&request.member).await.map_err(|error| refused(&error))?;
    Ok(proto::EtcdRemoveMemberResponse { messages: vec![proto::EtcdRemoveMember::default()] })
}

/// `EtcdRemoveMemberByID`.
pub(super) async fn remove_by_id(
    node: &Node,
    request: proto::EtcdRemoveMemberByIdRequest,
) -> Result<proto::EtcdRemoveMemberByIdResponse, Status> {
    member(node)?.remove_etcd_member_by_id(request.member_id).await.map_err(|error| refused(&error))?;
    Ok(proto::EtcdRemoveMemberByIdResponse { messages: vec![proto::EtcdRemoveMemberById::default()] })
}

/// `EtcdLeaveCluster`. It goes on when the client does not wait for its end.
pub(super) async fn leave(node: &Node) -> Result<proto::EtcdLeaveClusterResponse, Status> {
    let kubernetes = member(node)?.clone();
    let (sender, answer) = oneshot::channel();
    let work = async move {
        // The client may be gone.
        let _ = sender.send(kubernetes.leave_etcd().await);
    };
    request::spawn(work, |_| async {});
    let left = answer.await.map_err(|_| Status::internal("leaving etcd ended in a fault; the log has it"))?;
    left.map_err(|error| refused(&error))?;
    Ok(proto::EtcdLeaveClusterResponse { messages: vec![proto::EtcdLeaveCluster::default()] })
}

/// `EtcdForfeitLeadership`.
pub(super) async fn forfeit(node: &Node) -> Result<proto::EtcdForfeitLeadershipResponse, Status> {
    let successor = member(node)?.forfeit_etcd_leadership().await.map_err(|error| refused(&error))?;
    let forfeited = proto::EtcdForfeitLeadership { metadata: None, member: successor.unwrap_or_default() };
    Ok(proto::EtcdForfeitLeadershipResponse { messages: vec![forfeited] })
}

/// `EtcdStatus`.
pub(super) async fn status(node: &Node) -> Result<proto::EtcdStatusResponse, Status> {
    let status = member(node)?.etcd_status().await.map_err(|error| failed(&error))?;
    let status = proto::EtcdMemberStatus {
        storage_version: status.storage_version,
        protocol_version: status.version,
        db_size: status.size,
        db_size_in_use: status.in_use,
        leader: status.leader,
        raft_index: status.raft_index,
        raft_term: status.raft_term,
        raft_applied_index: status.raft_applied_index,
        errors: status.errors,
        is_learner: status.is_learner,
        member_id: status.id,
    };
    let status = proto::EtcdStatus { metadata: None, member_status: Some(status) };
    Ok(proto::EtcdStatusResponse { messages: vec![status] })
}

fn alarms(all: Vec<Alarm>) -> Vec<proto::EtcdMemberAlarm> {
    let one = |alarm: Alarm| {
        let kind = match alarm.kind {
            AlarmKind::None => proto::etcd_member_alarm::AlarmType::None,
            AlarmKind::NoSpace => proto::etcd_member_alarm::AlarmType::Nospace,
            AlarmKind::Corrupt => proto::etcd_member_alarm::AlarmType::Corrupt,
        };
        proto::EtcdMemberAlarm { member_id: alarm.member, alarm: kind.into() }
    };
    all.into_iter().map(one).collect()
}

/// `EtcdAlarmList`.
pub(super) async fn alarm_list(node: &Node) -> Result<proto::EtcdAlarmListResponse, Status> {
    let all = member(node)?.etcd_alarms().await.map_err(|error| failed(&error))?;
    let list = proto::EtcdAlarm { metadata: None, member_alarms: alarms(all) };
    Ok(proto::EtcdAlarmListResponse { messages: vec![list] })
}

/// `EtcdAlarmDisarm`.
pub(super) async fn disarm(node: &Node) -> Result<proto::EtcdAlarmDisarmResponse, Status> {
    let all = member(node)?.disarm_etcd().await.map_err(|error| failed(&error))?;
    let list = proto::EtcdAlarmDisarm { metadata: None, member_alarms: alarms(all) };
    Ok(proto::EtcdAlarmDisarmResponse { messages: vec![list] })
}

/// `EtcdDefragment`.
pub(super) async fn defragment(node: &Node) -> Result<proto::EtcdDefragmentResponse, Status> {
    member(node)?.defragment_etcd().await.map_err(|error| failed(&error))?;
    Ok(proto::EtcdDefragmentResponse { messages: vec![proto::EtcdDefragment::default()] })
}

/// `EtcdDowngradeValidate`.
pub(super) async fn downgrade_validate(
    node: &Node,
    request: proto::EtcdDowngradeValidateRequest,
) -> Result<proto::EtcdDowngradeValidateResponse, Status> {
    let cluster_downgrade = downgrade(node, Downgrade::Validate, &request.version).await?;
    let answer = proto::EtcdDowngradeValidate { metadata: None, cluster_downgrade };
    Ok(proto::EtcdDowngradeValidateResponse { messages: vec![answer] })
}

/// `EtcdDowngradeEnable`.
pub(super) async fn downgrade_enable(
    node: &Node,
    request: proto::EtcdDowngradeEnableRequest,
) -> Result<proto::EtcdDowngradeEnableResponse, Status> {
    let cluster_downgrade = downgrade(node, Downgrade::Enable, &request.version).await?;
    let answer = proto::EtcdDowngradeEnable { metadata: None, cluster_downgrade };
    Ok(proto::EtcdDowngradeEnableResponse { messages: vec![answer] })
}

/// `EtcdDowngradeCancel`.
pub(super) async fn downgrade_cancel(node: &Node) -> Result<proto::EtcdDowngradeCancelResponse, Status> {
    let cluster_downgrade = downgrade(node, Downgrade::Cancel, "").await?;
    let answer = proto::EtcdDowngradeCancel { metadata: None, cluster_downgrade };
    Ok(proto::EtcdDowngradeCancelResponse { messages: vec![answer] })
}

async fn downgrade(
    node: &Node,
    action: Downgrade,
    version: &str,
) -> Result<Option<proto::EtcdClusterDowngrade>, Status> {
    let version = member(node)?.downgrade_etcd(action, version).await.map_err(|error| failed(&error))?;
    Ok(Some(proto::EtcdClusterDowngrade { cluster_version: version }))
}

/// `EtcdSnapshot`.
pub(super) async fn snapshot(node: &Node) -> Result<Snapshot, Status> {
    member(node)?.etcd_snapshot().await.map_err(|error| failed(&error))
}

/// Sends a snapshot in parts as etcd sends them, no faster than the client takes them.
pub(super) async fn send(mut snapshot: Snapshot, sender: mpsc::Sender<Result<Data, Status>>) {
    loop {
        let part = match snapshot.next().await {
            Ok(Some(bytes)) => Ok(Data { metadata: None, bytes }),
            Ok(None) => return,
            Err(error) => Err(failed(&error)),
        };
        let is_last = part.is_err();
        if sender.send(part).await.is_err() || is_last {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use config::v1alpha1::MachineType;
    use tonic::Code;

    use super::*;
    use crate::server::tests::{cluster_config as config, fixture};

    #[tokio::test]
    async fn a_worker_has_no_etcd_and_a_node_without_it_says_what_is_missing() {
        let f = fixture().await;
        f.node.runtime.config.send_replace(Some(Arc::new(config(MachineType::Worker))));
        let status = f.machine().etcd_status(()).await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert_eq!(status.message(), "this node is a worker: etcd runs on control plane nodes alone");
        f.node.runtime.config.send_replace(Some(Arc::new(config(MachineType::ControlPlane))));
        let texts = [
            f.machine().etcd_status(()).await.unwrap_err(),
            f.machine().etcd_alarm_list(()).await.unwrap_err(),
            f.machine().etcd_alarm_disarm(()).await.unwrap_err(),
            f.machine().etcd_defragment(()).await.unwrap_err(),
            f.machine().etcd_downgrade_cancel(()).await.unwrap_err(),
            f.machine().etcd_snapshot(proto::EtcdSnapshotRequest::default()).await.unwrap_err(),
            f.machine().etcd_remove_member(proto::EtcdRemoveMemberRequest::default()).await.unwrap_err(),
            f.machine()
                .etcd_remove_member_by_id(proto::EtcdRemoveMemberByIdRequest::default())
                .await
                .unwrap_err(),
            f.machine().etcd_member_list(proto::EtcdMemberListRequest::default()).await.unwrap_err(),
        ];
        for status in texts {
            assert_eq!(status.code(), Code::FailedPrecondition);
            assert!(status.message().starts_with("etcd has not started on this node yet"), "{status}");
        }
        // There is nothing that it could leave.
        f.machine().etcd_leave_cluster(proto::EtcdLeaveClusterRequest::default()).await.unwrap();
    }
}
