//! DHCP messages: what the client says, which answers are for it.
//!
//! Source: RFC 2131 §4.3.6 and §4.4.1 (tables of fields), RFC 2132, RFC 4039 (rapid commit), RFC 4361 (client identifiers).

use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

use dhcproto::v4::{DhcpOption, Flags, Message, MessageType, Opcode, OptionCode};
use dhcproto::{Decodable, Decoder, Encodable};

/// Length of an Ethernet address in bytes.
pub const HARDWARE_BYTES: usize = 6;
/// What the client asks for.
const WANTED: [OptionCode; 7] = [
    OptionCode::ClasslessStaticRoute,
    OptionCode::SubnetMask,
    OptionCode::Router,
    OptionCode::DomainNameServer,
    OptionCode::InterfaceMtu,
    OptionCode::NtpServers,
    OptionCode::DomainSearch,
];
/// Asked for, too, by a client that has no name.
const NAMES: [OptionCode; 2] = [OptionCode::Hostname, OptionCode::DomainName];
/// The longest message that it takes: what a frame of Ethernet holds.
const MOST_BYTES: u16 = 1472;
/// First byte of an identifier that is one of a machine and a link (RFC 4361 §6.1).
const OF_NODE: u8 = 255;

/// Where a message says how long its hardware address is, and how much room that has (RFC 2131 §2).
const HARDWARE_LENGTH_AT: usize = 2;
const HARDWARE_ROOM: u8 = 16;
/// Where options begin, behind the cookie.
const OPTIONS_AT: usize = 240;
/// Options with the lengths that the decoder counts on: rapid commit (RFC 4039 §4), name of the client (RFC 4702 §2), its
/// network interface (RFC 4578 §2.2), status and times of a query of leases (RFC 6926 §6.2).
const LENGTHS: [(u8, RangeInclusive<u8>); 8] = [
    (80, 0..=0),
    (81, 3..=255),
    (94, 3..=3),
    (151, 1..=255),
    (152, 4..=4),
    (153, 4..=4),
    (154, 4..=4),
    (155, 4..=4),
];

/// Who the client says it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Identifier {
    /// The hardware address.
    #[default]
    Hardware,
    /// A DUID; the link's number is made of its address.
    Duid(Vec<u8>),
    /// Nothing: servers go by the hardware address.
    None,
}

/// What the client is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// Address of its link.
    pub hardware: [u8; HARDWARE_BYTES],
    /// Who it says it is.
    pub identifier: Identifier,
    /// Its name, which it tells; without one it asks for one.
    pub hostname: Option<String>,
    /// It asks for no name, whether it has one or not.
    pub ignores_hostname: bool,
}

/// What the client wants to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Say {
    /// Which servers are there? Best with this address.
    Discover { wanted: Option<Ipv4Addr> },
    /// I take this offer.
    Select { address: Ipv4Addr, server: Ipv4Addr },
    /// I had this address: is it still mine?
    Reboot { address: Ipv4Addr },
    /// I go on using this address.
    Renew { address: Ipv4Addr },
    /// Another machine has it.
    Decline { address: Ipv4Addr, server: Ipv4Addr },
    /// I do not need it any more.
    Release { address: Ipv4Addr, server: Ipv4Addr },
}

impl Say {
    fn kind(self) -> MessageType {
        match self {
            Self::Discover { .. } => MessageType::Discover,
            Self::Select { .. } | Self::Reboot { .. } | Self::Renew { .. } => MessageType::Request,
            Self::Decline { .. } => MessageType::Decline,
            Self::Release { .. } => MessageType::Release,
        }
    }

    /// The address in the header: only of a client that is reached at it.
    fn header_address(self) -> Ipv4Addr {
        match self {
            Self::Renew { address } | Self::Release { address, .. } => address,
            _ => Ipv4Addr::UNSPECIFIED,
        }
    }

    fn requested(self) -> Option<Ipv4Addr> {
        match self {
            Self::Discover { wanted } => wanted,
            Self::Select { address, .. } | Self::Reboot { address } | Self::Decline { address, .. } => {
                Some(address)
            }
            Self::Renew { .. } | Self::Release { .. } => None,
        }
    }

    fn server(self) -> Option<Ipv4Addr> {
        match self {
            Self::Select { server, .. } | Self::Decline { server, .. } | Self::Release { server, .. } => {
                Some(server)
            }
            _ => None,
        }
    }

    fn asks(self) -> bool {
        !matches!(self, Self::Decline { .. } | Self::Release { .. })
    }
}

