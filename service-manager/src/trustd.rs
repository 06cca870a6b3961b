//! trustd: signs the certificates of joining nodes. TCP 50001, server-only TLS, a shared token.
//!
//! Owns: the rule of what is signed: a server certificate for 24 hours with the names of the request, without any
//! Organization, whatever the request asks for. The caller's own address is among the names; none is a control plane's, as far
//! as machined knows them (`identity`).
//! Does not: serve files, as its forerunner did.
//! Fails by: `Unauthenticated` for a wrong token, with one line that names the peer, as far as [`LINES`] go.
//! Source: docs/users/pki.md, crates/api/proto/security/security.proto.

// Numbers come from requests: a sum that overflows would end the program for everyone.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use api::pki::{Authority, Identity, LEAF_LIFETIME, Leaf, Lifetime, Usage, requested_names};
use api::proto::securityapi::security_service_server::{SecurityService, SecurityServiceServer};
use api::proto::securityapi::{CertificateRequest, CertificateResponse};
use api::tls::{self, Identities};
use futures_util::StreamExt as _;
use runtime::request::{Report, Requests};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tonic::codegen::Service as _;
use tonic::transport::server::TcpConnectInfo;
use tonic::{Request, Response, Status};
use tower::Layer as _;

use crate::connections::{Lines, Most, Places, Rate, Rates, http2};
use crate::material::{Material, Source, TrustMaterial, first_certificate};
use crate::programs::{LISTENER_FD, Program};

/// trustd's port.
pub const PORT: u16 = 50001;
/// trustd's user and group.
pub const USER: u32 = 51;

/// For all that one connection is used for.
const CONNECTION_AGE: Duration = Duration::from_secs(30);
/// Connections behind their handshake. A worker makes one, for one call: the oldest one ends for a newer one.
const CONNECTIONS: Most = Most { of_one: 16, of_all: 128 };
/// Lines of the log about refused callers.
const LINES: Rates =
    Rates { of_one: Rate { burst: 16, per_second: 1 }, of_all: Rate { burst: 64, per_second: 4 } };
/// HTTP/2 of a connection.
const LIMITS: http2::Limits =
    http2::Limits { streams: 4, stream_window: 64 << 10, connection_window: 64 << 10 };
/// Bytes of a request: twice what the most and longest names take.
const MOST_REQUEST_BYTES: usize = 64 << 10;
/// Addresses and names of one node.
const MOST_NAMES: usize = 64;
/// Bytes of a name in the DNS (RFC 1035).
const MOST_NAME_BYTES: usize = 253;

struct Signer {
    authority: Authority,
    /// PEM of it and of the further CAs that nodes accept.
    accepted: String,
    trust: TrustMaterial,
    /// Names of this control plane and of the others, and those that they share.
    reserved: BTreeSet<String>,
}

/// The service; the signer changes with the config.
#[derive(Clone)]
pub(crate) struct Trust {
    signer: Arc<RwLock<Signer>>,
    connections: Places<IpAddr>,
    lines: Lines<IpAddr>,
}

impl Trust {
    /// A service that signs with this material.
    pub(crate) fn new(material: &Material) -> Result<Self, String> {
        let signer = Arc::new(RwLock::new(signer(material)?));
        let lines = Lines::new(LINES, Arc::new(|line| eprintln!("trustd: {line}")));
        Ok(Self { signer, connections: Places::new(CONNECTIONS), lines })
    }

    fn replace(&self, material: &Material) -> Result<(), String> {
        *self.signer.write().unwrap_or_else(std::sync::PoisonError::into_inner) = signer(material)?;
        Ok(())
    }

