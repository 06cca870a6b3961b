//! A bond as netlink tells it, in the words of clients.
//!
//! Source: include/uapi/linux/if_link.h and if_bonding.h, Documentation/networking/bonding.rst of Linux.

use netlink_packet_route::link::InfoBond;
use runtime::store::BondStatus;

/// Words by the kernel's number, as clients know them.
const MODES: [&str; 7] =
    ["balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb"];
const HASH_POLICIES: [&str; 5] = ["layer2", "layer3+4", "layer2+3", "encap2+3", "encap3+4"];
const LACP_RATES: [&str; 2] = ["slow", "fast"];
const ARP_VALIDATES: [&str; 7] =
    ["none", "active", "backup", "all", "filter", "filter_active", "filter_backup"];
const ARP_ALL_TARGETS: [&str; 2] = ["any", "all"];
const PRIMARY_RESELECTS: [&str; 3] = ["always", "better", "failure"];
const FAIL_OVER_MACS: [&str; 3] = ["none", "active", "follow"];
const AD_SELECTS: [&str; 3] = ["stable", "bandwidth", "count"];

/// The word of a number. A number that newer kernels added stands for itself.
fn word(number: impl Into<u32>, words: &[&str]) -> String {
    let number = number.into();
    let known = usize::try_from(number).ok().and_then(|number| words.get(number));
    known.map_or_else(|| number.to_string(), |word| (*word).to_owned())
}

/// What a bond does.
pub(super) fn status(options: &[InfoBond]) -> BondStatus {
    let mut bond = BondStatus::default();
    options.iter().for_each(|option| set(&mut bond, option));
    bond
}

