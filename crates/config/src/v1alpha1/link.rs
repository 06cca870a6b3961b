//! Kinds of links that are made: bonds, bridges, WireGuard tunnels.
//!
//! Source: docs/users/network.md.

use super::DeviceSelector;
use crate::{
    Secret,
    schema::{GoDuration, choice, section},
};

section! {
    /// Links that act as one.
    Bond {
        /// The links it is made of.
        interfaces "interfaces": Vec<String> { example "[eth0, eth1]" };
        /// The links it is made of, by their properties.
        device_selectors "deviceSelectors": Vec<DeviceSelector> { newer true };
        /// Addresses whose answer shows that a link works.
        arp_ip_target "arpIPTarget": Vec<String> { example "[10.0.0.1]" };
        /// How packets are shared out.
        mode "mode": Option<BondMode> { default "balance-rr" };
        /// What decides over which link a packet goes.
        xmit_hash_policy "xmitHashPolicy": Option<XmitHashPolicy> { default "layer2" };
        /// How often LACP speaks.
        lacp_rate "lacpRate": Option<LacpRate> { default "slow" };
        /// Hardware address that LACP speaks with.
        ad_actor_system "adActorSystem": String { example "\"02:00:00:00:00:01\"" };
        /// When ARP answers are checked.
        arp_validate "arpValidate": Option<ArpValidate> { default "none" };
        /// Whether any or all addresses must answer.
        arp_all_targets "arpAllTargets": Option<ArpAllTargets> { default "any" };
        /// The link that is preferred.
        primary "primary": String { example "eth0" };
        /// When the preferred link is taken again.
        primary_reselect "primaryReselect": Option<PrimaryReselect> { default "always" };
        /// Which link has the bond's hardware address.
        fail_over_mac "failOverMac": Option<FailOverMac> { default "none" };
        /// Which group of links LACP uses.
        ad_select "adSelect": Option<AdSelect> { default "stable" };
        /// Milliseconds between looks at the link.
        miimon "miimon": u32 { example "100" };
        /// Milliseconds until a link that came up is used.
        updelay "updelay": u32 { example "200" };
        /// Milliseconds until a link that went down is dropped.
        downdelay "downdelay": u32 { example "200" };
        /// Milliseconds between ARP questions.
        arp_interval "arpInterval": u32 {};
        /// How often IGMP is repeated after a change.
        resend_igmp "resendIgmp": u32 {};
        /// Links that must be up.
        min_links "minLinks": u32 {};
        /// Seconds between packets that teach switches.
        lp_interval "lpInterval": u32 {};
        /// Packets before the next link's turn.
        packets_per_slave "packetsPerSlave": u32 {};
        /// Announcements after a change.
        num_peer_notif "numPeerNotif": u8 {};
        /// Move flows between links by load: 0 or 1.
        tlb_dynamic_lb "tlbDynamicLb": u8 {};
        /// Take packets from links that rest: 0 or 1.
        all_slaves_active "allSlavesActive": u8 {};
        /// Ask the driver whether the link has a carrier.
        use_carrier "useCarrier": Option<bool> {};
        /// LACP's priority of this machine.
        ad_actor_sys_prio "adActorSysPrio": u16 { example "65535" };
        /// LACP's key of this machine.
        ad_user_port_key "adUserPortKey": u16 {};
        /// Milliseconds between announcements.
        peer_notify_delay "peerNotifyDelay": u32 {};
    }
}

choice! {
    /// How a bond shares packets out.
    BondMode {
        /// In turn.
        BalanceRr "balance-rr";
        /// One link at a time.
        ActiveBackup "active-backup";
        /// By a hash.
        BalanceXor "balance-xor";
        /// Over all.
        Broadcast "broadcast";
        /// LACP.
        Lacp "802.3ad";
        /// By load, when sending.
        BalanceTlb "balance-tlb";
        /// By load, in both directions.
        BalanceAlb "balance-alb";
    }
}

