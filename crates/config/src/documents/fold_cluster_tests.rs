//! Configs whose cluster is described by documents alone, as clients of v1.14 generate them.

use crate::{Loaded, Mode, Secret, v1alpha1::MachineType};
use base64::{Engine, engine::general_purpose::STANDARD};

/// A certificate as far as rules look at it.
const PEM: &str = "-----BEGIN CERTIFICATE-----\n    MAA=\n    -----END CERTIFICATE-----\n";
const KEY: &str = "-----BEGIN EC PRIVATE KEY-----\n    MAA=\n    -----END EC PRIVATE KEY-----\n";

/// What both roles have.
const COMMON: &str = include_str!("../../testdata/generated-common.yaml");

/// What control plane nodes have beside it.
const CONTROL_PLANE: &str = include_str!("../../testdata/generated-control-plane.yaml");

fn base(role: &str) -> String {
    let pem = |text: &str| STANDARD.encode(text.replace("    ", ""));
    let key = if role == "worker" { String::new() } else { format!(", key: {}", pem(KEY)) };
    format!(
        "version: v1alpha1\npersist: true\nmachine: {{type: {role}, token: a.b, ca: {{crt: {}{key}}}, features: {{diskQuotaSupport: true}}}}\ncluster: {{token: c.d}}\n",
        pem(PEM)
    )
}

