//! HTTP: the script, the bundle and the configs.
//!
//! Owns: three places, `/boot.ipxe`, `/bundle/…` and `/config`; ranges, so that a broken download goes on where it was.
//! Does not: anything but GET and HEAD; know whether it is asked over TLS but for saying so.
//! Source: RFC 9110 §14 (one range of bytes).

use std::io::{self, SeekFrom};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HOST, HeaderValue, RANGE};
use hyper::{Method, Request, Response, StatusCode};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::event::{Event, Machine, Tell};
use crate::files::{self, Content, Files, Opened};
use crate::mac::Mac;
use crate::uki;

type Body = BoxBody<Bytes, io::Error>;

/// How much is read from a file at once.
const PIECE_BYTES: usize = 64 << 10;
/// Pieces between the file and the connection. With one that is read and one that is sent, a connection that takes nothing
/// holds three.
const QUEUE: usize = 1;

/// Who asks, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Client {
    pub(crate) from: SocketAddr,
    /// `HTTP` or `HTTPS`.
    pub(crate) by: &'static str,
}

impl Client {
    /// Who asks, as far as the request says.
    fn machine(self, request: &Request<Incoming>) -> Machine {
        let own = || request.uri().path().strip_prefix("/bundle/").and_then(files::owner);
        Machine { address: self.from.ip(), mac: mac(request).or_else(own) }
    }
}

/// Answers one request.
pub(crate) async fn answer(
    request: Request<Incoming>,
    client: Client,
    files: Arc<Files>,
    tell: Tell,
) -> Result<Response<Body>, std::convert::Infallible> {
    let by = client.by;
    let name = request.uri().path().to_owned();
    let to = client.machine(&request);
    let nothing = |status, reason: &str| {
        tell(Event::Failed { to, by, name: name.clone(), reason: reason.to_owned() });
        status_answer(status, reason.to_owned())
    };
    let starts = |what| {
        if request.method() == Method::GET {
            files.start_of(to, what).into_iter().for_each(|event| tell(event));
        }
    };
    let answered = match find(&request, &files) {
        Found::Script(text) => text.and_then(|text| {
            starts(files::SCRIPT);
            text_answer(&text)
        }),
        Found::Config(path) => {
            let answered = Opened::file(&path).and_then(|file| file_answer(&request, file, None));
            if answered.is_ok() {
                tell(Event::Config { to, name: files::name_of(&path), fault: files.fault(&path) });
            }
            answered
        }
        Found::File(file) => {
            let done = Done { tell: tell.clone(), to, by, name: name.clone(), began: Instant::now() };
            let is_own = files::owner(&file).is_some();
            match open(&files, file).await {
                Some(file) => {
                    if is_own && file.is_ok() {
                        starts(uki::NAME);
                    }
                    file.and_then(|file| file_answer(&request, file, Some(done)))
                }
                None => nothing(StatusCode::NOT_FOUND, "there is no such file"),
            }
        }
        Found::Nothing(status, reason) => nothing(status, reason),
    };
    Ok(answered.unwrap_or_else(|error| {
        tell(Event::Failed { to, by, name, reason: error.to_string() });
        status_answer(StatusCode::INTERNAL_SERVER_ERROR, String::new()).unwrap_or_default()
    }))
}

/// Who has a connection has shown that it takes answers.
async fn open(files: &Arc<Files>, name: String) -> Option<io::Result<Opened>> {
    match files.clone().find_named(name).await? {
        Ok(found) => Some(found.open().await),
        Err(error) => Some(Err(error)),
    }
}

