//! Everything that is rendered, at each version, against golden files; each argument against what the programs accept.
//!
//! `BILLET_BLESS=1 cargo test -p kubernetes --test rendered` writes the golden files anew.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use config::Secret;
use kubernetes::etcd::Membership;
use kubernetes::kubeconfig::{self, Credentials};
use kubernetes::pod::Rendered;
use kubernetes::{
    Cluster, File, Node, api_server, certificates, controller_manager, etcd, images, kubelet, manifests,
    paths, scheduler, static_pods, yaml,
};

/// Each version of Kubernetes with the etcd beside it, and the form of its configuration.
const VERSIONS: [(&str, &str, &str); 8] = [
    ("v1.20.6", "v3.4.15", "first-generation"),
    ("v1.20.15", "v3.4.15", "current"),
    ("v1.29.0", "v3.5.16", "current"),
    ("v1.34.10", "v3.6.4", "current"),
    ("v1.34.10", "v3.6.4", "documents"),
    ("v1.35.8", "v3.6.4", "current"),
    ("v1.36.4", "v3.6.12", "current"),
    ("v1.37.2", "v3.7.2", "current"),
];

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name)
}

fn configuration(form: &str, version: &str, etcd: &str) -> config::Config {
    let text = std::fs::read_to_string(data(&format!("{form}.yaml"))).unwrap();
    config::load(text.replace("VERSION", version).replace("ETCD", etcd).as_bytes()).unwrap().config
}

fn node() -> Node {
    Node {
        host_name: "cp-1".into(),
        domain: "example.org".into(),
        addresses: ["10.0.0.3", "192.168.5.3", "fd00::3"].map(|text| text.parse().unwrap()).to_vec(),
        shared: Vec::new(),
        is_container: false,
        has_cgroup_v1: false,
        resolv_conf: "/etc/resolv.conf".into(),
    }
}

fn rendered() -> Rendered {
    Rendered { secrets: "1".into(), config: "2".into(), files: "3".into() }
}

/// Everything, as one text.
fn everything(cluster: &Cluster<'_>) -> String {
    let mut text = String::new();
    let mut part =
        |name: &str, content: &str| writeln!(text, "#### {name}\n{}\n", content.trim_end()).unwrap();
    let node = node();
    let lines = |words: Vec<String>| words.join("\n");
    part("images", &lines(images::all(cluster)));
    part("kubelet", &lines(kubelet::arguments(cluster, &node).unwrap().to_vec()));
    for membership in
        [Membership::New, Membership::Join(vec!["a=https://10.0.0.4:2380".into()]), Membership::Known]
    {
        let arguments = etcd::arguments(cluster, &node, &membership).unwrap();
        part(&format!("etcd, {membership:?}"), &lines(arguments.to_vec()));
    }
    let pods = [
        api_server::pod(cluster, &node, &rendered()).unwrap(),
        controller_manager::pod(cluster, &rendered()).unwrap(),
        scheduler::pod(cluster, &rendered()).unwrap(),
    ];
    for (name, pod) in pods {
        part(&paths::manifest_file(&name), &yaml("a pod", &pod).unwrap());
    }
    for (id, pod) in static_pods::configured(cluster).unwrap() {
        part(&paths::manifest_file(&id), &yaml("a pod", &pod).unwrap());
    }
    let wanted = [controller_manager::is_wanted(cluster), scheduler::is_wanted(cluster)];
    part("controller manager and scheduler run", &format!("{wanted:?}"));
    let files: Vec<File> =
        [api_server::files(cluster), scheduler::files(cluster), kubelet::files(cluster, &node)]
            .into_iter()
            .flat_map(Result::unwrap)
            .collect();
    for file in files {
        part(&format!("{} of {:?}", file.path, file.owner), file.contents.expose_secret());
    }
    for profile in certificates::all(cluster, &node).unwrap() {
        part(&format!("certificate {}", profile.id), &format!("{profile:#?}"));
    }
    let key = Secret::new("KEY");
    let credentials = || Credentials::Certificate { certificate: "CERTIFICATE", key: &key };
    part("kubeconfig of admin", kubeconfig::admin(cluster, &credentials()).unwrap().expose_secret());
    part("kubeconfig of bootstrap", kubeconfig::bootstrap(cluster).unwrap().expose_secret());
    let own = kubeconfig::of_control_plane(cluster, "scheduler", &credentials()).unwrap();
    part("kubeconfig of scheduler", own.expose_secret());
    for manifest in manifests::rendered(cluster).unwrap() {
        let objects: Vec<_> =
            manifest.objects.iter().map(|object| yaml("an object", object).unwrap()).collect();
        part(&format!("manifest {}", manifest.id), &objects.join("---\n"));
    }
    for download in manifests::downloads(cluster) {
        part(&format!("manifest {}", download.id), &format!("{} {:?}", download.url, download.headers));
    }
    for inline in manifests::inline(cluster) {
        part(&format!("manifest {}", inline.id), &inline.text);
    }
    text
}