choice! {
    /// What decides over which link a packet goes.
    XmitHashPolicy {
        /// Hardware addresses.
        Layer2 "layer2";
        /// Addresses and ports.
        Layer34 "layer3+4";
        /// Hardware and IP addresses.
        Layer23 "layer2+3";
        /// Inner hardware and IP addresses.
        Encap23 "encap2+3";
        /// Inner addresses and ports.
        Encap34 "encap3+4";
    }
}

choice! {
    /// How often LACP speaks.
    LacpRate {
        /// Every 30 seconds.
        Slow "slow";
        /// Every second.
        Fast "fast";
    }
}

choice! {
    /// When ARP answers are checked.
    ArpValidate {
        /// Never.
        None "none";
        /// On the link in use.
        Active "active";
        /// On links that rest.
        Backup "backup";
        /// On all.
        All "all";
        /// Never, and other packets do not count either.
        Filter "filter";
        /// As `filter`, and checked on the link in use.
        FilterActive "filter-active";
        /// As `filter`, and checked on links that rest.
        FilterBackup "filter-backup";
    }
}

choice! {
    /// Whether any or all addresses must answer.
    ArpAllTargets {
        /// One is enough.
        Any "any";
        /// Each must.
        All "all";
    }
}

choice! {
    /// When the preferred link is taken again.
    PrimaryReselect {
        /// As soon as it is up.
        Always "always";
        /// If it is faster.
        Better "better";
        /// When the present one fails.
        Failure "failure";
    }
}

choice! {
    /// Which link has the bond's hardware address.
    FailOverMac {
        /// All.
        None "none";
        /// The bond takes that of the link in use.
        Active "active";
        /// The link in use takes the bond's.
        Follow "follow";
    }
}

choice! {
    /// Which group of links LACP uses.
    AdSelect {
        /// The first, until it is gone.
        Stable "stable";
        /// The fastest.
        Bandwidth "bandwidth";
        /// The largest.
        Count "count";
    }
}

section! {
    /// A link that joins others.
    Bridge {
        /// The links it joins.
        interfaces "interfaces": Vec<String> { newer true, example "[eth0, eth1]" };
        /// Spanning tree.
        stp "stp": Option<BridgeStp> { newer true };
        /// VLANs.
        vlan "vlan": Option<BridgeVlan> { newer true };
    }
}

section! {
    /// Spanning tree of a bridge.
    BridgeStp {
        /// Whether it runs.
        enabled "enabled": Option<bool> { newer true, default "false" };
    }
}

section! {
    /// VLANs of a bridge.
    BridgeVlan {
        /// Whether packets are sorted by their VLAN.
        filtering "vlanFiltering": Option<bool> { newer true, default "false" };
    }
}

section! {
    /// A WireGuard tunnel.
    Wireguard {
        /// Private key of this end, base64.
        private_key "privateKey": Secret {};
        /// UDP port; 0 lets the kernel choose.
        listen_port "listenPort": u16 { example "51820" };
        /// Mark of the packets sent.
        firewall_mark "firewallMark": u32 {};
        /// The other ends.
        peers "peers": Vec<WireguardPeer> {};
    }
}

section! {
    /// Another end of a WireGuard tunnel.
    WireguardPeer {
        /// Its public key, base64.
        public_key "publicKey": String { example "1EsxUygZo8/URWs18tqB5FW2cLVlaTA+lUisKIf8nh4=" };
        /// Where it answers.
        endpoint "endpoint": String { example "209.202.254.14:8172" };
        /// How often an empty packet keeps the way open.
        persistent_keepalive_interval "persistentKeepaliveInterval": Option<GoDuration> { default "never", example "25s" };
        /// Networks that it may send from and that are sent to it.
        allowed_ips "allowedIPs": Vec<String> { example "[192.168.88.0/24]" };
    }
}
