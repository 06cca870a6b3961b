//! DHCPv6 messages: what the client says, and what an answer has in it.
//!
//! On the wire: type (1 byte), transaction ID (3), options.
//! Owns: which options each message has; the limits on lists of an answer.
//! Fails by: an [`Error`] for a message whose structure is broken. An option that only carries a setting (name servers, domains,
//! time servers, times) is left out when it is malformed, and the rest counts.
//! Source: RFC 8415 §8, §16, §21 and appendix B (which option is where); RFC 3646 (DNS), RFC 4704 (name of the client),
//! RFC 5908 (time servers).

use std::net::Ipv6Addr;
use std::time::Duration;

pub use crate::duid::HARDWARE_BYTES;
use crate::duid::{self, Duid};
pub use crate::options::Error;
use crate::options::{self, Options, exact, head, put};

/// All DHCP relay agents and servers of a link: every message of a client goes there.
pub const SERVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);
/// UDP port of servers.
pub const SERVER_PORT: u16 = 547;
/// UDP port of clients, which send from their link-local address.
pub const CLIENT_PORT: u16 = 546;

/// Addresses that are taken from an association.
pub const MOST_ADDRESSES: usize = 16;
/// Name servers that are taken from an answer.
pub const MOST_DNS_SERVERS: usize = 8;
/// Domains that are taken from a search list.
pub const MOST_DOMAINS: usize = 16;
/// Time servers that are taken from an answer.
pub const MOST_TIME_SERVERS: usize = 4;

/// Before the first message, at most (`SOL_MAX_DELAY`, `CNF_MAX_DELAY`, `INF_MAX_DELAY`).
pub const FIRST_DELAY: Duration = Duration::from_secs(1);
/// `IRT_DEFAULT` and `IRT_MINIMUM`, in seconds.
const REFRESH: u32 = 86400;
const LEAST_REFRESH: u32 = 600;
/// What a server can set `SOL_MAX_RT` and `INF_MAX_RT` to, in seconds (RFC 8415 §21.24).
const WAITS: std::ops::RangeInclusive<u32> = 60..=86400;
/// The suboption of a time server's address (RFC 5908 §4.1).
const NTP_ADDRESS: u16 = 1;
/// The server is to update the client's AAAA record (RFC 4704 §4.1).
const FQDN_SERVER_UPDATES: u8 = 1;

/// What the client is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Address of its link.
    pub hardware: [u8; HARDWARE_BYTES],
    /// Who it says it is; `None`: the DUID-LL of its link.
    pub duid: Option<Duid>,
    /// Its name, which it tells.
    pub hostname: Option<String>,
    /// It asks for settings only, and for no address: the router says O, but not M.
    pub stateless: bool,
    /// The first message waits for a random time up to this. RFC 8415 §18.2.1 asks for a second before SOLICIT (SHOULD), §18.2.3
    /// and §18.2.6 before CONFIRM and INFORMATION-REQUEST (MUST): machines that get their power back together must not ask
    /// together. So does the INFORMATION-REQUEST that refreshes settings (§21.23, MUST), and no other message.
    pub first_delay: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            hardware: [0; HARDWARE_BYTES],
            duid: None,
            hostname: None,
            stateless: false,
            first_delay: FIRST_DELAY,
        }
    }
}

impl Settings {
    /// Who the client says it is.
    #[must_use]
    pub fn identifier(&self) -> Duid {
        self.duid.clone().unwrap_or_else(|| Duid::of_hardware(&self.hardware))
    }
}

/// Type of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of RFC 8415 §7.3")]
pub enum Kind {
    Solicit = 1,
    Advertise = 2,
    Request = 3,
    Confirm = 4,
    Renew = 5,
    Rebind = 6,
    Reply = 7,
    Release = 8,
    Decline = 9,
    InformationRequest = 11,
}

impl Kind {
    /// The client asks for settings.
    fn asks(self) -> bool {
        self.tells_name() || self == Self::InformationRequest
    }

    /// The client tells its name (RFC 4704 §5).
    fn tells_name(self) -> bool {
        matches!(self, Self::Solicit | Self::Request | Self::Renew | Self::Rebind)
    }
}

/// What a server says about a request (RFC 8415 §21.13).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of RFC 8415 §21.13")]
pub enum Status {
    #[default]
    Success,
    UnspecFail,
    NoAddrsAvail,
    NoBinding,
    NotOnLink,
    UseMulticast,
    Other(u16),
}

