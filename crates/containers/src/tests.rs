//! The client against a real containerd: the one that the image was built from, or one on the path. Pulls come from a
//! small registry on loopback.

use std::path::Path;
use std::time::Duration;

use api::pki::{Authority, CA_LIFETIME, LEAF_LIFETIME, Leaf, Lifetime, Usage};
use api::tls::Identities;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use oci::registry::{self, Host, Patience, Settings, Tls};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::testing::{Daemon, PLAIN, digest};

struct Registry {
    port: u16,
    manifest: Vec<u8>,
    config: Vec<u8>,
    layer: Vec<u8>,
}

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

impl Registry {
    /// Serves with a certificate of `authority`; answers the port and the image's size.
    async fn start(authority: &Authority) -> (u16, i64) {
        let tls = acceptor(authority);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let layer = b"not even a tar: nobody unpacks it".to_vec();
        let config =
            br#"{"architecture":"amd64","os":"linux","rootfs":{"type":"layers","diff_ids":[]}}"#.to_vec();
        let entry = |kind: &str, bytes: &[u8]| {
            serde_json::json!({
                "mediaType": format!("application/vnd.oci.image.{kind}"),
                "digest": digest(bytes),
                "size": bytes.len(),
            })
        };
        let manifest = serde_json::json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": entry("config.v1+json", &config),
            "layers": [entry("layer.v1.tar", &layer)],
        });
        let size = i64::try_from(config.len() + layer.len()).unwrap();
        let manifest = serde_json::to_vec(&manifest).unwrap();
        let registry = std::sync::Arc::new(Self { port, manifest, config, layer });
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (registry, tls) = (registry.clone(), tls.clone());
                tokio::spawn(async move {
                    let Ok(stream) = tls.accept(stream).await else { return };
                    let service = hyper::service::service_fn(move |request| {
                        let answer = registry.answer(&request);
                        async move { Ok::<_, std::convert::Infallible>(answer) }
                    });
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        (port, size)
    }

    fn answer(&self, request: &hyper::Request<Incoming>) -> hyper::Response<Full<Bytes>> {
        assert!(self.port != 0);
        let path = request.uri().path();
        let found = if path.contains("/manifests/") {
            Some((MANIFEST, &self.manifest))
        } else {
            let blobs = [&self.config, &self.layer];
            blobs.into_iter().find(|b| path.ends_with(&digest(b))).map(|b| ("application/octet-stream", b))
        };
        let Some((kind, bytes)) = found else {
            return hyper::Response::builder().status(404).body(Full::default()).unwrap();
        };
        let body = if request.method() == http::Method::HEAD { Bytes::new() } else { bytes.clone().into() };
        hyper::Response::builder()
            .header("content-type", kind)
            .header("content-length", bytes.len())
            .header("docker-content-digest", digest(bytes))
            .body(Full::new(body))
            .unwrap()
    }
}

fn acceptor(authority: &Authority) -> TlsAcceptor {
    let leaf = Leaf {
        organizations: vec![],
        names: vec!["127.0.0.1".to_owned()],
        usage: Usage::Server,
        lifetime: Lifetime::from_now(LEAF_LIFETIME),
    };
    let identities = Identities::new(&authority.issue(&leaf).unwrap()).unwrap();
    let mut config = api::tls::server_without_clients(identities).unwrap().as_ref().clone();
    // The registry speaks HTTP/1 only.
    config.alpn_protocols.clear();
    TlsAcceptor::from(std::sync::Arc::new(config))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "starts the image's containerd: `cargo xtask test` runs it after the build"]
async fn images_are_pulled_measured_listed_and_removed_by_containerd() {
    let authority = Authority::generate("registry", Lifetime::from_now(CA_LIFETIME)).unwrap();
    let daemon = Daemon::start(tempfile::tempdir().unwrap(), PLAIN, authority.certificate()).await;
    let client = daemon.client("system");
    assert!(client.containers().await.unwrap().is_empty());
    assert!(client.tasks().await.unwrap().is_empty());
    assert!(client.images().await.unwrap().is_empty());
    let (port, size) = Registry::start(&authority).await;
    let name = format!("127.0.0.1:{port}/test/image:1");
    let pull = |name: String, authority: &Authority| {
        let authorities = authority.certificate().to_owned();
        let host = Host { tls: Tls { authorities, ..Tls::default() }, auth: None };
        let hosts = [(format!("127.0.0.1:{port}"), host)].into();
        let registry = registry::Client::new(
            name.parse().unwrap(),
            Settings { hosts, ..Settings::default() },
            Patience { stall: Duration::from_secs(5), total: Duration::from_secs(30) },
        );
        let (client, registry) = (client.clone(), registry.unwrap());
        async move { client.fetch(&name, &registry).await }
    };
    pull(name.clone(), &authority).await.unwrap_or_else(|e| panic!("{e:?}"));
    // What is here already is not stored twice, nor is that an error.
    pull(name.clone(), &authority).await.unwrap_or_else(|e| panic!("{e:?}"));
    let images = client.images().await.unwrap();
    assert_eq!(images.iter().map(|image| image.name.as_str()).collect::<Vec<_>>(), [name.as_str()]);
    let target = images[0].target.clone().unwrap();
    assert!(target.digest.starts_with("sha256:") && images[0].created_at.is_some());
    assert_eq!(client.image_size(&target).await.unwrap(), size);
    assert!(daemon.client("k8s.io").images().await.unwrap().is_empty(), "another namespace");
    let none = pull("127.0.0.1:1/none:1".to_owned(), &authority).await;
    assert!(matches!(none, Err(FetchError::Registry(_))), "{none:?}");
    client.remove_image(&name).await.unwrap();
    assert!(client.images().await.unwrap().is_empty());
    assert_eq!(client.remove_image(&name).await.unwrap_err().code(), tonic::Code::NotFound);
    assert_eq!(client.terminate("nobody").await.unwrap_err().code(), tonic::Code::NotFound);
}

#[tokio::test]
async fn nobody_at_the_socket_is_unavailable() {
    let client = Client::new(Path::new("/nonexistent/containerd.sock"), "system");
    assert_eq!(client.health().await.unwrap_err().code(), tonic::Code::Unavailable);
}

#[test]
fn an_index_names_the_manifest_of_this_platform() {
    let text = r#"{"manifests":[{"digest":"sha256:a","platform":{"os":"linux","architecture":"arm64"}},
        {"digest":"sha256:b","platform":{"os":"linux","architecture":"amd64"}}]}"#;
    let index: size::Manifest = serde_json::from_str(text).unwrap();
    assert_eq!(size::for_this_platform(&index).as_deref(), Some("sha256:b"));
    let manifest: size::Manifest =
        serde_json::from_str(r#"{"config":{"digest":"c","size":2},"layers":[{"digest":"l","size":3}]}"#)
            .unwrap();
    assert_eq!((size::for_this_platform(&manifest), manifest.size()), (None, 5));
}