#[test]
fn every_version_is_as_its_golden_file() {
    for (version, etcd, form) in VERSIONS {
        let config = configuration(form, version, etcd);
        let text = everything(&Cluster::new(&config).unwrap());
        let path = data(&format!("rendered/{form}-{version}.txt"));
        if std::env::var_os("BILLET_BLESS").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let golden = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(text == golden, "{} differs; BILLET_BLESS=1 writes it anew", path.display());
    }
}

/// A field of the configuration, and a change of it; where versions differ, one that has it.
const CHANGES: &[(&str, &str, &str)] = &[
    ("cluster.adminKubeconfig.certLifetime", "v1.34.10", "cluster: {adminKubeconfig: {certLifetime: 24h}}"),
    (
        "cluster.aescbcEncryptionSecret",
        "v1.34.10",
        "cluster: {aescbcEncryptionSecret: MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI=}",
    ),
    ("cluster.allowSchedulingOnControlPlanes", "v1.34.10", "cluster: {allowSchedulingOnControlPlanes: true}"),
    ("cluster.allowSchedulingOnMasters", "v1.34.10", "cluster: {allowSchedulingOnMasters: true}"),
    (
        "cluster.apiServer.admissionControl[].configuration",
        "v1.34.10",
        r#"[{"op": "add", "path": "/cluster/apiServer/admissionControl/0/configuration/exemptions", "value": {"namespaces": ["a"]}}]"#,
    ),
    (
        "cluster.apiServer.admissionControl[].name",
        "v1.34.10",
        r#"[{"op": "replace", "path": "/cluster/apiServer/admissionControl/0/name", "value": "ImagePolicyWebhook"}]"#,
    ),
    (
        "cluster.apiServer.auditPolicy",
        "v1.34.10",
        "cluster: {apiServer: {auditPolicy: {apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: None}]}}}",
    ),
    (
        "cluster.apiServer.authorizationConfig[].name",
        "v1.34.10",
        r#"[{"op": "replace", "path": "/cluster/apiServer/authorizationConfig/0/name", "value": "other"}]"#,
    ),
    (
        "cluster.apiServer.authorizationConfig[].type",
        "v1.34.10",
        r#"[{"op": "replace", "path": "/cluster/apiServer/authorizationConfig/0/type", "value": "RBAC"}]"#,
    ),
    (
        "cluster.apiServer.authorizationConfig[].webhook",
        "v1.34.10",
        r#"[{"op": "replace", "path": "/cluster/apiServer/authorizationConfig/0/webhook", "value": {"timeout": "4s"}}]"#,
    ),
    ("cluster.apiServer.certSANs", "v1.34.10", "cluster: {apiServer: {certSANs: [other.example.org]}}"),
    (
        "cluster.apiServer.disablePodSecurityPolicy",
        "v1.20.15",
        "cluster: {apiServer: {disablePodSecurityPolicy: true}}",
    ),
    ("cluster.apiServer.env", "v1.34.10", "cluster: {apiServer: {env: {GOMEMLIMIT: 1GiB}}}"),
    ("cluster.apiServer.extraArgs", "v1.34.10", "cluster: {apiServer: {extraArgs: {v: '4'}}}"),
    (
        "cluster.apiServer.extraVolumes[].hostPath",
        "v1.34.10",
        r#"[{"op": "replace", "path": "/cluster/apiServer/extraVolumes/0/hostPath", "value": "/var/lib/other"}]"#,
    ),
    (
        "cluster.apiServer.extraVolumes[].mountPath",
        "v1.34.10",
        r#"[{"op": "replace", "path": "/cluster/apiServer/extraVolumes/0/mountPath", "value": "/etc/kubernetes/other"}]"#,
    ),
    (
        "cluster.apiServer.extraVolumes[].readonly",
        "v1.34.10",
        r#"[{"op": "replace", "path": "/cluster/apiServer/extraVolumes/0/readonly", "value": false}]"#,
    ),
    (
        "cluster.apiServer.image",
        "v1.34.10",
        "cluster: {apiServer: {image: registry.example.org/other:v1.34.10}}",
    ),
    (
        "cluster.apiServer.resources.limits",
        "v1.34.10",
        "cluster: {apiServer: {resources: {limits: {memory: 3Gi}}}}",
    ),
    (
        "cluster.apiServer.resources.requests",
        "v1.34.10",
        "cluster: {apiServer: {resources: {requests: {memory: 2Gi}}}}",
    ),
    ("cluster.ca.crt", "v1.34.10", "cluster: {ca: {crt: T1RIRVI=}}"),
    (
        "cluster.controlPlane.localAPIServerPort",
        "v1.34.10",
        "cluster: {controlPlane: {localAPIServerPort: 7443}}",
    ),
    ("cluster.controllerManager.env", "v1.34.10", "cluster: {controllerManager: {env: {GOMEMLIMIT: 1GiB}}}"),
    (
        "cluster.controllerManager.extraArgs",
        "v1.34.10",
        "cluster: {controllerManager: {extraArgs: {v: '4'}}}",
    ),
    (
        "cluster.controllerManager.extraVolumes[].hostPath",
        "v1.34.10",
        r#"[{"op": "replace", "path": "/cluster/controllerManager/extraVolumes/0/hostPath", "value": "/var/lib/other"}]"#,
    ),
    (
        "cluster.controllerManager.extraVolumes[].mountPath",
        "v1.34.10",
        r#"[{"op": "replace", "path": "/cluster/controllerManager/extraVolumes/0/mountPath", "value": "/etc/kubernetes/other"}]"#,
    ),
    (
        "cluster.controllerManager.extraVolumes[].readonly",
        "v1.34.10",
        r#"[{"op": "replace", "path": "/cluster/controllerManager/extraVolumes/0/readonly", "value": false}]"#,
    ),
    (
        "cluster.controllerManager.image",
        "v1.34.10",
        "cluster: {controllerManager: {image: registry.example.org/other:v1.34.10}}",
    ),
    (
        "cluster.controllerManager.resources.limits",
        "v1.34.10",
        "cluster: {controllerManager: {resources: {limits: {memory: 3Gi}}}}",
    ),
    (
        "cluster.controllerManager.resources.requests",
        "v1.34.10",
        "cluster: {controllerManager: {resources: {requests: {memory: 2Gi}}}}",
    ),
    ("cluster.coreDNS.disabled", "v1.34.10", "cluster: {coreDNS: {disabled: true}}"),
    ("cluster.coreDNS.image", "v1.34.10", "cluster: {coreDNS: {image: registry.example.org/other:v1.12.4}}"),
    ("cluster.etcd.extraArgs", "v1.34.10", "cluster: {etcd: {extraArgs: {election-timeout: '5000'}}}"),
    ("cluster.etcd.image", "v1.34.10", "cluster: {etcd: {image: registry.example.org/other:v3.6.4}}"),
    (
        "cluster.externalCloudProvider.enabled",
        "v1.34.10",
        "cluster: {externalCloudProvider: {enabled: true}}",
    ),
    (
        "cluster.network.cni.flannel.extraArgs",
        "v1.34.10",
        "cluster: {network: {cni: {flannel: {extraArgs: [--v=2]}}}}",
    ),
    (
        "cluster.network.cni.name",
        "v1.34.10",
        r#"[{"op": "replace", "path": "/cluster/network/cni", "value": {"name": "none"}}]"#,
    ),
    ("cluster.network.dnsDomain", "v1.34.10", "cluster: {network: {dnsDomain: other.example}}"),
    (
        "cluster.network.podSubnets",
        "v1.34.10",
        r#"[{"op": "replace", "path": "/cluster/network/podSubnets/0", "value": "10.245.0.0/16"}]"#,
    ),
    (
        "cluster.network.serviceSubnets",
        "v1.34.10",
        r#"[{"op": "replace", "path": "/cluster/network/serviceSubnets/0", "value": "10.97.0.0/16"}]"#,
    ),
    ("cluster.proxy.disabled", "v1.34.10", "cluster: {proxy: {disabled: true}}"),
    ("cluster.proxy.extraArgs", "v1.34.10", "cluster: {proxy: {extraArgs: {v: '4'}}}"),
    ("cluster.proxy.image", "v1.34.10", "cluster: {proxy: {image: registry.example.org/other:v1.34.10}}"),
    ("cluster.proxy.mode", "v1.34.10", "cluster: {proxy: {mode: ipvs}}"),
    ("cluster.scheduler.config", "v1.34.10", "cluster: {scheduler: {config: {parallelism: 4}}}"),
    ("cluster.scheduler.env", "v1.34.10", "cluster: {scheduler: {env: {GOMEMLIMIT: 1GiB}}}"),
    ("cluster.scheduler.extraArgs", "v1.34.10", "cluster: {scheduler: {extraArgs: {v: '4'}}}"),
    (
        "cluster.scheduler.extraVolumes[].hostPath",
        "v1.34.10",
        r#"[{"op": "replace", "path": "/cluster/scheduler/extraVolumes/0/hostPath", "value": "/var/lib/other"}]"#,
    ),
    (
        "cluster.scheduler.extraVolumes[].mountPath",
        "v1.34.10",
        r#"[{"op": "replace", "path": "/cluster/scheduler/extraVolumes/0/mountPath", "value": "/etc/kubernetes/other"}]"#,
    ),
    (
        "cluster.scheduler.extraVolumes[].readonly",
        "v1.34.10",
        r#"[{"op": "replace", "path": "/cluster/scheduler/extraVolumes/0/readonly", "value": false}]"#,
    ),
    (
        "cluster.scheduler.image",
        "v1.34.10",
        "cluster: {scheduler: {image: registry.example.org/other:v1.34.10}}",
    ),
    (
        "cluster.scheduler.resources.limits",
        "v1.34.10",
        "cluster: {scheduler: {resources: {limits: {memory: 3Gi}}}}",
    ),
    (
        "cluster.scheduler.resources.requests",
        "v1.34.10",
        "cluster: {scheduler: {resources: {requests: {memory: 2Gi}}}}",
    ),
    (
        "cluster.secretboxEncryptionSecret",
        "v1.34.10",
        "cluster: {secretboxEncryptionSecret: MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI=}",
    ),
    ("cluster.token", "v1.34.10", "cluster: {token: ghijkl.0123456789abcdef}"),
    (
        "machine.controlPlane.controllerManager.disabled",
        "v1.34.10",
        "machine: {controlPlane: {controllerManager: {disabled: true}}}",
    ),
    (
        "machine.controlPlane.scheduler.disabled",
        "v1.34.10",
        "machine: {controlPlane: {scheduler: {disabled: true}}}",
    ),
    ("machine.kubelet.clusterDNS", "v1.34.10", "machine: {kubelet: {clusterDNS: [10.96.0.99]}}"),
    (
        "machine.kubelet.credentialProviderConfig",
        "v1.34.10",
        "machine: {kubelet: {credentialProviderConfig: {providers: [{name: other}]}}}",
    ),
    (
        "machine.kubelet.defaultRuntimeSeccompProfileEnabled",
        "v1.34.10",
        "machine: {kubelet: {defaultRuntimeSeccompProfileEnabled: false}}",
    ),
    ("machine.kubelet.extraArgs", "v1.34.10", "machine: {kubelet: {extraArgs: {v: '4'}}}"),
    ("machine.kubelet.extraConfig", "v1.34.10", "machine: {kubelet: {extraConfig: {maxPods: 50}}}"),
    ("machine.kubelet.image", "v1.34.10", "machine: {kubelet: {image: registry.example.org/other:v1.34.10}}"),
    (
        "machine.kubelet.nodeIP.validSubnets",
        "v1.34.10",
        "machine: {kubelet: {nodeIP: {validSubnets: ['!10.0.0.0/8', 192.168.0.0/16]}}}",
    ),
    ("machine.kubelet.registerWithFQDN", "v1.34.10", "machine: {kubelet: {registerWithFQDN: true}}"),
    ("machine.kubelet.skipNodeRegistration", "v1.34.10", "machine: {kubelet: {skipNodeRegistration: true}}"),
    ("machine.nodeTaints", "v1.34.10", "machine: {nodeTaints: {other: 'a:NoSchedule'}}"),
];

