//! Clients that say nothing, or say it slowly: TCP, TLS, HTTP/2 and requests, each stopped half way.
//!
//! Each of these connections has a deadline by docs/users/ports.md; who has a certificate may be slow with a request for as
//! long as it answers pings, and then holds one of its own calls.

use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use tokio::io::AsyncWriteExt;

use crate::tls_faults::hello;
use crate::wire::{EMPTY_MESSAGE, Http2, PREFACE, drip, ends, frame, frame_head, headers, kind, request};
use crate::{Attack, Fault, Form, Load, Port, Target, attack};

pub(crate) const ALL: &[Attack] = &[
    Attack::patient("silent", attack!(silent)),
    Attack::patient("half-closed", attack!(half_closed)),
    Attack::patient("slow-handshake", attack!(slow_handshake)),
    Attack::patient("slow-preface", attack!(slow_preface)),
    Attack::patient("slow-headers", attack!(slow_headers)),
    Attack::patient("slow-body", attack!(slow_body)),
];

/// For a server that is busy, on top of a deadline of the node's.
const MARGIN: Duration = Duration::from_secs(20);
/// Of the node: until the first byte.
const FIRST_BYTE: Duration = Duration::from_secs(3);
/// Of the node: the handshake; and the preface of HTTP/2 behind it.
const GREETING: Duration = Duration::from_secs(10);
/// Of the node: two rounds of HTTP/2's ping.
const PINGS: Duration = Duration::from_secs(60);
/// Of trustd: everything.
const TRUST_CONNECTION: Duration = Duration::from_secs(30);
/// Between two bytes.
const SLOW: Duration = Duration::from_secs(1);

fn kept(what: &'static str, all: &[bool], after: Duration) -> Result<(), Fault> {
    if all.iter().all(|ended| *ended) { Ok(()) } else { Err(Fault::Kept { what, after }) }
}

async fn silent(target: Target, form: Form) -> Result<Load, Fault> {
    let connections = form.count(200, 2000);
    let within = FIRST_BYTE.saturating_add(MARGIN);
    let mut open = Vec::new();
    for _ in 0..connections {
        open.push(target.tcp().await?);
    }
    let ended = join_all(open.iter_mut().map(|stream| ends(stream, within))).await;
    kept("a connection that said nothing", &ended, within)?;
    Ok(Load { connections, attempts: connections })
}

/// The client's half is closed: before TLS, after its handshake, after a request.
async fn half_closed(target: Target, form: Form) -> Result<Load, Fault> {
    let rounds = form.count(8, 64);
    let within = GREETING.saturating_add(MARGIN);
    let round = async || {
        let mut bare = target.tcp().await?;
        // Errors of a half that the server closed already are its answer.
        let _ = bare.shutdown().await;
        // A server that has too many of us refuses, and that is right.
        let Ok(mut shaken) = target.tls().await else { return Ok(()) };
        let _ = shaken.shutdown().await;
        let Ok(mut asked) = Http2::open(&target, &[]).await else { return Ok(()) };
        let _ = asked.send(&crate::wire::call(1, target.port.path())).await;
        let _ = asked.stream.shutdown().await;
        kept("a connection whose client closed its half", &[ends(&mut bare, within).await], within)?;
        kept("a TLS connection whose client closed its half", &[ends(&mut shaken, within).await], within)?;
        kept("a client that closed its half behind a request", &[asked.ends(within).await], within)
    };
    try_join_all((0..rounds).map(|_| round())).await?;
    Ok(Load { connections: rounds.saturating_mul(3), attempts: rounds })
}

async fn slow_handshake(target: Target, form: Form) -> Result<Load, Fault> {
    let connections = form.count(8, 64);
    let within = GREETING.saturating_add(MARGIN);
    let hello = hello(&target)?;
    let slow = async || Ok::<_, Fault>(drip(target.tcp().await?, &hello, SLOW, within).await);
    let ended = try_join_all((0..connections).map(|_| slow())).await?;
    kept("a TLS handshake of one byte a second", &ended, within)?;
    Ok(Load { connections, attempts: connections })
}

/// Half of these send a byte a second, half nothing behind the handshake.
async fn slow_preface(target: Target, form: Form) -> Result<Load, Fault> {
    let connections = form.count(8, 64);
    let within = GREETING.saturating_add(MARGIN);
    let slow = async |number: u64| {
        // A server that has too many of us refuses, and that is right.
        let Ok(mut stream) = target.tls().await else { return Ok(true) };
        Ok::<_, Fault>(match number % 2 {
            0 => ends(&mut stream, within).await,
            _ => drip(stream, PREFACE, SLOW, within).await,
        })
    };
    let ended = try_join_all((0..connections).map(slow)).await?;
    kept("an HTTP/2 preface of one byte a second", &ended, within)?;
    Ok(Load { connections, attempts: connections })
}

/// A header frame whose bytes come one a second: a ping between them cannot be answered. The short form leaves before it ends.
async fn slow_headers(target: Target, form: Form) -> Result<Load, Fault> {
    let connections = form.count(8, 64);
    let deadline = if target.port == Port::Trust { TRUST_CONNECTION } else { PINGS };
    let long = form == Form::Long || target.port == Port::Trust;
    let within = if long { deadline.saturating_add(MARGIN) } else { SLOW.saturating_mul(5) };
    let slow = async || {
        let Ok(mut connection) = Http2::open(&target, &[]).await else { return Ok(true) };
        // As long as a frame may be.
        if connection.send(&frame_head(16 << 10, kind::HEADERS, 0, 1)).await.is_err() {
            return Ok(true);
        }
        Ok::<_, Fault>(drip(connection.stream, &request(target.port.path()), SLOW, within).await)
    };
    let ended = try_join_all((0..connections).map(|_| slow())).await?;
    if long {
        kept("a header of one byte a second", &ended, within)?;
    }
    Ok(Load { connections, attempts: connections })
}

/// Requests whose body comes a byte a second, on as many streams as there may be.
async fn slow_body(target: Target, form: Form) -> Result<Load, Fault> {
    let (connections, streams) = (form.count(4, 64), 100);
    let within = match target.port {
        Port::Trust => TRUST_CONNECTION.saturating_add(MARGIN),
        Port::Api => Duration::from_secs(form.count(5, 45)),
    };
    let slow = async || {
        let Ok(mut connection) = Http2::open(&target, &[]).await else { return Ok(true) };
        let streams = (0..streams).map(crate::wire::stream);
        let begun: Vec<u8> =
            streams.clone().flat_map(|stream| headers(stream, &request(target.port.path()), false)).collect();
        // An error is the server's answer; then it ends.
        let _ = connection.send(&begun).await;
        let bytes = streams.flat_map(|stream| frame(kind::DATA, 0, stream, &EMPTY_MESSAGE[..1]));
        let bytes: Vec<u8> = bytes.collect();
        let _ = connection.send(&bytes).await;
        Ok::<_, Fault>(connection.ends(within).await)
    };
    let ended = try_join_all((0..connections).map(|_| slow())).await?;
    if target.port == Port::Trust {
        kept("a request that does not end", &ended, within)?;
    }
    Ok(Load { connections, attempts: connections.saturating_mul(streams) })
}
