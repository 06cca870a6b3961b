//! TFTP of `netboot serve`: a request, and a whole transfer with a client that says whatever it likes.
//!
//! An input is the request's packet, the file's length, and what the client does with each packet that it gets. The transfer
//! is the server's own, over loopback; behind the last word the client ends it, so that nothing is waited for.
//! What must hold: nothing panics; memory is bounded; what is no request is answered by an error that is no longer; a transfer
//! counts as done only when every block was acknowledged, in order, and what arrived is the file; nothing is sent twice before
//! its time.

use std::io::{Seek as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use netboot::tftp::{self, Request};
use tokio::net::UdpSocket;
use tokio::runtime::{Builder, Runtime};

use crate::check;
use crate::input::{Fields, sized};
use crate::shape;
use crate::target::{Outcome, Target};

pub(super) const TARGET: Target = Target {
    name: "netboot-tftp",
    about: "TFTP requests to the boot server, and whole transfers",
    seeds,
    words: &[
        "octet\u{0}",
        "netascii\u{0}",
        "blksize\u{0}8\u{0}",
        "blksize\u{0}1468\u{0}",
        "tsize\u{0}0\u{0}",
        "timeout\u{0}255\u{0}",
        "../",
    ],
    run,
};

/// What the server reads of a packet.
const PACKET_BYTES: usize = 1500;
/// Longest file.
const LONGEST: usize = 5000;
/// For a packet that has to come, on a machine that is busy.
const DEADLINE: Duration = Duration::from_secs(60);
/// Until the server sends something again, if the request does not say otherwise.
const AGAIN: Duration = Duration::from_secs(1);
/// Sockets, tasks, packets.
const MOST_BYTES: usize = 1 << 20;
/// An answer to what is no request: it goes to whatever address a packet claims to come from.
const LONGEST_ERROR: usize = 64;

const DATA: u16 = 3;
const ACK: u16 = 4;
const ERROR: u16 = 5;
const OPTIONS: u16 = 6;

/// What a client does: acknowledge; acknowledge the one before; any number; any packet; from another port; end it.
const ACKNOWLEDGE: u8 = 0;
const BEFORE: u8 = 1;
const OTHER: u8 = 2;
const PACKET: u8 = 3;
const STRANGER: u8 = 4;
const END: u8 = 5;
const ACTIONS: u8 = 6;

fn seed(options: &str, length: u16, actions: &[u8]) -> Vec<u8> {
    let request = [&[0, 1][..], b"file\0octet\0", options.as_bytes()].concat();
    [&sized(&request)[..], &length.to_be_bytes(), actions].concat()
}

fn seeds() -> Vec<Vec<u8>> {
    let error = [&[PACKET][..], &sized(b"\0\x05\0\x08no room\0")].concat();
    vec![
        seed("", 0, &[ACKNOWLEDGE]),
        seed("", 1200, &[ACKNOWLEDGE; 3]),
        seed("blksize\x008\0", 64, &[ACKNOWLEDGE; 10]),
        seed(
            "tsize\x000\0blksize\x001468\0",
            3000,
            &[ACKNOWLEDGE, BEFORE, ACKNOWLEDGE, STRANGER, ACKNOWLEDGE],
        ),
        seed("tsize\x000\0timeout\x003\0", 100, &error),
        seed("", 600, &[OTHER, 0, 9, ACKNOWLEDGE, END]),
        [&sized(b"\0\x02file\0octet\0")[..], &[0, 0]].concat(),
        [&sized(b"\0\x01file\0netascii\0")[..], &[0, 0]].concat(),
    ]
}

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 % 251).to_le_bytes()[0]).collect()
}

thread_local! {
    /// One for all inputs of a thread: making one takes longer than a transfer.
    static RUNTIME: Runtime = Builder::new_current_thread().enable_all().build().expect("a runtime of one thread");
}

fn run(input: &[u8]) -> Outcome {
    let mut fields = Fields::of(input);
    let packet = fields.sized();
    let packet = &packet[..packet.len().min(PACKET_BYTES)];
    let request = match Request::read(packet) {
        Ok(request) => request,
        Err(error) => {
            check::shown(error.reason);
            assert!(error.answer().len() <= LONGEST_ERROR, "an error of {} bytes", error.answer().len());
            return Outcome::refused(error.reason);
        }
    };
    let file = content(usize::from(fields.u16()) % (LONGEST + 1));
    let (sent, client) = check::within(MOST_BYTES + 4 * input.len(), || {
        RUNTIME.with(|runtime| runtime.block_on(transfer(&request, &file, fields)))
    });
    let is_early = client.took < AGAIN;
    assert!(client.twice == 0 || !is_early, "a packet came twice within {:?}", client.took);
    match sent {
        // A client that wanted nothing but the length.
        Ok(0) if client.ended => Outcome { accepted: true, shapes: vec!["its length".to_owned()] },
        Ok(length) => {
            assert!(length == file.len() as u64 && client.content == file, "another file arrived");
            Outcome { accepted: true, shapes: vec![format!("{} blocks", client.blocks.min(9))] }
        }
        Err(error) => {
            let text = error.to_string();
            assert!(text.len() <= 1024, "an error of {} bytes", text.len());
            // What a client says is no new answer of ours.
            let own = if text.starts_with("the client ended it") { "the client ended it" } else { &text };
            Outcome { accepted: false, shapes: vec![shape::of(own)] }
        }
    }
}

