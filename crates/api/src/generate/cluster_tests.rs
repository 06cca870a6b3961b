//! What stands in the generated files, and that it all belongs together.

use super::*;
use crate::pki::{Authority, CertificateFacts};
use std::collections::BTreeSet;

fn cluster(contract: &str) -> Cluster {
    Cluster {
        name: "demo".into(),
        endpoint: "https://10.5.0.1:6443".into(),
        contract: contract.parse().unwrap(),
        install_disk: "/dev/sda".into(),
        install_image: None,
        additional_sans: vec!["k8s.example.org".into()],
        dns_domain: "cluster.local".into(),
        kubernetes_version: None,
        registry_mirrors: vec![("registry.example.org".into(), "http://10.5.0.1:5000".into())],
        persist: true,
        discovery: true,
        kubespan: false,
    }
}

/// The keys with their depth, in order, each line once.
fn outline(text: &str, depth: usize) -> Vec<String> {
    let keys = text.lines().filter(|l| l.len() - l.trim_start().len() == depth * 4);
    keys.filter_map(|l| l.trim_start().split_once(':')).map(|(k, _)| k.to_owned()).collect()
}

#[test]
fn endpoints_that_are_none_show_the_right_form() {
    assert_eq!(cluster_endpoint("https://10.0.0.1:6443").as_deref(), Ok("https://10.0.0.1:6443"));
    for (text, expected) in [
        (
            "10.0.0.1",
            "no scheme and port specified for the cluster endpoint URL\ntry: \"https://10.0.0.1:6443\"",
        ),
        ("10.0.0.1:6443", "no scheme specified for the cluster endpoint URL\ntry: \"https://10.0.0.1:6443\""),
        (
            "fd00::1",
            "no scheme and port specified for the cluster endpoint URL\ntry: \"https://[fd00::1]:6443\"",
        ),
        ("http://a:1", "the control plane endpoint URL should have scheme https://\ntry: \"https://a:1\""),
        (
            "209.202.254.14.8172",
            "no scheme specified for the cluster endpoint URL\ntry: \"https://209.202.254.14:8172\"",
        ),
        (
            "https://209.202.254.14.8172",
            "error validating the cluster endpoint URL: \"https://209.202.254.14.8172\" is not https://host:port\ntry: \"https://209.202.254.14:8172\"",
        ),
        (
            "https://a:x",
            "error validating the cluster endpoint URL: \"https://a:x\" is not https://host:port",
        ),
    ] {
        assert_eq!(cluster_endpoint(text).unwrap_err().to_string(), expected, "{text}");
    }
}

#[test]
fn fields_and_order_of_the_first_generation() {
    let secrets = Bundle::generate().unwrap();
    let text = cluster("v0.9").machine_config(&secrets, MachineType::Init);
    let text = text.expose_secret();
    assert_eq!(outline(text, 0), ["version", "debug", "persist", "machine", "cluster"]);
    let expected = "type token ca certSANs kubelet network install registries controlPlane clusterName network token \
                    aescbcEncryptionSecret ca aggregatorCA serviceAccount apiServer controllerManager proxy scheduler etcd";
    assert_eq!(outline(text, 1).join(" "), expected);
    assert!(
        text.contains(
            "    install:\n        disk: /dev/sda\n        bootloader: true\n        wipe: false\n"
        ),
        "{text}"
    );
    assert!(
        text.contains("        certSANs:\n            - 10.5.0.1\n            - k8s.example.org\n"),
        "{text}"
    );
    let join = cluster("v0.9").machine_config(&secrets, MachineType::Worker);
    let join = join.expose_secret();
    assert!(join.contains("type: worker\n") && join.contains("aescbcEncryptionSecret: \"\"\n"), "{join}");
    assert!(
        !join.contains("clusterName") && !join.contains("aggregatorCA") && !join.contains("etcd"),
        "{join}"
    );
}

