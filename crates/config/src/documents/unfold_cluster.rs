//! What sections say of Kubernetes that documents can say too: the other direction of `fold_cluster`.
//!
//! Owns: the `cluster` section, and of `machine` the kubelet, the node, static pods, KubePrism and the API for pods.
//! Does not: make a document that has to name an image where the section names none.

use super::{
    AcceptedServiceAccounts, AuthorizerType, Concern, DiscoveryIdentityConfig, DiscoveryServiceConfig,
    Document, KubeAPIServerCAConfig, KubeAPIServerConfig, KubeAdmissionControlConfig, KubeAggregatorCAConfig,
    KubeAuditPolicyConfig, KubeAuthorizerConfig, KubeClusterConfig, KubeControllerManagerConfig,
    KubeCoreDNSConfig, KubeCredentialProviderConfig, KubeExternalManifestConfig, KubeFlannelCNIConfig,
    KubeInlineManifestConfig, KubeNetworkConfig, KubeNodeConfig, KubePrismConfig, KubeProxyConfig,
    KubeSchedulerConfig, KubeServiceAccountConfig, KubeStaticPodConfig, KubeTalosAPIAccessConfig,
    KubeletConfig, ServiceAccountIssuer,
    fold_cluster::CONTROL_PLANE_TAINT,
    unfold::{document, identity},
};
use crate::{
    CertificateAndKey,
    schema::Value,
    v1alpha1::{Cni, Config, Discovery, DiscoveryRegistries, DiscoveryService, Switch},
};
use std::mem::take;

/// Value of the taint of control plane nodes where the section keeps pods off.
const NO_SCHEDULE: &str = ":NoSchedule";
/// How the section's kube-proxy directs packets where it does not say. Source: the reference of `cluster.proxy.mode`.
pub(crate) const SECTION_PROXY_MODE: &str = "iptables";
/// Networks that the section has where it names none. Source: the reference of `cluster.network`.
pub(crate) const SECTION_NETWORKS: (&str, &str, &str) = ("cluster.local", "10.244.0.0/16", "10.96.0.0/12");
/// Port of KubePrism where the section names none. Source: the reference of `machine.features.kubePrism`.
pub(crate) const SECTION_PRISM_PORT: u16 = 7445;

