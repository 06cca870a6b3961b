//! Images of Kubernetes and of the system through the machine config's registries: a real containerd, and a real registry
//! that wants TLS of its own authority and a sign-in, as the only mirror of a registry that does not exist.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use api::pki::{Authority, CA_LIFETIME, Identity, LEAF_LIFETIME, Leaf, Lifetime, Usage};
use bytes::Bytes;
use config::v1alpha1::{Registries, RegistryAuth, RegistryConfig, RegistryMirror, RegistryTls};
use http::header::{CONTENT_TYPE, HOST, LOCATION};
use http_body_util::Full;
use hyper_util::rt::TokioIo;

use containers::Client;
use containers::testing::{Daemon, digest};

use super::files;

/// What is asked for: a registry that is not there.
const REFERENCE: &str = "registry.invalid/demo/app:1";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// bcrypt of `geheim`.
const PASSWORDS: &str = "me:$2y$05$abcdefghijklmnopqrstuuVWu8RjbNovPZWAMRdd7iqaaG0mI53Uu\n";

struct Registry {
    child: Child,
    address: SocketAddr,
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Registry {
    /// Debian's docker-registry over the storage in `dir`; `rest` is added to its configuration.
    fn start(dir: &Path, name: &str, http: &str, rest: &str) -> Self {
        // Freed for the registry at once: it takes no socket from us.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let storage = dir.join("storage");
        let text = format!(
            "version: 0.1\nlog: {{ level: error }}\nstorage:\n  filesystem: {{ rootdirectory: {} }}\nhttp:\n  addr: \
             {address}\n{http}{rest}",
            storage.display()
        );
        let file = dir.join(name);
        std::fs::write(&file, text).unwrap();
        let child = Command::new("docker-registry")
            .arg("serve")
            .arg(file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("docker-registry is a package that `cargo xtask test` installs");
        let registry = Self { child, address };
        let begin = Instant::now();
        while std::net::TcpStream::connect(address).is_err() {
            assert!(begin.elapsed() < Duration::from_secs(30), "the registry does not listen within 30 s");
            std::thread::sleep(Duration::from_millis(50));
        }
        registry
    }

    async fn send(&self, method: &str, path: &str, kind: &str, body: &[u8]) -> http::Response<()> {
        let stream = tokio::net::TcpStream::connect(self.address).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, self.address.to_string())
            .header(CONTENT_TYPE, kind)
            .body(Full::<Bytes>::from(body.to_vec()))
            .unwrap();
        let answer = sender.send_request(request).await.unwrap();
        assert!(answer.status().is_success(), "{method} {path}: {}", answer.status());
        answer.map(drop)
    }

    async fn push_blob(&self, bytes: &[u8]) {
        let begun = self.send("POST", "/v2/demo/app/blobs/uploads/", "application/json", b"").await;
        let place: http::Uri = begun.headers()[LOCATION].to_str().unwrap().parse().unwrap();
        let place = format!("{}&digest={}", place.path_and_query().unwrap(), digest(bytes));
        self.send("PUT", &place, "application/octet-stream", bytes).await;
    }
}

/// An image of one file.
async fn push(registry: &Registry) {
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(5);
    header.set_mode(0o644);
    tar.append_data(&mut header, "hello", b"hello".as_slice()).unwrap();
    let layer = tar.into_inner().unwrap();
    let config = serde_json::json!({
        "architecture": "amd64", "os": "linux",
        "rootfs": { "type": "layers", "diff_ids": [digest(&layer)] },
    });
    let config = serde_json::to_vec(&config).unwrap();
    let entry = |kind: &str, bytes: &[u8]| {
        let kind = format!("application/vnd.oci.image.{kind}");
        serde_json::json!({ "mediaType": kind, "digest": digest(bytes), "size": bytes.len() })
    };
    let manifest = serde_json::json!({
        "schemaVersion": 2, "mediaType": MANIFEST,
        "config": entry("config.v1+json", &config), "layers": [entry("layer.v1.tar", &layer)],
    });
    registry.push_blob(&layer).await;
    registry.push_blob(&config).await;
    let manifest = serde_json::to_vec(&manifest).unwrap();
    registry.send("PUT", "/v2/demo/app/manifests/1", MANIFEST, &manifest).await;
}

fn identity(authority: &Authority) -> Identity {
    let leaf = Leaf {
        organizations: vec![],
        names: vec!["127.0.0.1".to_owned()],
        usage: Usage::Server,
        lifetime: Lifetime::from_now(LEAF_LIFETIME),
    };
    authority.issue(&leaf).unwrap()
}

/// The same image, for those who sign in and trust `authority`.
fn guarded(dir: &Path, authority: &Authority) -> Registry {
    let identity = identity(authority);
    let path = |name: &str| dir.join(name);
    std::fs::write(path("registry.crt"), &identity.certificate).unwrap();
    std::fs::write(path("registry.key"), identity.key.to_pem().expose_secret()).unwrap();
    std::fs::write(path("passwords"), PASSWORDS).unwrap();
    let tls = format!(
        "  tls:\n    certificate: {}\n    key: {}\n",
        path("registry.crt").display(),
        path("registry.key").display()
    );
    let auth = format!("auth:\n  htpasswd: {{ realm: test, path: {} }}\n", path("passwords").display());
    Registry::start(dir, "guarded.yml", &tls, &auth)
}

/// What the machine config says.
fn registries(mirror: SocketAddr, authority: &Authority, password: &str) -> Registries {
    let host = mirror.to_string();
    let mirrors = RegistryMirror {
        endpoints: vec![format!("https://{host}")],
        skip_fallback: Some(true),
        ..Default::default()
    };
    let tls =
        RegistryTls { ca: config::EncodedPem(authority.certificate().to_owned()), ..Default::default() };
    let auth = RegistryAuth {
        username: "me".into(),
        password: Some(config::Secret::new(password)),
        ..RegistryAuth::default()
    };
    Registries {
        mirrors: BTreeMap::from([("registry.invalid".to_owned(), mirrors)]),
        config: BTreeMap::from([(host, RegistryConfig { tls: Some(tls), auth: Some(auth) })]),
    }
}

/// The same as containerd reads it: its part of the main file.
fn configured(dir: &Path, mirror: SocketAddr, authority: &Authority, password: &str) -> String {
    let registries = registries(mirror, authority, password);
    let etc = dir.join("etc").display().to_string();
    let mut main = String::new();
    for file in files(&registries).unwrap_or_else(|errors| panic!("{errors:?}")) {
        let text = file.content.replace("/var/etc/cri", &etc);
        match file.path.strip_prefix("/var/etc/cri") {
            Some(rest) => {
                let path = dir.join("etc").join(rest.trim_start_matches('/'));
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
            None => main.push_str(&text),
        }
    }
    main
}

async fn containerd(mirror: SocketAddr, authority: &Authority, password: &str) -> Daemon {
    let dir = tempfile::tempdir().unwrap();
    let registries = configured(dir.path(), mirror, authority, password);
    let config = format!(
        "version = 2\ndisabled_plugins = [\"io.containerd.nri.v1.nri\"]\n\
         [plugins.\"io.containerd.grpc.v1.cri\".containerd]\n  snapshotter = \"native\"\n{registries}"
    );
    // Nothing but the mirror's own settings may let it in.
    Daemon::start(dir, &config, "").await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "starts the image's containerd and docker-registry: `cargo xtask test` runs it after the build"]
async fn images_of_kubernetes_come_from_the_configured_mirror_by_containerd() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::generate("registry", Lifetime::from_now(CA_LIFETIME)).unwrap();
    push(&Registry::start(dir.path(), "open.yml", "", "")).await;
    let registry = guarded(dir.path(), &authority);

    let daemon = containerd(registry.address, &authority, "geheim").await;
    let client = daemon.client("k8s.io");
    client.pull(REFERENCE).await.unwrap_or_else(|e| panic!("{e}\n{}", daemon.log()));
    let images = client.images().await.unwrap();
    let image = images.iter().find(|image| image.name == REFERENCE).expect("it has the name it was asked by");
    assert!(client.image_size(image.target.as_ref().unwrap()).await.unwrap() > 1024);

    // Without the sign-in, and with another authority, the same mirror gives nothing.
    let other = Authority::generate("other", Lifetime::from_now(CA_LIFETIME)).unwrap();
    for (authority, password, why) in [(&authority, "falsch", "401"), (&other, "geheim", "x509")] {
        let daemon = containerd(registry.address, authority, password).await;
        let client = daemon.client("k8s.io");
        let status = client.pull(REFERENCE).await.unwrap_err();
        assert!(status.message().contains(why), "{status}");
        assert!(client.images().await.unwrap().is_empty());
    }
}

/// What the node does for `image pull --namespace system`.
async fn fetch(client: &Client, registries: Registries) -> Result<(), String> {
    let dir = tempfile::tempdir().unwrap();
    let node = crate::server::tests_node(dir.path().to_owned());
    let text = "version: v1alpha1\nmachine: {type: worker, token: a.b}\n";
    let mut config = config::parse(text).unwrap_or_else(|e| panic!("{e}"));
    config.machine.registries = registries;
    node.runtime.config.send_replace(Some(std::sync::Arc::new(config)));
    // The node's own authorities know the registry no better.
    let image_has = Authority::generate("image", Lifetime::from_now(CA_LIFETIME)).unwrap();
    std::fs::create_dir_all(dir.path().join("etc/ssl/certs")).unwrap();
    std::fs::write(dir.path().join("etc/ssl/certs/ca-certificates"), image_has.certificate()).unwrap();
    let registry = crate::upgrade::registry_of(&node.runtime, REFERENCE).map_err(|e| e.to_string())?;
    client.fetch(REFERENCE, &registry).await.map_err(|e| format!("{e:?}"))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "starts the image's containerd and docker-registry: `cargo xtask test` runs it after the build"]
async fn image_pull_of_the_system_namespace_asks_the_configured_mirror_by_containerd() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::generate("registry", Lifetime::from_now(CA_LIFETIME)).unwrap();
    push(&Registry::start(dir.path(), "open.yml", "", "")).await;
    let registry = guarded(dir.path(), &authority);
    // This containerd knows no registry at all.
    let plain =
        "version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\", \"io.containerd.nri.v1.nri\"]\n";
    let daemon = Daemon::start(tempfile::tempdir().unwrap(), plain, "").await;
    let client = daemon.client("system");