/// What a client got.
#[derive(Default)]
struct Client {
    content: Vec<u8>,
    blocks: usize,
    /// Packets that came before.
    twice: usize,
    ended: bool,
    took: Duration,
}

async fn transfer(request: &Request, file: &[u8], mut actions: Fields<'_>) -> (std::io::Result<u64>, Client) {
    let bind = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0));
    let (socket, stranger) = (bind().await.expect("loopback"), bind().await.expect("loopback"));
    let to = socket.local_addr().expect("loopback");
    let mut content = tempfile::tempfile().expect("a temporary file");
    content.write_all(file).and_then(|()| content.rewind()).expect("a temporary file");
    let sending = tftp::send(Ipv4Addr::LOCALHOST, to, request, content);
    tokio::pin!(sending);
    let (mut client, began) = (Client::default(), Instant::now());
    let (mut buffer, mut last) = ([0; 2000], None);
    loop {
        let received = tokio::select! {
            // What came counts before what the server made of it.
            biased;
            received = tokio::time::timeout(DEADLINE, socket.recv_from(&mut buffer)) => received,
            sent = &mut sending => {
                client.took = began.elapsed();
                client.take_all(socket, &mut last);
                return (sent, client);
            }
        };
        let (count, from) = received.expect("the server says something, or ends").expect("loopback");
        let (kind, number) = client.take(&buffer[..count], &mut last);
        let said = client.act(&mut actions, number, kind).into_iter();
        for (by_stranger, packet) in said {
            let socket = if by_stranger { &stranger } else { &socket };
            send(socket, &packet, from).await;
        }
    }
}

async fn send(socket: &UdpSocket, packet: &[u8], to: SocketAddr) {
    // A server that is done has closed its port.
    let _ = socket.send_to(packet, to).await;
}

impl Client {
    /// Acknowledgements that were sent ahead may have had the server send more than was read.
    fn take_all(&mut self, socket: UdpSocket, last: &mut Option<(u16, u16)>) {
        let (socket, mut buffer) = (socket.into_std().expect("loopback"), [0; 2000]);
        while let Ok((count, _)) = socket.recv_from(&mut buffer) {
            self.take(&buffer[..count], last);
        }
    }

    /// Kind and number of a packet; a block's content is kept.
    fn take(&mut self, packet: &[u8], last: &mut Option<(u16, u16)>) -> (u16, u16) {
        let mut fields = Fields::of(packet);
        let kind = fields.u16();
        let number = if kind == OPTIONS { 0 } else { fields.u16() };
        assert!([DATA, OPTIONS].contains(&kind), "the server says {kind}");
        if *last == Some((kind, number)) {
            self.twice += 1;
        } else if kind == DATA {
            self.content.extend(fields.rest());
            self.blocks += 1;
        }
        *last = Some((kind, number));
        (kind, number)
    }

    /// What is said until one word is an acknowledgement, or the end.
    fn act(&mut self, actions: &mut Fields<'_>, number: u16, kind: u16) -> Vec<(bool, Vec<u8>)> {
        let packet = |kind: u16, number: u16| [kind.to_be_bytes(), number.to_be_bytes()].concat();
        let mut said = Vec::new();
        while !actions.is_empty() {
            match actions.u8() % ACTIONS {
                ACKNOWLEDGE => {
                    said.push((false, packet(ACK, number)));
                    return said;
                }
                BEFORE => said.push((false, packet(ACK, number.wrapping_sub(1)))),
                OTHER => said.push((false, packet(ACK, actions.u16()))),
                PACKET => {
                    let packet = actions.sized().to_vec();
                    self.ended |= kind == OPTIONS && packet.starts_with(&ERROR.to_be_bytes());
                    said.push((false, packet));
                }
                STRANGER => said.push((true, packet(ACK, number))),
                _ => break,
            }
        }
        self.ended |= kind == OPTIONS;
        said.push((false, [&packet(ERROR, 0)[..], b"that is all\0"].concat()));
        said
    }
}
