//! HTTP of the root that comes over the network: whole downloads through init's own TCP/IP, from a server that answers
//! whatever the input is, cut into segments wherever the input says.
//!
//! An input is the file's length, the number of cuts and the cuts, and the answer, head and body. Every request gets the same.
//! What must hold: nothing panics; the download ends within its deadlines, which pass at once here, and with a bounded number
//! of requests; memory is bounded; only the right bytes count; what is said is short, and nothing in it acts on a terminal.

use core::fmt;
use core::net::Ipv4Addr;

use netroot::peer::{Answer, MAC, Manner, Peer, Plan, SERVER, Site};
use netroot::{
    Arrived, Broken, Error, Item, Lease, Link, Mirrors, PATIENCE_NS, Setup, Sink, Station, Tone, Url, fetch,
};

use crate::check;
use crate::input::Fields;
use crate::shape;
use crate::target::{Outcome, Target};

pub(super) const TARGET: Target = Target {
    name: "netroot-http",
    about: "answers of the server that a root comes from",
    seeds,
    words: WORDS,
    run,
};

const WORDS: &[&str] = &[
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.1 206 Partial Content\r\n",
    "HTTP/1.1 302 Found\r\nLocation: ",
    "HTTP/1.1 503 Busy\r\n",
    "Content-Length: 600\r\n",
    "Content-Range: bytes 0-599/600\r\n",
    "Transfer-Encoding: chunked\r\n",
    "\r\n\r\n",
    "http://10.77.0.1/base.layer",
    "//other/",
    "\u{1b}[2J",
    "18446744073709551615",
];

/// Where the simulated clock begins.
const BEGIN_NS: u64 = 1_000_000_000;
/// How long a download may go on behind its last progress: the deadlines of one more attempt, and pauses.
const MOST_NS: u64 = 3 * PATIENCE_NS;
/// Attempts on one server in that time, each with its redirects.
const MOST_REQUESTS: usize = 400;
/// Window and buffers of both ends, some connections of it at once, and a head.
const MOST_BYTES: usize = 8 << 20;
/// Longest file, in bytes.
const LONGEST: usize = 4096;
/// Lines are lines of the kernel's log.
const MOST_LINE: usize = 1000;

/// The client's end of a wire, and a clock that moves when somebody waits.
struct Wire {
    peer: Peer,
    now_ns: u64,
    shapes: Vec<String>,
}

impl Link for Wire {
    fn now_ns(&mut self) -> u64 {
        self.now_ns
    }

    fn send(&mut self, frame: &[u8]) -> Result<(), Broken> {
        self.peer.take(frame);
        Ok(())
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<Arrived>, Broken> {
        let Some((frame, tag)) = self.peer.give() else { return Ok(None) };
        buffer[..frame.len()].copy_from_slice(&frame);
        Ok(Some(Arrived { length: frame.len(), tag, checksum_missing: false }))
    }

    fn wait(&mut self, until_ns: u64) -> Result<(), Broken> {
        self.peer.turn(self.now_ns);
        if self.peer.has_frames() {
            self.now_ns += 50_000;
            return Ok(());
        }
        self.now_ns = self.peer.next_ns().map_or(until_ns, |next| next.min(until_ns)).max(self.now_ns + 1);
        assert!(self.now_ns < BEGIN_NS + MOST_NS, "it goes on for ever");
        self.peer.turn(self.now_ns);
        Ok(())
    }

    fn say(&mut self, _: Tone, text: fmt::Arguments<'_>) {
        let line = text.to_string();
        check::shown(&line);
        assert!(line.len() <= MOST_LINE, "a line of {} bytes", line.len());
        let shape = shape::of(&line);
        if !self.shapes.contains(&shape) {
            self.shapes.push(shape);
        }
    }
}

/// Knows what the bytes should be.
struct Wanted {
    length: usize,
    bytes: Vec<u8>,
}

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| b'a' + u8::try_from(at % 23).unwrap_or(0)).collect()
}

