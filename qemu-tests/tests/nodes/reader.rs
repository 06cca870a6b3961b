//! A reader's certificate in the wrong hands: what it may call stops neither machined nor the calls of others.

use std::time::{Duration, Instant};

use api::proto::cluster::cluster_service_client::ClusterServiceClient;
use api::proto::cluster::{ClusterInfo, HealthCheckRequest};
use api::proto::machine as proto;
use qemu_tests::TestNode;
use qemu_tests::accel::deadline;
use qemu_tests::credentials::{ADMIN, READER};
use qemu_tests::rpc::Rpc;
use tonic::{Code, Status};

/// For one call while others are held up.
const STEP_LIMIT: Duration = Duration::from_secs(20);
/// Streams that one client may have.
const STREAMS: usize = 8;

/// The first message of a health check, or how it was refused.
fn health(rpc: &Rpc, seconds: i64, nanos: i32, nodes: &[&str]) -> Result<String, Status> {
    let control_plane_nodes = nodes.iter().map(|node| (*node).to_owned()).collect();
    let request = HealthCheckRequest {
        wait_timeout: Some(prost_types::Duration { seconds, nanos }),
        cluster_info: Some(ClusterInfo { control_plane_nodes, ..ClusterInfo::default() }),
    };
    rpc.call(|client| async move {
        let mut stream =
            ClusterServiceClient::new(client.channel()).health_check(request).await?.into_inner();
        Ok(stream.message().await?.map(|progress| progress.message).unwrap_or_default())
    })
}

#[test]
fn a_health_check_for_ever_does_not_end_machined() {
    let node = TestNode::boot("reader-health").unwrap();
    let agent = node.agent().unwrap();
    node.wait_services().unwrap();
    let before = agent.process("machined").unwrap();
    let reader = node.credentials().client(Some(READER)).unwrap();
    let rpc = Rpc::connect(&node, Some(&reader)).unwrap();
    for (seconds, nanos) in
        [(i64::MAX, 999_999_999), (i64::MAX, 0), (i64::MIN, i32::MIN), (-1, 0), (0, i32::MAX)]
    {
        let status = health(&rpc, seconds, nanos, &[]).unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{seconds} s: {status:?}");
    }
    for seconds in [i64::MAX / 2, i64::MAX / 1_000_000_000, 0] {
        let first = health(&rpc, seconds, 0, &[]).unwrap();
        assert!(first.starts_with("discovered nodes: "), "{seconds} s: {first}");
    }
    // A reader has the node look for nobody.
    let status = health(&rpc, 1, 0, &["127.0.0.1", "192.0.2.1"]).unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    assert!(status.message().contains("192.0.2.1"), "{status:?}");
    node.answers(STEP_LIMIT).unwrap();
    let after = agent.process("machined").unwrap();
    assert_eq!((after.pid, after.start_ticks), (before.pid, before.start_ticks), "machined has restarted");
}

/// Streams that are asked for and never read, as many as one client may have.
struct Unread {
    _rpc: Rpc,
    _lists: Vec<tonic::Streaming<proto::FileInfo>>,
    _data: Vec<tonic::Streaming<api::proto::common::Data>>,
    _usages: Vec<tonic::Streaming<proto::DiskUsageInfo>>,
}

fn unread(node: &TestNode) -> Unread {
    let admin = node.credentials().client(Some(ADMIN)).unwrap();
    let rpc = Rpc::connect(node, Some(&admin)).unwrap();
    let (mut lists, mut data, mut usages) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..STREAMS / 4 {
        let request = proto::ListRequest { root: "/".into(), recurse: true, ..Default::default() };
        let list = async |client: api::client::Client| Ok(client.machine().list(request).await?.into_inner());
        lists.push(rpc.call(list).unwrap());
        let request = proto::CopyRequest { root_path: "/usr".into() };
        let copy = async |client: api::client::Client| Ok(client.machine().copy(request).await?.into_inner());
        data.push(rpc.call(copy).unwrap());
        let request = proto::ReadRequest { path: "/usr/bin/machined".into() };
        let read = async |client: api::client::Client| Ok(client.machine().read(request).await?.into_inner());
        data.push(rpc.call(read).unwrap());
        let request = proto::DiskUsageRequest { all: true, paths: vec!["/".into()], ..Default::default() };
        let usage =
            async |client: api::client::Client| Ok(client.machine().disk_usage(request).await?.into_inner());
        usages.push(rpc.call(usage).unwrap());
    }
    Unread { _rpc: rpc, _lists: lists, _data: data, _usages: usages }
}

#[test]
fn streams_that_nobody_reads_hold_up_no_call() {
    let node = TestNode::boot("reader-streams").unwrap();
    let agent = node.agent().unwrap();
    node.wait_services().unwrap();
    let before = agent.process("machined").unwrap();
    let held = unread(&node);
    let reader = node.credentials().client(Some(READER)).unwrap();
    let rpc = Rpc::connect(&node, Some(&reader)).unwrap();
    let limit = deadline(STEP_LIMIT);
    let within = |what: &str, call: &dyn Fn() -> Result<(), Status>| {
        let start = Instant::now();
        call().unwrap_or_else(|status| panic!("{what}: {status:?}"));
        assert!(start.elapsed() < limit, "{what} took {:?} of {limit:?}", start.elapsed());
    };
    for _ in 0..3 {
        within("Version", &|| rpc.call(async |client| client.machine().version(()).await.map(drop)));
        within("Memory", &|| rpc.call(async |client| client.machine().memory(()).await.map(drop)));
        // Files off the async threads.
        within("Mounts", &|| rpc.call(async |client| client.machine().mounts(()).await.map(drop)));
        within("Processes", &|| rpc.call(async |client| client.machine().processes(()).await.map(drop)));
        within("ServiceList", &|| rpc.call(async |client| client.machine().service_list(()).await.map(drop)));
    }
    let second = rpc.call(async |client| {
        let request = proto::ListRequest { root: "/etc".into(), ..Default::default() };
        let mut stream = client.machine().list(request).await?.into_inner();
        stream.message().await
    });
    // All clients reach the machine by one address here: its places are taken, and that is the answer.
    assert_eq!(second.unwrap_err().code(), Code::ResourceExhausted);
    drop(held);
    let after = agent.process("machined").unwrap();
    assert_eq!((after.pid, after.start_ticks), (before.pid, before.start_ticks), "machined has restarted");
}
