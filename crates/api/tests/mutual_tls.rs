//! A server and clients on loopback: who is let in, who is not, and what each is told.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use api::{
    client::{Client, ConnectError, to_nodes},
    pki::{self, Authority, CA_LIFETIME, CertificateFacts, Identity, LEAF_LIFETIME, Leaf, Lifetime, Usage},
    proto::{
        common,
        cosi::resource as cosi,
        resource::{self as old, resource_service_server as service},
    },
    roles::RoleSet,
    tls::{self, Identities, Refusal, Trust},
};
use rustls::pki_types::PrivatePkcs8KeyDer;
use std::{
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};
use tokio::{net::TcpListener, time::timeout};
use tokio_stream::Empty;
use tonic::{Code, Request, Response, Status, transport::Server};

const DEADLINE: Duration = Duration::from_secs(30);

/// Answers `Get` with the role of the caller, refusing those that may not.
struct WhoAmI;

#[tonic::async_trait]
impl service::ResourceService for WhoAmI {
    type ListStream = Empty<Result<old::ListResponse, Status>>;
    type WatchStream = Empty<Result<old::WatchResponse, Status>>;

    async fn get(&self, request: Request<old::GetRequest>) -> Result<Response<old::GetResponse>, Status> {
        let certs = request.peer_certs().ok_or_else(|| Status::internal("no certificate came through"))?;
        let facts = CertificateFacts::from_der("the client certificate", &certs[0])
            .map_err(|e| Status::internal(e.to_string()))?;
        let roles = RoleSet::of_certificate(&facts, true);
        roles
            .authorize(&request.get_ref().id, api::roles::Mode::Configured)
            .map_err(|e| Status::permission_denied(e.to_string()))?;
        let nodes: Vec<_> =
            request.metadata().get_all("nodes").iter().filter_map(|n| n.to_str().ok()).collect();
        let metadata =
            common::Metadata { hostname: format!("{roles} {}", nodes.join(",")), ..Default::default() };
        let get = old::Get { metadata: Some(metadata), ..Default::default() };
        Ok(Response::new(old::GetResponse { messages: vec![get] }))
    }

    async fn list(&self, _: Request<old::ListRequest>) -> Result<Response<Self::ListStream>, Status> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn watch(&self, _: Request<old::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("not in this test"))
    }
}

struct Rig {
    authority: Authority,
    endpoint: String,
    identities: Arc<Identities>,
    refusals: Arc<Mutex<Vec<Refusal>>>,
}

impl Rig {
    async fn start() -> Self {
        let authority = Authority::generate("talos", Lifetime::from_now(CA_LIFETIME)).unwrap();
        let identities =
            Identities::new(&authority.issue(&leaf(None, Usage::Server, &["127.0.0.1"])).unwrap()).unwrap();
        let config = tls::server(authority.certificate(), Arc::clone(&identities)).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = listener.local_addr().unwrap().to_string();
        let refusals = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&refusals);
        let incoming = tls::accept(listener, config, move |refusal| log.lock().unwrap().push(refusal));
        let router = Server::builder().add_service(service::ResourceServiceServer::new(WhoAmI));
        tokio::spawn(router.serve_with_incoming(incoming));
        Self { authority, endpoint, identities, refusals }
    }

    async fn connect(&self, identity: Option<&Identity>) -> Result<Client, ConnectError> {
        let config = tls::client(Trust::Authority(self.authority.certificate()), identity).unwrap();
        let nodes = vec!["n1".to_owned(), "n2".to_owned()];
        timeout(DEADLINE, Client::connect_with(config, std::slice::from_ref(&self.endpoint), nodes))
            .await
            .unwrap()
    }

    /// What the server says to `identity` about the call `path`, or how the client explains the failure.
    async fn call(&self, identity: Option<&Identity>, path: &str) -> Result<String, (Code, String)> {
        let client = self.connect(identity).await.map_err(|e| (Code::Unavailable, e.to_string()))?;
        let request = to_nodes(old::GetRequest { id: path.into(), ..Default::default() }, client.nodes());
        let answer = timeout(DEADLINE, client.resources().get(request)).await.unwrap();
        let answer = answer.map_err(|status| (status.code(), client.explain(&status)))?;
        Ok(answer.into_inner().messages.remove(0).metadata.unwrap().hostname)
    }

    async fn refused(&self) -> String {
        timeout(DEADLINE, async {
            loop {
                if let Some(refusal) = self.refusals.lock().unwrap().pop() {
                    return refusal.reason;
                }
                tokio::task::yield_now().await;
            }
        })
        .await
        .expect("the server reports the refusal")
    }

    fn client(&self, role: Option<&str>) -> Identity {
        self.authority.issue(&leaf(role, Usage::Client, &[])).unwrap()
    }
}

