//! Documents for links. Each begins with the link's name and ends with what all links have.

use crate::{
    Secret,
    schema::{GoDuration, choice, section},
    v1alpha1::{
        AdSelect, ArpAllTargets, ArpValidate, BondMode, FailOverMac, LacpRate, PrimaryReselect,
        XmitHashPolicy,
    },
};
use std::{collections::BTreeMap, net::IpAddr};

/// A section with what every link that this machine makes has behind its own fields.
macro_rules! link {
    ($(#[doc = $doc:literal])+ $name:ident { $($own:tt)* }) => {
        section! {
            $(#[doc = $doc])+
            $name {
                $($own)*
                /// Bring the link up.
                up "up": Option<bool> { newer true, default "true" };
                /// Size of the largest packet.
                mtu "mtu": Option<u32> { newer true };
                /// Its addresses.
                addresses "addresses": Vec<LinkAddress> { newer true };
                /// Its routes.
                routes "routes": Vec<LinkRoute> { newer true };
                /// Take packets for many.
                multicast "multicast": Option<bool> { newer true };
            }
        }
    };
}

/// How an address is asked for, the same for both families.
macro_rules! dhcp {
    ($(#[doc = $doc:literal] $name:ident { $($own:tt)* })+) => {$(
        section! {
            #[doc = $doc]
            $name {
                /// Name of the link.
                name "name": String { newer true, example "enp0s3" };
                /// Priority of the routes that DHCP gives.
                route_metric "routeMetric": Option<u32> { newer true, default "1024" };
                /// Do not take the host's name from the answer.
                ignore_hostname "ignoreHostname": Option<bool> { newer true };
                $($own)*
                /// Who the client says it is.
                client_identifier "clientIdentifier": Option<ClientIdentifier> { newer true, default "mac" };
                /// Its identifier, in hexadecimal.
                duid_raw "duidRaw": String { newer true, example "\"00:01:00:01:23:45:67:89\"" };
            }
        }
    )+};
}

section! {
    /// An address of a link.
    LinkAddress {
        /// The address, with prefix length.
        address "address": String { newer true, example "192.168.1.100/24" };
        /// Priority of the route that comes with it.
        route_priority "routePriority": Option<u32> { newer true, example "100" };
    }
}

section! {
    /// A route by a link.
    LinkRoute {
        /// Destination with prefix length; absent for the default route.
        destination "destination": String { newer true, example "10.0.0.0/8" };
        /// Address of the next hop.
        gateway "gateway": Option<IpAddr> { newer true };
        /// Address that packets of this machine carry.
        source "source": Option<IpAddr> { newer true };
        /// Priority; lower wins.
        metric "metric": Option<u32> { newer true, default "1024" };
        /// Size of the largest packet on this route.
        mtu "mtu": Option<u32> { newer true };
        /// The routing table.
        table "table": String { newer true, example "main" };
        /// Kind of route.
        kind "type": String { newer true, example "unicast" };
    }
}

section! {
    /// A physical link.
    LinkConfig {
        /// Name of the link.
        name "name": String { newer true, example "enp0s2" };
        /// Bring the link up.
        up "up": Option<bool> { newer true, default "true" };
        /// Size of the largest packet.
        mtu "mtu": Option<u32> { newer true };
        /// Its addresses.
        addresses "addresses": Vec<LinkAddress> { newer true };
        /// Its routes.
        routes "routes": Vec<LinkRoute> { newer true };
        /// Take packets for many.
        multicast "multicast": Option<bool> { newer true };
    }
}

section! {
    /// A further name for a link that is found by its properties.
    LinkAliasConfig {
        /// The name.
        name "name": String { newer true, example "net0" };
        /// How the link is found.
        selector "selector": LinkMatcher { newer true };
    }
}

section! {
    /// An expression in CEL that is true for one card.
    LinkMatcher {
        /// The expression.
        expression "match": String { newer true, example "'mac(link.permanent_addr) == \"02:00:00:00:00:01\"'" };
    }
}

section! {
    /// An expression in CEL that is true for what is meant.
    Matcher {
        /// The expression.
        expression "match": String { newer true, example "'driver == \"virtio\"'" };
    }
}

link! {
    /// A link that leads nowhere.
    DummyLinkConfig {
        /// Name of the link.
        name "name": String { newer true, example "dummy1" };
        /// Its hardware address.
        hardware_addr "hardwareAddr": String { newer true, example "\"2e:3c:4d:5e:6f:70\"" };
    }
}

link! {
    /// A pair of links, of which one sends what the other gets.
    VethConfig {
        /// Name of the link.
        name "name": String { newer true, example "veth0" };
        /// The other one.
        peer "peer": Option<VethPeer> { newer true };
    }
}

link! {
    /// The other link of a pair.
    VethPeer {
        /// Name of the link.
        name "name": String { newer true, example "veth1" };
    }
}

link! {
    /// A VLAN on top of a link.
    VLANConfig {
        /// Name of the link.
        name "name": String { newer true, example "enp0s3.34" };
        /// Its number.
        vlan_id "vlanID": u16 { newer true, example "34" };
        /// The protocol.
        vlan_mode "vlanMode": Option<VlanMode> { newer true, default "802.1q" };
        /// The link it is on.
        parent "parent": String { newer true, example "enp0s3" };
    }
}

choice! {
    /// The protocol of a VLAN.
    VlanMode {
        /// The usual one.
        Dot1q "802.1q";
        /// VLANs inside VLANs.
        Dot1ad "802.1ad";
    }
}

link! {
    /// Links that act as one.
    BondConfig {
        /// Name of the link.
        name "name": String { newer true, example "bond0" };
        /// Its hardware address.
        hardware_addr "hardwareAddr": String { newer true, example "\"2e:3c:4d:5e:6f:70\"" };
        /// The links it is made of.
        links "links": Vec<String> { newer true, example "[enp0s2, enp0s3]" };
        /// How packets are shared out.
        bond_mode "bondMode": Option<BondMode> { newer true };
        /// Milliseconds between looks at the link.
        miimon "miimon": Option<u32> { newer true, example "100" };
        /// Milliseconds until a link that came up is used.
        updelay "updelay": Option<u32> { newer true, example "200" };
        /// Milliseconds until a link that went down is dropped.
        downdelay "downdelay": Option<u32> { newer true, example "200" };
        /// Ask the driver whether the link has a carrier.
        use_carrier "useCarrier": Option<bool> { newer true };
        /// What decides over which link a packet goes.
        xmit_hash_policy "xmitHashPolicy": Option<XmitHashPolicy> { newer true };
        /// Milliseconds between ARP questions.
        arp_interval "arpInterval": Option<u32> { newer true };
        /// Addresses whose answer shows that a link works.
        arp_ip_targets "arpIpTargets": Vec<IpAddr> { newer true };
        /// The same, with IPv6.
        ns_ip6_targets "nsIp6Targets": Vec<IpAddr> { newer true, example "[\"fd00::1\"]" };
        /// When ARP answers are checked.
        arp_validate "arpValidate": Option<ArpValidate> { newer true };
        /// Whether any or all addresses must answer.
        arp_all_targets "arpAllTargets": Option<ArpAllTargets> { newer true };
        /// How often LACP speaks.
        lacp_rate "lacpRate": Option<LacpRate> { newer true };
        /// Which link has the bond's hardware address.
        fail_over_mac "failOverMac": Option<FailOverMac> { newer true };
        /// Which group of links LACP uses.
        ad_select "adSelect": Option<AdSelect> { newer true };
        /// LACP's priority of this machine.
        ad_actor_sys_prio "adActorSysPrio": Option<u16> { newer true, example "65535" };
        /// LACP's key of this machine.
        ad_user_port_key "adUserPortKey": Option<u16> { newer true };
        /// Whether LACP speaks by itself.
        ad_lacp_active "adLACPActive": Option<OnOff> { newer true };
        /// When the preferred link is taken again.
        primary_reselect "primaryReselect": Option<PrimaryReselect> { newer true };
        /// How often IGMP is repeated after a change.
        resend_igmp "resendIGMP": Option<u32> { newer true };
        /// Links that must be up.
        min_links "minLinks": Option<u32> { newer true };
        /// Seconds between packets that teach switches.
        lp_interval "lpInterval": Option<u32> { newer true };
        /// Packets before the next link's turn.
        packets_per_slave "packetsPerSlave": Option<u32> { newer true };
        /// Announcements after a change.
        num_peer_notif "numPeerNotif": Option<u8> { newer true };
        /// Move flows between links by load: 0 or 1.
        tlb_logical_lb "tlbLogicalLb": Option<u8> { newer true };
        /// Take packets from links that rest: 0 or 1.
        all_slaves_active "allSlavesActive": Option<u8> { newer true };
        /// Milliseconds between announcements.
        peer_notif_delay "peerNotifDelay": Option<u32> { newer true };
        /// Milliseconds without a carrier that are overlooked.
        missed_max "missedMax": Option<u8> { newer true };
    }
}

choice! {
    /// Whether something is done.
    OnOff {
        /// It is.
        On "on";
        /// It is not.
        Off "off";
    }
}

link! {
    /// A link that joins others.
    BridgeConfig {
        /// Name of the link.
        name "name": String { newer true, example "br0" };
        /// Its hardware address.
        hardware_addr "hardwareAddr": String { newer true, example "\"2e:3c:4d:5e:6f:70\"" };
        /// The links it joins.
        links "links": Vec<String> { newer true, example "[eno1, eno5]" };
        /// Spanning tree.
        stp "stp": Option<BridgeSwitch> { newer true };
        /// VLANs.
        vlan "vlan": Option<BridgeFilter> { newer true };
    }
}

section! {
    /// Spanning tree of a bridge.
    BridgeSwitch {
        /// Whether it runs.
        enabled "enabled": Option<bool> { newer true };
    }
}

section! {
    /// VLANs of a bridge.
    BridgeFilter {
        /// Whether packets are sorted by their VLAN.
        filtering "filtering": Option<bool> { newer true };
    }
}

link! {
    /// A WireGuard tunnel.
    WireguardConfig {
        /// Name of the link.
        name "name": String { newer true, example "wg.int" };
        /// Private key of this end, base64.
        private_key "privateKey": Secret { newer true };
        /// UDP port.
        listen_port "listenPort": Option<u16> { newer true, example "51820" };
        /// Mark of the packets sent.
        firewall_mark "firewallMark": Option<u32> { newer true };
        /// The other ends.
        peers "peers": Vec<TunnelPeer> { newer true };
    }
}

section! {
    /// Another end of a WireGuard tunnel.
    TunnelPeer {
        /// Its public key, base64.
        public_key "publicKey": String { newer true, example "1EsxUygZo8/URWs18tqB5FW2cLVlaTA+lUisKIf8nh4=" };
        /// A key that both ends share, base64.
        preshared_key "presharedKey": Option<Secret> { newer true };
        /// Where it answers.
        endpoint "endpoint": String { newer true, example "\"10.3.4.3:2222\"" };
        /// How often an empty packet keeps the way open.
        persistent_keepalive_interval "persistentKeepaliveInterval": Option<GoDuration> { newer true };
        /// Networks that it may send from and that are sent to it.
        allowed_ips "allowedIPs": Vec<String> { newer true, example "[192.168.1.0/24]" };
    }
}

section! {
    /// Settings of an Ethernet link's hardware.
    EthernetConfig {
        /// Name of the link.
        name "name": String { newer true, example "enp0s1" };
        /// Features to switch, by the kernel's names.
        features "features": BTreeMap<String, bool> { newer true, example "{tx-checksum-ipv4: true}" };
        /// Sizes of the queues.
        rings "rings": Option<EthernetRings> { newer true };
        /// Numbers of the queues.
        channels "channels": Option<EthernetChannels> { newer true };
        /// What wakes the machine.
        wake_on_lan "wakeOnLan": Vec<String> { newer true, example "[magic]" };
    }
}

section! {
    /// Sizes of an Ethernet link's queues.
    EthernetRings {
        /// For receiving.
        rx "rx": Option<u32> { newer true };
        /// For sending.
        tx "tx": Option<u32> { newer true };
        /// For receiving small packets.
        rx_mini "rx-mini": Option<u32> { newer true };
        /// For receiving large packets.
        rx_jumbo "rx-jumbo": Option<u32> { newer true };
        /// Bytes of a buffer for receiving.
        rx_buf_len "rx-buf-len": Option<u32> { newer true };
        /// Bytes of an entry of the completion queue.
        cqe_size "cqe-size": Option<u32> { newer true };
        /// Let the processor write packets itself.
        tx_push "tx-push": Option<bool> { newer true };
        /// Let the device write packets itself.
        rx_push "rx-push": Option<bool> { newer true };
        /// Bytes that the processor may write itself.
        tx_push_buf_len "tx-push-buf-len": Option<u32> { newer true };
        /// Whether headers and data are split.
        tcp_data_split "tcp-data-split": Option<bool> { newer true };
    }
}

section! {
    /// Numbers of an Ethernet link's queues.
    EthernetChannels {
        /// For receiving.
        rx "rx": Option<u32> { newer true };
        /// For sending.
        tx "tx": Option<u32> { newer true };
        /// For other things.
        other "other": Option<u32> { newer true };
        /// For both directions.
        combined "combined": Option<u32> { newer true };
    }
}

dhcp! {
    /// Ask for an IPv4 address on a link.
    DHCPv4Config {
        /// Do not take routes from the answer.
        ignore_routes "ignoreRoutes": Option<bool> { newer true };
    }
    /// Ask for an IPv6 address on a link.
    DHCPv6Config {}
}

choice! {
    /// Who a DHCP client says it is.
    ClientIdentifier {
        /// The hardware address.
        Mac "mac";
        /// An identifier.
        Duid "duid";
        /// Nobody.
        None "none";
    }
}
