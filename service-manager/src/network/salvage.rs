//! A message about a link of which an attribute cannot be read: what is left of it.
//!
//! Newer kernels lengthen attributes that the node does not look at. The link is there all the same, and the node without it
//! would be one without a network.
//!
//! Does not: do the same for addresses and routes, which mean something else without one of their attributes.
//! Source: include/uapi/linux/if_link.h, rtnetlink(7).

use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::LinkMessage;

/// struct nlmsghdr and struct ifinfomsg.
const HEAD_BYTES: usize = 16 + 16;
/// struct rtattr.
const ATTRIBUTE_HEAD_BYTES: usize = 4;
/// `NLA_TYPE_MASK`: the number without its flags.
const NUMBER: u16 = 0x3fff;
/// `IFLA_LINKINFO`: a list of attributes, the first of which is the kind of the link.
const INFO: u16 = 18;

/// What is left of a message, and the numbers of the attributes that cannot be read.
pub(super) type Rest<T> = (T, Vec<u16>);

/// The link without its attributes that cannot be read. None: its header cannot be read either.
pub(super) fn link(message: &[u8]) -> Option<Rest<LinkMessage>> {
    let (head, attributes) = message.split_at_checked(HEAD_BYTES)?;
    let mut lost = Vec::new();
    let mut kept = head.to_vec();
    for part in parts(attributes) {
        if decoded(&[head, part.bytes].concat()).is_some() {
            kept.extend(part.bytes);
            continue;
        }
        lost.push(part.number);
        if part.number == INFO {
            kept.extend(info(head, part.bytes));
        }
    }
    Some((decoded(&kept)?, lost))
}

/// The readable parts of a link's kind: without it the link would pass for a card.
fn info(head: &[u8], attribute: &[u8]) -> Vec<u8> {
    let (own, inner) = attribute.split_at(ATTRIBUTE_HEAD_BYTES);
    let mut kept = own.to_vec();
    for part in parts(inner) {
        let mut with = [kept.as_slice(), part.bytes].concat();
        let Ok(length) = u16::try_from(with.len()) else { break };
        if let Some(field) = with.first_chunk_mut() {
            *field = length.to_ne_bytes();
        }
        if decoded(&[head, &with].concat()).is_some() {
            kept = with;
        }
    }
    // Without a part the length would still be that of all.
    if kept.len() == ATTRIBUTE_HEAD_BYTES { Vec::new() } else { kept }
}

/// A message whose length may not be that of its header.
fn decoded(bytes: &[u8]) -> Option<LinkMessage> {
    let mut bytes = bytes.to_vec();
    *bytes.first_chunk_mut()? = u32::try_from(bytes.len()).ok()?.to_ne_bytes();
    match NetlinkMessage::<RouteNetlinkMessage>::deserialize(&bytes).ok()?.payload {
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => Some(link),
        _ => None,
    }
}

pub(super) struct Part<'a> {
    pub(super) number: u16,
    /// Up to the next one.
    pub(super) bytes: &'a [u8],
}

impl<'a> Part<'a> {
    /// Without its head and what fills it up.
    pub(super) fn value(&self) -> Option<&'a [u8]> {
        let length = u16::from_ne_bytes(*self.bytes.first_chunk()?);
        self.bytes.get(ATTRIBUTE_HEAD_BYTES..length.into())
    }
}

/// Attributes one by one, up to the end or to what is none.
pub(super) fn parts(attributes: &[u8]) -> impl Iterator<Item = Part<'_>> {
    let mut rest = attributes;
    std::iter::from_fn(move || {
        let (length, after) = rest.split_first_chunk()?;
        let (length, number) = (u16::from_ne_bytes(*length), u16::from_ne_bytes(*after.first_chunk()?));
        let length = usize::from(length);
        if length < ATTRIBUTE_HEAD_BYTES || length > rest.len() {
            return None;
        }
        let (bytes, next) = rest.split_at(length.next_multiple_of(4).min(rest.len()));
        rest = next;
        Some(Part { number: number & NUMBER, bytes })
    })
}