    fn note_refusal(&self, peer: Option<SocketAddr>, status: &Status) {
        let address = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| tls::network(peer.ip()));
        self.lines.tell(
            &address,
            || address.to_string(),
            || {
                let peer = peer.map_or_else(|| "an unknown peer".to_owned(), |peer| peer.to_string());
                format!("refused {peer}: {}", status.message())
            },
        );
    }

    fn sign(&self, token: &str, request: &str, peer: Option<IpAddr>) -> Result<CertificateResponse, Status> {
        #[cfg(test)]
        runtime::request::testing::fault("trustd", request);
        let signer = self.signer.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        if token.is_empty() || !signer.trust.token.matches(token) {
            return Err(Status::unauthenticated("Unauthenticated"));
        }
        let names = requested_names(request).map_err(|e| Status::invalid_argument(e.to_string()))?;
        signer.check(&names, peer)?;
        let lifetime = Lifetime::from_now(LEAF_LIFETIME);
        let leaf = Leaf { organizations: vec![], names: Vec::new(), usage: Usage::Server, lifetime };
        let signed = signer.authority.sign_request(request, &leaf);
        let crt = signed.map_err(|e| Status::invalid_argument(e.to_string()))?;
        Ok(CertificateResponse { ca: signer.accepted.as_bytes().to_vec(), crt: crt.into_bytes() })
    }
}

impl Signer {
    /// Whether a node at this address may have these names. Who has the token is a node of the cluster, and still no other.
    fn check(&self, names: &[String], peer: Option<IpAddr>) -> Result<(), Status> {
        if names.is_empty() || names.len() > MOST_NAMES {
            return Err(Status::invalid_argument(format!(
                "the request has {} names: 1 to {MOST_NAMES} are signed",
                names.len()
            )));
        }
        for name in names {
            if name.len() > MOST_NAME_BYTES {
                let length = name.len();
                return Err(Status::invalid_argument(format!(
                    "the request has a name of {length} bytes: {MOST_NAME_BYTES} are the most"
                )));
            }
            if name.contains('*') {
                return Err(Status::permission_denied(format!(
                    "{name} stands for several nodes: not signed"
                )));
            }
            if self.reserved.contains(&normal(name)) {
                return Err(Status::permission_denied(format!("{name} is a control plane's: not signed")));
            }
        }
        match peer.map(|peer| peer.to_canonical().to_string()) {
            Some(peer) if names.contains(&peer) => Ok(()),
            Some(peer) => Err(Status::permission_denied(format!(
                "the request comes from {peer}, which is not among its names: not signed"
            ))),
            None => Err(Status::permission_denied("the request comes from no address: not signed")),
        }
    }
}

/// A name as names are compared.
fn normal(name: &str) -> String {
    let address = name.parse::<IpAddr>().map(|address| address.to_canonical().to_string());
    address.unwrap_or_else(|_| name.trim_end_matches('.').to_ascii_lowercase())
}