impl Status {
    fn read(value: &[u8]) -> Result<Self, Error> {
        let (code, _text) = head::<2>(options::STATUS_CODE, value)?;
        Ok(match u16::from_be_bytes(*code) {
            0 => Self::Success,
            1 => Self::UnspecFail,
            2 => Self::NoAddrsAvail,
            3 => Self::NoBinding,
            4 => Self::NotOnLink,
            5 => Self::UseMulticast,
            other => Self::Other(other),
        })
    }
}

/// What a client wants to say.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Say<'a> {
    pub(crate) kind: Kind,
    /// The one server that is meant.
    pub(crate) server: Option<&'a Duid>,
    pub(crate) addresses: &'a [Ipv6Addr],
}

/// The bytes of a message. `elapsed` hundredths of a second have gone by since the client began to ask.
pub(crate) fn encode(say: Say, xid: u32, elapsed: u16, settings: &Settings) -> Vec<u8> {
    let [_, xid @ ..] = xid.to_be_bytes();
    let mut out = vec![say.kind as u8];
    out.extend(xid);
    put(&mut out, options::CLIENT_ID, settings.identifier().bytes());
    if let Some(server) = say.server {
        put(&mut out, options::SERVER_ID, server.bytes());
    }
    put(&mut out, options::ELAPSED_TIME, &elapsed.to_be_bytes());
    if say.kind != Kind::InformationRequest {
        put(&mut out, options::IA_NA, &association(settings, say.addresses));
    }
    let name = settings.hostname.as_deref().filter(|_| say.kind.tells_name()).and_then(options::labels);
    if say.kind.asks() {
        put(&mut out, options::OPTION_REQUEST, &wanted(say.kind, name.is_some()));
    }
    if let Some(name) = name {
        put(&mut out, options::CLIENT_FQDN, &[&[FQDN_SERVER_UPDATES][..], &name].concat());
    }
    if say.kind == Kind::Solicit {
        put(&mut out, options::RAPID_COMMIT, &[]);
    }
    out
}

/// The client's association. Its times are the server's choice.
fn association(settings: &Settings, addresses: &[Ipv6Addr]) -> Vec<u8> {
    let mut out = duid::iaid(&settings.hardware).to_be_bytes().to_vec();
    out.extend([0; 8]);
    for address in addresses {
        put(&mut out, options::IA_ADDRESS, &[&address.octets()[..], &[0; 8]].concat());
    }
    out
}

/// What the client asks for.
fn wanted(kind: Kind, has_name: bool) -> Vec<u8> {
    let mut codes = vec![options::DNS_SERVERS, options::DOMAIN_LIST, options::NTP_SERVER];
    if kind == Kind::InformationRequest {
        codes.extend([options::REFRESH_TIME, options::INF_MAX_RT]);
    } else {
        codes.push(options::SOL_MAX_RT);
    }
    if has_name {
        codes.push(options::CLIENT_FQDN);
    }
    codes.iter().flat_map(|code| code.to_be_bytes()).collect()
}

/// The message with which a client that has stopped gives addresses back to their server.
#[must_use]
pub fn release(settings: &Settings, addresses: &[Ipv6Addr], server: &Duid, xid: u32) -> Vec<u8> {
    let addresses = addresses.get(..MOST_ADDRESSES).unwrap_or(addresses);
    encode(Say { kind: Kind::Release, server: Some(server), addresses }, xid, 0, settings)
}

/// Settings of the network.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Information {
    /// Name servers; a link-local one is of the link.
    pub dns_servers: Vec<Ipv6Addr>,
    /// Where names without a dot are looked for.
    pub domains: Vec<String>,
    /// Servers of NTP; a link-local one is of the link.
    pub time_servers: Vec<Ipv6Addr>,
    /// After so long the client asks again; [`crate::FOREVER`]: never.
    pub refresh: Duration,
}

/// An address of an answer, as it is there. Times are in seconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offered {
    /// Any bits: [`crate::Lease`] takes only what a machine can use.
    pub address: Ipv6Addr,
    /// Preferred lifetime.
    pub preferred: u32,
    /// Valid lifetime; 0 takes the address back.
    pub valid: u32,
}

/// The association of an answer. Times are in seconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Association {
    /// T1.
    pub t1: u32,
    /// T2.
    pub t2: u32,
    /// What the server says about it.
    pub status: Status,
    /// The first [`MOST_ADDRESSES`] without an error of their own.
    pub addresses: Vec<Offered>,
}

