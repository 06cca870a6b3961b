//! What documents say that the v1alpha1 document could say too: put there, so that it has one reader only.
//!
//! Owns: host name, resolvers, static settings of links, static hosts, the mesh, time, environment, registries, kernel,
//! devices, installation, encryption of the system's volumes; `fold_cluster` what concerns Kubernetes. A document wins
//! over the section. `unfold` has the other direction of each: whoever adds a kind here adds it there.
//! Invariant: folding twice is folding once.

use super::{
    AutoHostname, CRICustomizationConfig, Document, HostnameConfig, KernelModuleConfig, KubeSpanConfig,
    LinkConfig, LinkRoute, RegistryAuthConfig, RegistryMirrorConfig, RegistryTLSConfig, ResolverConfig,
    TimeSyncConfig, UnattendedInstallConfig, VolumeConfig, fold_cluster,
};
use crate::{
    CertificateAndKey, EncodedPem, EncodedSecret,
    v1alpha1::{
        Config, File, FileOp, HostEntry, ImageCache, Interface, KernelModule, KubeSpan, RegistryAuth,
        RegistryTls, Route,
    },
};

/// Puts `documents` into `config`.
pub(crate) fn fold(config: &mut Config, documents: &[Document]) {
    for document in documents {
        one(config, document);
    }
    fold_cluster::networks_without_flannel(config, documents);
}

/// Puts one document into `config`, if a section says the same.
pub(crate) fn one(config: &mut Config, document: &Document) {
    match document {
        Document::HostnameConfig(d) => hostname(config, d),
        Document::ResolverConfig(d) => resolver(config, d),
        Document::StaticHostConfig(d) => {
            let entry = HostEntry { ip: d.name.parse().ok(), aliases: d.hostnames.clone() };
            let entries = &mut config.machine.network.extra_host_entries;
            if entry.ip.is_some() && !entries.contains(&entry) {
                entries.push(entry);
            }
        }
        // Without a name it is refused, and must not make an interface that the user did not write.
        Document::LinkConfig(d) if !d.name.is_empty() => link(config, d),
        Document::KubeSpanConfig(d) => config.machine.network.kubespan = Some(mesh(d)),
        Document::EnvironmentConfig(d) => config.machine.env.extend(d.variables.clone()),
        Document::TimeSyncConfig(d) => time(config, d),
        Document::RegistryMirrorConfig(d) => mirror(config, d),
        Document::RegistryAuthConfig(d) => auth(config, d),
        Document::RegistryTLSConfig(d) => tls(config, d),
        Document::VolumeConfig(d) => volume(config, d),
        Document::UnattendedInstallConfig(d) => install(config, d),
        other => kernel_and_runtime(config, other),
    }
}

/// The kernel, its devices, and the runtime of containers.
fn kernel_and_runtime(config: &mut Config, document: &Document) {
    match document {
        Document::SysctlConfig(d) => config.machine.sysctls.extend(d.params.clone()),
        Document::SysfsConfig(d) => config.machine.sysfs.extend(d.params.clone()),
        Document::KernelModuleConfig(d) if !d.name.is_empty() => module(config, d),
        Document::UdevRulesConfig(d) => {
            let rules = &mut config.machine.udev.get_or_insert_default().rules;
            let new: Vec<_> = d.rules.iter().filter(|rule| !rules.contains(rule)).cloned().collect();
            rules.extend(new);
        }
        Document::CRICustomizationConfig(d) if !d.name.is_empty() => customization(config, d),
        Document::CRIBaseRuntimeSpecConfig(d) => {
            config.machine.base_runtime_spec_overrides.clone_from(&d.overrides);
        }
        Document::ImageCacheConfig(d) => {
            let enabled = d.local.as_ref().and_then(|local| local.enabled);
            let features = config.machine.features.get_or_insert_default();
            features.image_cache = Some(ImageCache { local_enabled: enabled });
        }
        other => fold_cluster::fold(config, other),
    }
}

fn mesh(document: &KubeSpanConfig) -> KubeSpan {
    KubeSpan {
        enabled: document.enabled,
        advertise_kubernetes_networks: document.advertise_kubernetes_networks,
        allow_down_peer_bypass: document.allow_down_peer_bypass,
        harvest_extra_endpoints: document.harvest_extra_endpoints,
        mtu: document.mtu,
        filters: document.filters.clone(),
    }
}

fn module(config: &mut Config, document: &KernelModuleConfig) {
    let modules = &mut config.machine.kernel.get_or_insert_default().modules;
    let module = KernelModule { name: document.name.clone(), parameters: document.parameters.clone() };
    match modules.iter_mut().find(|known| known.name == module.name) {
        Some(known) => *known = module,
        None => modules.push(module),
    }
}

/// containerd imports every file of this directory.
pub(super) const CUSTOMIZATIONS: &str = "/var/cri/conf.d/";

fn customization(config: &mut Config, document: &CRICustomizationConfig) {
    let file = File {
        content: document.content.clone(),
        path: format!("{CUSTOMIZATIONS}{}.toml", document.name),
        op: Some(FileOp::Create),
        ..File::default()
    };
    let files = &mut config.machine.files;
    match files.iter_mut().find(|known| known.path == file.path) {
        Some(known) => *known = file,
        None => files.push(file),
    }
}