    // Without the sign-in, and with another authority, the mirror gives nothing.
    let other = Authority::generate("other", Lifetime::from_now(CA_LIFETIME)).unwrap();
    for (authority, password, why) in [(&authority, "falsch", "401"), (&other, "geheim", "certificate")] {
        let error = fetch(&client, registries(registry.address, authority, password)).await.unwrap_err();
        assert!(error.contains(why) && !error.contains(password), "{error}");
        assert!(client.images().await.unwrap().is_empty());
    }
    for _ in 0..2 {
        let fetched = fetch(&client, registries(registry.address, &authority, "geheim")).await;
        fetched.unwrap_or_else(|e| panic!("{e}\n{}", daemon.log()));
    }
    let images = client.images().await.unwrap();
    assert_eq!(images.iter().map(|image| image.name.as_str()).collect::<Vec<_>>(), [REFERENCE]);
    // The end of another lease collects what nothing keeps; all of the image is kept by its name.
    let target = images[0].target.clone().unwrap();
    assert!(client.image_size(&target).await.unwrap() > 1024);
    let manifest = client.content(&target.digest).await.unwrap();
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
    let layers = manifest["layers"].as_array().unwrap();
    for entry in layers.iter().chain([&manifest["config"]]) {
        let digest = entry["digest"].as_str().unwrap();
        client.content(digest).await.unwrap_or_else(|e| panic!("{digest}: {e}"));
    }
    assert!(client.ingests().await.unwrap().is_empty());
    client.remove_image(REFERENCE).await.unwrap();
    assert!(client.content(&target.digest).await.is_err(), "the name alone kept it");
}
