//! What happens, for whoever watches.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use crate::mac::Mac;

/// Hears what happens.
pub type Tell = Arc<dyn Fn(Event) + Send + Sync>;

/// Who fetches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    /// Where it is now.
    pub address: IpAddr,
    /// Its network card, once it has said so.
    pub mac: Option<Mac>,
}

impl From<IpAddr> for Machine {
    fn from(address: IpAddr) -> Self {
        Self { address, mac: None }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mac {
            Some(mac) => write!(f, "{mac}, {}", self.address),
            None => self.address.fmt(f),
        }
    }
}

/// Something that a person wants to see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A machine was told what to load.
    Offered {
        /// The machine.
        mac: Mac,
        /// `BIOS`, `UEFI x86-64`, `iPXE`, …
        kind: &'static str,
        /// The file or address.
        file: String,
    },
    /// A machine asks for something that the bundle has not.
    Unserved {
        /// The machine.
        mac: Mac,
        /// What it is.
        kind: &'static str,
        /// What is missing.
        reason: String,
    },
    /// A machine got an address.
    Leased {
        /// The machine.
        mac: Mac,
        /// Its address.
        address: Ipv4Addr,
    },
    /// All addresses are taken.
    Exhausted {
        /// The machine that got none.
        mac: Mac,
    },
    /// Another DHCP server gives addresses here, and we were told to as well.
    OtherServer {
        /// Its address.
        address: Ipv4Addr,
    },
    /// A machine was given what it starts, with or without a config.
    Starts {
        /// Which one.
        to: Machine,
        /// The script, or its UKI.
        what: &'static str,
        /// The name of its config, if it has one.
        config: Option<String>,
    },
    /// A file was fetched to its end.
    Sent {
        /// By whom.
        to: Machine,
        /// `TFTP` or `HTTP`.
        by: &'static str,
        /// What.
        name: String,
        /// Length.
        bytes: u64,
        /// From the request on.
        took: Duration,
    },
    /// A machine took its config.
    Config {
        /// By whom.
        to: Machine,
        /// The file's name in the directory.
        name: String,
        /// Why no node takes it.
        fault: Option<String>,
    },
    /// A transfer did not come to its end, or a request was none.
    Failed {
        /// Whose.
        to: Machine,
        /// `TFTP`, `HTTP`, `DHCP`.
        by: &'static str,
        /// What was asked for, if that is known.
        name: String,
        /// Why.
        reason: String,
    },
    /// A machine could not be heard, whoever it was; the others are.
    Unheard {
        /// `TFTP`, `HTTP`, `DHCP`.
        by: &'static str,
        /// Why.
        reason: String,
        /// Whether all machines wait, until this host has file descriptors or memory again.
        lasts: bool,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Offered { mac, kind, file } => write!(f, "{mac} ({kind}): loads {file}"),
            Self::Unserved { mac, kind, reason } => write!(f, "{mac} ({kind}): not served: {reason}"),
            Self::Leased { mac, address } => write!(f, "{mac}: has the address {address}"),
            Self::Exhausted { mac } => write!(f, "{mac}: gets no address: all of the range are taken"),
            Self::OtherServer { address } => write!(
                f,
                "another DHCP server, {address}, gives addresses on this network too: leave out --dhcp-range"
            ),
            Self::Sent { to, by, name, bytes, took } => {
                write!(f, "{to}: {name} by {by}, {} KiB in {:.1} s", bytes / 1024, took.as_secs_f64())
            }
            Self::Starts { to, what, config: Some(config) } => {
                write!(f, "{to}: starts {what} with the config {config}")
            }
            Self::Starts { to, what, config: None } => write!(f, "{to}: starts {what} without a config"),
            Self::Config { to, name, fault: None } => write!(f, "{to}: took the config {name}"),
            Self::Config { to, name, fault: Some(fault) } => {
                write!(f, "{to}: took the config {name}, which no node takes: {fault}")
            }
            Self::Failed { to, by, name, reason } => write!(f, "{to}: {name} by {by}: {reason}"),
            Self::Unheard { by, reason, lasts: false } => {
                write!(f, "{by}: one machine was not heard: {reason}")
            }
            Self::Unheard { by, reason, lasts: true } => write!(
                f,
                "{by}: machines wait, this host has no room for another one just now: {reason}; it goes on by itself, \
                 sooner with more (ulimit -n, memory)"
            ),
        }
    }
}

