//! Messages of ethtool over generic netlink: what a card can do, what it does, and what it is to do.
//!
//! Owns: the numbers of commands and attributes, and the two forms of bit sets.
//! Does not: decide anything: [`super::ethernet`] does.
//! Source: include/uapi/linux/ethtool_netlink.h and Documentation/networking/ethtool-netlink.rst of Linux.

use std::collections::BTreeMap;

use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable, NLM_F_ACK, Nla, NlasIterator, Parseable, ParseableParametrized,
};
use netlink_packet_generic::{GenlFamily, GenlHeader};

use super::generic::{Family, GenericError};

const ETHTOOL: &str = "ethtool";
const VERSION: u8 = 1;
const NESTED: u16 = 1 << 15;
/// Every message begins with a header, which names the link.
const HEADER: u16 = 1;
const HEADER_NAME: u16 = 2;
const HEADER_FLAGS: u16 = 3;
/// Changes are read again; they need no answer.
const OMIT_REPLY: u32 = 1 << 1;
const BITSET_NOMASK: u16 = 1;
const BITSET_BITS: u16 = 3;
const BIT: u16 = 1;
const BIT_NAME: u16 = 2;
const BIT_VALUE: u16 = 3;

/// A message of ethtool's.
#[derive(Debug, Clone)]
struct Message {
    command: u8,
    attributes: Vec<DefaultNla>,
}

impl GenlFamily for Message {
    fn family_name() -> &'static str {
        ETHTOOL
    }

    fn command(&self) -> u8 {
        self.command
    }

    fn version(&self) -> u8 {
        VERSION
    }
}

impl Emitable for Message {
    fn buffer_len(&self) -> usize {
        self.attributes.as_slice().buffer_len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        self.attributes.as_slice().emit(buffer);
    }
}

impl ParseableParametrized<[u8], GenlHeader> for Message {
    fn parse_with_param(bytes: &[u8], header: GenlHeader) -> Result<Self, DecodeError> {
        Ok(Self { command: header.cmd, attributes: parse(bytes)? })
    }
}

fn parse(bytes: &[u8]) -> Result<Vec<DefaultNla>, DecodeError> {
    NlasIterator::new(bytes).map(|attribute| DefaultNla::parse(&attribute?)).collect()
}

fn kind(attribute: &DefaultNla) -> u16 {
    attribute.kind() & !NESTED
}

fn value(attribute: &DefaultNla) -> Vec<u8> {
    let mut bytes = vec![0; attribute.value_len()];
    attribute.emit_value(&mut bytes);
    bytes
}

/// The attributes within one; none where it cannot be read.
fn inner(attribute: &DefaultNla) -> Vec<DefaultNla> {
    parse(&value(attribute)).unwrap_or_default()
}

fn nest(kind: u16, attributes: &[DefaultNla]) -> DefaultNla {
    let mut bytes = vec![0; attributes.buffer_len()];
    attributes.emit(&mut bytes);
    DefaultNla::new(kind | NESTED, bytes)
}

fn text(kind: u16, text: &str) -> DefaultNla {
    DefaultNla::new(kind, [text.as_bytes(), &[0]].concat())
}

/// Subjects that the node asks about, with the commands that get and set them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    LinkInfo,
    LinkModes,
    LinkState,
    WakeOnLan,
    Features,
    Rings,
    Channels,
}

impl Subject {
    fn get(self) -> u8 {
        match self {
            Self::LinkInfo => 2,
            Self::LinkModes => 4,
            Self::LinkState => 6,
            Self::WakeOnLan => 9,
            Self::Features => 11,
            Self::Rings => 15,
            Self::Channels => 17,
        }
    }

    /// Each follows the one that gets.
    fn set(self) -> u8 {
        self.get() + 1
    }
}

/// What the kernel told about a subject: its attributes by number.
#[derive(Debug, Default)]
pub(super) struct Attributes(Vec<DefaultNla>);

impl Attributes {
    /// As the kernel would tell these values.
    #[cfg(test)]
    pub(super) fn of(values: &[Value]) -> Self {
        Self(values.iter().map(Value::attribute).collect())
    }

    /// A number of one or four bytes.
    pub(super) fn number(&self, wanted: u16) -> Option<u32> {
        let bytes = value(self.0.iter().find(|attribute| kind(attribute) == wanted)?);
        match bytes.as_slice() {
            [byte] => Some((*byte).into()),
            bytes => Some(u32::from_ne_bytes(bytes.try_into().ok()?)),
        }
    }

