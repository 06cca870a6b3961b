//! What a document and the v1alpha1 document both say, differently: neither can be silently dropped.
//!
//! Source: the second generation's refusals, worded as there; equal values are no conflict.

use super::Problems;
use crate::{
    documents::Document,
    v1alpha1::{Config, Kubelet},
};
use std::collections::BTreeMap;

/// `own` is the v1alpha1 document as it stands, without what documents put into it.
pub(super) fn check(document: &Document, own: &Config, problems: &mut Problems) {
    let network = &own.machine.network;
    match document {
        Document::HostnameConfig(d) if !network.hostname.is_empty() && network.hostname != d.hostname => {
            let field = if d.hostname.is_empty() { "auto" } else { "hostname" };
            let message = "static hostname is already set in v1alpha1 config; \
                           keep one of `machine.network.hostname` and this document";
            problems.add(field, message);
        }
        Document::ResolverConfig(d) if !network.nameservers.is_empty() && !d.nameservers.is_empty() => {
            let same = d.nameservers.iter().filter_map(|n| n.address).eq(network.nameservers.iter().copied());
            if !same {
                let message =
                    ".machine.network.nameservers is already set in v1alpha1 config; keep one of both";
                problems.add("nameservers", message);
            }
        }
        Document::KubeSpanConfig(_) if network.kubespan.is_some() => {
            let message =
                "kubespan is already configured in v1alpha1 machine.network.kubespan; keep one of both";
            problems.add("enabled", message);
        }
        Document::VolumeConfig(d) if d.encryption.is_some() => {
            let legacy = &own.machine.system_disk_encryption;
            let both = match d.name.as_str() {
                "STATE" => legacy.state.is_some(),
                "EPHEMERAL" => legacy.ephemeral.is_some(),
                _ => false,
            };
            if both {
                let message = format!(
                    "system disk encryption for {:?} is configured in both v1alpha1.Config and VolumeConfig",
                    d.name
                );
                problems.add("encryption", message);
            }
        }
        Document::UserVolumeConfig(d) => {
            let place = format!("/var/mnt/{}", d.name);
            let mut legacy = own.machine.disks.iter().flat_map(|disk| &disk.partitions);
            if legacy.any(|partition| partition.mountpoint == place) {
                let message =
                    format!("machine.disks mounts a partition at {place}, too; give one another name");
                problems.add("name", message);
            }
        }
        other => {
            if let Some(path) = host_section(other, own).or_else(|| cluster_section(other, own)) {
                let kind = other.kind();
                let message =
                    format!("{kind} config is incompatible with v1alpha1 config (.{path}); keep one of both");
                problems.add("kind", message);
            }
        }
    }
}

/// A key to which both give a value, and not the same.
fn differ(own: &BTreeMap<String, String>, other: &BTreeMap<String, String>) -> bool {
    other.iter().any(|(key, value)| own.get(key).is_some_and(|known| known != value))
}

/// The place below `machine` that says what a document says.
fn host_section(document: &Document, own: &Config) -> Option<&'static str> {
    let machine = &own.machine;
    let features = machine.features.clone().unwrap_or_default();
    let (is_set, path) = match document {
        Document::SysctlConfig(d) => (differ(&machine.sysctls, &d.params), "machine.sysctls"),
        Document::SysfsConfig(d) => (differ(&machine.sysfs, &d.params), "machine.sysfs"),
        Document::KernelModuleConfig(d) => {
            let mut known = machine.kernel.iter().flat_map(|kernel| &kernel.modules);
            let is_other = known.any(|m| m.name == d.name && m.parameters != d.parameters);
            (is_other, "machine.kernel.modules")
        }
        Document::CRICustomizationConfig(d) => {
            let path = format!("/var/cri/conf.d/{}.toml", d.name);
            (machine.files.iter().any(|file| file.path == path), "machine.files")
        }
        Document::CRIBaseRuntimeSpecConfig(_) => {
            (machine.base_runtime_spec_overrides.is_some(), "machine.baseRuntimeSpecOverrides")
        }
        Document::UnattendedInstallConfig(_) => {
            let install = &machine.install;
            (install.names_a_disk() || !install.image.is_empty() || install.wipe, "machine.install")
        }
        Document::ImageCacheConfig(_) => (features.image_cache.is_some(), "machine.features.imageCache"),
        Document::ResolverConfig(d) => {
            let both = d.host_dns.is_some() && features.host_dns.is_some();
            (both && d.host_dns != features.host_dns, "machine.features.hostDNS")
        }
        Document::KubePrismConfig(_) => (features.kube_prism.is_some(), "machine.features.kubePrism"),
        Document::KubeTalosAPIAccessConfig(_) => {
            (features.kubernetes_talos_api_access.is_some(), "machine.features.kubernetesTalosAPIAccess")
        }
        Document::KubeCredentialProviderConfig(_) => {
            (machine.kubelet.credential_provider_config.is_some(), "machine.kubelet.credentialProviderConfig")
        }
        Document::KubeletConfig(_) => (has_kubelet(&machine.kubelet), "machine.kubelet"),
        Document::KubeNodeConfig(_) => return node_section(own),
        _ => return None,
    };
    is_set.then_some(path)
}

