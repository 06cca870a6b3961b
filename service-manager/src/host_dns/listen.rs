//! Sockets of clients: UDP, and TCP for what is too large for a datagram.
//!
//! Owns: the number of connections, and how long one may be silent.
//! Source: RFC 1035 §4.2; RFC 7766 §6 (connections).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use dns::Transport;
use runtime::Runtime;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;

use super::admit;

/// A client's datagram; the largest that a name and options need is far smaller.
const DATAGRAM_BYTES: usize = 4096;
/// Connections of an address at a time.
const CONNECTIONS: usize = 64;
const BACKLOG: i32 = 64;
/// A connection that says nothing, or takes nothing, for so long is closed.
const SILENCE: Duration = Duration::from_secs(10);

/// Where an answer goes.
pub(super) enum Client {
    Datagram(Arc<UdpSocket>, SocketAddr),
    Stream(oneshot::Sender<Vec<u8>>),
}

impl Client {
    /// One that does not take it asks again.
    pub(super) fn reply(self, message: &[u8]) {
        match self {
            Self::Datagram(socket, to) => drop(socket.try_send_to(message, to)),
            Self::Stream(answer) => drop(answer.send(message.to_vec())),
        }
    }
}

/// What a client sent.
pub(super) struct Question {
    pub(super) client: Client,
    pub(super) message: Vec<u8>,
    pub(super) transport: Transport,
}

/// Listens on an address, which need not be there yet. The sockets close with the tasks.
pub(super) fn open(
    address: SocketAddr,
    runtime: &Arc<Runtime>,
    questions: &mpsc::Sender<Question>,
) -> io::Result<JoinSet<()>> {
    let datagrams = socket(address, Type::DGRAM, Protocol::UDP)?;
    let datagrams = Arc::new(UdpSocket::from_std(datagrams.into())?);
    let streams = socket(address, Type::STREAM, Protocol::TCP)?;
    streams.listen(BACKLOG)?;
    let streams = TcpListener::from_std(streams.into())?;
    let mut tasks = JoinSet::new();
    tasks.spawn(take_datagrams(datagrams, runtime.clone(), questions.clone()));
    tasks.spawn(take_streams(streams, runtime.clone(), questions.clone()));
    Ok(tasks)
}

fn socket(address: SocketAddr, kind: Type, protocol: Protocol) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), kind.nonblocking(), Some(protocol))?;
    if kind == Type::STREAM {
        // Connections of an earlier machined may still be ending.
        socket.set_reuse_address(true)?;
    }
    socket.set_freebind_v4(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

async fn take_datagrams(socket: Arc<UdpSocket>, runtime: Arc<Runtime>, questions: mpsc::Sender<Question>) {
    let mut buffer = vec![0; DATAGRAM_BYTES];
    loop {
        // An error is of one datagram that was sent: its receiver is gone.
        let Ok((length, from)) = socket.recv_from(&mut buffer).await else { continue };
        if !admit::may_ask(&runtime, from.ip()) {
            continue;
        }
        let message = buffer.get(..length).unwrap_or_default().to_vec();
        let client = Client::Datagram(socket.clone(), from);
        if questions.send(Question { client, message, transport: Transport::Datagram }).await.is_err() {
            return;
        }
    }
}

async fn take_streams(listener: TcpListener, runtime: Arc<Runtime>, questions: mpsc::Sender<Question>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let Ok(place) = room.clone().acquire_owned().await else { return };
        let Ok((stream, from)) = listener.accept().await else {
            // Out of descriptors: others close theirs in the meantime.
            tokio::time::sleep(SILENCE / 10).await;
            continue;
        };
        while connections.try_join_next().is_some() {}
        if admit::may_ask(&runtime, from.ip()) {
            let questions = questions.clone();
            connections.spawn(async move {
                // The client is gone, or said nothing that is a question.
                let _ = converse(stream, questions).await;
                drop(place);
            });
        }
    }
}

async fn converse(mut stream: TcpStream, questions: mpsc::Sender<Question>) -> io::Result<()> {
    let closed = || io::Error::from(io::ErrorKind::ConnectionAborted);
    loop {
        let message = tokio::time::timeout(SILENCE, read(&mut stream)).await??;
        let (client, answer) = oneshot::channel();
        let question = Question { client: Client::Stream(client), message, transport: Transport::Stream };
        questions.send(question).await.map_err(|_| closed())?;
        let answer = answer.await.map_err(|_| closed())?;
        tokio::time::timeout(SILENCE, write(&mut stream, &answer)).await??;
    }
}

/// A message with its length before it.
pub(super) async fn read(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = stream.read_u16().await?;
    let mut message = vec![0; length.into()];
    stream.read_exact(&mut message).await?;
    Ok(message)
}

pub(super) async fn write(stream: &mut TcpStream, message: &[u8]) -> io::Result<()> {
    let length = u16::try_from(message.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes()[..], message].concat()).await
}
