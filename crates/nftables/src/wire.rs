//! How messages and expressions are laid out.
//!
//! A message is 16 bytes of netlink's header (length 0 +4, type 4 +2, flags 6 +2, sequence 8 +4, port 12 +4), 4 of
//! nfnetlink's (family, version, resource as a big-endian number) and attributes (length +2, type +2, value, padding to 4).

use std::net::IpAddr;

use crate::{Chain, Match, Rule, Verdict};

const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
const CREATE: u16 = 0x400;
const APPEND: u16 = 0x800;

const BEGIN: u16 = 0x10;
const END: u16 = 0x11;
/// `NFNL_SUBSYS_NFTABLES`
const SUBSYSTEM: u16 = 10;
pub(crate) const NEW_TABLE: u16 = 0;
pub(crate) const DELETE_TABLE: u16 = 2;
const NEW_CHAIN: u16 = 3;
const NEW_RULE: u16 = 6;

const UNSPECIFIED: u8 = 0;
/// `NFPROTO_INET`
const INET: u8 = 1;
const NESTED: u16 = 0x8000;
/// Where a packet comes in for this machine, and before which other chains: `filter`.
const INPUT_HOOK: u32 = 1;
const PRIORITY: u32 = 0;

/// The register of verdicts, and one for values.
const VERDICT_REGISTER: u32 = 0;
const REGISTER: u32 = 1;
const EQUAL: u32 = 0;
const NOT_EQUAL: u32 = 1;
const META_INPUT_NAME: u32 = 6;
const META_FAMILY: u32 = 15;
const META_PROTOCOL: u32 = 16;
const CT_STATE: u32 = 0;
/// Of these a connection is `ESTABLISHED` or `RELATED`.
const ESTABLISHED: u32 = 2 | 4;
const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;
/// Names of links have so many bytes, with zeros behind.
const NAME_BYTES: usize = 16;
const JUMP: i32 = -3;

/// Attributes one after the other.
#[derive(Default)]
struct Attributes(Vec<u8>);

impl Attributes {
    fn bytes(mut self, kind: u16, value: &[u8]) -> Self {
        let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    fn number(self, kind: u16, value: u32) -> Self {
        self.bytes(kind, &value.to_be_bytes())
    }

    fn string(self, kind: u16, value: &str) -> Self {
        self.bytes(kind, &[value.as_bytes(), &[0]].concat())
    }

    fn nested(self, kind: u16, inner: &Self) -> Self {
        self.bytes(kind | NESTED, &inner.0)
    }

    /// Bytes that an expression compares with.
    fn data(self, kind: u16, value: &[u8]) -> Self {
        self.nested(kind, &Self::default().bytes(1, value))
    }
}

/// A message without its place in the transaction.
pub(crate) struct Message {
    kind: u16,
    flags: u16,
    family: u8,
    resource: u16,
    attributes: Attributes,
}

impl Message {
    fn of_tables(kind: u16, flags: u16, attributes: Attributes) -> Self {
        Self { kind: (SUBSYSTEM << 8) | kind, flags, family: INET, resource: 0, attributes }
    }

    fn of_batch(kind: u16) -> Self {
        let attributes = Attributes::default();
        Self { kind, flags: 0, family: UNSPECIFIED, resource: SUBSYSTEM, attributes }
    }

