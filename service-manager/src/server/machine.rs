//! `machine.MachineService`: one line a call.
//!
//! Owns: the list of what exists and what does not. The work is in the neighbouring files.

use std::sync::Arc;

use api::proto::common::Data;
use api::proto::machine as proto;
use api::proto::machine::machine_service_server::MachineService;
use runtime::request;
use runtime::services::Operation;
use tonic::{Request, Response, Status, Streaming};

use super::answers::{Answers, answer_with};
use super::{
    archive, capture, client_configuration, configuration, containers, control, etcd, files, generate,
    images, kubernetes, meta, netstat, processors, reset, statistics, streams, system, upgrades, usage,
};
use crate::node::Node;

/// The service.
pub(crate) struct Machine {
    pub(crate) node: Arc<Node>,
    pub(super) walks: super::walks::Walks,
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl MachineService for Machine {
    type CopyStream = Answers<Data>;
    type DmesgStream = Answers<Data>;
    type EventsStream = Answers<proto::Event>;
    type KubeconfigStream = Answers<Data>;
    type ListStream = Answers<proto::FileInfo>;
    type DiskUsageStream = Answers<proto::DiskUsageInfo>;
    type LogsStream = Answers<Data>;
    type ReadStream = Answers<Data>;
    type EtcdSnapshotStream = Answers<Data>;
    type PacketCaptureStream = Answers<Data>;
    type ImageListStream = Answers<proto::ImageListResponse>;

    async fn version(&self, _request: Request<()>) -> Answer<proto::VersionResponse> {
        Ok(Response::new(system::version(&self.node)))
    }

    async fn hostname(&self, _request: Request<()>) -> Answer<proto::HostnameResponse> {
        Ok(Response::new(system::hostname()))
    }

    async fn memory(&self, _request: Request<()>) -> Answer<proto::MemoryResponse> {
        system::memory(&self.node).map(Response::new)
    }

    async fn mounts(&self, _request: Request<()>) -> Answer<proto::MountsResponse> {
        let node = self.node.clone();
        super::answers::blocking(move || system::mounts(&node)).await.map(Response::new)
    }

    async fn processes(&self, _request: Request<()>) -> Answer<proto::ProcessesResponse> {
        let node = self.node.clone();
        super::answers::blocking(move || system::processes(&node)).await.map(Response::new)
    }

    async fn load_avg(&self, _request: Request<()>) -> Answer<proto::LoadAvgResponse> {
        statistics::load_average(&self.node).map(Response::new)
    }

    async fn system_stat(&self, _request: Request<()>) -> Answer<proto::SystemStatResponse> {
        statistics::system(&self.node).map(Response::new)
    }

    async fn network_device_stats(&self, _request: Request<()>) -> Answer<proto::NetworkDeviceStatsResponse> {
        statistics::network_devices(&self.node).map(Response::new)
    }

    async fn image_pull(
        &self,
        request: Request<proto::ImagePullRequest>,
    ) -> Answer<proto::ImagePullResponse> {
        images::legacy_pull(&self.node, request.get_ref()).await.map(Response::new)
    }

    async fn containers(
        &self,
        request: Request<proto::ContainersRequest>,
    ) -> Answer<proto::ContainersResponse> {
        containers::list(&self.node, request.get_ref()).await.map(Response::new)
    }

    async fn stats(&self, request: Request<proto::StatsRequest>) -> Answer<proto::StatsResponse> {
        containers::stats(&self.node, request.get_ref()).await.map(Response::new)
    }

    async fn restart(&self, request: Request<proto::RestartRequest>) -> Answer<proto::RestartResponse> {
        containers::restart(&self.node, request.get_ref()).await.map(Response::new)
    }

    async fn upgrade(&self, request: Request<proto::UpgradeRequest>) -> Answer<proto::UpgradeResponse> {
        upgrades::upgrade(&self.node, request.get_ref()).await.map(Response::new)
    }

    async fn rollback(&self, _request: Request<proto::RollbackRequest>) -> Answer<proto::RollbackResponse> {
        upgrades::rollback(&self.node).await.map(Response::new)
    }

    async fn reset(&self, request: Request<proto::ResetRequest>) -> Answer<proto::ResetResponse> {
        let actor_id = reset::reset(&self.node, request.into_inner()).await?;
        let answer = proto::Reset { metadata: None, actor_id };
        Ok(Response::new(proto::ResetResponse { messages: vec![answer] }))
    }

    async fn meta_write(
        &self,
        request: Request<proto::MetaWriteRequest>,
    ) -> Answer<proto::MetaWriteResponse> {
        meta::write(&self.node, &super::answers::roles(&request), request.get_ref()).await.map(Response::new)
    }

    async fn meta_delete(
        &self,
        request: Request<proto::MetaDeleteRequest>,
    ) -> Answer<proto::MetaDeleteResponse> {
        meta::delete(&self.node, &super::answers::roles(&request), request.get_ref()).await.map(Response::new)
    }

    async fn disk_stats(&self, _request: Request<()>) -> Answer<proto::DiskStatsResponse> {
        statistics::disks(&self.node).map(Response::new)
    }

    async fn cpu_info(&self, _request: Request<()>) -> Answer<proto::CpuInfoResponse> {
        processors::info(&self.node).map(Response::new)
    }

    async fn cpu_freq_stats(&self, _request: Request<()>) -> Answer<proto::CpuFreqStatsResponse> {
        processors::frequencies(&self.node).map(Response::new)
    }

    async fn netstat(&self, request: Request<proto::NetstatRequest>) -> Answer<proto::NetstatResponse> {
        let node = self.node.clone();
        super::answers::blocking(move || netstat::netstat(&node, request.get_ref())).await.map(Response::new)
    }

    async fn service_list(&self, _request: Request<()>) -> Answer<proto::ServiceListResponse> {
        Ok(Response::new(control::list(&self.node)))
    }

    async fn service_start(
        &self,
        request: Request<proto::ServiceStartRequest>,
    ) -> Answer<proto::ServiceStartResponse> {
        let resp = control::operate(&self.node, &request.get_ref().id, Operation::Start).await?;
        let answer = proto::ServiceStart { metadata: None, resp };
        Ok(Response::new(proto::ServiceStartResponse { messages: vec![answer] }))
    }

    async fn service_stop(
        &self,
        request: Request<proto::ServiceStopRequest>,
    ) -> Answer<proto::ServiceStopResponse> {
        let resp = control::operate(&self.node, &request.get_ref().id, Operation::Stop).await?;
        let answer = proto::ServiceStop { metadata: None, resp };
        Ok(Response::new(proto::ServiceStopResponse { messages: vec![answer] }))
    }

    async fn service_restart(
        &self,
        request: Request<proto::ServiceRestartRequest>,
    ) -> Answer<proto::ServiceRestartResponse> {
        let resp = control::operate(&self.node, &request.get_ref().id, Operation::Restart).await?;
        let answer = proto::ServiceRestart { metadata: None, resp };
        Ok(Response::new(proto::ServiceRestartResponse { messages: vec![answer] }))
    }

    async fn reboot(&self, request: Request<proto::RebootRequest>) -> Answer<proto::RebootResponse> {
        let actor_id = control::reboot(&self.node, request.get_ref())?;
        let answer = proto::Reboot { metadata: None, actor_id };
        Ok(Response::new(proto::RebootResponse { messages: vec![answer] }))
    }

    async fn shutdown(&self, request: Request<proto::ShutdownRequest>) -> Answer<proto::ShutdownResponse> {
        let actor_id = control::shutdown(&self.node, request.get_ref())?;
        let answer = proto::Shutdown { metadata: None, actor_id };
        Ok(Response::new(proto::ShutdownResponse { messages: vec![answer] }))
    }

    async fn apply_configuration(
        &self,
        request: Request<proto::ApplyConfigurationRequest>,
    ) -> Answer<proto::ApplyConfigurationResponse> {
        configuration::apply(&self.node, request.get_ref()).await.map(Response::new)
    }

    async fn generate_configuration(
        &self,
        request: Request<proto::GenerateConfigurationRequest>,
    ) -> Answer<proto::GenerateConfigurationResponse> {
        generate::generate(&self.node, request.get_ref()).map(Response::new)
    }

    async fn generate_client_configuration(
        &self,
        request: Request<proto::GenerateClientConfigurationRequest>,
    ) -> Answer<proto::GenerateClientConfigurationResponse> {
        client_configuration::generate(&self.node, request.get_ref()).map(Response::new)
    }

    async fn dmesg(&self, request: Request<proto::DmesgRequest>) -> Answer<Self::DmesgStream> {
        streams::dmesg(&self.node, *request.get_ref())
    }

    async fn logs(&self, request: Request<proto::LogsRequest>) -> Answer<Self::LogsStream> {
        streams::logs(&self.node, request.get_ref())
    }

    async fn events(&self, request: Request<proto::EventsRequest>) -> Answer<Self::EventsStream> {
        streams::events(&self.node, request.into_inner())
    }

    async fn logs_containers(&self, _request: Request<()>) -> Answer<proto::LogsContainersResponse> {
        let answer = proto::LogsContainer { metadata: None, ids: streams::log_ids(&self.node) };
        Ok(Response::new(proto::LogsContainersResponse { messages: vec![answer] }))
    }

    async fn list(&self, request: Request<proto::ListRequest>) -> Answer<Self::ListStream> {
        let walk = self.walks.begin(&request)?;
        files::list(&self.node, request.into_inner(), walk)
    }

    async fn read(&self, request: Request<proto::ReadRequest>) -> Answer<Self::ReadStream> {
        let walk = self.walks.begin(&request)?;
        files::read(&self.node, &request.get_ref().path, walk).await
    }

    async fn copy(&self, request: Request<proto::CopyRequest>) -> Answer<Self::CopyStream> {
        let walk = self.walks.begin(&request)?;
        archive::copy(&self.node, &request.get_ref().root_path, walk)
    }

    async fn kubeconfig(&self, _request: Request<()>) -> Answer<Self::KubeconfigStream> {
        let data = kubernetes::kubeconfig(&self.node)?;
        Ok(answer_with(vec![Ok(data)]))
    }

    async fn bootstrap(&self, request: Request<proto::BootstrapRequest>) -> Answer<proto::BootstrapResponse> {
        kubernetes::bootstrap(&self.node, request.into_inner()).await.map(Response::new)
    }

    async fn etcd_member_list(
        &self,
        _request: Request<proto::EtcdMemberListRequest>,
    ) -> Answer<proto::EtcdMemberListResponse> {
        etcd::members(&self.node).await.map(Response::new)
    }

    async fn disk_usage(&self, request: Request<proto::DiskUsageRequest>) -> Answer<Self::DiskUsageStream> {
        let walk = self.walks.begin(&request)?;
        usage::disk_usage(&self.node, request.into_inner(), walk)
    }

    async fn etcd_recover(&self, request: Request<Streaming<Data>>) -> Answer<proto::EtcdRecoverResponse> {
        kubernetes::receive_snapshot(&self.node, request.into_inner()).await.map(Response::new)
    }

    async fn etcd_snapshot(
        &self,
        _request: Request<proto::EtcdSnapshotRequest>,
    ) -> Answer<Self::EtcdSnapshotStream> {
        let snapshot = etcd::snapshot(&self.node).await?;
        let (sender, answer) = super::answers::answers();
        request::feed(sender.clone(), etcd::send(snapshot, sender));
        Ok(answer)
    }

    async fn packet_capture(
        &self,
        request: Request<proto::PacketCaptureRequest>,
    ) -> Answer<Self::PacketCaptureStream> {
        capture::capture(&self.node, request.get_ref())
    }

    async fn image_list(&self, request: Request<proto::ImageListRequest>) -> Answer<Self::ImageListStream> {
        images::legacy_list(&self.node, request.get_ref().namespace)
    }

    async fn recover(&self, _request: Request<proto::RecoverRequest>) -> Answer<proto::RecoverResponse> {
        let text = "recover is not supported since Talos 0.9, use apply-config to update control plane configuration";
        Err(Status::unimplemented(text))
    }

    async fn etcd_remove_member(
        &self,
        request: Request<proto::EtcdRemoveMemberRequest>,
    ) -> Answer<proto::EtcdRemoveMemberResponse> {
        etcd::remove(&self.node, request.into_inner()).await.map(Response::new)
    }

    async fn etcd_remove_member_by_id(
        &self,
        request: Request<proto::EtcdRemoveMemberByIdRequest>,
    ) -> Answer<proto::EtcdRemoveMemberByIdResponse> {
        etcd::remove_by_id(&self.node, request.into_inner()).await.map(Response::new)
    }

    async fn etcd_leave_cluster(
        &self,
        _request: Request<proto::EtcdLeaveClusterRequest>,
    ) -> Answer<proto::EtcdLeaveClusterResponse> {
        etcd::leave(&self.node).await.map(Response::new)
    }

    async fn etcd_forfeit_leadership(
        &self,
        _request: Request<proto::EtcdForfeitLeadershipRequest>,
    ) -> Answer<proto::EtcdForfeitLeadershipResponse> {
        etcd::forfeit(&self.node).await.map(Response::new)
    }

    async fn etcd_alarm_list(&self, _request: Request<()>) -> Answer<proto::EtcdAlarmListResponse> {
        etcd::alarm_list(&self.node).await.map(Response::new)
    }

    async fn etcd_alarm_disarm(&self, _request: Request<()>) -> Answer<proto::EtcdAlarmDisarmResponse> {
        etcd::disarm(&self.node).await.map(Response::new)
    }

    async fn etcd_defragment(&self, _request: Request<()>) -> Answer<proto::EtcdDefragmentResponse> {
        etcd::defragment(&self.node).await.map(Response::new)
    }

    async fn etcd_status(&self, _request: Request<()>) -> Answer<proto::EtcdStatusResponse> {
        etcd::status(&self.node).await.map(Response::new)
    }

    async fn etcd_downgrade_validate(
        &self,
        request: Request<proto::EtcdDowngradeValidateRequest>,
    ) -> Answer<proto::EtcdDowngradeValidateResponse> {
        etcd::downgrade_validate(&self.node, request.into_inner()).await.map(Response::new)
    }

    async fn etcd_downgrade_enable(
        &self,
        request: Request<proto::EtcdDowngradeEnableRequest>,
    ) -> Answer<proto::EtcdDowngradeEnableResponse> {
        etcd::downgrade_enable(&self.node, request.into_inner()).await.map(Response::new)
    }

    async fn etcd_downgrade_cancel(
        &self,
        _request: Request<()>,
    ) -> Answer<proto::EtcdDowngradeCancelResponse> {
        etcd::downgrade_cancel(&self.node).await.map(Response::new)
    }

    async fn remove_bootkube_initialized_key(
        &self,
        _request: Request<()>,
    ) -> Answer<proto::RemoveBootkubeInitializedKeyResponse> {
        Err(Status::unimplemented("no cluster of Billet was made by bootkube, so none has its key"))
    }
}