/// An answer of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    /// ADVERTISE or REPLY.
    pub kind: Kind,
    /// Number of the exchange.
    pub xid: u32,
    /// Whom it is for.
    pub client: Duid,
    /// Who says it.
    pub server: Duid,
    /// Of all servers the one with the greatest is asked.
    pub preference: u8,
    /// The server's REPLY is one to SOLICIT.
    pub is_rapid: bool,
    /// The client's association, when it is there and its times are in order.
    pub association: Option<Association>,
    /// Settings.
    pub information: Information,
    /// `SOL_MAX_RT`, if it is one.
    pub solicit_longest: Option<Duration>,
    /// `INF_MAX_RT`, if it is one.
    pub inform_longest: Option<Duration>,
    /// Of the whole message.
    own_status: Status,
}

impl Heard {
    /// What the server says: about the whole, or else about the association.
    #[must_use]
    pub fn status(&self) -> Status {
        match (self.own_status, &self.association) {
            (Status::Success, Some(association)) => association.status,
            (status, _) => status,
        }
    }
}

/// What is known of a message while its options are read.
#[derive(Default)]
struct Parts {
    client: Option<Duid>,
    server: Option<Duid>,
    status: Option<Status>,
    preference: Option<u8>,
    is_rapid: Option<()>,
    association: Option<Association>,
    dns_servers: Option<Vec<Ipv6Addr>>,
    domains: Option<Vec<String>>,
    time_servers: Vec<Ipv6Addr>,
    refresh: Option<u32>,
    solicit_longest: Option<Duration>,
    inform_longest: Option<Duration>,
}

/// Reads an answer. Associations with another number than `iaid` are skipped.
///
/// # Errors
/// It is no answer, or its structure is broken.
pub fn decode(packet: &[u8], iaid: u32) -> Result<Heard, Error> {
    let ([kind, a, b, c], rest) = packet.split_first_chunk().ok_or(Error::Short)?;
    let kind = match kind {
        2 => Kind::Advertise,
        7 => Kind::Reply,
        other => return Err(Error::Kind(*other)),
    };
    let mut parts = Parts::default();
    for option in Options::of(rest) {
        let (option, value) = option?;
        parts.read(option, value, iaid)?;
    }
    let refresh = parts.refresh.unwrap_or(REFRESH).max(LEAST_REFRESH);
    Ok(Heard {
        kind,
        xid: u32::from_be_bytes([0, *a, *b, *c]),
        client: parts.client.ok_or(Error::Missing { option: options::CLIENT_ID })?,
        server: parts.server.ok_or(Error::Missing { option: options::SERVER_ID })?,
        preference: parts.preference.unwrap_or(0),
        is_rapid: parts.is_rapid.is_some(),
        association: parts.association,
        information: Information {
            dns_servers: parts.dns_servers.unwrap_or_default(),
            domains: parts.domains.unwrap_or_default(),
            time_servers: parts.time_servers,
            refresh: Duration::from_secs(refresh.into()),
        },
        solicit_longest: parts.solicit_longest,
        inform_longest: parts.inform_longest,
        own_status: parts.status.unwrap_or_default(),
    })
}

impl Parts {
    fn read(&mut self, option: u16, value: &[u8], iaid: u32) -> Result<(), Error> {
        let identifier = || Duid::new(value).map_err(|_| Error::Length { option, bytes: value.len() });
        match option {
            options::CLIENT_ID => once(option, &mut self.client, identifier()?),
            options::SERVER_ID => once(option, &mut self.server, identifier()?),
            options::STATUS_CODE => once(option, &mut self.status, Status::read(value)?),
            options::PREFERENCE => {
                let [preference] = exact(option, value)?;
                once(option, &mut self.preference, preference)
            }
            options::RAPID_COMMIT => {
                let [] = exact(option, value)?;
                once(option, &mut self.is_rapid, ())
            }
            options::IA_NA => self.read_association(value, iaid),
            _ => {
                self.read_setting(option, value);
                Ok(())
            }
        }
    }