fn leaf(organization: Option<&str>, usage: Usage, names: &[&str]) -> Leaf {
    Leaf {
        organizations: organization.map(str::to_owned).into_iter().collect(),
        names: names.iter().map(ToString::to_string).collect(),
        usage,
        lifetime: Lifetime::from_now(LEAF_LIFETIME),
    }
}

const VERSION: &str = "/machine.MachineService/Version";
const RESET: &str = "/machine.MachineService/Reset";

#[tokio::test]
async fn roles_decide_after_the_certificate_did() {
    let rig = Rig::start().await;
    let (admin, reader) = (rig.client(Some("os:admin")), rig.client(Some("os:reader")));
    assert_eq!(rig.call(Some(&admin), RESET).await.unwrap(), "os:admin n1,n2");
    assert_eq!(rig.call(Some(&reader), VERSION).await.unwrap(), "os:reader n1,n2");
    let (code, text) = rig.call(Some(&reader), RESET).await.unwrap_err();
    assert_eq!(code, Code::PermissionDenied);
    assert!(text.contains("not authorized") && text.contains("use an os:admin talosconfig"), "{text}");
}

#[tokio::test]
async fn a_first_generation_certificate_without_role_and_with_both_usages_is_admin() {
    let rig = Rig::start().await;
    let identity = rig.authority.issue(&leaf(None, Usage::Both, &["127.0.0.1"])).unwrap();
    assert_eq!(rig.call(Some(&identity), RESET).await.unwrap(), "os:admin n1,n2");
}

#[tokio::test]
async fn without_a_certificate() {
    let rig = Rig::start().await;
    let (_, text) = rig.call(None, VERSION).await.unwrap_err();
    assert!(text.contains("it asks for a client certificate"), "{text}");
    assert_eq!(rig.refused().await, "no certificate was shown");
}

#[tokio::test]
async fn with_an_expired_certificate() {
    let rig = Rig::start().await;
    let now = SystemTime::now();
    let mut expired = leaf(Some("os:admin"), Usage::Client, &[]);
    expired.lifetime =
        Lifetime { not_before: now - Duration::from_secs(7200), not_after: now - Duration::from_secs(60) };
    let identity = rig.authority.issue(&expired).unwrap();
    let (_, text) = rig.call(Some(&identity), VERSION).await.unwrap_err();
    assert!(text.contains("our certificate has expired"), "{text}");
    let reason = rig.refused().await;
    assert!(reason.starts_with("the certificate expired 6"), "{reason}");
}

#[tokio::test]
async fn with_a_certificate_of_another_ca() {
    let rig = Rig::start().await;
    let other = Authority::generate("talos", Lifetime::from_now(CA_LIFETIME)).unwrap();
    let stranger = other.issue(&leaf(Some("os:admin"), Usage::Client, &[])).unwrap();
    let (_, text) = rig.call(Some(&stranger), VERSION).await.unwrap_err();
    // The alert `unknown_ca`, though both CAs have the same name.
    let expected = "it does not know the CA that signed our certificate";
    assert!(text.contains(expected) && text.contains("--context"), "{text}");
    let reason = rig.refused().await;
    assert!(reason.starts_with("the certificate is signed by another CA"), "{reason}");
}

#[tokio::test]
async fn with_a_certificate_that_is_for_servers_only() {
    let rig = Rig::start().await;
    let node = rig.authority.issue(&leaf(None, Usage::Server, &["10.0.0.1"])).unwrap();
    assert!(rig.call(Some(&node), VERSION).await.is_err());
    assert_eq!(rig.refused().await, "the certificate is not made for this end of a connection");
}

