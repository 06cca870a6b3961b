//! The documents of Kubernetes, put into the sections of the v1alpha1 document that say the same.
//!
//! Owns: the `cluster` section, and of `machine` the kubelet, the node, static pods, KubePrism and the API for pods.
//! What only a document can say goes into the `folded` fields of these sections. `unfold_cluster` has the other direction.
//! Invariant: folding twice is folding once.

use super::{
    ClientIdentity, Document, KubeAPIServerCAConfig, KubeAPIServerConfig, KubeAuthorizerConfig,
    KubeControllerManagerConfig, KubeFlannelCNIConfig, KubeNetworkConfig, KubeNodeConfig, KubeProxyConfig,
    KubeSchedulerConfig, KubeServiceAccountConfig, KubeletConfig,
};
use crate::{
    CertificateAndKey, EncodedPem, EncodedSecret,
    schema::Value,
    v1alpha1::{
        AdmissionPlugin, ApiAccess, Authorizer, Cluster, Cni, Config, CoreDns, Discovery,
        DiscoveryRegistries, DiscoveryService, Flannel, InlineManifest, KubePrism, MachineControlPlane,
        Switch,
    },
};

/// The taint that keeps pods off control plane nodes.
pub(super) const CONTROL_PLANE_TAINT: &str = "node-role.kubernetes.io/control-plane";

/// How kube-proxy directs packets where its document does not say. Source: the reference of KubeProxyConfig.
const PROXY_MODE: &str = "nftables";

/// Puts a document into `config`, if it is one of Kubernetes.
pub(super) fn fold(config: &mut Config, document: &Document) {
    let (machine, cluster) = (&mut config.machine, &mut config.cluster);
    match document {
        Document::KubeClusterConfig(d) => {
            cluster.cluster_name.clone_from(&d.cluster_name);
            cluster.control_plane.endpoint.clone_from(&d.endpoint);
        }
        Document::KubeNetworkConfig(d) => networks(cluster, d),
        Document::KubeFlannelCNIConfig(d) => flannel(cluster, d),
        Document::KubeNodeConfig(d) => node(config, d),
        Document::KubeletConfig(d) => kubelet(config, d),
        Document::KubeCredentialProviderConfig(d) => {
            machine.kubelet.credential_provider_config.clone_from(&d.configuration);
        }
        Document::KubePrismConfig(d) => {
            machine.features.get_or_insert_default().kube_prism = Some(KubePrism {
                enabled: Some(true),
                port: d.port,
                tls_server_name: d.tls_server_name.clone(),
            });
        }
        Document::KubeTalosAPIAccessConfig(d) => {
            machine.features.get_or_insert_default().kubernetes_talos_api_access = Some(ApiAccess {
                enabled: Some(true),
                allowed_roles: d.allowed_roles.clone(),
                allowed_kubernetes_namespaces: d.allowed_kubernetes_namespaces.clone(),
            });
        }
        Document::KubeStaticPodConfig(d) => {
            let pods = &mut machine.pods;
            pods.extend(d.pod.clone().filter(|pod| *pod != Value::Null && !pods.contains(pod)));
        }
        Document::KubeCoreDNSConfig(d) => {
            let disabled = Some(d.enabled == Some(false));
            cluster.core_dns = Some(CoreDns { disabled, image: d.image.clone() });
        }
        Document::KubeAPIServerCAConfig(d) => authority(cluster, d),
        Document::KubeAggregatorCAConfig(d) => {
            if let Some(identity) = &d.issuing_ca {
                cluster.aggregator_ca = pair(identity);
            }
            cluster.accepted_aggregator_cas.clone_from(&d.accepted_cas);
        }
        Document::KubeServiceAccountConfig(d) => service_account(cluster, d),
        Document::KubeEtcdEncryptionConfig(d) => cluster.etcd_encryption.clone_from(&d.config),
        Document::KubeControllerManagerConfig(d) => controller_manager(config, d),
        Document::KubeSchedulerConfig(d) => scheduler(config, d),
        Document::KubeProxyConfig(d) => proxy(cluster, d),
        Document::DiscoveryIdentityConfig(d) => {
            cluster.id.clone_from(&d.cluster_id);
            cluster.secret.clone_from(&d.cluster_secret);
        }
        Document::DiscoveryServiceConfig(d) => {
            let service = DiscoveryService { disabled: Some(false), endpoint: d.endpoint.clone() };
            let kubernetes = Some(Switch { disabled: true });
            let registries = DiscoveryRegistries { kubernetes, service: Some(service) };
            cluster.discovery = Some(Discovery { enabled: Some(true), registries: Some(registries) });
        }
        other => manifests_and_server(cluster, other),
    }
}

