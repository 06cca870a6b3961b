//! Accepting connections.
//!
//! Owns: handshakes side by side with a deadline and a limit, so that a peer that says nothing holds up nobody, and
//! the last words to a refused peer. Does not: log; a [`Refusal`] goes to the caller's function.

use super::refusal::{Refusal, reason};
use rustls::ServerConfig;
use std::{io, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc},
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_stream::wrappers::ReceiverStream;

/// How long a peer may take to show who it is.
pub const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);
/// How long a refused peer's remaining bytes are read, so that the alert is not lost to a reset.
const LINGER: Duration = Duration::from_secs(1);
/// Handshakes under way at once; further peers wait in the listener's queue.
const HANDSHAKES: usize = 128;
/// Wait after an accept that failed for want of descriptors or memory.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Authenticated connections, for tonic's `serve_with_incoming`.
pub type Incoming = ReceiverStream<io::Result<TlsStream<TcpStream>>>;

/// Accepts on `listener` until the answer is dropped. `on_refusal` is told of each peer that is not let in.
pub fn accept(
    listener: TcpListener,
    config: Arc<ServerConfig>,
    on_refusal: impl Fn(Refusal) + Clone + Send + 'static,
) -> Incoming {
    let (sender, receiver) = mpsc::channel(16);
    tokio::spawn(accept_loop(listener, TlsAcceptor::from(config), sender, on_refusal));
    ReceiverStream::new(receiver)
}

type Sender = mpsc::Sender<io::Result<TlsStream<TcpStream>>>;

async fn accept_loop(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    sender: Sender,
    on_refusal: impl Fn(Refusal) + Clone + Send + 'static,
) {
    let permits = Arc::new(Semaphore::new(HANDSHAKES));
    loop {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        let accepted = tokio::select! {
            () = sender.closed() => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, peer)) = accepted else {
            tokio::time::sleep(ACCEPT_RETRY).await;
            continue;
        };
        let (acceptor, sender, on_refusal) = (acceptor.clone(), sender.clone(), on_refusal.clone());
        tokio::spawn(async move {
            if only_looks(&stream).await {
                return;
            }
            match handshake(acceptor, stream, peer).await {
                Ok(stream) => drop(sender.send(Ok(stream)).await),
                Err(refusal) => on_refusal(refusal),
            }
            drop(permit);
        });
    }
}

/// Whether the peer left without a byte: it looked whether the port is open, as health checks do, and that is no
/// refusal.
async fn only_looks(stream: &TcpStream) -> bool {
    matches!(timeout(HANDSHAKE_DEADLINE, stream.peek(&mut [0])).await, Ok(Ok(0)))
}

async fn handshake(
    acceptor: TlsAcceptor,
    stream: TcpStream,
    peer: SocketAddr,
) -> Result<TlsStream<TcpStream>, Refusal> {
    // Answers are small and the client waits for each.
    let _ = stream.set_nodelay(true);
    let refusal = |reason| Refusal { peer, reason };
    match timeout(HANDSHAKE_DEADLINE, acceptor.accept(stream).into_fallible()).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err((error, stream))) => {
            let _ = timeout(LINGER, say_goodbye(stream)).await;
            Err(refusal(reason(&error)))
        }
        Err(_) => Err(refusal(format!("no TLS handshake within {} s", HANDSHAKE_DEADLINE.as_secs()))),
    }
}

/// Closing a socket with unread bytes resets it and the peer never reads the alert; so close our half and drain.
async fn say_goodbye(mut stream: TcpStream) -> io::Result<()> {
    stream.shutdown().await?;
    let mut sink = [0_u8; 4096];
    while stream.read(&mut sink).await? > 0 {}
    Ok(())
}
