//! Many requests to the kernel in few writes.
//!
//! Owns: which request a refusal belongs to. The kernel answers those that it refuses, and the last one of each write: without an answer
//! before that one, a request is done.
//! Does not: wait elsewhere than in the calling thread: the kernel answers at once.
//! Source: netlink(7); net/netlink/af_netlink.c of Linux (`netlink_rcv_skb`).

use std::io;

use netlink_packet_core::{NLM_F_ACK, NLM_F_REQUEST, NetlinkBuffer, NetlinkMessage};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, protocols::NETLINK_ROUTE};

use super::exchange::{messages, open};

/// Requests of one write: if it refuses all of them, the answers have room in a socket's queue.
const MOST: usize = 128;
/// `NLMSG_ERROR`: an answer to one request, of which zero is no error.
const ERROR: u16 = 2;

/// A request with its flags beside `NLM_F_REQUEST`.
pub(super) type Request = (RouteNetlinkMessage, u16);

/// Sends all, in their order; what was refused, by its place among them.
pub(super) fn send(requests: Vec<Request>) -> io::Result<Vec<(usize, io::Error)>> {
    let socket = open(NETLINK_ROUTE)?;
    // Without it each refusal has the whole request again. An old kernel then does as before.
    let _ = socket.set_cap_ack(true);
    let (mut refused, mut bytes) = (Vec::new(), Vec::new());
    let mut requests = requests.into_iter().enumerate().peekable();
    while requests.peek().is_some() {
        bytes.clear();
        let (mut first, mut last) = (None, 0);
        for (at, (message, flags)) in requests.by_ref().take(MOST) {
            first.get_or_insert(at);
            last = at;
            append(&mut bytes, message, flags, at);
        }
        ask_for_answer(&mut bytes);
        socket.send(&bytes, 0)?;
        answers(&socket, first.unwrap_or_default()..=last, &mut refused)?;
    }
    Ok(refused)
}

/// Numbers begin with one: zero is what the kernel tells by itself.
fn number(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX - 1) + 1
}

fn append(bytes: &mut Vec<u8>, message: RouteNetlinkMessage, flags: u16, at: usize) {
    let mut request = NetlinkMessage::from(message);
    request.header.flags = NLM_F_REQUEST | flags;
    request.header.sequence_number = number(at);
    request.finalize();
    let begin = bytes.len();
    bytes.resize(begin + request.buffer_len().next_multiple_of(4), 0);
    request.serialize(&mut bytes[begin..]);
}

/// Has the kernel answer the last request in any case.
fn ask_for_answer(bytes: &mut [u8]) {
    let mut begin = 0;
    loop {
        let length = usize::try_from(NetlinkBuffer::new(&bytes[begin..]).length()).unwrap_or(usize::MAX);
        let next = begin.saturating_add(length.next_multiple_of(4));
        if next >= bytes.len() {
            let mut last = NetlinkBuffer::new(&mut bytes[begin..]);
            last.set_flags(last.flags() | NLM_F_ACK);
            return;
        }
        begin = next;
    }
}

fn answers(
    socket: &Socket,
    of: std::ops::RangeInclusive<usize>,
    refused: &mut Vec<(usize, io::Error)>,
) -> io::Result<()> {
    let first = number(*of.start());
    loop {
        let answer = socket.recv_from_full()?.0;
        for message in messages(&answer) {
            let message = message.ok_or(io::ErrorKind::InvalidData)?;
            let head = NetlinkBuffer::new(message);
            if head.message_type() != ERROR {
                continue;
            }
            let code = head.payload().first_chunk().map(|bytes| i32::from_ne_bytes(*bytes));
            let code = code.ok_or(io::ErrorKind::InvalidData)?;
            let at = head.sequence_number().checked_sub(first).and_then(|at| usize::try_from(at).ok());
            let at = at.and_then(|at| of.start().checked_add(at)).ok_or(io::ErrorKind::InvalidData)?;
            if code != 0 {
                refused.push((at, io::Error::from_raw_os_error(-code)));
            }
            if at == *of.end() {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
    use rtnetlink::RouteMessageBuilder;

    use super::*;
    use crate::network::testing::{ip, is_inside};

    #[test]
    fn a_refusal_names_its_request() {
        if !is_inside("network::batch::tests::a_refusal_names_its_request") {
            return;
        }
        ip("link add eth0 index 7 type veth peer name eth1");
        ip("link set eth1 up");
        ip("link set eth0 up");
        ip("address add 10.9.0.1/24 dev eth0");
        assert!(send(Vec::new()).unwrap().is_empty());
        // One in seven goes by a neighbour that the link does not have.
        let is_wrong = |at: u32| at % 7 == 3 || at == 299;
        let request = |at: u32| {
            let via = if is_wrong(at) { [10, 8, 0, 1] } else { [10, 9, 0, 2] };
            let route = RouteMessageBuilder::<Ipv4Addr>::new()
                .destination_prefix(Ipv4Addr::from_bits(0x0b00_0000 + at * 256), 24)
                .output_interface(7)
                .gateway(via.into());
            (RouteNetlinkMessage::NewRoute(route.build()), NLM_F_CREATE | NLM_F_REPLACE)
        };
        let refused = send((0..300).map(request).collect()).unwrap();
        let places: Vec<usize> = refused.iter().map(|(at, _)| *at).collect();
        let wrong = |at: &usize| is_wrong(u32::try_from(*at).unwrap());
        assert_eq!(places, (0..300).filter(wrong).collect::<Vec<_>>());
        let unreachable = |(_, error): &(usize, io::Error)| error.kind() == io::ErrorKind::NetworkUnreachable;
        assert!(refused.iter().all(unreachable), "{refused:?}");
        let shown = ip("route show via 10.9.0.2");
        assert_eq!(shown.lines().count(), 300 - places.len());
        // One is written, too; and all that is refused.
        assert!(send(vec![request(5)]).unwrap().is_empty());
        assert_eq!(send([3; 200].map(request).into()).unwrap().len(), 200);
    }
}