/// A field of a document, and the fields of a document that changes it.
const DOCUMENT_CHANGES: &[(&str, &str)] = &[
    ("KubeAPIServerCAConfig issuingCA.cert", "issuingCA: {cert: OTHER}"),
    ("KubeAPIServerConfig apiPort", "apiPort: 7443"),
    ("KubeAPIServerConfig certExtraSANs", "certExtraSANs: [other.example.org]"),
    ("KubeAPIServerConfig env", "env: {GOMEMLIMIT: 1GiB}"),
    ("KubeAPIServerConfig extraArgs", "extraArgs: {v: '4'}"),
    ("KubeAPIServerConfig image", "image: registry.example.org/other:v1.34.10"),
    ("KubeAPIServerConfig resources.limits", "resources: {limits: {memory: 3Gi}}"),
    ("KubeAPIServerConfig resources.requests", "resources: {requests: {memory: 2Gi}}"),
    ("KubeAPIServerConfig startupProbes", "startupProbes: true"),
    (
        "KubeAdmissionControlConfig configuration",
        "name: PodSecurity\nconfiguration: {defaults: {enforce: privileged}}",
    ),
    ("KubeAdmissionControlConfig name", "name: ImagePolicyWebhook\nconfiguration: {}"),
    ("KubeAuditPolicyConfig configuration", "configuration: {omitStages: [RequestReceived]}"),
    ("KubeAuthenticationConfig configuration", "configuration: {anonymous: {enabled: false}}"),
    ("KubeAuthorizerConfig name", "name: other\ntype: RBAC"),
    ("KubeAuthorizerConfig type", "name: webhook\ntype: RBAC\nwebhook: null"),
    ("KubeAuthorizerConfig webhook", "name: webhook\nwebhook: {timeout: 4s}"),
    ("KubeControllerManagerConfig enabled", "enabled: false"),
    ("KubeControllerManagerConfig env", "env: {GOMEMLIMIT: 1GiB}"),
    ("KubeControllerManagerConfig extraArgs", "extraArgs: {v: '4'}"),
    ("KubeControllerManagerConfig image", "image: registry.example.org/other:v1.34.10"),
    ("KubeControllerManagerConfig resources.limits", "resources: {limits: {memory: 3Gi}}"),
    ("KubeControllerManagerConfig resources.requests", "resources: {requests: {memory: 2Gi}}"),
    ("KubeCoreDNSConfig enabled", "enabled: false"),
    ("KubeCoreDNSConfig image", "image: registry.example.org/other:v1.12.4"),
    ("KubeCredentialProviderConfig configuration", "configuration: {providers: [{name: other}]}"),
    (
        "KubeEtcdEncryptionConfig config",
        "config: {resources: [{resources: [configmaps], providers: [{identity: {}}]}]}",
    ),
    ("KubeFlannelCNIConfig backendExtraConfig", "backendExtraConfig: {VNI: 7}"),
    ("KubeFlannelCNIConfig backendMTU", "backendMTU: 1400"),
    ("KubeFlannelCNIConfig backendPort", "backendPort: 4790"),
    ("KubeFlannelCNIConfig backendType", "backendType: host-gw\nbackendPort: null"),
    ("KubeFlannelCNIConfig extraArgs", "extraArgs: [--v=2]"),
    ("KubeFlannelCNIConfig resources.limits", "resources: {limits: {memory: 100Mi}}"),
    ("KubeFlannelCNIConfig resources.requests", "resources: {requests: {memory: 60Mi}}"),
    ("KubeNetworkConfig dnsDomain", "dnsDomain: other.example"),
    ("KubeNetworkConfig nodeCIDRMaskSizeIPv4", "nodeCIDRMaskSizeIPv4: 25"),
    ("KubeNetworkConfig nodeCIDRMaskSizeIPv6", "nodeCIDRMaskSizeIPv6: 80"),
    ("KubeNetworkConfig podSubnets", "podSubnets: [10.245.0.0/16]"),
    ("KubeNetworkConfig serviceSubnets", "serviceSubnets: [10.97.0.0/16]"),
    ("KubeNodeConfig nodeIP.validSubnets", "nodeIP: {validSubnets: ['!10.0.0.0/8', 192.168.0.0/16]}"),
    ("KubeNodeConfig registerWithFQDN", "registerWithFQDN: true"),
    ("KubeNodeConfig skipNodeRegistration", "skipNodeRegistration: true"),
    ("KubeNodeConfig taints", "taints: {other: 'a:NoSchedule'}"),
    ("KubeProxyConfig enabled", "enabled: false"),
    ("KubeProxyConfig extraArgs", "extraArgs: {v: '4'}"),
    ("KubeProxyConfig image", "image: registry.example.org/other:v1.34.10"),
    ("KubeProxyConfig mode", "mode: iptables"),
    ("KubeProxyConfig resources.limits", "resources: {limits: {memory: 100Mi}}"),
    ("KubeProxyConfig resources.requests", "resources: {requests: {memory: 60Mi}}"),
    ("KubeSchedulerConfig config", "config: {parallelism: 4}"),
    ("KubeSchedulerConfig enabled", "enabled: false"),
    ("KubeSchedulerConfig env", "env: {GOMEMLIMIT: 1GiB}"),
    ("KubeSchedulerConfig extraArgs", "extraArgs: {v: '4'}"),
    ("KubeSchedulerConfig image", "image: registry.example.org/other:v1.34.10"),
    ("KubeSchedulerConfig resources.limits", "resources: {limits: {memory: 3Gi}}"),
    ("KubeSchedulerConfig resources.requests", "resources: {requests: {memory: 2Gi}}"),
    ("KubeServiceAccountConfig accepted.audiences", "accepted: {audiences: [b]}"),
    ("KubeServiceAccountConfig accepted.issuers", "accepted: {issuers: ['https://old.example.org']}"),
    ("KubeServiceAccountConfig issuer.issuerURL", "issuer: {issuerURL: 'https://other.example.org'}"),
    ("KubeletConfig clusterDNS", "clusterDNS: [10.96.0.99]"),
    ("KubeletConfig config", "config: {maxPods: 50}"),
    ("KubeletConfig defaultRuntimeSeccompProfileEnabled", "defaultRuntimeSeccompProfileEnabled: false"),
    ("KubeletConfig extraArgs", "extraArgs: {v: '4'}"),
    ("KubeletConfig image", "image: registry.example.org/other:v1.34.10"),
];

