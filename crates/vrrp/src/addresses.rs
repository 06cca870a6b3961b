//! The addresses of a virtual router: one or more, of one family.
//!
//! Owns: what a list can be. Source: RFC 9568 §5.2.5, §5.2.9.

use std::fmt;
use std::net::IpAddr;

/// What the count of a packet can say.
const MOST: usize = 255;

/// Why addresses are not those of a virtual router.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddressesError {
    /// The list is empty.
    #[error("no virtual address")]
    None,
    /// More than a packet can carry.
    #[error("{count} virtual addresses, at most {MOST} fit")]
    TooMany {
        /// How many.
        count: usize,
    },
    /// Each family is a virtual router of its own.
    #[error("virtual addresses of both families")]
    Mixed,
}

/// 1..=255 addresses of one family, in the order in which they were given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses(Vec<IpAddr>);

impl Addresses {
    /// The addresses, in this order.
    ///
    /// # Errors
    /// When there is none, there are too many, or they are of both families.
    pub fn new(addresses: Vec<IpAddr>) -> Result<Self, AddressesError> {
        let first = addresses.first().ok_or(AddressesError::None)?;
        if addresses.len() > MOST {
            return Err(AddressesError::TooMany { count: addresses.len() });
        }
        if addresses.iter().any(|address| address.is_ipv4() != first.is_ipv4()) {
            return Err(AddressesError::Mixed);
        }
        Ok(Self(addresses))
    }

    /// The family.
    #[must_use]
    pub fn is_ipv4(&self) -> bool {
        self.0.first().is_some_and(IpAddr::is_ipv4)
    }

    /// All of them.
    #[must_use]
    pub fn as_slice(&self) -> &[IpAddr] {
        &self.0
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u8 {
        u8::try_from(self.0.len()).unwrap_or(u8::MAX)
    }

    /// Whether both name the same addresses, in whatever order.
    #[must_use]
    pub fn has_same(&self, other: &Self) -> bool {
        let sorted = |addresses: &[IpAddr]| {
            let mut sorted = addresses.to_vec();
            sorted.sort_unstable();
            sorted
        };
        sorted(&self.0) == sorted(&other.0)
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, address) in self.0.iter().enumerate() {
            write!(f, "{}{address}", if index == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(texts: &[&str]) -> Result<Addresses, AddressesError> {
        Addresses::new(texts.iter().map(|text| text.parse().unwrap()).collect())
    }

    #[test]
    fn a_list_is_of_one_family_and_has_a_member() {
        assert_eq!(list(&[]), Err(AddressesError::None));
        assert_eq!(list(&["10.0.0.1", "fd00::1"]), Err(AddressesError::Mixed));
        assert_eq!(list(&["10.0.0.1"; 256]), Err(AddressesError::TooMany { count: 256 }));
        let both = list(&["fd00::1", "fd00::2"]).unwrap();
        assert!(!both.is_ipv4());
        assert_eq!(both.to_string(), "fd00::1, fd00::2");
    }

    #[test]
    fn the_order_is_no_difference() {
        let here = list(&["10.0.0.1", "10.0.0.2"]).unwrap();
        assert!(here.has_same(&list(&["10.0.0.2", "10.0.0.1"]).unwrap()));
        assert!(!here.has_same(&list(&["10.0.0.2"]).unwrap()));
        assert!(!here.has_same(&list(&["10.0.0.2", "10.0.0.2"]).unwrap()));
    }
}
