//! Messages of nf_tables: one table of the family `inet` that replaces the one before, as one transaction.
//!
//! Owns: the bytes. Does not: send them, or read what the kernel has.
//! Numbers of a message's attributes are big-endian, its header is the machine's.
//! Source: include/uapi/linux/netfilter/nfnetlink.h and nf_tables.h of Linux; docs/decisions/0031.

mod wire;

use std::net::IpAddr;

/// The protocol of the socket: `NETLINK_NETFILTER`.
pub const PROTOCOL: isize = 12;

/// What becomes of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It comes in.
    Accept,
    /// It is gone.
    Drop,
    /// Another chain decides; what that one does not decide comes back.
    Jump(String),
}

/// What a packet must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Match {
    /// It came by this link.
    Input(String),
    /// It belongs to a connection that is there, or to one that such a connection opened.
    Established,
    /// Number of the protocol above IP: 6 for TCP.
    Protocol(u8),
    /// Its port of destination is one of these, first and last.
    Port(u16, u16),
    /// It comes from this network: address and bits of its prefix.
    Source(IpAddr, u8),
}

/// What happens to packets that are all of this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// In this order.
    pub matches: Vec<Match>,
    /// And counts them.
    pub verdict: Verdict,
}

/// Rules in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// Its name.
    pub name: String,
    /// `Some`: it sees what comes in for this machine, and drops what no rule accepts, or accepts it.
    pub input: Option<Verdict>,
    /// The first that fits and decides, decides.
    pub rules: Vec<Rule>,
}

/// A transaction that makes the table, whether or not there is one of that name, with these chains and no others. `None`: that
/// removes it. What the kernel refuses is answered before the acknowledgement of the last message, which is always there.
#[must_use]
pub fn replace(table: &str, chains: Option<&[Chain]>) -> Vec<u8> {
    // Once made, it can be removed whether or not it was there.
    let mut messages = vec![wire::table(wire::NEW_TABLE, table), wire::table(wire::DELETE_TABLE, table)];
    if let Some(chains) = chains {
        messages.push(wire::table(wire::NEW_TABLE, table));
        // A jump leads to a chain that is there.
        messages.extend(chains.iter().map(|chain| wire::chain(table, chain)));
        for chain in chains {
            messages.extend(chain.rules.iter().map(|rule| wire::rule(table, &chain.name, rule)));
        }
    }
    wire::transaction(messages)
}
