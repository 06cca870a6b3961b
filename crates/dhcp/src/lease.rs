//! A DHCP lease: what an ACK grants, and when it must be renewed.
//!
//! Source: RFC 2131 §4.4.5 (times), RFC 2132 §8.3 (time servers), RFC 3397 (search list), RFC 3442 (classless routes replace
//! option 3).

use std::net::Ipv4Addr;
use std::time::Duration;

use dhcproto::v4::{DhcpOption, Message, OptionCode};

use crate::message::{self, Heard};

/// Lease time when the server names none.
const DEFAULT_TIME: Duration = Duration::from_secs(30 * 60);
/// Shorter leases are treated as this long: a server that grants none would be asked without end.
const LEAST_TIME: Duration = Duration::from_secs(30);

/// Time servers that are taken from a lease.
const MOST_TIME_SERVERS: usize = 4;

/// Name servers that are taken from a lease.
const MOST_RESOLVERS: usize = 8;
/// Domains that are taken from a search list.
const MOST_DOMAINS: usize = 6;
/// Routes that are taken: what a message without fragments can hold.
const MOST_ROUTES: usize = 128;

/// What a server granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The client's.
    pub address: Ipv4Addr,
    /// Bits of its network; 32 if the server names none.
    pub prefix: u8,
    /// Who granted it, and prolongs it.
    pub server: Ipv4Addr,
    /// Destination, prefix length, next hop; an unspecified hop: on the link.
    pub routes: Vec<(Ipv4Addr, u8, Ipv4Addr)>,
    /// Name servers.
    pub resolvers: Vec<Ipv4Addr>,
    /// Servers of NTP.
    pub time_servers: Vec<Ipv4Addr>,
    /// The name that the client is given.
    pub hostname: Option<String>,
    /// The domain of its name.
    pub domain: Option<String>,
    /// Where names without a dot are looked for.
    pub search_domains: Vec<String>,
    /// Largest packet of the link in bytes.
    pub mtu: Option<u16>,
    /// How long the address may be used.
    pub time: Duration,
    /// T1: from then on its server is asked to prolong it.
    pub renew_after: Duration,
    /// T2: from then on any server is.
    pub rebind_after: Duration,
}

impl Lease {
    /// Reads an ACK or OFFER; `None` when it grants nothing that a machine can use.
    #[must_use]
    pub fn parse(message: &Message) -> Option<Self> {
        let address = Some(message.yiaddr()).filter(is_host)?;
        let option = |code| message.opts().get(code);
        let Some(DhcpOption::ServerIdentifier(server)) = option(OptionCode::ServerIdentifier) else {
            return None;
        };
        let mask = match option(OptionCode::SubnetMask) {
            Some(DhcpOption::SubnetMask(mask)) => *mask,
            _ => Ipv4Addr::BROADCAST,
        };
        let time = match option(OptionCode::AddressLeaseTime) {
            Some(DhcpOption::AddressLeaseTime(seconds)) => {
                Duration::from_secs((*seconds).into()).max(LEAST_TIME)
            }
            _ => DEFAULT_TIME,
        };
        let renew = match option(OptionCode::Renewal) {
            Some(DhcpOption::Renewal(seconds)) => Duration::from_secs((*seconds).into()),
            _ => time / 2,
        };
        let rebind = match option(OptionCode::Rebinding) {
            Some(DhcpOption::Rebinding(seconds)) => Duration::from_secs((*seconds).into()),
            _ => time / 8 * 7,
        };
        // Times out of order would make the client spin or lose its address.
        let rebind_after = rebind.clamp(LEAST_TIME / 2, time);
        Some(Self {
            address,
            prefix: prefix_length(mask),
            server: *server,
            routes: routes(message),
            resolvers: hosts(&addresses(message, OptionCode::DomainNameServer), MOST_RESOLVERS),
            time_servers: time_servers(message),
            hostname: text(message, OptionCode::Hostname),
            domain: text(message, OptionCode::DomainName),
            search_domains: search_domains(message),
            mtu: match option(OptionCode::InterfaceMtu) {
                Some(DhcpOption::InterfaceMtu(mtu)) if *mtu >= 576 => Some(*mtu),
                _ => None,
            },
            time,
            renew_after: renew.clamp(LEAST_TIME / 2, rebind_after),
            rebind_after,
        })
    }

    /// Next hop of the default route.
    #[must_use]
    pub fn gateway(&self) -> Option<Ipv4Addr> {
        self.routes.iter().find(|(_, prefix, _)| *prefix == 0).map(|(_, _, via)| *via)
    }
}

/// What a packet grants, if it is an answer to this exchange: the way of an answer without sockets, for the fuzzer.
#[must_use]
pub fn granted(packet: &[u8], xid: u32, hardware: &[u8]) -> Option<Lease> {
    match message::decode(packet, xid, hardware)? {
        Heard::Offer(message) | Heard::Ack(message) => Lease::parse(&message),
        Heard::Nak(_) => None,
    }
}

fn prefix_length(mask: Ipv4Addr) -> u8 {
    u8::try_from(mask.to_bits().leading_ones()).unwrap_or(32)
}

/// Whether a machine of a network can have it.
fn is_host(address: &Ipv4Addr) -> bool {
    let is_none = address.octets()[0] == 0 || address.is_loopback();
    !(is_none || address.is_multicast() || address.is_broadcast())
}

