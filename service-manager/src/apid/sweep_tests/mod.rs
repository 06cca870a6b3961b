//! Every call of every service with extreme values in every field, through apid to machined: each ends with an answer or a
//! status, and neither panics.
//!
//! Owns: what each call says besides the extreme value, so that it gets as far as its own work. Each row has a node of its own,
//! whose root is an empty directory: no value names a disk, an image or another machine.

mod extremes;

use std::time::Duration;

use api::proto::cosi::resource as cosi;
use api::proto::machine as proto;
use api::proto::{billet, cluster, resource, securityapi, storage, time};
use bytes::Bytes;
use futures_util::StreamExt;
use prost::Message;
use prost_types::Duration as Span;
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use super::role_tests::matrix;
use super::tests::{Fixture, one_node};
use super::wire_tests::Raw;
use extremes::{Case, Method};
use runtime::request::testing::{note_panics, other_panics};

pub(crate) use extremes::Schema;

/// For one call, on a machine that has much else to do.
const DEADLINE: Duration = Duration::from_secs(60);
/// For the next message of a stream, which may have none for long.
const QUIET: Duration = Duration::from_millis(100);
/// Messages of a stream that are read.
const MESSAGES: usize = 3;
/// Requests at once, fewer than the streams that one client may have.
const AT_ONCE: usize = 6;
/// Rows at once.
const ROWS: usize = 4;
/// Bytes of an answer: a client's limit.
const MOST_ANSWER_BYTES: usize = 32 << 20;

const CONFIG: &str = "version: v1alpha1\n\
    cluster: {controlPlane: {endpoint: 'https://10.0.0.1:6443'}}\n\
    machine:\n  type: worker\n  token: a.b\n  install: {disk: /dev/none}\n  sysctls:\n    vm.swappiness: '1'\n";