enum Found {
    Script(io::Result<String>),
    Config(PathBuf),
    /// By its name in the bundle.
    File(String),
    Nothing(StatusCode, &'static str),
}

fn find(request: &Request<Incoming>, files: &Files) -> Found {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return Found::Nothing(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered");
    }
    let path = request.uri().path();
    if path == "/boot.ipxe" {
        let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
        // Without it nobody can be told where the config is.
        let Some(host) = host else {
            return Found::Nothing(StatusCode::BAD_REQUEST, "the request has no Host");
        };
        return Found::Script(files.script(host, mac(request)));
    }
    if path == "/config" {
        let Some(mac) = mac(request) else {
            return Found::Nothing(
                StatusCode::BAD_REQUEST,
                "a config is asked for as /config?mac=52-54-00-12-34-56",
            );
        };
        return files
            .config_of(mac)
            .map_or(Found::Nothing(StatusCode::NOT_FOUND, "this machine has no config"), Found::Config);
    }
    let file = path.strip_prefix("/bundle/").map(str::to_owned);
    file.map_or(Found::Nothing(StatusCode::NOT_FOUND, "there is no such file"), Found::File)
}

fn mac(request: &Request<Incoming>) -> Option<Mac> {
    let query = request.uri().query()?;
    query.split('&').find_map(|pair| pair.strip_prefix("mac=")).and_then(Mac::parse)
}

/// Tells of a file that was fetched to its end.
struct Done {
    tell: Tell,
    to: Machine,
    by: &'static str,
    name: String,
    began: Instant,
}

fn file_answer(request: &Request<Incoming>, file: Opened, done: Option<Done>) -> io::Result<Response<Body>> {
    let Opened { content: mut file, length } = file;
    let asked = request.headers().get(RANGE).and_then(|range| range.to_str().ok());
    let (first, last) = match range(asked, length) {
        Some(Ok(range)) => range,
        Some(Err(())) => {
            let value = HeaderValue::from_str(&format!("bytes */{length}")).map_err(io::Error::other)?;
            let mut answer = status_answer(StatusCode::RANGE_NOT_SATISFIABLE, String::new())?;
            answer.headers_mut().insert(CONTENT_RANGE, value);
            return Ok(answer);
        }
        None => (0, length),
    };
    let is_part = (first, last) != (0, length);
    let status = if is_part { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
    let mut answer = Response::builder()
        .status(status)
        .header(ACCEPT_RANGES, "bytes")
        .header(CONTENT_TYPE, "application/octet-stream")
        .header(CONTENT_LENGTH, last - first);
    if is_part {
        answer = answer.header(CONTENT_RANGE, format!("bytes {first}-{}/{length}", last - 1));
    }
    if request.method() == Method::HEAD {
        return answer.body(empty()).map_err(io::Error::other);
    }
    file.seek(SeekFrom::Start(first))?;
    let (sender, receiver) = mpsc::channel(QUEUE);
    tokio::spawn(async move {
        let sent = stream(file, last - first, &sender).await;
        if let (Ok(bytes), Some(done)) = (sent, done)
            && bytes == last - first
        {
            let Done { tell, to, by, name, began } = done;
            tell(Event::Sent { to, by, name, bytes, took: began.elapsed() });
        }
    });
    answer.body(BodyExt::boxed(StreamBody::new(ReceiverStream::new(receiver)))).map_err(io::Error::other)
}

/// Reads so much of a file into the connection; how much went. A thread is busy only while it reads.
async fn stream(
    mut file: Box<dyn Content>,
    bytes: u64,
    sender: &mpsc::Sender<io::Result<Frame<Bytes>>>,
) -> io::Result<u64> {
    let mut sent = 0;
    while sent < bytes {
        let room = usize::try_from(bytes - sent).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
        let (back, read) = read_piece(file, room).await?;
        file = back;
        let piece = match read {
            Ok(piece) if piece.is_empty() => return Ok(sent),
            Ok(piece) => piece,
            Err(error) => {
                // The client sees a connection that ends before its time.
                let _ = sender.send(Err(io::Error::new(error.kind(), error.to_string()))).await;
                return Err(error);
            }
        };
        sent += piece.len() as u64;
        sender
            .send(Ok(Frame::data(piece.into())))
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
    }
    Ok(sent)
}

/// The file comes back with what was read of it.
async fn read_piece(
    mut file: Box<dyn Content>,
    room: usize,
) -> io::Result<(Box<dyn Content>, io::Result<Vec<u8>>)> {
    let reading = tokio::task::spawn_blocking(move || {
        let mut piece = vec![0; room];
        let read = file.read(&mut piece).map(|count| {
            piece.truncate(count);
            piece
        });
        (file, read)
    });
    reading.await.map_err(io::Error::other)
}

/// First byte and the one behind the last, of a request for one range. `None`: all of it. An error: there is none of it.
fn range(asked: Option<&str>, length: u64) -> Option<Result<(u64, u64), ()>> {
    let (first, last) = asked?.strip_prefix("bytes=")?.split_once('-')?;
    if first.is_empty() {
        let count: u64 = last.parse().ok()?;
        return Some(if count == 0 { Err(()) } else { Ok((length.saturating_sub(count), length)) });
    }
    let first: u64 = first.parse().ok()?;
    let end = match last {
        "" => length,
        last => last.parse::<u64>().ok()?.saturating_add(1).min(length),
    };
    Some(if first < end { Ok((first, end)) } else { Err(()) })
}

fn text_answer(text: &str) -> io::Result<Response<Body>> {
    let body = Full::new(Bytes::copy_from_slice(text.as_bytes())).map_err(|never| match never {}).boxed();
    Response::builder().header(CONTENT_TYPE, "text/plain").body(body).map_err(io::Error::other)
}

fn status_answer(status: StatusCode, reason: String) -> io::Result<Response<Body>> {
    let body = Full::new(Bytes::from(reason + "\n")).map_err(|never| match never {}).boxed();
    Response::builder().status(status).body(body).map_err(io::Error::other)
}

fn empty() -> Body {
    Full::new(Bytes::new()).map_err(|never| match never {}).boxed()
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// A server on loopback over a bundle with one file and a config for one machine.
    struct Rig {
        directory: tempfile::TempDir,
        address: SocketAddr,
        told: Arc<Mutex<Vec<Event>>>,
    }

    async fn rig() -> Rig {
        let directory = tempfile::tempdir().unwrap();
        for name in ["bundle", "configs"] {
            std::fs::create_dir(directory.path().join(name)).unwrap();
        }
        for (name, text) in [
            ("bundle/boot.ipxe", "#!ipxe\nkernel vmlinuz ${billet-args}\n"),
            ("bundle/vmlinuz", "0123456789"),
            ("configs/52-54-00-12-34-56.yaml", "its config"),
        ] {
            std::fs::write(directory.path().join(name), text).unwrap();
        }
        let configs = directory.path().join("configs");
        let files = Files::open(&directory.path().join("bundle"), Some(&configs)).unwrap();
        let files = Arc::new(files.checked_by(|_| Err("it is none".to_owned())));
        let told: Arc<Mutex<Vec<Event>>> = Arc::default();
        let hears = told.clone();
        let tell: Tell =
            Arc::new(move |event| hears.lock().unwrap_or_else(PoisonError::into_inner).push(event));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (stream, from) = listener.accept().await.unwrap();
                let (files, tell) = (files.clone(), tell.clone());
                let client = Client { from, by: "HTTP" };
                let service = hyper::service::service_fn(move |request| {
                    answer(request, client, files.clone(), tell.clone())
                });
                let stream = hyper_util::rt::TokioIo::new(stream);
                tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(stream, service));
            }
        });
        Rig { directory, address, told }
    }

    /// Status, headers in lower case, and content.
    async fn ask(rig: &Rig, line: &str, headers: &str) -> (String, String) {
        let mut stream = TcpStream::connect(rig.address).await.unwrap();
        let request = format!("{line} HTTP/1.1\r\nHost: boot:8080\r\nConnection: close\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        let (head, content) = text.split_once("\r\n\r\n").unwrap();
        (head.to_ascii_lowercase(), content.to_owned())
    }

    #[tokio::test]
    async fn files_come_whole_and_in_part() {
        let rig = rig().await;
        let (head, content) = ask(&rig, "GET /bundle/vmlinuz", "").await;
        assert!(head.starts_with("http/1.1 200") && head.contains("content-length: 10"), "{head}");
        assert_eq!(content, "0123456789");
        let (head, content) = ask(&rig, "GET /bundle/vmlinuz", "Range: bytes=7-\r\n").await;
        assert!(head.starts_with("http/1.1 206") && head.contains("content-range: bytes 7-9/10"), "{head}");
        assert_eq!(content, "789");
        let (head, content) = ask(&rig, "HEAD /bundle/vmlinuz", "").await;
        assert!(head.contains("content-length: 10") && content.is_empty(), "{head}");
        let (head, _) = ask(&rig, "GET /bundle/vmlinuz", "Range: bytes=10-\r\n").await;
        assert!(head.starts_with("http/1.1 416") && head.contains("content-range: bytes */10"), "{head}");
        let told = rig.told.lock().unwrap().clone();
        assert!(
            matches!(&told[0], Event::Sent { name, bytes: 10, .. } if name == "/bundle/vmlinuz"),
            "{told:?}"
        );
    }

    /// The kernel would take a part of the config's address without a word.
    #[tokio::test]
    async fn a_machine_whose_command_line_would_be_cut_off_is_told_of() {
        let rig = rig().await;
        let line = format!("#!ipxe\nkernel vmlinuz {} ${{billet-args}}\n", "k".repeat(2000));
        std::fs::write(rig.directory.path().join("bundle/boot.ipxe"), line).unwrap();
        let (_, script) = ask(&rig, "GET /boot.ipxe?mac=52-54-00-00-00-01", "").await;
        assert!(script.ends_with("chain bundle/boot.ipxe\n"), "{script}");
        let (head, _) = ask(&rig, "GET /boot.ipxe?mac=52-54-00-12-34-56", "").await;
        assert!(head.starts_with("http/1.1 500"), "{head}");
        let told = rig.told.lock().unwrap().clone();
        let [Event::Starts { .. }, failed] = &told[..] else { panic!("{told:?}") };
        let wanted = "52:54:00:12:34:56, 127.0.0.1: /boot.ipxe by HTTP: the kernel's command line would have 2068 bytes";
        assert!(failed.to_string().starts_with(wanted), "{failed}");
    }

    #[tokio::test]
    async fn a_machine_learns_of_its_config_and_takes_it() {
        let rig = rig().await;
        let (_, script) = ask(&rig, "GET /boot.ipxe?mac=52-54-00-12-34-56", "").await;
        assert!(script.contains("billet.config=http://boot:8080/config?mac=52-54-00-12-34-56"), "{script}");
        let (_, script) = ask(&rig, "GET /boot.ipxe?mac=52-54-00-00-00-01", "").await;
        let wanted = "#!ipxe\nset billet-root http://boot:8080/bundle/layers\nchain bundle/boot.ipxe\n";
        assert_eq!(script, wanted);
        let (_, config) = ask(&rig, "GET /config?mac=52:54:00:12:34:56", "").await;
        assert_eq!(config, "its config");
        for (line, status) in [
            ("GET /config?mac=52-54-00-00-00-01", "404"),
            ("GET /config", "400"),
            ("GET /bundle/../configs/52-54-00-12-34-56.yaml", "404"),
            ("GET /", "404"),
            ("POST /boot.ipxe", "405"),
        ] {
            let (head, _) = ask(&rig, line, "").await;
            assert!(head.starts_with(&format!("http/1.1 {status}")), "{line}: {head}");
        }
        let told = rig.told.lock().unwrap().clone();
        let mac = Mac::parse("52-54-00-12-34-56");
        let to = Machine { mac, ..told_to(&told[0]) };
        let (config, fault) = ("52-54-00-12-34-56.yaml".to_owned(), Some("it is none".to_owned()));
        assert_eq!(told[0], Event::Starts { to, what: "boot.ipxe", config: Some(config.clone()) });
        let other = Machine { mac: Mac::parse("52-54-00-00-00-01"), ..told_to(&told[1]) };
        assert_eq!(told[1], Event::Starts { to: other, what: "boot.ipxe", config: None });
        assert_eq!(told[2], Event::Config { to: Machine { mac, ..told_to(&told[2]) }, name: config, fault });
    }

    /// Its port is another one each time, its address is not.
    fn told_to(event: &Event) -> Machine {
        match event {
            Event::Starts { to, .. } | Event::Config { to, .. } => *to,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn one_range_is_understood() {
        let of = |text| range(Some(text), 100);
        assert_eq!(range(None, 100), None);
        assert_eq!(of("bytes=0-"), Some(Ok((0, 100))));
        assert_eq!(of("bytes=10-19"), Some(Ok((10, 20))));
        assert_eq!(of("bytes=90-1000"), Some(Ok((90, 100))));
        assert_eq!(of("bytes=-10"), Some(Ok((90, 100))));
        assert_eq!(of("bytes=-1000"), Some(Ok((0, 100))));
        for bad in ["bytes=100-", "bytes=20-10", "bytes=-0"] {
            assert_eq!(of(bad), Some(Err(())), "{bad}");
        }
        // What is not understood is as if it were not there: all of the file.
        for odd in ["bytes=a-", "lines=1-2", "bytes=1-2,4-5", "bytes="] {
            assert_eq!(of(odd), None, "{odd}");
        }
    }
}
