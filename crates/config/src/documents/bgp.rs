//! Documents for routes that neighbours tell: BGP.

use crate::schema::{GoDuration, section};
use std::net::IpAddr;

section! {
    /// A speaker of BGP.
    BGPInstanceConfig {
        /// Its name.
        name "name": String { newer true, example "main" };
        /// The VRF that it works in.
        vrf "vrf": String { newer true, example "vrf-red" };
        /// Number of its own autonomous system.
        local_asn "localASN": Option<u32> { newer true, example "65001" };
        /// Its identifier, an IPv4 address.
        router_id "routerID": String { newer true, example "10.0.0.1" };
        /// Address that packets by its routes carry.
        route_source "routeSource": String { newer true, example "10.0.0.1" };
        /// What it tells its neighbours.
        advertise "advertise": Vec<String> { newer true, example "[10.0.0.1/32]" };
        /// Use several equal routes.
        multipath "multipath": Option<bool> { newer true };
        /// How many of them.
        max_paths "maxPaths": Option<u32> { newer true };
        /// Give routes to the kernel.
        install_routes "installRoutes": Option<bool> { newer true };
        /// Routes of other speakers on this machine.
        import_routes "importRoutes": Vec<BgpImport> { newer true };
        /// Its neighbours.
        neighbors "neighbors": Vec<BgpNeighbor> { newer true };
    }
}

section! {
    /// Routes of another speaker on this machine.
    BgpImport {
        /// The speaker.
        bgp_instance "bgpInstance": String { newer true, example "main" };
        /// Which routes.
        prefixes "prefixes": Vec<String> { newer true, example "[10.0.0.0/8]" };
    }
}

section! {
    /// A neighbour that speaks BGP.
    BgpNeighbor {
        /// Its address.
        address "address": Option<IpAddr> { newer true };
        /// The link that it is found by, instead of its address.
        link "link": String { newer true, example "eth0" };
        /// Number of its autonomous system.
        peer_asn "peerASN": Option<u32> { newer true, example "65000" };
        /// Number of our autonomous system towards it.
        local_asn "localASN": Option<u32> { newer true, example "65001" };
        /// Wait for it to connect.
        passive "passive": Option<bool> { newer true };
        /// Time without a word after which it is gone.
        hold_time "holdTime": Option<GoDuration> { newer true, example "90s" };
        /// Quick detection that it is gone.
        bfd "bfd": Option<BgpBfd> { newer true };
    }
}

section! {
    /// Quick detection that a neighbour is gone.
    BgpBfd {
        /// Between two packets that are sent.
        transmit_interval "transmitInterval": Option<GoDuration> { newer true, example "300ms" };
        /// Between two packets that are expected.
        receive_interval "receiveInterval": Option<GoDuration> { newer true, example "300ms" };
        /// So many missing ones mean that it is gone.
        detect_multiplier "detectMultiplier": Option<u8> { newer true, example "3" };
    }
}
