//! What sections of the v1alpha1 document say that documents can say too: taken out of the section and put there.
//!
//! Owns: the concerns of `fold`, each with the kinds of its documents and its sections; what a document says beyond its
//! section ([`beyond`]); `unfold_cluster` what concerns Kubernetes.
//! Does not: see to it that the result means the same (`rewrite` folds it again and takes back what does not); touch what
//! no document says.
//! Invariant: a document that is there already gets what it does not say yet.

use super::{
    AutoHostname, CRIBaseRuntimeSpecConfig, CRICustomizationConfig, ClientIdentity, DiskMatcher, Document,
    EnvironmentConfig, HostnameConfig, ImageCacheConfig, InstallTarget, InstallerImage, KernelModuleConfig,
    KubeSpanConfig, LinkAddress, LinkConfig, LinkRoute, LocalImageCache, MirrorEndpoint, Nameserver, Ntp,
    RegistryAuthConfig, RegistryMirrorConfig, RegistryTLSConfig, ResolverConfig, ResolverProtocol,
    StaticHostConfig, SysctlConfig, SysfsConfig, TimeSyncConfig, UdevRulesConfig, UnattendedInstallConfig,
    VolumeConfig, fold::CUSTOMIZATIONS, unfold_cluster,
};
use crate::v1alpha1::{Config, Encryption, File, FileOp, Interface, Route, Time};
use std::mem::take;

/// The document of a kind (and a name), as it is there, or a new one behind the others. It is used in functions that
/// return nothing.
macro_rules! document {
    ($documents:expr, $kind:ident) => {
        document!(@ $documents, $kind, |_d: &$kind| true, $kind::default())
    };
    ($documents:expr, $kind:ident, $name:expr) => {{
        let name: &str = $name;
        document!(@ $documents, $kind, |d: &$kind| d.name == name, $kind { name: name.to_owned(), ..$kind::default() })
    }};
    (@ $documents:expr, $kind:ident, $is_it:expr, $new:expr) => {{
        let documents: &mut Vec<Document> = $documents;
        let is_it = |d: &Document| matches!(d, Document::$kind(d) if $is_it(d));
        let index = documents.iter().position(is_it).unwrap_or_else(|| {
            documents.push(Document::$kind($new));
            documents.len() - 1
        });
        // It is of this kind: it was found or made by that.
        let Document::$kind(found) = &mut documents[index] else { return };
        found
    }};
}
pub(super) use document;

/// What a section and documents both can say.
pub(crate) struct Concern {
    /// Kinds of its documents.
    pub(crate) kinds: &'static [&'static str],
    /// Its fields in the v1alpha1 document.
    pub(crate) sections: &'static [&'static str],
    /// Takes it out of the section and puts it into documents.
    pub(crate) unfold: fn(&mut Config, &mut Vec<Document>),
}

impl Concern {
    pub(super) const fn new(
        kinds: &'static [&'static str],
        sections: &'static [&'static str],
        unfold: fn(&mut Config, &mut Vec<Document>),
    ) -> Self {
        Self { kinds, sections, unfold }
    }
}

/// Every concern, in the order in which their documents are written.
pub(crate) fn concerns() -> impl Iterator<Item = &'static Concern> {
    HOST.iter().chain(unfold_cluster::CONCERNS)
}

const HOST: &[Concern] = &[
    Concern::new(&["UnattendedInstallConfig"], &["machine.install"], install),
    Concern::new(
        &["HostnameConfig"],
        &["machine.network.hostname", "machine.features.stableHostname"],
        hostname,
    ),
    Concern::new(
        &["ResolverConfig"],
        &[
            "machine.network.nameservers",
            "machine.network.searchDomains",
            "machine.network.disableSearchDomain",
            "machine.features.hostDNS",
        ],
        resolver,
    ),
    Concern::new(&["StaticHostConfig"], &["machine.network.extraHostEntries"], static_hosts),
    Concern::new(&["LinkConfig"], &["machine.network.interfaces"], links),
    Concern::new(&["KubeSpanConfig"], &["machine.network.kubespan"], mesh),
    Concern::new(&["TimeSyncConfig"], &["machine.time"], time),
    Concern::new(&["EnvironmentConfig"], &["machine.env"], |config, documents| {
        if !config.machine.env.is_empty() {
            document!(documents, EnvironmentConfig).variables.extend(take(&mut config.machine.env));
        }
    }),
    Concern::new(&["RegistryMirrorConfig"], &["machine.registries.mirrors"], mirrors),
    Concern::new(&["RegistryAuthConfig"], &["machine.registries.config"], auth),
    Concern::new(&["RegistryTLSConfig"], &["machine.registries.config"], tls),
    Concern::new(&["VolumeConfig"], &["machine.systemDiskEncryption"], volumes),
    Concern::new(&["SysctlConfig"], &["machine.sysctls"], |config, documents| {
        if !config.machine.sysctls.is_empty() {
            document!(documents, SysctlConfig).params.extend(take(&mut config.machine.sysctls));
        }
    }),
    Concern::new(&["SysfsConfig"], &["machine.sysfs"], |config, documents| {
        if !config.machine.sysfs.is_empty() {
            document!(documents, SysfsConfig).params.extend(take(&mut config.machine.sysfs));
        }
    }),
    Concern::new(&["KernelModuleConfig"], &["machine.kernel"], modules),
    Concern::new(&["UdevRulesConfig"], &["machine.udev"], udev),
    Concern::new(&["CRICustomizationConfig"], &["machine.files"], customizations),
    Concern::new(&["CRIBaseRuntimeSpecConfig"], &["machine.baseRuntimeSpecOverrides"], base_spec),
    Concern::new(&["ImageCacheConfig"], &["machine.features.imageCache"], image_cache),
];