fn install(config: &mut Config, document: &UnattendedInstallConfig) {
    let install = &mut config.machine.install;
    if let Some(image) = document.installer.as_ref().filter(|installer| !installer.image.is_empty()) {
        install.image.clone_from(&image.image);
    }
    let Some(target) = &document.provisioning else { return };
    install.wipe = target.wipe.unwrap_or(install.wipe);
    if let Some(selector) = &target.disk_selector {
        install.disk_expression.clone_from(&selector.expression);
    }
}

/// Of STATE and EPHEMERAL; that both say it is refused elsewhere.
fn volume(config: &mut Config, document: &VolumeConfig) {
    let Some(encryption) = &document.encryption else { return };
    let both = &mut config.machine.system_disk_encryption;
    match document.name.as_str() {
        "STATE" => both.state = Some(encryption.clone()),
        "EPHEMERAL" => both.ephemeral = Some(encryption.clone()),
        _ => {}
    }
}

fn hostname(config: &mut Config, document: &HostnameConfig) {
    if !document.hostname.is_empty() {
        config.machine.network.hostname.clone_from(&document.hostname);
    }
    if let Some(auto) = document.auto {
        let features = config.machine.features.get_or_insert_default();
        features.stable_hostname = Some(auto == AutoHostname::Stable);
    }
}

fn resolver(config: &mut Config, document: &ResolverConfig) {
    if document.host_dns.is_some() {
        config.machine.features.get_or_insert_default().host_dns.clone_from(&document.host_dns);
    }
    let network = &mut config.machine.network;
    if !document.nameservers.is_empty() {
        network.nameservers = document.nameservers.iter().filter_map(|n| n.address).collect();
    }
    if let Some(search) = &document.search_domains {
        network.search_domains.clone_from(&search.domains);
        network.disable_search_domain = search.disable_default.or(network.disable_search_domain);
    }
}

fn link(config: &mut Config, document: &LinkConfig) {
    let interfaces = &mut config.machine.network.interfaces;
    let index = interfaces.iter().position(|i| i.interface == document.name).unwrap_or_else(|| {
        interfaces.push(Interface { interface: document.name.clone(), ..Interface::default() });
        interfaces.len() - 1
    });
    let interface = &mut interfaces[index];
    interface.mtu = document.mtu.unwrap_or(interface.mtu);
    for address in &document.addresses {
        if !interface.addresses.contains(&address.address) {
            interface.addresses.push(address.address.clone());
        }
    }
    for route in document.routes.iter().map(route) {
        if !interface.routes.contains(&route) {
            interface.routes.push(route);
        }
    }
}

fn route(route: &LinkRoute) -> Route {
    Route {
        network: route.destination.clone(),
        gateway: route.gateway.map(|g| g.to_string()).unwrap_or_default(),
        source: route.source.map(|s| s.to_string()).unwrap_or_default(),
        // Documents have a default of their own.
        metric: route.metric.unwrap_or(1024),
        mtu: route.mtu.unwrap_or_default(),
    }
}

fn time(config: &mut Config, document: &TimeSyncConfig) {
    let time = &mut config.machine.time;
    if let Some(enabled) = document.enabled {
        time.disabled = !enabled;
    }
    time.boot_timeout = document.boot_timeout.or(time.boot_timeout);
    if let Some(ntp) = document.ntp.as_ref().filter(|n| !n.servers.is_empty()) {
        time.servers.clone_from(&ntp.servers);
    }
}

fn mirror(config: &mut Config, document: &RegistryMirrorConfig) {
    let mirror = config.machine.registries.mirrors.entry(document.name.clone()).or_default();
    mirror.endpoints = document.endpoints.iter().map(|e| e.url.clone()).collect();
    mirror.skip_fallback = document.skip_fallback;
    // The older section knows one switch for all addresses of a registry.
    let overrides = document.endpoints.iter().any(|e| e.override_path == Some(true));
    mirror.override_path = overrides.then_some(true);
}

fn auth(config: &mut Config, document: &RegistryAuthConfig) {
    let registry = config.machine.registries.config.entry(document.name.clone()).or_default();
    registry.auth = Some(RegistryAuth {
        username: document.username.clone(),
        password: document.password.clone(),
        auth: document.auth.clone(),
        identity_token: document.identity_token.clone(),
    });
}

fn tls(config: &mut Config, document: &RegistryTLSConfig) {
    let registry = config.machine.registries.config.entry(document.name.clone()).or_default();
    let identity = document.client_identity.as_ref();
    registry.tls = Some(RegistryTls {
        client_identity: identity.map(|i| CertificateAndKey {
            crt: EncodedPem(i.cert.clone()),
            key: EncodedSecret(i.key.clone()),
        }),
        ca: EncodedPem(document.ca.clone()),
        insecure_skip_verify: document.insecure_skip_verify,
    });
}

#[cfg(test)]
#[path = "fold_tests.rs"]
mod tests;
