//! Services that this version does not have: each call says so in a sentence.
//!
//! Owns: the sentences. Without them a client would read an empty error, as for a service that nobody has heard of.
//! Source: siderolabs/talos, api/health/health.proto, api/security/security.proto, api/machine/{debug,lvm,md}.proto.

use api::proto::health::health_server::Health;
use api::proto::health::{HealthCheckResponse, HealthWatchRequest, ReadyCheckResponse};
use api::proto::machine as proto;
use api::proto::machine::debug_service_server::DebugService;
use api::proto::machine::lvm_service_server::LvmService;
use api::proto::machine::md_service_server::MdService;
use api::proto::securityapi as security;
use api::proto::securityapi::security_service_server::SecurityService;
use tonic::{Request, Response, Status, Streaming};

use super::answers::Answers;

type Answer<T> = Result<Response<T>, Status>;

/// All of them.
pub(crate) struct Absent;

fn by_service<T>(call: &str) -> Answer<T> {
    Err(Status::unimplemented(format!(
        "{call}: daemons of v0.9.3 asked each other this; ask machine.MachineService/ServiceList for the health of \
         services"
    )))
}

fn by_trustd<T>(call: &str) -> Answer<T> {
    let port = crate::programs::Program::Trustd.port();
    Err(Status::unimplemented(format!("{call}: trustd serves this, on port {port} of control plane nodes")))
}

/// Of what other systems make of several disks.
fn without(call: &str, what: &str) -> Answer<()> {
    Err(Status::unimplemented(format!(
        "{call}: this version of Billet has no {what}, and opens none that others made; `wipe disk` makes each disk or \
         partition that belonged to one look empty"
    )))
}

const VOLUME_GROUPS: &str = "volume groups of LVM";

#[tonic::async_trait]
impl DebugService for Absent {
    type ContainerRunStream = Answers<proto::DebugContainerRunResponse>;

    async fn container_run(
        &self,
        _request: Request<Streaming<proto::DebugContainerRunRequest>>,
    ) -> Answer<Self::ContainerRunStream> {
        Err(Status::unimplemented(
            "debug: this version of Billet runs no containers of its users; look at the node with `dmesg`, `logs`, \
             `read` and `support`",
        ))
    }
}

#[tonic::async_trait]
impl LvmService for Absent {
    async fn logical_volume_remove(
        &self,
        _request: Request<proto::LvmServiceLogicalVolumeRemoveRequest>,
    ) -> Answer<()> {
        without("remove logical volume", VOLUME_GROUPS)
    }

    async fn volume_group_remove(
        &self,
        _request: Request<proto::LvmServiceVolumeGroupRemoveRequest>,
    ) -> Answer<()> {
        without("remove volume group", VOLUME_GROUPS)
    }

    async fn physical_volume_remove(
        &self,
        _request: Request<proto::LvmServicePhysicalVolumeRemoveRequest>,
    ) -> Answer<()> {
        without("remove physical volume", VOLUME_GROUPS)
    }
}

#[tonic::async_trait]
impl MdService for Absent {
    async fn destroy(&self, _request: Request<proto::MdDestroyRequest>) -> Answer<()> {
        without("destroy array", "arrays of disks (software RAID)")
    }
}

#[tonic::async_trait]
impl Health for Absent {
    type WatchStream = Answers<HealthCheckResponse>;

    async fn check(&self, _request: Request<()>) -> Answer<HealthCheckResponse> {
        by_service("check")
    }

    async fn watch(&self, _request: Request<HealthWatchRequest>) -> Answer<Self::WatchStream> {
        by_service("watch")
    }

    async fn ready(&self, _request: Request<()>) -> Answer<ReadyCheckResponse> {
        by_service("ready")
    }
}

#[tonic::async_trait]
impl SecurityService for Absent {
    async fn certificate(
        &self,
        _request: Request<security::CertificateRequest>,
    ) -> Answer<security::CertificateResponse> {
        by_trustd("certificate")
    }

