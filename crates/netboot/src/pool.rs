//! Addresses to hand out where nobody else does.
//!
//! Owns: who has which address until when. Does not: remember over a restart; a machine that asks for the address that it
//! had gets it again while it is free.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::str::FromStr;
use std::time::{Duration, Instant};

use crate::Error;
use crate::mac::Mac;

/// How long an address is lent.
pub const LEASE: Duration = Duration::from_secs(3600);
/// How long an address that was offered waits for its machine.
const OFFER: Duration = Duration::from_secs(60);

/// First and last address, and the network's prefix length: `192.168.7.100-192.168.7.199/24`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    first: u32,
    last: u32,
    prefix: u8,
}

impl Range {
    /// The network's mask.
    #[must_use]
    pub fn mask(&self) -> Ipv4Addr {
        Ipv4Addr::from(u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0))
    }

    /// Whether an address is of the range.
    #[must_use]
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        (self.first..=self.last).contains(&u32::from(address))
    }

    /// Makes sure that a server with this address can reach its machines.
    ///
    /// # Errors
    /// [`Error::Range`] names what does not fit.
    pub fn check(&self, server: Ipv4Addr) -> Result<(), Error> {
        let fail = |reason: String| Err(Error::Range { text: self.to_string(), reason });
        let mask = u32::from(self.mask());
        if u32::from(server) & mask != self.first & mask {
            return fail(format!("is of another network than the interface's address {server}"));
        }
        if self.contains(server) {
            return fail(format!("holds the interface's own address {server}"));
        }
        Ok(())
    }
}

impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}/{}", Ipv4Addr::from(self.first), Ipv4Addr::from(self.last), self.prefix)
    }
}

impl FromStr for Range {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let fail = |reason: &str| Error::Range { text: text.to_owned(), reason: reason.to_owned() };
        let form = || fail("is not of the form FIRST-LAST/PREFIX: 192.168.7.100-192.168.7.199/24");
        let (addresses, prefix) = text.split_once('/').ok_or_else(form)?;
        let (first, last) = addresses.split_once('-').ok_or_else(form)?;
        let address = |text: &str| text.trim().parse::<Ipv4Addr>().map(u32::from).map_err(|_| form());
        let range = Self {
            first: address(first)?,
            last: address(last)?,
            prefix: prefix.parse().map_err(|_| form())?,
        };
        if range.prefix == 0 || range.prefix > 30 {
            return Err(fail("has no prefix length from 1 to 30"));
        }
        if range.first > range.last {
            return Err(fail("ends before it begins"));
        }
        let mask = u32::from(range.mask());
        if range.first & mask != range.last & mask {
            return Err(fail("is in two networks"));
        }
        if range.first & !mask == 0 || range.last & !mask == !mask {
            return Err(fail("holds the network's own or its broadcast address"));
        }
        Ok(range)
    }
}

/// The addresses of a range and who has them.
#[derive(Debug)]
pub struct Pool {
    range: Range,
    lent: BTreeMap<u32, (Mac, Instant)>,
    /// Somebody else uses them.
    refused: BTreeMap<u32, Instant>,
}

impl Pool {
    /// All addresses are free.
    #[must_use]
    pub fn new(range: Range) -> Self {
        Self { range, lent: BTreeMap::new(), refused: BTreeMap::new() }
    }

    /// The range.
    #[must_use]
    pub fn range(&self) -> &Range {
        &self.range
    }

    /// An address for a machine, kept for it a while: the one that it has, the one that it wants, or a free one.
    pub fn offer(&mut self, mac: Mac, wanted: Option<Ipv4Addr>, now: Instant) -> Option<Ipv4Addr> {
        let held = self.lent.iter().find(|(_, (who, _))| *who == mac).map(|(address, _)| *address);
        let wanted = wanted.filter(|address| self.range.contains(*address)).map(u32::from);
        let free = |address: &u32| self.is_free(*address, mac, now);
        let chosen = held
            .filter(free)
            .or_else(|| wanted.filter(free))
            .or_else(|| (self.range.first..=self.range.last).find(free))?;
        let until = self.lent.get(&chosen).filter(|(who, _)| *who == mac).map_or(now, |(_, until)| *until);
        self.lent.retain(|address, (who, _)| *who != mac || *address == chosen);
        self.lent.insert(chosen, (mac, until.max(now + OFFER)));
        Some(Ipv4Addr::from(chosen))
    }

    /// Lends an address; `false` if this machine cannot have it.
    pub fn lend(&mut self, mac: Mac, address: Ipv4Addr, now: Instant) -> bool {
        let number = u32::from(address);
        if !self.range.contains(address) || !self.is_free(number, mac, now) {
            return false;
        }
        self.lent.retain(|_, (who, _)| *who != mac);
        self.lent.insert(number, (mac, now + LEASE));
        true
    }