#[test]
fn fields_and_order_of_the_second_generation() {
    let secrets = Bundle::generate().unwrap();
    let text = cluster("v1.13").machine_config(&secrets, MachineType::ControlPlane);
    let text = text.expose_secret();
    let expected = "type token ca certSANs kubelet network install registries features nodeLabels id secret controlPlane \
                    clusterName network token secretboxEncryptionSecret ca aggregatorCA serviceAccount apiServer \
                    controllerManager proxy scheduler discovery etcd";
    assert_eq!(outline(text, 1).join(" "), expected);
    let worker = cluster("v1.13").machine_config(&secrets, MachineType::Worker);
    assert!(worker.expose_secret().contains("        key: \"\"\n"));
    for secret in [&secrets.certs.os.key, &secrets.certs.k8s.key, &secrets.certs.etcd.key] {
        assert!(!worker.expose_secret().contains(secret.expose_secret()), "a worker holds no CA's key");
    }
}

#[test]
fn a_bundle_survives_its_file_and_a_node_s_configuration() {
    let secrets = Bundle::generate().unwrap();
    let text = secrets.to_yaml();
    assert_eq!(outline(text.expose_secret(), 0), ["cluster", "secrets", "trustdinfo", "certs"]);
    let again = Bundle::parse(text.expose_secret()).unwrap();
    assert!(again.to_yaml() == text);
    let node = cluster("v1.13").machine_config(&secrets, MachineType::ControlPlane);
    let taken = Bundle::from_control_plane(node.expose_secret()).unwrap();
    let written = |s: &Bundle| cluster("v1.13").machine_config(s, MachineType::ControlPlane);
    assert!(written(&taken) == node);
    let error = Bundle::parse("cluster: {}\nextra: 1\n").err().unwrap().to_string();
    assert!(error.starts_with("these are no secrets of a cluster: line "), "{error}");
    let mut mixed = secrets.clone();
    mixed.certs.os.key = secrets.certs.k8s.key.clone();
    let error = Bundle::parse(mixed.to_yaml().expose_secret()).err().unwrap();
    assert!(error.to_string().contains("certs.os"), "{error}");
}

#[test]
fn the_administrator_s_certificate_is_of_its_generation() {
    let secrets = Bundle::generate().unwrap();
    let facts = |contract: &str| {
        let config = cluster(contract).talosconfig(&secrets).unwrap();
        let (name, context) = config.choose(None).unwrap();
        assert_eq!(name, "demo");
        let identity = context.identity().unwrap().unwrap();
        (context.endpoints.clone(), CertificateFacts::from_pem("it", &identity.certificate).unwrap())
    };
    let (endpoints, new) = facts("v1.13");
    assert!(endpoints.is_empty() && new.organizations == ["os:admin"] && !new.server_auth);
    assert!(new.remaining().unwrap() < Duration::from_secs(8761 * 3600));
    let (endpoints, old) = facts("v0.9");
    assert_eq!((endpoints.join(","), old.names.join(",")), ("127.0.0.1".into(), "127.0.0.1".into()));
    assert!(old.organizations.is_empty() && old.remaining().unwrap() > Duration::from_secs(87_000 * 3600));
}

#[test]
fn every_authority_is_of_its_kind() {
    let secrets = Bundle::generate().unwrap();
    let mut seen = BTreeSet::new();
    for (pair, organization) in [
        (&secrets.certs.os, "talos"),
        (&secrets.certs.k8s, "kubernetes"),
        (&secrets.certs.etcd, "etcd"),
        (&secrets.certs.k8saggregator, "front-proxy"),
    ] {
        let pem = config::decode_base64(&pair.crt).unwrap();
        let key = config::decode_base64(pair.key.expose_secret()).unwrap();
        assert!(Authority::from_pem(&pem, &Secret::new(key.as_str())).is_ok());
        let facts = CertificateFacts::from_pem("it", &pem).unwrap();
        assert_eq!(facts.organizations, [organization]);
        let label = if organization == "talos" { "ED25519 PRIVATE KEY" } else { "EC PRIVATE KEY" };
        assert!(key.contains(label), "{organization}");
        assert!(seen.insert(facts.fingerprint));
    }
}

