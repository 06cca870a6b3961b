//! Plans of sections and of documents.

use config::cmdline::NodeParameters;
use config::documents::ClientIdentifier;
use netlink_packet_route::link::{BondMode, BondXmitHashPolicy, InfoBond};

use super::*;

pub(super) const HEAD: &str =
    "version: v1alpha1\nmachine:\n  type: worker\n  token: aaaaaa.bbbbbbbbbbbbbbbb\n";

pub(super) fn cards(names: &[&str]) -> Vec<Present> {
    let card = |(index, name): (usize, &&str)| Present {
        name: (*name).to_owned(),
        hardware: vec![2, 0, 0, 0, 0, u8::try_from(index).unwrap()],
        driver: "virtio_net".into(),
        is_physical: *name != LOOPBACK,
        ..Present::default()
    };
    names.iter().enumerate().map(card).collect()
}

/// The plan of a whole text, for a machine with these cards.
fn planned(text: &str, names: &[&str]) -> Plan {
    let loaded = config::load(text.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
    plan(&NodeParameters::default(), Some(&loaded.config), &loaded.documents, &cards(names))
}

fn of_section(interfaces: &str, names: &[&str]) -> Plan {
    planned(&format!("{HEAD}  network:\n    interfaces: {interfaces}\n"), names)
}

pub(super) fn of_documents(documents: &str, names: &[&str]) -> Plan {
    planned(&format!("{HEAD}---\n{documents}"), names)
}

pub(super) fn addresses(link: &Link) -> Vec<String> {
    link.addresses.iter().map(|(address, length)| format!("{address}/{length}")).collect()
}

#[test]
fn a_card_that_nothing_names_asks_dhcp() {
    let found = plan(&NodeParameters::default(), None, &[], &cards(&["lo", "eth0", "enp1s0"]));
    assert!(found.links["eth0"].asks_dhcp() && found.links["enp1s0"].asks_dhcp());
    assert!(!found.links["lo"].asks_dhcp());
    let mut made_by_others = cards(&["cni0"]);
    made_by_others[0].is_physical = false;
    assert!(plan(&NodeParameters::default(), None, &[], &made_by_others).links.is_empty());
    let found = of_section(
        "[{interface: eth1, cidr: 10.0.0.1/24}, {interface: eth2, ignore: true}]",
        &["eth0", "eth1", "eth2"],
    );
    assert!(found.links["eth0"].asks_dhcp() && !found.links["eth1"].asks_dhcp());
    assert!(!found.links.contains_key("eth2"));
}

#[test]
fn a_shared_address_is_on_its_link_and_is_none_of_its_own() {
    let of = |plan: &Plan, link: &str| -> Vec<String> {
        let on_it = plan.shared.iter().filter(|(name, _)| name == link);
        on_it.map(|(_, address)| address.to_string()).collect()
    };
    let found = of_section(
        "[{interface: eth0, dhcp: true, vip: {ip: 10.0.0.100}, vlans: [{vlanId: 7, vip: {ip: 'fd00::100'}}]}]",
        &["eth0", "eth1"],
    );
    assert_eq!(
        (of(&found, "eth0"), of(&found, "eth0.7")),
        (vec!["10.0.0.100".into()], vec!["fd00::100".into()])
    );
    assert!(found.links["eth0"].addresses.is_empty() && found.links["eth0"].asks_dhcp());
    let documents = "apiVersion: v1alpha1\nkind: Layer2VIPConfig\nname: 10.0.0.100\nlink: eth0\n---\n\
                     apiVersion: v1alpha1\nkind: Layer2VIPConfig\nname: 10.0.0.101\nlink: eth0\n";
    let found = of_documents(documents, &["eth0"]);
    assert_eq!(of(&found, "eth0"), ["10.0.0.100", "10.0.0.101"]);
    assert!(found.links["eth0"].asks_dhcp(), "the document says nothing else of the link");
}

#[test]
fn loopback_has_the_resolver_s_address_where_pods_ask_it() {
    let of = |settings: &str| {
        let plan = planned(&format!("{HEAD}  features: {{hostDNS: {settings}}}\n"), &["lo"]);
        plan.links.get("lo").map(addresses).unwrap_or_default()
    };
    assert_eq!(of("{enabled: true, forwardKubeDNSToHost: true}"), ["169.254.116.108/32"]);
    assert!(of("{enabled: true}").is_empty() && of("{forwardKubeDNSToHost: true}").is_empty());
}

#[test]
fn an_entry_says_it_all() {
    let text = "[{interface: eth0, mtu: 1400, addresses: [10.0.0.5/24], routes: [{gateway: 10.0.0.1, source: 10.0.0.5, mtu: 1300}, {network: 10.9.0.0/16, gateway: 10.0.0.2, metric: 7}, {network: 10.8.0.0/16}, {network: 'fd00::/8', gateway: 'fe80::1'}]}, {interface: eth0, cidr: 'fd00::5', dhcp: true}]";
    let link = of_section(text, &["eth0"]).links.remove("eth0").unwrap();
    assert_eq!((link.mtu, link.asks_dhcp(), link.is_configured), (Some(1400), true, true));
    assert_eq!(addresses(&link), ["fd00::5/128", "10.0.0.5/24"]);
    let routes: Vec<String> = link
        .routes
        .iter()
        .map(|route| {
            format!("{}/{} {:?} {}", route.destination.0, route.destination.1, route.gateway, route.metric)
        })
        .collect();
    assert_eq!(
        routes,
        [
            "0.0.0.0/0 Some(10.0.0.1) 10",
            "10.9.0.0/16 Some(10.0.0.2) 7",
            "10.8.0.0/16 None 10",
            "fd00::/8 Some(fe80::1) 10"
        ]
    );
    assert_eq!((link.routes[0].source, link.routes[0].mtu), (Some("10.0.0.5".parse().unwrap()), Some(1300)));
    assert_eq!(link.routes[1].source, None);
}

#[test]
fn a_selector_means_every_card_that_fits() {
    let text = "[{deviceSelector: {driver: virtio*}, mtu: 1400}, {deviceSelector: {hardwareAddr: 'aa:*'}, dhcp: true}]";
    let found = of_section(text, &["lo", "eth0", "eth1"]);
    assert_eq!((found.links["eth0"].mtu, found.links["eth1"].mtu), (Some(1400), Some(1400)));
    assert_eq!(found.faults, ["machine.network.interfaces[1].deviceSelector: no link has these properties"]);
}

#[test]
fn vlans_are_links_of_their_own() {
    let text = "[{interface: eth0, dhcp: true, vlans: [{vlanId: 100, cidr: 10.1.0.2/24, mtu: 1400, routes: [{network: 10.2.0.0/16, gateway: 10.1.0.1}]}, {vlanId: 7, dhcp: true, addresses: [10.7.0.2/24]}]}]";
    let found = of_section(text, &["eth0"]);
    let vlan = &found.links["eth0.100"];
    assert_eq!(vlan.kind, Some(Kind::Vlan { parent: "eth0".into(), id: 100, is_service: false }));
    assert_eq!(
        (addresses(vlan), vlan.mtu, vlan.routes.len()),
        (vec!["10.1.0.2/24".to_owned()], Some(1400), 1)
    );
    assert!(!vlan.asks_dhcp() && found.links["eth0.7"].asks_dhcp() && found.links["eth0"].asks_dhcp());
    let documents = "apiVersion: v1alpha1\nkind: VLANConfig\nname: storage\nvlanID: 34\nvlanMode: 802.1ad\nparent: eth0\naddresses: [{address: 10.3.0.2/24}]\n";
    let found = of_documents(documents, &["eth0"]);
    assert_eq!(
        found.links["storage"].kind,
        Some(Kind::Vlan { parent: "eth0".into(), id: 34, is_service: true })
    );
    assert!(found.links["eth0"].asks_dhcp(), "nothing names the parent itself");
}

#[test]
fn names_of_vlans_fit_the_kernel() {
    assert_eq!(vlan_name("eth0", 4094), "eth0.4094");
    assert_eq!(vlan_name("enp0s31f6x", 4094), "enp0s31f6x.4094");
    let long = vlan_name("enx0123456789ab", 4094);
    assert_eq!((long.len(), &long[..3], &long[9..]), (14, "enx", ".4094"));
    assert_ne!(long, vlan_name("enx0123456789ac", 4094));
}

#[test]
fn members_of_a_bond_give_up_their_addresses() {
    let text = "[{interface: eth0, cidr: 10.0.0.9/24}, {interface: bond0, dhcp: true, bond: {mode: 802.3ad, lacpRate: fast, miimon: 100, xmitHashPolicy: layer3+4, primary: eth1, interfaces: [eth0], deviceSelectors: [{hardwareAddr: '*:02'}]}}]";
    let found = of_section(text, &["lo", "eth0", "eth1"]);
    let Some(Kind::Bond { options, primary }) = &found.links["bond0"].kind else { panic!("{found:?}") };
    assert_eq!(primary.as_deref(), Some("eth1"));
    for option in [
        InfoBond::Mode(BondMode::Ieee8023Ad),
        InfoBond::MiiMon(100),
        InfoBond::XmitHashPolicy(BondXmitHashPolicy::Layer34),
    ] {
        assert!(options.contains(&option), "{option:?} {options:?}");
    }
    assert!(!options.iter().any(|option| matches!(option, InfoBond::UpDelay(_) | InfoBond::UseCarrier(_))));
    for member in ["eth0", "eth1"] {
        let link = &found.links[member];
        assert_eq!(link.controller.as_deref(), Some("bond0"), "{member}");
        assert!(link.addresses.is_empty() && !link.asks_dhcp(), "{member}");
    }
    assert!(found.links["bond0"].asks_dhcp());
    let documents = "apiVersion: v1alpha1\nkind: BondConfig\nname: bond7\nlinks: [eth0, eth1]\nbondMode: active-backup\nmiimon: 0\nadLACPActive: off\nhardwareAddr: '2e:3c:4d:5e:6f:70'\nmtu: 9000\naddresses: [{address: 10.0.0.2/24}]\nroutes: [{gateway: 10.0.0.1}]\n";
    let found = of_documents(documents, &["eth0", "eth1"]);
    let bond = &found.links["bond7"];
    assert_eq!((bond.mtu, bond.hardware), (Some(9000), Some([0x2e, 0x3c, 0x4d, 0x5e, 0x6f, 0x70])));
    assert_eq!(bond.routes[0].metric, 1024);
    let Some(Kind::Bond { options, .. }) = &bond.kind else { panic!() };
    assert_eq!(
        *options,
        [InfoBond::Mode(BondMode::ActiveBackup), InfoBond::MiiMon(0), InfoBond::AdLacpActive(false)]
    );
    assert!(!found.links["eth1"].asks_dhcp());
}

#[test]
fn a_link_has_one_controller() {
    let text = "[{interface: br0, bridge: {interfaces: [eth0], stp: {enabled: true}, vlan: {vlanFiltering: true}}}, {interface: bond0, bond: {interfaces: [eth0, eth1]}}, {interface: eth2, bridgePort: {master: br0}}]";
    let found = of_section(text, &["eth0", "eth1", "eth2"]);
    assert_eq!(found.links["br0"].kind, Some(Kind::Bridge { stp: true, vlan_filtering: true }));
    assert_eq!(found.links["eth0"].controller.as_deref(), Some("br0"));
    assert_eq!(found.links["eth2"].controller.as_deref(), Some("br0"));
    assert_eq!(found.faults, ["eth0 cannot be a member of bond0: it is one of br0"]);
}

#[test]
fn other_kinds_and_routes_of_documents() {
    let documents = "apiVersion: v1alpha1\nkind: DummyLinkConfig\nname: dummy1\nup: false\nmulticast: false\naddresses: [{address: 192.0.2.1/32}]\n---\napiVersion: v1alpha1\nkind: BridgeConfig\nname: br0\nlinks: [eth1]\n---\napiVersion: v1alpha1\nkind: VRFConfig\nname: vrf-blue\nlinks: [eth2]\ntable: '123'\n---\napiVersion: v1alpha1\nkind: LinkConfig\nname: eth2\nup: false\nmulticast: true\naddresses: [{address: 10.0.0.2/24}]\nroutes: [{destination: 10.9.0.0/16, gateway: 10.0.0.1, table: '100'}, {destination: 10.8.0.0/16, type: prohibit}]\n---\napiVersion: v1alpha1\nkind: BlackholeRouteConfig\nname: 169.254.1.1/32\n";
    let found = of_documents(documents, &["lo", "eth0", "eth1", "eth2"]);
    assert_eq!(found.faults, Vec::<String>::new());
    let dummy = &found.links["dummy1"];
    assert_eq!((&dummy.kind, dummy.is_down, dummy.multicast), (&Some(Kind::Dummy), true, Some(false)));
    assert_eq!(found.links["br0"].kind, Some(Kind::Bridge { stp: false, vlan_filtering: false }));
    assert_eq!(found.links["vrf-blue"].kind, Some(Kind::Vrf { table: 123 }));
    let member = &found.links["eth2"];
    assert_eq!(
        (member.controller.as_deref(), member.is_down, member.multicast),
        (Some("vrf-blue"), true, Some(true))
    );
    assert_eq!(addresses(member), ["10.0.0.2/24"], "a VRF's members keep their addresses");
    assert_eq!((member.routes[0].table, member.routes[1].kind), (100, RouteKind::Prohibit));
    assert_eq!(found.links["lo"].routes[0].kind, RouteKind::Blackhole);
    assert!(found.links["eth0"].asks_dhcp());
}

#[test]
fn every_setting_of_a_card_reaches_it() {
    let text = "apiVersion: v1alpha1\nkind: EthernetConfig\nname: eth0\nfeatures: {tx-gso: false}\nrings: {rx: 1, tx: 2, rx-mini: 3, rx-jumbo: 4, rx-buf-len: 5, cqe-size: 6, tx-push: true, rx-push: false, tx-push-buf-len: 7, tcp-data-split: true}\nchannels: {rx: 1, tx: 2, other: 3, combined: 4}\nwakeOnLan: [magic]\n";
    let ethernet = of_documents(text, &["eth0"]).links.remove("eth0").unwrap().ethernet.unwrap();
    assert_eq!(ethernet.features, BTreeMap::from([("tx-gso".into(), false)]));
    let list = |map: &BTreeMap<String, u32>| {
        map.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    };
    let rings = "cqe-size=6 rx=1 rx-buf-len=5 rx-jumbo=4 rx-mini=3 rx-push=0 tcp-data-split=1 tx=2 tx-push=1 tx-push-buf-len=7";
    assert_eq!(list(&ethernet.rings), rings);
    assert_eq!(list(&ethernet.channels), "combined=4 other=3 rx=1 tx=2");
    assert_eq!(ethernet.wake_on_lan, Some(vec!["magic".into()]));
}

#[test]
fn a_pair_is_two_links() {
    let documents = "apiVersion: v1alpha1\nkind: VethConfig\nname: a0\nmtu: 1400\naddresses: [{address: 10.0.0.1/31}]\nroutes: [{destination: 10.9.0.0/16, gateway: 10.0.0.1, metric: 7, mtu: 1300, source: 10.0.0.0, table: \"100\"}]\npeer: {name: b0, up: false, multicast: false, addresses: [{address: 10.0.0.0/31}], routes: [{destination: 10.9.0.0/16, gateway: 10.0.0.1, metric: 7, mtu: 1300, source: 10.0.0.0, table: \"100\"}, {destination: 10.8.0.0/16, type: unreachable}]}\n";
    let plan = of_documents(documents, &[]);
    let (first, second) = (&plan.links["a0"], &plan.links["b0"]);
    let route = Route {
        destination: prefix("10.9.0.0/16").unwrap(),
        gateway: "10.0.0.1".parse().ok(),
        source: "10.0.0.0".parse().ok(),
        metric: 7,
        mtu: Some(1300),
        table: 100,
        kind: RouteKind::Unicast,
    };
    assert_eq!((&second.routes[0], second.routes[1].kind), (&route, RouteKind::Unreachable));
    assert_eq!(first.routes, [route]);
    assert_eq!(first.kind, Some(Kind::Veth { peer: "b0".into(), is_second: false }));
    assert_eq!(second.kind, Some(Kind::Veth { peer: "a0".into(), is_second: true }));
    assert_eq!((first.mtu, addresses(first)), (Some(1400), vec!["10.0.0.1/31".into()]));
    assert_eq!((second.is_down, second.multicast, second.routes.len()), (true, Some(false), 2));
    assert_eq!(addresses(second), ["10.0.0.0/31"]);
}

#[test]
fn an_address_has_the_priority_of_its_route() {
    let address = "[{address: 10.0.0.1/24, routePriority: 70}, {address: 10.0.1.1/24}]";
    let pair = format!("name: a0\naddresses: {address}\npeer: {{name: b0, addresses: {address}}}\n");
    for (kind, text, links) in [
        ("LinkConfig", format!("name: eth0\naddresses: {address}\n"), &["eth0"][..]),
        ("DummyLinkConfig", format!("name: d0\naddresses: {address}\n"), &["d0"]),
        ("VethConfig", pair, &["a0", "b0"]),
    ] {
        let found = of_documents(&format!("apiVersion: v1alpha1\nkind: {kind}\n{text}"), &["eth0"]);
        for link in links {
            let link = &found.links[*link];
            assert_eq!(addresses(link), ["10.0.0.1/24", "10.0.1.1/24"]);
            assert_eq!(link.priorities, [("10.0.0.1".parse().unwrap(), 70)].into(), "{kind}");
        }
    }
}

#[test]
fn sections_of_other_kinds() {
    let found = of_section("[{interface: dummy0, dummy: true, cidr: 192.0.2.1/32}]", &["eth0"]);
    assert_eq!(found.links["dummy0"].kind, Some(Kind::Dummy));
    assert_eq!(hardware("2e-3c-4d-5e-6f-70"), hardware("2e:3c:4d:5e:6f:70"));
    assert_eq!(hardware("2e:3c"), None);
}

/// What the kernel is told of one option, beside the mode.
fn option_of(plan: &Plan) -> Vec<InfoBond> {
    let Some(Kind::Bond { options, .. }) = &plan.links["bond0"].kind else { panic!("{plan:?}") };
    options[1..].to_vec()
}

#[test]
fn every_option_of_a_bonds_section_is_an_attribute() {
    use netlink_packet_route::link::*;
    let rows = [
        ("miimon: 100", InfoBond::MiiMon(100)),
        ("useCarrier: false", InfoBond::UseCarrier(false)),
        ("arpInterval: 50", InfoBond::ArpInterval(50)),
        ("arpIPTarget: [10.0.0.1]", InfoBond::ArpIpTarget(vec![[10, 0, 0, 1].into()])),
        ("arpValidate: filter-active", InfoBond::ArpValidate(BondArpValidate::FilterActive)),
        ("arpAllTargets: all", InfoBond::ArpAllTargets(BondArpAllTargets::All)),
        ("primaryReselect: failure", InfoBond::PrimaryReselect(BondPrimaryReselect::Failure)),
        ("failOverMac: follow", InfoBond::FailOverMac(BondFailOverMac::Follow)),
        ("xmitHashPolicy: encap2+3", InfoBond::XmitHashPolicy(BondXmitHashPolicy::Encap23)),
        ("resendIgmp: 3", InfoBond::ResendIgmp(3)),
        ("numPeerNotif: 4", InfoBond::NumPeerNotif(4)),
        ("allSlavesActive: 1", InfoBond::AllPortsActive(BondAllPortActive::Delivered)),
        ("minLinks: 2", InfoBond::MinLinks(2)),
        ("lpInterval: 5", InfoBond::LpInterval(5)),
        ("packetsPerSlave: 6", InfoBond::PacketsPerPort(6)),
        ("adSelect: count", InfoBond::AdSelect(BondAdSelect::Count)),
        ("adActorSysPrio: 65535", InfoBond::AdActorSysPrio(65535)),
        ("adUserPortKey: 7", InfoBond::AdUserPortKey(7)),
        ("adActorSystem: '02:00:00:00:00:01'", InfoBond::AdActorSystem([2, 0, 0, 0, 0, 1])),
        ("tlbDynamicLb: 1", InfoBond::TlbDynamicLb(true)),
        ("peerNotifyDelay: 8", InfoBond::PeerNotifDelay(8)),
    ];
    let of = |option: &str| {
        option_of(&of_section(
            &format!("[{{interface: bond0, bond: {{interfaces: [eth0], {option}}}}}]"),
            &["eth0"],
        ))
    };
    for (option, attribute) in rows {
        assert_eq!(of(option), [attribute], "{option}");
    }
    assert_eq!(of("mode: 802.3ad, lacpRate: fast"), [InfoBond::AdLacpRate(BondLacpRate::Fast)]);
    assert_eq!(
        of("miimon: 100, updelay: 200, downdelay: 300"),
        [InfoBond::MiiMon(100), InfoBond::UpDelay(200), InfoBond::DownDelay(300)]
    );
    // A number of 0 is one that is not given.
    assert_eq!(of("miimon: 0, minLinks: 0, adUserPortKey: 0, numPeerNotif: 0"), []);
    for (mode, kernel) in [
        ("balance-rr", BondMode::BalanceRr),
        ("active-backup", BondMode::ActiveBackup),
        ("balance-xor", BondMode::BalanceXor),
        ("broadcast", BondMode::Broadcast),
        ("802.3ad", BondMode::Ieee8023Ad),
        ("balance-tlb", BondMode::BalanceTlb),
        ("balance-alb", BondMode::BalanceAlb),
    ] {
        let text = format!("[{{interface: bond0, bond: {{interfaces: [eth0], mode: {mode}}}}}]");
        let Some(Kind::Bond { options, .. }) = of_section(&text, &["eth0"]).links["bond0"].kind.clone()
        else {
            panic!()
        };
        assert_eq!(options, [InfoBond::Mode(kernel)], "{mode}");
    }
}

#[test]
fn every_option_of_a_bonds_document_is_an_attribute() {
    use netlink_packet_route::link::*;
    let rows = [
        ("miimon: 100", InfoBond::MiiMon(100)),
        ("updelay: 200", InfoBond::UpDelay(200)),
        ("downdelay: 300", InfoBond::DownDelay(300)),
        ("useCarrier: true", InfoBond::UseCarrier(true)),
        ("arpInterval: 50", InfoBond::ArpInterval(50)),
        ("arpIpTargets: [10.0.0.1]", InfoBond::ArpIpTarget(vec![[10, 0, 0, 1].into()])),
        ("nsIp6Targets: ['fd00::1']", InfoBond::NsIp6Target(vec!["fd00::1".parse().unwrap()])),
        ("arpValidate: backup", InfoBond::ArpValidate(BondArpValidate::Backup)),
        ("arpAllTargets: any", InfoBond::ArpAllTargets(BondArpAllTargets::Any)),
        ("lacpRate: slow", InfoBond::AdLacpRate(BondLacpRate::Slow)),
        ("failOverMac: active", InfoBond::FailOverMac(BondFailOverMac::Active)),
        ("adSelect: bandwidth", InfoBond::AdSelect(BondAdSelect::Bandwidth)),
        ("adActorSysPrio: 9", InfoBond::AdActorSysPrio(9)),
        ("adUserPortKey: 7", InfoBond::AdUserPortKey(7)),
        ("adLACPActive: on", InfoBond::AdLacpActive(true)),
        ("primaryReselect: better", InfoBond::PrimaryReselect(BondPrimaryReselect::Better)),
        ("xmitHashPolicy: layer2+3", InfoBond::XmitHashPolicy(BondXmitHashPolicy::Layer23)),
        ("resendIGMP: 3", InfoBond::ResendIgmp(3)),
        ("minLinks: 2", InfoBond::MinLinks(2)),
        ("lpInterval: 5", InfoBond::LpInterval(5)),
        ("packetsPerSlave: 6", InfoBond::PacketsPerPort(6)),
        ("numPeerNotif: 4", InfoBond::NumPeerNotif(4)),
        ("tlbLogicalLb: 0", InfoBond::TlbDynamicLb(false)),
        ("allSlavesActive: 0", InfoBond::AllPortsActive(BondAllPortActive::Dropped)),
        ("peerNotifDelay: 8", InfoBond::PeerNotifDelay(8)),
        ("missedMax: 2", InfoBond::MissedMax(2)),
    ];
    for (option, attribute) in rows {
        let text = format!("apiVersion: v1alpha1\nkind: BondConfig\nname: bond0\nlinks: [eth0]\n{option}\n");
        assert_eq!(option_of(&of_documents(&text, &["eth0"])), [attribute], "{option}");
    }
}

#[test]
fn tunnels_of_both_forms_are_the_same() {
    let (key, peer) =
        ("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE=", "AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=");
    let section = format!(
        "[{{interface: wg0, mtu: 1420, addresses: [192.168.2.1/24], wireguard: {{privateKey: {key}, listenPort: 51111, firewallMark: 9, peers: [{{publicKey: {peer}, endpoint: 'far.example.org:51820', persistentKeepaliveInterval: 10s, allowedIPs: [192.168.2.0/24]}}]}}}}]"
    );
    let document = format!(
        "apiVersion: v1alpha1\nkind: WireguardConfig\nname: wg0\nmtu: 1420\naddresses: [{{address: 192.168.2.1/24}}]\nprivateKey: {key}\nlistenPort: 51111\nfirewallMark: 9\npeers: [{{publicKey: {peer}, endpoint: 'far.example.org:51820', persistentKeepaliveInterval: 10s, allowedIPs: [192.168.2.0/24]}}]\n"
    );
    let (first, second) = (of_section(&section, &["eth0"]), of_documents(&document, &["eth0"]));
    assert_eq!(first.links["wg0"], second.links["wg0"]);
    let Some(Kind::Wireguard(tunnel)) = &first.links["wg0"].kind else { panic!("{first:?}") };
    assert_eq!((tunnel.listen_port, tunnel.firewall_mark), (Some(51111), Some(9)));
    assert_eq!(tunnel.private_key.expose_secret(), key);
    let [peer] = &tunnel.peers[..] else { panic!() };
    assert_eq!((peer.public_key[0], peer.keepalive_seconds), (1, 10));
    assert_eq!(peer.endpoint.as_deref(), Some("far.example.org:51820"));
    assert_eq!(peer.allowed, [("192.168.2.0".parse().unwrap(), 24)]);
    assert!(peer.preshared_key.is_none());
    let shared = document.replace("endpoint:", &format!("presharedKey: {key}, endpoint:"));
    let found = of_documents(&shared, &["eth0"]);
    let Some(Kind::Wireguard(tunnel)) = &found.links["wg0"].kind else { panic!("{found:?}") };
    assert_eq!(tunnel.peers[0].preshared_key.as_ref().map(Secret::expose_secret), Some(key));
    assert!(!format!("{found:?}").contains("AAAA"), "no key is printed");
}

#[test]
fn every_document_of_a_link_says_what_all_links_have() {
    let common = "mtu: 1400\nup: false\nmulticast: false\naddresses: [{address: 10.0.0.2/24}]\nroutes: [{destination: 10.8.0.0/16, gateway: 10.0.0.1, source: 10.0.0.2, metric: 7, mtu: 1300, table: '100'}, {destination: 10.9.0.0/16, type: unreachable}]\n";
    let key = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE=";
    let hardware = "hardwareAddr: '2e:3c:4d:5e:6f:70'";
    let kinds = [
        ("LinkConfig", "eth0", String::new()),
        ("DummyLinkConfig", "dummy1", hardware.to_owned()),
        ("VLANConfig", "eth0.5", "vlanID: 5\nparent: eth0".to_owned()),
        ("BondConfig", "bond0", format!("links: [eth0]\n{hardware}")),
        ("BridgeConfig", "br0", format!("links: [eth0]\n{hardware}")),
        ("VRFConfig", "blue", format!("table: '7'\n{hardware}")),
        ("WireguardConfig", "wg0", format!("privateKey: {key}")),
    ];
    for (kind, name, own) in kinds {
        let text = format!("apiVersion: v1alpha1\nkind: {kind}\nname: {name}\n{own}\n{common}");
        let found = of_documents(&text, &["eth0"]);
        let link = &found.links[name];
        assert_eq!(
            (link.mtu, link.is_down, link.multicast, link.is_configured),
            (Some(1400), true, Some(false), true),
            "{kind}"
        );
        assert_eq!(addresses(link), ["10.0.0.2/24"], "{kind}");
        let route = |destination: &str| Route {
            destination: (destination.parse().unwrap(), 16),
            gateway: None,
            source: None,
            metric: 1024,
            mtu: None,
            table: 254,
            kind: RouteKind::Unicast,
        };
        let first = Route {
            gateway: Some("10.0.0.1".parse().unwrap()),
            source: Some("10.0.0.2".parse().unwrap()),
            metric: 7,
            mtu: Some(1300),
            table: 100,
            ..route("10.8.0.0")
        };
        assert_eq!(
            link.routes,
            [first, Route { kind: RouteKind::Unreachable, ..route("10.9.0.0") }],
            "{kind}"
        );
        let address = own.contains("hardwareAddr").then_some([0x2e, 0x3c, 0x4d, 0x5e, 0x6f, 0x70]);
        assert_eq!(link.hardware, address, "{kind}");
        assert!(!link.asks_dhcp(), "{kind}");
    }
}

#[test]
fn rules_are_for_the_family_of_their_addresses() {
    let document = |name: &str, rest: &str| {
        format!("apiVersion: v1alpha1\nkind: RoutingRuleConfig\nname: '{name}'\n{rest}\n")
    };
    let of = |name: &str, rest: &str| of_documents(&document(name, rest), &["eth0"]).rules;
    let [rule] = &of(
        "1000",
        "src: 10.0.0.0/8\ndst: 192.168.0.0/16\ntable: '100'\niifName: eth0\noifName: eth1\nfwMark: 3\nfwMask: 255",
    )[..] else {
        panic!()
    };
    let prefix = |text: &str, length| (text.parse().unwrap(), length);
    let wanted = Rule {
        priority: 1000,
        is_v6: false,
        source: Some(prefix("10.0.0.0", 8)),
        destination: Some(prefix("192.168.0.0", 16)),
        input: "eth0".into(),
        output: "eth1".into(),
        mark: 3,
        mask: 255,
        table: 100,
        action: RouteKind::Unicast,
    };
    assert_eq!(*rule, wanted);
    assert!(of("7", "src: 'fd00::/8'\ntable: '100'")[0].is_v6);
    for (word, action) in [
        ("blackhole", RouteKind::Blackhole),
        ("unreachable", RouteKind::Unreachable),
        ("prohibit", RouteKind::Prohibit),
    ] {
        let both = of("7", &format!("fwMark: 1\naction: {word}"));
        assert_eq!(
            both.iter().map(|rule| (rule.is_v6, rule.action)).collect::<Vec<_>>(),
            [(false, action), (true, action)]
        );
    }
}

#[test]
fn settings_of_the_client_are_said_in_sections_and_documents() {
    let found = of_section(
        "[{interface: eth0, dhcp: true, dhcpOptions: {routeMetric: 5}}, {interface: eth1, dhcp: true, dhcpOptions: {ipv4: false}}, {interface: eth2, vlans: [{vlanId: 7, dhcp: true, dhcpOptions: {routeMetric: 6}}]}]",
        &["eth0"],
    );
    let metric = |name: &str| found.links[name].dhcp.as_ref().map(|dhcp| dhcp.metric);
    assert_eq!(["eth0", "eth1", "eth2.7"].map(metric), [Some(5), None, Some(6)]);
    let document = |rest: &str| {
        let text = format!("apiVersion: v1alpha1\nkind: DHCPv4Config\nname: eth0\n{rest}\n");
        of_documents(&text, &["eth0"]).links["eth0"].dhcp.clone().unwrap()
    };
    assert_eq!(document(""), Dhcp::default());
    let wanted = Dhcp {
        metric: 7,
        takes_hostname: false,
        takes_routes: false,
        identifier: ClientIdentifier::Duid,
        duid: vec![0, 4, 171],
    };
    let all = "routeMetric: 7\nignoreHostname: true\nignoreRoutes: true\nclientIdentifier: duid\nduidRaw: '00:04:ab'";
    assert_eq!(document(all), wanted);
    assert_eq!(document("clientIdentifier: none").identifier, ClientIdentifier::None);
}

#[test]
fn settings_of_the_client_of_ipv6_are_said_in_sections_and_documents() {
    let found = of_section(
        "[{interface: eth0, dhcp: true, dhcpOptions: {ipv6: true, routeMetric: 5, duidv6: '000300010200'}}, {interface: eth1, dhcp: true}, {interface: eth2, vlans: [{vlanId: 7, dhcp: true, dhcpOptions: {ipv4: false, ipv6: true, duidv6: '00:03:01'}}]}]",
        &["eth0"],
    );
    let eth0 = Dhcp6 { metric: 5, tells_hostname: true, duid: vec![0, 3, 0, 1, 2, 0] };
    assert_eq!(found.links["eth0"].dhcp6, Some(eth0));
    assert_eq!(found.links["eth1"].dhcp6, None);
    let vlan = &found.links["eth2.7"];
    assert_eq!(
        (vlan.asks_dhcp(), vlan.dhcp6.as_ref().map(|it| it.duid.clone())),
        (false, Some(vec![0, 3, 1]))
    );
    let document = |rest: &str| {
        let text = format!("apiVersion: v1alpha1\nkind: DHCPv6Config\nname: eth0\n{rest}\n");
        of_documents(&text, &["eth0"]).links["eth0"].dhcp6.clone().unwrap()
    };
    assert_eq!(document(""), Dhcp6::default());
    let all = "routeMetric: 7\nignoreHostname: true\nclientIdentifier: duid\nduidRaw: '00:04:ab'";
    assert_eq!(document(all), Dhcp6 { metric: 7, tells_hostname: false, duid: vec![0, 4, 171] });
    assert_eq!(of_line("ip=eth0:dhcp6", None, &["eth0"]).links["eth0"].dhcp6, Some(Dhcp6::default()));
}

/// With a command line, and a section of the configuration if one is given.
fn of_line(line: &str, section: Option<&str>, names: &[&str]) -> Plan {
    let parameters = config::cmdline::CommandLine::parse(line).node();
    let text = section.map(|interfaces| format!("{HEAD}  network:\n    interfaces: {interfaces}\n"));
    let config = text.map(|text| config::parse(&text).unwrap_or_else(|error| panic!("{error}")));
    plan(&parameters, config.as_ref(), &[], &cards(names))
}

#[test]
fn the_command_line_names_addresses() {
    let cards = ["lo", "eth1", "eth0"];
    let found = of_line("ip=10.0.0.5::10.0.0.1:255.255.255.0 ip=[fd00::5]::[fd00::1]:64::eth1", None, &cards);
    assert_eq!(addresses(&found.links["eth0"]), ["10.0.0.5/24"]);
    assert_eq!(addresses(&found.links["eth1"]), ["fd00::5/64"]);
    let route = &found.links["eth1"].routes[0];
    assert_eq!((route.destination.1, route.metric), (0, 1024));
    assert!(route.destination.0.is_ipv6() && !found.links["eth0"].asks_dhcp());
    assert!(!found.links["eth0"].is_configured);
    // The configuration goes before it, and does not say twice what both say.
    let section = "[{interface: eth0, addresses: [10.0.0.5/24, 10.0.0.6/24], routes: [{gateway: 10.0.0.1, metric: 1024, mtu: 1400}]}]";
    let found = of_line("ip=10.0.0.5::10.0.0.1:255.255.255.0::eth0", Some(section), &cards);
    assert_eq!(addresses(&found.links["eth0"]), ["10.0.0.5/24", "10.0.0.6/24"]);
    assert_eq!(found.links["eth0"].routes.iter().map(|route| route.mtu).collect::<Vec<_>>(), [Some(1400)]);
}

#[test]
fn the_command_line_makes_links_and_leaves_some_alone() {
    let line = "bond=bond0:eth0,eth1:mode=802.3ad,lacp_rate=fast,miimon=100,primary=eth1:9000 vlan=bond0.9:bond0 ip=bond0.9:dhcp talos.network.interface.ignore=eth2 ip=eth3:auto6 ip=x";
    let found = of_line(line, None, &["eth0", "eth1", "eth2", "eth3"]);
    let Some(Kind::Bond { options, primary }) = &found.links["bond0"].kind else { panic!() };
    assert!(
        options.contains(&InfoBond::Mode(BondMode::Ieee8023Ad)) && options.contains(&InfoBond::MiiMon(100))
    );
    assert_eq!((primary.as_deref(), found.links["bond0"].mtu), (Some("eth1"), Some(9000)));
    assert_eq!(found.links["eth1"].controller.as_deref(), Some("bond0"));
    assert!(found.links["bond0.9"].asks_dhcp() && !found.links.contains_key("eth2"));
    assert_eq!(found.faults, ["kernel parameter ip=eth3:auto6: only `dhcp` and `dhcp6` are known"]);
    for (option, wanted) in
        [("mode=x", "`x` is no value of mode"), ("speed=1", "`speed` is no option of a bond")]
    {
        let found = of_line(&format!("bond=bond0:eth0:{option}"), None, &["eth0"]);
        assert_eq!(found.faults, [format!("kernel parameter bond=bond0: {wanted}")]);
    }
}

#[test]
fn each_option_of_a_bond_on_the_command_line_is_an_attribute() {
    let options = "mode=active-backup,miimon=1,updelay=2,downdelay=3,use_carrier=1,arp_interval=4,arp_ip_target=10.0.0.1,arp_validate=all,arp_all_targets=all,primary_reselect=better,fail_over_mac=follow,xmit_hash_policy=layer3+4,resend_igmp=5,min_links=6,lp_interval=7,packets_per_slave=8,lacp_rate=1,ad_select=count";
    let found = of_line(&format!("bond=bond0:eth0:{options}"), None, &["eth0"]);
    let Some(Kind::Bond { options: made, .. }) = &found.links["bond0"].kind else { panic!() };
    assert_eq!(made.len(), options.split(',').count());
    assert!(made.contains(&InfoBond::XmitHashPolicy(BondXmitHashPolicy::Layer34)));
}