/// What a call says besides the extreme value; a row each.
fn bases(path: &str) -> Vec<Vec<u8>> {
    let span = |seconds| Some(Span { seconds, nanos: 0 });
    let (namespace, kind) = ("runtime".to_owned(), "Services.v1alpha1.talos.dev".to_owned());
    let config = |mode: i32| {
        let data = format!("{CONFIG}    vm.dirty_ratio: '{mode}'\n").into_bytes();
        proto::ApplyConfigurationRequest { data, mode, ..Default::default() }
    };
    match path {
        "/machine.MachineService/ApplyConfiguration" => vec![
            config(2).encode_to_vec(),
            config(4).encode_to_vec(),
            proto::ApplyConfigurationRequest { dry_run: true, ..config(1) }.encode_to_vec(),
            proto::ApplyConfigurationRequest { confirm_timeout: span(60), ..config(2) }.encode_to_vec(),
        ],
        "/machine.MachineService/List" => vec![
            proto::ListRequest { root: "/data".into(), recurse: true, ..Default::default() }.encode_to_vec(),
        ],
        "/machine.MachineService/DiskUsage" => {
            let paths = vec!["/data".to_owned()];
            vec![proto::DiskUsageRequest { all: true, paths, ..Default::default() }.encode_to_vec()]
        }
        "/machine.MachineService/Copy" => {
            vec![proto::CopyRequest { root_path: "/data".into() }.encode_to_vec()]
        }
        "/machine.MachineService/Read" => {
            vec![proto::ReadRequest { path: "/data/file".into() }.encode_to_vec()]
        }
        "/machine.MachineService/Logs" => {
            let request = proto::LogsRequest { id: "svc".into(), tail_lines: -1, ..Default::default() };
            vec![request.encode_to_vec()]
        }
        "/machine.MachineService/PacketCapture" => {
            let request = proto::PacketCaptureRequest { interface: "lo".into(), ..Default::default() };
            vec![request.encode_to_vec()]
        }
        "/machine.MachineService/Netstat" => {
            let l4proto = proto::netstat_request::L4proto { tcp: true, udp: true, ..Default::default() };
            vec![proto::NetstatRequest { l4proto: Some(l4proto), ..Default::default() }.encode_to_vec()]
        }
        "/machine.MachineService/MetaWrite" => {
            vec![proto::MetaWriteRequest { key: 12, value: b"a".to_vec() }.encode_to_vec()]
        }
        "/machine.MachineService/GenerateClientConfiguration" => {
            let roles = vec!["os:reader".to_owned()];
            vec![proto::GenerateClientConfigurationRequest { roles, crt_ttl: span(60) }.encode_to_vec()]
        }
        "/machine.MachineService/GenerateConfiguration" => {
            let cluster_config = Some(proto::ClusterConfig {
                name: "c".into(),
                control_plane: Some(proto::ControlPlaneConfig { endpoint: "https://10.0.0.1:6443".into() }),
                ..Default::default()
            });
            let machine_config = Some(proto::MachineConfig {
                install_config: Some(proto::InstallConfig {
                    install_disk: "/dev/none".into(),
                    ..Default::default()
                }),
                ..Default::default()
            });
            let request = proto::GenerateConfigurationRequest {
                config_version: "v1alpha1".into(),
                cluster_config,
                machine_config,
                ..Default::default()
            };
            vec![request.encode_to_vec()]
        }
        "/cluster.ClusterService/HealthCheck" => {
            let short = cluster::HealthCheckRequest { wait_timeout: span(1), cluster_info: None };
            vec![short.encode_to_vec()]
        }
        "/resource.ResourceService/Get" => {
            let request = resource::GetRequest { namespace, r#type: "svc".into(), id: "apid".into() };
            vec![request.encode_to_vec()]
        }
        "/resource.ResourceService/List" => {
            vec![resource::ListRequest { namespace, r#type: "svc".into() }.encode_to_vec()]
        }
        "/resource.ResourceService/Watch" => {
            vec![
                resource::WatchRequest { namespace, r#type: "svc".into(), id: String::new() }.encode_to_vec(),
            ]
        }
        "/cosi.resource.State/Get" => {
            let request =
                cosi::GetRequest { namespace, r#type: kind, id: "apid".into(), ..Default::default() };
            vec![request.encode_to_vec()]
        }
        "/cosi.resource.State/List" => {
            vec![cosi::ListRequest { namespace, r#type: kind, options: None }.encode_to_vec()]
        }
        "/cosi.resource.State/Watch" => {
            let watch = |options| cosi::WatchRequest {
                namespace: namespace.clone(),
                r#type: kind.clone(),
                options: Some(options),
                api_version: 1,
                ..Default::default()
            };
            let contents = cosi::WatchOptions { bootstrap_contents: true, ..Default::default() };
            vec![watch(contents).encode_to_vec(), watch(cosi::WatchOptions::default()).encode_to_vec()]
        }
        "/cosi.resource.State/Destroy" => {
            let request =
                cosi::DestroyRequest { namespace, r#type: kind, id: "apid".into(), ..Default::default() };
            vec![request.encode_to_vec()]
        }
        "/storage.StorageService/BlockDeviceWipe" => {
            let none = storage::BlockDeviceWipeDescriptor { device: "none".into(), ..Default::default() };
            vec![storage::BlockDeviceWipeRequest { devices: vec![none] }.encode_to_vec()]
        }
        "/time.TimeService/TimeCheck" => {
            vec![time::TimeRequest { server: "127.0.0.1".into() }.encode_to_vec()]
        }
        "/billet.MachineService/EarlierDmesg" => {
            vec![billet::EarlierDmesgRequest { back: 1 }.encode_to_vec()]
        }
        "/billet.MachineService/Unlock" => {
            vec![billet::UnlockRequest { volume: "STATE".into(), key: "a".into() }.encode_to_vec()]
        }
        "/securityapi.SecurityService/Certificate" => {
            vec![securityapi::CertificateRequest { csr: b"-----BEGIN".to_vec() }.encode_to_vec()]
        }
        _ => vec![Vec::new()],
    }
}

/// What is not sent, and why.
fn is_left_out(path: &str, case: &Case) -> bool {
    match path {
        // A name would be asked of this machine's resolver. Longer ones are refused before, and so is one with a zero byte.
        "/time.TimeService/TimeCheck" => {
            case.bytes.len() < 300
                && !["empty", "base"].contains(&case.name.as_str())
                && !["\"\"", "\"\\0\"", "\"::1\"", "\"é\""].iter().any(|text| case.name.ends_with(text))
        }
        _ => false,
    }
}

/// A node that has something of each kind to answer with.
async fn node() -> Fixture {
    let f = one_node().await;
    let root = &f.node.runtime.root;
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("data/file", "some text\n");
    write("data/directory/é", "more\n");
    // The first index is the loopback interface's on every Linux; 772 is its kind.
    write("sys/class/net/lo/ifindex", "1\n");
    write("sys/class/net/lo/type", "772\n");
    for file in ["meminfo", "loadavg", "stat", "cpuinfo", "diskstats", "net/dev", "net/tcp", "net/udp"] {
        if let Ok(text) = std::fs::read_to_string(std::path::Path::new("/proc").join(file)) {
            write(&format!("proc/{file}"), &text);
        }
    }
    let status = runtime::store::ServiceStatus { running: true, healthy: true, unknown: false };
    let kind = &runtime::store::SERVICE;
    f.node.runtime.store.put(kind.writer, kind, "apid", runtime::store::Spec::Service(status)).unwrap();
    crate::configuration::put_into_force(&f.node.configuration, zeroize::Zeroizing::new(CONFIG.to_owned()))
        .unwrap();
    f
}

/// Sends it, reads a few messages, and says how that ended.
pub(crate) async fn send(channel: &Channel, method: &Method, bytes: &[u8]) -> Result<(), Status> {
    let mut client = tonic::client::Grpc::new(channel.clone()).max_decoding_message_size(MOST_ANSWER_BYTES);
    client.ready().await.map_err(|e| Status::unavailable(e.to_string()))?;
    let request = Request::new(tokio_stream::once(Bytes::copy_from_slice(bytes)));
    let path = method.path.parse().unwrap();
    let mut answer = client.streaming(request, path, Raw).await?.into_inner();
    for _ in 0..MESSAGES {
        let next = match method.streams {
            true => timeout(QUIET, answer.message()).await.unwrap_or(Ok(None))?,
            false => answer.message().await?,
        };
        if next.is_none() {
            break;
        }
    }
    Ok(())
}

/// The same, once the streams before it have given their places back.
async fn send_in_turn(channel: &Channel, method: &Method, bytes: &[u8]) -> Result<(), Status> {
    loop {
        match send(channel, method, bytes).await {
            Err(status) if status.message().contains("lists, copies or files at once") => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            ended => return ended,
        }
    }
}

/// All requests of a row; what went wrong.
async fn row(schema: &Schema, method: &Method, base: Vec<u8>, role: &'static str, may: bool) -> Vec<String> {
    let f = node().await;
    let channel = f.channel(Some(role)).await;
    let mut cases = schema.cases(&method.input, &base);
    if !may {
        // They end at apid, whatever they say.
        cases.truncate(2);
    }
    cases.retain(|case| !is_left_out(&method.path, case));
    // A change that restarts the node, or waits for its confirmation, is the last one.
    cases.sort_by_key(|case| case.name.starts_with("mode =") || case.name.starts_with("confirm_timeout"));
    let at_once = if method.path.ends_with("/ApplyConfiguration") { 1 } else { AT_ONCE };
    let path = &method.path;
    let channel = &channel;
    let asked = tokio_stream::iter(&cases).map(|case| async move {
        let failed = |why: String| Some(format!("{role} {path} {}: {why}", case.name));
        match timeout(DEADLINE, send_in_turn(channel, method, &case.bytes)).await {
            Err(_) => failed("no end".to_owned()),
            Ok(Ok(())) if !may => failed("allowed".to_owned()),
            Ok(Err(status)) if !may && status.code() != Code::PermissionDenied => failed(status.to_string()),
            Ok(Err(status)) if is_a_panic(&status) => failed(status.to_string()),
            Ok(_) => None,
        }
    });
    let mut wrong: Vec<String> =
        asked.buffer_unordered(at_once).filter_map(std::future::ready).collect().await;
    // What came behind the messages that were read.
    let log = std::fs::read_to_string(f.node.runtime.root.join("log/machined.log")).unwrap_or_default();
    wrong.extend(log.lines().filter(|line| line.contains("ended by a panic")).map(str::to_owned));
    let version = Method { path: "/machine.MachineService/Version".to_owned(), ..Method::default() };
    match timeout(DEADLINE, send(channel, &version, &[])).await {
        Ok(Ok(())) => {}
        ended => wrong.push(format!("{path}: afterwards Version: {ended:?}")),
    }
    wrong
}

/// A panic that was an answer, or a machined or apid that is gone.
fn is_a_panic(status: &Status) -> bool {
    let text = status.message();
    text.contains("ended by a panic") || text.contains("went away") || text.contains("transport error")
}

async fn play(role: &'static str) {
    note_panics();
    let schema = Schema::of_the_api();
    let allowed: Vec<_> = matrix().into_iter().filter(|(_, roles)| roles.contains(&role)).collect();
    let rows = schema.methods.iter().flat_map(|method| {
        let may = allowed.iter().any(|(path, _)| *path == method.path);
        bases(&method.path).into_iter().map(move |base| (method, base, may))
    });
    let rows: Vec<_> = rows.collect();
    assert!(rows.len() >= 93, "{} rows", rows.len());
    let schema = &schema;
    let asked = tokio_stream::iter(rows).map(|(method, base, may)| row(schema, method, base, role, may));
    let wrong: Vec<Vec<String>> = asked.buffer_unordered(ROWS).collect().await;
    let mut wrong = wrong.concat();
    wrong.extend(other_panics());
    assert!(wrong.is_empty(), "{} went wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_field_at_its_extremes_ends_no_more_than_its_call() {
    play("os:admin").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_with_every_field_at_its_extremes_end_no_more_than_their_call() {
    play("os:reader").await;
}

/// A sweep of nothing would find nothing.
#[test]
fn the_sweep_has_every_call_and_reaches_nested_fields() {
    let schema = Schema::of_the_api();
    for (path, _) in matrix() {
        assert!(schema.methods.iter().any(|method| method.path == path), "{path} is in no descriptor");
    }
    let cases = |path: &str| {
        let method = schema.methods.iter().find(|method| method.path == path).unwrap();
        schema.cases(&method.input, &[])
    };
    let health = cases("/cluster.ClusterService/HealthCheck");
    let longest = health.iter().find(|case| case.name == format!("wait_timeout.seconds = {}", i64::MAX));
    let longest = cluster::HealthCheckRequest::decode(longest.unwrap().bytes.as_slice()).unwrap();
    assert_eq!(longest.wait_timeout.unwrap().seconds, i64::MAX);
    let nodes = health.iter().find(|case| case.name == "cluster_info.worker_nodes = \"\", 100000 times");
    let nodes = cluster::HealthCheckRequest::decode(nodes.unwrap().bytes.as_slice()).unwrap();
    assert_eq!(nodes.cluster_info.unwrap().worker_nodes.len(), 100_000);
}
