//! The commands of two guides, "Troubleshooting Control Plane" and "Upgrading Kubernetes": names, columns, states and words that
//! they print, from a cluster that runs.
//!
//! Deviations, with their reasons: services wait for `networkd`, `timed` and others as this node has them; `RUNNING` and the
//! health text are the same. `get bs` says that nothing is self-hosted. What a component prints itself is not compared.

use crate::rig::{Running, STEP_LIMIT};

/// A command, and what is in its output. `NODE` stands for the node's address.
const ASKED: [(&str, &[&str]); 17] = [
    ("get bs", &["NODE", "runtime", "BootstrapStatus", "control-plane", "SELF HOSTED", "false"]),
    (
        "service kubelet",
        &[
            "ID       kubelet",
            "STATE    Running",
            "HEALTH   OK",
            "[Running]: Health check successful (",
            "[Running]: Started task kubelet (PID ",
            ") for container kubelet (",
            "[Preparing]: Creating service runner (",
            "[Preparing]: Running pre state (",
            "[Waiting]: Waiting for service ",
        ],
    ),
    (
        "service etcd",
        &[
            "ID       etcd",
            "STATE    Running",
            "HEALTH   OK",
            "[Running]: Health check successful (",
            "[Running]: Started task etcd (PID ",
            "[Preparing]: Creating service runner (",
            "[Preparing]: Running pre state (",
        ],
    ),
    ("logs kubelet --tail 5", &["NODE: "]),
    (
        "ls /etc/kubernetes/manifests",
        &["talos-kube-apiserver.yaml", "talos-kube-controller-manager.yaml", "talos-kube-scheduler.yaml"],
    ),
    (
        "containers --kubernetes",
        &[
            "NAMESPACE   ID",
            "IMAGE",
            "PID",
            "STATUS",
            "kube-system/kube-apiserver-cp-1 ",
            "/pause:3.10",
            "SANDBOX_READY",
            "└─ kube-system/kube-apiserver-cp-1:kube-apiserver ",
            "/kube-apiserver:vVERSION",
            "CONTAINER_RUNNING",
            "└─ kube-system/kube-scheduler-cp-1:kube-scheduler ",
            ":install-config ",
            "CONTAINER_EXITED",
        ],
    ),
    ("logs -k kube-system/kube-apiserver-cp-1:kube-apiserver --tail 5", &["NODE: ", "stderr F "]),
    ("logs controller-runtime", &["NODE: ", ": controller starting"]),
    (
        "get staticpods kube-apiserver -o yaml",
        &[
            "node: NODE",
            "type: StaticPods.kubernetes.talos.dev",
            "id: kube-apiserver",
            "phase: running",
            "kind: Pod",
            "talos.dev/config-version: \"1\"",
            "talos.dev/secrets-version: ",
            "k8s-app: kube-apiserver",
            "tier: control-plane",
            "namespace: kube-system",
        ],
    ),
    (
        "get staticpodstatus",
        &[
            "StaticPodStatus",
            "READY",
            "kube-system/kube-apiserver-cp-1",
            "kube-system/kube-scheduler-cp-1",
            "True",
        ],
    ),
    (
        "get manifests --namespace=controlplane",
        &[
            "00-kubelet-bootstrapping-token",
            "01-csr-approver-role-binding",
            "01-csr-node-bootstrap",
            "01-csr-renewal-role-binding",
            "10-kube-proxy",
            "11-core-dns",
            "11-core-dns-svc",
            "11-kube-config-in-cluster",
            "11-talos-node-rbac-template",
        ],
    ),
    (
        "get manifests 01-csr-approver-role-binding --namespace=controlplane -o yaml",
        &[
            "id: 01-csr-approver-role-binding",
            "apiVersion: rbac.authorization.k8s.io/v1",
            "kind: ClusterRoleBinding",
            "name: system-bootstrap-approve-node-client-csr",
            "name: system:certificates.k8s.io:certificatesigningrequests:nodeclient",
            "name: system:bootstrappers",
        ],
    ),
    (
        "get kcpc kube-apiserver -o yaml",
        &[
            "namespace: config",
            "type: KubernetesControlPlaneConfigs.config.talos.dev",
            "id: kube-apiserver",
            "version: 1",
            "/kube-apiserver:vVERSION",
            "cloudProvider: \"\"",
            "controlPlaneEndpoint: https://NODE:6443",
            "- https://127.0.0.1:2379",
            "localPort: 6443",
            "serviceCIDR: 10.96.0.0/12",
            "extraArgs: {}",
            "extraVolumes: []",
        ],
    ),
    ("get apiserverconfigs", &["APIServerConfig", "kube-apiserver"]),
    ("get nodestatuses", &["NodeStatus", "nodename", "READY", "UNSCHEDULABLE", "true", "false"]),
    ("get nodenames", &["Nodename", "cp-1"]),
    ("get etcdmembers", &["MEMBER ID", "local"]),
];

/// Asks the control plane node for all of it.
pub(crate) fn is_followed(cluster: &Running, version: &str) {
    for (command, wanted) in ASKED {
        let words: Vec<&str> = command.split(' ').collect();
        let wanted: Vec<String> =
            wanted.iter().map(|text| text.replace("NODE", "10.5.0.2").replace("VERSION", version)).collect();
        let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
        cluster.until(&words, &wanted, STEP_LIMIT);
    }
    pod_has_the_version(cluster);
}

/// Whoever upgrades by hand changes the image and waits until the pod carries the version of the resource.
fn pod_has_the_version(cluster: &Running) {
    let patch = r#"[{"op": "add", "path": "/cluster/scheduler/extraArgs", "value": {"v": "1"}}]"#;
    cluster.until(&["patch", "mc", "--mode=no-reboot", "-p", patch], &["patched"], STEP_LIMIT);
    cluster.until(&["get", "kcpc", "kube-scheduler", "-o", "yaml"], &["version: 2"], STEP_LIMIT);
    let annotation = |program: &str, version: &str| {
        let selector = format!("k8s-app={program}");
        let path = "jsonpath=version {.items[0].metadata.annotations.talos\\.dev/config\\-version} \
                    {.items[0].status.containerStatuses[0].ready}";
        let ask = ["get", "pod", "-n", "kube-system", "-l", &selector, "-o", path];
        cluster.kubectl_until(&ask, &format!("version {version} true"), STEP_LIMIT);
    };
    annotation("kube-scheduler", "2");
    annotation("kube-apiserver", "1");
}
