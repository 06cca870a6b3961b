//! Many connections at once, silent ones and ones that finished their handshake, and callers that hang up.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;

use crate::wire::{Http2, call};
use crate::{Attack, Fault, Form, Load, Target, attack};

pub(crate) const ALL: &[Attack] = &[
    Attack::quick("many-connections", attack!(many_connections)),
    Attack::quick("hang-up-after-a-call", attack!(hang_up)),
];

/// Connections that are made at the same time.
const AT_ONCE: usize = 64;

/// Half of them say nothing, half finish a handshake; all are kept until the last one is there.
async fn many_connections(target: Target, form: Form) -> Result<Load, Fault> {
    let connections = form.count(200, 10_000);
    let open = |number: u64| {
        let target = target.clone();
        async move {
            if number.is_multiple_of(2) {
                return target.tcp().await.map(|stream| (Some(stream), None));
            }
            // One that is refused is as good.
            Ok((None, target.tls().await.ok()))
        }
    };
    let mut kept = Vec::new();
    let mut opening = stream::iter((0..connections).map(open)).buffer_unordered(AT_ONCE);
    while let Some(opened) = opening.next().await {
        kept.push(opened?);
    }
    // The other client's turn while all of them are there.
    tokio::time::sleep(Duration::from_millis(form.count(500, 5000))).await;
    Ok(Load { connections, attempts: connections })
}

/// A call, and the connection is gone before the answer.
async fn hang_up(target: Target, form: Form) -> Result<Load, Fault> {
    let connections = form.count(64, 2000);
    let one = |_| {
        let target = target.clone();
        async move {
            if let Ok(mut connection) = Http2::open(&target, &[]).await {
                let _ = connection.send(&call(1, target.port.path())).await;
            }
        }
    };
    stream::iter((0..connections).map(one)).buffer_unordered(AT_ONCE).collect::<Vec<_>>().await;
    Ok(Load { connections, attempts: connections })
}