pub(super) const CONCERNS: &[Concern] = &[
    // Before the cluster's name: whether the section describes the cluster is seen by that.
    Concern::new(
        &["KubeNodeConfig"],
        &[
            "machine.nodeLabels",
            "machine.nodeAnnotations",
            "machine.nodeTaints",
            "machine.kubelet.nodeIP",
            "machine.kubelet.registerWithFQDN",
            "machine.kubelet.skipNodeRegistration",
            "cluster.allowSchedulingOnControlPlanes",
            "cluster.allowSchedulingOnMasters",
        ],
        node,
    ),
    Concern::new(
        &["KubeClusterConfig"],
        &["cluster.controlPlane.endpoint", "cluster.clusterName"],
        |config, documents| {
            let cluster = &mut config.cluster;
            if !cluster.cluster_name.is_empty() && !cluster.control_plane.endpoint.is_empty() {
                *document!(documents, KubeClusterConfig) = KubeClusterConfig {
                    cluster_name: take(&mut cluster.cluster_name),
                    endpoint: take(&mut cluster.control_plane.endpoint),
                };
            }
        },
    ),
    // Before the networks: without a document of flannel they would connect no pods.
    Concern::new(&["KubeFlannelCNIConfig"], &["cluster.network.cni"], flannel),
    Concern::new(&["KubeNetworkConfig"], &["cluster.network"], networks),
    Concern::new(&["KubeletConfig"], &["machine.kubelet"], kubelet),
    Concern::new(
        &["KubeCredentialProviderConfig"],
        &["machine.kubelet.credentialProviderConfig"],
        |config, documents| {
            let Some(value) = config.machine.kubelet.credential_provider_config.take() else { return };
            document!(documents, KubeCredentialProviderConfig).configuration = Some(value);
        },
    ),
    Concern::new(&["KubeStaticPodConfig"], &["machine.pods"], static_pods),
    Concern::new(&["KubePrismConfig"], &["machine.features.kubePrism"], prism),
    Concern::new(&["KubeTalosAPIAccessConfig"], &["machine.features.kubernetesTalosAPIAccess"], api_access),
    Concern::new(&["KubeAPIServerCAConfig"], &["cluster.ca", "cluster.acceptedCAs"], authority),
    Concern::new(&["KubeAggregatorCAConfig"], &["cluster.aggregatorCA"], |config, documents| {
        if config.cluster.aggregator_ca.key().is_some() {
            let pair = take(&mut config.cluster.aggregator_ca);
            let accepted_cas = take(&mut config.cluster.accepted_aggregator_cas);
            *document!(documents, KubeAggregatorCAConfig) =
                KubeAggregatorCAConfig { issuing_ca: Some(identity(&pair)), accepted_cas };
        }
    }),
    Concern::new(&["KubeServiceAccountConfig"], &["cluster.serviceAccount"], service_account),
    // The section has a secret, the document a whole configuration: `rewrite` says why it stays.
    Concern::new(&["KubeEtcdEncryptionConfig"], &[], |_, _| {}),
    // No section has it.
    Concern::new(&["KubeAuthenticationConfig"], &[], |_, _| {}),
    Concern::new(
        &["KubeAPIServerConfig"],
        &["cluster.apiServer", "cluster.controlPlane.localAPIServerPort"],
        api_server,
    ),
    Concern::new(&["KubeAdmissionControlConfig"], &["cluster.apiServer.admissionControl"], admission),
    Concern::new(&["KubeAuditPolicyConfig"], &["cluster.apiServer.auditPolicy"], |config, documents| {
        let server = config.cluster.api_server.as_mut();
        let Some(policy) = server.and_then(|server| server.audit_policy.take()) else { return };
        document!(documents, KubeAuditPolicyConfig).configuration = Some(policy);
    }),
    Concern::new(&["KubeAuthorizerConfig"], &["cluster.apiServer.authorizationConfig"], authorizers),
    Concern::new(
        &["KubeControllerManagerConfig"],
        &["cluster.controllerManager", "machine.controlPlane.controllerManager"],
        controller_manager,
    ),
    Concern::new(
        &["KubeSchedulerConfig"],
        &["cluster.scheduler", "machine.controlPlane.scheduler"],
        scheduler,
    ),
    Concern::new(&["KubeProxyConfig"], &["cluster.proxy"], proxy),
    Concern::new(&["KubeCoreDNSConfig"], &["cluster.coreDNS"], |config, documents| {
        let Some(section) = config.cluster.core_dns.take() else { return };
        *document!(documents, KubeCoreDNSConfig) = KubeCoreDNSConfig {
            enabled: section.disabled.filter(|disabled| *disabled).map(|_| false),
            image: section.image,
        };
    }),
    Concern::new(&["KubeInlineManifestConfig"], &["cluster.inlineManifests"], |config, documents| {
        for manifest in take(&mut config.cluster.inline_manifests) {
            document!(documents, KubeInlineManifestConfig, &manifest.name).manifest = manifest.contents;
        }
    }),
    Concern::new(
        &["KubeExternalManifestConfig"],
        &["cluster.extraManifests", "cluster.extraManifestHeaders"],
        external_manifests,
    ),
    Concern::new(&["DiscoveryIdentityConfig"], &["cluster.id", "cluster.secret"], |config, documents| {
        let cluster = &mut config.cluster;
        if !cluster.id.is_empty() && cluster.secret.is_some() {
            *document!(documents, DiscoveryIdentityConfig) = DiscoveryIdentityConfig {
                cluster_id: take(&mut cluster.id),
                cluster_secret: cluster.secret.take(),
            };
        }
    }),
    Concern::new(&["DiscoveryServiceConfig"], &["cluster.discovery"], discovery),
];

