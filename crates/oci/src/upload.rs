//! A file that is put to an address: one PUT through the node's proxies, verified by the node's authorities.
//!
//! Owns: the deadlines: of each piece, and of all, which grows with the length. A password in the address and the caller's headers go to the server that the
//! address names; redirects are not followed.
//! Does not: try again. Memory: a piece of the file at a time.
//! Fails by: a sentence; it holds no password, no header and no query of the address.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt as _, Full};
use ondisk::printable;
use tokio::fs::File;
use tokio::io::{AsyncRead as _, ReadBuf};

use crate::download::{parse, sent, words};
use crate::registry::{Exchange, Sent, Settings, content};

/// Bytes of one read.
const PIECE: usize = 256 << 10;
/// For the server to take a piece, and to answer when it has all.
const STALL_DEADLINE: Duration = Duration::from_secs(60);
/// For connection and answer.
const BASE_DEADLINE: Duration = Duration::from_secs(60);
/// What a way out does at least.
const SLOWEST_BYTES_PER_SECOND: u64 = 64 << 10;
/// Of what a server says about a failure.
const MAX_TEXT_BYTES: usize = 16 << 10;
const MAX_SHOWN: usize = 200;

/// What is put.
pub enum Content {
    /// So many bytes from the place in the file.
    File(File, u64),
    /// These.
    Bytes(Vec<u8>),
}

/// Puts something to an http or https address.
///
/// # Errors
/// In words why not.
pub async fn upload(
    settings: Settings,
    address: &str,
    headers: &BTreeMap<String, String>,
    content: Content,
) -> Result<(), String> {
    let (uri, password) = parse(address)?;
    let mut headers = sent(headers)?;
    if let Some(password) = password {
        headers.insert(header::AUTHORIZATION, password);
    }
    let taken = Arc::new(AtomicU64::new(0));
    let (body, length) = match content {
        Content::File(file, length) => (Piecewise::new(file, length, taken.clone()).boxed_unsync(), length),
        Content::Bytes(bytes) => {
            let length = bytes.len() as u64;
            let body: Sent = Full::new(Bytes::from(bytes)).map_err(|never| match never {}).boxed_unsync();
            (body, length)
        }
    };
    let deadline = BASE_DEADLINE.saturating_add(Duration::from_secs(length / SLOWEST_BYTES_PER_SECOND));
    let exchange = Exchange::new(settings);
    let answer = tokio::select! {
        answer = exchange.put(&uri, headers, body, deadline) => answer.map_err(words)?,
        stalled = stalled(&taken, STALL_DEADLINE) => {
            let seconds = STALL_DEADLINE.as_secs();
            return Err(format!(
                "{} has taken {stalled} of {length} bytes, and no more for {seconds} s (deadline stall)",
                uri.host().unwrap_or_default()
            ));
        }
    };
    let status = answer.status();
    if status.is_success() {
        return Ok(());
    }
    let host = uri.host().unwrap_or_default();
    let text = self::content(answer.into_body(), MAX_TEXT_BYTES).await.unwrap_or_default();
    match reason(&String::from_utf8_lossy(&text)) {
        Some(reason) => Err(format!("{host} answered {status}: {reason}")),
        None => Err(format!("{host} answered {status}")),
    }
}

/// Waits until no byte was taken for so long; how many were until then.
async fn stalled(taken: &AtomicU64, deadline: Duration) -> u64 {
    loop {
        let before = taken.load(Ordering::Relaxed);
        tokio::time::sleep(deadline).await;
        if taken.load(Ordering::Relaxed) == before {
            return before;
        }
    }
}

/// What a server with buckets says about a failure.
fn reason(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("<Message>")?;
    let (message, _) = rest.split_once("</Message>")?;
    let short: String = message.chars().take(MAX_SHOWN).collect();
    (!short.is_empty()).then(|| printable::line(&short))
}

/// A file as a body.
struct Piecewise {
    file: File,
    left: u64,
    buffer: Vec<u8>,
    /// Bytes that were handed on.
    taken: Arc<AtomicU64>,
}

impl Piecewise {
    fn new(file: File, length: u64, taken: Arc<AtomicU64>) -> Self {
        Self { file, left: length, buffer: vec![0; PIECE], taken }
    }
}

