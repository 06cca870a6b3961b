//! Pulls from a registry over loopback: with and without TLS and sign-ins, past mirrors that fail, through connections
//! that break.

use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::pki::{Authority, CA_LIFETIME, Identity as Certified, LEAF_LIFETIME, Leaf, Lifetime, Usage};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use zeroize::Zeroizing;

use super::*;
use crate::archive::{self, Bytes, Content, NewImage};
use crate::files::Files;
use crate::server::{Behaviour, Guard, Server};

const NAME: &str = "registry.invalid/demo/app:1";

pub(super) struct Rig {
    directory: tempfile::TempDir,
    pub(super) server: Server,
}

fn new_image(architecture: &str) -> NewImage {
    let noise: Vec<u8> = (0..900_000_u32).map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
    let content = |path: &str, bytes: Vec<u8>| Content { path: path.into(), bytes: Bytes::Here(bytes) };
    NewImage {
        architecture: architecture.into(),
        tag: "1".into(),
        labels: [("made".to_owned(), "here".to_owned())].into(),
        layers: vec![vec![content("small", b"one".to_vec())], vec![content("big", noise)]],
    }
}

async fn rig_with(tls: Option<Arc<rustls::ServerConfig>>, behaviour: Behaviour, architecture: &str) -> Rig {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image.tar");
    let mut out = std::fs::File::create(&path).unwrap();
    archive::write(&mut out, &new_image(architecture)).unwrap();
    let server = Server::start(tls, behaviour).await.unwrap();
    server.serve(&path, "demo/app", "1").unwrap();
    Rig { directory, server }
}

pub(super) async fn rig(behaviour: Behaviour) -> Rig {
    rig_with(None, behaviour, "amd64").await
}

/// These addresses, and not the registry itself.
pub(super) fn mirrors(addresses: &[String]) -> Settings {
    let mirror = Mirror { endpoints: addresses.to_vec(), skip_fallback: true, ..Mirror::default() };
    Settings { mirrors: [("registry.invalid".to_owned(), mirror)].into(), ..Settings::default() }
}

pub(super) fn http(rig: &Rig) -> String {
    format!("http://{}", rig.server.address())
}

pub(super) fn client(settings: Settings) -> Client {
    let patience = Patience { stall: Duration::from_secs(3), total: Duration::from_secs(60) };
    Client::new(NAME.parse().unwrap(), settings, patience).unwrap()
}

/// Pulls all of it; the length of each file.
async fn pull(settings: Settings) -> Result<Vec<(String, u64)>, Error> {
    let client = Arc::new(client(settings));
    let image = client.image("amd64").await?;
    assert_eq!(image.config.config.labels.get("made").map(String::as_str), Some("here"));
    let runtime = Handle::current();
    let layers = image.manifest.layers;
    let walk = tokio::task::spawn_blocking(move || {
        let open = |number: usize| -> std::io::Result<_> {
            let layer = layers.get(number).cloned();
            Ok(layer
                .map(|layer| Box::new(Reader::new(&runtime, client.clone(), layer)) as crate::files::Source))
        };
        let mut files = Files::new(Box::new(open));
        let mut found = Vec::new();
        while let Some(file) = files.next_file()? {
            std::io::copy(&mut (&mut files).take(u64::MAX), &mut std::io::sink())?;
            found.push((file.path, file.bytes));
        }
        Ok(found)
    });
    walk.await.unwrap().map_err(|error: std::io::Error| match error.downcast::<Error>() {
        Ok(error) => error,
        Err(error) => panic!("{error}"),
    })
}

use tokio::runtime::Handle;

fn whole() -> Vec<(String, u64)> {
    vec![("small".to_owned(), 3), ("big".to_owned(), 900_000)]
}

#[tokio::test]
async fn an_image_is_pulled_and_the_mirror_learns_for_whom() {
    let rig = rig(Behaviour::default()).await;
    assert_eq!(pull(mirrors(&[http(&rig)])).await.unwrap(), whole());
    assert_eq!(rig.server.asked()[0], "/v2/demo/app/manifests/1?ns=registry.invalid");
}

#[tokio::test]
async fn broken_connections_go_on_where_they_were() {
    for no_ranges in [false, true] {
        let rig =
            rig(Behaviour { broken_answers: 4, no_ranges, unavailable: 2, ..Behaviour::default() }).await;
        assert_eq!(pull(mirrors(&[http(&rig)])).await.unwrap(), whole());
    }
}

