//! Panics behind apid and in it, with real certificates.

use std::time::Duration;

use api::proto::machine as proto;
use tokio::time::timeout;
use tonic::{Code, Status};

use super::tests::{Fixture, to, two_nodes};

const SOON: Duration = Duration::from_secs(10);

/// Everything else goes on: this connection, another one, and the other node through this one.
async fn all_is_well(f: &Fixture, client: &mut super::tests::Client) {
    timeout(SOON, client.version(())).await.expect("the same connection").unwrap();
    let mut other = f.client(Some("os:reader")).await;
    timeout(SOON, other.version(())).await.expect("another connection").unwrap();
    let both = to((), &[("nodes", "n1"), ("nodes", "127.0.0.2")]);
    let answer = timeout(SOON, client.version(both)).await.expect("both nodes").unwrap().into_inner();
    assert!(answer.messages.iter().all(|message| message.metadata.as_ref().unwrap().error.is_empty()));
}

fn check(status: &Status, call: &str) {
    assert_eq!(status.code(), Code::Internal, "{status:?}");
    let name = format!("/machine.MachineService/{call} ended by a panic");
    assert!(status.message().starts_with(&name), "{status:?}");
}

#[tokio::test]
async fn a_panic_of_machined_and_one_of_apid_reach_only_who_asked() {
    let (f, _other) = two_nodes().await;
    let mut client = f.client(Some("os:admin")).await;
    let stop = || proto::ServiceStopRequest { id: "panic-in-unary".into() };
    check(&client.service_stop(stop()).await.unwrap_err(), "ServiceStop");
    all_is_well(&f, &mut client).await;
    // By the other node, with its word in an element of its own.
    let answer = client.service_stop(to(stop(), &[("nodes", "n1"), ("nodes", "127.0.0.2")])).await.unwrap();
    let errors = answer.into_inner().messages.into_iter().map(|message| message.metadata.unwrap().error);
    assert_eq!(errors.filter(|error| error.contains("ended by a panic")).count(), 2);
    all_is_well(&f, &mut client).await;

    let here = to((), &[("node", "panic-in-proxy")]);
    check(&client.version(here).await.unwrap_err(), "Version");
    all_is_well(&f, &mut client).await;
    let several = || to((), &[("nodes", "n1"), ("nodes", "panic-in-proxy")]);
    check(&client.version(several()).await.unwrap_err(), "Version");
    all_is_well(&f, &mut client).await;
    let request = proto::LogsRequest { id: "svc".into(), tail_lines: -1, ..Default::default() };
    let request = to(request, &[("nodes", "n1"), ("nodes", "panic-in-proxy")]);
    let mut stream = client.logs(request).await.unwrap().into_inner();
    let status = loop {
        match timeout(SOON, stream.message()).await.unwrap() {
            Ok(message) => assert!(message.is_some(), "the stream ended without a status"),
            Err(status) => break status,
        }
    };
    check(&status, "Logs");
    all_is_well(&f, &mut client).await;
}
