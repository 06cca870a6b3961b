//! What a machine's network is to be: its links, their addresses and routes, as a configuration says it.
//!
//! | module | what it does |
//! |---|---|
//! | [`plan`](fn@plan) | reads sections and documents, and finds the links that selectors mean |
//! | [`link`] | what a link is to be |
//! | `bond` | a bond's options as the kernel takes them |
//! | `select` | whether a link has the properties that a selector names |
//!
//! Owns: every decision that needs no kernel: names, kinds, members, defaults.
//! Does not: ask or change the kernel; machined's networkd does, with what this crate answers.
//! Source: docs/users/network.md, docs/users/configuration.md.
#![warn(missing_docs)]

mod bond;
pub mod firewall;
pub mod link;
mod plan;
mod select;

pub use firewall::Firewall;
pub use link::{Dhcp, Dhcp6, Ethernet, HOST_DNS_ADDRESS, Kind, Link, Present, Route, RouteKind, Rule};
pub use plan::{Plan, plan, vlan_name};
