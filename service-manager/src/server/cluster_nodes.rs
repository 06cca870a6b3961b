//! Which nodes a health check asks.
//!
//! Owns: who may be named. A node knows itself by its addresses and names, its cluster by `Members`, and others by its config: the
//! endpoint's host, `certSANs`, virtual addresses, `extraHostEntries`. An administrator may name any; whoever has less would have
//! the node look for hosts and ports of its network.
//! Fails by: `InvalidArgument` with the first name that is not known, and how the node gets to know it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use api::proto::cluster as proto;
use runtime::store::{ADDRESS_STATUS, API_CERTIFICATE, Spec};
use serde_json::Value;
use tonic::Status;

use crate::members;
use crate::node::Node;

/// Nodes of a request: more than a cluster has that one node waits for.
const MOST_NODES: usize = 1024;
/// Bytes of a name in the DNS (RFC 1035).
const MOST_NAME_BYTES: usize = 253;

/// Who is in the cluster.
#[derive(Debug)]
pub(super) struct Nodes {
    pub(super) control_plane: Vec<String>,
    pub(super) workers: Vec<String>,
}

impl Nodes {
    /// The nodes that the client names, if it may; without any, those of the cluster that this one knows, or this one alone.
    pub(super) fn new(node: &Node, info: Option<proto::ClusterInfo>, is_admin: bool) -> Result<Self, Status> {
        let info = info.unwrap_or_default();
        let (control_plane, workers) = (info.control_plane_nodes, info.worker_nodes);
        if !control_plane.is_empty() || !workers.is_empty() {
            let named = Self { control_plane, workers };
            named.check(node, is_admin)?;
            return Ok(named);
        }
        if let Some(members) = Self::members(node) {
            return Ok(members);
        }
        let own =
            own_addresses(node, |scope| scope == "global").next().unwrap_or_else(|| "127.0.0.1".to_owned());
        Ok(match node.runtime.config() {
            Some(config) if config.machine.machine_type.is_control_plane() => {
                Self { control_plane: vec![own], workers }
            }
            _ => Self { control_plane, workers: vec![own] },
        })
    }

    /// The nodes of the cluster by their first addresses; `None` before the API server has told them.
    fn members(node: &Node) -> Option<Self> {
        let mut found = Self { control_plane: Vec::new(), workers: Vec::new() };
        for fields in members::all(&node.runtime.store) {
            let Some(address) = fields["addresses"][0].as_str() else { continue };
            let is_control_plane = members::is_control_plane(&fields);
            let list = if is_control_plane { &mut found.control_plane } else { &mut found.workers };
            list.push(address.to_owned());
        }
        // A worker knows itself alone.
        (!found.control_plane.is_empty()).then_some(found)
    }

