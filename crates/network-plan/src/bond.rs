//! A bond's options as the kernel takes them, from the section and from the document.
//!
//! Owns: which option is which attribute, and that an option that is not given is not sent: then the kernel's default holds.
//! Source: Documentation/networking/bonding.rst and include/uapi/linux/if_link.h of Linux.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use config::documents::{BondConfig, OnOff};
use config::v1alpha1::{
    AdSelect, ArpAllTargets, ArpValidate, Bond, BondMode, FailOverMac, LacpRate, PrimaryReselect,
    XmitHashPolicy,
};
use netlink_packet_route::link::{
    BondAdSelect, BondAllPortActive, BondArpAllTargets, BondArpValidate, BondFailOverMac, BondLacpRate,
    BondMode as KernelMode, BondPrimaryReselect, BondXmitHashPolicy, InfoBond,
};

/// Options of a section. A number of 0 is one that is not given.
pub(crate) fn of_section(bond: &Bond) -> Vec<InfoBond> {
    let given = |number: u32| (number != 0).then_some(number);
    let small = |number: u8| (number != 0).then_some(number);
    let addresses: Vec<IpAddr> = bond.arp_ip_target.iter().filter_map(|text| text.parse().ok()).collect();
    let wide = |number: u16| (number != 0).then_some(number);
    let options = [
        Some(InfoBond::Mode(mode(bond.mode.unwrap_or_default()))),
        given(bond.miimon).map(InfoBond::MiiMon),
        given(bond.updelay).map(InfoBond::UpDelay),
        given(bond.downdelay).map(InfoBond::DownDelay),
        bond.use_carrier.map(InfoBond::UseCarrier),
        given(bond.arp_interval).map(InfoBond::ArpInterval),
        targets(&addresses),
        bond.arp_validate.map(|it| InfoBond::ArpValidate(arp_validate(it))),
        bond.arp_all_targets.map(|it| InfoBond::ArpAllTargets(arp_all_targets(it))),
        bond.primary_reselect.map(|it| InfoBond::PrimaryReselect(primary_reselect(it))),
        bond.fail_over_mac.map(|it| InfoBond::FailOverMac(fail_over_mac(it))),
        bond.xmit_hash_policy.map(|it| InfoBond::XmitHashPolicy(xmit_hash_policy(it))),
        given(bond.resend_igmp).map(InfoBond::ResendIgmp),
        small(bond.num_peer_notif).map(InfoBond::NumPeerNotif),
        small(bond.all_slaves_active).map(|_| InfoBond::AllPortsActive(BondAllPortActive::Delivered)),
        given(bond.min_links).map(InfoBond::MinLinks),
        given(bond.lp_interval).map(InfoBond::LpInterval),
        given(bond.packets_per_slave).map(InfoBond::PacketsPerPort),
        bond.lacp_rate.map(|it| InfoBond::AdLacpRate(lacp_rate(it))),
        bond.ad_select.map(|it| InfoBond::AdSelect(ad_select(it))),
        wide(bond.ad_actor_sys_prio).map(InfoBond::AdActorSysPrio),
        wide(bond.ad_user_port_key).map(InfoBond::AdUserPortKey),
        config::hardware_bytes(&bond.ad_actor_system).map(InfoBond::AdActorSystem),
        small(bond.tlb_dynamic_lb).map(|_| InfoBond::TlbDynamicLb(true)),
        given(bond.peer_notify_delay).map(InfoBond::PeerNotifDelay),
    ];
    options.into_iter().flatten().collect()
}

