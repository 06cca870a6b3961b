//! What documents say that the v1alpha1 document could say too: put there, so that it has one reader only.
//!
//! Owns: host name, resolvers, static settings of links, static hosts, time, environment, registries,
//! encryption of the system's volumes. A document wins over the section.
//! Invariant: folding twice is folding once.

use super::{
    AutoHostname, Document, HostnameConfig, LinkConfig, LinkRoute, RegistryAuthConfig, RegistryMirrorConfig,
    RegistryTLSConfig, ResolverConfig, TimeSyncConfig, VolumeConfig,
};
use crate::{
    CertificateAndKey, EncodedPem, EncodedSecret,
    v1alpha1::{Config, HostEntry, Interface, RegistryAuth, RegistryTls, Route},
};

/// Puts `documents` into `config`.
pub(crate) fn fold(config: &mut Config, documents: &[Document]) {
    for document in documents {
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
            Document::EnvironmentConfig(d) => config.machine.env.extend(d.variables.clone()),
            Document::TimeSyncConfig(d) => time(config, d),
            Document::RegistryMirrorConfig(d) => mirror(config, d),
            Document::RegistryAuthConfig(d) => auth(config, d),
            Document::RegistryTLSConfig(d) => tls(config, d),
            Document::VolumeConfig(d) => volume(config, d),
            _ => {}
        }
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
