//! One question to one time server.
//!
//! Owns: names to addresses, the exchange, the deadline.
//! Does not: touch the clock.
//! Fails by: [`QueryError`], with the server and what to look at.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use runtime::clock;
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::net::UdpSocket;

use super::packet::{self, PACKET_BYTES, ReplyError, Stamp};

/// NTP's port.
const PORT: u16 = 123;
/// For one exchange.
const DEADLINE: Duration = Duration::from_secs(3);
/// For the name.
const RESOLVE_DEADLINE: Duration = Duration::from_secs(10);
/// Of a name with many addresses (a pool), this many are asked.
const MOST_ADDRESSES: usize = 4;

/// What one server said.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Its name, as it was given.
    pub server: String,
    /// Who answered.
    pub address: SocketAddr,
    /// Its clock minus ours.
    pub offset_ns: i64,
    /// Both ways, without the server's own time.
    pub round_trip_ns: i64,
    /// Its clock at the moment of the answer, in nanoseconds since 1970.
    pub remote_time_ns: i64,
    /// Distance to a reference clock.
    pub stratum: u8,
    /// Round trip to the reference clock.
    pub root_delay_ns: i64,
    /// How wrong the server may be.
    pub root_dispersion_ns: i64,
    /// The leap second it announces.
    pub leap: sys::clock::Leap,
    /// Its source: an address, or four letters of a reference clock.
    pub reference: [u8; 4],
}

impl Sample {
    /// How far the offset may be wrong.
    pub(super) fn distance_ns(&self) -> i64 {
        const LEAST: i64 = 1_000_000;
        self.round_trip_ns / 2 + self.root_delay_ns / 2 + self.root_dispersion_ns + LEAST
    }
}

/// Why a server gave no time.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// Its name has no address.
    #[error(
        "time server {server}: find its address: {reason}; check machine.time.servers and the name servers"
    )]
    Resolve {
        /// As it was given.
        server: String,
        /// Why not.
        reason: String,
    },
    /// No packet got through.
    #[error("time server {server} ({address}): {operation}: {reason}")]
    Exchange {
        /// As it was given.
        server: String,
        /// Who was asked.
        address: SocketAddr,
        /// What was done.
        operation: &'static str,
        /// Why it failed.
        reason: String,
    },
}

impl QueryError {
    /// The server as it was given.
    pub fn server(&self) -> &str {
        match self {
            Self::Resolve { server, .. } | Self::Exchange { server, .. } => server,
        }
    }

    /// Its address, or its name where it has none.
    pub(super) fn id(&self) -> String {
        match self {
            Self::Resolve { server, .. } => server.clone(),
            Self::Exchange { address, .. } => address.to_string(),
        }
    }
}

/// Asks a server: a name or an address, with a port if it is not 123. The first address that answers counts.
///
/// # Errors
/// [`QueryError`] of the last address.
pub async fn query(server: &str) -> Result<Sample, QueryError> {
    let mut last = None;
    for address in resolve(server).await? {
        match ask(server, address).await {
            Ok(sample) => return Ok(sample),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| no_address(server, "it has none")))
}

/// Asks every address of a server at once.
pub(super) async fn query_all(server: &str) -> Vec<Result<Sample, QueryError>> {
    match resolve(server).await {
        Ok(addresses) => {
            futures_util::future::join_all(addresses.into_iter().map(|address| ask(server, address))).await
        }
        Err(error) => vec![Err(error)],
    }
}

fn no_address(server: &str, reason: impl ToString) -> QueryError {
    QueryError::Resolve { server: server.to_owned(), reason: reason.to_string() }
}

async fn resolve(server: &str) -> Result<Vec<SocketAddr>, QueryError> {
    if server.starts_with("/dev/") {
        return Err(no_address(server, "clocks of the host (PTP devices) are not supported yet"));
    }
    let (host, port) = split(server);
    let found = tokio::time::timeout(RESOLVE_DEADLINE, tokio::net::lookup_host((host, port)))
        .await
        .map_err(|_| no_address(server, format_args!("no answer within {} s", RESOLVE_DEADLINE.as_secs())))?
        .map_err(|e| no_address(server, e))?;
    let mut addresses: Vec<SocketAddr> = found.collect();
    addresses.dedup();
    addresses.truncate(MOST_ADDRESSES);
    if addresses.is_empty() { Err(no_address(server, "it has none")) } else { Ok(addresses) }
}

/// `host`, `host:port`, `1.2.3.4`, `2001:db8::1`, `[2001:db8::1]:port`.
fn split(server: &str) -> (&str, u16) {
    if server.parse::<IpAddr>().is_ok() {
        return (server, PORT);
    }
    let Some((host, port)) = server.rsplit_once(':') else { return (server, PORT) };
    match port.parse() {
        Ok(port) => (host.trim_start_matches('[').trim_end_matches(']'), port),
        Err(_) => (server, PORT),
    }
}