    /// Of several associations with the client's number the first one in order counts.
    fn read_association(&mut self, value: &[u8], iaid: u32) -> Result<(), Error> {
        let (number, rest) = head::<4>(options::IA_NA, value)?;
        let (t1, rest) = head::<4>(options::IA_NA, rest)?;
        let (t2, rest) = head::<4>(options::IA_NA, rest)?;
        if u32::from_be_bytes(*number) != iaid {
            return Ok(());
        }
        let (t1, t2) = (u32::from_be_bytes(*t1), u32::from_be_bytes(*t2));
        let association = read_addresses(rest, t1, t2)?;
        // Times out of order: as if the association was not there (RFC 8415 §21.4).
        if self.association.is_none() && (t1 <= t2 || t2 == 0) {
            self.association = Some(association);
        }
        Ok(())
    }

    /// The first of each that is well-formed counts; time servers may have an option each.
    fn read_setting(&mut self, option: u16, value: &[u8]) {
        let number = || exact(option, value).ok().map(u32::from_be_bytes);
        let wait =
            || number().filter(|wait| WAITS.contains(wait)).map(|wait| Duration::from_secs(wait.into()));
        match option {
            options::DNS_SERVERS if self.dns_servers.is_none() => self.dns_servers = read_servers(value),
            options::DOMAIN_LIST if self.domains.is_none() => {
                self.domains = options::names(value, MOST_DOMAINS);
            }
            options::NTP_SERVER => {
                let suboptions: Vec<_> = Options::of(value).take(MOST_TIME_SERVERS * 2).flatten().collect();
                for (_, value) in suboptions.iter().filter(|(suboption, _)| *suboption == NTP_ADDRESS) {
                    let address = exact(option, value).ok().map(Ipv6Addr::from_octets);
                    if let Some(address) = address.filter(is_server)
                        && self.time_servers.len() < MOST_TIME_SERVERS
                        && !self.time_servers.contains(&address)
                    {
                        self.time_servers.push(address);
                    }
                }
            }
            options::REFRESH_TIME if self.refresh.is_none() => self.refresh = number(),
            options::SOL_MAX_RT if self.solicit_longest.is_none() => self.solicit_longest = wait(),
            options::INF_MAX_RT if self.inform_longest.is_none() => self.inform_longest = wait(),
            _ => {}
        }
    }
}

fn once<T>(option: u16, slot: &mut Option<T>, value: T) -> Result<(), Error> {
    if slot.replace(value).is_some() { Err(Error::Twice { option }) } else { Ok(()) }
}

fn read_addresses(bytes: &[u8], t1: u32, t2: u32) -> Result<Association, Error> {
    let mut association = Association { t1, t2, ..Association::default() };
    let mut status = None;
    for option in Options::of(bytes) {
        match option? {
            (option @ options::STATUS_CODE, value) => once(option, &mut status, Status::read(value)?)?,
            (options::IA_ADDRESS, value) => {
                let offered = read_address(value)?;
                if association.addresses.len() < MOST_ADDRESSES {
                    association.addresses.extend(offered);
                }
            }
            _ => {}
        }
    }
    association.status = status.unwrap_or_default();
    Ok(association)
}

/// `None`: the server says that the address failed.
fn read_address(value: &[u8]) -> Result<Option<Offered>, Error> {
    let (address, rest) = head::<16>(options::IA_ADDRESS, value)?;
    let (preferred, rest) = head::<4>(options::IA_ADDRESS, rest)?;
    let (valid, rest) = head::<4>(options::IA_ADDRESS, rest)?;
    let mut is_granted = true;
    for option in Options::of(rest) {
        if let (options::STATUS_CODE, value) = option? {
            is_granted &= Status::read(value)? == Status::Success;
        }
    }
    Ok(is_granted.then(|| Offered {
        address: Ipv6Addr::from_octets(*address),
        preferred: u32::from_be_bytes(*preferred),
        valid: u32::from_be_bytes(*valid),
    }))
}

fn read_servers(value: &[u8]) -> Option<Vec<Ipv6Addr>> {
    let (addresses, rest) = value.as_chunks::<16>();
    if addresses.is_empty() || !rest.is_empty() {
        return None;
    }
    let addresses = addresses.iter().map(|octets| Ipv6Addr::from_octets(*octets));
    Some(addresses.filter(is_server).take(MOST_DNS_SERVERS).collect())
}

/// Whether it can be the address of a server; one of the link can.
pub(crate) fn is_server(address: &Ipv6Addr) -> bool {
    let is_mapped = address.to_ipv4_mapped().is_some();
    !(address.is_unspecified() || address.is_loopback() || address.is_multicast() || is_mapped)
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