    async fn read_file(
        &self,
        _request: Request<security::ReadFileRequest>,
    ) -> Answer<security::ReadFileResponse> {
        Err(Status::unimplemented("read file: use machine.MachineService/Read, which asks for a role"))
    }

    async fn write_file(
        &self,
        _request: Request<security::WriteFileRequest>,
    ) -> Answer<security::WriteFileResponse> {
        Err(Status::unimplemented("write file: use machine.files of the machine configuration"))
    }
}

#[cfg(test)]
mod tests {
    use api::proto::machine as proto;
    use api::proto::machine::lvm_service_client::LvmServiceClient;
    use api::proto::machine::md_service_client::MdServiceClient;
    use bytes::Bytes;
    use http::uri::PathAndQuery;
    use tonic::Code;

    use crate::apid::Raw;
    use crate::server::tests::fixture;

    /// Of both generations: what is not there says why, whatever it is.
    #[tokio::test]
    async fn no_call_is_refused_without_a_sentence() {
        let f = fixture().await;
        let wire = include_str!("../../../crates/api/testdata/wire.txt").lines();
        let calls = wire.filter_map(|line| line.strip_prefix("rpc ")?.split_once('(')).map(|(path, _)| path);
        let mut absent = Vec::new();
        // These end the node's services, and they are there.
        for path in calls.filter(|path| !path.ends_with("/Reboot") && !path.ends_with("/Shutdown")) {
            let mut client = tonic::client::Grpc::new(f.channel.clone());
            client.ready().await.unwrap();
            let path = PathAndQuery::from_static(path);
            let request = tonic::Request::new(Bytes::new());
            let Err(status) = client.server_streaming(request, path.clone(), Raw).await else { continue };
            if status.code() == Code::Unimplemented {
                assert!(status.message().contains(' '), "{path}: {:?}", status.message());
                absent.push(path.as_str().to_owned());
            }
        }
        for known in
            ["/machine.DebugService/ContainerRun", "/health.Health/Check", "/machine.MDService/Destroy"]
        {
            assert!(absent.iter().any(|path| path == known), "{known} is not among {absent:?}");
        }
        // And the page of compatibility says so.
        let rows = include_str!("../../../cli/testdata/compatibility/calls.txt").lines();
        let served: Vec<_> =
            rows.filter(|row| row.ends_with(" | -")).filter_map(|row| row.split(' ').next()).collect();
        // Another program serves it, on a port of its own.
        absent.retain(|path| path != "/securityapi.SecurityService/Certificate");
        let untold: Vec<_> = absent.iter().filter(|path| served.contains(&path.as_str())).collect();
        assert!(untold.is_empty(), "absent without a reason in calls.txt: {untold:?}");
    }

    /// `wipe lv`, `wipe vg`, `wipe pv`, `wipe md`.
    #[tokio::test]
    async fn wipes_of_v1_14_say_what_clears_the_disks() {
        let f = fixture().await;
        let mut lvm = LvmServiceClient::new(f.channel.clone());
        let mut md = MdServiceClient::new(f.channel.clone());
        let (volume_group, logical_volume) = ("vg0".to_owned(), "lv0".to_owned());
        let volume = proto::LvmServiceLogicalVolumeRemoveRequest {
            volume_group: volume_group.clone(),
            logical_volume,
        };
        let group = proto::LvmServiceVolumeGroupRemoveRequest { volume_group };
        let device = proto::LvmServicePhysicalVolumeRemoveRequest { device: "/dev/sdb".into() };
        let array = proto::MdDestroyRequest { device: "/dev/md/data".into() };
        for (status, what) in [
            (lvm.logical_volume_remove(volume).await.unwrap_err(), "no volume groups of LVM"),
            (lvm.volume_group_remove(group).await.unwrap_err(), "no volume groups of LVM"),
            (lvm.physical_volume_remove(device).await.unwrap_err(), "no volume groups of LVM"),
            (md.destroy(array).await.unwrap_err(), "no arrays of disks"),
        ] {
            assert_eq!(status.code(), Code::Unimplemented);
            let text = status.message();
            assert!(text.contains(what) && text.contains("`wipe disk`"), "{text}");
        }
    }
}