#[test]
fn each_field_of_a_document_changes_what_is_rendered() {
    let this = "crates/kubernetes/tests/rendered.rs::each_field_of_a_document_changes_what_is_rendered";
    let here: Vec<_> = DOCUMENT_CHANGES.iter().map(|(field, _)| *field).collect();
    assert_eq!(registered(this), here);
    let mut without = Vec::new();
    for (field, change) in DOCUMENT_CHANGES {
        let kind = field.split(' ').next().unwrap();
        let change = format!("apiVersion: v1alpha1\nkind: {kind}\n{change}\n");
        if !has_effect("documents.yaml", "v1.34.10", &change) {
            without.push(*field);
        }
    }
    assert_eq!(without, [""; 0]);
}

/// Fields that the register says to have their effect shown by this test.
fn registered(test: &str) -> Vec<&'static str> {
    let rows =
        include_str!("../../config/testdata/fields.txt").lines().filter_map(|row| row.split_once(" | "));
    rows.filter(|(_, named)| *named == test).map(|(field, _)| field).collect()
}

/// Whether a change of a configuration changes what is rendered.
fn has_effect(file: &str, version: &str, change: &str) -> bool {
    let text = std::fs::read_to_string(data(file)).unwrap();
    let text = text.replace("VERSION", version).replace("ETCD", "v3.6.4");
    let patches = config::patch::load_patches(change).unwrap();
    let changed = config::patch::apply(&text, &patches).unwrap_or_else(|error| panic!("{change}: {error}"));
    let [before, after] = [text, changed].map(|text| {
        let loaded = config::load(text.as_bytes()).unwrap_or_else(|error| panic!("{change}: {error}"));
        everything(&Cluster::new(&loaded.config).unwrap())
    });
    before != after
}

