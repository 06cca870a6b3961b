//! Services that this version does not have: each call says so in a sentence.
//!
//! Owns: the sentences. Without them a client would read an empty error, as for a service that nobody has heard of.
//! Source: spec/api-wire-facts.md §1.2 (health, securityapi), §2.2 (debug).

use api::proto::health::health_server::Health;
use api::proto::health::{HealthCheckResponse, HealthWatchRequest, ReadyCheckResponse};
use api::proto::machine as proto;
use api::proto::machine::debug_service_server::DebugService;
use api::proto::securityapi as security;
use api::proto::securityapi::security_service_server::SecurityService;
use tonic::{Request, Response, Status, Streaming};

use super::Answers;

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
    let port = crate::trustd::PORT;
    Err(Status::unimplemented(format!("{call}: trustd serves this, on port {port} of control plane nodes")))
}

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
        for known in ["/machine.DebugService/ContainerRun", "/health.Health/Check"] {
            assert!(absent.iter().any(|path| path == known), "{known} is not among {absent:?}");
        }
    }
}