#[tokio::test]
async fn the_next_mirror_is_asked_when_one_fails() {
    let (good, empty) =
        (rig(Behaviour::default()).await, Server::start(None, Behaviour::default()).await.unwrap());
    let dead = "http://127.0.0.1:9".to_owned();
    let addresses = [dead, format!("http://{}", empty.address()), http(&good)];
    assert_eq!(pull(mirrors(&addresses)).await.unwrap(), whole());
    assert!(empty.asked().iter().any(|path| path.contains("/manifests/1")));
}

/// Whoever pulls goes on with the client of whoever asked, whose time is over by then.
#[tokio::test]
async fn a_client_begins_anew_with_its_sign_in() {
    let guard = Guard::Token("me".to_owned(), "geheim".to_owned());
    let rig = rig(Behaviour { guard, ..Behaviour::default() }).await;
    let mut settings = mirrors(&[http(&rig)]);
    let auth = Auth::Password { name: "me".into(), password: Zeroizing::new("geheim".into()) };
    let host = Host { auth: Some(auth), ..Host::default() };
    settings.hosts.insert(rig.server.address().to_string(), host);
    let asked = client(settings);
    let layer = asked.image("amd64").await.unwrap().manifest.layers[1].clone();
    let late = asked.anew(Patience { total: Duration::ZERO, ..Patience::default() });
    let error = late.blob(&layer).chunk().await.unwrap_err().to_string();
    assert!(error.contains("(deadline pull, 0 s)"), "{error}");
    let tokens = |rig: &Rig| rig.server.asked().iter().filter(|path| path.starts_with("/token")).count();
    let bought = tokens(&rig);
    let anew = late.anew(Patience::default());
    let mut blob = anew.blob(&layer);
    while blob.chunk().await.unwrap().is_some() {}
    assert_eq!((tokens(&rig), bought), (1, 1));
}

#[tokio::test]
async fn names_and_passwords_are_shown_to_who_asks_for_them() {
    let pair = || ("me".to_owned(), "geheim".to_owned());
    for guard in [Guard::Basic(pair().0, pair().1), Guard::Token(pair().0, pair().1)] {
        let rig = rig(Behaviour { guard, ..Behaviour::default() }).await;
        let auth = |password: &str| {
            let mut settings = mirrors(&[http(&rig)]);
            let auth = Auth::Password { name: "me".into(), password: Zeroizing::new(password.into()) };
            let host = Host { auth: Some(auth), ..Host::default() };
            settings.hosts.insert(rig.server.address().to_string(), host);
            settings
        };
        assert_eq!(pull(auth("geheim")).await.unwrap(), whole());
        for wrong in [auth("falsch"), mirrors(&[http(&rig)])] {
            let error = pull(wrong).await.unwrap_err().to_string();
            assert!(error.contains("401") && !error.contains("falsch"), "{error}");
        }
    }
}

/// A registry that sends whoever signs in to another server, which takes what it is shown.
#[tokio::test]
async fn a_password_goes_to_no_host_that_the_config_does_not_list() {
    let guard = || Guard::Token("me".to_owned(), "geheim".to_owned());
    let thief = rig(Behaviour { guard: guard(), ..Behaviour::default() }).await;
    let port = thief.server.address().port();
    // Another name than that of the registry, which is 127.0.0.1.
    let realm = format!("localhost:{port}");
    let behaviour =
        Behaviour { guard: guard(), realm: Some(format!("http://{realm}")), ..Behaviour::default() };
    let front = rig(behaviour).await;
    let mut settings = mirrors(&[http(&front)]);
    let auth = Auth::Password { name: "me".into(), password: Zeroizing::new("geheim".into()) };
    settings.hosts.insert(front.server.address().to_string(), Host { auth: Some(auth), ..Host::default() });
    let error = pull(settings.clone()).await.unwrap_err().to_string();
    assert!(error.contains(&format!("sent to {realm}, another host")), "{error}");
    assert!(
        error.contains("give machine.registries.config an entry for") && !error.contains("geheim"),
        "{error}"
    );
    assert!(thief.server.asked().iter().any(|path| path.starts_with("/token")), "it was asked, as by nobody");
    assert_eq!(thief.server.shown(), Vec::<String>::new());
    // Where nobody needs a password, none is missed.
    thief.server.behave(Behaviour { tokens_for_all: true, guard: guard(), ..Behaviour::default() });
    assert_eq!(pull(settings.clone()).await.unwrap(), whole());
    assert_eq!(thief.server.shown(), Vec::<String>::new());
    // Listed, it gets the password, and the registry never does.
    thief.server.behave(Behaviour { guard: guard(), ..Behaviour::default() });
    settings.hosts.insert(realm, Host::default());
    assert_eq!(pull(settings).await.unwrap(), whole());
    assert_eq!(thief.server.shown(), ["Basic bWU6Z2VoZWlt"]);
    assert!(front.server.shown().iter().all(|shown| shown == "Bearer bought"));
}

