//! apid in front of a machined, with real certificates on loopback.

use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;

use api::pki::{Authority, CA_LIFETIME, LEAF_LIFETIME, Leaf, Lifetime, Usage};
use api::proto::machine as proto;
use api::proto::machine::machine_service_client::MachineServiceClient;
use api::tls::Trust;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpSocket, UnixListener};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

use super::*;
use crate::server;

pub(super) type Client = MachineServiceClient<Channel>;

pub(super) struct Fixture {
    _dir: tempfile::TempDir,
    pub(super) authority: Arc<Authority>,
    pub(super) address: SocketAddr,
    pub(super) node: Arc<crate::node::Node>,
    pub(super) server: Server,
    /// Lines of apid's log.
    pub(super) said: Arc<Mutex<Vec<String>>>,
}

/// A certificate for any of the addresses that tests use.
fn leaf(organization: Option<&str>, usage: Usage) -> Leaf {
    Leaf {
        organizations: organization.map(str::to_owned).into_iter().collect(),
        names: vec!["127.0.0.1".into(), "127.0.0.2".into()],
        usage,
        lifetime: Lifetime::from_now(LEAF_LIFETIME),
    }
}

/// A client of this authority.
pub(super) fn client_of(authority: &Authority, role: &str) -> Identity {
    authority.issue(&leaf(Some(role), Usage::Client)).unwrap()
}

pub(super) async fn one_node() -> Fixture {
    fixture().await
}

