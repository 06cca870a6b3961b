//! The network of a cluster: a bridge on which this machine has the first address, and a namespace for each node.
//!
//! Owns: names of devices, which a kernel bounds to 15 bytes.
//! Does not: lead to the outside; [`crate::nat`] does.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::program::run;

/// Where iproute2 keeps network namespaces that have a name.
const NAMESPACES: &str = "/run/netns";
/// The card of a node, by the name that configurations expect.
const CARD: &str = "eth0";

/// An IPv4 network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    base: Ipv4Addr,
    prefix: u8,
}

impl FromStr for Network {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || {
            Error::Spec(format!(
                "{text:?} is no network for nodes: write an IPv4 network of 8 to 29 bits, 10.5.0.0/24"
            ))
        };
        let (base, prefix) = text.split_once('/').ok_or_else(wrong)?;
        let (base, prefix): (Ipv4Addr, u8) =
            (base.parse().map_err(|_| wrong())?, prefix.parse().map_err(|_| wrong())?);
        if !(8..=29).contains(&prefix) {
            return Err(wrong());
        }
        let mask = u32::MAX << (32 - u32::from(prefix));
        Ok(Self { base: Ipv4Addr::from(u32::from(base) & mask), prefix })
    }
}

impl Network {
    /// As text, `10.5.0.0/24`.
    #[must_use]
    pub fn cidr(&self) -> String {
        format!("{}/{}", self.base, self.prefix)
    }

    fn address(&self, number: u32) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.base).wrapping_add(number))
    }

    /// This machine's address.
    #[must_use]
    pub fn host(&self) -> Ipv4Addr {
        self.address(1)
    }

    /// The address of a node by its number, from 0; `None` behind the last one.
    #[must_use]
    pub fn node(&self, number: u32) -> Option<Ipv4Addr> {
        let address = self.address(number.checked_add(2)?);
        self.has(address).then_some(address)
    }

    /// The last address, for what several nodes share; `None` where so many nodes leave it to none of them.
    #[must_use]
    pub fn shared(&self, nodes: u32) -> Option<Ipv4Addr> {
        let last = (1_u32 << (32 - u32::from(self.prefix))) - 2;
        let address = self.address(last);
        let is_free = nodes.checked_add(2).is_some_and(|end| end <= last);
        (is_free && self.has(address)).then_some(address)
    }

    /// Whether a node can have this address.
    #[must_use]
    pub fn has(&self, address: Ipv4Addr) -> bool {
        let last = (1_u32 << (32 - u32::from(self.prefix))) - 1;
        let number = u32::from(address).wrapping_sub(u32::from(self.base));
        (2..last).contains(&number)
    }

    pub(crate) fn make_bridge(&self, cluster: &str) -> Result<(), Error> {
        let bridge = bridge(cluster);
        run("ip", &["link", "add", &bridge, "type", "bridge"])?;
        run("ip", &["address", "add", &format!("{}/{}", self.host(), self.prefix), "dev", &bridge])?;
        run("ip", &["link", "set", &bridge, "up"]).map(drop)
    }

    pub(crate) fn remove_bridge(&self, cluster: &str) -> Result<(), Error> {
        remove_device(&bridge(cluster))
    }

    /// Makes a node's namespace and its card; returns the namespace's file.
    pub(crate) fn make_namespace(
        &self,
        cluster: &str,
        container: &str,
        address: Ipv4Addr,
    ) -> Result<PathBuf, Error> {
        let (bridge, here) = (bridge(cluster), device("v", container));
        run("ip", &["netns", "add", container])?;
        run("ip", &["link", "add", &here, "type", "veth", "peer", "name", CARD, "netns", container])?;
        run("ip", &["link", "set", &here, "master", &bridge, "up"])?;
        let inside = |words: &[&str]| run("ip", &[&["-n", container], words].concat());
        inside(&["link", "set", "lo", "up"])?;
        inside(&["address", "add", &format!("{address}/{}", self.prefix), "dev", CARD])?;
        inside(&["link", "set", CARD, "up"])?;
        inside(&["route", "add", "default", "via", &self.host().to_string()])?;
        Ok(Path::new(NAMESPACES).join(container))
    }

    pub(crate) fn remove_namespace(&self, container: &str) -> Result<(), Error> {
        remove_device(&device("v", container))?;
        if !Path::new(NAMESPACES).join(container).exists() {
            return Ok(());
        }
        run("ip", &["netns", "delete", container]).map(drop)
    }
}

fn remove_device(name: &str) -> Result<(), Error> {
    match run("ip", &["link", "delete", name]) {
        Err(Error::Program { said, .. }) if said.contains("Cannot find device") => Ok(()),
        result => result.map(drop),
    }
}

/// The bridge of a cluster.
pub(crate) fn bridge(cluster: &str) -> String {
    device("b", cluster)
}

/// A device's name from a longer one: FNV-1a of it, 32 bits.
fn device(kind: &str, name: &str) -> String {
    let hash =
        name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("bl{kind}{hash:08x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_address_is_shared_where_no_node_has_it() {
        let shared =
            |cidr: &str, nodes| cidr.parse::<Network>().unwrap().shared(nodes).map(|one| one.to_string());
        assert_eq!(shared("10.5.0.0/24", 5).as_deref(), Some("10.5.0.254"));
        // The machine has .1, nodes from .2 on.
        assert_eq!(shared("10.5.0.8/29", 4).as_deref(), Some("10.5.0.14"));
        assert_eq!(shared("10.5.0.8/29", 5), None);
        let network: Network = "10.5.0.8/29".parse().unwrap();
        assert_eq!(network.node(4), network.shared(4), "the fifth node would have it");
    }
}
