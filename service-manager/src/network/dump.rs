//! The kernel's links, addresses, routes and rules, read message by message.
//!
//! Owns: what becomes of a message that cannot be read: it is left out and noted, and the others stay. Of a link the rest is kept
//! (`salvage`).
//! Does not: wait elsewhere than in the calling thread: the kernel answers at once.
//! Source: rtnetlink(7).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkBuffer, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::AddressMessage;
use netlink_packet_route::link::LinkMessage;
use netlink_packet_route::route::RouteMessage;
use netlink_packet_route::rule::RuleMessage;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, protocols::NETLINK_ROUTE};
use rustix::io::Errno;

use super::exchange::{exchange, open};
use super::route::{self, AnyRoute};
use super::salvage::{self, Rest};

/// Characters of a reason that are said: decoders tell whole messages.
const REASON_CHARS: usize = 160;

/// Routes that are given at a time.
const PART: usize = 256;
/// `NLM_F_DUMP_INTR`
const INTERRUPTED: u16 = 0x10;
/// The index of the link that every namespace has.
const LOOPBACK: u32 = 1;

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
    /// The table changed meanwhile, and something may be missing.
    pub(super) is_torn: bool,
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

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
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

/// How a message of a table is read, in a list or as news; and what is left of one that cannot be read.
pub(super) struct Form<T> {
    what: What,
    read: fn(&[u8]) -> Result<Option<T>, String>,
    rest: fn(&[u8]) -> Option<Rest<T>>,
}

pub(super) const LINKS: Form<LinkMessage> = Form {
    what: What::Link,
    read: |bytes| {
        decoded(bytes, |message| match message {
            RouteNetlinkMessage::NewLink(link) | RouteNetlinkMessage::DelLink(link) => Some(link),
            _ => None,
        })
    },
    rest: salvage::link,
};

pub(super) const ADDRESSES: Form<AddressMessage> = Form {
    what: What::Address,
    read: |bytes| {
        decoded(bytes, |message| match message {
            RouteNetlinkMessage::NewAddress(address) | RouteNetlinkMessage::DelAddress(address) => {
                Some(address)
            }
            _ => None,
        })
    },
    rest: |_| None,
};

pub(super) const ROUTES: Form<AnyRoute> =
    Form { what: What::Route, read: |bytes| route::read(bytes).map_err(str::to_owned), rest: |_| None };

pub(super) const RULES: Form<RuleMessage> = Form {
    what: What::Rule,
    read: |bytes| {
        decoded(bytes, |message| match message {
            RouteNetlinkMessage::NewRule(rule) | RouteNetlinkMessage::DelRule(rule) => Some(rule),
            _ => None,
        })
    },
    rest: |_| None,
};

fn decoded<T>(bytes: &[u8], of: fn(RouteNetlinkMessage) -> Option<T>) -> Result<Option<T>, String> {
    match NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes) {
        Ok(NetlinkMessage { payload: NetlinkPayload::InnerMessage(inner), .. }) => Ok(of(inner)),
        Ok(_) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

impl<T> Form<T> {
    /// What a message is of. What of it cannot be read is noted.
    pub(super) fn read(&self, message: &[u8], losses: &mut Losses) -> Option<T> {
        let error = match (self.read)(message) {
            Ok(read) => return read,
            Err(error) => error,
        };
        let Some((rest, lost)) = (self.rest)(message) else {
            losses.note((self.what, None), &error);
            return None;
        };
        lost.into_iter().for_each(|number| losses.note((self.what, Some(number)), &error));
        Some(rest)
    }
}

impl<T> Dumped<T> {
    fn new() -> Self {
        Self { found: Vec::new(), losses: Losses::default(), is_torn: false }
    }

    fn take(&mut self, message: &[u8], form: &Form<T>) {
        self.found.extend(form.read(message, &mut self.losses));
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

    /// Gives the routes to `take`, some at a time: all of them together would take a lot of memory. Those of multicast routers and
    /// of MPLS are left out.
    pub(super) fn routes(&self, mut take: impl FnMut(&[AnyRoute])) -> Result<Dumped<()>, DumpError> {
        let (mut part, mut losses) = (Vec::with_capacity(PART), Losses::default());
        let is_torn =
            self.each(RouteNetlinkMessage::GetRoute(RouteMessage::default()), &ROUTES, |message| {
                part.extend(ROUTES.read(message, &mut losses));
                if part.len() >= PART {
                    take(&part);
                    part.clear();
                }
            })?;
        take(&part);
        Ok(Dumped { found: Vec::new(), losses, is_torn })
    }

    /// Waits until the kernel has done what it is about to do to its tables: it tells of a link that goes down before it drops the
    /// routes of that link, while it holds the lock that this question takes.
    pub(super) fn settle(&self) {
        let mut message = LinkMessage::default();
        message.header.index = LOOPBACK;
        let mut request = NetlinkMessage::from(RouteNetlinkMessage::GetLink(message));
        request.header.flags = NLM_F_REQUEST | NLM_F_ACK;
        // The answer is of no interest, and neither is that there is none.
        let _ = exchange(&self.0, &serialized(request), |_| {});
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
        let mut dumped = Dumped::new();
        dumped.is_torn = self.each(request, form, |message| dumped.take(message, form))?;
        Ok(dumped)
    }

    /// Answers whether the table changed meanwhile.
    fn each<T>(
        &self,
        request: RouteNetlinkMessage,
        form: &Form<T>,
        mut take: impl FnMut(&[u8]),
    ) -> Result<bool, DumpError> {
        let mut request = NetlinkMessage::from(request);
        request.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
        let mut is_torn = false;
        let read = exchange(&self.0, &serialized(request), |message| {
            is_torn |= NetlinkBuffer::new(message).flags() & INTERRUPTED != 0;
            take(message);
        });
        read.map_err(|error| DumpError::List(form.what, error))?;
        Ok(is_torn)
    }
}

fn serialized(mut request: NetlinkMessage<RouteNetlinkMessage>) -> Vec<u8> {
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    bytes
}

#[cfg(test)]
#[path = "dump_tests.rs"]
mod tests;