#[tokio::test]
async fn a_detour_to_another_host_gets_no_password() {
    let store = rig(Behaviour::default()).await;
    let guard = Guard::Basic("me".into(), "geheim".into());
    let front = rig(Behaviour { guard, blobs_at: Some(http(&store)), ..Behaviour::default() }).await;
    let mut settings = mirrors(&[http(&front)]);
    let auth = Auth::Password { name: "me".into(), password: Zeroizing::new("geheim".into()) };
    settings.hosts.insert(front.server.address().to_string(), Host { auth: Some(auth), ..Host::default() });
    assert_eq!(pull(settings.clone()).await.unwrap(), whole());
    // Were it sent on, the store would let us in.
    store
        .server
        .behave(Behaviour { guard: Guard::Basic("me".into(), "geheim".into()), ..Behaviour::default() });
    assert!(pull(settings).await.unwrap_err().to_string().contains("401"));
}

#[tokio::test]
async fn content_that_was_changed_is_refused() {
    let rig = rig(Behaviour { corrupt: true, ..Behaviour::default() }).await;
    let error = pull(mirrors(&[http(&rig)])).await.unwrap_err().to_string();
    assert!(error.contains("it was changed on the way"), "{error}");
    let other = rig_with(None, Behaviour::default(), "amd64").await;
    let wanted = format!("registry.invalid/demo/app@sha256:{}", Digest([7; 32]));
    other.server.serve_document("demo/app", &wanted[wanted.find('@').unwrap() + 1..], "x", b"{}");
    let client = Client::new(wanted.parse().unwrap(), mirrors(&[http(&other)]), Patience::default()).unwrap();
    assert!(client.image("amd64").await.unwrap_err().to_string().contains("it was changed on the way"));
}

/// The documents that lead to the layers, each answered otherwise than the one before it says.
#[tokio::test]
async fn a_document_counts_only_with_the_digest_that_led_to_it() {
    let rig = rig(Behaviour::default()).await;
    let archive = archive::Archive::open(&rig.directory.path().join("image.tar")).unwrap();
    let (manifest, _) = archive.image("amd64").unwrap();
    let text = rig.server.document("demo/app/manifests/1").unwrap();
    let child = format!("sha256:{}", Digest::sha256(&[&text]));
    let index = format!(
        r#"{{"schemaVersion":2,"manifests":[{{"mediaType":"x","digest":"{child}","size":{},
           "platform":{{"architecture":"amd64","os":"linux"}}}}]}}"#,
        text.len()
    );
    rig.server.serve_document("demo/app", "1", "application/vnd.oci.image.index.v1+json", index.as_bytes());
    assert_eq!(pull(mirrors(&[http(&rig)])).await.unwrap(), whole());
    let config = format!("sha256:{}", manifest.config.digest);
    for (what, named) in
        [(format!("demo/app/manifests/{child}"), "the manifest of"), (config.clone(), &config)]
    {
        rig.server.change_after(&what, 0, 20);
        let error = pull(mirrors(&[http(&rig)])).await.unwrap_err().to_string();
        assert!(error.contains(named) && error.contains("it was changed on the way"), "{what}: {error}");
        rig.server.change_after(&what, usize::MAX, 0);
    }
}

