//! TFTP, reading only: what firmware loads its first file with.
//!
//! Owns: requests and their options, one transfer a request on a socket of its own ([`serve`] has all of them).
//! Does not: take files; netascii (nobody's firmware asks for it); several blocks at once.
//! Order: options are acknowledged before the first block; a block is sent again only when its acknowledgement does not
//! come in time, never because an older one comes twice.
//! Whoever sends a request can write any address into it. Before that address has acknowledged something, options are
//! acknowledged in no more bytes than the request has, three times at most, and nothing is made of a file. Of a request
//! without options the first answer is a block of data, as RFC 1350 wants it: once, and the client asks again.
//! Source: RFC 1350; RFC 2347 (options), 2348 (block size), 2349 (timeout, file size); RFC 1123 §4.2.3.1.

use std::fs::File;
use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout_at};

use crate::files::{Found, Opened};
use crate::places::{Limits, Place, Places};

pub(crate) mod serve;

/// Firmware has one transfer at a time and, when it asked for the length, the end of another.
const LIMITS: Limits = Limits { of_peer: 4, of_all: 128 };
/// Without the option.
const USUAL_BLOCK_BYTES: usize = 512;
/// What fits into an Ethernet frame, with the headers of IP, UDP and TFTP.
const LARGEST_BLOCK_BYTES: usize = 1468;
/// Until something is sent again, unless the client says otherwise.
const USUAL_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest that a client may ask for: a machine that was turned off costs no more than [`TRIES`] of it.
const LONGEST_TIMEOUT: u8 = 5;
/// How often something is sent at most.
const TRIES: u32 = 6;
/// How often options are acknowledged to an address that has said nothing itself.
const UNPROVEN_TRIES: u32 = 3;
/// For a whole file: 20 MB in blocks of 512 bytes over a wire with 20 ms take 14 minutes.
const TRANSFER_LIMIT: Duration = Duration::from_secs(15 * 60);

const READ: u16 = 1;
const WRITE: u16 = 2;
const DATA: u16 = 3;
const ACK: u16 = 4;
const ERROR: u16 = 5;
const OPTIONS: u16 = 6;

/// Error codes of RFC 1350 and 2347.
const NOT_FOUND: u16 = 1;
const NOT_ALLOWED: u16 = 2;
const NOT_UNDERSTOOD: u16 = 4;

/// Somebody wants a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// As it was asked for.
    pub name: String,
    block_bytes: Option<usize>,
    wants_length: bool,
    timeout_seconds: Option<u8>,
    /// Of the packet.
    bytes: usize,
}

/// Why a packet is no request for a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoRequest {
    /// For the client.
    code: u16,
    /// For people.
    pub reason: &'static str,
}

impl Request {
    /// Reads a packet. An option that is not known, or whose value makes no sense, is as if it were not there.
    ///
    /// # Errors
    /// [`NoRequest`] says what it is instead.
    pub fn read(packet: &[u8]) -> Result<Self, NoRequest> {
        let not_understood = |reason| NoRequest { code: NOT_UNDERSTOOD, reason };
        match opcode(packet) {
            Some(READ) => {}
            Some(WRITE) => return Err(NoRequest { code: NOT_ALLOWED, reason: "files are only read here" }),
            _ => return Err(not_understood("that is no request")),
        }
        let body = packet.get(2..).unwrap_or_default();
        let body = body.strip_suffix(&[0]).ok_or_else(|| not_understood("the request is cut off"))?;
        let mut words = body.split(|byte| *byte == 0).map(String::from_utf8_lossy);
        let name = words.next().filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| not_understood("the request names no file"))?.into_owned();
        let mode = words.next().ok_or_else(|| not_understood("the request is cut off"))?;
        if !mode.eq_ignore_ascii_case("octet") {
            return Err(not_understood("only octet is known, no other mode"));
        }
        let bytes = packet.len();
        let mut request = Self { name, block_bytes: None, wants_length: false, timeout_seconds: None, bytes };
        while let (Some(option), Some(value)) = (words.next(), words.next()) {
            match option.to_ascii_lowercase().as_str() {
                "blksize" => {
                    let bytes = value.parse::<usize>().ok().filter(|bytes| (8..=65464).contains(bytes));
                    request.block_bytes = bytes.map(|bytes| bytes.min(LARGEST_BLOCK_BYTES));
                }
                "tsize" => request.wants_length = true,
                "timeout" => {
                    let seconds = value.parse().ok();
                    request.timeout_seconds =
                        seconds.filter(|seconds| (1..=LONGEST_TIMEOUT).contains(seconds));
                }
                _ => {}
            }
        }
        Ok(request)
    }

    /// The answer to its options; `None` if it has none that count. A length that would make it longer than the request
    /// is left out.
    fn acknowledgement(&self, length: u64) -> Option<Vec<u8>> {
        let all = self.acknowledged(Some(length).filter(|_| self.wants_length));
        let packet = if all.len() > self.bytes { self.acknowledged(None) } else { all };
        (2 < packet.len() && packet.len() <= self.bytes).then_some(packet)
    }

    fn acknowledged(&self, length: Option<u64>) -> Vec<u8> {
        let mut packet = OPTIONS.to_be_bytes().to_vec();
        let mut add = |name: &str, value: String| {
            packet.extend(name.bytes().chain([0]).chain(value.bytes()).chain([0]));
        };
        if let Some(bytes) = self.block_bytes {
            add("blksize", bytes.to_string());
        }
        if let Some(length) = length {
            add("tsize", length.to_string());
        }
        if let Some(seconds) = self.timeout_seconds {
            add("timeout", seconds.to_string());
        }
        packet
    }
}

