//! A web server of the test's own, that guests reach through QEMU's user network.
//!
//! Owns: one thread that answers every request from a table of texts, files and redirects, over TLS too. Does not: speak
//! more of HTTP than that takes, ranges for instance.
//! As a proxy it notes who is asked for, and refuses.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use api::pki::Identity;
use api::tls::{self, Identities};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// How a guest sees the host.
pub const HOST: &str = "10.0.2.2";
/// A client that sends nothing does not keep the next one waiting for longer.
const READ_LIMIT: Duration = Duration::from_secs(5);

/// What is at a path.
#[derive(Debug, Clone)]
enum Page {
    Text(String),
    File(PathBuf),
    Elsewhere(String),
}

#[derive(Default)]
struct Shared {
    /// By path with query; what is not there is answered with 404.
    pages: BTreeMap<String, Page>,
    /// Every path that was asked for.
    asked: Vec<String>,
}

/// A running server; its thread ends with the program.
#[derive(Clone)]
pub struct Web {
    port: u16,
    tls: Option<Arc<ServerConfig>>,
    shared: Arc<Mutex<Shared>>,
}

impl Web {
    /// Listens on a free port of 127.0.0.1.
    pub fn start() -> Result<Self> {
        Self::serve_on(None)
    }

    /// The same over TLS, as what the certificate says.
    pub fn start_tls(identity: &Identity) -> Result<Self> {
        let mut config = tls::server_without_clients(Identities::new(identity)?)?.as_ref().clone();
        // Clients would take HTTP/2 from the list that our API offers.
        config.alpn_protocols.clear();
        Self::serve_on(Some(Arc::new(config)))
    }

    fn serve_on(tls: Option<Arc<ServerConfig>>) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).context("listen for the guest")?;
        let port = listener.local_addr().context("read the port")?.port();
        let web = Self { port, tls, shared: Arc::default() };
        let serving = web.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A guest that hangs up is its own business.
                let _ = serving.accept(stream);
            }
        });
        Ok(web)
    }

    /// The server's address as a guest writes it.
    pub fn address(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.authority())
    }

    /// Host and port as a guest writes them.
    pub fn authority(&self) -> String {
        format!("{HOST}:{}", self.port)
    }

    /// Serves a text at a path.
    pub fn serve(&self, path: &str, text: &str) {
        self.put(path, Page::Text(text.to_owned()));
    }

    /// Serves a file at a path.
    pub fn serve_file(&self, path: &str, file: &Path) {
        self.put(path, Page::File(file.to_owned()));
    }

    /// Sends who asks for a path to an address.
    pub fn redirect(&self, path: &str, to: &str) {
        self.put(path, Page::Elsewhere(to.to_owned()));
    }

    fn put(&self, path: &str, page: Page) {
        self.shared().pages.insert(path.to_owned(), page);
    }

    /// What was asked for so far.
    pub fn asked(&self) -> Vec<String> {
        self.shared().asked.clone()
    }

    fn shared(&self) -> std::sync::MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(&self, stream: TcpStream) -> std::io::Result<()> {
        stream.set_read_timeout(Some(READ_LIMIT))?;
        let Some(config) = self.tls.clone() else { return self.answer(stream) };
        let connection = ServerConnection::new(config).map_err(std::io::Error::other)?;
        self.answer(StreamOwned::new(connection, stream))
    }

    fn answer(&self, mut stream: impl Read + Write) -> std::io::Result<()> {
        let mut lines = BufReader::new(&mut stream).lines();
        let request = lines.next().transpose()?.unwrap_or_default();
        while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
        let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
        let page = self.shared().pages.get(&path).cloned();
        self.shared().asked.push(path);
        let (status, mut body): (_, Box<dyn Read>) = match &page {
            Some(Page::Text(text)) => (length(text.len() as u64), Box::new(text.as_bytes())),
            Some(Page::File(path)) => {
                let file = File::open(path)?;
                (length(file.metadata()?.len()), Box::new(file))
            }
            Some(Page::Elsewhere(to)) => {
                (format!("302 Found\r\nLocation: {to}\r\nContent-Length: 0"), Box::new(std::io::empty()))
            }
            None => ("404 Not Found\r\nContent-Length: 0".to_owned(), Box::new(std::io::empty())),
        };
        write!(stream, "HTTP/1.1 {status}\r\nConnection: close\r\n\r\n")?;
        std::io::copy(&mut body, &mut stream)?;
        stream.flush()
    }
}

/// Status and length of a page that is there.
fn length(bytes: u64) -> String {
    format!("200 OK\r\nContent-Length: {bytes}")
}
