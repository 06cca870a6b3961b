//! An answer in the form that a client can take: its number, its flags, its size.
//!
//! Source: RFC 1035 §4.1.1, RFC 6891 §6.2 (sizes), RFC 4035 §3.2 (flags of DNSSEC).

use std::net::IpAddr;
use std::time::Duration;

use hickory_proto::op::{Edns, Message, MessageType, Metadata, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA};
use hickory_proto::rr::{DNSClass, RData, Record, RecordType};

use crate::cache::Key;

/// What a datagram holds on every path (DNS flag day 2020).
pub(crate) const DATAGRAM_BYTES: u16 = 1232;
/// The same of a client that does not say (RFC 1035 §4.2.1).
const LEAST_BYTES: u16 = 512;
/// No client gets a larger datagram.
const MOST_BYTES: u16 = 4096;
/// Of an answer that is over (RFC 8767 §4).
const STALE_SECONDS: u32 = 30;
/// Of an address that the node knows by itself.
const HOST_SECONDS: u32 = 10;

/// How a message travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// UDP.
    Datagram,
    /// TCP: no answer is too large.
    Stream,
}

/// A question as a client put it.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    header: Metadata,
    query: Query,
    /// How large an answer may be, and whether signatures are wanted. Nothing else is kept: options may be as long as a message.
    edns: Option<(u16, bool)>,
    transport: Transport,
}

/// What a message of a client is.
pub(crate) enum Read {
    /// A question to be answered.
    Asked(Box<Asked>),
    /// One that is refused, with the answer.
    Refused(Vec<u8>),
    /// Nothing that is answered: an answer, or less than a header.
    Nothing,
}

/// Reads what a client sent.
pub(crate) fn read(bytes: &[u8], transport: Transport) -> Read {
    let refused = |id, code| {
        let mut message = Message::error_msg(id, OpCode::Query, code);
        message.metadata.recursion_available = true;
        message.to_vec().map_or(Read::Nothing, Read::Refused)
    };
    let (Some(&[high, low]), Some(flags)) = (bytes.first_chunk::<2>(), bytes.get(2)) else {
        return Read::Nothing;
    };
    // An answer to an answer would go round for ever.
    if bytes.len() < 12 || flags & 0x80 != 0 {
        return Read::Nothing;
    }
    let id = u16::from_be_bytes([high, low]);
    let Some(message) = decode(bytes) else { return refused(id, ResponseCode::FormErr) };
    let [query] = message.queries.as_slice() else { return refused(id, ResponseCode::FormErr) };
    if message.metadata.op_code != OpCode::Query {
        return refused(id, ResponseCode::NotImp);
    }
    if message.edns.as_ref().is_some_and(|edns| edns.version() > 0) {
        return refused(id, ResponseCode::BADVERS);
    }
    let is_transfer = matches!(query.query_type(), RecordType::AXFR | RecordType::IXFR);
    if query.query_class() != DNSClass::IN || is_transfer {
        return refused(id, ResponseCode::Refused);
    }
    Read::Asked(Box::new(Asked {
        header: message.metadata,
        query: query.clone(),
        edns: message.edns.as_ref().map(|edns| (edns.max_payload(), edns.flags().dnssec_ok)),
        transport,
    }))
}

/// A message that can hold what its header counts: room is made by these numbers, up to 65535 of each.
fn decode(bytes: &[u8]) -> Option<Message> {
    const QUESTION_BYTES: usize = 5;
    const RECORD_BYTES: usize = 11;
    let count = |place: usize| {
        let number = bytes.get(place..place + 2)?;
        Some(usize::from(u16::from_be_bytes(number.try_into().ok()?)))
    };
    let (questions, records) = (count(4)?, count(6)? + count(8)? + count(10)?);
    if 12 + questions * QUESTION_BYTES + records * RECORD_BYTES > bytes.len() {
        return None;
    }
    Message::from_vec(bytes).ok()
}

impl Asked {
    pub(crate) fn key(&self) -> Key {
        Key {
            name: self.query.name().to_lowercase(),
            kind: self.query.query_type(),
            class: self.query.query_class(),
            dnssec: self.wants_dnssec(),
            unchecked: self.header.checking_disabled,
        }
    }