fn hostname(config: &mut Config, documents: &mut Vec<Document>) {
    let hostname = take(&mut config.machine.network.hostname);
    let stable = config.machine.features.as_mut().and_then(|features| features.stable_hostname.take());
    if !hostname.is_empty() {
        // A name that is given is never made: the switch says nothing.
        *document!(documents, HostnameConfig) = HostnameConfig { hostname, auto: None };
    } else if let Some(stable) = stable {
        let auto = if stable { AutoHostname::Stable } else { AutoHostname::Off };
        document!(documents, HostnameConfig).auto = Some(auto);
    }
}

fn resolver(config: &mut Config, documents: &mut Vec<Document>) {
    let network = &mut config.machine.network;
    if !network.nameservers.is_empty() {
        let servers = take(&mut network.nameservers);
        let servers =
            servers.into_iter().map(|address| Nameserver { address: Some(address), ..Nameserver::default() });
        document!(documents, ResolverConfig).nameservers = servers.collect();
    }
    let (domains, disabled) = (take(&mut network.search_domains), network.disable_search_domain.take());
    if !domains.is_empty() || disabled.is_some() {
        let search = document!(documents, ResolverConfig).search_domains.get_or_insert_default();
        search.disable_default = search.disable_default.or(disabled);
        if search.domains.is_empty() {
            search.domains = domains;
        }
    }
    let host_dns = config.machine.features.as_mut().and_then(|features| features.host_dns.take());
    if host_dns.is_some() {
        document!(documents, ResolverConfig).host_dns = host_dns;
    }
}

fn static_hosts(config: &mut Config, documents: &mut Vec<Document>) {
    for entry in take(&mut config.machine.network.extra_host_entries) {
        let Some(ip) = entry.ip else { continue };
        let hostnames = &mut document!(documents, StaticHostConfig, &ip.to_string()).hostnames;
        hostnames.extend(entry.aliases);
    }
}

/// Whether a LinkConfig says all of this entry.
fn is_static(interface: &Interface) -> bool {
    let rest = Interface {
        interface: String::new(),
        mtu: 0,
        addresses: Vec::new(),
        cidr: String::new(),
        routes: Vec::new(),
        dhcp: interface.dhcp.filter(|dhcp| *dhcp),
        ..interface.clone()
    };
    let is_address = |text: &str| text.is_empty() || text.parse::<std::net::IpAddr>().is_ok();
    let routes = interface.routes.iter().all(|r| is_address(&r.gateway) && is_address(&r.source));
    !interface.interface.is_empty() && rest == Interface::default() && routes
}

fn links(config: &mut Config, documents: &mut Vec<Document>) {
    let interfaces = &mut config.machine.network.interfaces;
    let (moved, kept): (Vec<_>, Vec<_>) = take(interfaces).into_iter().partition(is_static);
    *interfaces = kept;
    for interface in moved {
        let link = document!(documents, LinkConfig, &interface.interface);
        link.mtu = link.mtu.or((interface.mtu != 0).then_some(interface.mtu));
        let addresses = interface.static_addresses().map(str::to_owned);
        link.addresses.extend(addresses.map(|address| LinkAddress { address, ..LinkAddress::default() }));
        link.routes.extend(interface.routes.iter().map(route));
    }
}

/// Priority of a route for which the section says none. Source: the reference of `routes.metric`.
pub(crate) const SECTION_METRIC: u32 = 10;

