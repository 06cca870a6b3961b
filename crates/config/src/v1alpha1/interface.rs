//! Entries of `machine.network.interfaces`.

use super::{Bond, Bridge, Wireguard};
use crate::schema::section;

section! {
    /// Settings of one interface.
    Interface {
        /// Name of the link.
        interface "interface": String { example "eth0" };
        /// Properties to find the link by, instead of its name.
        device_selector "deviceSelector": Option<DeviceSelector> { newer true };
        /// Addresses with prefix length.
        addresses "addresses": Vec<String> { newer true, example "[10.0.0.201/8]" };
        /// One address with prefix length: the first generation's field.
        cidr "cidr": String { example "10.0.0.201/8" };
        /// Static routes.
        routes "routes": Vec<Route> {};
        /// The link is made of others.
        bond "bond": Option<Bond> {};
        /// The link joins others.
        bridge "bridge": Option<Bridge> { newer true };
        /// The link belongs to a bridge.
        bridge_port "bridgePort": Option<BridgePort> { newer true };
        /// VLANs on top of the link.
        vlans "vlans": Vec<Vlan> {};
        /// Size of the largest packet; 0 keeps the driver's.
        mtu "mtu": u32 { default "the link's own", example "1500" };
        /// Ask for an address by DHCP.
        dhcp "dhcp": Option<bool> {};
        /// Leave the interface alone.
        ignore "ignore": bool { default "false" };
        /// Make a link that leads nowhere.
        dummy "dummy": bool { default "false" };
        /// Settings of the DHCP client.
        dhcp_options "dhcpOptions": Option<DhcpOptions> {};
        /// The link is a WireGuard tunnel.
        wireguard "wireguard": Option<Wireguard> {};
        /// An address that control plane nodes share.
        vip "vip": Option<Vip> {};
    }
}

impl Interface {
    /// All static addresses, in either generation's field.
    pub fn static_addresses(&self) -> impl Iterator<Item = &str> {
        let one = (!self.cidr.is_empty()).then_some(&self.cidr);
        one.into_iter().chain(&self.addresses).map(String::as_str)
    }

    /// Whether an address is asked for by DHCP.
    pub fn uses_dhcp(&self) -> bool {
        self.dhcp == Some(true)
    }
}

section! {
    /// Properties to find a link by; all that are given must match. `*` stands for anything.
    DeviceSelector {
        /// Place on the bus.
        bus_path "busPath": String { newer true, example "00:*" };
        /// Hardware address.
        hardware_addr "hardwareAddr": String { newer true, example "\"*:f0:ab\"" };
        /// Hardware address that the link was made with.
        permanent_addr "permanentAddr": String { newer true, example "\"02:00:00:00:00:01\"" };
        /// Vendor and product of the PCI device.
        pci_id "pciID": String { newer true, example "\"8086:1533\"" };
        /// Kernel driver.
        driver "driver": String { newer true, example "virtio_net" };
        /// Physical links only.
        physical "physical": Option<bool> { newer true };
    }
}

section! {
    /// A static route.
    Route {
        /// Destination with prefix length; empty for the default route.
        network "network": String { default "the default route", example "0.0.0.0/0" };
        /// Address of the next hop.
        gateway "gateway": String { example "10.0.0.1" };
        /// Address that packets of this machine carry.
        source "source": String { newer true, example "10.0.0.201" };
        /// Priority; lower wins.
        metric "metric": u32 { default "10" };
        /// Size of the largest packet on this route.
        mtu "mtu": u32 { newer true, example "1500" };
    }
}

section! {
    /// Settings of the DHCP client.
    DhcpOptions {
        /// Priority of the routes that DHCP gives.
        route_metric "routeMetric": u32 { default "1024" };
        /// Ask for an IPv4 address.
        ipv4 "ipv4": Option<bool> { default "true" };
        /// Ask for an IPv6 address.
        ipv6 "ipv6": Option<bool> { default "false" };
        /// Identifier of this client, in hexadecimal.
        duidv6 "duidv6": String { newer true, example "\"00030001020000000001\"" };
    }
}

section! {
    /// A VLAN on top of a link.
    Vlan {
        /// Its number.
        vlan_id "vlanId": u16 { example "100" };
        /// Addresses with prefix length.
        addresses "addresses": Vec<String> { newer true, example "[192.168.2.10/28]" };
        /// One address with prefix length: the first generation's field.
        cidr "cidr": String { example "192.168.2.10/28" };
        /// Static routes.
        routes "routes": Vec<Route> {};
        /// Ask for an address by DHCP.
        dhcp "dhcp": Option<bool> {};
        /// Size of the largest packet.
        mtu "mtu": u32 { newer true, example "1496" };
        /// An address that control plane nodes share.
        vip "vip": Option<Vip> { newer true };
        /// Settings of the DHCP client.
        dhcp_options "dhcpOptions": Option<DhcpOptions> { newer true };
    }
}

section! {
    /// An address that control plane nodes share; one of them holds it at a time.
    Vip {
        /// The address.
        ip "ip": String { example "192.168.0.15" };
        /// Where the cloud must move it too.
        equinix_metal "equinixMetal": Option<VipToken> { newer true, later "addresses that a cloud moves" };
        /// Where the cloud must move it too.
        hcloud "hcloud": Option<VipToken> { newer true, later "addresses that a cloud moves" };
    }
}

section! {
    /// Access to a cloud's interface.
    VipToken {
        /// Its secret.
        api_token "apiToken": crate::Secret { newer true };
    }
}

section! {
    /// The link's place in a bridge.
    BridgePort {
        /// The bridge's link.
        master "master": String { newer true, example "br0" };
    }
}
