//! The kernel's links, addresses, routes and rules, read message by message.
//!
//! Owns: what becomes of a message that cannot be read: it is left out and noted, and the others stay. Of a link the rest is kept
//! (`salvage`).
//! Does not: wait elsewhere than in the calling thread: the kernel answers at once.
//! Source: rtnetlink(7).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::address::AddressMessage;
use netlink_packet_route::link::LinkMessage;
use netlink_packet_route::route::RouteMessage;
use netlink_packet_route::rule::RuleMessage;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, protocols::NETLINK_ROUTE};
use rustix::io::Errno;

use super::exchange::{exchange, open};
use super::salvage::{self, Rest};

/// Characters of a reason that are said: decoders tell whole messages.
const REASON_CHARS: usize = 160;

/// Why there is no list.
#[derive(Debug, thiserror::Error)]
pub(super) enum DumpError {
    /// No socket.
    #[error("open a netlink socket: {0}")]
    Open(#[source] io::Error),
    /// The kernel refused.
    #[error("list {0}: {1}")]
    List(What, #[source] io::Error),
    /// The node ends.
    #[error("read the network's state: {0}")]
    Ended(#[from] tokio::task::JoinError),
}

/// What a list is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    Link,
    Address,
    Route,
    Rule,
}

impl fmt::Display for What {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Link => "links",
            Self::Address => "addresses",
            Self::Route => "routes",
            Self::Rule => "routing rules",
        })
    }
}

/// A list.
pub(super) struct Dumped<T> {
    pub(super) found: Vec<T>,
    pub(super) losses: Losses,
}

/// What could not be read: of which list, and which attribute if the rest of the message could.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Losses(BTreeMap<Lost, Loss>);

/// A cause of losses, which is said once.
pub(super) type Lost = (What, Option<u16>);

#[derive(Debug, PartialEq, Eq)]
struct Loss {
    count: usize,
    /// Of the first one.
    reason: String,
}

impl Losses {
    fn note(&mut self, lost: Lost, reason: &impl fmt::Display) {
        let first = || Loss { count: 0, reason: reason.to_string().chars().take(REASON_CHARS).collect() };
        self.0.entry(lost).or_insert_with(first).count += 1;
    }

    pub(super) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// A line for each cause that has not been said.
    pub(super) fn unsaid(&self, said: &mut BTreeSet<Lost>) -> Vec<String> {
        let new = self.0.iter().filter(|(lost, _)| said.insert(**lost));
        new.map(|((what, attribute), Loss { count, reason })| match attribute {
            Some(number) => {
                format!("attribute {number} of {count} {what} cannot be read and is left out: {reason}")
            }
            None => format!("{count} {what} cannot be read and are left out: {reason}"),
        })
        .collect()
    }
}

/// Takes what a list is of out of a message; and what is left of one that cannot be read.
struct Form<T> {
    what: What,
    of: fn(RouteNetlinkMessage) -> Option<T>,
    rest: fn(&[u8]) -> Option<Rest<T>>,
}

const LINKS: Form<LinkMessage> = Form {
    what: What::Link,
    of: |message| if let RouteNetlinkMessage::NewLink(link) = message { Some(link) } else { None },
    rest: salvage::link,
};

const ADDRESSES: Form<AddressMessage> = Form {
    what: What::Address,
    of: |message| if let RouteNetlinkMessage::NewAddress(address) = message { Some(address) } else { None },
    rest: |_| None,
};

const ROUTES: Form<RouteMessage> = Form {
    what: What::Route,
    of: |message| if let RouteNetlinkMessage::NewRoute(route) = message { Some(route) } else { None },
    rest: |_| None,
};

const RULES: Form<RuleMessage> = Form {
    what: What::Rule,
    of: |message| if let RouteNetlinkMessage::NewRule(rule) = message { Some(rule) } else { None },
    rest: |_| None,
};

impl<T> Dumped<T> {
    fn new() -> Self {
        Self { found: Vec::new(), losses: Losses::default() }
    }

    fn take(&mut self, message: &[u8], form: &Form<T>) {
        let error = match NetlinkMessage::<RouteNetlinkMessage>::deserialize(message) {
            Ok(told) => {
                if let NetlinkPayload::InnerMessage(inner) = told.payload {
                    self.found.extend((form.of)(inner));
                }
                return;
            }
            Err(error) => error,
        };
        match (form.rest)(message) {
            Some((rest, lost)) => {
                self.found.push(rest);
                lost.into_iter().for_each(|number| self.losses.note((form.what, Some(number)), &error));
            }
            None => self.losses.note((form.what, None), &error),
        }
    }
}

/// The kernel's tables.
pub(super) struct Tables(Socket);

impl Tables {
    pub(super) fn open() -> Result<Self, DumpError> {
        open(NETLINK_ROUTE).map(Self).map_err(DumpError::Open)
    }

    pub(super) fn links(&self) -> Result<Dumped<LinkMessage>, DumpError> {
        self.dump(RouteNetlinkMessage::GetLink(LinkMessage::default()), &LINKS)
    }

    pub(super) fn addresses(&self) -> Result<Dumped<AddressMessage>, DumpError> {
        self.dump(RouteNetlinkMessage::GetAddress(AddressMessage::default()), &ADDRESSES)
    }

    /// Those of all families: multicast routers and MPLS have some, too.
    pub(super) fn routes(&self) -> Result<Dumped<RouteMessage>, DumpError> {
        self.dump(RouteNetlinkMessage::GetRoute(RouteMessage::default()), &ROUTES)
    }

    /// A kernel without routing rules, or without the family, has none.
    pub(super) fn rules(&self, family: AddressFamily) -> Result<Dumped<RuleMessage>, DumpError> {
        let mut message = RuleMessage::default();
        message.header.family = family;
        let missing = [Errno::OPNOTSUPP, Errno::AFNOSUPPORT].map(|errno| Some(errno.raw_os_error()));
        match self.dump(RouteNetlinkMessage::GetRule(message), &RULES) {
            Err(DumpError::List(_, error)) if missing.contains(&error.raw_os_error()) => Ok(Dumped::new()),
            found => found,
        }
    }

    fn dump<T>(&self, request: RouteNetlinkMessage, form: &Form<T>) -> Result<Dumped<T>, DumpError> {
        let mut request = NetlinkMessage::from(request);
        request.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        let mut dumped = Dumped::new();
        let read = exchange(&self.0, &bytes, |message| dumped.take(message, form));
        read.map_err(|error| DumpError::List(form.what, error))?;
        Ok(dumped)
    }
}

#[cfg(test)]
#[path = "dump_tests.rs"]
mod tests;
