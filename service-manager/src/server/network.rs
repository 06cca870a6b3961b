//! `network.NetworkService`: routes and interfaces as the first client generation reads them.
//!
//! Source: net.Flags of Go (flags are its bit mask, whatever the field's type says); crates/api/proto.

use std::fs;
use std::net::IpAddr;
use std::sync::Arc;

use api::proto::network as proto;
use api::proto::network::network_service_server::NetworkService;
use runtime::store::{ADDRESS_STATUS, LINK_STATUS, LinkStatus, ROUTE_STATUS, RouteStatus, Spec};
use tonic::{Request, Response, Status};

use crate::node::Node;

/// The kernel's interface flags (linux/if.h) and Go's bits for them.
const FLAGS: [(u32, i32); 5] = [(0x1, 1), (0x2, 2), (0x8, 4), (0x10, 8), (0x1000, 16)];

/// The service.
pub(crate) struct Network {
    pub(crate) node: Arc<Node>,
}

#[tonic::async_trait]
impl NetworkService for Network {
    async fn routes(&self, _request: Request<()>) -> Result<Response<proto::RoutesResponse>, Status> {
        let all = self.node.runtime.store.list(&ROUTE_STATUS);
        let specs = all.iter().filter_map(|resource| match &resource.spec {
            // The older call lists what its clients print: where packets go that leave the node.
            Spec::RouteStatus(route) if &*route.table == "main" => Some(route),
            _ => None,
        });
        let answer = proto::Routes { metadata: None, routes: specs.map(route).collect() };
        Ok(Response::new(proto::RoutesResponse { messages: vec![answer] }))
    }

    async fn interfaces(&self, _request: Request<()>) -> Result<Response<proto::InterfacesResponse>, Status> {
        let all = self.node.runtime.store.list(&LINK_STATUS);
        let mut interfaces: Vec<_> = all
            .iter()
            .filter_map(|resource| match &resource.spec {
                Spec::LinkStatus(link) => Some(interface(&self.node, &resource.metadata.id, link)),
                _ => None,
            })
            .collect();
        interfaces.sort_by_key(|interface| interface.index);
        let answer = proto::Interfaces { metadata: None, interfaces };
        Ok(Response::new(proto::InterfacesResponse { messages: vec![answer] }))
    }
}

fn interface(node: &Node, name: &str, link: &LinkStatus) -> proto::Interface {
    let addresses = node.runtime.store.list(&ADDRESS_STATUS);
    let ipaddress = addresses.iter().filter_map(|resource| match &resource.spec {
        Spec::AddressStatus(address) if address.link_index == link.index => Some(address.address.clone()),
        _ => None,
    });
    proto::Interface {
        index: link.index,
        mtu: link.mtu,
        name: name.to_owned(),
        hardwareaddr: link.hardware_addr.clone(),
        flags: go_flags(node, name),
        ipaddress: ipaddress.collect(),
    }
}

fn go_flags(node: &Node, name: &str) -> i32 {
    let text =
        fs::read_to_string(node.runtime.path("/sys/class/net").join(name).join("flags")).unwrap_or_default();
    let kernel = u32::from_str_radix(text.trim().trim_start_matches("0x"), 16).unwrap_or(0);
    FLAGS.iter().filter(|(bit, _)| kernel & bit != 0).fold(0, |all, (_, go)| all | go)
}

fn route(route: &RouteStatus) -> proto::Route {
    let four = route.family == "inet4";
    let nothing = if four { "0.0.0.0/0" } else { "::/0" };
    let text = |text: &str| if text.is_empty() { nothing.to_owned() } else { text.to_owned() };
    proto::Route {
        interface: route.out_link_name.clone(),
        destination: text(&route.dst),
        gateway: gateway(&route.gateway, four),
        metric: route.priority,
        scope: scope(&route.scope),
        source: route.src.clone(),
        family: if four { proto::AddressFamily::AfInet } else { proto::AddressFamily::AfInet6 }.into(),
        protocol: protocol(&route.protocol).into(),
        flags: 0,
    }
}

