//! The firewall of nodes that run Kubernetes: what the tables of the documentation open, and what stays shut.

use std::time::Instant;

use qemu_tests::deadline;

use crate::rig::{Running, STEP_LIMIT};
use crate::workload;

/// The control plane node and the worker.
const NODES: [(&str, &str); 2] = [("cp-1", "10.5.0.2"), ("worker-1", "10.5.0.3")];
/// Of the service in front of the pod on the worker.
const NODE_PORT: u16 = 30081;
/// What both need: the kubelet for control planes, flannel for nodes (docs/users/network.md).
const RULES: &str = "\
apiVersion: v1alpha1
kind: NetworkDefaultActionConfig
ingress: block
---
apiVersion: v1alpha1
kind: NetworkRuleConfig
name: kubelet
portSelector: {ports: [10250], protocol: tcp}
ingress: [{subnet: 10.5.0.2/32}]
---
apiVersion: v1alpha1
kind: NetworkRuleConfig
name: flannel
portSelector: {ports: [4789], protocol: udp}
ingress: [{subnet: 10.5.0.0/24}]
";
/// What a control plane node needs besides. Users are on this machine, which is 10.5.0.1.
const CONTROL_PLANE_RULES: &str = "\
---
apiVersion: v1alpha1
kind: NetworkRuleConfig
name: kubernetes
portSelector: {ports: [6443], protocol: tcp}
ingress: [{subnet: 10.5.0.0/24}]
---
apiVersion: v1alpha1
kind: NetworkRuleConfig
name: trustd
portSelector: {ports: [50001], protocol: tcp}
ingress: [{subnet: 10.5.0.3/32}]
";
const NAMES: [&str; 4] = ["kubelet", "flannel", "kubernetes", "trustd"];

/// From where a port of a node is asked, and whether it is open then: without rules, with them.
const CONNECTIONS: [(Option<&str>, &str, u16, bool, bool); 11] = [
    (None, "10.5.0.2", 50000, true, true),
    (None, "10.5.0.3", 50000, true, true),
    (Some("cp-1"), "10.5.0.3", 50000, true, true),
    (None, "10.5.0.2", 6443, true, true),
    (Some("worker-1"), "10.5.0.2", 6443, true, true),
    (Some("worker-1"), "10.5.0.2", 50001, true, true),
    (None, "10.5.0.2", 50001, true, false),
    (None, "10.5.0.3", 10250, true, false),
    (Some("worker-1"), "10.5.0.2", 10250, true, false),
    (Some("cp-1"), "10.5.0.3", 10250, true, true),
    // Closed by itself to all but control plane nodes.
    (Some("worker-1"), "10.5.0.2", 2379, false, false),
];

fn patch(cluster: &Running, address: &str, documents: &str) {
    cluster.until(&["-n", address, "patch", "mc", "--mode=no-reboot", "-p", documents], &[], STEP_LIMIT);
}

/// Waits until each connection is as it is to be.
fn connections(cluster: &Running, with_rules: bool) {
    let begin = Instant::now();
    for (from, to, port, open, open_with_rules) in CONNECTIONS {
        let wanted = if with_rules { open_with_rules } else { open };
        while cluster.connects(from, to, port) != wanted {
            let from = from.unwrap_or("this machine");
            let state = if wanted { "open" } else { "closed" };
            let waits = begin.elapsed() < deadline(STEP_LIMIT);
            assert!(waits, "from {from} port {port} of {to} is not {state}\n{}", cluster.state());
        }
    }
}

/// Blocks all that the tables do not open, sees that pods go on, and takes it back.
pub(crate) fn shuts_out_and_lets_in(cluster: &Running) {
    connections(cluster, false);
    let [(_, control_plane), (_, worker)] = NODES;
    patch(cluster, control_plane, &format!("{RULES}{CONTROL_PLANE_RULES}"));
    patch(cluster, worker, RULES);
    connections(cluster, true);
    cluster.service_answers("one", STEP_LIMIT);
    cluster.port_is_forwarded();
    for (_, address) in NODES {
        let begin = Instant::now();
        while !workload::serves(&format!("{address}:{NODE_PORT}")) {
            assert!(begin.elapsed() < deadline(STEP_LIMIT), "the node port of {address} does not answer");
        }
    }
    for (name, address) in NODES {
        cluster.kubectl_until(&["get", "node", name], " Ready ", STEP_LIMIT);
        let kinds = NAMES.map(|name| format!("kind: NetworkRuleConfig\nname: {name}\n")).into_iter();
        let kinds = kinds.take(if address == control_plane { NAMES.len() } else { 2 });
        let gone = kinds.chain(["kind: NetworkDefaultActionConfig\n".to_owned()]);
        let gone: Vec<String> =
            gone.map(|kind| format!("apiVersion: v1alpha1\n{kind}$patch: delete\n")).collect();
        patch(cluster, address, &gone.join("---\n"));
    }
    connections(cluster, false);
}
