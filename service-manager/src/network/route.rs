//! A route as the kernel tells it, in as little memory as it takes: a node may have a hundred thousand.
//!
//! Owns: what of a message is kept, and its form as a resource.
//! Fails by: the reason why a message cannot be read. Without one of its attributes it would be another route.
//! Source: rtnetlink(7); include/uapi/linux/rtnetlink.h.

use std::fmt;
use std::hash::{DefaultHasher, Hasher as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_route::route::{RouteProtocol, RouteScope, RouteType};
use runtime::store::RouteStatus;

use super::salvage::parts;
use super::words::{table_name, word};

/// struct nlmsghdr and struct rtmsg.
const HEAD_BYTES: usize = 16 + 12;
const FAMILY_AT: usize = 16;

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
/// RT_TABLE_MAIN
const MAIN_TABLE: u32 = 254;
/// RTM_F_CLONED: an entry of a cache.
const CLONED: u32 = 0x200;

const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
const RTA_MULTIPATH: u16 = 9;
const RTA_CACHEINFO: u16 = 12;
const RTA_TABLE: u16 = 15;
const RTA_PREF: u16 = 20;

/// An address of either family.
pub(super) trait Address: Copy + Ord + fmt::Debug + Into<IpAddr> {
    /// What stands for none.
    const NONE: Self;
    const FAMILY: &'static str;
    /// The longest prefix.
    const MOST: u8;

    fn read(bytes: &[u8]) -> Option<Self>;
    /// Its first bits, with zeros behind them.
    fn network(self, prefix: u8) -> Self;
}

impl Address for Ipv4Addr {
    const NONE: Self = Self::UNSPECIFIED;
    const FAMILY: &'static str = "inet4";
    const MOST: u8 = 32;

    fn read(bytes: &[u8]) -> Option<Self> {
        <[u8; 4]>::try_from(bytes).ok().map(Self::from)
    }

    fn network(self, prefix: u8) -> Self {
        let mask = u32::MAX.checked_shl(Self::BITS.saturating_sub(prefix.into())).unwrap_or_default();
        Self::from_bits(self.to_bits() & mask)
    }
}

impl Address for Ipv6Addr {
    const NONE: Self = Self::UNSPECIFIED;
    const FAMILY: &'static str = "inet6";
    const MOST: u8 = 128;

    fn read(bytes: &[u8]) -> Option<Self> {
        <[u8; 16]>::try_from(bytes).ok().map(Self::from)
    }

    fn network(self, prefix: u8) -> Self {
        let mask = u128::MAX.checked_shl(Self::BITS.saturating_sub(prefix.into())).unwrap_or_default();
        Self::from_bits(self.to_bits() & mask)
    }
}

/// A route. The order of the fields is that of the table: those of one place in the kernel's tables stand together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Route<A> {
    pub(super) table: u32,
    pub(super) destination: A,
    pub(super) prefix: u8,
    pub(super) priority: u32,
    pub(super) tos: u8,
    /// Index of its link; zero for none, or for several.
    pub(super) link: u32,
    pub(super) gateway: A,
    pub(super) source: A,
    pub(super) scope: u8,
    pub(super) kind: u8,
    pub(super) protocol: u8,
    /// Tells routes apart by what else the kernel told; zero without such.
    pub(super) rest: u32,
}

impl<A: Address> Route<A> {
    /// Whether both have one place in the kernel's tables: where one of them replaces the other.
    pub(super) fn is_in_place_of(&self, other: &Self) -> bool {
        self.is_beside(other) && self.tos == other.tos
    }

    /// The same without the type of service, which ids do not have.
    pub(super) fn is_beside(&self, other: &Self) -> bool {
        (self.table, self.destination, self.prefix, self.priority)
            == (other.table, other.destination, other.prefix, other.priority)
    }

    /// Whether both have the same id.
    pub(super) fn is_named_as(&self, other: &Self) -> bool {
        self.is_beside(other) && (self.link, self.gateway) == (other.link, other.gateway)
    }

    /// The lowest of those that are beside this one.
    pub(super) fn first_beside(&self) -> Self {
        Self { table: self.table, priority: self.priority, ..Self::first_to(self.destination, self.prefix) }
    }