/// Addresses that are remembered: as many as machines start at a time, and more.
const KNOWN: usize = 4096;

/// Which machine is behind an address: they say so when they are lent one, and when they ask for what is theirs alone.
#[derive(Debug, Default)]
pub(crate) struct Known(BTreeMap<IpAddr, Mac>);

impl Known {
    /// Learns of an event, or names the machine in it.
    pub(crate) fn complete(&mut self, event: &mut Event) {
        match event {
            Event::Leased { mac, address } => {
                self.learn((*address).into(), *mac);
            }
            Event::Starts { to, .. }
            | Event::Sent { to, .. }
            | Event::Config { to, .. }
            | Event::Failed { to, .. } => match to.mac {
                Some(mac) => self.learn(to.address, mac),
                None => to.mac = self.0.get(&to.address).copied(),
            },
            Event::Offered { .. }
            | Event::Unserved { .. }
            | Event::Exhausted { .. }
            | Event::OtherServer { .. }
            | Event::Unheard { .. } => {}
        }
    }

    fn learn(&mut self, address: IpAddr, mac: Mac) {
        if self.0.len() >= KNOWN && !self.0.contains_key(&address) {
            // Machines are named for people: who starts later tells it once more.
            self.0.clear();
        }
        self.0.insert(address, mac);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: Mac = Mac([0x52, 0x54, 0, 0x12, 0x34, 0x56]);

    fn sent(address: Ipv4Addr) -> Event {
        let (by, name) = ("HTTP", "/bundle/vmlinuz".to_owned());
        Event::Sent { to: IpAddr::from(address).into(), by, name, bytes: 2048, took: Duration::from_secs(1) }
    }

    #[test]
    fn who_fetches_is_named_once_it_is_known() {
        let (mut known, address) = (Known::default(), Ipv4Addr::new(10, 0, 0, 7));
        let mut said = |mut event: Event| {
            known.complete(&mut event);
            event.to_string()
        };
        assert_eq!(said(sent(address)), "10.0.0.7: /bundle/vmlinuz by HTTP, 2 KiB in 1.0 s");
        said(Event::Leased { mac: MAC, address });
        assert_eq!(
            said(sent(address)),
            "52:54:00:12:34:56, 10.0.0.7: /bundle/vmlinuz by HTTP, 2 KiB in 1.0 s"
        );
        // Beside another DHCP server the script's address tells.
        let other = Ipv4Addr::new(10, 0, 0, 8);
        let to = Machine { address: other.into(), mac: Some(MAC) };
        let script = said(Event::Starts { to, what: "boot.ipxe", config: Some("default.yaml".into()) });
        assert_eq!(script, "52:54:00:12:34:56, 10.0.0.8: starts boot.ipxe with the config default.yaml");
        assert!(said(sent(other)).starts_with("52:54:00:12:34:56, 10.0.0.8: /bundle/vmlinuz by "));
        let fault = Some("line 1, column 1: bad".to_owned());
        let config = said(Event::Config { to, name: "default.yaml".into(), fault });
        assert!(
            config.ends_with(": took the config default.yaml, which no node takes: line 1, column 1: bad")
        );
    }

    #[test]
    fn addresses_that_are_made_up_take_bounded_memory() {
        let mut known = Known::default();
        for number in 0..20_000_u32 {
            known.complete(&mut Event::Leased { mac: MAC, address: number.into() });
            assert!(known.0.len() <= KNOWN);
        }
        assert!(known.0.contains_key(&IpAddr::from(Ipv4Addr::from(19_999))));
    }
}
