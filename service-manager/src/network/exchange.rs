//! DHCP messages: what the client says, which answers are for it.
//!
//! Source: RFC 2131 §4.3.6 (table of fields), RFC 2132; spec/machine-facts.md §8.2 (requested options).

use std::net::Ipv4Addr;

use dhcproto::v4::{DhcpOption, Flags, Message, MessageType, OptionCode};
use dhcproto::{Decodable, Decoder, Encodable};

/// What the client asks for.
const WANTED: [OptionCode; 8] = [
    OptionCode::SubnetMask,
    OptionCode::Router,
    OptionCode::DomainNameServer,
    OptionCode::Hostname,
    OptionCode::DomainName,
    OptionCode::InterfaceMtu,
    OptionCode::NtpServers,
    OptionCode::ClasslessStaticRoute,
];

/// What the client wants to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Say {
    /// Is anyone there?
    Discover,
    /// I take this offer.
    Request { address: Ipv4Addr, server: Ipv4Addr },
    /// I go on using this address.
    Renew { address: Ipv4Addr },
}

/// The bytes of a message.
pub(crate) fn encode(say: Say, xid: u32, hardware: &[u8]) -> Result<Vec<u8>, String> {
    let none = Ipv4Addr::UNSPECIFIED;
    let ciaddr = if let Say::Renew { address } = say { address } else { none };
    let mut message = Message::new_with_id(xid, ciaddr, none, none, none, hardware);
    if ciaddr == none {
        // Without an address we cannot be reached but by broadcast.
        message.set_flags(Flags::default().set_broadcast());
    }
    let options = message.opts_mut();
    let kind = if say == Say::Discover { MessageType::Discover } else { MessageType::Request };
    options.insert(DhcpOption::MessageType(kind));
    let mut identifier = vec![1];
    identifier.extend_from_slice(hardware);
    options.insert(DhcpOption::ClientIdentifier(identifier));
    options.insert(DhcpOption::ParameterRequestList(WANTED.to_vec()));
    if let Say::Request { address, server } = say {
        options.insert(DhcpOption::RequestedIpAddress(address));
        options.insert(DhcpOption::ServerIdentifier(server));
    }
    message.to_vec().map_err(|e| format!("encode a DHCP message: {e}"))
}

/// An answer to our exchange.
#[derive(Debug)]
pub(crate) enum Heard {
    Offer(Message),
    Ack(Message),
    Nak,
}

/// Reads a packet; `None` when it is not for this exchange.
pub(crate) fn decode(packet: &[u8], xid: u32, hardware: &[u8]) -> Option<Heard> {
    let message = Message::decode(&mut Decoder::new(packet)).ok()?;
    // The decoder takes the length as it comes, and reads behind the field when it is asked for the address.
    if usize::from(message.hlen()) != hardware.len() {
        return None;
    }
    let ours = message.xid() == xid && message.chaddr().get(..hardware.len()) == Some(hardware);
    if !ours {
        return None;
    }
    match message.opts().msg_type()? {
        MessageType::Offer => Some(Heard::Offer(message)),
        MessageType::Ack => Some(Heard::Ack(message)),
        MessageType::Nak => Some(Heard::Nak),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [0x52, 0x54, 0, 1, 2, 3];

    #[test]
    fn a_request_names_the_server_and_a_renewal_does_not() {
        let say = Say::Request { address: [10, 0, 0, 5].into(), server: [10, 0, 0, 1].into() };
        let request = Message::decode(&mut Decoder::new(&encode(say, 7, &MAC).unwrap())).unwrap();
        assert!(request.flags().broadcast() && request.ciaddr().is_unspecified());
        assert!(request.opts().get(OptionCode::ServerIdentifier).is_some());
        let renew = encode(Say::Renew { address: [10, 0, 0, 5].into() }, 7, &MAC).unwrap();
        let renew = Message::decode(&mut Decoder::new(&renew)).unwrap();
        assert_eq!(renew.ciaddr(), Ipv4Addr::new(10, 0, 0, 5));
        assert!(!renew.flags().broadcast() && renew.opts().get(OptionCode::ServerIdentifier).is_none());
    }

    #[test]
    fn only_answers_to_this_exchange_count() {
        let none = Ipv4Addr::UNSPECIFIED;
        let mut offer = Message::new_with_id(7, none, [10, 0, 0, 5].into(), none, none, &MAC);
        offer.opts_mut().insert(DhcpOption::MessageType(MessageType::Offer));
        let packet = offer.to_vec().unwrap();
        assert!(matches!(decode(&packet, 7, &MAC), Some(Heard::Offer(_))));
        assert!(decode(&packet, 8, &MAC).is_none());
        assert!(decode(&packet, 7, &[1, 2, 3, 4, 5, 6]).is_none());
        assert!(decode(&packet[..30], 7, &MAC).is_none());
        assert!(decode(b"", 7, &MAC).is_none());
        for length in [0, 5, 7, 16, 17, 255] {
            let mut packet = packet.clone();
            packet[2] = length;
            assert!(decode(&packet, 7, &MAC).is_none(), "{length}");
        }
    }
}