/// The register of fields with an effect names this test for each of them, and for no other.
#[test]
fn each_field_changes_what_is_rendered() {
    let this = "crates/kubernetes/tests/rendered.rs::each_field_changes_what_is_rendered";
    let here: Vec<_> = CHANGES.iter().map(|(field, ..)| *field).collect();
    assert_eq!(registered(this), here);
    for (field, version, change) in CHANGES {
        assert!(has_effect("current.yaml", version, change), "{field} changes nothing");
    }
}

#[test]
fn manifests_come_from_the_addresses_that_are_named() {
    let change =
        "cluster: {externalCloudProvider: {enabled: true, manifests: [https://example.org/ccm.yaml]}}";
    let network = r#"[{"op": "replace", "path": "/cluster/network/cni",
        "value": {"name": "custom", "urls": ["https://example.org/cni.yaml"]}}]"#;
    let mut text = std::fs::read_to_string(data("current.yaml")).unwrap();
    for change in [change, network] {
        text = config::patch::apply(&text, &config::patch::load_patches(change).unwrap()).unwrap();
    }
    let config = config::parse(&text.replace("VERSION", "v1.34.10").replace("ETCD", "v3.6.4")).unwrap();
    let downloads = manifests::downloads(&Cluster::new(&config).unwrap());
    let addresses: Vec<_> = downloads.iter().map(|download| download.url.as_str()).collect();
    let expected =
        ["https://example.org/cni.yaml", "https://example.org/ccm.yaml", "https://example.org/extra.yaml"];
    assert_eq!(addresses, expected);
}

