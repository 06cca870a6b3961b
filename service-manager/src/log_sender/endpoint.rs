//! The address of a receiver: `tcp://host:port` or `udp://host:port`.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UdpSocket};

/// For the name and for the connection.
const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
/// A receiver that takes nothing for so long is as good as gone.
const WRITE_DEADLINE: Duration = Duration::from_secs(30);

/// How lines travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    /// Lines end with a newline.
    Tcp,
    /// A packet a line.
    Udp,
}

/// An address that can be connected to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Endpoint {
    protocol: Protocol,
    host: String,
    port: u16,
}

impl Endpoint {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no receiver of logs: write tcp://host:port or udp://host:port");
        let (protocol, rest) = match text.split_once("://") {
            Some(("tcp", rest)) => (Protocol::Tcp, rest),
            Some(("udp", rest)) => (Protocol::Udp, rest),
            _ => return Err(wrong()),
        };
        let (host, port) = rest.trim_end_matches('/').rsplit_once(':').ok_or_else(wrong)?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port = port.parse().ok().filter(|port| *port != 0);
        match port {
            Some(port) if !host.is_empty() => Ok(Self { protocol, host: host.to_owned(), port }),
            _ => Err(wrong()),
        }
    }

    pub(super) async fn connect(&self) -> Result<Connection, String> {
        let seconds = CONNECT_DEADLINE.as_secs();
        tokio::time::timeout(CONNECT_DEADLINE, self.try_connect())
            .await
            .map_err(|_| format!("no connection within {seconds} s (deadline log receiver)"))?
    }

    async fn try_connect(&self) -> Result<Connection, String> {
        let found = tokio::net::lookup_host((self.host.as_str(), self.port)).await;
        let addresses: Vec<SocketAddr> = found.map_err(|e| format!("find {}: {e}", self.host))?.collect();
        let first = addresses.first().copied().ok_or_else(|| format!("find {}: no address", self.host))?;
        match self.protocol {
            Protocol::Tcp => {
                let stream = TcpStream::connect(&addresses[..]).await;
                stream.map(Connection::Tcp).map_err(|e| format!("connect: {e}"))
            }
            Protocol::Udp => {
                let any: SocketAddr =
                    if first.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0; 8], 0).into() };
                let socket = UdpSocket::bind(any).await.map_err(|e| format!("open a UDP socket: {e}"))?;
                socket.connect(first).await.map_err(|e| format!("connect: {e}"))?;
                Ok(Connection::Udp(socket))
            }
        }
    }
}

/// A way to a receiver.
pub(super) enum Connection {
    Tcp(TcpStream),
    Udp(UdpSocket),
}

impl Connection {
    /// Hands a line over. After an error the connection is of no use any more.
    pub(super) async fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let write = async {
            match self {
                Self::Tcp(stream) => {
                    still_open(stream)?;
                    stream.write_all(&[line, b"\n"].concat()).await
                }
                Self::Udp(socket) => socket.send(line).await.map(drop),
            }
        };
        tokio::time::timeout(WRITE_DEADLINE, write)
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }
}

/// A peer that hung up is noticed before a line is given to the kernel, which would take it all the same.
fn still_open(stream: &TcpStream) -> io::Result<()> {
    let mut ignored = [0; 512];
    loop {
        match stream.try_read(&mut ignored) {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the receiver hung up")),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_or_refused_with_a_hint() {
        let good = Endpoint::parse("udp://[fd00::1]:514/").unwrap();
        assert_eq!((good.protocol, good.host.as_str(), good.port), (Protocol::Udp, "fd00::1", 514));
        assert_eq!(Endpoint::parse("tcp://logs.example:12345").unwrap().protocol, Protocol::Tcp);
        for bad in ["logs.example:1", "http://a:1", "tcp://a", "tcp://:5", "udp://a:0", "tcp://a:70000"] {
            assert!(Endpoint::parse(bad).unwrap_err().contains("tcp://host:port"), "{bad}");
        }
    }
}
