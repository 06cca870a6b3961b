//! Links that are meant by another name than the kernel's.

use config::cmdline::NodeParameters;

use super::tests::{HEAD, addresses, cards, of_documents};
use super::*;

/// A document that names a card.
fn alias(name: &str, selector: &str) -> String {
    format!(
        "apiVersion: v1alpha1\nkind: LinkAliasConfig\nname: {name}\nselector: {{match: {selector:?}}}\n---\n"
    )
}

const SECOND: &str = "mac(link.hardware_addr) == '02:00:00:00:00:01'";

#[test]
fn a_card_is_configured_by_the_name_that_the_config_gives_it() {
    let documents = "apiVersion: v1alpha1\nkind: LinkConfig\nname: net0\naddresses: [{address: 10.0.0.2/24}]\n---\n\
        apiVersion: v1alpha1\nkind: VLANConfig\nname: v5\nvlanID: 5\nparent: net0\n---\n\
        apiVersion: v1alpha1\nkind: DHCPv6Config\nname: net0\n---\n\
        apiVersion: v1alpha1\nkind: Layer2VIPConfig\nname: 10.0.0.9\nlink: net0\n---\n\
        apiVersion: v1alpha1\nkind: RoutingRuleConfig\nname: '100'\ntable: '5'\niifName: net0\n---\n\
        apiVersion: v1alpha1\nkind: BondConfig\nname: bond0\nlinks: [net1]\n";
    let third = alias("net1", "mac(link.hardware_addr) == '02:00:00:00:00:02'");
    let found =
        of_documents(&format!("{}{third}{documents}", alias("net0", SECOND)), &["eth0", "eth1", "eth2"]);
    assert_eq!(found.faults, Vec::<String>::new());
    let names: Vec<_> = found.aliases.iter().map(|(link, alias)| (link.as_str(), alias.as_str())).collect();
    assert_eq!(names, [("eth1", "net0"), ("eth2", "net1")]);
    assert_eq!(addresses(&found.links["eth1"]), ["10.0.0.2/24"]);
    assert!(found.links["eth1"].dhcp6.is_some() && found.links["eth1"].dhcp.is_none());
    assert_eq!(found.links["v5"].kind, Some(Kind::Vlan { parent: "eth1".into(), id: 5, is_service: false }));
    assert_eq!(found.shared, [("eth1".to_owned(), "10.0.0.9".parse().unwrap())]);
    assert!(found.rules.iter().all(|rule| rule.input == "eth1"), "{:?}", found.rules);
    assert_eq!(found.links["eth2"].controller.as_deref(), Some("bond0"));
    assert!(!found.links.contains_key("net0") && found.links["eth0"].dhcp.is_some());
}

#[test]
fn a_name_for_no_card_or_for_several_is_a_fault_and_the_rest_holds() {
    for (documents, fault) in [
        (alias("net0", "link.driver == 'e1000e'"), "LinkAliasConfig net0: no card has these properties"),
        (
            alias("net0", "link.driver == 'virtio_net'"),
            "LinkAliasConfig net0: these properties are those of eth0 and eth1; a name is for one card",
        ),
        (alias("eth0", SECOND), "LinkAliasConfig eth0: a link has this name already; write another one"),
        (alias("a", SECOND) + &alias("b", SECOND), "LinkAliasConfig b: eth1 is a already"),
    ] {
        let found = of_documents(documents.trim_end_matches("---\n"), &["eth0", "eth1"]);
        assert_eq!(found.faults, [fault]);
        assert!(found.links["eth0"].dhcp.is_some() && found.links["eth1"].dhcp.is_some());
    }
}

#[test]
fn a_further_name_of_a_card_is_as_good_as_the_first() {
    let text = format!(
        "{HEAD}  network:\n    interfaces:\n      - {{interface: enp0s3, cidr: 10.0.0.2/24}}\n      - {{interface: bond0, bond: {{mode: \
         active-backup, primary: enx020000000001, interfaces: [enx020000000001]}}}}\n"
    );
    let loaded = config::load(text.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
    let mut present = cards(&["eth0", "eth1"]);
    present[0].alt_names = vec!["enp0s3".into()];
    present[1].alt_names = vec!["enx020000000001".into()];
    let found = plan(&NodeParameters::default(), Some(&loaded.config), &[], &present);
    assert_eq!(addresses(&found.links["eth0"]), ["10.0.0.2/24"]);
    assert_eq!(found.links["eth1"].controller.as_deref(), Some("bond0"));
    assert!(!found.links.contains_key("enp0s3"), "{:?}", found.links.keys());
    let Some(Kind::Bond { primary, .. }) = &found.links["bond0"].kind else { panic!() };
    assert_eq!(primary.as_deref(), Some("eth1"));
}
