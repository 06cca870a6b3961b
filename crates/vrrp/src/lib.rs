//! VRRP version 3: several nodes agree on the link itself which of them has a virtual address.
//!
//! | module | owns |
//! |---|---|
//! | `interval` | the time between advertisements, as packets can say it |
//! | `addresses` | the virtual addresses: a list of one family |
//! | `packet` | advertisements as bytes |
//! | `router` | the states, without sockets and clocks |
//! | `settings` | what the caller wants, and what is known |
//! | `socket` | raw sockets of protocol 112 |
//! | `report` | that each failure is said once |
//! | `caller` | how addresses get to a link, which the caller knows |
//! | `running` | the turns of a router that runs |
//! | `driver` | its start and its end |
//!
//! A driver is one future. It has no task and no thread of its own; it ends when the caller's `stop` is done, or is
//! dropped.
//!
//! **Peers.** It speaks with keepalived (`vrrp_version 3`) and other routers of version 3 in multicast. Like keepalived
//! without `use_vmac` it has no virtual MAC address, which RFC 9568 §7.3 demands: who has the addresses answers with the
//! interface's own MAC address, and tells the neighbours by gratuitous ARP or unsolicited neighbour advertisements.
//!
//! **Times.** A backup takes over when it heard nothing for three intervals and a little. A process that hangs has the
//! address until the kernel takes it away, up to two seconds after the last [`Address::hold`]. With intervals below 700 ms
//! two machines can have the address in between. A machine that ends or loses power has it no longer.
//!
//! **Trust.** VRRP has no authentication (RFC 9568 §9): any machine of the link can take the addresses. A hop limit of 255
//! keeps all others out.
//!
//! Owns: the protocol and its sockets.
//! Does not: add addresses to links, send ARP, filter packets, or decide whether a machine is fit: the caller does.
//! Order: interval and addresses, packet and router, settings, socket, running, driver; each uses those before it.
//! Fails by: leaving the addresses to others.
//! Source: RFC 9568; RFC 5798 §5.2.8 for the checksum that keepalived demands.
#![warn(missing_docs)]

mod addresses;
mod caller;
mod driver;
mod interval;
pub mod packet;
mod report;
pub mod router;
mod running;
mod settings;
mod socket;

pub use addresses::{Addresses, AddressesError};
pub use caller::{Address, CALL_DEADLINE, HOLD_PERIOD};
pub use driver::Driver;
pub use interval::Interval;
pub use settings::{Settings, SettingsError, Status};