#[tokio::test]
async fn a_registry_that_is_gone_is_given_up_within_the_deadline() {
    let rig = rig(Behaviour::default()).await;
    let client = client(mirrors(&[http(&rig)]));
    let image = client.image("amd64").await.unwrap();
    rig.server.behave(Behaviour { no_blobs: true, ..Behaviour::default() });
    let mut blob = client.blob(&image.manifest.layers[1]);
    let error = blob.chunk().await.unwrap_err().to_string();
    assert!(error.contains("(deadline stalled pull, 3 s)") && error.contains("mirror 127.0.0.1:"), "{error}");
    let nobody = pull(mirrors(&["http://127.0.0.1:9".to_owned()])).await.unwrap_err().to_string();
    assert!(nobody.contains("connect to 127.0.0.1:9"), "{nobody}");
}

#[tokio::test]
async fn what_is_not_there_is_said_at_once() {
    let server = Server::start(None, Behaviour::default()).await.unwrap();
    let begin = Instant::now();
    let error = pull(mirrors(&[format!("http://{}", server.address())])).await.unwrap_err().to_string();
    assert!(error.contains("not there (404): manifest unknown") && error.contains(NAME), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(3));
}

#[tokio::test]
async fn another_architecture_is_refused_by_name() {
    let rig = rig_with(None, Behaviour::default(), "arm64").await;
    let error = client(mirrors(&[http(&rig)])).image("amd64").await.unwrap_err().to_string();
    assert!(error.contains("is for linux/arm64, and this node is linux/amd64"), "{error}");
}

/// Docker's documents, an index, and layers that were compressed on the way: what `docker push` makes of an image.
#[tokio::test]
async fn images_that_docker_pushed_are_pulled() {
    let rig = rig(Behaviour::default()).await;
    let path = rig.directory.path().join("image.tar");
    let (mut manifest, _) = archive::Archive::open(&path).unwrap().image("amd64").unwrap();
    let opened = archive::Archive::open(&path).unwrap();
    for layer in &mut manifest.layers {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::copy(&mut opened.blob(layer).unwrap(), &mut packed).unwrap();
        let packed = packed.finish().unwrap();
        *layer = Descriptor {
            media_type: "application/vnd.docker.image.rootfs.diff.tar.gzip".into(),
            digest: Digest::sha256(&[&packed]),
            size: packed.len() as u64,
            ..layer.clone()
        };
        let file: PathBuf = rig.directory.path().join(layer.digest.to_string());
        std::fs::write(&file, packed).unwrap();
        rig.server.serve_blob(&layer.digest, &file).unwrap();
    }
    manifest.media_type = Some("application/vnd.docker.distribution.manifest.v2+json".into());
    manifest.config.media_type = "application/vnd.docker.container.image.v1+json".into();
    let text = serde_json::to_vec(&manifest).unwrap();
    let digest = Digest::sha256(&[&text]);
    let kind = "application/vnd.docker.distribution.manifest.list.v2+json";
    let index = format!(
        r#"{{"schemaVersion":2,"mediaType":"{kind}","manifests":[{{"mediaType":"x","digest":"sha256:{digest}","size":{},
           "platform":{{"architecture":"amd64","os":"linux"}}}}]}}"#,
        text.len()
    );
    rig.server.serve_document("demo/app", "1", kind, index.as_bytes());
    rig.server.serve_document("demo/app", &format!("sha256:{digest}"), "x", &text);
    assert_eq!(pull(mirrors(&[http(&rig)])).await.unwrap(), whole());
}

fn certified(authority: &Authority, usage: Usage) -> Certified {
    let names = vec!["registry".to_owned(), "localhost".to_owned(), "127.0.0.1".to_owned()];
    let lifetime = Lifetime::from_now(LEAF_LIFETIME);
    authority.issue(&Leaf { names, organizations: Vec::new(), usage, lifetime }).unwrap()
}

fn server_config(identity: &Certified, clients: Option<&str>) -> Arc<rustls::ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = rustls::RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
            let verifier =
                rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let chain = CertificateDer::pem_slice_iter(identity.certificate.as_bytes()).flatten().collect();
    let key = identity.key.to_pem().expose_secret().replace(" ED25519 ", " ");
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    Arc::new(builder.with_single_cert(chain, key).unwrap())
}