    fn encode(&self, sequence: u32) -> Vec<u8> {
        let length = u32::try_from(20 + self.attributes.0.len()).unwrap_or(u32::MAX);
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(self.kind.to_ne_bytes());
        bytes.extend((REQUEST | self.flags).to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend([self.family, 0]);
        bytes.extend(self.resource.to_be_bytes());
        bytes.extend(&self.attributes.0);
        bytes
    }
}

pub(crate) fn transaction(mut messages: Vec<Message>) -> Vec<u8> {
    if let Some(last) = messages.last_mut() {
        last.flags |= ACKNOWLEDGE;
    }
    let all = std::iter::once(Message::of_batch(BEGIN)).chain(messages).chain([Message::of_batch(END)]);
    (1..).zip(all).flat_map(|(sequence, message)| message.encode(sequence)).collect()
}

pub(crate) fn table(kind: u16, name: &str) -> Message {
    let flags = if kind == NEW_TABLE { CREATE } else { 0 };
    Message::of_tables(kind, flags, Attributes::default().string(1, name))
}

pub(crate) fn chain(table: &str, chain: &Chain) -> Message {
    let mut attributes = Attributes::default().string(1, table).string(3, &chain.name);
    if let Some(policy) = &chain.input {
        let hook = Attributes::default().number(1, INPUT_HOOK).number(2, PRIORITY);
        let accepts = *policy == Verdict::Accept;
        attributes = attributes.nested(4, &hook).number(5, u32::from(accepts)).string(7, "filter");
    }
    Message::of_tables(NEW_CHAIN, CREATE, attributes)
}

pub(crate) fn rule(table: &str, chain: &str, rule: &Rule) -> Message {
    let mut expressions = Attributes::default();
    let matches = rule.matches.iter().flat_map(of_match);
    let counter = ("counter", Attributes::default());
    for (name, data) in matches.chain([counter, of_verdict(&rule.verdict)]) {
        expressions = expressions.nested(1, &Attributes::default().string(1, name).nested(2, &data));
    }
    let attributes = Attributes::default().string(1, table).string(2, chain).nested(4, &expressions);
    Message::of_tables(NEW_RULE, CREATE | APPEND, attributes)
}

type Expression = (&'static str, Attributes);

fn of_verdict(verdict: &Verdict) -> Expression {
    let code = |code: i32| Attributes::default().bytes(1, &code.to_be_bytes());
    let verdict = match verdict {
        Verdict::Drop => code(0),
        Verdict::Accept => code(1),
        Verdict::Jump(chain) => code(JUMP).string(2, chain),
    };
    let data = Attributes::default().nested(2, &verdict);
    ("immediate", Attributes::default().number(1, VERDICT_REGISTER).nested(2, &data))
}

fn of_match(wanted: &Match) -> Vec<Expression> {
    match wanted {
        Match::Input(link) => {
            let mut name = link.as_bytes().to_vec();
            name.resize(NAME_BYTES, 0);
            vec![meta(META_INPUT_NAME), compare(EQUAL, &name)]
        }
        Match::Established => {
            let load = Attributes::default().number(1, REGISTER).number(2, CT_STATE);
            vec![("ct", load), masked(&ESTABLISHED.to_ne_bytes()), compare(NOT_EQUAL, &[0; 4])]
        }
        Match::Protocol(number) => vec![meta(META_PROTOCOL), compare(EQUAL, &[*number])],
        Match::Port(first, last) => {
            let range = Attributes::default().number(1, REGISTER).number(2, EQUAL);
            let range = range.data(3, &first.to_be_bytes()).data(4, &last.to_be_bytes());
            vec![payload(TRANSPORT_HEADER, 2, 2), ("range", range)]
        }
        Match::Source(address, prefix) => source(*address, *prefix),
    }
}

fn source(address: IpAddr, prefix: u8) -> Vec<Expression> {
    let (family, offset, bytes): (u8, u32, Vec<u8>) = match address {
        IpAddr::V4(address) => (2, 12, address.octets().to_vec()),
        IpAddr::V6(address) => (10, 8, address.octets().to_vec()),
    };
    let ones = |index: usize| usize::from(prefix).saturating_sub(index * 8).min(8);
    let mask: Vec<u8> = (0..bytes.len())
        .map(|index| u8::MAX.checked_shl(8 - u32::try_from(ones(index)).unwrap_or(8)).unwrap_or(0))
        .collect();
    let network: Vec<u8> = bytes.iter().zip(&mask).map(|(byte, mask)| byte & mask).collect();
    let length = u32::try_from(bytes.len()).unwrap_or_default();
    let mut found = vec![meta(META_FAMILY), compare(EQUAL, &[family])];
    if prefix > 0 {
        found.extend([payload(NETWORK_HEADER, offset, length), masked(&mask), compare(EQUAL, &network)]);
    }
    found
}

fn meta(key: u32) -> Expression {
    ("meta", Attributes::default().number(1, REGISTER).number(2, key))
}

fn payload(base: u32, offset: u32, length: u32) -> Expression {
    let load = Attributes::default().number(1, REGISTER).number(2, base).number(3, offset).number(4, length);
    ("payload", load)
}

fn masked(mask: &[u8]) -> Expression {
    let length = u32::try_from(mask.len()).unwrap_or_default();
    let registers = Attributes::default().number(1, REGISTER).number(2, REGISTER).number(3, length);
    ("bitwise", registers.data(4, mask).data(5, &vec![0; mask.len()]))
}

fn compare(how: u32, value: &[u8]) -> Expression {
    ("cmp", Attributes::default().number(1, REGISTER).number(2, how).data(3, value))
}
