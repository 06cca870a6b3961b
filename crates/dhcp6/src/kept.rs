//! A lease in the form that is kept on a disk: one line of text, with times of the wall clock.
//!
//! ```text
//! at=1700000000 server=00030001525400aabbcc address=2001:db8::5,1700003600,1700007200 dns=2001:db8::1 domain=example.org
//! ```
//!
//! Owns: the ends of addresses in seconds since 1970. Settings are kept beside them: a REPLY to CONFIRM has none.
//! Does not: read or write a disk.
//! Fails by: a [`TextError`] for text that is no lease, and no lease when the clock was set back since.
//! Source: RFC 8415 §18.2.3 (what a client does with it after a start), §4.2 (a client may keep its leases).

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;
use std::time::Duration;

use crate::duid::Duid;
use crate::lease::{Address, FOREVER, Lease, fractions, is_host, shortest_preferred};
use crate::message::{MOST_ADDRESSES, MOST_DNS_SERVERS, MOST_DOMAINS, MOST_TIME_SERVERS, is_server};
use crate::options::plain;

/// Longest text in bytes: all lists at their limits have less.
const MOST_BYTES: usize = 8 << 10;
/// An end that does not come.
const NEVER: &str = "never";

/// An address and its ends, in seconds since 1970; `None`: never.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptAddress {
    /// The address.
    pub address: Ipv6Addr,
    /// Up to then new connections may use it.
    pub preferred_until: Option<u64>,
    /// Up to then it may be used at all.
    pub valid_until: Option<u64>,
}

/// A lease that was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// When it was written, in seconds since 1970.
    pub at: u64,
    /// Who granted it.
    pub server_duid: Duid,
    /// At least one.
    pub addresses: Vec<KeptAddress>,
    /// Name servers.
    pub dns_servers: Vec<Ipv6Addr>,
    /// Search list.
    pub domains: Vec<String>,
    /// Servers of NTP.
    pub time_servers: Vec<Ipv6Addr>,
}

/// The field of a text that is missing or malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextError(&'static str);

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kept lease: {} is missing or malformed", self.0)
    }
}

impl std::error::Error for TextError {}

impl Kept {
    /// What is kept of a lease. `wall` is the time since 1970 at the moment `now`; ends are rounded down.
    #[must_use]
    pub fn of(lease: &Lease, now: Duration, wall: Duration) -> Self {
        let lease = lease.at(now);
        let until = |time: Duration| (time != FOREVER).then(|| wall.saturating_add(time).as_secs());
        let addresses = lease.addresses.iter().map(|address| KeptAddress {
            address: address.address,
            preferred_until: until(address.preferred),
            valid_until: until(address.valid),
        });
        Self {
            at: wall.as_secs(),
            addresses: addresses.collect(),
            server_duid: lease.server_duid,
            dns_servers: lease.dns_servers,
            domains: lease.domains,
            time_servers: lease.time_servers,
        }
    }

