//! What documents say that the v1alpha1 document could say too: put there, so that it has one reader only.
//!
//! Owns: host name, resolvers, static hosts, time, environment, registries. A document wins over the section.
//! Invariant: folding twice is folding once.

use super::{Document, RegistryAuthConfig, RegistryMirrorConfig, RegistryTLSConfig, TimeSyncConfig};
use crate::{
    CertificateAndKey, EncodedPem, EncodedSecret,
    v1alpha1::{Config, HostEntry, RegistryAuth, RegistryTls},
};

/// Puts `documents` into `config`.
pub(crate) fn fold(config: &mut Config, documents: &[Document]) {
    for document in documents {
        match document {
            Document::HostnameConfig(d) if !d.hostname.is_empty() => {
                config.machine.network.hostname.clone_from(&d.hostname);
            }
            Document::ResolverConfig(d) if !d.nameservers.is_empty() => {
                config.machine.network.nameservers = d.nameservers.iter().filter_map(|n| n.address).collect();
            }
            Document::StaticHostConfig(d) => {
                let entry = HostEntry { ip: d.name.parse().ok(), aliases: d.hostnames.clone() };
                let entries = &mut config.machine.network.extra_host_entries;
                if entry.ip.is_some() && !entries.contains(&entry) {
                    entries.push(entry);
                }
            }
            Document::EnvironmentConfig(d) => config.machine.env.extend(d.variables.clone()),
            Document::TimeSyncConfig(d) => time(config, d),
            Document::RegistryMirrorConfig(d) => mirror(config, d),
            Document::RegistryAuthConfig(d) => auth(config, d),
            Document::RegistryTLSConfig(d) => tls(config, d),
            _ => {}
        }
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
