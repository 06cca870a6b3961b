//! One request over netlink, and its answers message by message.
//!
//! Owns: the socket, and where an answer ends.
//! Does not: read what is in a message; wait for the kernel elsewhere than in the calling thread: answers come at once.
//! Source: netlink(7), include/uapi/linux/netlink.h.

use std::io;

use netlink_packet_core::NetlinkBuffer;
use netlink_sys::{Socket, SocketAddr};
use zeroize::Zeroizing;

/// Types of messages that every family of netlink has.
const NOOP: u16 = 1;
const ERROR: u16 = 2;
const DONE: u16 = 3;
const OVERRUN: u16 = 4;

/// A socket that talks to the kernel.
pub(super) fn open(protocol: isize) -> io::Result<Socket> {
    let mut socket = Socket::new(protocol)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    Ok(socket)
}

/// Sends a request, and gives each message of the answer to `take`, with its header, up to the acknowledgement or the end of the
/// list, one of which the request asks for. A refusal has the kernel's number.
pub(super) fn exchange(socket: &Socket, request: &[u8], mut take: impl FnMut(&[u8])) -> io::Result<()> {
    socket.send(request, 0)?;
    loop {
        // It may hold a key.
        let answer = Zeroizing::new(socket.recv_from_full()?.0);
        if collect(&answer, &mut take)? {
            return Ok(());
        }
    }
}

/// Gives the messages of a datagram to `take`; whether the answer ends with it.
pub(super) fn collect(datagram: &[u8], take: &mut impl FnMut(&[u8])) -> io::Result<bool> {
    for message in messages(datagram) {
        // After what is no message, no end would be found either.
        let message = message.ok_or(io::ErrorKind::InvalidData)?;
        let head = NetlinkBuffer::new(message);
        match head.message_type() {
            NOOP | OVERRUN => {}
            DONE => return Ok(true),
            ERROR => {
                let code = head.payload().first_chunk().map(|bytes| i32::from_ne_bytes(*bytes));
                let code = code.ok_or(io::ErrorKind::InvalidData)?;
                return if code == 0 { Ok(true) } else { Err(io::Error::from_raw_os_error(-code)) };
            }
            _ => take(message),
        }
    }
    Ok(false)
}

/// The messages of a datagram; none in the place of what is no message, which ends them.
pub(super) fn messages(datagram: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let length =
            NetlinkBuffer::new_checked(rest).ok().and_then(|head| usize::try_from(head.length()).ok());
        let message = length.and_then(|length| rest.get(..length));
        rest = message.and_then(|message| rest.get(message.len().next_multiple_of(4)..)).unwrap_or_default();
        Some(message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message of this type.
    fn message(kind: u16, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(16 + payload.len()).unwrap();
        let head = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 10]].concat();
        let mut bytes = [head.as_slice(), payload].concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn taken(datagram: &[u8]) -> (Vec<Vec<u8>>, io::Result<bool>) {
        let mut found = Vec::new();
        let end = collect(datagram, &mut |message: &[u8]| found.push(message[16..].to_vec()));
        (found, end)
    }

    #[test]
    fn an_answer_ends_with_its_acknowledgement_its_error_or_its_list() {
        let (first, second) = (message(16, &[1, 2, 3]), message(16, &[4]));
        let (found, end) = taken(&[first.clone(), message(NOOP, &[]), second].concat());
        assert_eq!((found, end.unwrap()), (vec![vec![1, 2, 3], vec![4]], false));
        let (found, end) = taken(&[first.clone(), message(DONE, &[0; 4]), first.clone()].concat());
        assert_eq!((found.len(), end.unwrap()), (1, true));
        let (_, end) = taken(&message(ERROR, &0_i32.to_ne_bytes()));
        assert!(end.unwrap());
        let (_, end) = taken(&message(ERROR, &(-2_i32).to_ne_bytes()));
        assert_eq!(end.unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn what_is_no_message_is_an_error_and_no_wait() {
        let first = message(16, &[1]);
        for wrong in [&[7_u8; 8][..], &[0; 16], &[255; 16], &message(ERROR, &[])] {
            let (found, end) = taken(&[first.as_slice(), wrong].concat());
            assert_eq!((found.len(), end.unwrap_err().kind()), (1, io::ErrorKind::InvalidData), "{wrong:?}");
        }
    }
}