    /// The lowest of those of the main table to a destination.
    pub(super) fn first_to(destination: A, prefix: u8) -> Self {
        Self {
            table: MAIN_TABLE,
            destination,
            prefix,
            priority: 0,
            tos: 0,
            link: 0,
            gateway: A::NONE,
            source: A::NONE,
            scope: 0,
            kind: 0,
            protocol: 0,
            rest: 0,
        }
    }

    pub(super) fn is_default(&self) -> bool {
        self.prefix == 0
    }

    /// As a resource. `link`: the name of its link.
    pub(super) fn status(&self, link: &str) -> RouteStatus {
        let text = |address: A| if address == A::NONE { String::new() } else { address.into().to_string() };
        let destination: IpAddr = self.destination.into();
        RouteStatus {
            family: A::FAMILY,
            dst: if self.is_default() { String::new() } else { format!("{destination}/{}", self.prefix) },
            src: text(self.source),
            gateway: text(self.gateway),
            out_link_name: link.to_owned(),
            table: table_name(self.table),
            priority: self.priority,
            scope: word(RouteScope::from(self.scope)),
            kind: word(RouteType::from(self.kind)),
            protocol: word(RouteProtocol::from(self.protocol)),
        }
    }
}

/// The id of a route's resource. A route of the same destination may be in several tables.
pub(super) fn id(status: &RouteStatus) -> String {
    let in_table = if &*status.table == "main" { String::new() } else { format!("{}/", status.table) };
    format!(
        "{in_table}{}/{}/{}/{}/{}",
        status.out_link_name, status.family, status.gateway, status.dst, status.priority
    )
}

/// A route of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnyRoute {
    V4(Route<Ipv4Addr>),
    /// `is_multipath`: the kernel tells several routes of one place as one.
    V6 {
        route: Route<Ipv6Addr>,
        is_multipath: bool,
    },
}

/// Reads a message of a route. None: it is of a family or a cache that is not shown.
pub(super) fn read(message: &[u8]) -> Result<Option<AnyRoute>, &'static str> {
    let (head, attributes) = message.split_at_checked(HEAD_BYTES).ok_or("its header is cut off")?;
    let Some(&[family, prefix, _, tos, table, protocol, scope, kind, a, b, c, d]) =
        head.get(FAMILY_AT..).and_then(|head| head.first_chunk())
    else {
        return Err("its header is cut off");
    };
    if u32::from_ne_bytes([a, b, c, d]) & CLONED != 0 {
        return Ok(None);
    }
    let head = Head { prefix, tos, table, protocol, scope, kind };
    match family {
        AF_INET => Ok(Some(AnyRoute::V4(head.with(attributes)?.0))),
        AF_INET6 => {
            let (route, is_multipath) = head.with(attributes)?;
            Ok(Some(AnyRoute::V6 { route, is_multipath }))
        }
        _ => Ok(None),
    }
}

/// Of struct rtmsg.
struct Head {
    prefix: u8,
    tos: u8,
    table: u8,
    protocol: u8,
    scope: u8,
    kind: u8,
}

