//! gRPC messages that are longer than they may be, or than they say.

use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use http::HeaderMap;

use crate::client::{Client, zeros};
use crate::wire::{END_STREAM, Http2, frame, headers, kind, request};
use crate::{Attack, Fault, Form, Load, Target, attack};

pub(crate) const ALL: &[Attack] = &[
    Attack::quick("wrong-lengths", attack!(wrong_lengths)),
    Attack::quick("oversized-messages", attack!(oversized)),
    Attack::quick("unfinished-messages", attack!(unfinished)),
];

const SOON: Duration = Duration::from_secs(20);

/// The five bytes before a message.
fn prefix(flag: u8, length: u32) -> Vec<u8> {
    [&[flag][..], &length.to_be_bytes()].concat()
}

/// Requests whose prefix lies. None of them is answered with a message.
async fn wrong_lengths(target: Target, form: Form) -> Result<Load, Fault> {
    let bodies = [
        ("a message of 4 GiB", prefix(0, u32::MAX)),
        ("a message of 4 GiB with some bytes", [prefix(0, u32::MAX), vec![0; 1000]].concat()),
        ("a compressed message", [prefix(1, 20), vec![0; 20]].concat()),
        ("an unknown flag", prefix(77, 0)),
        ("half a prefix", vec![0, 0, 0]),
        ("half a message", [prefix(0, 100), vec![10; 50]].concat()),
        ("no protobuf", [prefix(0, 3), vec![0xff; 3]].concat()),
    ];
    let rounds = form.count(1, 50);
    for _ in 0..rounds {
        let one = async |(what, body): &(&'static str, Vec<u8>)| {
            let mut connection = Http2::open(&target, &[]).await?;
            let ask = headers(1, &request(target.port.path()), false);
            let _ = connection.send(&[ask, frame(kind::DATA, END_STREAM, 1, body)].concat()).await;
            if connection.answered(1, SOON).await {
                return Err(Fault::Answered { what: (*what).to_owned() });
            }
            Ok(())
        };
        try_join_all(bodies.iter().map(one)).await?;
    }
    let connections = rounds.saturating_mul(u64::try_from(bodies.len()).unwrap_or_default());
    Ok(Load { connections, attempts: connections })
}

/// Sends the beginning of messages on several streams, and waits a while for each to be refused. How many were.
async fn send(target: &Target, streams: u64, length: u32, ends: bool, held: Duration) -> Result<u64, Fault> {
    let client = Client::open(target).await?;
    let sent = usize::try_from(length).unwrap_or_default();
    let headers = HeaderMap::new();
    let one = |_| client.call(target.port.path(), &headers, zeros(length, sent, ends), held);
    let answers = join_all((0..streams).map(one)).await;
    if answers.iter().flatten().any(|answer| answer.bytes > 0) {
        return Err(Fault::Answered { what: format!("a message of {length} bytes") });
    }
    Ok(u64::try_from(answers.iter().filter(|answer| answer.is_ok()).count()).unwrap_or(u64::MAX))
}

/// More than the 32 MiB that any message may have.
async fn oversized(target: Target, form: Form) -> Result<Load, Fault> {
    let connections = form.count(2, 16);
    try_join_all((0..connections).map(|_| send(&target, 4, 33 << 20, true, SOON))).await?;
    Ok(Load { connections, attempts: connections.saturating_mul(4) })
}

/// Less than it, on many streams, and never whole: what a server keeps of each adds up.
async fn unfinished(target: Target, form: Form) -> Result<Load, Fault> {
    let (connections, streams) = (form.count(2, 16), 32);
    let held = Duration::from_secs(form.count(2, 10));
    try_join_all((0..connections).map(|_| send(&target, streams, 31 << 20, false, held))).await?;
    Ok(Load { connections, attempts: connections.saturating_mul(streams) })
}
