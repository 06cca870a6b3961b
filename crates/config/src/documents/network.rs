//! Documents for names, resolvers, time, the firewall and the mesh.

use super::LinkAddress;
use crate::{
    schema::{GoDuration, choice, section},
    v1alpha1::HostDns,
};
use std::net::IpAddr;

section! {
    /// The host's name: fixed, or made from the machine's identity.
    HostnameConfig {
        /// A fixed name.
        hostname "hostname": String { newer true, example "node-1" };
        /// How a name is made.
        auto "auto": Option<AutoHostname> { newer true };
    }
}

choice! {
    /// How a host's name is made.
    AutoHostname {
        /// From the machine's identity.
        Stable "stable";
        /// Not at all.
        Off "off";
    }
}

section! {
    /// Resolvers and search domains.
    ResolverConfig {
        /// Replaces the resolvers that DHCP gave.
        nameservers "nameservers": Vec<Nameserver> { newer true };
        /// Domains that are tried behind short names.
        search_domains "searchDomains": Option<SearchDomains> { newer true };
        /// A resolver on this node.
        host_dns "hostDNS": Option<HostDns> { newer true };
    }
}

section! {
    /// A resolver.
    Nameserver {
        /// Its address.
        address "address": Option<IpAddr> { newer true };
        /// How it is asked.
        protocol "protocol": Option<ResolverProtocol> { newer true, default "Do53", later "encrypted requests to resolvers" };
        /// Name in its certificate.
        tls_server_name "tlsServerName": String { newer true, later "encrypted requests to resolvers", example "dns.example.org" };
    }
}

choice! {
    /// How a resolver is asked.
    ResolverProtocol {
        /// In the clear.
        Plain "Do53";
        /// By TLS.
        Tls "DoT";
        /// By HTTPS.
        Https "DoH";
    }
}

section! {
    /// Domains that are tried behind short names.
    SearchDomains {
        /// The domains.
        domains "domains": Vec<String> { newer true, example "[example.org]" };
        /// Do not derive one from the host's name.
        disable_default "disableDefault": Option<bool> { newer true };
    }
}

section! {
    /// A line of /etc/hosts; its name is the address.
    StaticHostConfig {
        /// The address.
        name "name": String { newer true, example "10.5.0.2" };
        /// Its names.
        hostnames "hostnames": Vec<String> { newer true, example "[example.org]" };
    }
}

section! {
    /// Time synchronisation.
    TimeSyncConfig {
        /// Whether the time is asked for.
        enabled "enabled": Option<bool> { newer true, default "true" };
        /// How long the boot waits for the time; 0 waits for ever.
        boot_timeout "bootTimeout": Option<GoDuration> { newer true, default "0s" };
        /// Time servers.
        ntp "ntp": Option<Ntp> { newer true };
        /// A clock of the machine instead of a server.
        ptp "ptp": Option<Ptp> { newer true, later "PTP" };
    }
}

section! {
    /// Time servers.
    Ntp {
        /// Their names, by preference.
        servers "servers": Vec<String> { newer true, example "[time.example.org]" };
        /// Whether the servers prove who they are.
        use_nts "useNTS": Option<bool> { newer true, later "NTS" };
    }
}

section! {
    /// A clock of the machine.
    Ptp {
        /// Its devices.
        devices "devices": Vec<String> { newer true, example "[/dev/ptp0]" };
    }
}

section! {
    /// What the firewall does with packets that no rule names.
    NetworkDefaultActionConfig {
        /// Let them in, or not.
        ingress "ingress": Option<FirewallAction> { newer true };
    }
}

choice! {
    /// What the firewall does.
    FirewallAction {
        /// Let in.
        Accept "accept";
        /// Drop.
        Block "block";
    }
}

section! {
    /// A rule of the firewall: who may come in where.
    NetworkRuleConfig {
        /// Its name.
        name "name": String { newer true, example "kubelet" };
        /// The ports.
        port_selector "portSelector": PortSelector { newer true };
        /// The senders that may; all others may not.
        ingress "ingress": Vec<IngressRule> { newer true };
    }
}

section! {
    /// Ports of one protocol.
    PortSelector {
        /// Numbers and ranges.
        ports "ports": Vec<String> { newer true, example "[10250, 8000-9000]" };
        /// The protocol.
        protocol "protocol": Option<PortProtocol> { newer true };
    }
}

choice! {
    /// A protocol.
    PortProtocol {
        /// TCP.
        Tcp "tcp";
        /// UDP.
        Udp "udp";
        /// ICMP.
        Icmp "icmp";
        /// ICMP of IPv6.
        Icmpv6 "icmpv6";
    }
}

section! {
    /// Senders that may come in.
    IngressRule {
        /// Their network.
        subnet "subnet": String { newer true, example "192.168.0.0/16" };
        /// Those of them that may not.
        except "except": String { newer true, example "192.168.0.3/32" };
    }
}

