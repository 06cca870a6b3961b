//! The role matrix, played: every call of every service, by every role and by nobody, against a real apid.
//!
//! The rows come from crates/api/testdata/roles.txt, which a test of that crate holds against the descriptors: a new
//! call without a row fails there, a call that answers other than its row fails here.

use bytes::Bytes;
use http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use super::tests::{Fixture, in_maintenance, two_nodes};
use super::wire_tests::Raw;
use crate::locked::Maintenance;

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

pub(super) fn matrix() -> Vec<(&'static str, Vec<&'static str>)> {
    let rows = include_str!("../../../crates/api/testdata/roles.txt").lines();
    let rows = rows.map(|row| {
        let mut words = row.split(' ');
        (words.next().unwrap(), words.collect())
    });
    rows.collect()
}

/// What a node in this mode of maintenance offers: an open one besides a reader's calls, a locked one nothing else.
fn offered(mode: &str) -> Vec<&'static str> {
    let rows = include_str!("../../../crates/api/testdata/maintenance.txt").lines();
    rows.map(|row| row.split_once(' ').unwrap()).filter(|row| row.0 == mode).map(|row| row.1).collect()
}

/// Calls with an empty request. The calls of a stream are checked before their first message.
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

/// Every call of every service, without a certificate and by every role, whose certificate counts for nothing there: against
/// apid, which judges, and against machined alone, which does so too while apid does not know yet.
#[tokio::test]
async fn a_locked_node_refuses_every_call_to_everybody_but_those_that_explain_and_unlock() {
    let why = "no key matched";
    let f = in_maintenance(Maintenance::Locked(why.to_owned())).await;
    f.node.configuration.maintenance.send_replace(Maintenance::Locked(why.to_owned()));
    // It was open when apid began: machined knows better.
    let late = in_maintenance(Maintenance::Open).await;
    late.node.configuration.maintenance.send_replace(Maintenance::Locked(why.to_owned()));
    let offered = offered("locked");
    for node in [&f, &late] {
        for role in [None].into_iter().chain(ROLES.map(Some)) {
            let channel = node.channel_of(role.map(|role| node.identity(Some(role)))).await.unwrap();
            for (path, _) in matrix() {
                judge_locked(&channel, role, path, offered.contains(&path)).await;
            }
            let refused = call(&channel, "/machine.MachineService/ApplyConfiguration").await.unwrap_err();
            for part in [why, "billetctl unlock STATE", "billet.maintenance=open", "wipes the system disk"] {
                assert!(refused.message().contains(part), "{role:?}: {part}: {refused:?}");
            }
        }
    }
}

async fn judge_locked(channel: &Channel, role: Option<&str>, path: &'static str, is_offered: bool) {
    let answer = call(channel, path).await;
    if is_offered {
        // An empty request names no type, key or volume; it is refused for that alone.
        let text = answer.err().map(|status| status.message().to_owned()).unwrap_or_default();
        assert!(!text.contains("locked") && !text.contains("needs one of"), "{role:?}: {path}: {text}");
        return;
    }
    let status = answer.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{role:?}: {path}: {status:?}");
    assert!(status.message().starts_with("not authorized"), "{role:?}: {path}: {status:?}");
}

/// The open mode is as it was: whoever reaches the node may give it a config.
#[tokio::test]
async fn an_open_node_takes_a_config_from_whoever_reaches_it() {
    let f = in_maintenance(Maintenance::Open).await;
    let channel = f.channel_of(None).await.unwrap();
    let apply = call(&channel, "/machine.MachineService/ApplyConfiguration").await.unwrap_err();
    assert_ne!(apply.code(), Code::PermissionDenied, "{apply:?}");
    let reset = call(&channel, "/machine.MachineService/Upgrade").await.unwrap_err();
    assert_eq!(reset.code(), Code::PermissionDenied, "{reset:?}");
}

/// Every call of every service, by nobody and by whoever shows a certificate, which counts for nothing there.
#[tokio::test]
async fn an_open_node_offers_exactly_a_readers_calls_and_the_first_config() {
    let f = in_maintenance(Maintenance::Open).await;
    let offered = offered("open");
    for identity in [None, Some(f.identity(Some("os:admin")))] {
        let channel = f.channel_of(identity).await.unwrap();
        let rows = matrix().into_iter();
        let rows = rows.map(|(path, roles)| (path, roles.contains(&"os:reader") || offered.contains(&path)));
        futures_util::future::join_all(rows.map(|(path, may)| judge(&channel, "somebody", path, may))).await;
    }
}

/// Of the resources a locked node shows those that say why.
#[tokio::test]
async fn a_locked_node_shows_only_the_resources_that_say_why() {
    use api::proto::cosi::resource::state_client::StateClient;
    use api::proto::cosi::resource::{GetRequest, ListRequest};
    let f = in_maintenance(Maintenance::Locked("no key matched".to_owned())).await;
    f.node.configuration.maintenance.send_replace(Maintenance::Locked("no key matched".to_owned()));
    let mut client = StateClient::new(f.channel_of(None).await.unwrap());
    let mut shown = Vec::new();
    for kind in runtime::store::ALL.iter().filter(|kind| !kind.internal) {
        let request = ListRequest {
            namespace: kind.namespace.to_owned(),
            r#type: kind.kind.to_owned(),
            ..Default::default()
        };
        match client.list(request).await {
            Ok(_) => shown.push(kind.kind),
            Err(status) => assert_eq!(status.code(), Code::PermissionDenied, "{}: {status:?}", kind.kind),
        }
    }
    shown.sort_unstable();
    assert_eq!(
        shown,
        [
            "MachineStatuses.runtime.talos.dev",
            "Namespaces.meta.cosi.dev",
            "ResourceDefinitions.meta.cosi.dev",
            "VolumeStatuses.block.talos.dev",
        ]
    );
    let disks = GetRequest {
        namespace: "runtime".into(),
        r#type: "Disks.block.talos.dev".into(),
        id: "sda".into(),
        ..Default::default()
    };
    let refused = client.get(disks).await.unwrap_err();
    assert!(refused.message().contains("no key matched"), "{refused:?}");
}
