//! `time.TimeService`: this node's clock beside a time server's.
//!
//! Source: crates/api/proto/time/time.proto; both times of an answer are always set (§3.5).

use std::sync::Arc;

use api::proto::time as proto;
use api::proto::time::time_service_server::TimeService;
use runtime::clock;
use tonic::{Request, Response, Status};

use crate::node::Node;
use crate::time::{DEFAULT_SERVER, query};

/// The service.
pub(crate) struct Clocks {
    pub(crate) node: Arc<Node>,
}

#[tonic::async_trait]
impl TimeService for Clocks {
    /// The first server of the config that answers.
    async fn time(&self, _request: Request<()>) -> Result<Response<proto::TimeResponse>, Status> {
        let config = self.node.runtime.config();
        let mut servers = config.map_or_else(Vec::new, |config| config.machine.time.servers.clone());
        if servers.is_empty() {
            servers.push(DEFAULT_SERVER.to_owned());
        }
        let mut last = Status::unavailable("no time server is known");
        for server in servers {
            match ask(&server).await {
                Ok(answer) => return Ok(answer),
                Err(status) => last = status,
            }
        }
        Err(last)
    }

    async fn time_check(
        &self,
        request: Request<proto::TimeRequest>,
    ) -> Result<Response<proto::TimeResponse>, Status> {
        let server = request.into_inner().server;
        if server.is_empty() {
            return Err(Status::invalid_argument("name the time server to check"));
        }
        ask(&server).await
    }
}

async fn ask(server: &str) -> Result<Response<proto::TimeResponse>, Status> {
    let sample = query(server).await.map_err(|e| Status::unavailable(e.to_string()))?;
    let local = clock::now();
    let offset = jiff::SignedDuration::from_nanos(sample.offset_ns);
    let remote = local.checked_add(offset).unwrap_or(local);
    let answer = proto::Time {
        metadata: None,
        server: server.to_owned(),
        localtime: Some(clock::proto(local)),
        remotetime: Some(clock::proto(remote)),
    };
    Ok(Response::new(proto::TimeResponse { messages: vec![answer] }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_server_that_is_not_there_is_an_error_with_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let clocks = Clocks { node: crate::server::tests_node(dir.path().to_owned()) };
        let check = |server: &str| Request::new(proto::TimeRequest { server: server.into() });
        let error = clocks.time_check(check("")).await.unwrap_err();
        assert_eq!(error.code(), tonic::Code::InvalidArgument);
        let error = clocks.time_check(check("no-such-host.invalid")).await.unwrap_err();
        assert_eq!(error.code(), tonic::Code::Unavailable);
        assert!(error.message().contains("no-such-host.invalid"), "{error}");
    }
}