/// Files are YAML that says what was rendered: nothing is lost in writing.
#[test]
fn what_is_written_is_read_back() {
    let config = configuration("current", "v1.34.10", "v3.6.4");
    let cluster = Cluster::new(&config).unwrap();
    let objects = manifests::rendered(&cluster).unwrap().into_iter().flat_map(|manifest| manifest.objects);
    let pod = api_server::pod(&cluster, &node(), &rendered()).unwrap().1;
    for object in objects.chain([pod]) {
        let text = yaml("an object", &object).unwrap();
        let read: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(read, object, "{text}");
    }
}

/// Names of arguments that a program of this version accepts, from its own help.
fn accepted(program: &str, version: &str) -> Option<BTreeSet<String>> {
    let text = std::fs::read_to_string(data(&format!("flags/{program}-{version}.txt"))).ok()?;
    Some(text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect())
}

#[test]
fn programs_accept_every_argument() {
    let mut compared = 0;
    for (version, etcd, form) in VERSIONS {
        let config = configuration(form, version, etcd);
        let cluster = Cluster::new(&config).unwrap();
        let all = [
            ("kube-apiserver", api_server::arguments(&cluster, &node()).unwrap()),
            ("kube-controller-manager", controller_manager::arguments(&cluster).unwrap()),
            ("kube-scheduler", scheduler::arguments(&cluster).unwrap()),
            ("kubelet", kubelet::arguments(&cluster, &node()).unwrap()),
            ("kube-proxy", manifests::proxy_arguments(&cluster).unwrap()),
        ];
        for (program, arguments) in all {
            let Some(accepted) = accepted(program, version) else { continue };
            let foreign: Vec<_> = arguments.names().filter(|name| !accepted.contains(*name)).collect();
            assert!(foreign.is_empty(), "{program} {version} does not accept {foreign:?}");
            compared += 1;
        }
    }
    assert!(compared > 0, "no list of arguments in testdata/flags");
}

#[test]
fn containerd_takes_the_pause_image_that_images_lists() {
    let settings = include_str!("../../../rootfs-overlay/etc/cri/containerd.toml");
    let line = format!("sandbox_image = \"{}\"", kubernetes::images::pause());
    assert!(settings.lines().any(|found| found.trim() == line), "no line {line}");
}