/// Options of the kernel's command line, by the names of the kernel's module. `Err` names what the kernel does not know.
pub(crate) fn of_line(options: &[(String, String)]) -> Result<Vec<InfoBond>, String> {
    let one = |(name, text): &(String, String)| {
        let number = || text.parse::<u32>().ok();
        // A word, or the kernel's number of it.
        let word = |words: &[&str]| {
            words
                .iter()
                .position(|word| word == text)
                .map_or_else(|| text.parse().ok(), |at| u8::try_from(at).ok())
        };
        let option = match name.as_str() {
            // It is a member's name, and so comes when members do.
            "primary" => return Ok(None),
            "mode" => {
                let words = [
                    "balance-rr",
                    "active-backup",
                    "balance-xor",
                    "broadcast",
                    "802.3ad",
                    "balance-tlb",
                    "balance-alb",
                ];
                word(&words).map(|it| InfoBond::Mode(it.into()))
            }
            "miimon" => number().map(InfoBond::MiiMon),
            "updelay" => number().map(InfoBond::UpDelay),
            "downdelay" => number().map(InfoBond::DownDelay),
            "use_carrier" => number().map(|it| InfoBond::UseCarrier(it != 0)),
            "arp_interval" => number().map(InfoBond::ArpInterval),
            "arp_ip_target" => text.parse().ok().map(|it| InfoBond::ArpIpTarget(vec![it])),
            "arp_validate" => word(&["none", "active", "backup", "all"])
                .map(|it| InfoBond::ArpValidate(u32::from(it).into())),
            "arp_all_targets" => {
                word(&["any", "all"]).map(|it| InfoBond::ArpAllTargets(u32::from(it).into()))
            }
            "primary_reselect" => {
                word(&["always", "better", "failure"]).map(|it| InfoBond::PrimaryReselect(it.into()))
            }
            "fail_over_mac" => word(&["none", "active", "follow"]).map(|it| InfoBond::FailOverMac(it.into())),
            "xmit_hash_policy" => {
                word(&["layer2", "layer3+4", "layer2+3", "encap2+3", "encap3+4", "vlan+srcmac"])
                    .map(|it| InfoBond::XmitHashPolicy(it.into()))
            }
            "resend_igmp" => number().map(InfoBond::ResendIgmp),
            "min_links" => number().map(InfoBond::MinLinks),
            "lp_interval" => number().map(InfoBond::LpInterval),
            "packets_per_slave" => number().map(InfoBond::PacketsPerPort),
            "lacp_rate" => word(&["slow", "fast"]).map(|it| InfoBond::AdLacpRate(it.into())),
            "ad_select" => word(&["stable", "bandwidth", "count"]).map(|it| InfoBond::AdSelect(it.into())),
            _ => return Err(format!("`{name}` is no option of a bond")),
        };
        option.map(Some).ok_or_else(|| format!("`{text}` is no value of {name}"))
    };
    let found: Vec<Option<InfoBond>> = options.iter().map(one).collect::<Result<_, String>>()?;
    Ok(found.into_iter().flatten().collect())
}

/// Options of a document.
pub(crate) fn of_document(bond: &BondConfig) -> Vec<InfoBond> {
    let all_active = |number: u8| match number {
        0 => BondAllPortActive::Dropped,
        _ => BondAllPortActive::Delivered,
    };
    let options = [
        Some(InfoBond::Mode(mode(bond.bond_mode.unwrap_or_default()))),
        bond.miimon.map(InfoBond::MiiMon),
        bond.updelay.map(InfoBond::UpDelay),
        bond.downdelay.map(InfoBond::DownDelay),
        bond.use_carrier.map(InfoBond::UseCarrier),
        bond.arp_interval.map(InfoBond::ArpInterval),
        targets(&bond.arp_ip_targets),
        neighbours(&bond.ns_ip6_targets),
        bond.arp_validate.map(|it| InfoBond::ArpValidate(arp_validate(it))),
        bond.arp_all_targets.map(|it| InfoBond::ArpAllTargets(arp_all_targets(it))),
        bond.primary_reselect.map(|it| InfoBond::PrimaryReselect(primary_reselect(it))),
        bond.fail_over_mac.map(|it| InfoBond::FailOverMac(fail_over_mac(it))),
        bond.xmit_hash_policy.map(|it| InfoBond::XmitHashPolicy(xmit_hash_policy(it))),
        bond.resend_igmp.map(InfoBond::ResendIgmp),
        bond.num_peer_notif.map(InfoBond::NumPeerNotif),
        bond.all_slaves_active.map(|number| InfoBond::AllPortsActive(all_active(number))),
        bond.min_links.map(InfoBond::MinLinks),
        bond.lp_interval.map(InfoBond::LpInterval),
        bond.packets_per_slave.map(InfoBond::PacketsPerPort),
        bond.lacp_rate.map(|it| InfoBond::AdLacpRate(lacp_rate(it))),
        bond.ad_select.map(|it| InfoBond::AdSelect(ad_select(it))),
        bond.ad_actor_sys_prio.map(InfoBond::AdActorSysPrio),
        bond.ad_user_port_key.map(InfoBond::AdUserPortKey),
        bond.ad_lacp_active.map(|it| InfoBond::AdLacpActive(it == OnOff::On)),
        bond.tlb_logical_lb.map(|number| InfoBond::TlbDynamicLb(number != 0)),
        bond.peer_notif_delay.map(InfoBond::PeerNotifDelay),
        bond.missed_max.map(InfoBond::MissedMax),
    ];
    options.into_iter().flatten().collect()
}

