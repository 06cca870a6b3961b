//! A read-only registry that serves images from layouts in tar files, for tests.
//!
//! Owns: the answers of a registry, and on request its failures: sign-ins, broken connections, missing ranges, detours.
//! Does not: guard anything; it listens on 127.0.0.1, or where a test says that has a network of its own.
//! Source: OCI distribution specification 1.1, "Pull".

use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

/// What a registry wants to see.
#[derive(Debug, Clone, Default)]
pub enum Guard {
    /// Nothing.
    #[default]
    Open,
    /// Name and password.
    Basic(String, String),
    /// A token, bought with name and password at `/token`.
    Token(String, String),
}

/// How a registry behaves.
#[derive(Clone, Default)]
pub struct Behaviour {
    /// What it wants to see.
    pub guard: Guard,
    /// Answers ranges with everything.
    pub no_ranges: bool,
    /// Blobs are elsewhere: the address of another registry.
    pub blobs_at: Option<String>,
    /// So many answers with blobs break off in the middle.
    pub broken_answers: usize,
    /// So many requests are answered with 503 first.
    pub unavailable: usize,
    /// Blobs are never answered: the registry is gone once the manifest is read.
    pub no_blobs: bool,
    /// So many blobs are answered, then the registry is gone.
    pub gone_after: Option<usize>,
    /// One byte of every blob is wrong.
    pub corrupt: bool,
    /// Tokens are had elsewhere: scheme, host and port of another server, which is asked at `/token`.
    pub realm: Option<String>,
    /// Tokens are had without a password.
    pub tokens_for_all: bool,
}

#[derive(Default)]
struct State {
    manifests: BTreeMap<String, (String, Vec<u8>)>,
    blobs: BTreeMap<String, (std::path::PathBuf, u64, u64)>,
    /// Answers that are left before one byte is another, and which byte.
    changes: BTreeMap<String, (usize, usize)>,
    asked: Vec<String>,
    /// What came as `Authorization`.
    shown: Vec<String>,
}

/// A running registry; it ends with the runtime it was started on.
#[derive(Clone)]
pub struct Server {
    address: SocketAddr,
    tls: Option<Arc<ServerConfig>>,
    state: Arc<Mutex<State>>,
    behaviour: Arc<Mutex<Behaviour>>,
}