    /// What is left of the lease; `None` when it is over, or the clock says that it was written later than now: how much is left
    /// would be a guess. T1 and T2 are made of what is left of the preferred lifetimes.
    #[must_use]
    pub fn lease(&self, now: Duration, wall: Duration) -> Option<Lease> {
        if wall.as_secs() < self.at {
            return None;
        }
        let left = |until: Option<u64>| match until {
            Some(until) => {
                Duration::from_secs(until).saturating_sub(wall).min(FOREVER - Duration::from_secs(1))
            }
            None => FOREVER,
        };
        let addresses = self.addresses.iter().map(|kept| Address {
            address: kept.address,
            preferred: left(kept.preferred_until).min(left(kept.valid_until)),
            valid: left(kept.valid_until),
        });
        let addresses: Vec<Address> = addresses.filter(|address| !address.valid.is_zero()).collect();
        let valid = addresses.iter().map(|address| address.valid).min()?;
        let (t1, t2) = fractions(shortest_preferred(&addresses).unwrap_or(valid));
        Some(Lease {
            addresses,
            t1,
            t2,
            server_duid: self.server_duid.clone(),
            dns_servers: self.dns_servers.clone(),
            domains: self.domains.clone(),
            time_servers: self.time_servers.clone(),
            obtained_at: now,
        })
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = |until: Option<u64>| until.map_or_else(|| NEVER.to_owned(), |until| until.to_string());
        write!(f, "at={} server={}", self.at, self.server_duid)?;
        for kept in &self.addresses {
            let (preferred, valid) = (end(kept.preferred_until), end(kept.valid_until));
            write!(f, " address={},{preferred},{valid}", kept.address)?;
        }
        self.dns_servers.iter().try_for_each(|server| write!(f, " dns={server}"))?;
        self.domains.iter().try_for_each(|domain| write!(f, " domain={domain}"))?;
        self.time_servers.iter().try_for_each(|server| write!(f, " ntp={server}"))
    }
}

impl FromStr for Kept {
    type Err = TextError;

    /// What lies behind the limit of a list is left out.
    fn from_str(text: &str) -> Result<Self, TextError> {
        if text.len() > MOST_BYTES {
            return Err(TextError("length"));
        }
        let (mut at, mut server) = (None, None);
        let (mut addresses, mut domains) = (Vec::new(), Vec::new());
        let (mut dns_servers, mut time_servers) = (Vec::new(), Vec::new());
        for field in text.split_ascii_whitespace() {
            match field.split_once('=').ok_or(TextError("field"))? {
                ("at", value) => at = value.parse().ok(),
                ("server", value) => server = value.parse().ok(),
                ("address", value) => addresses.push(read_address(value).ok_or(TextError("address"))?),
                ("dns", value) => dns_servers.push(read_server(value).ok_or(TextError("dns"))?),
                ("domain", value) => domains.push(plain(value).ok_or(TextError("domain"))?),
                ("ntp", value) => time_servers.push(read_server(value).ok_or(TextError("ntp"))?),
                _ => return Err(TextError("field")),
            }
        }
        addresses.truncate(MOST_ADDRESSES);
        dns_servers.truncate(MOST_DNS_SERVERS);
        domains.truncate(MOST_DOMAINS);
        time_servers.truncate(MOST_TIME_SERVERS);
        if addresses.is_empty() {
            return Err(TextError("address"));
        }
        let server_duid = server.ok_or(TextError("server"))?;
        let at = at.ok_or(TextError("at"))?;
        Ok(Self { at, server_duid, addresses, dns_servers, domains, time_servers })
    }
}

fn read_address(text: &str) -> Option<KeptAddress> {
    let (address, ends) = text.split_once(',')?;
    let (preferred, valid) = ends.split_once(',')?;
    let end = |text: &str| if text == NEVER { Some(None) } else { text.parse().ok().map(Some) };
    let address = address.parse().ok().filter(is_host)?;
    Some(KeptAddress { address, preferred_until: end(preferred)?, valid_until: end(valid)? })
}