fn route(route: &Route) -> LinkRoute {
    LinkRoute {
        destination: route.network.clone(),
        gateway: route.gateway.parse().ok(),
        source: route.source.parse().ok(),
        metric: Some(if route.metric == 0 { SECTION_METRIC } else { route.metric }),
        mtu: (route.mtu != 0).then_some(route.mtu),
        ..LinkRoute::default()
    }
}

fn mesh(config: &mut Config, documents: &mut Vec<Document>) {
    let Some(section) = config.machine.network.kubespan.take() else { return };
    *document!(documents, KubeSpanConfig) = KubeSpanConfig {
        enabled: section.enabled,
        advertise_kubernetes_networks: section.advertise_kubernetes_networks,
        allow_down_peer_bypass: section.allow_down_peer_bypass,
        harvest_extra_endpoints: section.harvest_extra_endpoints,
        mtu: section.mtu,
        filters: section.filters,
    };
}

fn time(config: &mut Config, documents: &mut Vec<Document>) {
    let time = take(&mut config.machine.time);
    if time == Time::default() {
        return;
    }
    let document = document!(documents, TimeSyncConfig);
    document.enabled = document.enabled.or(time.disabled.then_some(false));
    document.boot_timeout = document.boot_timeout.or(time.boot_timeout);
    if !time.servers.is_empty() {
        let ntp: &mut Ntp = document.ntp.get_or_insert_default();
        ntp.servers = if ntp.servers.is_empty() { time.servers } else { take(&mut ntp.servers) };
    }
}

fn mirrors(config: &mut Config, documents: &mut Vec<Document>) {
    for (name, mirror) in take(&mut config.machine.registries.mirrors) {
        let override_path = mirror.override_path.filter(|whole| *whole);
        let endpoint = |url| MirrorEndpoint { url, override_path };
        let document = document!(documents, RegistryMirrorConfig, &name);
        document.endpoints = mirror.endpoints.into_iter().map(endpoint).collect();
        document.skip_fallback = mirror.skip_fallback;
    }
}

fn auth(config: &mut Config, documents: &mut Vec<Document>) {
    for (name, registry) in &mut config.machine.registries.config {
        let Some(auth) = registry.auth.take() else { continue };
        *document!(documents, RegistryAuthConfig, name) = RegistryAuthConfig {
            name: name.clone(),
            username: auth.username,
            password: auth.password,
            auth: auth.auth,
            identity_token: auth.identity_token,
        };
    }
    drop_empty_registries(config);
}

fn tls(config: &mut Config, documents: &mut Vec<Document>) {
    for (name, registry) in &mut config.machine.registries.config {
        let Some(tls) = registry.tls.take() else { continue };
        *document!(documents, RegistryTLSConfig, name) = RegistryTLSConfig {
            name: name.clone(),
            client_identity: tls.client_identity.map(|pair| identity(&pair)),
            ca: tls.ca.0,
            insecure_skip_verify: tls.insecure_skip_verify,
        };
    }
    drop_empty_registries(config);
}

fn drop_empty_registries(config: &mut Config) {
    config.machine.registries.config.retain(|_, registry| registry.tls.is_some() || registry.auth.is_some());
}

/// A certificate with its key, as documents have it.
pub(super) fn identity(pair: &crate::CertificateAndKey) -> ClientIdentity {
    ClientIdentity { cert: pair.crt.0.clone(), key: pair.key.0.clone() }
}

fn volumes(config: &mut Config, documents: &mut Vec<Document>) {
    let both = take(&mut config.machine.system_disk_encryption);
    for (name, encryption) in [("STATE", both.state), ("EPHEMERAL", both.ephemeral)] {
        let Some(encryption): Option<Encryption> = encryption else { continue };
        document!(documents, VolumeConfig, name).encryption = Some(encryption);
    }
}

fn modules(config: &mut Config, documents: &mut Vec<Document>) {
    for module in config.machine.kernel.take().into_iter().flat_map(|kernel| kernel.modules) {
        document!(documents, KernelModuleConfig, &module.name).parameters = module.parameters;
    }
}

fn udev(config: &mut Config, documents: &mut Vec<Document>) {
    let mut rules = config.machine.udev.take().unwrap_or_default().rules;
    if rules.is_empty() {
        return;
    }
    let document = document!(documents, UdevRulesConfig);
    let new: Vec<_> = document.rules.iter().filter(|rule| !rules.contains(rule)).cloned().collect();
    rules.extend(new);
    document.rules = rules;
}

