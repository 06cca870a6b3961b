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
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    fn request(name: &str, options: &str) -> Vec<u8> {
        [&READ.to_be_bytes(), name.as_bytes(), b"\0octet\0", options.as_bytes()].concat()
    }

    /// A client as firmware is one: asks, acknowledges each block, once twice.
    async fn fetch(path: &Path, options: &str) -> (Option<Vec<u8>>, Vec<u8>, u64) {
        let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let to = client.local_addr().unwrap();
        let request = Request::read(&request("file", options)).unwrap();
        let file = Opened::file(path).unwrap();
        let sending = tokio::spawn(async move { send(Ipv4Addr::LOCALHOST, to, &request, file).await });
        let (mut acknowledged, mut content, mut buffer) = (None, Vec::new(), [0; 2000]);
        let mut block_bytes = USUAL_BLOCK_BYTES;
        loop {
            let (count, from) = client.recv_from(&mut buffer).await.unwrap();
            let packet = &buffer[..count];
            if opcode(packet) == Some(OPTIONS) {
                acknowledged = Some(packet[2..].to_vec());
                if options.contains("blksize") {
                    block_bytes = 1468;
                }
                client.send_to(&[0, 4, 0, 0], from).await.unwrap();
                continue;
            }
            assert_eq!(opcode(packet), Some(DATA));
            let block = number(packet).unwrap();
            content.extend_from_slice(&packet[4..]);
            let ack = [ACK.to_be_bytes(), block.to_be_bytes()].concat();
            client.send_to(&ack, from).await.unwrap();
            if block == 1 {
                // An old acknowledgement brings no second copy of what follows.
                client.send_to(&ack, from).await.unwrap();
            }
            if packet.len() - 4 < block_bytes {
                return (acknowledged, content, sending.await.unwrap().unwrap());
            }
        }
    }

    #[tokio::test]
    async fn a_file_arrives_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        // One that fills its last block, and so has an empty one behind it.
        for length in [0_usize, 1, 512, 100_000, 1468 * 3] {
            let bytes: Vec<u8> = (0..length).map(|n| (n * 7 % 251).to_le_bytes()[0]).collect();
            std::fs::write(&path, &bytes).unwrap();
            let (options, content, sent) = fetch(&path, "").await;
            assert_eq!((options, content.len(), sent), (None, length, length as u64));
            assert_eq!(content, bytes);
            let (options, content, _) = fetch(&path, "tsize\x000\0blksize\x009000\0windowsize\x0016\0").await;
            let expected = format!("blksize\x001468\0tsize\0{length}\0");
            assert_eq!(options.as_deref(), Some(expected.as_bytes()));
            assert_eq!(content, bytes);
        }
    }

    #[tokio::test]
    async fn more_blocks_than_a_number_has_are_counted_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let bytes = vec![9; 512 * 65_540 + 3];
        std::fs::write(&path, &bytes).unwrap();
        let (_, content, _) = fetch(&path, "").await;
        assert!(content == bytes);
    }

    #[tokio::test]
    async fn a_client_that_only_wants_the_length_is_no_fault() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, b"content").unwrap();
        let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let to = client.local_addr().unwrap();
        let asks = |options: &str| Request::read(&request("file", options)).unwrap();
        for (options, ends) in [("tsize\x000\0", Ok(0)), ("blksize\x00512\0", Err(()))] {
            let (wanted, file) = (asks(options), Opened::file(&path).unwrap());
            let sending = tokio::spawn(async move { send(Ipv4Addr::LOCALHOST, to, &wanted, file).await });
            let mut buffer = [0; 600];
            let (_, from) = client.recv_from(&mut buffer).await.unwrap();
            client.send_to(&error(8, "enough"), from).await.unwrap();
            assert_eq!(
                sending.await.unwrap().map_err(|error| assert!(error.to_string().contains("enough"))),
                ends
            );
        }
    }

    /// A transfer to a socket of ours that sends again after this time.
    fn sending(
        client: &UdpSocket,
        path: &Path,
        options: &str,
        wait: Duration,
    ) -> tokio::task::JoinHandle<io::Result<u64>> {
        let to = client.local_addr().unwrap();
        let (wanted, file) = (Request::read(&request("file", options)).unwrap(), Opened::file(path).unwrap());
        tokio::spawn(async move { send_with(Ipv4Addr::LOCALHOST, to, &wanted, file, wait).await })
    }

    /// The options and each block, once: the network loses what comes first. It loses each acknowledgement as well.
    #[tokio::test]
    async fn what_is_lost_is_sent_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let bytes: Vec<u8> = (0..1400_usize).map(|n| (n * 7 % 251).to_le_bytes()[0]).collect();
        std::fs::write(&path, &bytes).unwrap();
        let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let sending = sending(&client, &path, "blksize\x00512\0", Duration::from_millis(50));
        let (mut content, mut buffer) = (Vec::new(), [0; 600]);
        for block in 0..=3 {
            let mut heard = Vec::new();
            // Nothing is said meanwhile, so these are not asked for. Copies of the block before may still be under way.
            let from = loop {
                let (count, from) = client.recv_from(&mut buffer).await.unwrap();
                let packet = &buffer[..count];
                let is_options = opcode(packet) == Some(OPTIONS);
                if is_options && block == 0 || opcode(packet) == Some(DATA) && number(packet) == Some(block) {
                    heard.push(packet.to_vec());
                }
                if heard.len() == 3 {
                    break from;
                }
            };
            assert!(heard.iter().all(|packet| *packet == heard[0]), "{heard:?}");
            if block > 0 {
                content.extend_from_slice(&heard[0][4..]);
            }
            client.send_to(&[ACK.to_be_bytes(), block.to_be_bytes()].concat(), from).await.unwrap();
        }
        assert_eq!(sending.await.unwrap().unwrap(), 1400);
        assert_eq!(content, bytes);
    }

    #[tokio::test]
    async fn a_client_that_goes_silent_is_told_of() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, [9; 600]).unwrap();
        for acknowledged in [0, 1] {
            let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            let sending = sending(&client, &path, "", Duration::from_millis(50));
            let mut buffer = [0; 600];
            for block in 1..=acknowledged {
                let (_, from) = client.recv_from(&mut buffer).await.unwrap();
                client.send_to(&[ACK.to_be_bytes(), u16::to_be_bytes(block)].concat(), from).await.unwrap();
            }
            let error = sending.await.unwrap().unwrap_err();
            let last = acknowledged + 1;
            assert_eq!(
                error.to_string(),
                format!("no acknowledgement of block {last} within 0.3 s (deadline TFTP block)")
            );
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            let mut sent = 0;
            while let Ok(count) = client.try_recv(&mut buffer) {
                sent += u32::from(number(&buffer[..count]) == Some(last));
            }
            assert_eq!(sent, TRIES);
        }
    }

    #[test]
    fn what_is_no_request_is_answered_with_a_reason() {
        for (packet, why) in [
            (b"".as_slice(), "no request"),
            (b"\0\x02file\0octet\0", "only read"),
            (b"\0\x01file\0octet", "cut off"),
            (b"\0\x01file\0", "cut off"),
            (b"\0\x01\0octet\0", "names no file"),
            (b"\0\x01file\0netascii\0", "only octet"),
            (b"\0\x04\0\x01", "no request"),
        ] {
            let error = Request::read(packet).unwrap_err();
            assert!(error.reason.contains(why), "{packet:?}: {}", error.reason);
            assert_eq!(opcode(&error.answer()), Some(ERROR));
        }
        let odd = Request::read(&request("file", "blksize\x001\0timeout\x000\0tsize\0")).unwrap();
        assert_eq!((odd.block_bytes, odd.timeout_seconds, odd.wants_length), (None, None, false));
    }

    proptest! {
        #[test]
        fn no_packet_is_too_odd(packet in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Request::read(&packet);
        }
    }
}