fn read_server(text: &str) -> Option<Ipv6Addr> {
    text.parse().ok().filter(is_server)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn lease() -> Lease {
        let address = |last, preferred, valid| Address {
            address: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last),
            preferred,
            valid,
        };
        Lease {
            addresses: vec![address(5, seconds(1000), seconds(2000)), address(6, seconds(500), FOREVER)],
            t1: seconds(250),
            t2: seconds(400),
            server_duid: Duid::of_hardware(&[0x52, 0x54, 0, 0xaa, 0xbb, 0xcc]),
            dns_servers: vec!["fe80::1".parse().unwrap()],
            domains: vec!["example.org".into()],
            time_servers: vec!["2001:db8::2".parse().unwrap()],
            obtained_at: seconds(100),
        }
    }

    #[test]
    fn a_lease_comes_back_with_what_is_left_of_it() {
        let kept = Kept::of(&lease(), seconds(200), seconds(1_700_000_000));
        assert_eq!(
            kept.to_string(),
            "at=1700000000 server=00030001525400aabbcc address=2001:db8::5,1700000900,1700001900 \
             address=2001:db8::6,1700000400,never dns=fe80::1 domain=example.org ntp=2001:db8::2"
        );
        assert_eq!(kept.to_string().parse(), Ok(kept.clone()));
        let left = kept.lease(seconds(7), seconds(1_700_000_300)).unwrap();
        assert_eq!((left.addresses[0].preferred, left.addresses[0].valid), (seconds(600), seconds(1600)));
        assert_eq!((left.addresses[1].preferred, left.addresses[1].valid), (seconds(100), FOREVER));
        assert_eq!((left.t1, left.t2, left.obtained_at), (seconds(50), seconds(80), seconds(7)));
        assert_eq!((left.dns_servers, left.domains), (lease().dns_servers, lease().domains));
        let late = kept.lease(seconds(7), seconds(1_800_000_000)).unwrap();
        assert_eq!(late.addresses.len(), 1, "the other one is over");
        assert_eq!(late.t1, FOREVER, "an address that is not preferred any more");
    }

    #[test]
    fn a_lease_that_is_over_or_of_a_later_time_does_not_count() {
        let short = Lease { addresses: lease().addresses[..1].to_vec(), ..lease() };
        let kept = Kept::of(&short, seconds(100), seconds(1_700_000_000));
        assert!(kept.lease(Duration::ZERO, seconds(1_700_001_999)).is_some());
        assert!(kept.lease(Duration::ZERO, seconds(1_700_002_000)).is_none());
        assert!(kept.lease(Duration::ZERO, seconds(1_699_999_999)).is_none());
    }

    #[test]
    fn malformed_text_is_refused() {
        let good = Kept::of(&lease(), seconds(100), seconds(1_700_000_000)).to_string();
        for (from, to, field) in [
            ("at=1700000000", "", "at"),
            ("server=0003", "server=zz", "server"),
            ("2001:db8::5,", "fe80::5,", "address"),
            ("never", "later", "address"),
            ("dns=fe80::1", "dns=ff02::1", "dns"),
            ("domain=example.org", "domain=a/b", "domain"),
            ("ntp=", "other=", "field"),
            ("ntp=", "x", "field"),
        ] {
            assert_eq!(good.replace(from, to).parse::<Kept>(), Err(TextError(field)), "{from} to {to}");
        }
        assert_eq!("".parse::<Kept>(), Err(TextError("address")));
        assert_eq!(" ".repeat(9000).parse::<Kept>(), Err(TextError("length")));
        let many = good.clone() + &" dns=::2".repeat(60);
        assert_eq!(many.parse::<Kept>().unwrap().dns_servers.len(), MOST_DNS_SERVERS);
    }

    /// Text of any bytes is refused or gives a lease whose times are in order.
    #[test]
    fn mutated_text_makes_no_lease_that_cannot_be() {
        let mut random = fastrand::Rng::with_seed(3);
        let good = Kept::of(&lease(), seconds(100), seconds(1_700_000_000)).to_string();
        for _ in 0..20_000 {
            let mut text = good.clone().into_bytes();
            for _ in 0..=random.u64(..3) {
                let index = usize::try_from(random.u64(..)).unwrap() % text.len();
                text[index] = u8::try_from(random.u64(..128)).unwrap();
            }
            let Ok(kept) = String::from_utf8(text).unwrap().parse::<Kept>() else { continue };
            if let Some(lease) = kept.lease(seconds(5), seconds(1_700_000_100)) {
                assert!(lease.addresses.iter().all(|it| it.preferred <= it.valid && is_host(&it.address)));
                assert!(lease.t1 <= lease.t2);
            }
        }
    }
}