    /// The machine gives its address back.
    pub fn release(&mut self, mac: Mac, address: Ipv4Addr) {
        if self.lent.get(&u32::from(address)).is_some_and(|(who, _)| *who == mac) {
            self.lent.remove(&u32::from(address));
        }
    }

    /// The machine found that somebody else uses the address: nobody gets it for a while. Of an address that is not its own it
    /// has nothing to say (RFC 2131 §4.3.3): that would take it from the machine that has it.
    pub fn decline(&mut self, mac: Mac, address: Ipv4Addr, now: Instant) {
        if self.lent.get(&u32::from(address)).is_some_and(|(who, _)| *who == mac) {
            self.release(mac, address);
            self.refused.insert(u32::from(address), now + LEASE);
        }
    }

    fn is_free(&self, address: u32, mac: Mac, now: Instant) -> bool {
        let lent = self.lent.get(&address).is_some_and(|(who, until)| *who != mac && *until > now);
        let refused = self.refused.get(&address).is_some_and(|until| *until > now);
        !lent && !refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mac(last: u8) -> Mac {
        Mac([2, 0, 0, 0, 0, last])
    }

    fn ip(last: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 0, 0, last)
    }

    #[test]
    fn addresses_are_lent_once_and_come_back() {
        let mut pool = Pool::new("10.0.0.10-10.0.0.12/24".parse().unwrap());
        let now = Instant::now();
        assert_eq!(pool.offer(mac(1), None, now), Some(ip(10)));
        // The same machine gets the same, another one what it wants if that is free.
        assert_eq!(pool.offer(mac(1), Some(ip(12)), now), Some(ip(10)));
        assert_eq!(pool.offer(mac(2), Some(ip(12)), now), Some(ip(12)));
        assert_eq!(pool.offer(mac(3), Some(ip(12)), now), Some(ip(11)));
        assert_eq!(pool.offer(mac(4), None, now), None);
        assert!(pool.lend(mac(1), ip(10), now) && !pool.lend(mac(4), ip(10), now));
        // An offer that nobody took is free again after a while, a lease after its time.
        let later = now + OFFER + Duration::from_secs(1);
        assert_eq!(pool.offer(mac(4), None, later), Some(ip(11)));
        assert!(!pool.lend(mac(4), ip(10), later));
        assert!(pool.lend(mac(4), ip(10), now + LEASE + Duration::from_secs(1)));
        pool.decline(mac(4), ip(10), now);
        assert_eq!(pool.offer(mac(5), Some(ip(10)), now), Some(ip(11)));
        assert!(!pool.lend(mac(5), ip(20), now));
    }

    #[test]
    fn a_machine_has_one_address() {
        let mut pool = Pool::new("10.0.0.10-10.0.0.11/24".parse().unwrap());
        let now = Instant::now();
        assert!(pool.lend(mac(1), ip(10), now) && pool.lend(mac(1), ip(11), now));
        assert!(pool.lend(mac(2), ip(10), now));
        pool.release(mac(1), ip(10));
        assert!(!pool.lend(mac(1), ip(10), now), "what another has is not given back");
    }

    #[test]
    fn an_address_is_declined_by_its_own_machine_alone() {
        let mut pool = Pool::new("10.0.0.10-10.0.0.11/24".parse().unwrap());
        let now = Instant::now();
        assert!(pool.lend(mac(1), ip(10), now));
        pool.decline(mac(2), ip(10), now);
        pool.decline(mac(2), ip(11), now);
        assert!(pool.lend(mac(1), ip(10), now), "its machine has it still");
        assert_eq!(pool.offer(mac(3), None, now), Some(ip(11)), "who never had it cannot block it");
        pool.decline(mac(1), ip(10), now);
        assert!(!pool.lend(mac(1), ip(10), now) && !pool.lend(mac(2), ip(10), now + LEASE / 2));
        assert!(pool.lend(mac(2), ip(10), now + LEASE));
    }

    #[test]
    fn ranges_that_cannot_be_are_refused() {
        for (text, why) in [
            ("10.0.0.1", "is not of the form"),
            ("10.0.0.9-10.0.0.1/24", "ends before it begins"),
            ("10.0.0.9-10.0.1.9/24", "is in two networks"),
            ("10.0.0.0-10.0.0.9/24", "holds the network's own"),
            ("10.0.0.9-10.0.0.255/24", "or its broadcast address"),
            ("10.0.0.9-10.0.0.10/31", "from 1 to 30"),
        ] {
            let error = text.parse::<Range>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
        let range: Range = "10.0.0.9-10.0.0.20/24".parse().unwrap();
        assert_eq!(
            (range.to_string().as_str(), range.mask()),
            ("10.0.0.9-10.0.0.20/24", Ipv4Addr::new(255, 255, 255, 0))
        );
        assert!(range.check(ip(1)).is_ok());
        assert!(range.check(ip(9)).unwrap_err().to_string().contains("own address"));
        assert!(range.check(Ipv4Addr::new(10, 1, 0, 1)).unwrap_err().to_string().contains("another network"));
    }
}