/// Those of IPv4; of none nothing is said.
fn targets(addresses: &[IpAddr]) -> Option<InfoBond> {
    let found: Vec<Ipv4Addr> =
        addresses.iter().filter_map(|it| if let IpAddr::V4(it) = it { Some(*it) } else { None }).collect();
    (!found.is_empty()).then_some(InfoBond::ArpIpTarget(found))
}

/// The same of IPv6.
fn neighbours(addresses: &[IpAddr]) -> Option<InfoBond> {
    let found: Vec<Ipv6Addr> =
        addresses.iter().filter_map(|it| if let IpAddr::V6(it) = it { Some(*it) } else { None }).collect();
    (!found.is_empty()).then_some(InfoBond::NsIp6Target(found))
}

fn mode(mode: BondMode) -> KernelMode {
    match mode {
        BondMode::BalanceRr => KernelMode::BalanceRr,
        BondMode::ActiveBackup => KernelMode::ActiveBackup,
        BondMode::BalanceXor => KernelMode::BalanceXor,
        BondMode::Broadcast => KernelMode::Broadcast,
        BondMode::Lacp => KernelMode::Ieee8023Ad,
        BondMode::BalanceTlb => KernelMode::BalanceTlb,
        BondMode::BalanceAlb => KernelMode::BalanceAlb,
    }
}

fn arp_validate(validate: ArpValidate) -> BondArpValidate {
    match validate {
        ArpValidate::None => BondArpValidate::None,
        ArpValidate::Active => BondArpValidate::Active,
        ArpValidate::Backup => BondArpValidate::Backup,
        ArpValidate::All => BondArpValidate::All,
        ArpValidate::Filter => BondArpValidate::Filter,
        ArpValidate::FilterActive => BondArpValidate::FilterActive,
        ArpValidate::FilterBackup => BondArpValidate::FilterBackup,
    }
}

fn arp_all_targets(targets: ArpAllTargets) -> BondArpAllTargets {
    match targets {
        ArpAllTargets::Any => BondArpAllTargets::Any,
        ArpAllTargets::All => BondArpAllTargets::All,
    }
}

fn primary_reselect(reselect: PrimaryReselect) -> BondPrimaryReselect {
    match reselect {
        PrimaryReselect::Always => BondPrimaryReselect::Always,
        PrimaryReselect::Better => BondPrimaryReselect::Better,
        PrimaryReselect::Failure => BondPrimaryReselect::Failure,
    }
}

fn fail_over_mac(policy: FailOverMac) -> BondFailOverMac {
    match policy {
        FailOverMac::None => BondFailOverMac::None,
        FailOverMac::Active => BondFailOverMac::Active,
        FailOverMac::Follow => BondFailOverMac::Follow,
    }
}

fn xmit_hash_policy(policy: XmitHashPolicy) -> BondXmitHashPolicy {
    match policy {
        XmitHashPolicy::Layer2 => BondXmitHashPolicy::Layer2,
        XmitHashPolicy::Layer34 => BondXmitHashPolicy::Layer34,
        XmitHashPolicy::Layer23 => BondXmitHashPolicy::Layer23,
        XmitHashPolicy::Encap23 => BondXmitHashPolicy::Encap23,
        XmitHashPolicy::Encap34 => BondXmitHashPolicy::Encap34,
    }
}

fn lacp_rate(rate: LacpRate) -> BondLacpRate {
    match rate {
        LacpRate::Slow => BondLacpRate::Slow,
        LacpRate::Fast => BondLacpRate::Fast,
    }
}

fn ad_select(select: AdSelect) -> BondAdSelect {
    match select {
        AdSelect::Stable => BondAdSelect::Stable,
        AdSelect::Bandwidth => BondAdSelect::Bandwidth,
        AdSelect::Count => BondAdSelect::Count,
    }
}
