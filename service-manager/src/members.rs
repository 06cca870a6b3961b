//! The nodes of the cluster, as the resource `Members` has them.
//!
//! Owns: the names of its fields. Does not: write it, which `kubernetes_node` does from the API server's list.
//! Fails by: nothing. No node is known before the API server has listed them; a worker knows itself alone.
//! Source: docs/users/kubernetes.md.

use std::net::IpAddr;

use runtime::store::{MEMBER, Spec, Store};
use serde_json::Value;

/// What is known of each node.
pub(crate) fn all(store: &Store) -> impl Iterator<Item = Value> {
    store.list(&MEMBER).into_iter().filter_map(|resource| match &resource.spec {
        Spec::Fields(fields) => Some(fields.clone()),
        _ => None,
    })
}

/// Whether this one is of the control plane.
pub(crate) fn is_control_plane(fields: &Value) -> bool {
    fields["machineType"] == "controlplane"
}

/// Its addresses; a text that is none is left out.
pub(crate) fn addresses(fields: &Value) -> impl Iterator<Item = IpAddr> {
    let addresses = fields["addresses"].as_array().map(Vec::as_slice).unwrap_or_default();
    addresses.iter().filter_map(|address| address.as_str()?.parse().ok())
}

/// Its addresses, then its name.
pub(crate) fn names(fields: &Value) -> impl Iterator<Item = &str> {
    let addresses = fields["addresses"].as_array().map(Vec::as_slice).unwrap_or_default();
    addresses.iter().chain([&fields["hostname"]]).filter_map(Value::as_str)
}

/// Addresses and names of every control plane node.
pub(crate) fn control_plane_names(store: &Store) -> Vec<String> {
    let nodes: Vec<_> = all(store).filter(is_control_plane).collect();
    nodes.iter().flat_map(names).map(str::to_owned).collect()
}

/// Has the store know these nodes, by name, type and addresses.
#[cfg(test)]
pub(crate) fn put(store: &Store, nodes: &[(&str, &str, [&str; 2])]) {
    let one = |(name, kind, addresses): &(&str, &str, [&str; 2])| {
        let fields = serde_json::json!({ "hostname": name, "machineType": kind, "addresses": addresses });
        ((*name).to_owned(), Spec::Fields(fields))
    };
    store.replace(MEMBER.writer, &MEMBER, nodes.iter().map(one).collect()).unwrap();
}
