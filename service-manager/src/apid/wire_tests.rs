//! The byte-level rules of the wire, played against a real apid and machined.
//!
//! Source: docs/users/endpoint.md; crates/api/testdata/wire.txt.

use api::proto::machine as proto;
use bytes::{Buf, BufMut, Bytes};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Request, Status};

use super::tests::{Fixture, to, two_nodes};

/// Messages as they are on the wire.
#[derive(Clone, Copy, Default)]
pub(crate) struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

async fn call(f: &Fixture, path: &'static str, nodes: &[&str]) -> Result<Bytes, Status> {
    let pairs: Vec<_> = nodes.iter().map(|node| ("nodes", *node)).collect();
    let mut client = tonic::client::Grpc::new(f.channel(Some("os:admin")).await);
    client.ready().await.unwrap();
    let request: Request<Bytes> = to(Bytes::new(), &pairs);
    client
        .unary(request, http::uri::PathAndQuery::from_static(path), Raw)
        .await
        .map(tonic::Response::into_inner)
}

/// The content of the only field 1 of a message, which has nothing else.
fn only_element(answer: &[u8]) -> &[u8] {
    assert_eq!(answer[0], 0x0a, "the first byte is the tag of field 1: {answer:?}");
    let mut rest = &answer[1..];
    let length = usize::try_from(prost::encoding::decode_varint(&mut rest).unwrap()).unwrap();
    assert_eq!(length, rest.len(), "one element and nothing behind it");
    rest
}

/// Field 1 with this content.
fn field(content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x0a];
    prost::encoding::encode_varint(u64::try_from(content.len()).unwrap(), &mut bytes);
    bytes.extend(content);
    bytes
}

const UNARY: [&str; 11] = [
    "/machine.MachineService/Version",
    "/machine.MachineService/Hostname",
    "/machine.MachineService/ServiceList",
    "/machine.MachineService/LogsContainers",
    "/machine.MachineService/Netstat",
    "/network.NetworkService/Interfaces",
    "/network.NetworkService/Routes",
    "/inspect.InspectService/ControllerRuntimeDependencies",
    "/machine.MachineService/Memory",
    "/machine.MachineService/LoadAvg",
    "/machine.MachineService/SystemStat",
];

#[tokio::test]
async fn a_unary_answer_is_one_element_and_nothing_else() {
    let (first, _second) = two_nodes().await;
    let proc = first.node.runtime.path("/proc");
    std::fs::create_dir_all(&proc).unwrap();
    for file in ["meminfo", "loadavg", "stat"] {
        std::fs::copy(std::path::Path::new("/proc").join(file), proc.join(file)).unwrap();
    }
    for path in UNARY {
        let answer = call(&first, path, &[]).await.unwrap_or_else(|e| panic!("{path}: {e}"));
        only_element(&answer);
    }
}

#[tokio::test]
async fn merged_answers_are_the_elements_with_metadata_appended() {
    let (first, _second) = two_nodes().await;
    let path = "/machine.MachineService/Version";
    let alone = call(&first, path, &[]).await.unwrap();
    let merged = call(&first, path, &["n1", "127.0.0.2"]).await.unwrap();
    let element = |host: &str| {
        // common.Metadata{1 hostname}, behind what the node said.
        let metadata = field(&field(host.as_bytes()));
        field(&[only_element(&alone), &metadata].concat())
    };
    assert_eq!(merged, [element("n1"), element("127.0.0.2")].concat());
}

#[tokio::test]
async fn an_error_is_an_element_of_metadata_alone() {
    let (first, _second) = two_nodes().await;
    let merged = call(&first, "/machine.MachineService/Recover", &["n1"]).await.unwrap();
    let status = call(&first, "/machine.MachineService/Recover", &[]).await.unwrap_err();
    let text = format!("rpc error: code = Unimplemented desc = {}", status.message());
    let mut metadata = field(b"n1");
    metadata.extend([0x12, u8::try_from(text.len() & 0x7f).unwrap() | 0x80, 1]);
    metadata.extend(text.bytes());
    // google.rpc.Status{1 code, 2 message}.
    let mut detail = vec![0x08, 12, 0x12];
    detail.push(u8::try_from(status.message().len()).unwrap());
    detail.extend(status.message().bytes());
    metadata.push(0x1a);
    metadata.push(u8::try_from(detail.len()).unwrap());
    metadata.extend(detail);
    assert_eq!(merged, field(&field(&metadata)));
}

