//! The role matrix, played: every call of every service, by every role and by nobody, against a real apid.
//!
//! The rows come from crates/api/testdata/roles.txt, which a test of that crate holds against the descriptors: a new
//! call without a row fails there, a call that answers other than its row fails here.

use bytes::Bytes;
use http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use super::tests::{Fixture, two_nodes};
use super::wire_tests::Raw;

const ROLES: [&str; 8] = [
    "os:admin",
    "os:operator",
    "os:reader",
    "os:etcd:backup",
    "os:image:verifier",
    "os:meta:writer",
    // Its roles are those it speaks for, and here it speaks for nobody.
    "os:impersonator",
    "os:nobody",
];

fn matrix() -> Vec<(&'static str, Vec<&'static str>)> {
    let rows = include_str!("../../../crates/api/testdata/roles.txt").lines();
    let rows = rows.map(|row| {
        let mut words = row.split(' ');
        (words.next().unwrap(), words.collect())
    });
    rows.collect()
}

/// Calls with an empty request. The calls of a stream are judged before their first message.
async fn call(channel: &Channel, path: &'static str) -> Result<(), Status> {
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await.map_err(|e| Status::unavailable(e.to_string()))?;
    let request = Request::new(Bytes::new());
    client.server_streaming(request, PathAndQuery::from_static(path), Raw).await.map(drop)
}

/// Calls that end the machine or its services: allowed ones are not made, everything else of them is.
fn ends_something(path: &str) -> bool {
    ["Reboot", "Shutdown", "Reset", "Upgrade"].iter().any(|name| path.ends_with(&format!("/{name}")))
}

/// All calls at once: some that are allowed wait for a containerd or a time server that this machine has not.
async fn play(f: &Fixture, role: &'static str) {
    let channel = f.channel(Some(role)).await;
    let rows = matrix().into_iter().map(|(path, allowed)| (path, allowed.contains(&role)));
    let rows = rows.filter(|(path, may)| !(*may && ends_something(path)));
    futures_util::future::join_all(rows.map(|(path, may)| judge(&channel, role, path, may))).await;
}

async fn judge(channel: &Channel, role: &str, path: &'static str, may: bool) {
    let denied = match call(channel, path).await {
        Err(status) if status.code() == Code::PermissionDenied => {
            status.message().starts_with(&format!("not authorized: {path} needs one of ["))
        }
        _ => false,
    };
    assert_eq!(!denied, may, "{role} calls {path}");
}

#[tokio::test]
async fn every_role_may_call_exactly_its_rows() {
    let (f, _other) = two_nodes().await;
    futures_util::future::join_all(ROLES.map(|role| play(&f, role))).await;
}

#[tokio::test]
async fn nobody_calls_anything_without_a_certificate() {
    let (f, _other) = two_nodes().await;
    for (path, _) in matrix() {
        let refused = match f.channel_of(None).await {
            // TLS 1.3: the client may have finished before the server refuses.
            Ok(channel) => {
                call(&channel, path).await.is_err_and(|status| status.code() != Code::PermissionDenied)
            }
            Err(_) => true,
        };
        assert!(refused, "{path} was answered without a certificate");
    }
}

#[tokio::test]
async fn a_certificate_of_another_ca_is_none() {
    let (f, _other) = two_nodes().await;
    let (stranger, _) = two_nodes().await;
    let identity = stranger.identity(Some("os:admin"));
    let answered = match f.channel_of(Some(identity)).await {
        Ok(channel) => call(&channel, "/machine.MachineService/Version").await.is_ok(),
        Err(_) => false,
    };
    assert!(!answered);
}
