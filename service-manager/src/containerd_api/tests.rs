//! The client against a real containerd: the one that the image was built from, or one on the path. Pulls come from a
//! small registry on loopback.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use api::pki::{Authority, CA_LIFETIME, LEAF_LIFETIME, Leaf, Lifetime, Usage};
use api::tls::Identities;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use oci::registry::{self, Host, Patience, Settings, Tls};
use ondisk::Digest;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;

pub(crate) struct Daemon {
    child: Child,
    dir: tempfile::TempDir,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The containerd that goes into the image, else the one on the path.
fn program() -> PathBuf {
    let unpacked = unpacked().map(|directory| directory.join("usr/bin/containerd"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path: Vec<_> = std::env::split_paths(&path).map(|folder| folder.join("containerd")).collect();
    // The cache has those of images for other processors, too.
    let own = machine(&std::env::current_exe().unwrap());
    let found = unpacked.chain(on_path).find(|path| path.exists() && machine(path) == own);
    found.expect("there is no containerd: `cargo xtask build` unpacks the image's")
}

/// The path with containerd's shim, which goes into images, behind this machine's programs: runc wants this machine's libc.
fn path_with_shim() -> std::ffi::OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let shim = program().parent().map(Path::to_owned);
    std::env::join_paths(std::env::split_paths(&path).chain(shim)).unwrap()
}

/// What the build unpacked.
fn unpacked() -> impl Iterator<Item = PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty());
    let cache = cache.map(PathBuf::from).or_else(home).map(|cache| cache.join("billet/unpacked"));
    let unpacked = cache.and_then(|cache| std::fs::read_dir(cache).ok()).into_iter().flatten().flatten();
    unpacked.map(|entry| entry.path())
}

/// For which processor an ELF file is (`e_machine`).
fn machine(program: &Path) -> [u8; 2] {
    let mut header = [0; 20];
    std::fs::File::open(program).unwrap().read_exact(&mut header).unwrap();
    [header[18], header[19]]
}

impl Daemon {
    /// Starts it with these lines besides the usual ones; `dir` is for its files, `ca` is trusted alone.
    pub(crate) async fn start(dir: tempfile::TempDir, config: &str, ca: &str) -> Self {
        assert!(
            rustix::process::geteuid().is_root(),
            "containerd mounts file systems: run this test as root"
        );
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("config.toml"), config).unwrap();
        std::fs::write(path("ca.crt"), ca).unwrap();
        let log = std::fs::File::create(path("containerd.log")).unwrap();
        let child = Command::new(program())
            .env("SSL_CERT_FILE", path("ca.crt"))
            .env("PATH", path_with_shim())
            .args(["--config".as_ref(), path("config.toml").as_os_str()])
            .args(["--root".as_ref(), path("root").as_os_str()])
            .args(["--state".as_ref(), path("state").as_os_str()])
            .args(["--address".as_ref(), path("sock").as_os_str()])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let daemon = Self { child, dir };
        let begin = std::time::Instant::now();
        while daemon.client("system").health().await.is_err() {
            assert!(
                begin.elapsed() < Duration::from_secs(60),
                "containerd does not serve within 60 s: {}",
                daemon.log()
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        daemon
    }

    pub(crate) fn client(&self, namespace: &'static str) -> Client {
        Client::new(&self.dir.path().join("sock"), namespace)
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("containerd.log")).unwrap_or_default()
    }
}

/// Without Kubernetes' interface.
pub(crate) const PLAIN: &str =
    "version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\", \"io.containerd.nri.v1.nri\"]\n";

pub(super) fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", Digest::sha256(&[bytes]))
}

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
async fn images_are_pulled_measured_listed_and_removed() {
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
