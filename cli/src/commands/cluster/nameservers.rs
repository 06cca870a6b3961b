//! The name servers of nodes: those of this machine that another network can reach.
//!
//! Source: resolv.conf(5); systemd-resolved(8) for the file with the servers behind its own.

use std::{fs, net::IpAddr};

use anyhow::{Result, bail};

/// The files that may name servers, the first that names one for others wins.
const FILES: [&str; 2] = ["/run/systemd/resolve/resolv.conf", "/etc/resolv.conf"];

pub(super) fn of_this_machine() -> Result<Vec<IpAddr>> {
    for file in FILES {
        let servers = reachable(&fs::read_to_string(file).unwrap_or_default());
        if !servers.is_empty() {
            return Ok(servers);
        }
    }
    bail!("{} names no server that nodes can reach: name some with --nameservers", FILES.join(" or "))
}

/// A loopback address is another machine in another network; nodes have no IPv6.
fn reachable(text: &str) -> Vec<IpAddr> {
    let words = text.lines().map(str::split_whitespace).filter_map(|mut words| {
        let is_server = words.next() == Some("nameserver");
        is_server.then(|| words.next()).flatten()
    });
    let addresses = words.filter_map(|word| word.parse::<IpAddr>().ok());
    addresses.filter(|address| address.is_ipv4() && !address.is_loopback()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_servers_are_of_no_use_to_nodes() {
        let text =
            "# x\nnameserver 127.0.0.53\nnameserver 192.0.2.1\nsearch example.org\nnameserver fd00::1\n";
        assert_eq!(reachable(text), ["192.0.2.1".parse::<IpAddr>().unwrap()]);
        assert!(reachable("nameserver\noptions edns0\n").is_empty());
    }
}