/// The bytes of a message; none if a name is too long for an option. `seconds` have gone by since the client began to ask.
pub(crate) fn encode(say: Say, xid: u32, seconds: u16, settings: &Settings) -> Vec<u8> {
    let none = Ipv4Addr::UNSPECIFIED;
    let mut message = Message::new_with_id(xid, say.header_address(), none, none, none, &settings.hardware);
    // Frames to an address that the link does not have yet are heard.
    message.set_flags(Flags::default()).set_secs(seconds);
    let options = message.opts_mut();
    options.insert(DhcpOption::MessageType(say.kind()));
    if let Some(identifier) = identifier(settings) {
        options.insert(DhcpOption::ClientIdentifier(identifier));
    }
    if let Some(address) = say.requested() {
        options.insert(DhcpOption::RequestedIpAddress(address));
    }
    if let Some(server) = say.server() {
        options.insert(DhcpOption::ServerIdentifier(server));
    }
    if say.asks() {
        let mut wanted = WANTED.to_vec();
        if settings.hostname.is_none() && !settings.ignores_hostname {
            wanted.extend(NAMES);
        }
        options.insert(DhcpOption::ParameterRequestList(wanted));
        options.insert(DhcpOption::MaxMessageSize(MOST_BYTES));
        if let Some(name) = &settings.hostname {
            options.insert(DhcpOption::Hostname(name.clone()));
        }
    }
    if matches!(say, Say::Discover { .. }) {
        options.insert(DhcpOption::RapidCommit);
    }
    message.to_vec().unwrap_or_default()
}

fn identifier(settings: &Settings) -> Option<Vec<u8>> {
    match &settings.identifier {
        // 1 is Ethernet.
        Identifier::Hardware => Some([&[1][..], &settings.hardware].concat()),
        Identifier::Duid(duid) => Some([&[OF_NODE][..], &settings.hardware[2..], duid].concat()),
        Identifier::None => None,
    }
}

/// The message with which a client that has stopped gives a lease back; it goes to the server, from the address.
#[must_use]
pub fn release(settings: &Settings, address: Ipv4Addr, server: Ipv4Addr, xid: u32) -> Vec<u8> {
    encode(Say::Release { address, server }, xid, 0, settings)
}

/// An answer to an exchange of the client's.
#[derive(Debug)]
pub(crate) enum Heard {
    Offer(Message),
    Ack(Message),
    /// The server's address, if it names it.
    Nak(Option<Ipv4Addr>),
}

/// Reads a datagram; `None`: it is no message. One whose hardware address is longer than its field is none: the decoder takes
/// the length as it comes, and reads behind the field when it is asked for the address.
#[must_use]
pub fn read(packet: &[u8]) -> Option<Message> {
    packet.get(HARDWARE_LENGTH_AT).filter(|length| **length <= HARDWARE_ROOM)?;
    if !have_lengths(packet.get(OPTIONS_AT..).unwrap_or_default()) {
        return None;
    }
    Message::decode(&mut Decoder::new(packet)).ok()
}

/// Whether no option has a length that it cannot have. One of these that is there twice would be put together (RFC 3396).
fn have_lengths(mut options: &[u8]) -> bool {
    let mut seen = [false; LENGTHS.len()];
    while let [code, rest @ ..] = options {
        let (length, value) = match (code, rest) {
            // Padding and the end have no length; the decoder goes on behind the end.
            (0 | 255, _) => (0, rest),
            (_, []) => return true,
            (_, [length, value @ ..]) => (*length, value),
        };
        for ((known, lengths), seen) in LENGTHS.iter().zip(&mut seen) {
            if known == code && (!lengths.contains(&length) || std::mem::replace(seen, true)) {
                return false;
            }
        }
        options = value.get(length.into()..).unwrap_or_default();
    }
    true
}