/// A control plane node keeps pods off by itself as a section, and by a taint as a document.
fn node(config: &mut Config, documents: &mut Vec<Document>) {
    let (machine, cluster) = (&mut config.machine, &mut config.cluster);
    let is_control_plane = machine.machine_type.is_control_plane();
    let keeps_off = is_control_plane && !cluster.schedules_on_control_planes();
    let kubelet = &mut machine.kubelet;
    let mut taken = KubeNodeConfig {
        skip_node_registration: kubelet.skip_node_registration.take(),
        register_with_fqdn: take(&mut kubelet.register_with_fqdn).then_some(true),
        node_ip: kubelet.node_ip.take(),
        labels: take(&mut machine.node_labels),
        annotations: take(&mut machine.node_annotations),
        taints: take(&mut machine.node_taints),
    };
    let switches =
        [cluster.allow_scheduling_on_control_planes.take(), cluster.allow_scheduling_on_masters.take()];
    let in_section = !cluster.control_plane.endpoint.is_empty();
    if keeps_off && (in_section || taken != KubeNodeConfig::default()) {
        taken.taints.insert(CONTROL_PLANE_TAINT.to_owned(), NO_SCHEDULE.to_owned());
    }
    let lets_in = is_control_plane && switches.contains(&Some(true));
    if taken != KubeNodeConfig::default() || lets_in {
        *document!(documents, KubeNodeConfig) = taken;
    }
}

fn flannel(config: &mut Config, documents: &mut Vec<Document>) {
    let Some(network) = &mut config.cluster.network else { return };
    let cni = network.cni.clone().unwrap_or_default();
    if !matches!(cni.name.as_str(), "" | "flannel") || !cni.urls.is_empty() {
        return;
    }
    network.cni = None;
    let settings = cni.flannel.unwrap_or_default();
    *document!(documents, KubeFlannelCNIConfig) = KubeFlannelCNIConfig {
        extra_args: settings.extra_args,
        kube_network_policies_enabled: settings.kube_network_policies_enabled,
        backend_type: settings.backend_type,
        backend_port: settings.backend_port,
        backend_mtu: settings.backend_mtu,
        backend_extra_config: settings.backend_extra_config,
        resources: settings.resources,
    };
}

fn networks(config: &mut Config, documents: &mut Vec<Document>) {
    let Some(mut network) = config.cluster.network.take() else { return };
    let or = |list: Vec<String>, default: &str| if list.is_empty() { vec![default.to_owned()] } else { list };
    let (_, pods, services) = SECTION_NETWORKS;
    // That nothing connects pods is what documents say where none of them is of flannel.
    let cni: Option<Cni> =
        network.cni.take().filter(|cni| *cni != Cni { name: "none".to_owned(), ..Cni::default() });
    *document!(documents, KubeNetworkConfig) = KubeNetworkConfig {
        dns_domain: network.dns_domain,
        pod_subnets: or(network.pod_subnets, pods),
        service_subnets: or(network.service_subnets, services),
        node_cidr_mask_size_ipv4: network.node_cidr_mask_size_ipv4,
        node_cidr_mask_size_ipv6: network.node_cidr_mask_size_ipv6,
    };
    if cni.is_some() {
        config.cluster.network.get_or_insert_default().cni = cni;
    }
}

/// Documents always do without the directory of manifests.
fn kubelet(config: &mut Config, documents: &mut Vec<Document>) {
    let kubelet = &mut config.machine.kubelet;
    if kubelet.image.is_empty() || kubelet.disable_manifests_directory != Some(true) {
        return;
    }
    kubelet.disable_manifests_directory = None;
    *document!(documents, KubeletConfig) = KubeletConfig {
        image: take(&mut kubelet.image),
        config: kubelet.extra_config.take(),
        extra_args: take(&mut kubelet.extra_args),
        cluster_dns: take(&mut kubelet.cluster_dns),
        default_runtime_seccomp_profile_enabled: kubelet.default_runtime_seccomp_profile_enabled.take(),
    };
}

