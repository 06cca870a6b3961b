//! One question to one server, from a socket of its own: the kernel drops what others send to it.
//!
//! Source: RFC 5452 §9.2 (random ports).

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use dns::Transport;
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::mpsc;

use super::listen::{read, write};

const DATAGRAM_BYTES: usize = 4096;
/// The forwarder cancels sooner, as a rule.
const DEADLINE: Duration = Duration::from_secs(10);

/// The number of an exchange, and what a server said; `None`: it cannot be asked.
pub(super) type Said = (u64, Option<Vec<u8>>);

/// Asks, and passes on every datagram until it is cancelled: one that is no answer may come before the answer.
pub(super) async fn run(
    exchange: u64,
    server: SocketAddr,
    message: Vec<u8>,
    transport: Transport,
    said: mpsc::Sender<Said>,
) {
    let asked = async {
        match transport {
            Transport::Datagram => by_datagram(exchange, server, &message, &said).await,
            Transport::Stream => by_stream(exchange, server, &message, &said).await,
        }
    };
    if !matches!(tokio::time::timeout(DEADLINE, asked).await, Ok(Ok(()))) {
        // Without its forwarder there is nothing to tell.
        let _ = said.send((exchange, None)).await;
    }
}

async fn by_datagram(
    exchange: u64,
    server: SocketAddr,
    message: &[u8],
    said: &mpsc::Sender<Said>,
) -> io::Result<()> {
    let any: SocketAddr =
        if server.is_ipv4() { (Ipv4Addr::UNSPECIFIED, 0).into() } else { (Ipv6Addr::UNSPECIFIED, 0).into() };
    // Port 0: the kernel takes a random one.
    let socket = UdpSocket::bind(any).await?;
    socket.connect(server).await?;
    socket.send(message).await?;
    let mut buffer = vec![0; DATAGRAM_BYTES];
    loop {
        let length = socket.recv(&mut buffer).await?;
        let answer = buffer.get(..length).unwrap_or_default().to_vec();
        if said.send((exchange, Some(answer))).await.is_err() {
            return Ok(());
        }
    }
}

async fn by_stream(
    exchange: u64,
    server: SocketAddr,
    message: &[u8],
    said: &mpsc::Sender<Said>,
) -> io::Result<()> {
    let mut stream = TcpStream::connect(server).await?;
    write(&mut stream, message).await?;
    let answer = read(&mut stream).await?;
    // Without its forwarder there is nothing to tell.
    let _ = said.send((exchange, Some(answer))).await;
    Ok(())
}

/// A number that a forger has to guess; without randomness the port alone protects.
pub(super) fn random() -> u16 {
    let mut bytes = [0; 2];
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    u16::from_ne_bytes(bytes)
}