    /// Bits by name that a set tells, and whether each is on. A set without a mask names those that are on.
    pub(super) fn bits(&self, wanted: u16) -> BTreeMap<String, bool> {
        let Some(set) = self.0.iter().find(|attribute| kind(attribute) == wanted) else {
            return BTreeMap::new();
        };
        let set = inner(set);
        let is_list = set.iter().any(|attribute| kind(attribute) == BITSET_NOMASK);
        let bits = set.iter().filter(|attribute| kind(attribute) == BITSET_BITS).flat_map(inner);
        let named = bits.filter_map(|bit| {
            let parts = inner(&bit);
            let name = parts.iter().find(|part| kind(part) == BIT_NAME).map(value)?;
            let name = String::from_utf8(name).ok()?.trim_end_matches('\0').to_owned();
            Some((name, is_list || parts.iter().any(|part| kind(part) == BIT_VALUE)))
        });
        named.collect()
    }
}

/// What is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    /// Four bytes.
    Number(u16, u32),
    /// One byte.
    Byte(u16, u8),
    /// These bits, each on or off, and no other.
    Bits(u16, BTreeMap<String, bool>),
    /// Exactly these bits are on.
    AllBits(u16, Vec<String>),
}

impl Value {
    fn attribute(&self) -> DefaultNla {
        let bit = |name: &str, on: bool| {
            let mut parts = vec![text(BIT_NAME, name)];
            if on {
                parts.push(DefaultNla::new(BIT_VALUE, Vec::new()));
            }
            nest(BIT, &parts)
        };
        match self {
            Self::Number(kind, number) => DefaultNla::new(*kind, number.to_ne_bytes().to_vec()),
            Self::Byte(kind, byte) => DefaultNla::new(*kind, vec![*byte]),
            Self::Bits(kind, bits) => {
                let bits: Vec<DefaultNla> = bits.iter().map(|(name, on)| bit(name, *on)).collect();
                nest(*kind, &[nest(BITSET_BITS, &bits)])
            }
            Self::AllBits(kind, names) => {
                let bits: Vec<DefaultNla> = names.iter().map(|name| bit(name, true)).collect();
                let list = DefaultNla::new(BITSET_NOMASK, Vec::new());
                nest(*kind, &[list, nest(BITSET_BITS, &bits)])
            }
        }
    }
}

/// The kernel's ethtool.
pub(super) struct Ethtool(Family);

impl Ethtool {
    pub(super) fn open() -> Result<Self, GenericError> {
        Family::open::<Message>(ETHTOOL).map(Self)
    }

    /// What a link tells about a subject.
    pub(super) fn get(&mut self, link: &str, subject: Subject) -> Result<Attributes, GenericError> {
        let header = nest(HEADER, &[text(HEADER_NAME, link)]);
        let ask = Message { command: subject.get(), attributes: vec![header] };
        let answers = self.0.request(ask, NLM_F_ACK)?;
        Ok(Attributes(answers.into_iter().next().map(|answer| answer.attributes).unwrap_or_default()))
    }

    /// Sets several values of a subject at once.
    pub(super) fn set(&mut self, link: &str, subject: Subject, values: &[Value]) -> Result<(), GenericError> {
        let flags = DefaultNla::new(HEADER_FLAGS, OMIT_REPLY.to_ne_bytes().to_vec());
        let mut attributes = vec![nest(HEADER, &[text(HEADER_NAME, link), flags])];
        attributes.extend(values.iter().map(Value::attribute));
        self.0.request(Message { command: subject.set(), attributes }, NLM_F_ACK).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_bits_are_read_as_they_are_written() {
        let told = |value: Value| Attributes::of(&[value]);
        let bits = BTreeMap::from([("tx-gso".to_owned(), true), ("rx-gro".to_owned(), false)]);
        assert_eq!(told(Value::Bits(3, bits.clone())).bits(3), bits);
        assert!(told(Value::Bits(3, bits)).bits(2).is_empty());
        let all = told(Value::AllBits(2, vec!["magic".into()]));
        assert_eq!(all.bits(2), BTreeMap::from([("magic".to_owned(), true)]));
        assert_eq!(told(Value::Number(6, 512)).number(6), Some(512));
        assert_eq!(told(Value::Byte(11, 2)).number(11), Some(2));
        assert_eq!(Attributes(vec![DefaultNla::new(6, vec![1, 2])]).number(6), None);
        // A set that is cut off tells nothing.
        assert!(Attributes(vec![DefaultNla::new(3, vec![255, 255, 3, 0])]).bits(3).is_empty());
    }
}