/// A pod's own name, as far as its document can have it.
fn pod_name(pod: &Value) -> Option<&str> {
    let get = |value: &'_ Value, key: &str| match value {
        Value::Map(entries) => entries.iter().position(|(k, _)| k == key),
        _ => None,
    };
    let Value::Map(top) = pod else { return None };
    let metadata = &top[get(pod, "metadata")?].1;
    let Value::Map(entries) = metadata else { return None };
    match &entries[get(metadata, "name")?].1 {
        Value::Text(name) if !name.is_empty() => Some(name),
        _ => None,
    }
}

fn static_pods(config: &mut Config, documents: &mut Vec<Document>) {
    for (index, pod) in take(&mut config.machine.pods).into_iter().enumerate() {
        let own = pod_name(&pod).map(str::to_owned);
        let is_taken = |name: &String| {
            documents.iter().any(|d| matches!(d, Document::KubeStaticPodConfig(d) if d.name == *name))
        };
        let name = own.filter(|name| !is_taken(name)).unwrap_or_else(|| format!("pod-{}", index + 1));
        document!(documents, KubeStaticPodConfig, &name).pod = Some(pod);
    }
}

fn prism(config: &mut Config, documents: &mut Vec<Document>) {
    let Some(section) = config.machine.features.as_mut().and_then(|features| features.kube_prism.take())
    else {
        return;
    };
    if section.enabled == Some(true) {
        *document!(documents, KubePrismConfig) = KubePrismConfig {
            port: section.port.or(Some(SECTION_PRISM_PORT)),
            tls_server_name: section.tls_server_name,
        };
    }
}

fn api_access(config: &mut Config, documents: &mut Vec<Document>) {
    let features = config.machine.features.as_mut();
    let Some(section) = features.and_then(|features| features.kubernetes_talos_api_access.take()) else {
        return;
    };
    if section.enabled == Some(true) {
        *document!(documents, KubeTalosAPIAccessConfig) = KubeTalosAPIAccessConfig {
            allowed_roles: section.allowed_roles,
            allowed_kubernetes_namespaces: section.allowed_kubernetes_namespaces,
        };
    }
}

/// A worker has certificates alone, its own first.
fn authority(config: &mut Config, documents: &mut Vec<Document>) {
    let cluster = &mut config.cluster;
    let signs = |pair: &CertificateAndKey| pair.key().is_some();
    if cluster.ca.crt.0.is_empty() || cluster.accepted_cas.iter().any(signs) {
        return;
    }
    let (own, further) = (take(&mut cluster.ca), take(&mut cluster.accepted_cas));
    let mut accepted: Vec<String> = further.into_iter().map(|pair| pair.crt.0).collect();
    let issuing = if signs(&own) { Some(identity(&own)) } else { None };
    if issuing.is_none() {
        accepted.insert(0, own.crt.0);
    }
    *document!(documents, KubeAPIServerCAConfig) =
        KubeAPIServerCAConfig { issuing_ca: issuing, accepted_cas: accepted };
}

/// The section's tokens name the cluster's endpoint as their issuer.
fn service_account(config: &mut Config, documents: &mut Vec<Document>) {
    let mut model = config.clone();
    super::fold(&mut model, documents);
    let endpoint = model.cluster.control_plane.endpoint;
    let account = &mut config.cluster.service_account;
    if account.key.0.is_empty() || endpoint.is_empty() {
        return;
    }
    let account = take(account);
    let issuer_url = if account.issuer.is_empty() { endpoint } else { account.issuer };
    let accepted = AcceptedServiceAccounts {
        public_keys: account.accepted_public_keys,
        issuers: account.accepted_issuers,
        audiences: account.accepted_audiences,
    };
    *document!(documents, KubeServiceAccountConfig) = KubeServiceAccountConfig {
        issuer: Some(ServiceAccountIssuer { private_key: account.key.0, issuer_url }),
        accepted: (accepted != AcceptedServiceAccounts::default()).then_some(accepted),
    };
}

fn api_server(config: &mut Config, documents: &mut Vec<Document>) {
    let cluster = &mut config.cluster;
    let Some(server) = cluster.api_server.as_mut().filter(|server| !server.image.is_empty()) else { return };
    *document!(documents, KubeAPIServerConfig) = KubeAPIServerConfig {
        image: take(&mut server.image),
        extra_args: take(&mut server.extra_args),
        env: take(&mut server.env),
        resources: server.resources.take(),
        api_port: cluster.control_plane.local_api_server_port.take(),
        cert_extra_sans: take(&mut server.cert_sans),
        startup_probes: server.startup_probes.take(),
    };
}

