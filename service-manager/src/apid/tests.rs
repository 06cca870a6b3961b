//! apid in front of a machined, with real certificates on loopback.

use std::net::SocketAddr;

use api::pki::{Authority, CA_LIFETIME, LEAF_LIFETIME, Leaf, Lifetime, Usage};
use api::proto::machine as proto;
use api::proto::machine::machine_service_client::MachineServiceClient;
use api::tls::Trust;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, UnixListener};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

use super::*;
use crate::server;

struct Fixture {
    _dir: tempfile::TempDir,
    authority: Authority,
    address: SocketAddr,
}

fn leaf(organization: Option<&str>, usage: Usage) -> Leaf {
    Leaf {
        organization: organization.map(str::to_owned),
        names: vec!["127.0.0.1".into()],
        usage,
        lifetime: Lifetime::from_now(LEAF_LIFETIME),
    }
}

async fn fixture() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let node = server::tests_node(dir.path().canonicalize().unwrap());
    let mut log = node.logs.open("svc").unwrap();
    log.append(b"a line\n").unwrap();
    let socket = dir.path().join("machine.sock");
    tokio::spawn(server::serve_on(node, UnixListener::bind(&socket).unwrap()));
    let authority = Authority::generate("talos", Lifetime::from_now(CA_LIFETIME)).unwrap();
    let identity = authority.issue(&leaf(None, Usage::Server)).unwrap();
    let material = Material {
        maintenance: false,
        authority: authority.certificate().to_owned(),
        certificate: identity.certificate.clone(),
        key: identity.key.to_pem(),
        names: vec!["127.0.0.1".into(), "10.0.0.5".into(), "n1".into()],
        trust: None,
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(Server::new(&material, socket.to_str().unwrap()).unwrap().serve(listener));
    Fixture { _dir: dir, authority, address }
}

impl Fixture {
    async fn client(&self, role: Option<&str>) -> MachineServiceClient<Channel> {
        let identity = self.authority.issue(&leaf(role, Usage::Client)).unwrap();
        let config = tls::client(Trust::Authority(self.authority.certificate()), Some(&identity)).unwrap();
        let address = self.address;
        let connector = tower::service_fn(move |_| {
            let connector = tokio_rustls::TlsConnector::from(config.clone());
            async move {
                let stream = TcpStream::connect(address).await?;
                let name = rustls::pki_types::ServerName::try_from("127.0.0.1").unwrap();
                connector.connect(name, stream).await.map(TokioIo::new)
            }
        });
        let endpoint = Endpoint::from_static("http://node");
        MachineServiceClient::new(endpoint.connect_with_connector(connector).await.unwrap())
    }
}

fn to<T>(message: T, pairs: &[(&'static str, &'static str)]) -> Request<T> {
    let mut request = Request::new(message);
    for (name, value) in pairs {
        request.metadata_mut().append(*name, value.parse().unwrap());
    }
    request
}

#[tokio::test]
async fn an_answer_without_node_is_untouched() {
    let f = fixture().await;
    let mut client = f.client(Some("os:admin")).await;
    for pairs in [&[][..], &[("node", "10.0.0.5")], &[("node", "")]] {
        let answer = client.version(to((), pairs)).await.unwrap().into_inner();
        assert!(answer.messages[0].metadata.is_none(), "{pairs:?}");
    }
}

#[tokio::test]
async fn nodes_get_their_name_and_strangers_an_error_of_their_own() {
    let f = fixture().await;
    let mut client = f.client(Some("os:admin")).await;
    let answer =
        client.version(to((), &[("nodes", "n1"), ("nodes", "10.9.9.9")])).await.unwrap().into_inner();
    let metadata: Vec<_> = answer.messages.iter().map(|m| m.metadata.clone().unwrap()).collect();
    assert_eq!((metadata[0].hostname.as_str(), metadata[0].error.as_str()), ("n1", ""));
    assert_eq!(answer.messages[0].version.as_ref().unwrap().tag, "v1.2.3");
    assert!(
        metadata[1].error.contains("forwarding to other nodes is not built yet"),
        "{}",
        metadata[1].error
    );
    let alone = client.version(to((), &[("node", "10.9.9.9")])).await.unwrap_err();
    assert_eq!(alone.code(), Code::Unimplemented);
}

#[tokio::test]
async fn an_error_of_machined_becomes_an_element() {
    let f = fixture().await;
    let mut client = f.client(Some("os:admin")).await;
    let request = || proto::ServiceStopRequest { id: "nobody".into() };
    let answer = client.service_stop(to(request(), &[("nodes", "n1")])).await.unwrap().into_inner();
    let metadata = answer.messages[0].metadata.clone().unwrap();
    assert_eq!(metadata.error, "rpc error: code = NotFound desc = service \"nobody\" not defined");
    assert_eq!(metadata.status.unwrap().code, 5);
    assert_eq!(client.service_stop(to(request(), &[])).await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn every_message_of_a_stream_carries_the_name() {
    let f = fixture().await;
    let mut client = f.client(Some("os:admin")).await;
    let request = proto::LogsRequest { id: "svc".into(), tail_lines: -1, ..Default::default() };
    let mut stream =
        client.logs(to(request, &[("nodes", "n1"), ("nodes", "other")])).await.unwrap().into_inner();
    let first = stream.message().await.unwrap().unwrap();
    assert_eq!((first.bytes.as_slice(), first.metadata.unwrap().hostname.as_str()), (&b"a line\n"[..], "n1"));
    let second = stream.message().await.unwrap().unwrap();
    assert_eq!(second.metadata.unwrap().hostname, "other");
    assert!(stream.message().await.unwrap().is_none());
}

#[tokio::test]
async fn roles_decide_what_a_caller_may_do() {
    let f = fixture().await;
    let mut reader = f.client(Some("os:reader")).await;
    assert!(reader.version(()).await.is_ok());
    let denied: Status = reader.shutdown(proto::ShutdownRequest::default()).await.unwrap_err();
    assert_eq!(denied.code(), Code::PermissionDenied);
    assert!(denied.message().starts_with("not authorized"), "{}", denied.message());
    // A role in a header counts only from a node that may speak for others.
    let forged = to(proto::ShutdownRequest::default(), &[("talos-role", "os:admin")]);
    assert_eq!(reader.shutdown(forged).await.unwrap_err().code(), Code::PermissionDenied);
    let mut nobody = f.client(Some("os:nothing")).await;
    assert_eq!(nobody.version(()).await.unwrap_err().code(), Code::PermissionDenied);
    assert!(
        f.client(None).await.version(()).await.is_ok(),
        "a certificate without any role is an administrator's"
    );
}

#[tokio::test]
async fn a_machined_that_never_answers_is_an_error_after_the_deadline() {
    tokio::time::pause();
    let backend = backend::Backend::new(Path::new("/nonexistent/machine.sock"));
    let body = http_body_util::BodyExt::boxed(http_body_util::BodyExt::map_err(
        http_body_util::Full::new(bytes::Bytes::new()),
        |never: std::convert::Infallible| match never {},
    ));
    let error = backend.call(hyper::Request::new(body)).await.unwrap_err();
    assert!(error.to_string().contains("deadline connect"), "{error}");
}
