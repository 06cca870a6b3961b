//! HTTP/2 by hand: frames as bytes, HPACK without compression, and a connection that sends what no library would.
//!
//! Does not: check anything that is sent. Source: RFC 9113 §4.1 (frames), §6; RFC 7541 §5, §6.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::client::TlsStream;

use crate::{Fault, Target};

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Frame types of RFC 9113 §6.
pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const PRIORITY: u8 = 2;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PUSH_PROMISE: u8 = 5;
    pub(crate) const PING: u8 = 6;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const WINDOW_UPDATE: u8 = 8;
    pub(crate) const CONTINUATION: u8 = 9;
}

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const PADDED: u8 = 8;

const FRAME_HEAD_BYTES: usize = 9;
const OPEN_ATTEMPTS: u32 = 3;
/// Largest frame that a server takes without having said so.
pub(crate) const FRAME_BYTES: usize = 16 << 10;

/// A frame whose length is right.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let mut bytes = frame_head(length, kind, flags, stream);
    bytes.extend_from_slice(payload);
    bytes
}

/// The nine bytes before a payload, with any length.
pub(crate) fn frame_head(length: u32, kind: u8, flags: u8, stream: u32) -> Vec<u8> {
    let mut bytes = length.to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes
}

/// One setting (RFC 9113 §6.5.1).
pub(crate) fn setting(number: u16, value: u32) -> Vec<u8> {
    [&number.to_be_bytes()[..], &value.to_be_bytes()].concat()
}

/// A string of HPACK, not Huffman coded.
pub(crate) fn string(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    match u8::try_from(text.len()) {
        Ok(length) if length < 127 => bytes.push(length),
        _ => {
            bytes.push(127);
            let mut rest = text.len().saturating_sub(127);
            while rest >= 128 {
                bytes.push(u8::try_from(rest % 128).unwrap_or_default() | 128);
                rest /= 128;
            }
            bytes.push(u8::try_from(rest).unwrap_or_default());
        }
    }
    bytes.extend_from_slice(text);
    bytes
}

/// A field that no table keeps.
pub(crate) fn field(name: &[u8], value: &[u8]) -> Vec<u8> {
    [&[0][..], &string(name), &string(value)].concat()
}

/// The header block of a gRPC request.
pub(crate) fn request(path: &str) -> Vec<u8> {
    // Of the static table: POST, https; then values for its names :path, :authority and content-type.
    let mut block = vec![0x83, 0x87, 0x04];
    block.extend(string(path.as_bytes()));
    block.push(0x01);
    block.extend(string(b"node"));
    block.extend([0x0f, 0x10]);
    block.extend(string(b"application/grpc"));
    block.extend(field(b"te", b"trailers"));
    block
}

/// A whole header block, cut into frames as they must be.
pub(crate) fn headers(stream: u32, block: &[u8], ends: bool) -> Vec<u8> {
    let parts = block.chunks(FRAME_BYTES).count();
    let mut bytes = Vec::new();
    for (number, part) in block.chunks(FRAME_BYTES).enumerate() {
        let last = if number.saturating_add(1) == parts { END_HEADERS } else { 0 };
        if number == 0 {
            let ends = if ends { END_STREAM } else { 0 };
            bytes.extend(frame(kind::HEADERS, last | ends, stream, part));
        } else {
            bytes.extend(frame(kind::CONTINUATION, last, stream, part));
        }
    }
    bytes
}

/// A gRPC message of no bytes.
pub(crate) const EMPTY_MESSAGE: [u8; 5] = [0; 5];

/// A call with an empty request, from its headers to the end of its stream.
pub(crate) fn call(stream: u32, path: &str) -> Vec<u8> {
    let head = headers(stream, &request(path), false);
    [head, frame(kind::DATA, END_STREAM, stream, &EMPTY_MESSAGE)].concat()
}

/// The number of a client's stream, from 0 on.
pub(crate) fn stream(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX / 2).saturating_mul(2).saturating_add(1)
}

/// What the other end said.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

/// A connection whose prefaces are exchanged.
#[derive(Debug)]
pub(crate) struct Http2 {
    pub(crate) stream: TlsStream<TcpStream>,
}

impl Http2 {
    /// Connects with these settings. A server that has many clients may close one of the first.
    pub(crate) async fn open(target: &Target, settings: &[u8]) -> Result<Self, Fault> {
        let mut refused = Fault::Connect("never tried".to_owned());
        for _ in 0..OPEN_ATTEMPTS {
            match Self::handshake(target, settings).await {
                Ok(open) => return Ok(open),
                Err(fault) => refused = fault,
            }
        }
        Err(refused)
    }

    async fn handshake(target: &Target, settings: &[u8]) -> Result<Self, Fault> {
        let mut stream = target.tls().await?;
        let preface = [PREFACE, &frame(kind::SETTINGS, 0, 0, settings)].concat();
        let sent = async {
            stream.write_all(&preface).await?;
            stream.flush().await
        };
        sent.await.map_err(|error| Fault::Connect(format!("handshake: {error}")))?;
        Ok(Self { stream })
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }

    /// Sends `chunk` again and again until the server is gone, or takes nothing for `patience`, and answers how often. Reads
    /// nothing: whatever the server says waits in its own memory.
    pub(crate) async fn pour(
        &mut self,
        count: u64,
        patience: Duration,
        mut chunk: impl FnMut(u64) -> Vec<u8>,
    ) -> u64 {
        for number in 0..count {
            if !matches!(timeout(patience, self.send(&chunk(number))).await, Ok(Ok(()))) {
                return number;
            }
        }
        count
    }

    /// The same while everything that comes back is read and dropped.
    pub(crate) async fn pour_and_read(
        self,
        count: u64,
        patience: Duration,
        mut chunk: impl FnMut(u64) -> Vec<u8>,
    ) -> u64 {
        let (mut reader, mut writer) = tokio::io::split(self.stream);
        let read = tokio::spawn(async move {
            let mut sink = vec![0; FRAME_BYTES];
            while reader.read(&mut sink).await.is_ok_and(|read| read > 0) {}
        });
        let mut sent = 0;
        for number in 0..count {
            let chunk = chunk(number);
            let write = async {
                writer.write_all(&chunk).await?;
                writer.flush().await
            };
            if read.is_finished() || !matches!(timeout(patience, write).await, Ok(Ok(()))) {
                break;
            }
            sent = number.saturating_add(1);
        }
        read.abort();
        sent
    }

    /// The next frame; `None` when the connection has ended.
    pub(crate) async fn next(&mut self) -> Option<Received> {
        let mut head = [0; FRAME_HEAD_BYTES];
        self.stream.read_exact(&mut head).await.ok()?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        let length = u32::from_be_bytes([0, a, b, c]);
        let mut payload = vec![0; usize::try_from(length).ok()?];
        self.stream.read_exact(&mut payload).await.ok()?;
        Some(Received { kind, flags, stream: u32::from_be_bytes(stream), payload })
    }

    /// Reads until a stream ends or is reset, and acknowledges what must be. Whether the stream ended, rather than was reset or
    /// broken off, and with data.
    pub(crate) async fn answered(&mut self, stream: u32, within: Duration) -> bool {
        let begin = Instant::now();
        let mut data = false;
        while let Ok(Some(received)) = timeout(within.saturating_sub(begin.elapsed()), self.next()).await {
            match received.kind {
                kind::SETTINGS if received.flags & ACK == 0 => {
                    let _ = self.send(&frame(kind::SETTINGS, ACK, 0, &[])).await;
                }
                kind::PING if received.flags & ACK == 0 => {
                    let _ = self.send(&frame(kind::PING, ACK, 0, &received.payload)).await;
                }
                kind::DATA => data |= received.stream == stream && !received.payload.is_empty(),
                kind::RST_STREAM if received.stream == stream => return false,
                kind::GOAWAY => return false,
                _ => {}
            }
            let ends = matches!(received.kind, kind::HEADERS | kind::DATA);
            if ends && received.stream == stream && received.flags & END_STREAM != 0 {
                return data;
            }
        }
        false
    }

    /// Whether the server ends the connection. Pings are not answered.
    pub(crate) async fn ends(&mut self, within: Duration) -> bool {
        ends(&mut self.stream, within).await
    }
}

/// Whether the other end closes; what it says is read and dropped.
pub(crate) async fn ends(stream: &mut (impl AsyncRead + Unpin), within: Duration) -> bool {
    let mut sink = vec![0; FRAME_BYTES];
    let read = async { while stream.read(&mut sink).await.is_ok_and(|read| read > 0) {} };
    timeout(within, read).await.is_ok()
}

/// Sends one byte at a time until all are sent, or the other end closes; whether that happened within the time.
pub(crate) async fn drip<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    bytes: &[u8],
    pause: Duration,
    within: Duration,
) -> bool {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let write = async {
        for byte in bytes.iter().chain(std::iter::repeat(&0)) {
            if writer.write_all(std::slice::from_ref(byte)).await.is_err() || writer.flush().await.is_err() {
                return;
            }
            tokio::time::sleep(pause).await;
        }
    };
    tokio::select! {
        ended = ends(&mut reader, within) => ended,
        () = write => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_strings_are_prefix_integers() {
        assert_eq!(string(b"ab"), [2, b'a', b'b']);
        assert_eq!(string(&[b'x'; 127])[..2], [127, 0]);
        assert_eq!(string(&[b'x'; 4000])[..3], [127, 0x80 | 33, 30], "127 + 33 + 30 * 128");
    }

    #[test]
    fn a_long_block_is_continued() {
        let bytes = headers(1, &vec![0; FRAME_BYTES + 1], true);
        assert_eq!(bytes[..9], [0, 0x40, 0, kind::HEADERS, END_STREAM, 0, 0, 0, 1]);
        assert_eq!(bytes[9 + FRAME_BYTES..][..9], [0, 0, 1, kind::CONTINUATION, END_HEADERS, 0, 0, 0, 1]);
    }
}