impl Head {
    /// The route, and whether it has several next hops.
    fn with<A: Address>(self, attributes: &[u8]) -> Result<(Route<A>, bool), &'static str> {
        let Self { prefix, tos, table, protocol, scope, kind } = self;
        let none = Route::first_to(A::NONE, prefix);
        let mut route = Route { table: table.into(), tos, scope, kind, protocol, ..none };
        let (mut rest, mut is_multipath, mut read_bytes) = (None, false, 0);
        for part in parts(attributes) {
            read_bytes += part.bytes.len();
            let value = part.value().ok_or("an attribute is cut off")?;
            let number = || <[u8; 4]>::try_from(value).map(u32::from_ne_bytes);
            let address = || A::read(value).ok_or("an address has another length");
            match part.number {
                RTA_DST => route.destination = address()?,
                RTA_GATEWAY => route.gateway = address()?,
                RTA_PREFSRC => route.source = address()?,
                RTA_OIF => route.link = number().map_err(|_| "the link has another length")?,
                RTA_PRIORITY => route.priority = number().map_err(|_| "the priority has another length")?,
                RTA_TABLE => route.table = number().map_err(|_| "the table has another length")?,
                // How old it is; and the preference that all have.
                RTA_CACHEINFO => {}
                RTA_PREF if value == [0] => {}
                number => {
                    is_multipath |= number == RTA_MULTIPATH;
                    let hasher = rest.get_or_insert_with(DefaultHasher::new);
                    hasher.write_u16(number);
                    hasher.write(value);
                }
            }
        }
        if read_bytes != attributes.len() {
            return Err("its attributes are cut off");
        }
        if let Some(hasher) = rest {
            let [a, b, c, d, ..] = hasher.finish().to_ne_bytes();
            route.rest = u32::from_ne_bytes([a, b, c, d]).max(1);
        }
        Ok((route, is_multipath))
    }
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::NetlinkMessage;
    use netlink_packet_route::RouteNetlinkMessage;
    use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteMetric};
    use rtnetlink::RouteMessageBuilder;

    use super::*;

    fn bytes(message: RouteMessage) -> Vec<u8> {
        let mut message = NetlinkMessage::from(RouteNetlinkMessage::NewRoute(message));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        bytes
    }

    fn v4(message: RouteMessage) -> Route<Ipv4Addr> {
        match read(&bytes(message)) {
            Ok(Some(AnyRoute::V4(route))) => route,
            other => panic!("{other:?}"),
        }
    }

    fn message() -> RouteMessage {
        let builder = RouteMessageBuilder::<Ipv4Addr>::new().destination_prefix([10, 0, 2, 15].into(), 32);
        builder.output_interface(2).build()
    }

    #[test]
    fn a_route_has_its_table_and_type() {
        let mut message = message();
        let main = v4(message.clone()).status("eth0");
        assert_eq!((id(&main).as_str(), main.table.as_ref()), ("eth0/inet4//10.0.2.15/32/0", "main"));
        message.header.table = 255;
        message.header.kind = RouteType::Local;
        let local = v4(message.clone()).status("eth0");
        assert_eq!(id(&local), "local/eth0/inet4//10.0.2.15/32/0");
        assert_eq!((local.table.as_ref(), local.kind.as_str()), ("local", "local"));
        message.attributes.push(RouteAttribute::Table(1000));
        assert_eq!(v4(message).status("eth0").table.as_ref(), "1000");
        let default: Route<Ipv6Addr> = match read(&bytes(
            RouteMessageBuilder::<Ipv6Addr>::new()
                .gateway("fe80::1".parse().unwrap())
                .output_interface(2)
                .build(),
        )) {
            Ok(Some(AnyRoute::V6 { route, is_multipath: false })) => route,
            other => panic!("{other:?}"),
        };
        let default = default.status("eth0");
        assert_eq!((default.dst.as_str(), default.gateway.as_str()), ("", "fe80::1"));
        assert_eq!(id(&default), "eth0/inet6/fe80::1//0");
    }

    #[test]
    fn what_is_not_shown_tells_routes_apart() {
        let (plain, mut small) = (message(), message());
        small.attributes.push(RouteAttribute::Metrics(vec![RouteMetric::Mtu(1300)]));
        let (plain, small) = (v4(plain), v4(small));
        assert_eq!(plain.rest, 0);
        assert!(small.rest != 0 && small.is_named_as(&plain) && small.is_in_place_of(&plain));
        assert!(small.first_beside() <= plain && plain.first_beside() <= small);
        let other = Route { tos: 8, ..plain };
        assert!(other.is_named_as(&plain) && !other.is_in_place_of(&plain));
    }

    #[test]
    fn caches_and_other_families_are_no_routes() {
        let mut cloned = bytes(message());
        cloned[24..28].copy_from_slice(&CLONED.to_ne_bytes());
        assert_eq!(read(&cloned), Ok(None));
        let mut multicast = bytes(message());
        multicast[16] = 128;
        assert_eq!(read(&multicast), Ok(None));
        for length in 0..HEAD_BYTES {
            assert!(read(&bytes(message())[..length]).is_err(), "{length}");
        }
        // Every cut that leaves a part of an attribute.
        let whole = bytes(message());
        for length in HEAD_BYTES + 1..whole.len() {
            let is_between = (length - HEAD_BYTES).is_multiple_of(8);
            assert_eq!(read(&whole[..length]).is_ok(), is_between, "{length}");
        }
    }

    #[test]
    fn a_route_takes_little_memory() {
        assert_eq!((size_of::<Route<Ipv4Addr>>(), size_of::<Route<Ipv6Addr>>()), (36, 72));
    }
}
