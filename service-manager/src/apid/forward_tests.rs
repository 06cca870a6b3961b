//! Two real apids on loopback, each in front of its own machined: what one passes on to the other.

use std::time::Duration;

use api::proto::cosi::resource as cosi;
use api::proto::cosi::resource::state_client::StateClient;
use api::proto::machine as proto;
use api::proto::machine::machine_service_client::MachineServiceClient;
use tonic::Code;

use super::tests::{to, two_nodes};
use crate::programs::CALLER;

const OTHER: &str = "127.0.0.2";
const SOON: Duration = Duration::from_secs(10);

fn log(follow: bool) -> proto::LogsRequest {
    proto::LogsRequest { id: "svc".into(), tail_lines: -1, follow, ..Default::default() }
}

#[tokio::test]
async fn one_other_node_answers_as_if_asked_directly() {
    let (first, _second) = two_nodes().await;
    let mut client = first.client(Some("os:admin")).await;
    let mut stream = client.logs(to(log(false), &[("node", OTHER)])).await.unwrap().into_inner();
    let data = stream.message().await.unwrap().unwrap();
    assert_eq!((data.bytes.as_slice(), data.metadata), (&b"second\n"[..], None));
    assert!(stream.message().await.unwrap().is_none());
    let answer = client.version(to((), &[("node", OTHER)])).await.unwrap().into_inner();
    assert!(answer.messages.len() == 1 && answer.messages[0].metadata.is_none());
    let stop = proto::ServiceStopRequest { id: "nobody".into() };
    let error = client.service_stop(to(stop, &[("node", OTHER)])).await.unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::NotFound, "service \"nobody\" not defined"));
}

#[tokio::test]
async fn many_nodes_answer_in_the_order_asked_and_fail_alone() {
    let (first, _second) = two_nodes().await;
    let mut client = first.client(Some("os:admin")).await;
    let nodes = [("nodes", "127.0.0.3"), ("nodes", OTHER), ("nodes", "n1")];
    let answer = client.version(to((), &nodes)).await.unwrap().into_inner();
    let metadata: Vec<_> = answer.messages.iter().map(|m| m.metadata.clone().unwrap()).collect();
    let hosts: Vec<_> = metadata.iter().map(|m| m.hostname.as_str()).collect();
    assert_eq!(hosts, ["127.0.0.3", OTHER, "n1"]);
    assert_eq!(metadata[0].status.as_ref().unwrap().code, i32::from(Code::Unavailable));
    assert!(metadata[1].error.is_empty() && metadata[2].error.is_empty());
    assert!(answer.messages[0].version.is_none() && answer.messages[1].version.is_some());
}

#[tokio::test]
async fn followed_streams_of_two_nodes_run_side_by_side() {
    let (first, second) = two_nodes().await;
    let mut client = first.client(Some("os:admin")).await;
    let nodes = [("nodes", "n1"), ("nodes", OTHER)];
    let mut stream = client.logs(to(log(true), &nodes)).await.unwrap().into_inner();
    let mut next = async || {
        let message = tokio::time::timeout(SOON, stream.message()).await.unwrap().unwrap().unwrap();
        (message.metadata.unwrap().hostname, String::from_utf8(message.bytes).unwrap())
    };
    let mut seen = [next().await, next().await];
    seen.sort();
    assert_eq!(seen, [(OTHER.into(), "second\n".into()), ("n1".into(), "first\n".into())]);
    second.node.runtime.logs.open("svc").unwrap().append(b"more\n").unwrap();
    assert_eq!(next().await, (OTHER.into(), "more\n".into()));
    first.node.runtime.logs.open("svc").unwrap().append(b"again\n").unwrap();
    assert_eq!(next().await, ("n1".into(), "again\n".into()));
}