#[tokio::test]
async fn certificates_count_as_the_config_says() {
    let authority = Authority::generate("registries", Lifetime::from_now(CA_LIFETIME)).unwrap();
    let (server, ours) = (certified(&authority, Usage::Server), certified(&authority, Usage::Client));
    let config = server_config(&server, Some(authority.certificate()));
    let rig = rig_with(Some(config), Behaviour::default(), "amd64").await;
    let with = |tls: Tls| {
        let mut settings = mirrors(&[format!("https://{}", rig.server.address())]);
        settings.hosts.insert(rig.server.address().to_string(), Host { tls, auth: None });
        settings
    };
    let identity = Some(Identity {
        certificate: ours.certificate.clone(),
        key: Zeroizing::new(ours.key.to_pem().expose_secret().to_owned()),
    });
    let trusted = Tls { authorities: authority.certificate().to_owned(), identity, insecure: false };
    assert_eq!(pull(with(trusted.clone())).await.unwrap(), whole());
    let blind = Tls { insecure: true, authorities: String::new(), ..trusted.clone() };
    assert_eq!(pull(with(blind)).await.unwrap(), whole());
    let begin = Instant::now();
    let unknown = pull(with(Tls { authorities: String::new(), ..trusted.clone() })).await.unwrap_err();
    assert!(unknown.to_string().contains("TLS with 127.0.0.1"), "{unknown}");
    assert!(begin.elapsed() < Duration::from_secs(3), "a certificate that is not trusted is not tried again");
    assert!(pull(with(Tls { identity: None, ..trusted })).await.is_err());
}

/// A proxy on loopback that counts: whole addresses and tunnels; every host is the one given.
async fn proxy(to: std::net::SocketAddr, seen: Arc<std::sync::Mutex<Vec<String>>>) -> u16 {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let seen = seen.clone();
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(client.read_u8().await.unwrap());
                }
                let text = String::from_utf8(head).unwrap();
                seen.lock().unwrap().push(text.clone());
                let mut server = tokio::net::TcpStream::connect(to).await.unwrap();
                if text.starts_with("CONNECT ") {
                    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.unwrap();
                } else {
                    let path = text.replacen("http://", "", 1);
                    let (_, rest) = path.split_once('/').unwrap();
                    server.write_all(format!("GET /{rest}").as_bytes()).await.unwrap();
                }
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    port
}

fn with_proxy(settings: Settings, name: &'static str, port: u16) -> Settings {
    let value = format!("http://me:secret@127.0.0.1:{port}");
    let proxies = Proxies::of_environment(|known| (known == name).then(|| value.clone()));
    Settings { proxies: proxies.ok().unwrap(), ..settings }
}

#[tokio::test]
async fn an_image_is_pulled_through_a_proxy() {
    let rig = rig(Behaviour::default()).await;
    let seen = Arc::default();
    let port = proxy(rig.server.address(), Arc::clone(&seen)).await;
    // A name that nobody but the proxy knows.
    let settings = with_proxy(mirrors(&["http://mirror.invalid:81".to_owned()]), "http_proxy", port);
    assert_eq!(pull(settings).await.unwrap(), whole());
    let seen = seen.lock().unwrap();
    assert!(seen[0].starts_with("GET http://mirror.invalid:81/v2/demo/app/manifests/1?ns="), "{}", seen[0]);
    assert!(
        seen.iter().all(|head| head.to_ascii_lowercase().contains("proxy-authorization: basic bwu6c2vjcmv0"))
    );
}

#[tokio::test]
async fn https_goes_through_a_tunnel_and_the_proxys_password_ends_at_the_proxy() {
    let authority = Authority::generate("registry", Lifetime::from_now(CA_LIFETIME)).unwrap();
    let leaf = Leaf {
        organizations: vec![],
        names: vec!["mirror.invalid".to_owned()],
        usage: Usage::Server,
        lifetime: Lifetime::from_now(LEAF_LIFETIME),
    };
    let server = server_config(&authority.issue(&leaf).unwrap(), None);
    let rig = rig_with(Some(server), Behaviour::default(), "amd64").await;
    let seen = Arc::default();
    let port = proxy(rig.server.address(), Arc::clone(&seen)).await;
    let mut settings = mirrors(&["https://mirror.invalid".to_owned()]);
    let tls = Tls { authorities: authority.certificate().to_owned(), ..Tls::default() };
    settings.hosts.insert("mirror.invalid".into(), Host { tls, auth: None });
    assert_eq!(pull(with_proxy(settings, "HTTPS_PROXY", port)).await.unwrap(), whole());
    let seen = seen.lock().unwrap();
    assert!(seen.iter().all(|head| head.starts_with("CONNECT mirror.invalid:443 HTTP/1.1\r\n")), "{seen:?}");
}