/// What is deployed, and what the API server asks others about.
fn manifests_and_server(cluster: &mut Cluster, document: &Document) {
    match document {
        Document::KubeInlineManifestConfig(d) if !d.name.is_empty() => {
            let manifest = InlineManifest { name: d.name.clone(), contents: d.manifest.clone() };
            put(&mut cluster.inline_manifests, manifest, |known| known.name == d.name);
        }
        Document::KubeExternalManifestConfig(d) => {
            if !cluster.extra_manifests.contains(&d.url) {
                cluster.extra_manifests.push(d.url.clone());
            }
            cluster.extra_manifest_headers.extend(d.headers.clone());
        }
        Document::KubeAPIServerConfig(d) => api_server(cluster, d),
        Document::KubeAdmissionControlConfig(d) => {
            let plugin = AdmissionPlugin { name: d.name.clone(), configuration: d.configuration.clone() };
            let plugins = &mut cluster.api_server.get_or_insert_default().admission_control;
            put(plugins, plugin, |known| known.name == d.name);
        }
        Document::KubeAuditPolicyConfig(d) => {
            cluster.api_server.get_or_insert_default().audit_policy.clone_from(&d.configuration);
        }
        Document::KubeAuthenticationConfig(d) => {
            cluster.api_server.get_or_insert_default().authentication.clone_from(&d.configuration);
        }
        Document::KubeAuthorizerConfig(d) => authorizer(cluster, d),
        _ => {}
    }
}

/// In the place of the one that is meant, else behind the others.
fn put<T>(list: &mut Vec<T>, item: T, is_it: impl Fn(&T) -> bool) {
    match list.iter_mut().find(|known| is_it(known)) {
        Some(known) => *known = item,
        None => list.push(item),
    }
}

fn pair(identity: &ClientIdentity) -> CertificateAndKey {
    CertificateAndKey { crt: EncodedPem(identity.cert.clone()), key: EncodedSecret(identity.key.clone()) }
}

/// Certificates alone, as nodes hold them that sign nothing.
fn trusted(pem: &str) -> CertificateAndKey {
    CertificateAndKey { crt: EncodedPem(pem.to_owned()), key: EncodedSecret::default() }
}

/// A worker has accepted CAs only: the first is the cluster's.
fn authority(cluster: &mut Cluster, document: &KubeAPIServerCAConfig) {
    let mut accepted = document.accepted_cas.iter().map(|pem| trusted(pem));
    let own = document.issuing_ca.as_ref().map(pair).or_else(|| accepted.next());
    cluster.ca = own.unwrap_or_default();
    cluster.accepted_cas = accepted.collect();
}

fn networks(cluster: &mut Cluster, document: &KubeNetworkConfig) {
    let network = cluster.network.get_or_insert_default();
    network.dns_domain.clone_from(&document.dns_domain);
    network.pod_subnets.clone_from(&document.pod_subnets);
    network.service_subnets.clone_from(&document.service_subnets);
    network.node_cidr_mask_size_ipv4 = document.node_cidr_mask_size_ipv4;
    network.node_cidr_mask_size_ipv6 = document.node_cidr_mask_size_ipv6;
}

fn flannel(cluster: &mut Cluster, document: &KubeFlannelCNIConfig) {
    let flannel = Flannel {
        extra_args: document.extra_args.clone(),
        kube_network_policies_enabled: document.kube_network_policies_enabled,
        backend_type: document.backend_type.clone(),
        backend_port: document.backend_port,
        backend_mtu: document.backend_mtu,
        backend_extra_config: document.backend_extra_config.clone(),
        resources: document.resources.clone(),
    };
    let network = cluster.network.get_or_insert_default();
    network.cni = Some(Cni { name: "flannel".to_owned(), flannel: Some(flannel), ..Cni::default() });
}

/// Whoever writes networks as a document writes flannel as one too: without it, nothing connects pods.
pub(crate) fn networks_without_flannel(config: &mut Config, documents: &[Document]) {
    let has_networks = documents.iter().any(|d| matches!(d, Document::KubeNetworkConfig(_)));
    if let Some(network) = config.cluster.network.as_mut().filter(|n| has_networks && n.cni.is_none()) {
        network.cni = Some(Cni { name: "none".to_owned(), ..Cni::default() });
    }
}