    fn wants_dnssec(&self) -> bool {
        self.edns.is_some_and(|(_, wants_dnssec)| wants_dnssec)
    }

    /// An answer without records.
    pub(crate) fn failure(&self, code: ResponseCode) -> Vec<u8> {
        self.reply(&Message::error_msg(0, OpCode::Query, code), Duration::ZERO, false)
    }

    /// The addresses that the node knows of a name.
    pub(crate) fn host(&self, addresses: &[IpAddr]) -> Vec<u8> {
        let mut message = Message::response(0, OpCode::Query);
        message.metadata.authoritative = true;
        let kind = self.query.query_type();
        for address in addresses {
            let data = match address {
                IpAddr::V4(address) => RData::A(A(*address)),
                IpAddr::V6(address) => RData::AAAA(AAAA(*address)),
            };
            if kind == data.record_type() || kind == RecordType::ANY {
                message.add_answer(Record::from_rdata(self.query.name().clone(), HOST_SECONDS, data));
            }
        }
        self.reply(&message, Duration::ZERO, false)
    }

    /// An answer of this age for this client.
    pub(crate) fn reply(&self, answer: &Message, age: Duration, is_stale: bool) -> Vec<u8> {
        let mut message = Message::new(self.header.id, MessageType::Response, OpCode::Query);
        let wants_proof = self.wants_dnssec() || self.header.authentic_data;
        message.metadata.authoritative = answer.metadata.authoritative;
        message.metadata.recursion_desired = self.header.recursion_desired;
        message.metadata.recursion_available = true;
        message.metadata.checking_disabled = self.header.checking_disabled;
        message.metadata.authentic_data = answer.metadata.authentic_data && wants_proof;
        message.metadata.response_code = answer.metadata.response_code;
        message.add_query(self.query.clone());
        let age = u32::try_from(age.as_secs()).unwrap_or(u32::MAX);
        let aged = |record: &Record| {
            let mut record = record.clone();
            record.ttl = if is_stale { STALE_SECONDS } else { record.ttl.saturating_sub(age) };
            record
        };
        message.answers = answer.answers.iter().map(aged).collect();
        message.authorities = answer.authorities.iter().map(aged).collect();
        message.additionals = answer.additionals.iter().map(aged).collect();
        let room = self.edns.map_or(LEAST_BYTES, |(room, _)| room).clamp(LEAST_BYTES, MOST_BYTES);
        if self.edns.is_some() {
            let mut edns = Edns::new();
            edns.set_max_payload(DATAGRAM_BYTES).set_dnssec_ok(self.wants_dnssec());
            message.set_edns(edns);
        }
        let whole = message.to_vec();
        let room = match self.transport {
            Transport::Datagram => room,
            Transport::Stream => u16::MAX,
        };
        match whole {
            Ok(bytes) if bytes.len() <= room.into() => bytes,
            // The client asks again by a stream. An empty answer can always be said.
            _ => message.truncate().to_vec().unwrap_or_default(),
        }
    }
}

/// The question to a server, under a number of ours. Nothing else of the client's message is passed on: an answer is kept for all.
pub(crate) fn question(key: &Key, id: u16) -> Vec<u8> {
    let mut message = Message::new(id, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.metadata.checking_disabled = key.unchecked;
    let mut query = Query::query(key.name.clone(), key.kind);
    query.set_query_class(key.class);
    message.add_query(query);
    let mut edns = Edns::new();
    edns.set_max_payload(DATAGRAM_BYTES).set_dnssec_ok(key.dnssec);
    message.set_edns(edns);
    // A name and a number: what was read can be written.
    message.to_vec().unwrap_or_default()
}

/// What a server said to a question of ours; `None` if it is something else.
pub(crate) fn answer(bytes: &[u8], key: &Key, id: u16) -> Option<Message> {
    let message = decode(bytes)?;
    let header = &message.metadata;
    let [query] = message.queries.as_slice() else { return None };
    let is_ours = header.id == id
        && header.message_type == MessageType::Response
        && header.op_code == OpCode::Query
        && *query.name() == key.name
        && (query.query_type(), query.query_class()) == (key.kind, key.class);
    is_ours.then_some(message)
}
