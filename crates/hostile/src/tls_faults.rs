//! Clients that must not get past TLS: wrong certificates, and bytes that are no handshake.
//!
//! Does not: renegotiate, which rustls has no message for.
//! Source: RFC 8446 §4.1.2 (hello), §5.1 (records), §6 (alerts).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::future::try_join_all;
use rustls::ClientConnection;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::wire::{Http2, PREFACE, call, ends, frame, kind};
use crate::{Attack, Fault, Form, Load, Target, attack};

pub(crate) const ALL: &[Attack] = &[
    Attack::quick("wrong-certificates", attack!(wrong_certificates)),
    Attack::patient("wrong-records", attack!(wrong_records)),
    Attack::quick("hello-in-single-bytes", attack!(single_bytes)),
];

/// For a server that has a deadline of 10 s for handshakes.
const SOON: Duration = Duration::from_secs(30);

async fn wrong_certificates(target: Target, form: Form) -> Result<Load, Fault> {
    let rounds = form.count(2, 50);
    let mut load = Load::default();
    for _ in 0..rounds {
        for stranger in target.strangers.iter() {
            let target = target.with(stranger.identity.as_ref())?;
            load.connections = load.connections.saturating_add(1);
            // With TLS 1.3 a client may be done before it is refused.
            let Ok(mut connection) = Http2::open(&target, &[]).await else { continue };
            let _ = connection.send(&call(1, target.port.path())).await;
            if connection.answered(1, SOON).await {
                return Err(Fault::Answered { what: format!("{}'s request", stranger.what) });
            }
        }
    }
    Ok(Load { attempts: load.connections, ..load })
}

/// The first bytes of a client's handshake.
pub(crate) fn hello(target: &Target) -> Result<Vec<u8>, Fault> {
    let refused = |error: &dyn std::fmt::Display| Fault::Connect(format!("make a hello: {error}"));
    let mut client =
        ClientConnection::new(target.config.clone(), target.name()).map_err(|error| refused(&error))?;
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).map_err(|error| refused(&error))?;
    Ok(bytes)
}

const HANDSHAKE: u8 = 22;

/// A record of TLS.
fn record(kind: u8, version: [u8; 2], content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).unwrap_or(u16::MAX).to_be_bytes();
    [&[kind, version[0], version[1], length[0], length[1]], content].concat()
}

/// A hello of this version that offers two old ciphers and nothing else.
fn old_hello(version: [u8; 2]) -> Vec<u8> {
    let mut body = version.to_vec();
    body.extend([7; 32]);
    // No session, two cipher suites, no compression.
    body.extend([0, 0, 4, 0xc0, 0x13, 0, 0x2f, 1, 0]);
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes();
    let message = [&[1, length[1], length[2], length[3]], body.as_slice()].concat();
    record(HANDSHAKE, [3, 1], &message)
}

/// A hello of 16 MiB, as far as it goes.
fn huge_hello() -> Vec<u8> {
    let first = [&[1, 0xff, 0xff, 0xff, 3, 3][..], &[0; 16_000]].concat();
    let mut bytes = record(HANDSHAKE, [3, 1], &first);
    for _ in 0..1100 {
        bytes.extend(record(HANDSHAKE, [3, 3], &[0; 16_000]));
    }
    bytes
}

fn wrong(hello: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let alert = record(21, [3, 3], &[2, 40]);
    let warnings = record(21, [3, 3], &[1, 0]).repeat(1000);
    let early = [hello, &record(23, [3, 3], &[0; 100])].concat();
    vec![
        ("noise", vec![0x80, 0x2e, 1, 0, 2, 0, 0x15, 0, 0, 0, 0x10, 1, 0, 0x80, 7, 0, 0xc0]),
        ("zeros", vec![0; 4096]),
        ("plain HTTP/1", b"GET / HTTP/1.1\r\nHost: node\r\n\r\n".to_vec()),
        ("plain HTTP/2", [PREFACE, &frame(kind::SETTINGS, 0, 0, &[])].concat()),
        ("a record of 64 KiB", [&[HANDSHAKE, 3, 1, 0xff, 0xff][..], &[1; 0xffff]].concat()),
        ("empty records", record(HANDSHAKE, [3, 1], &[]).repeat(1000)),
        ("SSL 3", old_hello([3, 0])),
        ("TLS 1.0", old_hello([3, 1])),
        ("TLS 1.1", old_hello([3, 2])),
        ("TLS 1.2 with ciphers that nobody has", old_hello([3, 3])),
        ("a hello of 16 MiB", huge_hello()),
        ("a hello and an alert", [hello, &alert].concat()),
        ("a hello and a thousand warnings", [hello, &warnings].concat()),
        ("two hellos", hello.repeat(2)),
        ("data before the handshake", early),
        ("half a hello", hello.get(..hello.len() / 2).unwrap_or_default().to_vec()),
    ]
}

async fn wrong_records(target: Target, form: Form) -> Result<Load, Fault> {
    let rounds = form.count(1, 3);
    let mut load = Load::default();
    let hello = hello(&target)?;
    for _ in 0..rounds {
        let all = wrong(&hello);
        load.connections = load.connections.saturating_add(u64::try_from(all.len()).unwrap_or(u64::MAX));
        try_join_all(all.iter().map(|(what, bytes)| send(&target, what, bytes))).await?;
    }
    Ok(Load { attempts: load.connections, ..load })
}

/// Sends bytes to a server, which has to close.
async fn send(target: &Target, what: &'static str, bytes: &[u8]) -> Result<(), Fault> {
    let (mut reader, mut writer) = target.tcp().await?.into_split();
    // The server may close before it has taken everything.
    let writing = async { drop(writer.write_all(bytes).await) };
    let (ended, ()) = tokio::join!(ends(&mut reader, SOON), writing);
    if ended { Ok(()) } else { Err(Fault::Kept { what, after: SOON }) }
}

/// A stream that sends each byte by itself.
struct SingleBytes(TcpStream);

impl AsyncRead for SingleBytes {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, to)
    }
}

impl AsyncWrite for SingleBytes {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let first = bytes.get(..1).unwrap_or_default();
        Poll::Ready(ready!(Pin::new(&mut self.0).poll_write(cx, first)))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// Strange, but right: the handshake ends well, and the server answers the preface of HTTP/2. Only then has the server ended
/// its side of the handshake too: a client has done so before, and its place at the server counts until then.
async fn single_bytes(target: Target, form: Form) -> Result<Load, Fault> {
    let connections = form.count(4, 64);
    let preface = [PREFACE, &frame(kind::SETTINGS, 0, 0, &[])].concat();
    let shake = async || {
        let _turn = target.turn().await;
        let stream = SingleBytes(target.tcp().await?);
        let exchanged = async {
            let mut shaken = TlsConnector::from(target.config.clone()).connect(target.name(), stream).await?;
            shaken.write_all(&preface).await?;
            shaken.flush().await?;
            shaken.read_u8().await
        };
        exchanged
            .await
            .map(drop)
            .map_err(|error| Fault::Unanswered { what: "a hello in single bytes", why: error.to_string() })
    };
    try_join_all((0..connections).map(|_| shake())).await?;
    Ok(Load { connections, attempts: connections })
}