/// What every node calls itself.
fn is_of_every_node(name: &str) -> bool {
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn signer(material: &Material) -> Result<Signer, String> {
    let trust = material.trust.clone().ok_or("the material has no signing key")?;
    let own = first_certificate(&material.authority);
    let authority = Authority::from_pem(own, &trust.authority_key).map_err(|e| e.to_string())?;
    let names = material.names.iter().chain(&trust.reserved).map(|name| normal(name));
    let reserved = names.filter(|name| !is_of_every_node(name)).collect();
    Ok(Signer { authority, accepted: material.authority.clone(), trust, reserved })
}

#[tonic::async_trait]
impl SecurityService for Trust {
    async fn certificate(
        &self,
        request: Request<CertificateRequest>,
    ) -> Result<Response<CertificateResponse>, Status> {
        let peer = request.remote_addr();
        let token = request
            .metadata()
            .get("token")
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
            .to_owned();
        let text = String::from_utf8(request.into_inner().csr)
            .map_err(|_| Status::invalid_argument("csr is not PEM"))?;
        let address = peer.map(|peer| peer.ip());
        self.sign(&token, &text, address)
            .map(Response::new)
            .inspect_err(|status| self.note_refusal(peer, status))
    }

    async fn read_file(
        &self,
        _request: Request<api::proto::securityapi::ReadFileRequest>,
    ) -> Result<Response<api::proto::securityapi::ReadFileResponse>, Status> {
        Err(Status::unimplemented("files are not served by trustd"))
    }

    async fn write_file(
        &self,
        _request: Request<api::proto::securityapi::WriteFileRequest>,
    ) -> Result<Response<api::proto::securityapi::WriteFileResponse>, Status> {
        Err(Status::unimplemented("files are not served by trustd"))
    }
}

/// Runs trustd.
pub async fn run() -> Result<(), String> {
    let socket =
        sys::process::inherited(LISTENER_FD).map_err(|e| format!("take the listening socket: {e}"))?;
    let mut source = Source::connect(Program::Trustd.socket()).await;
    let material = source.next().await.map_err(|e| format!("receive the certificate: {e}"))?;
    let identity = |material: &Material| {
        Identity::from_pem("trustd's certificate", &material.certificate, &material.key)
            .map_err(|e| e.to_string())
    };
    let identities = Identities::new(&identity(&material)?).map_err(|e| e.to_string())?;
    let trust = Trust::new(&material)?;
    let listener = std::net::TcpListener::from(socket);
    listener.set_nonblocking(true).map_err(|e| format!("listen: {e}"))?;
    let listener = TcpListener::from_std(listener).map_err(|e| format!("listen: {e}"))?;
    let serving = tokio::spawn(serve(listener, identities.clone(), trust.clone()));
    let renewing = async {
        loop {
            // Errors mean that machined is gone for a moment: it is asked again below.
            let _ = source.acknowledge().await;
            match source.next().await {
                Ok(material) => {
                    identities.replace(&identity(&material)?).map_err(|e| e.to_string())?;
                    trust.replace(&material)?;
                }
                Err(_) => {
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                    source = Source::connect(Program::Trustd.socket()).await;
                    if let Ok(material) = source.next().await {
                        identities.replace(&identity(&material)?).map_err(|e| e.to_string())?;
                        trust.replace(&material)?;
                    }
                }
            }
        }
    };
    tokio::select! {
        result = renewing => result,
        ended = serving => ended.map_err(|e| e.to_string())?,
    }
}

/// Serves a listener.
pub(crate) async fn serve(
    listener: TcpListener,
    identities: Arc<Identities>,
    trust: Trust,
) -> Result<(), String> {
    let config = tls::server_without_clients(identities).map_err(|e| e.to_string())?;
    let lines = trust.lines.clone();
    let mut incoming = tls::accept(listener, config, move |refusal| {
        let address = tls::network(refusal.peer.ip());
        lines.tell(&address, || address.to_string(), || refusal.to_string());
    });
    let report: Report = Arc::new(|line| eprintln!("trustd: {line}"));
    let service = SecurityServiceServer::new(trust.clone()).max_decoding_message_size(MOST_REQUEST_BYTES);
    let service = Requests(report).layer(service);
    while let Some(accepted) = incoming.next().await {
        let Ok(stream) = accepted else { continue };
        let Ok(peer) = stream.get_ref().0.peer_addr() else { continue };
        let (held, mut ended) = trust.connections.take(&tls::network(peer.ip()));
        let service = service.clone();
        let serving = http2::serve(stream, LIMITS, move |mut request| {
            request.extensions_mut().insert(TcpConnectInfo { local_addr: None, remote_addr: Some(peer) });
            let mut service = service.clone();
            async move { service.call(request).await.unwrap_or_else(|never| match never {}) }
        });
        tokio::spawn(async move {
            let _held = held;
            tokio::select! {
                _ = timeout(CONNECTION_AGE, serving) => {}
                // Its place was given to a newer connection.
                _ = &mut ended => {}
            }
        });
    }
    Err("the accept loop ended".to_owned())
}

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod tests {
    use api::pki::{CA_LIFETIME, CertificateFacts, PrivateKey, certificate_request};
    use config::Secret;

    use super::*;

    const WORKER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 7));

    /// The address that the material's certificate names.
    pub(super) const MATERIAL_NAME: &str = "127.0.0.1";

    pub(super) fn material() -> Material {
        let authority = Authority::generate("talos", Lifetime::from_now(CA_LIFETIME)).unwrap();
        let leaf = Leaf {
            organizations: vec![],
            names: vec!["127.0.0.1".into()],
            usage: Usage::Server,
            lifetime: Lifetime::from_now(LEAF_LIFETIME),
        };
        let identity = authority.issue(&leaf).unwrap();
        Material {
            maintenance: Default::default(),
            authority: authority.certificate().to_owned(),
            certificate: identity.certificate.clone(),
            key: identity.key.to_pem(),
            names: ["10.0.0.1", "127.0.0.1", "::1", "cluster.example", "control-1"]
                .map(str::to_owned)
                .to_vec(),
            forwarding: None,
            trust: Some(TrustMaterial {
                authority_key: authority.key(),
                token: Secret::new("abc.def"),
                reserved: vec!["10.0.0.100".into()],
            }),
        }
    }

    #[test]
    fn a_request_is_signed_without_its_organization() {
        let trust = Trust::new(&material()).unwrap();
        let key = PrivateKey::generate().unwrap();
        let request = certificate_request(&key, &["10.0.0.7".into(), "n7".into()]).unwrap();
        let answer = trust.sign("abc.def", &request, Some(WORKER)).unwrap();
        let facts = CertificateFacts::from_pem("it", std::str::from_utf8(&answer.crt).unwrap()).unwrap();
        assert!(facts.organizations.is_empty() && !facts.is_ca);
    }

    /// The next one on the same connection is answered.
    #[tokio::test]
    async fn a_panic_in_a_request_is_its_answer() {
        use api::proto::securityapi::security_service_client::SecurityServiceClient;
        let material = material();
        let identity = Identity::from_pem("it", &material.certificate, &material.key).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, Identities::new(&identity).unwrap(), Trust::new(&material).unwrap()));
        let config = tls::client(tls::Trust::Authority(&material.authority), None).unwrap();
        let connector = tower::service_fn(move |_| {
            let connector = tokio_rustls::TlsConnector::from(config.clone());
            async move {
                let stream = tokio::net::TcpStream::connect(address).await?;
                let name = rustls::pki_types::ServerName::from(address.ip());
                connector.connect(name, stream).await.map(hyper_util::rt::TokioIo::new)
            }
        });
        let endpoint = tonic::transport::Endpoint::from_static("http://node");
        let mut client =
            SecurityServiceClient::new(endpoint.connect_with_connector(connector).await.unwrap());
        let request = |csr: &str| CertificateRequest { csr: csr.as_bytes().to_vec() };
        let status = client.certificate(request("panic-in-trustd")).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::Internal);
        let status = client.certificate(request("")).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::Unauthenticated);
    }

    #[test]
    fn a_wrong_token_signs_nothing() {
        let trust = Trust::new(&material()).unwrap();
        let request = certificate_request(&PrivateKey::generate().unwrap(), &["n7".into()]).unwrap();
        for token in ["", "abc", "abc.deg"] {
            assert_eq!(trust.sign(token, &request, Some(WORKER)).unwrap_err().message(), "Unauthenticated");
        }
        assert_eq!(
            trust.sign("abc.def", "garbage", Some(WORKER)).unwrap_err().code(),
            tonic::Code::InvalidArgument
        );
    }

    #[tokio::test]
    async fn a_flood_of_wrong_tokens_is_no_flood_of_lines() {
        let mut trust = Trust::new(&material()).unwrap();
        let written = Arc::new(std::sync::Mutex::new(Vec::new()));
        let to = written.clone();
        trust.lines = Lines::new(LINES, Arc::new(move |line| to.lock().unwrap().push(line.to_owned())));
        let began = std::time::Instant::now();
        for _ in 0..500 {
            trust.certificate(Request::new(CertificateRequest::default())).await.unwrap_err();
        }
        let most = 17 + usize::try_from(began.elapsed().as_secs()).unwrap();
        let written = written.lock().unwrap();
        assert!((1..=most).contains(&written.len()), "{} of {most}", written.len());
        assert_eq!(written[0], "refused an unknown peer: Unauthenticated");
    }

    #[tokio::test]
    async fn a_request_at_its_extremes_is_answered() {
        use prost::Message;
        let trust = Trust::new(&material()).unwrap();
        let mut answered = 0;
        for case in crate::apid::Schema::of_the_api().cases(".securityapi.CertificateRequest", &[]) {
            let request = CertificateRequest::decode(case.bytes.as_slice()).unwrap();
            let mut request = Request::new(request);
            request.metadata_mut().insert("token", "abc.def".parse().unwrap());
            let status = trust.certificate(request).await.unwrap_err();
            assert_eq!(status.code(), tonic::Code::InvalidArgument, "{}: {status}", case.name);
            answered += 1;
        }
        assert!(answered > 20, "{answered}");
    }

    #[test]
    fn names_of_others_are_not_signed() {
        let mut material = material();
        let store = runtime::store::Store::new();
        let nodes = [
            ("control-2", "controlplane", ["10.0.0.2", "fd00::2"]),
            ("n7", "worker", ["10.0.0.7", "fd00::7"]),
        ];
        crate::members::put(&store, &nodes);
        material.trust.as_mut().unwrap().reserved.extend(crate::members::control_plane_names(&store));
        let trust = Trust::new(&material).unwrap();
        let key = PrivateKey::generate().unwrap();
        let sign = |names: &[String], peer: &str| {
            let request = certificate_request(&key, names).unwrap();
            trust.sign("abc.def", &request, peer.parse().ok()).map(drop)
        };
        let own = |more: &[&str]| {
            let own = ["10.0.0.7", "127.0.0.1", "::1", "n7"];
            own.iter().chain(more).map(ToString::to_string).collect::<Vec<_>>()
        };
        sign(&own(&["fd00::7"]), "10.0.0.7").unwrap();
        sign(&own(&["fd00::7"]), "fd00::7").unwrap();
        sign(&own(&[]), "::ffff:10.0.0.7").unwrap();
        let of_this_one = ["10.0.0.1", "control-1", "Cluster.Example", "10.0.0.100", "::ffff:10.0.0.1"];
        let of_another = ["10.0.0.2", "::ffff:10.0.0.2", "fd00:0::2", "Control-2"];
        for name in ["*", "*.example"].into_iter().chain(of_this_one).chain(of_another) {
            let status = sign(&own(&[name]), "10.0.0.7").unwrap_err();
            assert_eq!(status.code(), tonic::Code::PermissionDenied, "{name}: {}", status.message());
        }
        let status = sign(&own(&[]), "10.0.0.8").unwrap_err();
        assert!(status.message().starts_with("the request comes from 10.0.0.8, which is not"), "{status}");
        assert!(sign(&own(&[]), "").is_err());
        let many: Vec<String> = (0..61).map(|number| format!("n{number}.example")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(sign(&own(&many), "10.0.0.7").unwrap_err().code(), tonic::Code::InvalidArgument);
        sign(&own(&many[1..]), "10.0.0.7").unwrap();
        let long = vec!["a".repeat(60); 5].join(".");
        assert_eq!(sign(&own(&[&long]), "10.0.0.7").unwrap_err().code(), tonic::Code::InvalidArgument);
        assert_eq!(sign(&[], "10.0.0.7").unwrap_err().code(), tonic::Code::InvalidArgument);
    }
}
