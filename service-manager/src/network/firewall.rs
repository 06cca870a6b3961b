//! The firewall: one table of nf_tables that sees what comes in for this machine.
//!
//! Owns: the table `inet billet`. Pods and what is passed on are another hook's, and so untouched; connections that are there
//! live on. The table is replaced as a whole, so that no packet meets half of it.
//! Order: connections, loopback; etcd's ports; the cluster's own networks; then who may by a rule, and no other sender at its ports; then
//! what a node cannot live without; then the default.
//! Fails by: a sentence; the table of before stays, and it is tried again.

use std::io;
use std::path::PathBuf;

use config::documents::PortProtocol;
use netlink_sys::{Socket, SocketAddr};
use network_plan::Firewall;
use network_plan::firewall::{API_PORT, PortRule};
use nftables::{Chain, Match, Rule, Verdict};
use runtime::Runtime;

const TABLE: &str = "billet";
/// There while there may be a table: an earlier machined made it.
const MARKER: &str = "/system/run/machined/firewall";
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
pub(super) const VRRP: u8 = 112;
/// Where servers of DHCP answer, of both families.
pub(super) const DHCP_PORTS: [u16; 2] = [68, 546];
/// Letters of a rule's name in the name of its chain.
const NAME_LETTERS: usize = 32;
/// Header of an answer, and the number of its error behind it.
const ERROR_AT: usize = 16;
const ERROR: u16 = 2;

/// What the kernel has.
pub(super) struct Filter {
    marker: PathBuf,
    applied: Option<Option<Firewall>>,
}

impl Filter {
    pub(super) fn new(runtime: &Runtime) -> Self {
        Self { marker: runtime.path(MARKER), applied: None }
    }

    /// Makes the kernel's table what is wanted, if it is not.
    pub(super) async fn bring(&mut self, wanted: Option<&Firewall>) -> Result<(), String> {
        if self.applied.as_ref().is_some_and(|applied| applied.as_ref() == wanted) {
            return Ok(());
        }
        if wanted.is_some() || self.marker.exists() {
            let failed =
                |error: io::Error| format!("firewall: note it in {}: {error}", self.marker.display());
            std::fs::write(&self.marker, "").map_err(failed)?;
            let chains = wanted.map(chains);
            let batch = nftables::replace(TABLE, chains.as_deref());
            let sent = tokio::task::spawn_blocking(move || send(&batch)).await;
            let failed =
                |error: io::Error| format!("firewall: the kernel refuses it, what was there stays: {error}");
            sent.map_err(io::Error::other).and_then(|sent| sent).map_err(failed)?;
            if wanted.is_none() {
                // One that stays costs the next machined a look.
                let _ = std::fs::remove_file(&self.marker);
            }
        }
        self.applied = Some(wanted.cloned());
        Ok(())
    }
}

/// Chains of the table: what comes in, and the senders of each rule.
fn chains(firewall: &Firewall) -> Vec<Chain> {
    let accept = |matches: Vec<Match>| Rule { matches, verdict: Verdict::Accept };
    let mut rules = vec![accept(vec![Match::Established]), accept(vec![Match::Input("lo".into())])];
    let etcd: Vec<(String, &PortRule)> = firewall.etcd.iter().map(|rule| (rule.name.clone(), rule)).collect();
    for (name, rule) in &etcd {
        for verdict in [Verdict::Jump(name.clone()), Verdict::Drop] {
            rules.extend(places(rule).into_iter().map(|matches| Rule { matches, verdict: verdict.clone() }));
        }
    }
    rules.extend(
        firewall.cluster.iter().map(|(address, prefix)| accept(vec![Match::Source(*address, *prefix)])),
    );
    let named: Vec<(String, &PortRule)> = firewall
        .rules
        .iter()
        .enumerate()
        .map(|(index, rule)| (chain_name(index, &rule.name), rule))
        .collect();
    let at = |verdict: &dyn Fn(&str) -> Verdict| -> Vec<Rule> {
        let one = |(name, rule): &(String, &PortRule)| {
            let verdict = verdict(name);
            places(rule)
                .into_iter()
                .map(move |matches| Rule { matches, verdict: verdict.clone() })
                .collect::<Vec<_>>()
        };
        named.iter().flat_map(one).collect()
    };
    rules.extend(at(&|name| Verdict::Jump(name.to_owned())));
    rules.extend(at(&|_| Verdict::Drop));
    if firewall.blocks {
        rules.extend([ICMP, ICMPV6].map(|protocol| accept(vec![Match::Protocol(protocol)])));
        rules.extend(DHCP_PORTS.map(|port| accept(vec![Match::Protocol(UDP), Match::Port(port, port)])));
        if firewall.opens_vrrp {
            rules.push(accept(vec![Match::Protocol(VRRP)]));
        }
        if firewall.opens_api {
            rules.push(accept(vec![Match::Protocol(TCP), Match::Port(API_PORT, API_PORT)]));
        }
    }
    let policy = if firewall.blocks { Verdict::Drop } else { Verdict::Accept };
    let ingress = Chain { name: "ingress".into(), input: Some(policy), rules };
    let senders = etcd.iter().chain(&named).map(|(name, rule)| {
        let sources = rule.sources.iter();
        let rules = sources.map(|(address, prefix)| accept(vec![Match::Source(*address, *prefix)]));
        Chain { name: name.clone(), input: None, rules: rules.collect() }
    });
    std::iter::once(ingress).chain(senders).collect()
}

/// What a packet must be for a rule to decide: one for each range of ports.
fn places(rule: &PortRule) -> Vec<Vec<Match>> {
    let protocol = |number| Match::Protocol(number);
    let number = match rule.protocol {
        PortProtocol::Icmp => return vec![vec![protocol(ICMP)]],
        PortProtocol::Icmpv6 => return vec![vec![protocol(ICMPV6)]],
        PortProtocol::Tcp => TCP,
        PortProtocol::Udp => UDP,
    };
    rule.ports.iter().map(|(first, last)| vec![protocol(number), Match::Port(*first, *last)]).collect()
}

fn chain_name(index: usize, name: &str) -> String {
    let plain = name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' });
    format!("rule-{index}-{}", plain.take(NAME_LETTERS).collect::<String>())
}

/// The kernel works a transaction off before the call returns, so that its answers are there then.
fn send(batch: &[u8]) -> io::Result<()> {
    let mut socket = Socket::new(nftables::PROTOCOL)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.set_non_blocking(true)?;
    socket.send(batch, 0)?;
    loop {
        let (answer, _) = socket.recv_from_full()?;
        let mut rest = answer.as_slice();
        while let Some(header) = rest.get(..ERROR_AT) {
            let length = usize::try_from(u32::from_ne_bytes(number(&header[..4]))).unwrap_or_default();
            let kind = u16::from_ne_bytes([header[4], header[5]]);
            let error = rest.get(ERROR_AT..ERROR_AT + 4).map(|bytes| i32::from_ne_bytes(number(bytes)));
            match (kind, error) {
                (ERROR, Some(0)) => return Ok(()),
                (ERROR, Some(error)) => return Err(io::Error::from_raw_os_error(-error)),
                _ => {}
            }
            rest = rest.get(length.next_multiple_of(4).max(ERROR_AT)..).unwrap_or_default();
        }
    }
}

fn number(bytes: &[u8]) -> [u8; 4] {
    bytes.try_into().unwrap_or_default()
}

#[cfg(test)]
#[path = "firewall_tests.rs"]
mod tests;