impl NoRequest {
    /// What the client is told.
    #[must_use]
    pub fn answer(&self) -> Vec<u8> {
        error(self.code, self.reason)
    }
}

/// An error as long as what it answers at most; `None`: that is too short for any.
fn within(mut error: Vec<u8>, bytes: usize) -> Option<Vec<u8>> {
    if error.len() > bytes {
        error.truncate(bytes.checked_sub(1)?);
        error.push(0);
    }
    (error.len() > 4).then_some(error)
}

fn error(code: u16, text: &str) -> Vec<u8> {
    [&ERROR.to_be_bytes(), &code.to_be_bytes(), text.as_bytes(), &[0]].concat()
}

fn opcode(packet: &[u8]) -> Option<u16> {
    packet.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

/// The number behind the opcode: a block's, or an error's.
fn number(packet: &[u8]) -> Option<u16> {
    packet.get(2..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

/// Sends a file to a client that may be sent a first block, as [`serve`] does: one transfer, without the service around it.
///
/// # Errors
/// What the client or the network says; a file that cannot be read; [`TRANSFER_LIMIT`].
pub async fn send(us: Ipv4Addr, to: SocketAddr, request: &Request, file: File) -> io::Result<u64> {
    let length = file.metadata()?.len();
    let Ok((place, _given_away)) = Places::new(LIMITS).admit(to) else {
        return Err(io::Error::other("no place for the only client"));
    };
    Client { us, to, place: &place, trusts: &|| true }.send(request, Found::File(file, length)).await
}

/// Who gets a file, and from where.
struct Client<'p> {
    us: Ipv4Addr,
    to: SocketAddr,
    place: &'p Place,
    /// Whether it is sent a block before it has shown that it is there.
    trusts: &'p (dyn Fn() -> bool + Send + Sync),
}

impl Client<'_> {
    /// Sends a file; its length once all of it has arrived. A client that wanted nothing but the length ends it there.
    ///
    /// # Errors
    /// What the client or the network says; a file that cannot be read; [`TRANSFER_LIMIT`].
    async fn send(&self, request: &Request, file: Found) -> io::Result<u64> {
        let wait =
            request.timeout_seconds.map_or(USUAL_TIMEOUT, |seconds| Duration::from_secs(seconds.into()));
        let sent = tokio::time::timeout(TRANSFER_LIMIT, self.send_with(request, file, wait)).await;
        sent.unwrap_or_else(|_| {
            let minutes = TRANSFER_LIMIT.as_secs() / 60;
            let text = format!("it did not have all of it within {minutes} min (deadline TFTP transfer)");
            Err(io::Error::new(io::ErrorKind::TimedOut, text))
        })
    }

    /// The same, with this time until something is sent again.
    async fn send_with(&self, request: &Request, file: Found, wait: Duration) -> io::Result<u64> {
        let socket = UdpSocket::bind((self.us, 0)).await?;
        socket.connect(self.to).await?;
        let acknowledgement = request.acknowledgement(file.length());
        // Once, for as long as options are acknowledged: the client asks again.
        let mut first = (1, wait * UNPROVEN_TRIES);
        if let Some(packet) = acknowledgement {
            match exchange(&socket, &packet, 0, (UNPROVEN_TRIES, wait)).await? {
                Said::Acknowledged => self.place.prove(),
                // Firmware asks for the length and then once more for the file.
                Said::Refused(_) if request.wants_length => return Ok(0),
                Said::Refused(reason) => return Err(io::Error::other(reason)),
            }
            first = (TRIES, wait);
        } else if !(self.trusts)() {
            return Err(io::Error::other("too many ask without options: it may ask again"));
        }
        let Opened { content: mut file, length } = file.open().await?;
        let block_bytes = request.block_bytes.unwrap_or(USUAL_BLOCK_BYTES);
        let (mut block, mut tries) = (0_u16, first);
        loop {
            block = block.wrapping_add(1);
            let mut packet = [DATA.to_be_bytes(), block.to_be_bytes()].concat();
            // Blocks are small and the page cache has them: not worth a thread of their own.
            let count = (&mut file).take(block_bytes as u64).read_to_end(&mut packet)?;
            if let Said::Refused(reason) = exchange(&socket, &packet, block, tries).await? {
                return Err(io::Error::other(reason));
            }
            if count < block_bytes {
                return Ok(length);
            }
            self.place.prove();
            tries = (TRIES, wait);
        }
    }
}

enum Said {
    Acknowledged,
    Refused(String),
}

/// Sends a packet until its acknowledgement comes: so often at most, with this time between.
async fn exchange(
    socket: &UdpSocket,
    packet: &[u8],
    block: u16,
    (tries, wait): (u32, Duration),
) -> io::Result<Said> {
    let mut buffer = [0; 516];
    for _ in 0..tries {
        socket.send(packet).await?;
        let end = Instant::now() + wait;
        while let Ok(received) = timeout_at(end, socket.recv(&mut buffer)).await {
            let answer = buffer.get(..received?).unwrap_or_default();
            match opcode(answer) {
                Some(ACK) if number(answer) == Some(block) => return Ok(Said::Acknowledged),
                Some(ERROR) => {
                    let text = String::from_utf8_lossy(answer.get(4..).unwrap_or_default());
                    let text = text.trim_end_matches('\0');
                    return Ok(Said::Refused(format!(
                        "the client ended it: {text} (error {})",
                        number(answer).unwrap_or(0)
                    )));
                }
                // An acknowledgement that came twice, or nothing of ours.
                _ => {}
            }
        }
    }
    let seconds = (wait * tries).as_secs_f64();
    let text = format!("no acknowledgement of block {block} within {seconds} s (deadline TFTP block)");
    Err(io::Error::new(io::ErrorKind::TimedOut, text))
}

#[cfg(test)]
mod tests;
