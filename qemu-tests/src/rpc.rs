//! The API called directly: what billetctl would refuse to send, and what it has no command for.
//!
//! Owns: a runtime and one connection in it. Does not: check certificates before the node does.

use std::future::Future;
use std::time::Duration;

use anyhow::{Context, Result};
use api::client::Client;
use api::pki::Identity;
use api::tls::{self, Trust};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use crate::node::{API_PORT, TestNode};

/// A connection to a node.
pub struct Rpc {
    runtime: Runtime,
    client: Client,
}

impl Rpc {
    /// Connects with that certificate, or none. The handshake may seem to succeed for a client that the node
    /// refuses: only a call tells.
    pub fn connect(node: &TestNode, identity: Option<&Identity>) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build().context("start a runtime")?;
        let config = tls::client(Trust::Authority(node.credentials().authority()), identity)?;
        let endpoint = [format!("127.0.0.1:{}", node.vm().port(API_PORT)?)];
        let client = runtime.block_on(Client::connect_with(config, &endpoint, Vec::new()))?;
        Ok(Self { runtime, client })
    }

    /// Connects to a node in maintenance; with fingerprints only to one that has one of them.
    pub fn insecure(node: &TestNode, fingerprints: Option<&[String]>) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build().context("start a runtime")?;
        let config = tls::client(fingerprints.map_or(Trust::Anyone, Trust::Fingerprints), None)?;
        let endpoint = [format!("127.0.0.1:{}", node.vm().port(API_PORT)?)];
        let client = runtime.block_on(Client::connect_with(config, &endpoint, Vec::new()))?;
        Ok(Self { runtime, client })
    }

    /// Runs one call to its end.
    pub fn call<T, F: Future<Output = Result<T, tonic::Status>>>(
        &self,
        call: impl FnOnce(Client) -> F,
    ) -> Result<T, tonic::Status> {
        self.runtime.block_on(call(self.client.clone()))
    }

    /// Calls `path` with one message without fields, or with a stream without messages, and reads the beginning of the answer.
    /// `None`: it did not begin within this time.
    pub fn call_empty(
        &self,
        path: &'static str,
        takes_stream: bool,
        within: Duration,
    ) -> Option<Result<(), Status>> {
        let message = (!takes_stream).then_some(());
        let mut grpc = tonic::client::Grpc::new(self.client.channel());
        let call = async {
            grpc.ready().await.map_err(|error| Status::from_error(Box::new(error)))?;
            let request = Request::new(tokio_stream::iter(message));
            let codec = ProstCodec::<(), ()>::default();
            grpc.streaming(request, PathAndQuery::from_static(path), codec).await.map(drop)
        };
        self.runtime.block_on(async { timeout(within, call).await.ok() })
    }
}