fn admission(config: &mut Config, documents: &mut Vec<Document>) {
    let Some(server) = &mut config.cluster.api_server else { return };
    for plugin in take(&mut server.admission_control) {
        document!(documents, KubeAdmissionControlConfig, &plugin.name).configuration = plugin.configuration;
    }
}

/// The section's list may have kinds that no document has; its order counts, so it goes whole or not at all.
fn authorizers(config: &mut Config, documents: &mut Vec<Document>) {
    let kinds = [AuthorizerType::Node, AuthorizerType::Rbac, AuthorizerType::Webhook];
    let kind = |word: &str| kinds.into_iter().find(|kind| kind.as_str() == word);
    let Some(server) = &mut config.cluster.api_server else { return };
    if server.authorization_config.iter().any(|authorizer| kind(&authorizer.kind).is_none()) {
        return;
    }
    for authorizer in take(&mut server.authorization_config) {
        *document!(documents, KubeAuthorizerConfig, &authorizer.name) = KubeAuthorizerConfig {
            name: authorizer.name.clone(),
            kind: kind(&authorizer.kind),
            webhook: authorizer.webhook,
        };
    }
}

/// `enabled` of a part that the machine's section switches.
fn enabled(switch: Option<Switch>) -> Option<bool> {
    switch.filter(|switch| switch.disabled).map(|_| false)
}

fn controller_manager(config: &mut Config, documents: &mut Vec<Document>) {
    let is_whole = |part: &&mut crate::v1alpha1::ControllerManager| {
        !part.image.is_empty() && part.extra_volumes.is_empty()
    };
    let Some(part) = config.cluster.controller_manager.as_mut().filter(is_whole).map(take) else { return };
    config.cluster.controller_manager = None;
    let parts = config.machine.control_plane.as_mut();
    *document!(documents, KubeControllerManagerConfig) = KubeControllerManagerConfig {
        enabled: enabled(parts.and_then(|parts| parts.controller_manager.take())),
        image: part.image,
        extra_args: part.extra_args,
        env: part.env,
        resources: part.resources,
    };
}

fn scheduler(config: &mut Config, documents: &mut Vec<Document>) {
    let is_whole =
        |part: &&mut crate::v1alpha1::Scheduler| !part.image.is_empty() && part.extra_volumes.is_empty();
    let Some(part) = config.cluster.scheduler.as_mut().filter(is_whole).map(take) else { return };
    config.cluster.scheduler = None;
    let parts = config.machine.control_plane.as_mut();
    *document!(documents, KubeSchedulerConfig) = KubeSchedulerConfig {
        enabled: enabled(parts.and_then(|parts| parts.scheduler.take())),
        image: part.image,
        config: part.config,
        extra_args: part.extra_args,
        env: part.env,
        resources: part.resources,
    };
}

fn proxy(config: &mut Config, documents: &mut Vec<Document>) {
    let Some(part) = config.cluster.proxy.take_if(|part| !part.image.is_empty()) else { return };
    *document!(documents, KubeProxyConfig) = KubeProxyConfig {
        enabled: part.disabled.then_some(false),
        image: part.image,
        mode: if part.mode.is_empty() { SECTION_PROXY_MODE.to_owned() } else { part.mode },
        config: part.config,
        extra_args: part.extra_args,
        resources: part.resources,
    };
}

/// Documents have names, addresses have none.
fn external_manifests(config: &mut Config, documents: &mut Vec<Document>) {
    let cluster = &mut config.cluster;
    let urls = take(&mut cluster.extra_manifests);
    // Headers without an address stay: no document holds them alone.
    let headers = if urls.is_empty() { return } else { take(&mut cluster.extra_manifest_headers) };
    for (index, url) in urls.into_iter().enumerate() {
        let document = document!(documents, KubeExternalManifestConfig, &format!("manifest-{}", index + 1));
        (document.url, document.headers) = (url, headers.clone());
    }
}