#[tokio::test]
async fn a_server_of_another_ca_or_for_another_name_is_not_believed() {
    let rig = Rig::start().await;
    let other = Authority::generate("talos", Lifetime::from_now(CA_LIFETIME)).unwrap();
    let config = tls::client(Trust::Authority(other.certificate()), Some(&rig.client(None))).unwrap();
    let error = Client::connect_with(config, std::slice::from_ref(&rig.endpoint), vec![])
        .await
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains(&rig.endpoint) && error.contains("certificate"), "{error}");

    let named = rig.authority.issue(&leaf(None, Usage::Server, &["10.9.9.9"])).unwrap();
    rig.identities.replace(&named).unwrap();
    let error = rig.connect(Some(&rig.client(None))).await.err().unwrap().to_string();
    assert!(error.contains("not made for 127.0.0.1; it names"), "{error}");
}

#[tokio::test]
async fn a_fingerprint_is_enough_and_a_wrong_one_is_named() {
    let rig = Rig::start().await;
    let server = rig.authority.issue(&leaf(None, Usage::Server, &["10.9.9.9"])).unwrap();
    rig.identities.replace(&server).unwrap();
    let right = CertificateFacts::from_pem("it", &server.certificate).unwrap().fingerprint;
    let admin = rig.client(Some("os:admin"));
    let connect = async |known: &str| {
        let config = tls::client(Trust::Fingerprints(&[known.to_owned()]), Some(&admin)).unwrap();
        Client::connect_with(config, std::slice::from_ref(&rig.endpoint), vec![]).await
    };
    assert!(connect(&right).await.is_ok());
    let error = connect("AAAA").await.err().unwrap().to_string();
    assert!(error.contains(&right), "{error}");
}

#[tokio::test]
async fn a_silent_peer_holds_up_nobody() {
    let rig = Rig::start().await;
    let _silent = tokio::net::TcpStream::connect(&rig.endpoint).await.unwrap();
    assert!(rig.call(Some(&rig.client(None)), VERSION).await.is_ok());
}

#[tokio::test]
async fn unreachable_endpoints_are_all_named_and_the_first_that_answers_is_taken() {
    let rig = Rig::start().await;
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = closed.local_addr().unwrap().to_string();
    drop(closed);
    let config =
        || tls::client(Trust::Authority(rig.authority.certificate()), Some(&rig.client(None))).unwrap();
    let error = Client::connect_with(config(), std::slice::from_ref(&nobody), vec![])
        .await
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains(&nobody) && error.contains("refused"), "{error}");
    let client = Client::connect_with(config(), &[nobody, rig.endpoint.clone()], vec![]).await.unwrap();
    assert_eq!(client.endpoint().to_string(), rig.endpoint);
    let status = client.state().get(cosi::GetRequest::default()).await.unwrap_err();
    assert!(client.explain(&status).contains("does not know this call"));
}

/// The first client generation offers the X25519 group only and, in TLS 1.2, one suite.
#[tokio::test]
async fn a_first_generation_client_shakes_hands_in_both_versions_and_gets_no_ticket() {
    let rig = Rig::start().await;
    let mut provider = rustls::crypto::ring::default_provider();
    provider.kx_groups = vec![rustls::crypto::ring::kx_group::X25519];
    provider.cipher_suites.retain(|suite| {
        suite.tls13().is_some()
            || suite.suite() == rustls::CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
    });
    let identity = rig.client(None);
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(pki::certificates("ca", rig.authority.certificate()).unwrap().remove(0)).unwrap();
        let key = pki::blocks(identity.key.to_pem().expose_secret()).unwrap().remove(0).der;
        let mut config = rustls::ClientConfig::builder_with_provider(Arc::new(provider.clone()))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(
                pki::certificates("client", &identity.certificate).unwrap(),
                PrivatePkcs8KeyDer::from(key.to_vec()).into(),
            )
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let client = Client::connect_with(Arc::new(config), std::slice::from_ref(&rig.endpoint), vec![])
            .await
            .unwrap();
        let request = to_nodes(old::GetRequest { id: RESET.into(), ..Default::default() }, &[]);
        client.resources().get(request).await.unwrap();
    }
    let server = tls::server(rig.authority.certificate(), Arc::clone(&rig.identities)).unwrap();
    assert_eq!(server.send_tls13_tickets, 0);
    assert!(!server.session_storage.can_cache() && !server.ticketer.enabled());
}