fn set(bond: &mut BondStatus, option: &InfoBond) {
    match option {
        InfoBond::Mode(mode) => bond.mode = word(u8::from(*mode), &MODES),
        InfoBond::XmitHashPolicy(policy) => bond.xmit_hash_policy = word(u8::from(*policy), &HASH_POLICIES),
        InfoBond::AdLacpRate(rate) => bond.lacp_rate = word(u8::from(*rate), &LACP_RATES),
        InfoBond::ArpValidate(which) => bond.arp_validate = word(u32::from(*which), &ARP_VALIDATES),
        InfoBond::ArpAllTargets(which) => bond.arp_all_targets = word(u32::from(*which), &ARP_ALL_TARGETS),
        InfoBond::Primary(index) => bond.primary = *index,
        InfoBond::PrimaryReselect(when) => {
            bond.primary_reselect = word(u8::from(*when), &PRIMARY_RESELECTS);
        }
        InfoBond::FailOverMac(which) => bond.fail_over_mac = word(u8::from(*which), &FAIL_OVER_MACS),
        InfoBond::AdSelect(which) => bond.ad_select = word(u8::from(*which), &AD_SELECTS),
        InfoBond::MiiMon(ms) => bond.miimon = *ms,
        InfoBond::UpDelay(ms) => bond.updelay = *ms,
        InfoBond::DownDelay(ms) => bond.downdelay = *ms,
        InfoBond::ArpInterval(ms) => bond.arp_interval = *ms,
        InfoBond::ResendIgmp(count) => bond.resend_igmp = *count,
        InfoBond::MinLinks(count) => bond.min_links = *count,
        InfoBond::LpInterval(seconds) => bond.lp_interval = *seconds,
        InfoBond::PacketsPerPort(count) => bond.packets_per_slave = *count,
        InfoBond::NumPeerNotif(count) => bond.num_peer_notif = (*count).into(),
        InfoBond::TlbDynamicLb(on) => bond.tlb_dynamic_lb = (*on).into(),
        InfoBond::AllPortsActive(which) => bond.all_slaves_active = u8::from(*which).into(),
        InfoBond::UseCarrier(on) => bond.use_carrier = *on,
        InfoBond::AdActorSysPrio(priority) => bond.ad_actor_sys_prio = (*priority).into(),
        InfoBond::AdUserPortKey(key) => bond.ad_user_port_key = (*key).into(),
        InfoBond::PeerNotifDelay(ms) => bond.peer_notify_delay = *ms,
        InfoBond::ArpIpTarget(targets) => {
            bond.arp_ip_targets = targets.iter().map(ToString::to_string).collect()
        }
        InfoBond::NsIp6Target(targets) => {
            bond.ns_ip6_targets = targets.iter().map(ToString::to_string).collect()
        }
        InfoBond::AdLacpActive(on) => {
            bond.ad_lacp_active = if *on { "on" } else { "off" }.to_owned();
        }
        InfoBond::MissedMax(count) => bond.missed_max = (*count).into(),
        // Which member carries packets now, and what LACP agreed on, the published message does not have.
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use netlink_packet_core::{Nla, NlaBuffer, Parseable};

    use super::*;

    /// An option as the kernel writes it.
    fn option(number: u16, value: &[u8]) -> InfoBond {
        let length = u16::try_from(4 + value.len()).unwrap();
        let bytes = [&length.to_ne_bytes()[..], &number.to_ne_bytes(), value].concat();
        let read = InfoBond::parse(&NlaBuffer::new_checked(bytes.as_slice()).unwrap()).unwrap();
        assert_eq!(read.kind(), number);
        read
    }

    #[test]
    fn every_option_has_its_word_or_its_number() {
        let four = |number: u32| number.to_ne_bytes().to_vec();
        for (number, value, key, shown) in [
            (1, vec![4], "mode", "802.3ad"),
            (1, vec![6], "mode", "balance-alb"),
            (1, vec![9], "mode", "'9'"),
            (14, vec![1], "xmitHashPolicy", "layer3+4"),
            (14, vec![5], "xmitHashPolicy", "'5'"),
            (21, vec![1], "lacpRate", "fast"),
            (9, four(5), "arpValidate", "filter_active"),
            (10, four(1), "arpAllTargets", "all"),
            (11, four(7), "primary", "7"),
            (12, vec![2], "primaryReselect", "failure"),
            (13, vec![2], "failOverMac", "follow"),
            (22, vec![1], "adSelect", "bandwidth"),
            (22, vec![3], "adSelect", "'3'"),
            (3, four(100), "miimon", "100"),
            (4, four(200), "updelay", "200"),
            (5, four(300), "downdelay", "300"),
            (7, four(400), "arpInterval", "400"),
            (15, four(2), "resendIgmp", "2"),
            (18, four(3), "minLinks", "3"),
            (19, four(4), "lpInterval", "4"),
            (20, four(5), "packetsPerSlave", "5"),
            (16, vec![6], "numPeerNotif", "6"),
            (27, vec![1], "tlbLogicalLb", "1"),
            (17, vec![1], "allSlavesActive", "1"),
            (6, vec![1], "useCarrier", "true"),
            (24, 65_535_u16.to_ne_bytes().to_vec(), "adActorSysPrio", "65535"),
            (25, 8_u16.to_ne_bytes().to_vec(), "adUserPortKey", "8"),
            (28, four(500), "peerNotifyDelay", "500"),
            (29, vec![1], "adLacpActive", "on"),
            (29, vec![0], "adLacpActive", "off"),
            (30, vec![9], "missedMax", "9"),
        ] {
            let yaml = serde_json::to_value(status(&[option(number, &value)])).unwrap();
            let found = yaml.get(key).unwrap_or_else(|| panic!("no {key}: {yaml}"));
            let found = match found.as_str() {
                Some(text) if text.parse::<u32>().is_ok() => format!("'{text}'"),
                Some(text) => text.to_owned(),
                None => found.to_string(),
            };
            assert_eq!(found, shown, "{key}");
        }
    }

    #[test]
    fn targets_are_addresses() {
        let v6: Ipv6Addr = "fd00::9".parse().unwrap();
        let bond = status(&[
            InfoBond::ArpIpTarget(vec![Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)]),
            InfoBond::NsIp6Target(vec![v6]),
        ]);
        assert_eq!(
            (bond.arp_ip_targets, bond.ns_ip6_targets),
            (vec!["10.0.0.1".to_owned(), "10.0.0.2".to_owned()], vec!["fd00::9".to_owned()])
        );
    }
}