async fn ask(server: &str, address: SocketAddr) -> Result<Sample, QueryError> {
    let failed = |operation: &'static str, reason: String| QueryError::Exchange {
        server: server.to_owned(),
        address,
        operation,
        reason,
    };
    match tokio::time::timeout(DEADLINE, exchange(server, address)).await {
        Ok(Ok(sample)) => Ok(sample),
        Ok(Err((operation, reason))) => Err(failed(operation, reason)),
        Err(_) => Err(failed("wait for the reply", format!("none within {} s", DEADLINE.as_secs()))),
    }
}

type Step = (&'static str, String);

async fn exchange(server: &str, address: SocketAddr) -> Result<Sample, Step> {
    let any: IpAddr = if address.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
    let failed = |operation| move |error: std::io::Error| (operation, error.to_string());
    let socket = UdpSocket::bind((any, 0)).await.map_err(failed("open a socket"))?;
    socket.connect(address).await.map_err(failed("connect"))?;
    let cookie = cookie()?;
    // The clock may be stepped in between: only the first stamp is read from it.
    let (asked_ns, begun) = (clock::unix_ns(), Instant::now());
    socket.send(&packet::request(cookie)).await.map_err(failed("send"))?;
    let mut buffer = [0; 4 * PACKET_BYTES];
    loop {
        let length = socket.recv(&mut buffer).await.map_err(failed("receive"))?;
        let waited_ns = i64::try_from(begun.elapsed().as_nanos()).unwrap_or(i64::MAX);
        match packet::reply(&buffer[..length], cookie) {
            // An answer to an earlier question, or not from the server at all.
            Err(ReplyError::Origin) => {}
            Err(error) => return Err(("read the reply", error.to_string())),
            Ok(reply) => return Ok(sample(server, address, &reply, asked_ns, waited_ns)),
        }
    }
}

fn sample(server: &str, address: SocketAddr, reply: &packet::Reply, asked_ns: i64, waited_ns: i64) -> Sample {
    let (asked, answered) = (Stamp::from_unix_ns(asked_ns), Stamp::from_unix_ns(asked_ns + waited_ns));
    let (offset_ns, round_trip_ns) = packet::measure(asked, reply, answered);
    Sample {
        server: server.to_owned(),
        address,
        offset_ns,
        round_trip_ns,
        remote_time_ns: asked_ns.saturating_add(waited_ns).saturating_add(offset_ns),
        stratum: reply.stratum,
        root_delay_ns: reply.root_delay_ns,
        root_dispersion_ns: reply.root_dispersion_ns,
        leap: reply.leap,
        reference: reply.reference,
    }
}

fn cookie() -> Result<u64, Step> {
    let mut bytes = [0; 8];
    getrandom(&mut bytes, GetRandomFlags::empty())
        .map_err(|errno| ("draw a random number", errno.to_string()))?;
    Ok(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::super::testing::Responder;
    use super::*;

    #[test]
    fn servers_may_name_a_port() {
        assert_eq!(split("time.example"), ("time.example", 123));
        assert_eq!(split("time.example:1123"), ("time.example", 1123));
        assert_eq!(split("2001:db8::1"), ("2001:db8::1", 123));
        assert_eq!(split("[2001:db8::1]:1123"), ("2001:db8::1", 1123));
    }

    #[tokio::test]
    async fn a_real_responder_tells_its_offset() {
        let server = Responder::start(Duration::from_secs(3600)).await;
        let sample = query(&server.name()).await.unwrap();
        let wrong_ns = sample.offset_ns - 3_600_000_000_000;
        assert!(wrong_ns.abs() <= sample.round_trip_ns / 2 + 1_000_000, "{sample:?}");
        assert_eq!((sample.stratum, sample.server), (2, server.name()));
    }

    #[tokio::test]
    async fn a_forged_answer_is_passed_over() {
        let server = Responder::start(Duration::ZERO).await;
        server.forge_first();
        assert!(query(&server.name()).await.unwrap().offset_ns.abs() < 1_000_000_000);
    }

    #[tokio::test]
    async fn failures_name_server_and_reason() {
        let server = Responder::start(Duration::ZERO).await;
        server.refuse();
        let text = query(&server.name()).await.unwrap_err().to_string();
        assert!(text.contains(&server.name()) && text.contains("refuses: RATE"), "{text}");
        let text = query("/dev/ptp0").await.unwrap_err().to_string();
        assert!(text.contains("PTP"), "{text}");
        let closed = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let text = query(&closed.to_string()).await.unwrap_err().to_string();
        assert!(text.contains("refused"), "{text}");
    }
}
