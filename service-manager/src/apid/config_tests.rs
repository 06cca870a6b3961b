//! Configs that reach machined through apid: the longest one, and one whose refusal is longer than a header may be.

use std::time::Duration;

use api::proto::machine as proto;
use api::proto::machine::apply_configuration_request::Mode;
use tonic::Code;
use zeroize::Zeroizing;

use super::tests::{Fixture, one_node};
use crate::configuration::put_into_force;

/// For what takes milliseconds, on a machine that has much else to do.
const SOON: Duration = Duration::from_secs(60);
const CONFIG: &str = "version: v1alpha1\n\
    cluster: {controlPlane: {endpoint: 'https://10.0.0.1:6443'}}\n\
    machine: {type: worker, token: a.b, install: {disk: /dev/vda}, ca: {crt: YQ==}}\n";
const ADMIN: Option<&str> = Some("os:admin");

async fn configured() -> Fixture {
    let f = one_node().await;
    put_into_force(&f.node.configuration, Zeroizing::new(CONFIG.to_owned())).unwrap();
    f
}

fn apply(text: String) -> proto::ApplyConfigurationRequest {
    proto::ApplyConfigurationRequest {
        data: text.into_bytes(),
        mode: Mode::NoReboot.into(),
        dry_run: true,
        ..Default::default()
    }
}

#[tokio::test]
async fn the_longest_config_is_taken_and_a_longer_one_is_refused_with_the_limit() {
    let f = configured().await;
    // A dry run answers with what would change.
    let mut client = f.client(ADMIN).await.max_decoding_message_size(32 << 20);
    let comment = format!("#{}\n", "x".repeat(998));
    let mut text = CONFIG.to_owned();
    while text.len() + comment.len() <= config::MAX_BYTES {
        text.push_str(&comment);
    }
    text.push_str(&"#".repeat(config::MAX_BYTES - text.len()));
    client.apply_configuration(apply(text.clone())).await.unwrap();
    text.push('#');
    let status = client.apply_configuration(apply(text)).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    assert!(status.message().contains(&config::MAX_BYTES.to_string()), "{status:?}");
}

/// On one connection: a log that is followed, and calls that are under way while the refusal comes.
#[tokio::test]
async fn a_long_refusal_leaves_the_calls_beside_it_alone() {
    let f = one_node().await;
    let client = f.client(ADMIN).await;
    let follow = proto::LogsRequest { id: "svc".into(), follow: true, tail_lines: -1, ..Default::default() };
    let mut log = client.clone().logs(follow).await.unwrap().into_inner();
    assert_eq!(log.message().await.unwrap().unwrap().bytes, b"a line\n");
    let faults: String = (0..1000).map(|n| format!("  field{n}{}: 1\n", "y".repeat(1000))).collect();
    let kinds: String = (0..28).map(|n| format!("---\napiVersion: v1alpha1\nkind: Newer{n}\n")).collect();
    for text in [format!("machine:\n{faults}"), format!("{CONFIG}{kinds}")] {
        let (mut refused, mut beside, mut also) = (client.clone(), client.clone(), client.clone());
        let (refused, beside, also) =
            tokio::join!(refused.apply_configuration(apply(text)), beside.version(()), also.hostname(()),);
        let status = refused.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
        assert!(status.message().len() < 5000, "{}", status.message().len());
        beside.unwrap();
        also.unwrap();
    }
    f.node.runtime.logs.open("svc").unwrap().append(b"and another\n").unwrap();
    let next = tokio::time::timeout(SOON, log.message()).await.expect("the followed log goes on");
    assert_eq!(next.unwrap().unwrap().bytes, b"and another\n");
}