fn load(text: &str) -> Loaded {
    crate::load(text.as_bytes()).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn control_plane() -> String {
    let authority = format!(
        "---\napiVersion: v1alpha1\nkind: KubeAPIServerCAConfig\nissuingCA:\n  cert: |\n    {PEM}  key: |\n    {KEY}acceptedCAs:\n  - |\n    {PEM}\
         ---\napiVersion: v1alpha1\nkind: KubeAggregatorCAConfig\nissuingCA:\n  cert: |\n    {PEM}  key: |\n    {KEY}acceptedCAs:\n  - |\n    {PEM}\
         ---\napiVersion: v1alpha1\nkind: KubeServiceAccountConfig\nissuer:\n  issuerURL: https://demo.example.org:6443\n  privateKey: |\n    {KEY}\
         accepted: {{issuers: ['https://old.example.org'], audiences: [b], publicKeys: [c]}}\n"
    );
    format!("{}{COMMON}{CONTROL_PLANE}{authority}", base("controlplane"))
}

#[test]
fn a_generated_control_plane_is_valid_everywhere() {
    let loaded = load(&control_plane());
    for mode in [Mode::Metal, Mode::Cloud, Mode::Container] {
        loaded.validate(mode).unwrap_or_else(|error| panic!("{mode:?}: {error}"));
    }
    assert_eq!(loaded.config.machine.machine_type, MachineType::ControlPlane);
    let later: Vec<_> = loaded.warnings.iter().map(|warning| warning.message.as_str()).collect();
    assert!(!later.iter().any(|message| message.contains("Kubernetes is not built yet")), "{later:?}");
}

#[test]
fn the_control_plane_s_documents_fill_the_sections() {
    let config = load(&control_plane()).config;
    let (machine, cluster) = (&config.machine, &config.cluster);
    assert_eq!(
        (cluster.cluster_name.as_str(), cluster.control_plane.endpoint.as_str()),
        ("demo", "https://demo.example.org:6443")
    );
    let network = cluster.network.as_ref().expect("networks");
    assert_eq!(
        (&network.pod_subnets[..], &network.service_subnets[..]),
        (&["10.244.0.0/16".to_owned()][..], &["10.96.0.0/12".to_owned()][..])
    );
    assert_eq!((network.node_cidr_mask_size_ipv4, network.node_cidr_mask_size_ipv6), (Some(24), Some(64)));
    let cni = network.cni.as_ref().expect("flannel");
    let flannel = cni.flannel.as_ref().expect("its settings");
    assert_eq!(
        (cni.name.as_str(), flannel.backend_type.as_str(), flannel.backend_port),
        ("flannel", "vxlan", Some(4789))
    );
    assert_eq!(cluster.control_plane.local_api_server_port, Some(6443));
    let server = cluster.api_server.as_ref().expect("a server");
    assert!(server.image.ends_with("kube-apiserver:v1.36.3") && server.cert_sans == ["demo.example.org"]);
    assert!(server.audit_policy.is_some() && server.authentication.is_some());
    assert_eq!(
        (server.admission_control[0].name.as_str(), server.authorization_config[0].kind.as_str()),
        ("PodSecurity", "Node")
    );
    let parts = machine.control_plane.as_ref().expect("parts");
    let disabled =
        [&parts.controller_manager, &parts.scheduler].map(|part| part.as_ref().map(|part| part.disabled));
    assert_eq!(disabled, [Some(false), Some(true)]);
    let proxy = cluster.proxy.as_ref().expect("a proxy");
    assert_eq!((proxy.disabled, proxy.mode.as_str()), (false, "nftables"));
    assert_eq!(cluster.core_dns.as_ref().and_then(|dns| dns.disabled), Some(false));
    assert!(cluster.etcd_encryption.is_some());
    assert_eq!(
        (cluster.inline_manifests[0].contents.as_str(), cluster.extra_manifests.len()),
        ("kind: Namespace", 1)
    );
    assert_eq!(cluster.extra_manifest_headers["Accept"], "text/yaml");
    assert!(cluster.discovery.as_ref().is_some_and(|discovery| discovery.enabled == Some(true)));
    assert!(!cluster.id.is_empty() && cluster.secret.is_some());
}

#[test]
fn authorities_and_tokens_come_with_their_keys() {
    let cluster = load(&control_plane()).config.cluster;
    let has_key =
        |key: Option<&Secret>| key.is_some_and(|key| key.expose_secret().starts_with("-----BEGIN EC"));
    assert!(has_key(cluster.ca.key()) && has_key(cluster.aggregator_ca.key()));
    assert!(has_key(Some(&cluster.service_account.key.0)));
    assert_eq!((cluster.accepted_cas.len(), cluster.accepted_aggregator_cas.len()), (1, 1));
    let account = &cluster.service_account;
    assert_eq!(account.issuer, "https://demo.example.org:6443");
    let accepted = [&account.accepted_issuers, &account.accepted_audiences, &account.accepted_public_keys];
    assert_eq!(accepted.map(|list| list.join(",")), ["https://old.example.org", "b", "c"]);
}

#[test]
fn the_node_s_documents_fill_the_sections() {
    let config = load(&control_plane()).config;
    let machine = &config.machine;
    assert!(machine.kubelet.image.ends_with("kubelet:v1.36.3"));
    assert_eq!(machine.kubelet.default_runtime_seccomp_profile_enabled, Some(true));
    assert!(machine.kubelet.credential_provider_config.is_some());
    assert_eq!(machine.node_labels.len(), 1);
    assert!(machine.node_taints.is_empty() && !config.cluster.schedules_on_control_planes());
    assert_eq!(machine.pods.len(), 1);
    let features = machine.features.as_ref().expect("features");
    assert_eq!(features.kube_prism.as_ref().and_then(|prism| prism.port), Some(7445));
    let access = features.kubernetes_talos_api_access.as_ref().expect("access");
    assert_eq!((access.enabled, access.allowed_roles.len()), (Some(true), 1));
    assert_eq!(machine.sysctls["net.core.somaxconn"], "65535");
    let install = &machine.install;
    assert_eq!(install.disk_expression, "disk.dev_path == \"/dev/vda\"");
    assert_eq!((install.image.as_str(), install.wipe), ("registry.example.org/installer:v1.14.0", false));
}

#[test]
fn without_the_taint_pods_run_on_a_control_plane_node() {
    let text = control_plane()
        .replace("    node-role.kubernetes.io/control-plane: :NoSchedule\n", "    a: b:NoSchedule\n");
    let config = load(&text).config;
    assert!(config.cluster.schedules_on_control_planes());
    assert_eq!(config.machine.node_taints["a"], "b:NoSchedule");
}

#[test]
fn a_worker_trusts_the_first_accepted_authority() {
    let accepted =
        format!("---\napiVersion: v1alpha1\nkind: KubeAPIServerCAConfig\nacceptedCAs:\n  - |\n    {PEM}");
    let loaded = load(&format!("{}{COMMON}{accepted}", base("worker")));
    loaded.validate(Mode::Metal).unwrap_or_else(|error| panic!("{error}"));
    let cluster = &loaded.config.cluster;
    assert!(cluster.ca.crt.0.starts_with("-----BEGIN CERTIFICATE-----") && cluster.ca.key().is_none());
    assert!(cluster.accepted_cas.is_empty());
    let cni = cluster.network.as_ref().and_then(|network| network.cni.as_ref());
    assert_eq!(
        cni.map(|cni| cni.name.as_str()),
        Some("none"),
        "nothing connects pods where no document says so"
    );
}

#[test]
fn what_was_put_together_is_the_same_when_it_is_read_again() {
    let first = load(&control_plane());
    let again = load(&crate::write(&first.config, &first.documents).expect("text"));
    assert!(first.config == again.config && first.documents == again.documents);
}

#[test]
fn a_proxy_without_a_mode_has_the_document_s_default() {
    let text = control_plane().replace("mode: nftables\n", "");
    assert_eq!(load(&text).config.cluster.proxy.map(|proxy| proxy.mode).as_deref(), Some("nftables"));
}

#[test]
fn a_generated_control_plane_goes_into_sections_and_comes_back() {
    use crate::rewrite::{Form, rewrite};
    let first = load(&control_plane());
    let section = rewrite(&first.text, Form::V1alpha1).unwrap_or_else(|error| panic!("{error}"));
    let kept: Vec<_> = section.kept.iter().map(|one| one.what.as_str()).collect();
    let expected = [
        "VolumeConfig EPHEMERAL",
        "KubeFlannelCNIConfig",
        "KubeNetworkConfig",
        "KubeAggregatorCAConfig",
        "KubeServiceAccountConfig",
        "KubeEtcdEncryptionConfig",
        "KubeAuthenticationConfig",
        "FilesystemTrimConfig",
        "SecurityProfileConfig",
    ];
    assert_eq!(kept, expected);
    let middle = load(section.text.expose_secret());
    assert_eq!(middle.documents.len(), expected.len());
    let back = rewrite(section.text.expose_secret().as_bytes(), Form::Documents);
    let last = load(back.unwrap_or_else(|error| panic!("{error}")).text.expose_secret());
    assert_eq!(last.documents.len(), first.documents.len());
    let named = |d: &crate::Document| {
        // Names of pods and addresses are the document's own, and no section has them; `wipe: false` is the default.
        !matches!(d.kind(), "KubeStaticPodConfig" | "KubeExternalManifestConfig" | "UnattendedInstallConfig")
    };
    let missing = first.documents.iter().filter(|d| named(d) && !last.documents.contains(d));
    assert_eq!(missing.map(crate::Document::kind).collect::<Vec<_>>(), [""; 0]);
}