impl Server {
    /// Listens on a free port of 127.0.0.1, with TLS if there is a configuration for it.
    pub async fn start(tls: Option<Arc<ServerConfig>>, behaviour: Behaviour) -> io::Result<Self> {
        Self::start_at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), tls, behaviour).await
    }

    /// The same at an address of a network that the test made.
    pub async fn start_at(
        address: SocketAddr,
        tls: Option<Arc<ServerConfig>>,
        behaviour: Behaviour,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let behaviour = Arc::new(Mutex::new(behaviour));
        let server = Self { address, tls, state: Arc::default(), behaviour };
        let serving = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serving.clone().accept(stream));
            }
        });
        Ok(server)
    }

    /// Host and port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes how it behaves from now on.
    pub fn behave(&self, behaviour: Behaviour) {
        *self.behaviour() = behaviour;
    }

    /// Paths with queries that were asked for.
    #[must_use]
    pub fn asked(&self) -> Vec<String> {
        self.state().asked.clone()
    }

    /// What came as `Authorization`, oldest first.
    #[must_use]
    pub fn shown(&self) -> Vec<String> {
        self.state().shown.clone()
    }

    /// Serves a layout's image as `repository:tag`; returns its digest.
    pub fn serve(&self, archive: &Path, repository: &str, tag: &str) -> io::Result<ondisk::Digest> {
        let file = std::fs::File::open(archive)?;
        let mut entries = BTreeMap::new();
        for entry in tar::Archive::new(&file).entries_with_seek()? {
            let entry = entry?;
            let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            entries.insert(name, (entry.raw_file_position(), entry.size()));
        }
        let mut state = self.state();
        for (name, (start, length)) in &entries {
            let Some(hex) = name.strip_prefix("blobs/sha256/") else { continue };
            state.blobs.insert(format!("sha256:{hex}"), (archive.to_owned(), *start, *length));
        }
        let (start, length) = *entries.get("index.json").ok_or(io::ErrorKind::NotFound)?;
        let index: crate::document::Index = serde_json::from_slice(&piece(archive, start, length)?)?;
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let image = index.manifests.first().ok_or_else(missing)?;
        let digest = format!("sha256:{}", image.digest);
        let (path, start, length) = state.blobs.get(&digest).cloned().ok_or_else(missing)?;
        let manifest = piece(&path, start, length)?;
        for target in [tag, &digest] {
            let key = format!("{repository}/manifests/{target}");
            state.manifests.insert(key, (image.media_type.clone(), manifest.clone()));
        }
        Ok(image.digest)
    }

    /// Serves any document as `repository:target`.
    pub fn serve_document(&self, repository: &str, target: &str, kind: &str, document: &[u8]) {
        let key = format!("{repository}/manifests/{target}");
        self.state().manifests.insert(key, (kind.to_owned(), document.to_vec()));
    }

    /// Serves the bytes of a file as a blob.
    pub fn serve_blob(&self, digest: &ondisk::Digest, file: &Path) -> io::Result<()> {
        let length = std::fs::metadata(file)?.len();
        self.state().blobs.insert(format!("sha256:{digest}"), (file.to_owned(), 0, length));
        Ok(())
    }

    /// What is served as `repository/manifests/target`.
    #[must_use]
    pub fn document(&self, key: &str) -> Option<Vec<u8>> {
        self.state().manifests.get(key).map(|(_, document)| document.clone())
    }

    /// Changes the byte `at` of a blob (`sha256:…`) or manifest (`repository/manifests/target`) in every answer behind so many.
    pub fn change_after(&self, what: &str, answers: usize, at: usize) {
        self.state().changes.insert(what.to_owned(), (answers, at));
    }

    /// The byte of this answer that is to be another one.
    fn change(&self, what: &str) -> Option<usize> {
        let mut state = self.state();
        let (left, at) = state.changes.get_mut(what)?;
        match left.checked_sub(1) {
            None => Some(*at),
            Some(fewer) => {
                *left = fewer;
                None
            }
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn behaviour(&self) -> std::sync::MutexGuard<'_, Behaviour> {
        self.behaviour.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn accept(self, stream: TcpStream) {
        let Some(tls) = self.tls.clone() else { return self.speak(stream).await };
        if let Ok(stream) = tokio_rustls::TlsAcceptor::from(tls).accept(stream).await {
            self.speak(stream).await;
        }
    }

    async fn speak(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let service = service_fn(|request| {
            let answer = self.answer(&request);
            async move { answer }
        });
        // A client that hangs up is its own business.
        let _ =
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
    }

    fn answer(&self, request: &Request<Incoming>) -> io::Result<Response<Full<Bytes>>> {
        let path = request.uri().path().to_owned();
        let shown = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
        self.state().asked.push(shown);
        let authorization = request.headers().get(header::AUTHORIZATION);
        self.state().shown.extend(authorization.and_then(|value| value.to_str().ok()).map(str::to_owned));
        let mut behaviour = self.behaviour();
        if behaviour.unavailable > 0 {
            behaviour.unavailable -= 1;
            return respond(StatusCode::SERVICE_UNAVAILABLE, Vec::new(), &[]);
        }
        if let Some(refusal) = self.guard(&behaviour, &path, request.headers()) {
            return refusal;
        }
        let Some(rest) = path.strip_prefix("/v2/") else { return not_found() };
        let found = self.state().manifests.get(rest).cloned();
        if let Some((kind, mut manifest)) = found {
            flip(&mut manifest, self.change(rest));
            return respond(StatusCode::OK, manifest, &[("content-type", &kind)]);
        }
        let Some((repository, digest)) = rest.split_once("/blobs/") else { return not_found() };
        if behaviour.no_blobs || behaviour.gone_after == Some(0) {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        behaviour.gone_after = behaviour.gone_after.map(|left| left - 1);
        if let Some(elsewhere) = &behaviour.blobs_at {
            let location = format!("{elsewhere}/v2/{repository}/blobs/{digest}");
            return respond(StatusCode::TEMPORARY_REDIRECT, Vec::new(), &[("location", &location)]);
        }
        let Some((file, start, length)) = self.state().blobs.get(digest).cloned() else { return not_found() };
        let from = offset(request.headers()).filter(|from| !behaviour.no_ranges && *from < length);
        let status = if from.is_some() { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
        let from = from.unwrap_or(0);
        let mut content = piece(&file, start + from, length - from)?;
        let skipped = usize::try_from(from).unwrap_or(usize::MAX);
        flip(&mut content, self.change(digest).and_then(|at| at.checked_sub(skipped)));
        if behaviour.corrupt
            && let Some(byte) = content.last_mut()
        {
            *byte ^= 1;
        }
        let announced = content.len().to_string();
        if behaviour.broken_answers > 0 {
            behaviour.broken_answers -= 1;
            content.truncate(content.len() / 2);
        }
        // A length that is announced and not kept to breaks the connection, as it should.
        respond(status, content, &[("content-length", &announced)])
    }

    /// What somebody without the right words gets.
    fn guard(
        &self,
        behaviour: &Behaviour,
        path: &str,
        headers: &HeaderMap,
    ) -> Option<io::Result<Response<Full<Bytes>>>> {
        let shown =
            headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let pair =
            |name: &str, password: &str| format!("Basic {}", STANDARD.encode(format!("{name}:{password}")));
        match &behaviour.guard {
            Guard::Open => None,
            Guard::Basic(name, password) if shown == pair(name, password) => None,
            Guard::Basic(..) => Some(refuse("Basic realm=\"test\"")),
            Guard::Token(name, password) if path == "/token" => {
                Some(if behaviour.tokens_for_all || shown == pair(name, password) {
                    respond(StatusCode::OK, br#"{"token":"bought"}"#.to_vec(), &[])
                } else {
                    refuse("Basic realm=\"token\"")
                })
            }
            Guard::Token(..) if shown == "Bearer bought" => None,
            Guard::Token(..) => {
                let scheme = if self.tls.is_some() { "https" } else { "http" };
                let own = || format!("{scheme}://{}", self.address);
                let realm = behaviour.realm.clone().unwrap_or_else(own);
                Some(refuse(&format!("Bearer realm=\"{realm}/token\",service=\"test\"")))
            }
        }
    }
}

fn piece(file: &Path, start: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut file = std::fs::File::open(file)?;
    file.seek(SeekFrom::Start(start))?;
    let mut content = Vec::new();
    file.take(length).read_to_end(&mut content)?;
    Ok(content)
}

fn flip(content: &mut [u8], at: Option<usize>) {
    if let Some(byte) = at.and_then(|at| content.get_mut(at)) {
        *byte ^= 1;
    }
}

fn offset(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::RANGE)?.to_str().ok()?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
}

fn respond(status: StatusCode, body: Vec<u8>, headers: &[(&str, &str)]) -> io::Result<Response<Full<Bytes>>> {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, HeaderValue::from_str(value).map_err(io::Error::other)?);
    }
    response.body(Full::new(Bytes::from(body))).map_err(io::Error::other)
}

fn not_found() -> io::Result<Response<Full<Bytes>>> {
    let body = br#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}"#;
    respond(StatusCode::NOT_FOUND, body.to_vec(), &[])
}

fn refuse(challenge: &str) -> io::Result<Response<Full<Bytes>>> {
    respond(StatusCode::UNAUTHORIZED, Vec::new(), &[("www-authenticate", challenge)])
}