async fn fixture() -> Fixture {
    let authority = Arc::new(Authority::generate("talos", Lifetime::from_now(CA_LIFETIME)).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    serve(authority, listener, &["127.0.0.1", "10.0.0.5", "n1"], "a line\n", true)
}

/// Two nodes under one CA, on the same port of two loopback addresses.
pub(super) async fn two_nodes() -> (Fixture, Fixture) {
    let authority = Arc::new(Authority::generate("talos", Lifetime::from_now(CA_LIFETIME)).unwrap());
    for _ in 0..100 {
        let first = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = first.local_addr().unwrap().port();
        // Somebody else may have the port there.
        let Ok(second) = TcpListener::bind(("127.0.0.2", port)).await else { continue };
        let first = serve(authority.clone(), first, &["127.0.0.1", "n1"], "first\n", true);
        return (first, serve(authority, second, &["127.0.0.2"], "second\n", false));
    }
    panic!("no port is free on two addresses");
}

/// A node without a config in force, which asks for no certificates.
pub(super) async fn in_maintenance(kind: Maintenance) -> Fixture {
    let authority = Arc::new(Authority::generate("talos", Lifetime::from_now(CA_LIFETIME)).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    serve_as(kind, authority, listener, &["127.0.0.1"], "", false)
}

/// `forwards`: whether the node has a certificate to ask others with.
fn serve(
    authority: Arc<Authority>,
    listener: TcpListener,
    names: &[&str],
    log_text: &str,
    forwards: bool,
) -> Fixture {
    serve_as(Maintenance::No, authority, listener, names, log_text, forwards)
}

fn serve_as(
    maintenance: Maintenance,
    authority: Arc<Authority>,
    listener: TcpListener,
    names: &[&str],
    log_text: &str,
    forwards: bool,
) -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let node = server::tests_node(dir.path().canonicalize().unwrap());
    let mut log = node.runtime.logs.open("svc").unwrap();
    log.append(log_text.as_bytes()).unwrap();
    let socket = dir.path().join("machine.sock");
    tokio::spawn(server::serve_on(node.clone(), UnixListener::bind(&socket).unwrap()));
    let identity = authority.issue(&leaf(None, Usage::Server)).unwrap();
    let speaker = authority.issue(&leaf(Some("os:impersonator"), Usage::Client)).unwrap();
    let forwarding = crate::material::ForwardMaterial {
        certificate: speaker.certificate.clone(),
        key: speaker.key.to_pem(),
    };
    let material = Material {
        maintenance,
        authority: authority.certificate().to_owned(),
        certificate: identity.certificate.clone(),
        key: identity.key.to_pem(),
        names: names.iter().map(ToString::to_string).collect(),
        forwarding: forwards.then_some(forwarding),
        trust: None,
    };
    let address = listener.local_addr().unwrap();
    let said = Arc::new(Mutex::new(Vec::new()));
    let report: Report = {
        let said = said.clone();
        Arc::new(move |line| said.lock().unwrap().push(line.to_owned()))
    };
    let server = Server::with_port(&material, socket.to_str().unwrap(), address.port(), report).unwrap();
    tokio::spawn(server.clone().serve(listener));
    Fixture { _dir: dir, authority, address, node, server, said }
}

impl Fixture {
    pub(super) async fn client(&self, role: Option<&str>) -> MachineServiceClient<Channel> {
        MachineServiceClient::new(self.channel(role).await)
    }

    pub(super) fn identity(&self, role: Option<&str>) -> Identity {
        self.authority.issue(&leaf(role, Usage::Client)).unwrap()
    }

    pub(super) async fn channel(&self, role: Option<&str>) -> Channel {
        self.channel_of(Some(self.identity(role))).await.unwrap()
    }

    /// A connection with this certificate, or with none.
    pub(super) async fn channel_of(
        &self,
        identity: Option<Identity>,
    ) -> Result<Channel, tonic::transport::Error> {
        self.channel_from(None, identity).await
    }

    /// The same, from this address.
    pub(super) async fn channel_from(
        &self,
        source: Option<IpAddr>,
        identity: Option<Identity>,
    ) -> Result<Channel, tonic::transport::Error> {
        let trust = Trust::Authority(self.authority.certificate());
        let config = tls::client(trust, identity.as_ref()).unwrap();
        let address = self.address;
        let connector = tower::service_fn(move |_| {
            let connector = tokio_rustls::TlsConnector::from(config.clone());
            async move {
                let socket = TcpSocket::new_v4()?;
                if let Some(source) = source {
                    socket.bind((source, 0).into())?;
                }
                let stream = socket.connect(address).await?;
                let name = rustls::pki_types::ServerName::from(address.ip());
                connector.connect(name, stream).await.map(TokioIo::new)
            }
        });
        Endpoint::from_static("http://node").connect_with_connector(connector).await
    }
}

pub(super) fn to<T>(message: T, pairs: &[(&'static str, &str)]) -> Request<T> {
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
        client.version(to((), &[("nodes", "n1"), ("nodes", "127.0.0.3")])).await.unwrap().into_inner();
    let metadata: Vec<_> = answer.messages.iter().map(|m| m.metadata.clone().unwrap()).collect();
    assert_eq!((metadata[0].hostname.as_str(), metadata[0].error.as_str()), ("n1", ""));
    assert_eq!(answer.messages[0].version.as_ref().unwrap().tag, "v1.13.9+billet.1.2.3");
    let refused = format!("connect to 127.0.0.3 port {}: ", f.address.port());
    assert!(metadata[1].error.starts_with("rpc error: code = Unavailable desc = "), "{}", metadata[1].error);
    assert!(metadata[1].error.contains(&refused), "{}", metadata[1].error);
    let alone = client.version(to((), &[("node", "127.0.0.3")])).await.unwrap_err();
    assert_eq!(alone.code(), Code::Unavailable);
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
        client.logs(to(request, &[("nodes", "n1"), ("nodes", "127.0.0.3")])).await.unwrap().into_inner();
    let mut seen = [stream.message().await.unwrap().unwrap(), stream.message().await.unwrap().unwrap()];
    seen.sort_by_key(|data| data.metadata.clone().unwrap().hostname);
    let hosts = seen.each_ref().map(|data| data.metadata.clone().unwrap().hostname);
    assert_eq!(hosts, ["127.0.0.3", "n1"]);
    assert_eq!((seen[0].bytes.as_slice(), seen[1].bytes.as_slice()), (&b""[..], &b"a line\n"[..]));
    assert!(!seen[0].metadata.clone().unwrap().error.is_empty());
    assert!(stream.message().await.unwrap().is_none());
}

#[tokio::test]
async fn the_log_says_which_unknown_roles_a_certificate_has() {
    let f = fixture().await;
    let denied = f.client(Some("os:nobody")).await.version(()).await.unwrap_err();
    assert!(
        denied.message().ends_with("the certificate has only unknown roles: [\"os:nobody\"]"),
        "{denied}"
    );
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

#[tokio::test]
async fn clients_of_a_further_authority_are_let_in_and_of_a_third_are_not() {
    let first = fixture().await;
    let make = || Authority::generate("talos", Lifetime::from_now(CA_LIFETIME)).unwrap();
    let (further, third) = (make(), make());
    let identity = first.authority.issue(&leaf(None, Usage::Server)).unwrap();
    let material = Material {
        maintenance: Default::default(),
        authority: format!("{}\n{}", first.authority.certificate(), further.certificate()),
        certificate: identity.certificate.clone(),
        key: identity.key.to_pem(),
        names: vec!["127.0.0.1".to_owned()],
        forwarding: None,
        trust: None,
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let socket = first._dir.path().join("machine.sock");
    let silent: Report = Arc::new(|_| ());
    let server = Server::with_port(&material, socket.to_str().unwrap(), address.port(), silent).unwrap();
    tokio::spawn(server.serve(listener));
    let both = Fixture { address, ..first };
    let ask = async |authority: &Authority, role| {
        let identity = authority.issue(&leaf(role, Usage::Client)).unwrap();
        let channel = both.channel_of(Some(identity)).await.ok()?;
        Some(MachineServiceClient::new(channel).version(()).await.map(drop))
    };
    const ADMIN: Option<&str> = Some("os:admin");
    ask(&both.authority, ADMIN).await.unwrap().unwrap();
    ask(&further, ADMIN).await.unwrap().unwrap();
    assert!(ask(&third, ADMIN).await.is_none_or(|answer| answer.is_err()));
    // Without a role the first generation's administrators are meant, whom machine.ca signs.
    ask(&both.authority, None).await.unwrap().unwrap();
    let status = ask(&further, None).await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    assert!(status.message().ends_with("the certificate has no role"), "{status}");
}

/// Files that a client asked for and does not read, as many as it may have: other clients are answered.
#[tokio::test]
async fn streams_that_nobody_reads_hold_up_nobody() {
    /// For what takes milliseconds, on a machine that has much else to do.
    const SOON: std::time::Duration = std::time::Duration::from_secs(10);
    const LARGE_BYTES: u64 = 32 << 20;
    let f = fixture().await;
    let root = f._dir.path();
    // More than all windows on the way take in.
    std::fs::File::create(root.join("large")).unwrap().set_len(LARGE_BYTES).unwrap();
    let read = || proto::ReadRequest { path: "/large".into() };
    let mut hostile = f.client(Some("os:admin")).await;
    let mut unread = Vec::new();
    for _ in 0..8 {
        unread.push(hostile.read(read()).await.unwrap().into_inner());
    }
    // Its own connection is full: a refusal has no data, so it comes all the same.
    let status = hostile.read(read()).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    let mut other = f.client(Some("os:reader")).await;
    tokio::time::timeout(SOON, other.version(())).await.expect("another client's call").unwrap();
    tokio::time::timeout(SOON, other.hostname(())).await.expect("and a second").unwrap();
    // Who hangs up gives its places back.
    drop(unread);
    let whole = async {
        loop {
            match other_read(&f, read()).await {
                Ok(bytes) => return bytes,
                Err(status) => assert_eq!(status.code(), Code::ResourceExhausted, "{status}"),
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    assert_eq!(tokio::time::timeout(SOON, whole).await.expect("a place"), LARGE_BYTES);
}

async fn other_read(f: &Fixture, request: proto::ReadRequest) -> Result<u64, Status> {
    let mut stream = f.client(Some("os:admin")).await.read(request).await?.into_inner();
    let mut bytes = 0;
    while let Some(data) = stream.message().await? {
        bytes += u64::try_from(data.bytes.len()).unwrap();
    }
    Ok(bytes)
}