/// Always with a /32 behind it, which is what the client cuts off, also for IPv6.
fn gateway(text: &str, four: bool) -> String {
    match text.parse::<IpAddr>() {
        Ok(address) => format!("{address}/32"),
        Err(_) if four => "0.0.0.0/32".to_owned(),
        Err(_) => "::/32".to_owned(),
    }
}

/// Numbers of rtnetlink(7).
fn scope(name: &str) -> u32 {
    match name {
        "site" => 200,
        "link" => 253,
        "host" => 254,
        "nowhere" => 255,
        _ => 0,
    }
}

fn protocol(name: &str) -> proto::RouteProtocol {
    match name {
        "redirect" => proto::RouteProtocol::RtprotRedirect,
        "kernel" => proto::RouteProtocol::RtprotKernel,
        "boot" => proto::RouteProtocol::RtprotBoot,
        "static" => proto::RouteProtocol::RtprotStatic,
        "ra" => proto::RouteProtocol::RtprotRa,
        "dhcp" => proto::RouteProtocol::RtprotDhcp,
        _ => proto::RouteProtocol::RtprotUnspec,
    }
}

#[cfg(test)]
mod tests {
    use runtime::store::AddressStatus;

    use super::*;

    #[test]
    fn routes_look_as_the_first_generation_expects() {
        let default = RouteStatus {
            family: "inet4",
            dst: String::new(),
            src: "10.0.2.15".into(),
            gateway: "10.0.2.2".into(),
            out_link_name: "eth0".into(),
            table: "main".into(),
            priority: 1024,
            scope: "global".into(),
            kind: "unicast".into(),
            protocol: "dhcp".into(),
        };
        let wire = route(&default);
        assert_eq!((wire.destination.as_str(), wire.gateway.as_str()), ("0.0.0.0/0", "10.0.2.2/32"));
        assert_eq!((wire.metric, wire.protocol()), (1024, proto::RouteProtocol::RtprotDhcp));
        let local = RouteStatus {
            family: "inet6",
            dst: "fe80::/64".into(),
            gateway: String::new(),
            scope: "link".into(),
            ..default
        };
        let wire = route(&local);
        assert_eq!(
            (wire.destination.as_str(), wire.gateway.as_str(), wire.scope),
            ("fe80::/64", "::/32", 253)
        );
    }

    #[tokio::test]
    async fn interfaces_carry_their_addresses_and_gos_flags() {
        let dir = tempfile::tempdir().unwrap();
        let node = crate::server::tests_node(dir.path().canonicalize().unwrap());
        let directory = dir.path().join("sys/class/net/eth0");
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("flags"), "0x1003\n").unwrap();
        let link = LinkStatus {
            index: 2,
            kind_of_link: "ether".into(),
            kind: String::new(),
            hardware_addr: "52:54:00:00:00:01".into(),
            mtu: 1500,
            operational_state: "up".into(),
            link_state: true,
            ..LinkStatus::default()
        };
        node.runtime
            .store
            .put(LINK_STATUS.writer, &LINK_STATUS, "eth0", Spec::LinkStatus(Box::new(link)))
            .unwrap();
        let address = AddressStatus {
            address: "10.0.2.15/24".into(),
            link_index: 2,
            link_name: "eth0".into(),
            family: "inet4",
            scope: "global".into(),
        };
        let spec = Spec::AddressStatus(address);
        node.runtime.store.put(ADDRESS_STATUS.writer, &ADDRESS_STATUS, "eth0/10.0.2.15/24", spec).unwrap();
        let network = Network { node };
        let answer = network.interfaces(Request::new(())).await.unwrap().into_inner();
        let interface = &answer.messages[0].interfaces[0];
        assert_eq!(
            (interface.flags, interface.ipaddress.as_slice()),
            (1 | 2 | 16, &["10.0.2.15/24".to_owned()][..])
        );
    }
}