/// Reads a packet; `None` when it is not for this exchange.
pub(crate) fn decode(packet: &[u8], xid: u32, hardware: &[u8]) -> Option<Heard> {
    let message = read(packet)?;
    if usize::from(message.hlen()) != hardware.len() || message.opcode() != Opcode::BootReply {
        return None;
    }
    let ours = message.xid() == xid && message.chaddr().get(..hardware.len()) == Some(hardware);
    if !ours {
        return None;
    }
    match message.opts().msg_type()? {
        MessageType::Offer => Some(Heard::Offer(message)),
        MessageType::Ack => Some(Heard::Ack(message)),
        MessageType::Nak => Some(Heard::Nak(match message.opts().get(OptionCode::ServerIdentifier) {
            Some(DhcpOption::ServerIdentifier(server)) => Some(*server),
            _ => None,
        })),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [0x52, 0x54, 0, 1, 2, 3];

    fn said(say: Say, settings: &Settings) -> Message {
        Message::decode(&mut Decoder::new(&encode(say, 7, 3, settings))).unwrap()
    }

    /// The tables of RFC 2131 §4.3.6 and §4.4.1: header address, requested address, server.
    #[test]
    fn each_message_has_the_fields_of_its_state() {
        let (address, server) = (Ipv4Addr::new(10, 0, 0, 5), Ipv4Addr::new(10, 0, 0, 1));
        let settings = Settings { hardware: MAC, ..Settings::default() };
        for (say, kind, fields) in [
            (Say::Discover { wanted: None }, MessageType::Discover, (false, false, false)),
            (Say::Discover { wanted: Some(address) }, MessageType::Discover, (false, true, false)),
            (Say::Select { address, server }, MessageType::Request, (false, true, true)),
            (Say::Reboot { address }, MessageType::Request, (false, true, false)),
            (Say::Renew { address }, MessageType::Request, (true, false, false)),
            (Say::Decline { address, server }, MessageType::Decline, (false, true, true)),
            (Say::Release { address, server }, MessageType::Release, (true, false, true)),
        ] {
            let message = said(say, &settings);
            let has = |code| message.opts().get(code).is_some();
            assert_eq!((message.opts().msg_type(), message.secs()), (Some(kind), 3), "{say:?}");
            let found = (
                message.ciaddr() == address,
                has(OptionCode::RequestedIpAddress),
                has(OptionCode::ServerIdentifier),
            );
            assert_eq!(found, fields, "{say:?}");
            assert_eq!(has(OptionCode::ParameterRequestList), say.asks(), "{say:?}");
            assert_eq!(has(OptionCode::RapidCommit), kind == MessageType::Discover, "{say:?}");
        }
    }

    #[test]
    fn a_client_says_who_it_is_and_asks_for_a_name_only_without_one() {
        let identified = |identifier| {
            let settings = Settings { hardware: MAC, identifier, ..Settings::default() };
            match said(Say::Discover { wanted: None }, &settings).opts().get(OptionCode::ClientIdentifier) {
                Some(DhcpOption::ClientIdentifier(bytes)) => Some(bytes.clone()),
                _ => None,
            }
        };
        assert_eq!(identified(Identifier::Hardware), Some([&[1][..], &MAC].concat()));
        assert_eq!(identified(Identifier::Duid(vec![0, 4, 9])), Some(vec![255, 0, 1, 2, 3, 0, 4, 9]));
        assert_eq!(identified(Identifier::None), None);
        let asked = |hostname: Option<&str>, ignores_hostname| {
            let hostname = hostname.map(str::to_owned);
            let settings = Settings { hardware: MAC, hostname, ignores_hostname, ..Settings::default() };
            let message = said(Say::Discover { wanted: None }, &settings);
            let Some(DhcpOption::ParameterRequestList(list)) =
                message.opts().get(OptionCode::ParameterRequestList)
            else {
                panic!()
            };
            (list.contains(&OptionCode::Hostname), message.opts().get(OptionCode::Hostname).is_some())
        };
        assert_eq!(asked(None, false), (true, false));
        assert_eq!(asked(None, true), (false, false));
        assert_eq!(asked(Some("node-1"), false), (false, true));
    }

    #[test]
    fn only_answers_to_this_exchange_count() {
        let none = Ipv4Addr::UNSPECIFIED;
        let mut offer = Message::new_with_id(7, none, [10, 0, 0, 5].into(), none, none, &MAC);
        offer.set_opcode(Opcode::BootReply);
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
        let mut question = packet;
        question[0] = 1;
        assert!(decode(&question, 7, &MAC).is_none(), "another client's");
    }

    #[test]
    fn lengths_that_the_decoder_counts_on_are_checked() {
        let mut packet = encode(Say::Discover { wanted: None }, 7, 0, &Settings::default());
        for length in [17, 255] {
            packet[HARDWARE_LENGTH_AT] = length;
            assert!(read(&packet).is_none(), "{length}");
        }
        assert!(read(&packet[..2]).is_none());
        packet[HARDWARE_LENGTH_AT] = 6;
        for (option, is_read) in [
            (&[81, 2, 0, 0][..], false),
            (&[0, 151, 0], false),
            (&[80, 1, 0], false),
            (&[94, 3, 1, 3, 16, 94, 3, 1, 3, 16], false),
            (&[255, 80, 1, 0], false),
            (&[80, 0], true),
            (&[81, 3, 0, 0, 0], true),
        ] {
            let packet = [&packet[..OPTIONS_AT], &[53, 1, 1], option, &[255]].concat();
            assert_eq!(read(&packet).is_some(), is_read, "{option:?}");
        }
    }
}