/// Name of the document that writes this file.
fn customization(file: &File) -> Option<&str> {
    let name = file.path.strip_prefix(CUSTOMIZATIONS)?.strip_suffix(".toml")?;
    let is_new = file.op.unwrap_or_default() == FileOp::Create && file.permissions.is_none();
    (is_new && !name.contains('/')).then_some(name)
}

fn customizations(config: &mut Config, documents: &mut Vec<Document>) {
    let files = &mut config.machine.files;
    let (moved, kept): (Vec<_>, Vec<_>) = take(files).into_iter().partition(|f| customization(f).is_some());
    *files = kept;
    for file in moved {
        let Some(name) = customization(&file) else { continue };
        document!(documents, CRICustomizationConfig, name).content = file.content.clone();
    }
}

fn base_spec(config: &mut Config, documents: &mut Vec<Document>) {
    let Some(overrides) = config.machine.base_runtime_spec_overrides.take() else { return };
    document!(documents, CRIBaseRuntimeSpecConfig).overrides = Some(overrides);
}

fn image_cache(config: &mut Config, documents: &mut Vec<Document>) {
    let section = config.machine.features.as_mut().and_then(|features| features.image_cache.take());
    let Some(section) = section else { return };
    document!(documents, ImageCacheConfig).local = Some(LocalImageCache { enabled: section.local_enabled });
}

/// What stands before and behind the path in an expression that is true for one device.
const DEVICE: (&str, &str) = ("disk.dev_path == \"", "\"");

/// The device, if `expression` is true for it alone, whatever the machine has: `disk.dev_path == "/dev/sda"`.
pub(crate) fn device_of(expression: &str) -> Option<&str> {
    let device = expression.trim().strip_prefix(DEVICE.0)?.strip_suffix(DEVICE.1)?;
    is_device(device).then_some(device)
}

/// Whether this is the name of a device and no link to one, which a property of a disk never is.
fn is_device(path: &str) -> bool {
    let name = path.strip_prefix("/dev/").unwrap_or_default();
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric())
}

/// Of the installation: what is written to which device. How it is started has no document.
fn install(config: &mut Config, documents: &mut Vec<Document>) {
    let install = &mut config.machine.install;
    if install.disk_selector.is_some() || !is_device(&install.disk) {
        return;
    }
    let expression = format!("{}{}{}", DEVICE.0, take(&mut install.disk), DEVICE.1);
    let image = take(&mut install.image);
    let wipe = take(&mut install.wipe);
    let document = document!(documents, UnattendedInstallConfig);
    document.installer = (!image.is_empty()).then_some(InstallerImage { image });
    document.provisioning =
        Some(InstallTarget { disk_selector: Some(DiskMatcher { expression }), wipe: wipe.then_some(true) });
}

/// The fields of a document that its section cannot say, of the given ones. `all` are the documents beside it, `model` is
/// what all documents and sections say together.
pub(crate) fn beyond(document: &Document, all: &[Document], model: &Config) -> Vec<&'static str> {
    let set = match document {
        Document::ResolverConfig(d) => vec![
            (
                d.nameservers.iter().any(|n| n.protocol.unwrap_or_default() != ResolverProtocol::Plain),
                "nameservers.protocol",
            ),
            (d.nameservers.iter().any(|n| !n.tls_server_name.is_empty()), "nameservers.tlsServerName"),
        ],
        Document::LinkConfig(d) => vec![
            (d.up == Some(false), "up"),
            (d.multicast.is_some(), "multicast"),
            (d.addresses.iter().any(|a| a.route_priority.is_some()), "addresses.routePriority"),
            (d.routes.iter().any(|r| !r.table.is_empty()), "routes.table"),
            (d.routes.iter().any(|r| !r.kind.is_empty()), "routes.type"),
        ],
        Document::TimeSyncConfig(d) => vec![
            (d.ptp.is_some(), "ptp"),
            (d.ntp.as_ref().is_some_and(|ntp| ntp.use_nts.is_some()), "ntp.useNTS"),
        ],
        Document::RegistryMirrorConfig(d) => {
            let whole = d.endpoints.iter().filter(|e| e.override_path == Some(true)).count();
            vec![(whole != 0 && whole != d.endpoints.len(), "endpoints.overridePath of some")]
        }
        Document::UnattendedInstallConfig(d) => {
            let selector = d.provisioning.as_ref().and_then(|target| target.disk_selector.as_ref());
            let is_device = selector.is_none_or(|selector| device_of(&selector.expression).is_some());
            vec![(d.reboot.is_some(), "reboot"), (!is_device, "provisioning.diskSelector")]
        }
        other => unfold_cluster::beyond(other, all, model),
    };
    set.into_iter().filter(|(is_set, _)| *is_set).map(|(_, field)| field).collect()
}
