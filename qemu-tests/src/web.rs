//! A web server of the test's own, that guests reach through QEMU's user network.
//!
//! Owns: one thread that answers every GET from a table. Does not: speak more of HTTP than that takes.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};

/// How a guest sees the host.
pub const HOST: &str = "10.0.2.2";
/// A client that sends nothing does not keep the next one waiting for longer.
const READ_LIMIT: Duration = Duration::from_secs(5);

#[derive(Default)]
struct Shared {
    /// Path with query, and content; what is not there is answered with 404.
    files: BTreeMap<String, String>,
    /// Every path that was asked for.
    asked: Vec<String>,
}

/// A running server; its thread ends with the program.
#[derive(Clone)]
pub struct Web {
    port: u16,
    shared: Arc<Mutex<Shared>>,
}

impl Web {
    /// Listens on a free port of 127.0.0.1.
    pub fn start() -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).context("listen for the guest")?;
        let port = listener.local_addr().context("read the port")?.port();
        let web = Self { port, shared: Arc::default() };
        let serving = web.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A guest that hangs up is its own business.
                let _ = serving.answer(stream);
            }
        });
        Ok(web)
    }

    /// The server's address as a guest writes it.
    pub fn address(&self) -> String {
        format!("http://{HOST}:{}", self.port)
    }

    /// Serves a text at a path.
    pub fn serve(&self, path: &str, text: &str) {
        self.shared().files.insert(path.to_owned(), text.to_owned());
    }

    /// What was asked for so far.
    pub fn asked(&self) -> Vec<String> {
        self.shared().asked.clone()
    }

    fn shared(&self) -> std::sync::MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, mut stream: TcpStream) -> std::io::Result<()> {
        stream.set_read_timeout(Some(READ_LIMIT))?;
        let mut lines = BufReader::new(stream.try_clone()?).lines();
        let request = lines.next().transpose()?.unwrap_or_default();
        while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
        let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
        let file = self.shared().files.get(&path).cloned();
        self.shared().asked.push(path);
        let (status, body) = match file {
            Some(text) => ("200 OK", text),
            None => ("404 Not Found", String::new()),
        };
        write!(
            stream,
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )
    }
}
