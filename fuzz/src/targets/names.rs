//! The node's own resolver: questions of pods and answers of servers, in any order.
//!
//! An input is a sequence of steps: a question of a client; an answer to a question that a server was asked, with the number that
//! it had or another one; a failure; time that passes.
//! What must hold: nothing panics; memory is bounded; a client has at most one answer, under its own number and within a datagram;
//! after the longest wait none is left without one.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use dns::{Forwarder, Output, Transport};

use crate::check;
use crate::input::{Fields, sized};
use crate::target::{Outcome, Target};

pub(super) const TARGET: Target = Target {
    name: "dns",
    about: "questions to the node's resolver, and answers of servers",
    seeds,
    words: &["\u{3}n-1\u{7}example\u{0}", "\u{0}\u{1}\u{0}\u{1}", "\u{0}\u{1c}\u{0}\u{1}", "\u{0}\u{29}"],
    run,
};

const QUESTION: u8 = 0;
const ANSWER: u8 = 1;
const FORGED: u8 = 2;
const FAILURE: u8 = 3;
const STEPS: u8 = 5;
/// Steps of an input.
const MOST_STEPS: usize = 64;
/// Questions, answers, and messages as values.
const MOST_BYTES: usize = 2 << 20;
/// No larger datagram comes or goes.
const DATAGRAM_BYTES: usize = 4096;
/// After it every client has its answer.
const LONGEST: Duration = Duration::from_secs(5);

/// A question for the address of n-1.example.
fn question(id: u16) -> Vec<u8> {
    let head = [&id.to_be_bytes()[..], &[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]].concat();
    [&head[..], b"\x03n-1\x07example\0", &[0, 1, 0, 1]].concat()
}

/// Its answer: a name for a name, and an address.
fn answer() -> Vec<u8> {
    let mut message = question(0);
    message[2] = 0x81;
    message[3] = 0x80;
    message[7] = 2;
    let alias = [&[0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 60, 0, 6][..], b"\x03n-2\xc0\x10"].concat();
    let address = [0xc0, 41, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1];
    [&message[..], &alias, &address].concat()
}

fn seeds() -> Vec<Vec<u8>> {
    let asked = |id| [&[QUESTION][..], &sized(&question(id))].concat();
    let said = [&[ANSWER][..], &sized(&answer())].concat();
    let mut missing = question(0);
    (missing[2], missing[3]) = (0x81, 0x83);
    let missing = [&[ANSWER][..], &sized(&missing)].concat();
    let forged = [&[FORGED][..], &sized(&answer())].concat();
    let later = [4_u8, 8].to_vec();
    vec![
        [asked(7), said.clone(), asked(8)].concat(),
        [asked(7), asked(8), forged, later.clone(), missing].concat(),
        [asked(1), vec![FAILURE], later, said].concat(),
    ]
}

fn run(input: &[u8]) -> Outcome {
    check::within(MOST_BYTES, || steps(Fields::of(input)))
}

struct Network {
    forwarder: Forwarder<u32>,
    now: Duration,
    /// Exchanges that are open, with the number of the question.
    open: Vec<(u64, [u8; 2])>,
    waiting: BTreeSet<u32>,
    answers: usize,
    shapes: Vec<String>,
}

fn steps(mut fields: Fields<'_>) -> Outcome {
    let mut number = 0_u16;
    let mut forwarder = Forwarder::new(move || {
        number = number.wrapping_add(1);
        number
    });
    let server = |last| SocketAddr::from((Ipv4Addr::new(192, 0, 2, last), 53));
    forwarder.set_servers(&[server(1), server(2)]);
    let (open, waiting, shapes) = (Vec::new(), BTreeSet::new(), Vec::new());
    let mut network = Network { forwarder, now: Duration::ZERO, open, waiting, answers: 0, shapes };
    for client in 0..MOST_STEPS {
        if fields.is_empty() {
            break;
        }
        let client = u32::try_from(client).unwrap_or_default();
        network.step(client, &mut fields);
    }
    let end = network.now + LONGEST;
    while let Some(due) = network.forwarder.deadline() {
        assert!(due <= end, "a client waits until {due:?}");
        network.now = network.now.max(due);
        let outputs = network.forwarder.tick(network.now);
        network.take(outputs);
    }
    // What was dropped is no question; of the others none is left.
    assert!(network.open.is_empty(), "exchanges are left: {:?}", network.open);
    Outcome { accepted: network.answers > 0, shapes: network.shapes }
}

/// What the service reads of a datagram.
fn datagram<'a>(fields: &mut Fields<'a>) -> &'a [u8] {
    let message = fields.sized();
    message.get(..DATAGRAM_BYTES).unwrap_or(message)
}

impl Network {
    fn step(&mut self, client: u32, fields: &mut Fields<'_>) {
        let outputs = match fields.u8() % STEPS {
            QUESTION => {
                self.waiting.insert(client);
                self.forwarder.asked(self.now, client, datagram(fields), Transport::Datagram)
            }
            kind @ (ANSWER | FORGED) => {
                let mut message = datagram(fields).to_vec();
                let Some(&(exchange, id)) = self.open.first() else { return };
                if let Some(place) = message.first_chunk_mut::<2>().filter(|_| kind == ANSWER) {
                    *place = id;
                }
                self.forwarder.answered(self.now, exchange, &message)
            }
            FAILURE => {
                if self.open.is_empty() {
                    return;
                }
                let (exchange, _) = self.open.remove(0);
                self.forwarder.failed(self.now, exchange)
            }
            _ => {
                self.now += Duration::from_millis(u64::from(fields.u8()) * 100);
                self.forwarder.tick(self.now)
            }
        };
        self.take(outputs);
    }

    fn take(&mut self, outputs: Vec<Output<u32>>) {
        for output in outputs {
            match output {
                Output::Reply(client, message) => {
                    assert!(self.waiting.remove(&client), "client {client} has two answers");
                    assert!((12..=DATAGRAM_BYTES).contains(&message.len()), "{} bytes", message.len());
                    self.answers += 1;
                    self.shapes.push(format!("code {}, records {}", message[3] & 15, message[7].min(3)));
                }
                Output::Ask { exchange, message, .. } => self.open.push((exchange, [message[0], message[1]])),
                Output::Cancel(exchange) => self.open.retain(|(open, _)| *open != exchange),
            }
        }
    }
}