/// Those that can be a server's address: a packet may name sixty, and each is asked in every round.
fn hosts(list: &[Ipv4Addr], most: usize) -> Vec<Ipv4Addr> {
    list.iter().filter(|address| is_host(address)).take(most).copied().collect()
}

fn time_servers(message: &Message) -> Vec<Ipv4Addr> {
    match message.opts().get(OptionCode::NtpServers) {
        Some(DhcpOption::NtpServers(list)) => hosts(list, MOST_TIME_SERVERS),
        _ => Vec::new(),
    }
}

fn search_domains(message: &Message) -> Vec<String> {
    let Some(DhcpOption::DomainSearch(names)) = message.opts().get(OptionCode::DomainSearch) else {
        return Vec::new();
    };
    names.iter().filter_map(|name| plain(&name.to_string())).take(MOST_DOMAINS).collect()
}

fn addresses(message: &Message, code: OptionCode) -> Vec<Ipv4Addr> {
    match message.opts().get(code) {
        Some(DhcpOption::DomainNameServer(list) | DhcpOption::Router(list)) => list.clone(),
        _ => Vec::new(),
    }
}

fn text(message: &Message, code: OptionCode) -> Option<String> {
    let (Some(DhcpOption::Hostname(text)) | Some(DhcpOption::DomainName(text))) = message.opts().get(code)
    else {
        return None;
    };
    plain(text)
}

/// A name that can stand in the files of a resolver.
fn plain(text: &str) -> Option<String> {
    let text = text.trim_end_matches(['\0', '.']);
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    (!text.is_empty() && text.len() <= 253 && text.chars().all(fits)).then(|| text.to_ascii_lowercase())
}

fn routes(message: &Message) -> Vec<(Ipv4Addr, u8, Ipv4Addr)> {
    if let Some(DhcpOption::ClasslessStaticRoute(list)) = message.opts().get(OptionCode::ClasslessStaticRoute)
    {
        let routes = list.iter().map(|(net, via)| (net.network(), net.prefix_len(), *via));
        return routes.take(MOST_ROUTES).collect();
    }
    let routers = addresses(message, OptionCode::Router);
    routers.first().map(|via| (Ipv4Addr::UNSPECIFIED, 0, *via)).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ack(options: Vec<DhcpOption>) -> Message {
        let mut message = Message::default();
        message.set_yiaddr([10, 0, 2, 15]);
        message.opts_mut().insert(DhcpOption::ServerIdentifier([10, 0, 2, 2].into()));
        for option in options {
            message.opts_mut().insert(option);
        }
        message
    }

    #[test]
    fn an_ack_becomes_a_lease() {
        let lease = Lease::parse(&ack(vec![
            DhcpOption::SubnetMask([255, 255, 255, 0].into()),
            DhcpOption::Router(vec![[10, 0, 2, 2].into()]),
            DhcpOption::DomainNameServer(vec![[10, 0, 2, 3].into()]),
            DhcpOption::AddressLeaseTime(86400),
            DhcpOption::Hostname("Node-1".into()),
            DhcpOption::NtpServers(vec![[10, 0, 2, 4].into(), [127, 0, 0, 1].into(), [0; 4].into()]),
        ]))
        .unwrap();
        assert_eq!((lease.address, lease.prefix), ([10, 0, 2, 15].into(), 24));
        assert_eq!(lease.gateway(), Some([10, 0, 2, 2].into()));
        assert_eq!(lease.time_servers, [Ipv4Addr::new(10, 0, 2, 4)]);
        assert_eq!(lease.renew_after, Duration::from_secs(43200));
        assert_eq!(lease.rebind_after, Duration::from_secs(75600));
        assert_eq!(lease.hostname.as_deref(), Some("node-1"));
    }

    #[test]
    fn classless_routes_replace_the_router() {
        let net = "192.168.0.0/16".parse().unwrap();
        let lease = Lease::parse(&ack(vec![
            DhcpOption::Router(vec![[10, 0, 2, 2].into()]),
            DhcpOption::ClasslessStaticRoute(vec![(net, [10, 0, 2, 9].into())]),
        ]))
        .unwrap();
        assert_eq!(lease.routes, [([192, 168, 0, 0].into(), 16, [10, 0, 2, 9].into())]);
    }

    #[test]
    fn hostile_values_are_tamed() {
        let lease = Lease::parse(&ack(vec![
            DhcpOption::AddressLeaseTime(0),
            DhcpOption::Renewal(u32::MAX),
            DhcpOption::Hostname("a b\nc".into()),
            DhcpOption::InterfaceMtu(1),
            DhcpOption::NtpServers(vec![[10, 0, 2, 4].into(); 60]),
        ]))
        .unwrap();
        assert_eq!((lease.time, lease.hostname, lease.mtu), (LEAST_TIME, None, None));
        assert_eq!(lease.time_servers.len(), MOST_TIME_SERVERS);
        assert!(lease.renew_after <= lease.rebind_after && lease.rebind_after <= lease.time);
        assert!(Lease::parse(&Message::default()).is_none());
        for address in [[127, 0, 0, 1], [0, 0, 0, 5], [224, 0, 0, 1], [255; 4]] {
            let mut message = ack(Vec::new());
            message.set_yiaddr(address);
            assert!(Lease::parse(&message).is_none(), "{address:?}");
        }
    }
}