impl Sink for Wanted {
    fn restart(&mut self) -> Result<(), Broken> {
        self.bytes.clear();
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        self.bytes.extend(bytes);
        assert!(self.bytes.len() <= self.length, "{} bytes of {}", self.bytes.len(), self.length);
        Ok(())
    }

    fn judge(&mut self) -> Result<Option<String>, Broken> {
        Ok((self.bytes != content(self.length)).then(|| "wrong digest".to_owned()))
    }
}

fn answer(length: usize, cuts: &[u16], head: &str, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(length).expect("a short file");
    let mut seed = [&length.to_be_bytes()[..], &[u8::try_from(cuts.len()).expect("some cuts")]].concat();
    cuts.iter().for_each(|cut| seed.extend(cut.to_be_bytes()));
    [seed, format!("HTTP/1.1 {head}\r\n\r\n").into_bytes(), body.to_vec()].concat()
}

fn seeds() -> Vec<Vec<u8>> {
    let whole = content(600);
    vec![
        answer(600, &[], "200 OK\r\nContent-Length: 600", &whole),
        answer(600, &[1, 5, 17, 40, 300], "200 OK\r\ncontent-length:  600 ", &whole),
        answer(600, &[3], "200 OK\r\nContent-Length: 600", &whole[..200]),
        answer(600, &[30], "206 Part\r\nContent-Range: bytes 0-599/600", &whole),
        answer(600, &[], "200 OK\r\nContent-Length: 600", &[7; 600]),
        answer(600, &[2], "200 OK\r\nTransfer-Encoding: chunked", b"258\r\n"),
        answer(600, &[], "302 Found\r\nLocation: /base.layer", b""),
        answer(600, &[], "302 Found\r\nLocation: http://10.77.0.9:81/x y", b""),
        answer(600, &[], "404 Not Found", b""),
        answer(600, &[9], "503 Busy", b""),
        answer(5, &[], &format!("200 OK\r\nX: {}", "y".repeat(17_000)), b""),
        answer(0, &[], "200 OK\r\nContent-Length: 0", b""),
    ]
}

fn run(input: &[u8]) -> Outcome {
    let mut fields = Fields::of(input);
    let length = usize::from(fields.u16()) % (LONGEST + 1);
    let count = fields.u8();
    let mut ends: Vec<usize> = (0..count).map(|_| fields.u16().into()).collect();
    ends.sort_unstable();
    let site = Site::new(80, Manner::Pieces(ends)).file("/base.layer", Answer::Raw(fields.rest().to_vec()));
    let mut wire = Wire { peer: Peer::new(&Plan::with([site])), now_ns: BEGIN_NS, shapes: Vec::new() };
    let found = check::within(MOST_BYTES + 16 * input.len(), || download(&mut wire, length));
    assert!(wire.peer.requests.len() <= MOST_REQUESTS, "{} requests", wire.peer.requests.len());
    match found {
        Ok(()) => Outcome { accepted: true, shapes: wire.shapes },
        Err(error) => {
            let text = error.to_string();
            check::shown(&text);
            assert!(text.contains("10.77.0.1"), "{text:?} names no server");
            wire.shapes.push(shape::of(&text));
            Outcome { accepted: false, shapes: wire.shapes }
        }
    }
}

fn download(wire: &mut Wire, length: usize) -> Result<(), Error> {
    let address = Ipv4Addr::new(10, 77, 0, 100);
    let lease = Lease { address, prefix: 24, gateway: None, dns: Vec::new(), from: None };
    let mut station = Station::new(wire, Setup { mac: MAC, vlan: None, lease: Some(lease), seed: 77 });
    station.take_address(wire)?;
    let urls = [Url::parse(&format!("http://{SERVER}/")).expect("an address")];
    let mut sink = Wanted { length, bytes: Vec::new() };
    let item = Item { name: "base", file: "base.layer", bytes: length as u64 };
    fetch(&mut station, wire, Mirrors { urls: &urls, trust: None }, item, &mut sink)?;
    assert!(sink.bytes == content(length), "other bytes count");
    Ok(())
}
