//! Samples of the types of Kubernetes, for [`samples()`].

use super::*;

fn text() -> String {
    "x".to_owned()
}

pub(super) fn all() -> Vec<(&'static Definition, Spec)> {
    let object = serde_json::json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "x" } });
    let extra = ExtraManifest {
        name: text(),
        url: text(),
        priority: "99".into(),
        extra_headers: [(text(), text())].into(),
        inline_manifest: text(),
    };
    let of = |kind, spec| (kind, Spec::Kubernetes(spec));
    vec![
        of(&MANIFEST, KubernetesSpec::Manifest(vec![object.clone()])),
        of(&MANIFEST_STATUS, KubernetesSpec::ManifestStatus { manifests_applied: vec![text()] }),
        of(&STATIC_POD, KubernetesSpec::StaticPod(object.clone())),
        of(&STATIC_POD_STATUS, KubernetesSpec::StaticPodStatus(serde_json::json!({ "phase": text() }))),
        of(&EXTRA_MANIFESTS_CONFIG, KubernetesSpec::ExtraManifests { extra_manifests: vec![extra] }),
    ]
    .into_iter()
    .chain(fields().into_iter().map(|(kind, fields)| (kind, Spec::Fields(fields))))
    .collect()
}

/// Types that are no more than the fields of their message.
fn fields() -> Vec<(&'static Definition, serde_json::Value)> {
    use serde_json::json;
    let volumes = json!([{ "name": "x", "hostPath": "/x", "mountPath": "/x", "readonly": true }]);
    let resources = json!({ "requests": { "cpu": "1" }, "limits": { "cpu": "1" } });
    let arguments = json!({ "x": ["1", "2"] });
    let env = json!({ "X": "x" });
    let mounts = json!([{ "destination": "/x", "type": "bind", "source": "/x", "options": ["ro"] }]);
    let pair = json!({ "key": "x", "value": "x" });
    let status = json!({ "ready": true, "version": "1" });
    let member = json!({
        "nodeId": "x", "addresses": ["10.0.0.2"], "hostname": "x", "machineType": "worker",
        "operatingSystem": "x", "controlPlane": { "port": 6443 },
    });
    let mut affiliate = member.clone();
    affiliate["nodename"] = json!("x");
    let etcd = json!({
        "advertiseExcludeSubnets": ["10.0.0.0/8"], "image": "x", "listenExcludeSubnets": ["10.0.0.0/8"],
        "extraArgs": arguments,
    });
    let node = json!({
        "nodename": "x", "nodeReady": true, "unschedulable": true, "labels": { "x": "x" },
        "annotations": { "x": "x" }, "podCIDRs": ["10.244.0.0/24"],
    });
    let etcd_spec = json!({
        "name": "x", "advertisedAddresses": ["10.0.0.2"], "image": "x", "listenPeerAddresses": ["0.0.0.0"],
        "listenClientAddresses": ["0.0.0.0"], "extraArgs": arguments,
    });
    vec![
        (&ADMISSION_CONTROL_CONFIG, json!({ "config": [{ "name": "x", "configuration": { "x": 1 } }] })),
        (
            &API_SERVER_CONFIG,
            json!({
                "image": "x", "cloudProvider": "external", "controlPlaneEndpoint": "https://x:6443",
                "etcdServers": ["https://127.0.0.1:2379"], "localPort": 6443, "serviceCIDR": ["10.96.0.0/12"],
                "extraArgs": arguments, "extraVolumes": volumes, "environmentVariables": env,
                "advertisedAddress": "$(POD_IP)", "resources": resources, "startupProbesEnabled": true,
                "useAuthenticationConfig": true, "args": ["--x"],
            }),
        ),
        (&AUTHENTICATION_CONFIG, json!({ "config": { "kind": "AuthenticationConfiguration" } })),
        (&CUSTOMIZATION_CONFIG, json!({ "content": "x" })),
        (
            &EXTENSION_SERVICE_CONFIG,
            json!({ "files": [{ "content": "x", "mountPath": "/x" }], "environment": ["A=x"] }),
        ),
        (
            &IMAGE_VERIFICATION_RULE,
            json!({
                "imagePattern": "x", "skip": true, "deny": true,
                "keylessVerifier": { "issuer": "x", "subject": "x", "subjectRegex": "x" },
                "publicKeyVerifier": { "certificate": "x" },
            }),
        ),
        (&AUDIT_POLICY_CONFIG, json!({ "config": { "kind": "Policy" } })),
        (
            &AUTHORIZATION_CONFIG,
            json!({ "image": "x", "config": [{ "type": "Node", "name": "node", "webhook": { "x": 1 } }] }),
        ),
        (
            &BOOTSTRAP_MANIFESTS_CONFIG,
            json!({
                "string": "https://x:6443", "clusterDomain": "x", "podCIDRs": ["10.244.0.0/16"], "proxyEnabled": true,
                "proxyImage": "x", "proxyArgs": ["--x"], "coreDNSEnabled": true, "coreDNSImage": "x",
                "dnsServiceIP": "10.96.0.10", "dnsServiceIPv6": "fd00::a", "flannelEnabled": true, "flannelImage": "x",
                "flannelExtraArgs": ["--x"], "cniName": "flannel",
            }),
        ),
        (&BOOTSTRAP_STATUS, json!({ "selfHostedControlPlane": true })),
        (&CONFIG_STATUS, status.clone()),
        (&CONTROL_PLANE_CONFIG, json!({ "image": "x" })),
        (
            &CONTROLLER_MANAGER_CONFIG,
            json!({
                "enabled": true, "image": "x", "cloudProvider": "external", "podCIDRs": ["10.244.0.0/16"],
                "serviceCIDRs": ["10.96.0.0/12"], "extraArgs": arguments, "extraVolumes": volumes,
                "environmentVariables": env, "resources": resources, "nodeCIDRMaskSizeIPv4": 24,
                "nodeCIDRMaskSizeIPv6": 80, "args": ["--x"],
            }),
        ),
        (&ETCD_CONFIG, etcd),
        (&ETCD_MEMBER, json!({ "memberID": "1f" })),
        (&ETCD_PEER, json!({ "addresses": ["10.0.0.3"] })),
        (
            &DHCP_STATUS,
            json!({ "link": "x", "state": "granted", "since": "x", "requests": 1, "message": "x" }),
        ),
        (&GATEWAY_STATUS, json!({ "link": "x", "gateway": "10.0.0.1", "state": "answers", "since": "x" })),
        (
            &CERTIFICATE_STATUS,
            json!({
                "subject": "x", "organizations": ["x"], "issuer": "x", "names": ["x"], "notBefore": "x", "notAfter": "x",
                "renewedBy": "node", "endsSoon": true, "place": "x",
            }),
        ),
        (&ETCD_SNAPSHOT_STATUS, json!({ "file": "x.db", "size": 1, "kept": 1 })),
        (&ENDPOINT, json!({ "addresses": ["10.0.0.3"], "hosts": ["x"] })),
        (
            &KUBE_PRISM_CONFIG,
            json!({ "host": "x", "port": 7445, "endpoints": [{ "host": "x", "port": 6443 }] }),
        ),
        (&KUBE_PRISM_ENDPOINTS, json!({ "endpoints": [{ "host": "x", "port": 6443 }] })),
        (&KUBE_PRISM_STATUS, json!({ "host": "x", "healthy": true })),
        (&ETCD_SPEC, etcd_spec),
        (
            &KUBELET_CONFIG,
            json!({
                "image": "x", "clusterDNS": ["10.96.0.10"], "clusterDomain": "x", "extraArgs": arguments,
                "extraMounts": mounts, "extraConfig": { "x": 1 }, "cloudProviderExternal": true,
                "defaultRuntimeSeccompEnabled": true, "skipNodeRegistration": true, "staticPodListURL": "x",
                "disableManifestsDirectory": true, "enableFSQuotaMonitoring": true,
                "credentialProviderConfig": { "x": 1 }, "allowSchedulingOnControlPlane": true,
            }),
        ),
        (
            &KUBELET_SPEC,
            json!({
                "image": "x", "args": ["--x"], "extraMounts": mounts, "expectedNodename": "x", "config": { "x": 1 },
            }),
        ),
        (&KUBELET_STATUS, json!({ "image": "x" })),
        (&ETCD_PKI_STATUS, status.clone()),
        (&BLOCK_SYMLINK, json!({ "paths": ["/dev/disk/by-id/x"] })),
        (&TASK, json!({ "state": "running", "about": "x" })),
        (&AFFILIATE, affiliate),
        (&MEMBER, member),
        (&NODE_ANNOTATION_SPEC, pair.clone()),
        (&NODE_IP, json!({ "addresses": ["10.0.0.2"] })),
        (&NODE_IP_CONFIG, json!({ "validSubnets": ["10.0.0.0/8"], "excludeSubnets": ["10.244.0.0/16"] })),
        (&NODE_LABEL_SPEC, pair),
        (&NODE_STATUS, node),
        (&NODE_TAINT_SPEC, json!({ "key": "x", "effect": "NoSchedule", "value": "x" })),
        (&NODENAME, json!({ "nodename": "x", "hostnameVersion": "1", "skipNodeRegistration": true })),
        (
            &SCHEDULER_CONFIG,
            json!({
                "enabled": true, "image": "x", "extraArgs": arguments, "extraVolumes": volumes,
                "environmentVariables": env, "resources": resources, "config": { "x": 1 }, "args": ["--x"],
            }),
        ),
        (&SECRETS_STATUS, status),
    ]
}
