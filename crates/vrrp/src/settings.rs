//! What the caller wants of a virtual router, and what is known of it.
//!
//! Owns: which settings are refused before anything starts.

use std::net::IpAddr;
use std::num::NonZeroU8;

use crate::addresses::{Addresses, AddressesError};
use crate::router::{self, State};

/// Addresses of one virtual router here. Each is a call to the kernel four times a second.
const MOST_ADDRESSES: usize = 16;

/// A virtual router of one link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The link's name.
    pub link: String,
    /// The number that all routers of the link have for it; each family has numbers of its own.
    pub vrid: NonZeroU8,
    /// The virtual addresses, 1 to 16 of one family. All routers must name the same. The standard wants a link-local one
    /// first in IPv6 (RFC 9568 §5.2.9); keepalived and this crate take any.
    pub addresses: Vec<IpAddr>,
    /// Priority, interval and modes.
    pub router: router::Settings,
}

/// Why settings are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// Not a list for one virtual router.
    #[error(transparent)]
    Addresses(#[from] AddressesError),
    /// More than there may be here.
    #[error("{count} virtual addresses, at most {MOST_ADDRESSES} are allowed")]
    TooMany {
        /// How many.
        count: usize,
    },
    /// A virtual address that no machine can have for itself.
    #[error("{address} cannot be a virtual address")]
    Address {
        /// Which.
        address: IpAddr,
    },
}

impl Settings {
    /// The virtual addresses, if they can be some.
    pub(crate) fn checked_addresses(&self) -> Result<Addresses, SettingsError> {
        let addresses = Addresses::new(self.addresses.clone())?;
        let count = self.addresses.len();
        if count > MOST_ADDRESSES {
            return Err(SettingsError::TooMany { count });
        }
        let unfit =
            |it: &&IpAddr| it.is_multicast() || it.is_unspecified() || it.is_loopback() || is_broadcast(it);
        match self.addresses.iter().find(unfit) {
            Some(address) => Err(SettingsError::Address { address: *address }),
            None => Ok(addresses),
        }
    }
}

fn is_broadcast(address: &IpAddr) -> bool {
    matches!(address, IpAddr::V4(address) if address.is_broadcast())
}

/// What is known of a virtual router.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Of this machine's router.
    pub state: State,
    /// The primary address of whoever has the virtual ones, as far as it is known.
    pub active: Option<IpAddr>,
    /// Whether what comes to the addresses is for this machine. Where it is false although [`Self::state`] is active, the
    /// caller has its firewall refuse it (Accept_Mode, RFC 9568 §6.1).
    pub accepts: bool,
    /// Packets that were broken, or came from beyond the link.
    pub malformed: u64,
    /// Packets of other virtual routers and other versions.
    pub ignored: u64,
}

impl Status {
    pub(crate) fn new() -> Self {
        Self { state: State::Initialize, active: None, accepts: false, malformed: 0, ignored: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(addresses: &[&str]) -> Result<(), SettingsError> {
        let addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
        let vrid = NonZeroU8::MIN;
        let router = router::Settings::default();
        Settings { link: "eth0".into(), vrid, addresses, router }.checked_addresses().map(drop)
    }

    #[test]
    fn only_addresses_that_a_machine_can_have_are_taken() {
        assert_eq!(check(&["10.9.0.100", "192.0.2.1"]), Ok(()));
        assert_eq!(check(&["fd00:9::100"]), Ok(()));
        assert_eq!(check(&[]), Err(AddressesError::None.into()));
        assert_eq!(check(&["10.9.0.100"; 17]), Err(SettingsError::TooMany { count: 17 }));
        for text in ["0.0.0.0", "127.0.0.1", "224.0.0.18", "255.255.255.255", "::", "::1", "ff02::12"] {
            assert_eq!(check(&[text]), Err(SettingsError::Address { address: text.parse().unwrap() }));
        }
    }
}