/// What of the first generation's control plane no document says.
const KEPT_OLD: &str = "machine.install.bootloader cluster.aescbcEncryptionSecret cluster.apiServer.certSANs \
                        cluster.controllerManager cluster.proxy cluster.scheduler";
/// The documents that it becomes.
const OLD: &str = "UnattendedInstallConfig RegistryMirrorConfig KubeNodeConfig KubeClusterConfig KubeFlannelCNIConfig \
                   KubeNetworkConfig KubeAPIServerCAConfig KubeAggregatorCAConfig KubeServiceAccountConfig";
/// What the second generation's control plane becomes.
const NEW: &str = "UnattendedInstallConfig ResolverConfig RegistryMirrorConfig KubeNodeConfig KubeClusterConfig \
                   KubeFlannelCNIConfig KubeNetworkConfig KubeletConfig KubePrismConfig KubeAPIServerCAConfig \
                   KubeAggregatorCAConfig KubeServiceAccountConfig KubeAPIServerConfig KubeAdmissionControlConfig \
                   KubeAuditPolicyConfig KubeControllerManagerConfig KubeSchedulerConfig KubeProxyConfig \
                   DiscoveryIdentityConfig";

#[test]
fn configurations_of_both_generations_become_documents_and_sections_again() {
    use config::rewrite::{Form, rewrite};
    let secrets = Bundle::generate().unwrap();
    let first = |error: config::rewrite::RewriteError| -> String { panic!("{error}") };
    for (contract, machine_type, kept, documents) in [
        ("v0.9", MachineType::Init, KEPT_OLD, OLD),
        ("v0.9", MachineType::ControlPlane, KEPT_OLD, OLD),
        (
            "v0.9",
            MachineType::Worker,
            "machine.install.bootloader cluster.controlPlane",
            "UnattendedInstallConfig RegistryMirrorConfig KubeFlannelCNIConfig KubeNetworkConfig KubeAPIServerCAConfig",
        ),
        (
            "v1.13",
            MachineType::ControlPlane,
            "machine.install.grubUseUKICmdline cluster.secretboxEncryptionSecret \
             cluster.apiServer.disablePodSecurityPolicy cluster.discovery",
            NEW,
        ),
        (
            "v1.13",
            MachineType::Worker,
            "machine.install.grubUseUKICmdline cluster.discovery",
            "UnattendedInstallConfig ResolverConfig RegistryMirrorConfig KubeClusterConfig KubeFlannelCNIConfig \
             KubeNetworkConfig KubeletConfig KubePrismConfig KubeAPIServerCAConfig DiscoveryIdentityConfig",
        ),
    ] {
        let mut cluster = cluster(contract);
        cluster.kubernetes_version = (contract == "v1.13").then(|| "1.36.3".to_owned());
        let text = cluster.machine_config(&secrets, machine_type);
        let new = rewrite(text.expose_secret().as_bytes(), Form::Documents).map_err(first).unwrap();
        let what: Vec<_> = new.kept.iter().map(|one| one.what.as_str()).collect();
        let loaded = config::load(new.text.expose_secret().as_bytes()).unwrap();
        let kinds: Vec<_> = loaded.documents.iter().map(config::Document::kind).collect();
        let found = (what.join(" "), kinds.join(" "));
        assert_eq!(found, (kept.to_owned(), documents.to_owned()), "{contract} {machine_type}");
        let old = rewrite(new.text.expose_secret().as_bytes(), Form::V1alpha1).map_err(first).unwrap();
        assert!(old.kept.is_empty(), "{contract} {machine_type}: {:?}", old.kept);
        let sections = config::load(old.text.expose_secret().as_bytes()).unwrap();
        assert!(sections.documents.is_empty(), "{contract} {machine_type}");
        let key = secrets.certs.k8s.key.expose_secret();
        let has_key = |text: &Secret| text.expose_secret().contains(key);
        assert!(has_key(&text) == has_key(&old.text), "{contract} {machine_type}");
    }
}
