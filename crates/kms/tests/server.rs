//! Node and server over real sockets: what works, and every way in which a server can fail.
#![cfg(feature = "server")]
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use kms::proto::kms_service_server::{KmsService, KmsServiceServer};
use kms::proto::{Request as Question, Response as Answer};
use kms::server::{KEY_BYTES, Server};
use kms::{Client, Endpoint, Error, Trust};
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Identity, ServerTlsConfig};
use tonic::{Request, Response, Status};

const NODE: &str = "bc94b891-0df9-47d8-a7d3-c7c199d66b0e";
const KEY: [u8; KEY_BYTES] = [7; KEY_BYTES];

async fn listener() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

async fn started<S: KmsService>(service: KmsServiceServer<S>, tls: Option<ServerTlsConfig>) -> u16 {
    let (listener, port) = listener().await;
    let mut builder = tonic::transport::Server::builder();
    if let Some(tls) = tls {
        builder = builder.tls_config(tls).unwrap();
    }
    tokio::spawn(builder.add_service(service).serve_with_incoming(TcpIncoming::from(listener)));
    port
}

fn client(address: &str, node: &str) -> Client {
    let trust = Trust::File("/nonexistent".into());
    Client::new(Endpoint::parse(address).unwrap(), node, trust).within(Duration::from_secs(2))
}

#[tokio::test]
async fn a_key_is_sealed_for_one_node_by_one_server() {
    let port = started(Server::new(&[1; KEY_BYTES]).service(), None).await;
    let address = format!("grpc://127.0.0.1:{port}");
    let own = client(&address, NODE);
    let sealed = own.seal(&KEY).await.unwrap();
    assert!(!sealed.windows(4).any(|part| part == &KEY[..4]));
    assert_ne!(own.seal(&KEY).await.unwrap(), sealed, "each has a nonce of its own");
    assert_eq!(*own.unseal(&sealed).await.unwrap(), KEY);
    let other = client(&address, "4c4c4544-0039-3510-8059-b7c04f333231");
    let error = other.unseal(&sealed).await.unwrap_err().to_string();
    assert_eq!(error, format!("{address} refuses: it was not sealed here for this node (PermissionDenied)"));
    let port = started(Server::new(&[2; KEY_BYTES]).service(), None).await;
    let elsewhere = client(&format!("127.0.0.1:{port}"), NODE);
    assert!(matches!(elsewhere.unseal(&sealed).await, Err(Error::Refused { .. })));
    for wrong in [&sealed[1..], b"", &[0; 100]] {
        let error = own.unseal(wrong).await.unwrap_err().to_string();
        assert!(error.contains("a sealed key has 60 bytes"), "{error}");
    }
    assert!(own.seal(b"short").await.unwrap_err().to_string().contains("a key has 32 bytes, this has 5"));
}

#[tokio::test]
async fn with_https_the_server_has_to_prove_who_it_is() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let identity = Identity::from_pem(made.cert.pem(), made.signing_key.serialize_pem());
    let tls = ServerTlsConfig::new().identity(identity);
    let port = started(Server::new(&[1; KEY_BYTES]).service(), Some(tls)).await;
    let trusting = |pem: String, host: &str| {
        let endpoint = Endpoint::parse(&format!("https://{host}:{port}")).unwrap();
        Client::new(endpoint, NODE, Trust::Authorities(pem)).within(Duration::from_secs(2))
    };
    let known = trusting(made.cert.pem(), "localhost");
    let sealed = known.seal(&KEY).await.unwrap();
    assert_eq!(*known.unseal(&sealed).await.unwrap(), KEY);
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let error = trusting(other.cert.pem(), "localhost").unseal(&sealed).await.unwrap_err().to_string();
    assert!(error.contains("certificate"), "{error}");
    let error = trusting(made.cert.pem(), "127.0.0.1").unseal(&sealed).await.unwrap_err().to_string();
    assert!(error.contains("certificate"), "{error}");
    // No authority at all: said at once, nothing is sent.
    let error = client(&format!("https://localhost:{port}"), NODE).seal(&KEY).await.unwrap_err();
    assert!(matches!(error, Error::Authorities { .. }), "{error}");
}

#[tokio::test]
async fn a_server_that_is_down_is_tried_until_it_is_there() {
    let (listener, port) = listener().await;
    drop(listener);
    let address = format!("grpc://127.0.0.1:{port}");
    let start = Instant::now();
    let error = client(&address, NODE).seal(&KEY).await.unwrap_err().to_string();
    assert!(error.starts_with(&address) && error.contains("refused"), "{error}");
    assert!(error.ends_with("; not reached within 2 s (deadline kms)"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(10));
    let late = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let server = tonic::transport::Server::builder().add_service(Server::new(&[1; KEY_BYTES]).service());
        server.serve_with_incoming(TcpIncoming::from(listener)).await
    });
    let patient = client(&address, NODE).within(Duration::from_secs(30));
    assert!(patient.seal(&KEY).await.is_ok());
    late.abort();
}

/// Answers with what it was told to, or never.
struct Broken(Option<Vec<u8>>);

#[tonic::async_trait]
impl KmsService for Broken {
    async fn seal(&self, _request: Request<Question>) -> Result<Response<Answer>, Status> {
        match &self.0 {
            Some(data) => Ok(Response::new(Answer { data: data.clone() })),
            None => std::future::pending().await,
        }
    }

    async fn unseal(&self, request: Request<Question>) -> Result<Response<Answer>, Status> {
        self.seal(request).await
    }
}

#[tokio::test]
async fn one_that_hangs_or_talks_nonsense_is_named() {
    let port = started(KmsServiceServer::new(Broken(None)), None).await;
    let start = Instant::now();
    let error = client(&format!("127.0.0.1:{port}"), NODE).unseal(&KEY).await.unwrap_err().to_string();
    assert!(error.ends_with("no answer; not reached within 2 s (deadline kms)"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(10));
    for data in [Vec::new(), vec![0; 5000]] {
        let port = started(KmsServiceServer::new(Broken(Some(data))), None).await;
        let error = client(&format!("127.0.0.1:{port}"), NODE).unseal(&KEY).await.unwrap_err();
        assert!(matches!(error, Error::Answer { .. }), "{error}");
    }
}
