//! Clients: a task for each listener, and one for each connection, which ends with the listener's.
//!
//! Owns: the limit of clients, and the order of dials for one of them.
//! Fails by: resetting both sides.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::dial;
use crate::shared::Shared;

/// After an error of accept. Out of descriptors: others close theirs in the meantime, while the client waits in the queue.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepts clients for as long as it is polled.
pub(crate) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        let (client, _) = accept(|| listener.accept()).await;
        while connections.try_join_next().is_some() {}
        // An error is of a client that is gone.
        if dial::prepare(&client).is_err() {
            continue;
        }
        // Reset: a client that waited here would not try elsewhere.
        let Ok(place) = shared.room.clone().try_acquire_owned() else { continue };
        let shared = shared.clone();
        connections.spawn(async move {
            carry(client, &shared).await;
            drop(place);
        });
    }
}

async fn accept<T, F: Future<Output = io::Result<T>>>(mut next: impl FnMut() -> F) -> T {
    loop {
        match next().await {
            Ok(accepted) => return accepted,
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// One connection, until both sides are done, one fails, or the upstream's connections are ended.
async fn carry(mut client: TcpStream, shared: &Shared) {
    let Some((mut upstream, mut end)) = connect(shared).await else { return };
    tokio::select! {
        copied = copy_bidirectional(&mut client, &mut upstream) => if copied.is_ok() {
            dial::finish(&client);
            dial::finish(&upstream);
        },
        _ = end.changed() => {}
    }
}

/// Dials one upstream after the other, each once.
async fn connect(shared: &Shared) -> Option<(TcpStream, watch::Receiver<()>)> {
    let mut tried = Vec::new();
    loop {
        // On a line of its own: the lock must not be held over the dial.
        let chosen = shared.pool().choose(&tried);
        let mut chosen = chosen?;
        tried.push(chosen.id);
        let dialled = tokio::select! {
            dialled = shared.dialer.dial(&chosen.target) => dialled,
            // It left, or is dead.
            _ = chosen.end.changed() => continue,
        };
        match dialled {
            Ok(dialled) => {
                shared.pool().dialled(chosen.id, Ok(dialled.took));
                return Some((dialled.stream, chosen.end));
            }
            Err(error) => shared.pool().dialled(chosen.id, Err(error.failure())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dial::tests::silent;
    use crate::settings::Settings;
    use crate::upstream::Upstream;

    #[tokio::test]
    async fn a_client_does_not_wait_for_an_upstream_that_left() {
        let (_listener, _queued, address) = silent().await;
        let deadline = Duration::from_secs(3600);
        let shared = Shared::new(Settings { deadline, ..Settings::default() }, Vec::new());
        shared.pool().replace(&[Upstream { address: address.into(), priority: 0 }]);
        let mut connecting = std::pin::pin!(connect(&shared));
        assert!(tokio::time::timeout(Duration::ZERO, &mut connecting).await.is_err(), "it dials");
        shared.pool().replace(&[]);
        let connected = tokio::time::timeout(Duration::from_secs(20), connecting).await;
        assert!(connected.unwrap().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn errors_of_accept_are_waited_out() {
        let start = tokio::time::Instant::now();
        let mut calls = 0;
        let accepted = accept(|| {
            calls += 1;
            let call = calls;
            async move { if call <= 3 { Err(io::Error::from_raw_os_error(24)) } else { Ok(call) } }
        });
        assert_eq!(accepted.await, 4);
        assert_eq!(start.elapsed().as_millis(), 3 * PAUSE.as_millis());
    }
}
