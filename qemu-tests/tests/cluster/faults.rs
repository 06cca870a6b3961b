//! What people do wrong with a control plane, where they find the cause, and that the config mends it.

use crate::rig::{NODES, Running, STEP_LIMIT};
use crate::{nothing_is_left, teller};
use qemu_tests::namespaces;

/// The API server stays away for longer than the kubelet waits between two starts of it.
const BACK_OFF_LIMIT: std::time::Duration = STEP_LIMIT.saturating_mul(3);

fn patch(cluster: &Running, patch: &str) {
    cluster.until(&["patch", "mc", "--mode=no-reboot", "-p", patch], &["patched"], STEP_LIMIT);
}

fn is_ready(cluster: &Running) -> bool {
    cluster.kubectl(&["get", "--raw", "/readyz"]).is_ok_and(|text| text == "ok")
}

#[test]
#[ignore = "long run"]
fn a_broken_control_plane_says_why_and_is_mended_by_its_config() {
    if !namespaces::inside("faults::a_broken_control_plane_says_why_and_is_mended_by_its_config") {
        return;
    }
    let tell = teller();
    let cluster = Running::start(&NODES[..1]);
    cluster.begin();
    cluster.kubectl_until(&["get", "node", "cp-1"], " Ready ", STEP_LIMIT);
    tell("the control plane is ready");

    // An argument that the program does not have.
    patch(&cluster, r"cluster: {apiServer: {extraArgs: {no-such-flag: '1'}}}");
    let server = "kube-system/kube-apiserver-cp-1:kube-apiserver";
    cluster.until(&["containers", "-k"], &["CONTAINER_EXITED"], STEP_LIMIT);
    cluster.until(&["logs", "-k", server], &["unknown flag: --no-such-flag"], STEP_LIMIT);
    assert!(!is_ready(&cluster));
    tell("its log says which argument is unknown");
    patch(&cluster, r#"[{"op": "remove", "path": "/cluster/apiServer/extraArgs/no-such-flag"}]"#);
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
    patch(&cluster, "cluster: {apiServer: {image: 'registry.example.org/kube-apiserver:v1.34.99'}}");
    cluster.until(&["logs", "kubelet"], &["kube-apiserver:v1.34.99", "not found"], STEP_LIMIT);
    tell("the kubelet's log says which image is not there");
    patch(&cluster, &format!("cluster: {{apiServer: {{image: '{image}'}}}}"));
    cluster.kubectl_until(&["get", "--raw", "/readyz"], "ok", BACK_OFF_LIMIT);
    tell("with the image of before the API server is back");

    // Whether a control plane node takes pods is said again after it registered.
    let taints = ["get", "node", "cp-1", "-o", "jsonpath=taints: {.spec.taints[*].key}."];
    let key = "node-role.kubernetes.io/control-plane";
    patch(&cluster, "cluster: {allowSchedulingOnControlPlanes: false}");
    cluster.kubectl_until(&taints, &format!("taints: {key}."), STEP_LIMIT);
    patch(&cluster, "cluster: {allowSchedulingOnControlPlanes: true}");
    cluster.kubectl_until(&taints, "taints: .", STEP_LIMIT);
    tell("its taint comes and goes with the config");

    // A second beginning would be a second cluster.
    let again = cluster.admin.run(&["bootstrap"]).unwrap();
    assert!(again.stderr.contains("etcd data directory is not empty"), "{}", again.stderr);
    drop(cluster);
    nothing_is_left();
}