section! {
    /// The mesh between nodes.
    KubeSpanConfig {
        /// Whether it is used.
        enabled "enabled": Option<bool> { newer true, default "false" };
        /// Route pods and services through it.
        advertise_kubernetes_networks "advertiseKubernetesNetworks": Option<bool> { newer true };
        /// Send in the clear to a peer that is down.
        allow_down_peer_bypass "allowDownPeerBypass": Option<bool> { newer true };
        /// Learn further endpoints from peers.
        harvest_extra_endpoints "harvestExtraEndpoints": Option<bool> { newer true };
        /// Largest packet.
        mtu "mtu": Option<u32> { newer true, default "1420", example "1420" };
        /// What is announced.
        filters "filters": Option<crate::v1alpha1::KubeSpanFilters> { newer true };
    }
}

section! {
    /// Additional endpoints of this node in the mesh.
    KubeSpanEndpointsConfig {
        /// Addresses with port.
        extra_announced_endpoints "extraAnnouncedEndpoints": Vec<String> { newer true, example "[\"3.4.5.6:51820\"]" };
    }
}

section! {
    /// A test whether a service can be reached.
    TCPProbeConfig {
        /// Its name.
        name "name": String { newer true, example "proxy-check" };
        /// Time between two tries.
        interval "interval": Option<GoDuration> { newer true, default "1s" };
        /// Failures until it counts.
        failure_threshold "failureThreshold": u32 { newer true };
        /// Host and port.
        endpoint "endpoint": String { newer true, example "\"proxy.example.org:3128\"" };
        /// Time until a try has failed.
        timeout "timeout": Option<GoDuration> { newer true, default "10s" };
    }
}

section! {
    /// A look whether a server answers by HTTP.
    HTTPProbeConfig {
        /// Its name.
        name "name": String { newer true, example "proxy-check" };
        /// Time between two tries.
        interval "interval": Option<GoDuration> { newer true, default "1s" };
        /// Failures until it counts.
        failure_threshold "failureThreshold": u32 { newer true };
        /// What is asked for.
        url "url": String { newer true, example "\"https://proxy.example.org/\"" };
        /// Time until a try has failed.
        timeout "timeout": Option<GoDuration> { newer true, default "10s" };
    }
}

section! {
    /// Packets to this network are dropped; its name is the network.
    BlackholeRouteConfig {
        /// The network.
        name "name": String { newer true, example "169.254.1.1/32" };
        /// Priority; lower wins.
        metric "metric": Option<u32> { newer true, default "1024" };
    }
}

section! {
    /// A rule that chooses a routing table; its name is the priority.
    RoutingRuleConfig {
        /// The priority; lower is asked first. The kernel has 0, 32766 and 32767, KubeSpan 32500.
        name "name": String { newer true, example "\"1000\"" };
        /// Senders.
        src "src": String { newer true, example "10.0.0.0/8" };
        /// Receivers.
        dst "dst": String { newer true, example "192.168.0.0/16" };
        /// The table.
        table "table": String { newer true, example "\"100\"" };
        /// What is done.
        action "action": Option<RuleAction> { newer true, default "unicast" };
        /// The link that packets come in by.
        iif_name "iifName": String { newer true, example "eth0" };
        /// The link that packets go out by.
        oif_name "oifName": String { newer true, example "eth1" };
        /// The mark of packets.
        fw_mark "fwMark": u32 { newer true };
        /// The bits of the mark that count.
        fw_mask "fwMask": u32 { newer true };
    }
}

choice! {
    /// What a routing rule does.
    RuleAction {
        /// Look into the table.
        Unicast "unicast";
        /// Drop.
        Blackhole "blackhole";
        /// Answer that there is no way.
        Unreachable "unreachable";
        /// Answer that it is forbidden.
        Prohibit "prohibit";
    }
}

section! {
    /// An address that control plane nodes share; its name is the address.
    Layer2VIPConfig {
        /// The address.
        name "name": String { newer true, example "192.168.0.15" };
        /// The link it is on.
        link "link": String { newer true, example "eth0" };
    }
}

section! {
    /// An address that control plane nodes share and that a cloud moves; its name is the address.
    HCloudVIPConfig {
        /// The address.
        name "name": String { newer true, example "192.168.0.15" };
        /// The link it is on.
        link "link": String { newer true, example "eth0" };
        /// Secret of the cloud's interface.
        api_token "apiToken": crate::Secret { newer true };
    }
}

section! {
    /// Links that share a routing table of their own.
    VRFConfig {
        /// Name of the link that stands for it.
        name "name": String { newer true, example "vrf-blue" };
        /// Its hardware address.
        hardware_addr "hardwareAddr": String { newer true, example "\"2e:3c:4d:5e:6f:70\"" };
        /// The links.
        links "links": Vec<String> { newer true, example "[eth1]" };
        /// The table.
        table "table": String { newer true, example "\"123\"" };
        /// Bring the link up.
        up "up": Option<bool> { newer true, default "true" };
        /// Size of the largest packet.
        mtu "mtu": Option<u32> { newer true };
        /// Its addresses.
        addresses "addresses": Vec<LinkAddress> { newer true };
        /// Its routes.
        routes "routes": Vec<super::LinkRoute> { newer true };
        /// Take packets for many.
        multicast "multicast": Option<bool> { newer true };
    }
}
