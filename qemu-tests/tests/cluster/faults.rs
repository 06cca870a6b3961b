//! What people do wrong with a control plane, where they find the cause, and that the config mends it.

use oci::server::Behaviour;

use crate::rig::{NODES, Running, STEP_LIMIT};
use crate::{inside, nothing_is_left, teller};

/// The API server stays away for longer than the kubelet waits between two starts of it.
const BACK_OFF_LIMIT: std::time::Duration = STEP_LIMIT.saturating_mul(3);

/// The only node.
const NODE: &str = "10.5.0.2";

fn is_ready(cluster: &Running) -> bool {
    cluster.kubectl(&["get", "--raw", "/readyz"]).is_ok_and(|text| text == "ok")
}

#[test]
#[ignore = "long run"]
fn a_broken_control_plane_says_why_and_is_mended_by_its_config() {
    if !inside("faults::a_broken_control_plane_says_why_and_is_mended_by_its_config") {
        return;
    }
    let tell = teller();
    let cluster = Running::start(&NODES[..1]);
    cluster.begin();
    cluster.kubectl_until(&["get", "node", "cp-1"], " Ready ", STEP_LIMIT);
    tell("the control plane is ready");

    // An argument that the program does not have.
    cluster.patch(NODE, r"cluster: {apiServer: {extraArgs: {no-such-flag: '1'}}}");
    let server = "kube-system/kube-apiserver-cp-1:kube-apiserver";
    cluster.until(&["containers", "-k"], &["CONTAINER_EXITED"], STEP_LIMIT);
    cluster.until(&["logs", "-k", server], &["unknown flag: --no-such-flag"], STEP_LIMIT);
    assert!(!is_ready(&cluster));
    tell("its log says which argument is unknown");
    cluster.patch(NODE, r#"[{"op": "remove", "path": "/cluster/apiServer/extraArgs/no-such-flag"}]"#);
    cluster.kubectl_until(&["get", "--raw", "/readyz"], "ok", BACK_OFF_LIMIT);
    tell("without it the API server is back");

    // An image that no registry has.
    let image = cluster.kubectl_until(
        &[
            "get",
            "pod",
            "-n",
            "kube-system",
            "kube-apiserver-cp-1",
            "-o",
            "jsonpath={.spec.containers[0].image}",
        ],
        "kube-apiserver",
        STEP_LIMIT,
    );
    cluster.patch(NODE, "cluster: {apiServer: {image: 'registry.example.org/kube-apiserver:v1.34.99'}}");
    cluster.until(&["logs", "kubelet"], &["kube-apiserver:v1.34.99", "not found"], STEP_LIMIT);
    tell("the kubelet's log says which image is not there");
    cluster.patch(NODE, &format!("cluster: {{apiServer: {{image: '{image}'}}}}"));
    cluster.kubectl_until(&["get", "--raw", "/readyz"], "ok", BACK_OFF_LIMIT);
    tell("with the image of before the API server is back");

    // Whether a control plane node takes pods is said again after it registered.
    let taints = ["get", "node", "cp-1", "-o", "jsonpath=taints: {.spec.taints[*].key}."];
    let key = "node-role.kubernetes.io/control-plane";
    cluster.patch(NODE, "cluster: {allowSchedulingOnControlPlanes: false}");
    cluster.kubectl_until(&taints, &format!("taints: {key}."), STEP_LIMIT);
    cluster.patch(NODE, "cluster: {allowSchedulingOnControlPlanes: true}");
    cluster.kubectl_until(&taints, "taints: .", STEP_LIMIT);
    tell("its taint comes and goes with the config");

    // A second beginning would be a second cluster.
    let again = cluster.admin.run(&["bootstrap"]).unwrap();
    assert!(again.stderr.contains("etcd data directory is not empty"), "{}", again.stderr);
    drop(cluster);
    nothing_is_left();
}

/// What fails on the way is said where people look, and goes on from where it was.
#[test]
#[ignore = "long run"]
fn a_cluster_begins_although_its_registry_fails_and_machined_dies() {
    if !inside("faults::a_cluster_begins_although_its_registry_fails_and_machined_dies") {
        return;
    }
    let tell = teller();
    let cluster = Running::start(&NODES[..1]);
    let says = |words: &[&str]| cluster.until(&["service", "etcd"], words, STEP_LIMIT);
    cluster.registry.behave(Behaviour { unavailable: usize::MAX, ..Behaviour::default() });
    cluster.begin();
    says(&["Failed to run pre stage: pull ", "503"]);
    tell("the service says that the registry is unavailable");
    cluster.registry.behave(Behaviour { corrupt: true, ..Behaviour::default() });
    says(&["it was changed on the way or in the registry"]);
    tell("the service says that the registry's content is wrong");
    cluster.registry.behave(Behaviour { gone_after: Some(1), ..Behaviour::default() });
    cluster.kill("cp-1", "machined");
    cluster.registry.behave(Behaviour::default());
    says(&["Running", "Health check successful"]);
    tell("etcd runs, after machined died while it fetched the image");

    cluster.kill("cp-1", "machined");
    cluster.kubectl_until(&["get", "--raw", "/readyz"], "ok", STEP_LIMIT);
    // The first, a middle and the last of the bootstrap's manifests.
    let first = ["get", "clusterrolebinding", "system-bootstrap-approve-node-client-csr"];
    let middle = ["get", "daemonset", "kube-proxy", "-n", "kube-system"];
    let last = ["get", "configmap", "machine-ca", "-n", "kube-system"];
    for object in [&first[..], &middle, &last] {
        cluster.kubectl_until(object, object[2], STEP_LIMIT);
        cluster.kill("cp-1", "machined");
        tell(&format!("machined died when {} was there", object[2]));
    }
    cluster.kubectl_until(&["get", "node", "cp-1"], " Ready ", STEP_LIMIT);
    let dns = ["get", "deployment", "coredns", "-n", "kube-system", "-o", "jsonpath={.status.readyReplicas}"];
    cluster.kubectl_until(&dns, "2", STEP_LIMIT);
    tell("the node is ready, and so is the cluster's DNS");
    drop(cluster);
    nothing_is_left();
}