/// What a KubeletConfig says; the rest is of the node, or of no document.
fn has_kubelet(kubelet: &Kubelet) -> bool {
    !kubelet.image.is_empty()
        || kubelet.extra_config.is_some()
        || !kubelet.extra_args.is_empty()
        || !kubelet.cluster_dns.is_empty()
        || kubelet.default_runtime_seccomp_profile_enabled.is_some()
}

fn node_section(own: &Config) -> Option<&'static str> {
    let (machine, kubelet) = (&own.machine, &own.machine.kubelet);
    let schedules =
        own.cluster.allow_scheduling_on_control_planes.or(own.cluster.allow_scheduling_on_masters);
    let set = [
        (kubelet.skip_node_registration.is_some(), "machine.kubelet.skipNodeRegistration"),
        (kubelet.register_with_fqdn, "machine.kubelet.registerWithFQDN"),
        (kubelet.node_ip.is_some(), "machine.kubelet.nodeIP"),
        (!machine.node_labels.is_empty(), "machine.nodeLabels"),
        (!machine.node_annotations.is_empty(), "machine.nodeAnnotations"),
        (!machine.node_taints.is_empty(), "machine.nodeTaints"),
        (schedules.is_some(), "cluster.allowSchedulingOnControlPlanes"),
    ];
    set.into_iter().find_map(|(is_set, path)| is_set.then_some(path))
}

/// The place below `cluster` that says what a document says.
fn cluster_section(document: &Document, own: &Config) -> Option<&'static str> {
    let cluster = &own.cluster;
    let parts = own.machine.control_plane.clone().unwrap_or_default();
    let network = cluster.network.as_ref();
    let (is_set, path) = match document {
        Document::KubeClusterConfig(d) => {
            let (endpoint, name) = (&cluster.control_plane.endpoint, &cluster.cluster_name);
            let differs = |own: &String, other: &String| !own.is_empty() && own != other;
            (
                differs(endpoint, &d.endpoint) || differs(name, &d.cluster_name),
                "cluster.controlPlane.endpoint",
            )
        }
        Document::KubeNetworkConfig(_) => {
            let says = |n: &crate::v1alpha1::ClusterNetwork| {
                !n.dns_domain.is_empty() || !n.pod_subnets.is_empty() || !n.service_subnets.is_empty()
            };
            (network.is_some_and(says), "cluster.network")
        }
        Document::KubeFlannelCNIConfig(_) => {
            (network.is_some_and(|n| n.cni.is_some()), "cluster.network.cni")
        }
        Document::KubeCoreDNSConfig(_) => (cluster.core_dns.is_some(), "cluster.coreDNS"),
        Document::KubeAPIServerCAConfig(_) => {
            (!cluster.ca.crt.0.is_empty() || !cluster.accepted_cas.is_empty(), "cluster.ca")
        }
        Document::KubeAggregatorCAConfig(_) => {
            (!cluster.aggregator_ca.crt.0.is_empty(), "cluster.aggregatorCA")
        }
        Document::KubeServiceAccountConfig(_) => {
            (!cluster.service_account.key.0.is_empty(), "cluster.serviceAccount")
        }
        Document::KubeEtcdEncryptionConfig(_) => {
            let secrets = [&cluster.secretbox_encryption_secret, &cluster.aescbc_encryption_secret];
            (secrets.iter().any(|secret| secret.is_some()), "cluster.secretboxEncryptionSecret")
        }
        Document::KubeControllerManagerConfig(_) => {
            let is_set = cluster.controller_manager.is_some() || parts.controller_manager.is_some();
            (is_set, "cluster.controllerManager")
        }
        Document::KubeSchedulerConfig(_) => {
            (cluster.scheduler.is_some() || parts.scheduler.is_some(), "cluster.scheduler")
        }
        Document::KubeProxyConfig(_) => (cluster.proxy.is_some(), "cluster.proxy"),
        Document::DiscoveryIdentityConfig(_) => {
            (!cluster.id.is_empty() || cluster.secret.is_some(), "cluster.id")
        }
        Document::DiscoveryServiceConfig(_) => (cluster.discovery.is_some(), "cluster.discovery"),
        Document::KubeInlineManifestConfig(d) => {
            (cluster.inline_manifests.iter().any(|m| m.name == d.name), "cluster.inlineManifests")
        }
        other => return server_section(other, own),
    };
    is_set.then_some(path)
}

/// The place below `cluster.apiServer`.
fn server_section(document: &Document, own: &Config) -> Option<&'static str> {
    let server = own.cluster.api_server.clone().unwrap_or_default();
    let (is_set, path) = match document {
        Document::KubeAPIServerConfig(_) => {
            let is_set = !server.image.is_empty()
                || !server.extra_args.is_empty()
                || !server.env.is_empty()
                || !server.cert_sans.is_empty()
                || server.resources.is_some()
                || own.cluster.control_plane.local_api_server_port.is_some();
            (is_set, "cluster.apiServer")
        }
        Document::KubeAdmissionControlConfig(d) => {
            let known = server.admission_control.iter().any(|plugin| plugin.name == d.name);
            (known, "cluster.apiServer.admissionControl")
        }
        Document::KubeAuditPolicyConfig(_) => {
            (server.audit_policy.is_some(), "cluster.apiServer.auditPolicy")
        }
        Document::KubeAuthorizerConfig(d) => {
            let known = server.authorization_config.iter().any(|authorizer| authorizer.name == d.name);
            (known, "cluster.apiServer.authorizationConfig")
        }
        _ => return None,
    };
    is_set.then_some(path)
}
