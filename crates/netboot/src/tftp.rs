//! TFTP, reading only: what firmware loads its first file with.
//!
//! Owns: requests and their options, one transfer a request on a socket of its own.
//! Does not: take files; netascii (nobody's firmware asks for it); several blocks at once.
//! Order: options are acknowledged before the first block; a block is sent again only when its acknowledgement does not
//! come in time, never because an older one comes twice.
//! Source: RFC 1350; RFC 2347 (options), 2348 (block size), 2349 (timeout, file size); RFC 1123 §4.2.3.1.

use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout_at};

use crate::files::Opened;

/// Without the option.
const USUAL_BLOCK_BYTES: usize = 512;
/// What fits into an Ethernet frame, with the headers of IP, UDP and TFTP.
const LARGEST_BLOCK_BYTES: usize = 1468;
/// Until something is sent again, unless the client says otherwise.
const USUAL_TIMEOUT: Duration = Duration::from_secs(1);
/// How often something is sent at most.
const TRIES: u32 = 6;

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
        let mut request = Self { name, block_bytes: None, wants_length: false, timeout_seconds: None };
        while let (Some(option), Some(value)) = (words.next(), words.next()) {
            match option.to_ascii_lowercase().as_str() {
                "blksize" => {
                    let bytes = value.parse::<usize>().ok().filter(|bytes| (8..=65464).contains(bytes));
                    request.block_bytes = bytes.map(|bytes| bytes.min(LARGEST_BLOCK_BYTES));
                }
                "tsize" => request.wants_length = true,
                "timeout" => request.timeout_seconds = value.parse().ok().filter(|seconds| *seconds > 0),
                _ => {}
            }
        }
        Ok(request)
    }

    /// The answer to its options; `None` if it has none that count.
    fn acknowledgement(&self, length: u64) -> Option<Vec<u8>> {
        let mut packet = OPTIONS.to_be_bytes().to_vec();
        let mut add = |name: &str, value: String| {
            packet.extend(name.bytes().chain([0]).chain(value.bytes()).chain([0]));
        };
        if let Some(bytes) = self.block_bytes {
            add("blksize", bytes.to_string());
        }
        if self.wants_length {
            add("tsize", length.to_string());
        }
        if let Some(seconds) = self.timeout_seconds {
            add("timeout", seconds.to_string());
        }
        (packet.len() > 2).then_some(packet)
    }
}

impl NoRequest {
    /// What the client is told.
    #[must_use]
    pub fn answer(&self) -> Vec<u8> {
        error(self.code, self.reason)
    }
}

/// What a client is told of a file that is not there.
#[must_use]
pub fn not_found() -> Vec<u8> {
    error(NOT_FOUND, "there is no such file")
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

/// Sends a file; its length once all of it has arrived. A client that wanted nothing but the length ends it there.
///
/// # Errors
/// What the client or the network says; a file that cannot be read.
pub async fn send(us: Ipv4Addr, to: SocketAddr, request: &Request, file: Opened) -> io::Result<u64> {
    let wait = request.timeout_seconds.map_or(USUAL_TIMEOUT, |seconds| Duration::from_secs(seconds.into()));
    send_with(us, to, request, file, wait).await
}

/// The same, with this time until something is sent again.
async fn send_with(
    us: Ipv4Addr,
    to: SocketAddr,
    request: &Request,
    file: Opened,
    wait: Duration,
) -> io::Result<u64> {
    let socket = UdpSocket::bind((us, 0)).await?;
    socket.connect(to).await?;
    let Opened { content: mut file, length } = file;
    if let Some(packet) = request.acknowledgement(length) {
        match exchange(&socket, &packet, 0, wait).await? {
            Said::Acknowledged => {}
            // Firmware asks for the length and then once more for the file.
            Said::Refused(_) if request.wants_length => return Ok(0),
            Said::Refused(reason) => return Err(io::Error::other(reason)),
        }
    }
    let block_bytes = request.block_bytes.unwrap_or(USUAL_BLOCK_BYTES);
    let mut block = 0_u16;
    loop {
        block = block.wrapping_add(1);
        let mut packet = [DATA.to_be_bytes(), block.to_be_bytes()].concat();
        // Blocks are small and the page cache has them: not worth a thread of their own.
        let count = (&mut file).take(block_bytes as u64).read_to_end(&mut packet)?;
        if let Said::Refused(reason) = exchange(&socket, &packet, block, wait).await? {
            return Err(io::Error::other(reason));
        }
        if count < block_bytes {
            return Ok(length);
        }
    }
}

enum Said {
    Acknowledged,
    Refused(String),
}

/// Sends a packet until its acknowledgement comes.
async fn exchange(socket: &UdpSocket, packet: &[u8], block: u16, wait: Duration) -> io::Result<Said> {
    let mut buffer = [0; 516];
    for _ in 0..TRIES {
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
    let seconds = (wait * TRIES).as_secs_f64();
    let text = format!("no acknowledgement of block {block} within {seconds} s (deadline TFTP block)");
    Err(io::Error::new(io::ErrorKind::TimedOut, text))
}

#[cfg(test)]
mod tests;