/// Of the section's ways that nodes find each other, documents have the server alone.
fn discovery(config: &mut Config, documents: &mut Vec<Document>) {
    let Some(section) = config.cluster.discovery.clone() else { return };
    let only_server = |endpoint: String| Discovery {
        enabled: Some(true),
        registries: Some(DiscoveryRegistries {
            kubernetes: Some(Switch { disabled: true }),
            service: Some(DiscoveryService { disabled: Some(false), endpoint }),
        }),
    };
    if section.enabled != Some(true) {
        config.cluster.discovery = None;
        return;
    }
    let service = section.registries.as_ref().and_then(|registries| registries.service.clone());
    let Some(mut service) = service.filter(|service| !service.endpoint.is_empty()) else { return };
    service.disabled.get_or_insert(false);
    let endpoint = service.endpoint.clone();
    let mut said = section;
    said.registries.get_or_insert_default().service = Some(service);
    if said == only_server(endpoint.clone()) {
        config.cluster.discovery = None;
        document!(documents, DiscoveryServiceConfig, "default").endpoint = endpoint;
    }
}

/// As `unfold::beyond`, of the documents of Kubernetes: each field with whether it is set.
pub(super) fn beyond(document: &Document, all: &[Document], model: &Config) -> Vec<(bool, &'static str)> {
    match document {
        Document::KubeNetworkConfig(d) => vec![
            (d.node_cidr_mask_size_ipv4.is_some(), "nodeCIDRMaskSizeIPv4"),
            (d.node_cidr_mask_size_ipv6.is_some(), "nodeCIDRMaskSizeIPv6"),
        ],
        Document::KubeFlannelCNIConfig(d) => vec![
            (!d.backend_type.is_empty(), "backendType"),
            (d.backend_port.is_some(), "backendPort"),
            (d.backend_mtu.is_some(), "backendMTU"),
            (d.backend_extra_config.is_some(), "backendExtraConfig"),
            (d.resources.is_some(), "resources"),
        ],
        Document::KubeNodeConfig(d) => {
            let taint = d.taints.get(CONTROL_PLANE_TAINT);
            let is_plain = model.machine.machine_type.is_control_plane()
                && taint.is_some_and(|value| {
                    value.trim_start_matches(':') == NO_SCHEDULE.trim_start_matches(':')
                });
            vec![(taint.is_some() && !is_plain, "taints")]
        }
        Document::KubePrismConfig(d) => vec![(!d.tls_server_name.is_empty(), "tlsServerName")],
        Document::KubeAggregatorCAConfig(d) => vec![(!d.accepted_cas.is_empty(), "acceptedCAs")],
        Document::KubeServiceAccountConfig(d) => {
            let issuer = d.issuer.as_ref().map(|issuer| issuer.issuer_url.as_str()).unwrap_or_default();
            let accepted = d.accepted.as_ref().is_some_and(|a| *a != AcceptedServiceAccounts::default());
            vec![(issuer != model.cluster.control_plane.endpoint, "issuer.issuerURL"), (accepted, "accepted")]
        }
        Document::KubeEtcdEncryptionConfig(_) => vec![(true, "config")],
        Document::KubeAuthenticationConfig(_) => vec![(true, "configuration")],
        Document::KubeAPIServerConfig(d) => vec![(d.startup_probes.is_some(), "startupProbes")],
        Document::KubeProxyConfig(d) => {
            vec![(d.config.is_some(), "config"), (d.resources.is_some(), "resources")]
        }
        Document::KubeExternalManifestConfig(d) => {
            let differs = |other: &Document| matches!(other, Document::KubeExternalManifestConfig(o) if o.headers != d.headers);
            vec![(all.iter().any(differs), "headers of its own")]
        }
        Document::DiscoveryServiceConfig(d) => {
            let other =
                |other: &Document| matches!(other, Document::DiscoveryServiceConfig(o) if o.name != d.name);
            vec![(all.iter().any(other), "a second server")]
        }
        _ => Vec::new(),
    }
}
