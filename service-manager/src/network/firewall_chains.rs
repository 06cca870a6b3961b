//! The firewall as clients see it: the chain that decides what comes in, rule by rule.
//!
//! Owns: `NfTablesChains`. Does not: count; `nft list table inet billet` in a debug container does.
//! Order: the one in which the kernel asks ([`firewall`](super::firewall)). A rule of a document has two lines: who may, and that no
//! other sender may.
//! Source: crates/api/tests/data/resources.tsv.

use config::documents::PortProtocol;
use network_plan::Firewall;
use network_plan::firewall::{API_PORT, PortRule};
use runtime::Runtime;
use runtime::store::{NF_TABLES_CHAIN, Spec};
use serde_json::{Value, json};

use super::firewall::{DHCP_PORTS, VRRP};

/// The chain's name in the kernel.
const CHAIN: &str = "ingress";

/// Shows what the kernel has; none: no chain.
pub(super) fn publish(runtime: &Runtime, firewall: Option<&Firewall>) {
    let shown = firewall.map(|firewall| (CHAIN.to_owned(), Spec::Fields(chain(firewall))));
    let kind = &NF_TABLES_CHAIN;
    if let Err(error) = runtime.store.replace(kind.writer, kind, shown.into_iter().collect()) {
        runtime.journal.warn(&error.to_string());
    }
}

fn chain(firewall: &Firewall) -> Value {
    let accepted = |matched: Value| with(matched, "accept");
    let mut rules = vec![
        accepted(json!({ "matchConntrackState": { "states": ["established", "related"] } })),
        accepted(json!({ "matchIIfName": { "operator": "equal", "interfaceName": ["lo"] } })),
    ];
    rules.extend(firewall.etcd.iter().flat_map(decided));
    rules.extend(firewall.cluster.iter().map(|(address, prefix)| {
        accepted(json!({ "matchSourceAddress": { "includeSubnets": [format!("{address}/{prefix}")] } }))
    }));
    rules.extend(firewall.rules.iter().flat_map(decided));
    if firewall.blocks {
        let protocol = |word: &str| json!({ "matchLayer4": { "protocol": word } });
        rules.extend(["icmp", "icmpv6"].map(|word| accepted(protocol(word))));
        rules.extend(DHCP_PORTS.map(|port| accepted(ports("udp", &[(port, port)]))));
        if firewall.opens_vrrp {
            rules.push(accepted(protocol(&VRRP.to_string())));
        }
        if firewall.opens_api {
            rules.push(accepted(ports("tcp", &[(API_PORT, API_PORT)])));
        }
    }
    let policy = if firewall.blocks { "drop" } else { "accept" };
    json!({ "type": "filter", "hook": "input", "priority": "filter", "rules": rules, "policy": policy })
}

/// Who may, and that no other sender may.
fn decided(rule: &PortRule) -> [Value; 2] {
    let mut matched = places(rule);
    let sources: Vec<String> =
        rule.sources.iter().map(|(address, prefix)| format!("{address}/{prefix}")).collect();
    let all_others = with(matched.clone(), "drop");
    matched["matchSourceAddress"] = json!({ "includeSubnets": sources });
    [with(matched, "accept"), all_others]
}

fn with(mut matched: Value, verdict: &str) -> Value {
    matched["anonymousCounter"] = true.into();
    matched["verdict"] = verdict.into();
    matched
}

fn places(rule: &PortRule) -> Value {
    match rule.protocol {
        PortProtocol::Icmp => json!({ "matchLayer4": { "protocol": "icmp" } }),
        PortProtocol::Icmpv6 => json!({ "matchLayer4": { "protocol": "icmpv6" } }),
        PortProtocol::Tcp => ports("tcp", &rule.ports),
        PortProtocol::Udp => ports("udp", &rule.ports),
    }
}

fn ports(protocol: &str, ranges: &[(u16, u16)]) -> Value {
    let ranges: Vec<Value> = ranges.iter().map(|(lo, hi)| json!({ "lo": lo, "hi": hi })).collect();
    json!({ "matchLayer4": { "protocol": protocol, "matchDestinationPort": { "ranges": ranges } } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_is_shown_in_the_order_in_which_it_decides() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = Runtime::detached(dir.path().to_path_buf());
        let prefix = |text: &str| network_plan::link::prefix(text).unwrap();
        let web = PortRule {
            name: "web".into(),
            protocol: PortProtocol::Tcp,
            ports: vec![(80, 80), (7100, 7200)],
            sources: vec![prefix("10.9.0.0/24"), prefix("fd00::/8")],
        };
        let firewall = Firewall {
            blocks: true,
            cluster: vec![prefix("10.244.0.0/16")],
            opens_api: true,
            opens_vrrp: true,
            etcd: Some(PortRule { name: "etcd".into(), ports: vec![(2379, 2381)], ..web.clone() }),
            rules: vec![web],
        };
        publish(&runtime, Some(&firewall));
        let resource = runtime.store.get(&NF_TABLES_CHAIN, CHAIN).unwrap();
        assert!(!resource.spec.binary(NF_TABLES_CHAIN.kind).unwrap().is_empty());
        let Value::Array(rules) = chain(&firewall)["rules"].clone() else { panic!("no rules") };
        let verdicts: Vec<&str> = rules.iter().map(|rule| rule["verdict"].as_str().unwrap()).collect();
        let accept = "accept";
        assert_eq!(
            verdicts,
            [
                accept, accept, accept, "drop", accept, accept, "drop", accept, accept, accept, accept,
                accept, accept
            ]
        );
        assert_eq!(rules[5]["matchSourceAddress"]["includeSubnets"], json!(["10.9.0.0/24", "fd00::/8"]));
        let range = &rules[6]["matchLayer4"]["matchDestinationPort"]["ranges"][1];
        assert_eq!(*range, json!({ "lo": 7100, "hi": 7200 }));
        publish(&runtime, None);
        assert!(runtime.store.get(&NF_TABLES_CHAIN, CHAIN).is_none());
    }
}