#[tokio::test]
async fn stream_messages_have_metadata_appended() {
    let (first, _second) = two_nodes().await;
    let mut client = tonic::client::Grpc::new(first.channel(Some("os:admin")).await);
    client.ready().await.unwrap();
    // LogsRequest{2 id: "svc", 5 tail_lines: -1}.
    let mut request = vec![0x12, 3];
    request.extend(b"svc");
    request.extend([0x28, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]);
    let request: Request<Bytes> = to(request.into(), &[("nodes", "n1")]);
    let path = http::uri::PathAndQuery::from_static("/machine.MachineService/Logs");
    let mut stream = client.server_streaming(request, path, Raw).await.unwrap().into_inner();
    let message = stream.message().await.unwrap().unwrap();
    let mut expected = vec![0x12, 6];
    expected.extend(b"first\n");
    expected.extend(field(&field(b"n1")));
    assert_eq!(message, expected);
    assert!(stream.message().await.unwrap().is_none());
}

#[tokio::test]
async fn the_first_event_is_empty_bytes() {
    let (first, _second) = two_nodes().await;
    let mut client = tonic::client::Grpc::new(first.channel(Some("os:admin")).await);
    client.ready().await.unwrap();
    let path = http::uri::PathAndQuery::from_static("/machine.MachineService/Events");
    let mut stream =
        client.server_streaming(Request::new(Bytes::new()), path, Raw).await.unwrap().into_inner();
    assert_eq!(stream.message().await.unwrap().unwrap(), Bytes::new());
    // Asked through `nodes`, the same message carries the node's name and nothing else.
    let mut client = first.client(Some("os:admin")).await;
    let request = to(proto::EventsRequest::default(), &[("nodes", "n1")]);
    let mut stream = client.events(request).await.unwrap().into_inner();
    let event = stream.message().await.unwrap().unwrap();
    assert!(event.data.is_none() && event.id.is_empty());
    assert_eq!(event.metadata.unwrap().hostname, "n1");
}

#[tokio::test]
async fn a_watch_begins_with_empty_bytes_and_its_events_have_both_submessages() {
    let (first, _second) = two_nodes().await;
    let mut client = tonic::client::Grpc::new(first.channel(Some("os:admin")).await);
    client.ready().await.unwrap();
    // WatchRequest{1 namespace, 2 type, 4 options{1 bootstrap_contents}, 5 api_version: 1}.
    let mut request = vec![0x0a, 7];
    request.extend(b"runtime");
    request.extend([0x12, 27]);
    request.extend(b"Services.v1alpha1.talos.dev");
    request.extend([0x22, 2, 0x08, 1, 0x28, 1]);
    let path = http::uri::PathAndQuery::from_static("/cosi.resource.State/Watch");
    let request: Request<Bytes> = Request::new(request.into());
    let mut stream = client.server_streaming(request, path, Raw).await.unwrap().into_inner();
    assert_eq!(stream.message().await.unwrap().unwrap(), Bytes::new());
    let bootstrapped = stream.message().await.unwrap().unwrap();
    let resource = {
        let event = only_element(&bootstrapped);
        assert_eq!(event[0], 0x0a);
        let length = usize::from(event[1]);
        &event[2..2 + length]
    };
    assert_eq!(resource[0], 0x0a, "metadata");
    assert_eq!(&resource[2 + usize::from(resource[1])..], [0x12, 0], "an empty spec that is there");
}

#[tokio::test]
async fn modes_of_files_are_gos() {
    let (first, _second) = two_nodes().await;
    let directory = first.node.runtime.path("/data");
    std::fs::create_dir(&directory).unwrap();
    std::fs::set_permissions(&directory, std::os::unix::fs::PermissionsExt::from_mode(0o1755)).unwrap();
    std::fs::write(directory.join("file"), "x").unwrap();
    std::fs::set_permissions(directory.join("file"), std::os::unix::fs::PermissionsExt::from_mode(0o4640))
        .unwrap();
    std::os::unix::fs::symlink("file", directory.join("link")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(directory.join("socket")).unwrap();
    let request = proto::ListRequest { root: "/data".into(), ..Default::default() };
    let mut client = first.client(Some("os:admin")).await;
    let mut stream = client.list(request).await.unwrap().into_inner();
    let mut modes = Vec::new();
    while let Some(info) = stream.message().await.unwrap() {
        modes.push((info.relative_name, info.mode));
    }
    let of = |name: &str| modes.iter().find(|(n, _)| n == name).unwrap().1;
    assert_eq!(of("."), 1 << 31 | 1 << 20 | 0o755);
    assert_eq!(of("file"), 1 << 23 | 0o640);
    assert_eq!(of("link"), 1 << 27 | 0o777);
    assert_eq!(of("socket") & !0o777, 1 << 24);
}
