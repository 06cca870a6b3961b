//! Frames that break a rule of HTTP/2, one a connection: each is an error of its connection or stream and nothing more.
//!
//! Source: RFC 9113 §4 to §6, §8.1.1.

use std::time::Duration;

use futures_util::future::try_join_all;

use crate::wire::{
    ACK, END_HEADERS, END_STREAM, Http2, PADDED, call, field, frame, frame_head, headers, kind, request,
    setting,
};
use crate::{Attack, Fault, Form, Load, Target, attack};

pub(crate) const ALL: &[Attack] = &[Attack::quick("broken-frames", attack!(broken))];

/// How long a server's answer is read.
const LISTEN: Duration = Duration::from_millis(500);

fn frames(path: &str) -> Vec<Vec<u8>> {
    let ask = request(path);
    let most = u32::MAX >> 1;
    let mut all = vec![
        // Lengths.
        frame_head(0x00ff_ffff, kind::DATA, 0, 1),
        frame(kind::PING, 0, 0, &[0; 7]),
        frame(kind::SETTINGS, 0, 0, &[0; 5]),
        frame(kind::SETTINGS, ACK, 0, &[0; 6]),
        frame(kind::RST_STREAM, 0, 1, &[0; 3]),
        frame(kind::WINDOW_UPDATE, 0, 0, &[0; 5]),
        frame(kind::PRIORITY, 0, 1, &[0; 4]),
        frame(kind::GOAWAY, 0, 0, &[0; 3]),
        // Streams.
        frame(kind::DATA, 0, 0, b"x"),
        frame(kind::DATA, 0, 1, b"x"),
        headers(0, &ask, true),
        headers(2, &ask, true),
        frame(kind::SETTINGS, 0, 1, &[]),
        frame(kind::PING, 0, 1, &[0; 8]),
        frame(kind::GOAWAY, 0, 1, &[0; 8]),
        frame(kind::CONTINUATION, END_HEADERS, 1, &ask),
        frame(kind::RST_STREAM, 0, 1, &[0; 4]),
        frame(kind::PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2]),
        [headers(5, &ask, true), headers(3, &ask, true)].concat(),
        headers(1, &ask, true).repeat(2),
        [call(1, path), frame(kind::DATA, 0, 1, b"x")].concat(),
        [frame(kind::HEADERS, 0, 1, &ask), frame(kind::PING, 0, 0, &[0; 8])].concat(),
        frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 1, 0]),
        // Windows and settings.
        frame(kind::WINDOW_UPDATE, 0, 0, &[0; 4]),
        frame(kind::WINDOW_UPDATE, 0, 0, &most.to_be_bytes()),
        [headers(1, &ask, false), frame(kind::WINDOW_UPDATE, 0, 1, &most.to_be_bytes())].concat(),
        frame(kind::SETTINGS, 0, 0, &setting(4, u32::MAX)),
        frame(kind::SETTINGS, 0, 0, &setting(5, 1)),
        frame(kind::SETTINGS, 0, 0, &setting(2, 7)),
        frame(kind::SETTINGS, ACK, 0, &[]),
        // Padding longer than its frame.
        frame(kind::HEADERS, PADDED | END_HEADERS | END_STREAM, 1, &[255, 0x82]),
        [headers(1, &ask, false), frame(kind::DATA, PADDED, 1, &[255])].concat(),
    ];
    let blocks: [&[u8]; 10] = [
        &[],
        // Indexes 0 and far away; a string that is longer than its block; an endless number; broken Huffman code.
        &[0x80],
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        &[0x00, 0x7f],
        &[0x04, 0x84, 0xff, 0xff, 0xff, 0xff],
        &[0x82, 0x86],
        &[0x83, 0x83, 0x87],
        &field(b":unknown", b"x"),
        &field(b"Upper", b"x"),
        &field(b"connection", b"close"),
    ];
    all.extend(blocks.iter().map(|block| frame(kind::HEADERS, END_HEADERS | END_STREAM, 1, block)));
    let behind = [field(b"content-length", b"18446744073709551615"), field(b"grpc-timeout", b"99999999H")];
    all.extend(behind.iter().map(|more| headers(1, &[ask.as_slice(), more].concat(), true)));
    all
}

async fn broken(target: Target, form: Form) -> Result<Load, Fault> {
    let all = frames(target.port.path());
    let rounds = form.count(1, 20);
    for _ in 0..rounds {
        let one = async |bytes: &Vec<u8>| {
            let mut connection = Http2::open(&target, &[]).await?;
            // An error is the server's answer.
            let _ = connection.send(bytes).await;
            connection.ends(LISTEN).await;
            Ok::<_, Fault>(())
        };
        // In parts: port 50001 has few places for one address.
        for part in all.chunks(8) {
            try_join_all(part.iter().map(one)).await?;
        }
    }
    let connections = rounds.saturating_mul(u64::try_from(all.len()).unwrap_or(u64::MAX));
    Ok(Load { connections, attempts: connections })
}