    /// All addresses of each control plane node: of those that are named, else of those that this node knows. `None`: one that is
    /// named is a name that this node does not know; an error: it knows none yet.
    pub(super) fn control_plane_addresses(
        &self,
        node: &Node,
    ) -> Result<Option<Vec<BTreeSet<IpAddr>>>, String> {
        let known = members::all(&node.runtime.store);
        let known: Vec<_> = known.map(|fields| (fields["hostname"].clone(), addresses(&fields))).collect();
        let one = |name: &String| {
            let name = normal(host(name));
            let address: Option<IpAddr> = name.parse().ok();
            let is_it = |(hostname, all): &&(Value, BTreeSet<IpAddr>)| {
                address.map_or(*hostname == name, |address| all.contains(&address))
            };
            let found = known.iter().find(is_it).map(|(_, all)| all.clone());
            found.or_else(|| Some(BTreeSet::from([address?])))
        };
        match (self.control_plane.is_empty(), Self::members(node)) {
            (false, _) => Ok(self.control_plane.iter().map(one).collect()),
            (true, Some(members)) => Ok(members.control_plane.iter().map(one).collect()),
            (true, None) => Err("the API server has not told the control plane nodes yet".to_owned()),
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &String> {
        self.control_plane.iter().chain(&self.workers)
    }

    fn check(&self, node: &Node, is_admin: bool) -> Result<(), Status> {
        let count = self.all().count();
        if count > MOST_NODES {
            let text = format!("cluster_info names {count} nodes: {MOST_NODES} are the most of one check");
            return Err(Status::invalid_argument(text));
        }
        if let Some(name) = self.all().find(|name| name.is_empty() || name.len() > MOST_NAME_BYTES) {
            let length = name.len();
            return Err(Status::invalid_argument(format!(
                "cluster_info has a name of {length} bytes: a node's has 1 to {MOST_NAME_BYTES}"
            )));
        }
        if is_admin {
            return Ok(());
        }
        let known = known(node);
        match self.all().find(|name| !known.contains(&normal(host(name)))) {
            None => Ok(()),
            Some(name) => Err(Status::invalid_argument(format!(
                "this node does not know {name:?} as a node of its cluster: leave the nodes out, ask with the role \
                 os:admin, or name it in the machine config (machine.network.extraHostEntries)"
            ))),
        }
    }
}

/// A name without an IPv6 address' brackets.
pub(super) fn host(name: &str) -> &str {
    name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name)
}

/// A name as names are compared.
fn normal(name: &str) -> String {
    let address = name.parse::<IpAddr>().map(|address| address.to_canonical().to_string());
    address.unwrap_or_else(|_| name.trim_end_matches('.').to_ascii_lowercase())
}

/// Names and addresses of this node, and what the config names of its cluster.
fn known(node: &Node) -> BTreeSet<String> {
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    names.extend(own_addresses(node, |_| true));
    for resource in node.runtime.store.list(&API_CERTIFICATE) {
        if let Spec::ApiCertificate(own) = &resource.spec {
            names.extend(own.iter().cloned());
        }
    }
    for fields in members::all(&node.runtime.store) {
        names.extend(members::names(&fields).map(str::to_owned));
    }
    if let Some(config) = node.runtime.config() {
        let (machine, cluster) = (&config.machine, &config.cluster);
        names.extend(config::endpoint_host(&cluster.control_plane.endpoint).map(str::to_owned));
        names.extend(machine.cert_sans.iter().cloned());
        names.extend(cluster.api_server.iter().flat_map(|server| server.cert_sans.iter().cloned()));
        let interfaces = machine.network.interfaces.iter();
        let vips =
            interfaces.flat_map(|one| one.vip.iter().chain(one.vlans.iter().flat_map(|vlan| &vlan.vip)));
        names.extend(vips.map(|vip| vip.ip.clone()));
        for entry in &machine.network.extra_host_entries {
            names.extend(entry.ip.map(|ip| ip.to_string()));
            names.extend(entry.aliases.iter().cloned());
        }
    }
    names.iter().map(|name| normal(name)).collect()
}

fn addresses(fields: &Value) -> BTreeSet<IpAddr> {
    let all = fields["addresses"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().filter_map(|text| text.as_str()?.parse().ok()).collect()
}

fn own_addresses(node: &Node, is_meant: impl Fn(&str) -> bool) -> impl Iterator<Item = String> {
    let all = node.runtime.store.list(&ADDRESS_STATUS).into_iter();
    all.filter_map(move |resource| match &resource.spec {
        Spec::AddressStatus(address) if is_meant(&address.scope) => {
            address.address.split('/').next().map(str::to_owned)
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    fn of(control_plane: &[&str], workers: &[&str]) -> Option<proto::ClusterInfo> {
        let all = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Some(proto::ClusterInfo {
            control_plane_nodes: all(control_plane),
            worker_nodes: all(workers),
            force_endpoint: String::new(),
        })
    }

    #[test]
    fn readers_name_what_the_node_knows_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let node = crate::server::tests_node(dir.path().canonicalize().unwrap());
        let config = "version: v1alpha1\ncluster: {controlPlane: {endpoint: 'https://Cluster.example:6443'}}\n\
            machine:\n  type: worker\n  token: a.b\n  certSANs: [fd00::1]\n  install: {disk: /dev/none}\n\
            \x20 network: {extraHostEntries: [{ip: 10.0.0.7, aliases: [n7.example]}]}\n";
        crate::configuration::put_into_force(&node.configuration, zeroize::Zeroizing::new(config.to_owned()))
            .unwrap();
        let own = Spec::ApiCertificate(vec!["10.0.0.1".to_owned(), "n1".to_owned()]);
        node.runtime.store.put(API_CERTIFICATE.writer, &API_CERTIFICATE, "api", own).unwrap();
        let check = |info, is_admin| Nodes::new(&node, info, is_admin).map(drop);
        let known =
            ["10.0.0.1", "n1", "cluster.example.", "[fd00::1]", "fd00:0::1", "::ffff:10.0.0.7", "N7.example"];
        check(of(&known, &["127.0.0.1"]), false).unwrap();
        for name in ["10.0.0.8", "10.0.0.1:22", "169.254.169.254", "example", "[fd00::2]", "n1\u{1b}[2J"] {
            let status = check(of(&["10.0.0.1"], &["n1", name]), false).unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument, "{name}");
            let text = status.message();
            assert!(
                text.contains(&format!("{name:?}")) && text.contains("extraHostEntries"),
                "{name}: {text}"
            );
            check(of(&[], &[name]), true).unwrap();
        }
    }

    #[test]
    fn names_have_a_length_and_a_number_for_administrators_too() {
        let dir = tempfile::tempdir().unwrap();
        let node = crate::server::tests_node(dir.path().canonicalize().unwrap());
        let many = vec!["127.0.0.1"; MOST_NODES];
        Nodes::new(&node, of(&many, &[]), false).unwrap();
        for info in [of(&many, &["127.0.0.1"]), of(&[""], &[]), of(&[], &[&"a".repeat(254)])] {
            let status = Nodes::new(&node, info, true).unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
            assert!(status.message().len() < 200, "{status:?}");
        }
    }

    #[test]
    fn the_nodes_of_the_cluster_are_asked_where_none_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let node = crate::server::tests_node(dir.path().canonicalize().unwrap());
        let all =
            [("cp-1", "controlplane", ["10.0.0.3", "fd00::3"]), ("w-1", "worker", ["10.0.0.4", "fd00::4"])];
        let workers = Nodes::new(&node, of(&[], &["w-1"]), true).unwrap();
        assert!(workers.control_plane_addresses(&node).unwrap_err().contains("has not told"));
        members::put(&node.runtime.store, &all);
        let nodes = Nodes::new(&node, None, false).unwrap();
        assert_eq!(
            (nodes.control_plane.join(" "), nodes.workers.join(" ")),
            ("10.0.0.3".into(), "10.0.0.4".into())
        );
        let of_first: BTreeSet<IpAddr> = ["10.0.0.3", "fd00::3"].map(|text| text.parse().unwrap()).into();
        assert_eq!(nodes.control_plane_addresses(&node), Ok(Some(vec![of_first.clone()])));
        // A reader may name them, too.
        Nodes::new(&node, of(&["cp-1", "fd00::3"], &["W-1"]), false).unwrap();
        assert_eq!(workers.control_plane_addresses(&node), Ok(Some(vec![of_first.clone()])));
        for (named, wanted) in
            [("cp-1", Some(vec![of_first.clone()])), ("fd00::3", Some(vec![of_first])), ("cp-2", None)]
        {
            let nodes = Nodes::new(&node, of(&[named], &[]), true).unwrap();
            assert_eq!(nodes.control_plane_addresses(&node), Ok(wanted), "{named}");
        }
    }

    #[test]
    fn nobody_named_is_this_node() {
        let dir = tempfile::tempdir().unwrap();
        let node = crate::server::tests_node(dir.path().canonicalize().unwrap());
        assert_eq!(Nodes::new(&node, None, false).unwrap().workers, ["127.0.0.1"]);
    }
}