fn node(config: &mut Config, document: &KubeNodeConfig) {
    let machine = &mut config.machine;
    let kubelet = &mut machine.kubelet;
    kubelet.skip_node_registration = document.skip_node_registration;
    kubelet.register_with_fqdn = document.register_with_fqdn == Some(true);
    kubelet.node_ip.clone_from(&document.node_ip);
    machine.node_labels.clone_from(&document.labels);
    machine.node_annotations.clone_from(&document.annotations);
    machine.node_taints.clone_from(&document.taints);
    // The section has the taint on every control plane node unless it says otherwise.
    let kept_off = machine.node_taints.remove(CONTROL_PLANE_TAINT).is_some();
    config.cluster.allow_scheduling_on_control_planes = Some(!kept_off);
}

fn kubelet(config: &mut Config, document: &KubeletConfig) {
    let kubelet = &mut config.machine.kubelet;
    kubelet.image.clone_from(&document.image);
    kubelet.extra_config.clone_from(&document.config);
    kubelet.extra_args.clone_from(&document.extra_args);
    kubelet.cluster_dns.clone_from(&document.cluster_dns);
    kubelet.default_runtime_seccomp_profile_enabled = document.default_runtime_seccomp_profile_enabled;
    // Such configs have static pods as documents.
    kubelet.disable_manifests_directory = Some(true);
}

fn service_account(cluster: &mut Cluster, document: &KubeServiceAccountConfig) {
    let account = &mut cluster.service_account;
    if let Some(issuer) = &document.issuer {
        account.key = EncodedSecret(issuer.private_key.clone());
        account.issuer.clone_from(&issuer.issuer_url);
    }
    let accepted = document.accepted.clone().unwrap_or_default();
    account.accepted_public_keys = accepted.public_keys;
    account.accepted_issuers = accepted.issuers;
    account.accepted_audiences = accepted.audiences;
}

fn api_server(cluster: &mut Cluster, document: &KubeAPIServerConfig) {
    cluster.control_plane.local_api_server_port = document.api_port;
    let server = cluster.api_server.get_or_insert_default();
    server.image.clone_from(&document.image);
    server.extra_args.clone_from(&document.extra_args);
    server.env.clone_from(&document.env);
    server.resources.clone_from(&document.resources);
    server.cert_sans.clone_from(&document.cert_extra_sans);
    server.startup_probes = document.startup_probes;
}

fn authorizer(cluster: &mut Cluster, document: &KubeAuthorizerConfig) {
    let kind = document.kind.map(|kind| kind.as_str().to_owned()).unwrap_or_default();
    let authorizer = Authorizer { kind, name: document.name.clone(), webhook: document.webhook.clone() };
    let list = &mut cluster.api_server.get_or_insert_default().authorization_config;
    put(list, authorizer, |known| known.name == document.name);
}

fn controller_manager(config: &mut Config, document: &KubeControllerManagerConfig) {
    let part = config.cluster.controller_manager.get_or_insert_default();
    part.image.clone_from(&document.image);
    part.extra_args.clone_from(&document.extra_args);
    part.env.clone_from(&document.env);
    part.resources.clone_from(&document.resources);
    let parts: &mut MachineControlPlane = config.machine.control_plane.get_or_insert_default();
    parts.controller_manager = Some(Switch { disabled: document.enabled == Some(false) });
}

fn scheduler(config: &mut Config, document: &KubeSchedulerConfig) {
    let part = config.cluster.scheduler.get_or_insert_default();
    part.image.clone_from(&document.image);
    part.config.clone_from(&document.config);
    part.extra_args.clone_from(&document.extra_args);
    part.env.clone_from(&document.env);
    part.resources.clone_from(&document.resources);
    let parts: &mut MachineControlPlane = config.machine.control_plane.get_or_insert_default();
    parts.scheduler = Some(Switch { disabled: document.enabled == Some(false) });
}

fn proxy(cluster: &mut Cluster, document: &KubeProxyConfig) {
    let part = cluster.proxy.get_or_insert_default();
    part.disabled = document.enabled == Some(false);
    part.image.clone_from(&document.image);
    // Documents have a default of their own.
    let mode = if document.mode.is_empty() { PROXY_MODE } else { document.mode.as_str() };
    mode.clone_into(&mut part.mode);
    part.extra_args.clone_from(&document.extra_args);
    part.config.clone_from(&document.config);
    part.resources.clone_from(&document.resources);
}

#[cfg(test)]
#[path = "fold_cluster_tests.rs"]
mod tests;