impl Body for Piecewise {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        if this.left == 0 {
            return Poll::Ready(None);
        }
        let length = usize::try_from(this.left).unwrap_or(PIECE).min(PIECE);
        let mut buffer = ReadBuf::new(&mut this.buffer[..length]);
        ready!(Pin::new(&mut this.file).poll_read(context, &mut buffer))?;
        let read = buffer.filled();
        if read.is_empty() {
            return Poll::Ready(Some(Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the file became shorter",
            ))));
        }
        this.left = this.left.saturating_sub(read.len() as u64);
        this.taken.fetch_add(read.len() as u64, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(Bytes::copy_from_slice(read)))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// A server that takes one request, and what came.
    async fn server(answer: &'static str) -> (String, tokio::task::JoinHandle<Vec<u8>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let serving = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            loop {
                let mut part = vec![0; 1 << 16];
                let length = stream.read(&mut part).await.unwrap();
                request.extend_from_slice(&part[..length]);
                if length == 0 || is_whole(&request) {
                    break;
                }
            }
            stream.write_all(answer.as_bytes()).await.unwrap();
            request
        });
        (address, serving)
    }

    fn is_whole(request: &[u8]) -> bool {
        let Some(end) = request.windows(4).position(|window| window == b"\r\n\r\n") else { return false };
        let head = String::from_utf8_lossy(&request[..end]).to_ascii_lowercase();
        let (_, rest) = head.split_once("content-length: ").unwrap();
        let length: usize = rest.lines().next().unwrap().parse().unwrap();
        request.len() >= end + 4 + length
    }

    #[tokio::test]
    async fn a_refusal_before_the_file_was_read_is_said_with_its_reason() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}/b.db", listener.local_addr().unwrap());
        let serving = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = vec![0; 1 << 16];
            let length = stream.read(&mut head).await.unwrap();
            let text = "<Error><Message>The signature does not match</Message></Error>";
            let answer = format!(
                "HTTP/1.1 403 Forbidden\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
                text.len()
            );
            stream.write_all(answer.as_bytes()).await.unwrap();
            String::from_utf8_lossy(&head[..length]).to_ascii_lowercase()
        });
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let content = vec![0; 3_000_000];
        file.write_all(&content).unwrap();
        let opened = File::open(file.path()).await.unwrap();
        let content = Content::File(opened, content.len() as u64);
        let refused = upload(Settings::default(), &address, &BTreeMap::new(), content).await.unwrap_err();
        assert_eq!(refused, "127.0.0.1 answered 403 Forbidden: The signature does not match");
        let head = serving.await.unwrap();
        assert!(head.contains("expect: 100-continue") && head.ends_with("\r\n\r\n"), "{head}");
    }

    #[tokio::test]
    async fn a_file_is_put_whole_with_its_length_and_who_puts_it() {
        let content: Vec<u8> = (0..3_000_000_u32).map(|number| number.to_le_bytes()[0]).collect();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&content).unwrap();
        let (address, serving) = server("HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n").await;
        let opened = File::open(file.path()).await.unwrap();
        let headers = [("X-Key".to_owned(), "hunter2".to_owned())].into();
        let address = format!("http://me:secret@{address}/a/b.db?x=1");
        let length = content.len() as u64;
        upload(Settings::default(), &address, &headers, Content::File(opened, length)).await.unwrap();
        let request = serving.await.unwrap();
        let end = request.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
        let head = String::from_utf8_lossy(&request[..end]).to_ascii_lowercase();
        assert!(head.starts_with("put /a/b.db?x=1 http/1.1\r\n"), "{head}");
        assert!(
            head.contains("authorization: basic bwu6c2vjcmv0") && head.contains("x-key: hunter2"),
            "{head}"
        );
        assert!(request[end + 4..] == content);
    }

    #[tokio::test]
    async fn a_refusal_is_said_with_the_reason_and_without_secrets() {
        let answer = "HTTP/1.1 403 Forbidden\r\nContent-Length: 76\r\n\r\n\
                      <Error><Code>AccessDenied</Code><Message>Access Denied\u{1b}[1m</Message></Error>";
        let (address, _serving) = server(answer).await;
        let address = format!("http://me:hunter2@{address}/a?signature=hunter2");
        let bytes = Content::Bytes(b"x".to_vec());
        let error = upload(Settings::default(), &address, &BTreeMap::new(), bytes).await.unwrap_err();
        assert!(error.starts_with("127.0.0.1 answered 403 Forbidden: Access Denied"), "{error}");
        assert!(!error.contains('\u{1b}') && !error.contains("hunter2"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_takes_nothing_is_left() {
        let taken = AtomicU64::new(7);
        let more = async {
            tokio::time::sleep(Duration::from_secs(50)).await;
            taken.store(9, Ordering::Relaxed);
            std::future::pending::<()>().await;
        };
        let begin = tokio::time::Instant::now();
        tokio::select! {
            stalled = stalled(&taken, STALL_DEADLINE) => assert_eq!(stalled, 9),
            () = more => {}
        }
        assert_eq!(begin.elapsed(), 2 * STALL_DEADLINE);
    }

    #[tokio::test]
    async fn a_file_that_became_shorter_is_no_success() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (address, _serving) = server("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
        let opened = File::open(file.path()).await.unwrap();
        let address = format!("http://{address}/a");
        let put = upload(Settings::default(), &address, &BTreeMap::new(), Content::File(opened, 9)).await;
        assert!(put.is_err());
    }
}