/// Files of another node that a client asked for and does not read, as many as it may have: the calls of other clients that
/// are passed on to that node are answered, and these have places of their own.
#[tokio::test]
async fn unread_streams_of_another_node_hold_up_no_call_to_it() {
    /// More than all windows on the way take in.
    const LARGE_BYTES: u64 = 32 << 20;
    let (first, second) = two_nodes().await;
    let file = std::fs::File::create(second.node.runtime.path("/large")).unwrap();
    file.set_len(LARGE_BYTES).unwrap();
    let read = || to(proto::ReadRequest { path: "/large".into() }, &[("node", OTHER)]);
    let client = async |last: u8| {
        let source = Some([127, 0, 0, last].into());
        let channel = first.channel_from(source, Some(first.identity(Some("os:admin")))).await;
        MachineServiceClient::new(channel.unwrap())
    };
    let mut hostile = client(11).await;
    let mut unread = Vec::new();
    for _ in 0..8 {
        unread.push(hostile.read(read()).await.unwrap().into_inner());
    }
    let mut forged = read();
    forged.metadata_mut().insert(CALLER, "10.0.0.1".parse().unwrap());
    for request in [read(), forged] {
        let status = hostile.read(request).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        assert!(status.message().starts_with("127.0.0.11 reads 8 "), "{status}");
    }
    let mut other = client(12).await;
    for selection in ["node", "nodes"] {
        let version = other.version(to((), &[(selection, OTHER)]));
        let answer = tokio::time::timeout(SOON, version).await.expect(selection).unwrap().into_inner();
        assert!(answer.messages[0].version.is_some(), "{selection}: {answer:?}");
    }
    let mut stream = tokio::time::timeout(SOON, other.read(read())).await.unwrap().unwrap().into_inner();
    assert!(!tokio::time::timeout(SOON, stream.message()).await.unwrap().unwrap().unwrap().bytes.is_empty());
}

#[tokio::test]
async fn a_request_that_was_passed_on_goes_no_further() {
    let (first, _second) = two_nodes().await;
    let mut client = first.client(Some("os:admin")).await;
    for selection in ["node", "nodes"] {
        let pairs = [(selection, OTHER), ("proxyfrom", "somebody")];
        let mut stream = client.logs(to(log(false), &pairs)).await.unwrap().into_inner();
        let data = stream.message().await.unwrap().unwrap();
        assert_eq!((data.bytes.as_slice(), data.metadata), (&b"first\n"[..], None), "{selection}");
    }
}

#[tokio::test]
async fn the_clients_roles_travel_with_the_request_and_no_others() {
    let (first, second) = two_nodes().await;
    let list = || cosi::ListRequest {
        namespace: "config".into(),
        r#type: "MachineConfigs.config.talos.dev".into(),
        options: None,
    };
    let mut admin = StateClient::new(first.channel(Some("os:admin")).await);
    assert!(admin.list(to(list(), &[("node", OTHER)])).await.is_ok());
    let mut reader = StateClient::new(first.channel(Some("os:reader")).await);
    let denied = reader.list(to(list(), &[("node", OTHER)])).await.unwrap_err();
    assert_eq!(denied.code(), Code::PermissionDenied);
    let forged = [("node", OTHER), ("talos-role", "os:admin")];
    let denied = reader.list(to(list(), &forged)).await.unwrap_err();
    assert_eq!(denied.code(), Code::PermissionDenied);
    // A forwarding node that vouches for nobody is nobody.
    let mut speaker = second.client(Some("os:impersonator")).await;
    assert_eq!(speaker.version(()).await.unwrap_err().code(), Code::PermissionDenied);
    assert!(speaker.version(to((), &[("talos-role", "os:reader")])).await.is_ok());
}

#[tokio::test]
async fn a_node_without_the_cas_key_forwards_nothing() {
    let (_first, second) = two_nodes().await;
    let mut client = second.client(Some("os:admin")).await;
    assert!(client.version(to((), &[("node", OTHER)])).await.is_ok(), "itself");
    let denied = client.version(to((), &[("node", "127.0.0.1")])).await.unwrap_err();
    assert_eq!(denied.code(), Code::PermissionDenied);
    assert!(denied.message().starts_with("no request forwarding"), "{denied}");
}

#[tokio::test]
async fn targets_with_a_port_are_refused() {
    let (first, _second) = two_nodes().await;
    let mut client = first.client(Some("os:admin")).await;
    let error = client.version(to((), &[("node", "127.0.0.2:50000")])).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert!(error.message().contains("neither an address nor a host name without port"), "{error}");
}

/// Why a connection failed says what is at an address that any client may name.
#[tokio::test]
async fn administrators_alone_are_told_why_a_node_is_not_reachable() {
    let (first, _second) = two_nodes().await;
    for (role, is_told) in [("os:admin", true), ("os:operator", false), ("os:reader", false)] {
        let mut client = first.client(Some(role)).await;
        let error = client.version(to((), &[("node", "127.0.0.3")])).await.unwrap_err();
        assert_eq!(error.code(), Code::Unavailable, "{role}");
        let both = [("nodes", "127.0.0.3"), ("nodes", "n1")];
        let answer = client.version(to((), &both)).await.unwrap().into_inner();
        let element = answer.messages[0].metadata.as_ref().unwrap().error.as_str();
        for text in [error.message(), element] {
            assert_eq!(text.contains("connect to 127.0.0.3 port "), is_told, "{role}: {text}");
            let is_short = text.ends_with("node 127.0.0.3 is not reachable from this node");
            assert_eq!(is_short, !is_told, "{role}: {text}");
        }
    }
}
