//! The way of nodes out of their network: this machine forwards what they send, under its own address.
//!
//! Owns: a table of nftables for each cluster, rules in a chain of another program that drops what it does not know (Docker has
//! one), and the switch by which a kernel forwards at all.
//! Does not: let anyone into the network: only answers come in.
//! Source: nft(8), "CHAINS" and "STATEMENTS"; ip-sysctl, `ip_forward`.

use std::fs;
use std::path::Path;

use crate::Error;
use crate::network::{Network, bridge};
use crate::program::run;

/// Whether the kernel forwards between networks.
const FORWARD: &str = "/proc/sys/net/ipv4/ip_forward";
/// The chain by which iptables decides on what is forwarded; programs that use iptables share it.
const SHARED: [&str; 3] = ["ip", "filter", "FORWARD"];

/// Makes the way out. Answers whether the kernel's switch was off before.
pub(crate) fn make(network: &Network, cluster: &str) -> Result<bool, Error> {
    let (table, bridge) = (table(cluster), bridge(cluster));
    let cidr = network.cidr();
    run(
        "nft",
        &[&format!(
            "add table ip {table}; \
             add chain ip {table} postrouting {{ type nat hook postrouting priority srcnat; }}; \
             add rule ip {table} postrouting ip saddr {cidr} ip daddr != {cidr} oifname != \"{bridge}\" masquerade"
        )],
    )?;
    if drops_the_unknown() {
        let chain = SHARED.join(" ");
        for matched in
            [format!("iifname \"{bridge}\""), format!("oifname \"{bridge}\" ct state established,related")]
        {
            run("nft", &[&format!("insert rule {chain} {matched} counter accept comment \"{table}\"")])?;
        }
    }
    turn_on()
}

/// Removes what [`make`] made, except for the switch.
pub(crate) fn remove(cluster: &str) -> Result<(), Error> {
    let table = table(cluster);
    match run("nft", &[&format!("delete table ip {table}")]) {
        Ok(_) => {}
        Err(Error::Program { said, .. }) if said.contains("No such file or directory") => {}
        Err(error) => return Err(error),
    }
    let chain = SHARED.join(" ");
    // Without the chain there are no rules in it.
    let listed = run("nft", &["--handle", &format!("list chain {chain}")]).unwrap_or_default();
    for handle in handles(&listed, &table) {
        run("nft", &[&format!("delete rule {chain} handle {handle}")])?;
    }
    Ok(())
}

/// Turns the kernel's switch off again.
pub(crate) fn turn_off() -> Result<(), Error> {
    write_switch("0")
}

fn turn_on() -> Result<bool, Error> {
    let path = Path::new(FORWARD);
    let text = fs::read_to_string(path);
    let text = text.map_err(|source| Error::File { what: "read", path: path.to_owned(), source })?;
    if text.trim() != "0" {
        return Ok(false);
    }
    write_switch("1")?;
    Ok(true)
}

fn write_switch(value: &str) -> Result<(), Error> {
    fs::write(FORWARD, value).map_err(|source| Error::File { what: "write", path: FORWARD.into(), source })
}

/// Another chain's verdict to accept does not help against this one's to drop.
fn drops_the_unknown() -> bool {
    run("nft", &[&format!("list chain {}", SHARED.join(" "))])
        .is_ok_and(|listed| listed.contains("policy drop"))
}

/// The handles of rules with this comment.
fn handles<'a>(listed: &'a str, comment: &str) -> Vec<&'a str> {
    let with_comment = format!("comment \"{comment}\"");
    let lines = listed.lines().filter(|line| line.contains(&with_comment));
    lines.filter_map(|line| line.rsplit_once("# handle ")).map(|(_, handle)| handle.trim()).collect()
}

fn table(cluster: &str) -> String {
    format!("billet-{cluster}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_found_by_their_comment() {
        let listed = "table ip filter { # handle 1\n\tchain FORWARD { # handle 2\n\
                      \t\tiifname \"a\" counter packets 0 bytes 0 accept comment \"billet-demo\" # handle 7\n\
                      \t\tiifname \"b\" counter packets 0 bytes 0 accept comment \"billet-demo-2\" # handle 9\n";
        assert_eq!(handles(listed, "billet-demo"), ["7"]);
        assert_eq!(handles("", "billet-demo"), [""; 0]);
    }
}
