//! The resource types and namespaces of this node.
//!
//! Owns: one [`Definition`] a type, and how a client's word becomes one of them.
//! Source: crates/api/tests/data/resources.tsv; the `billet.dev` types are ours.

use super::addressing::{
    DHCP_STATUS, DNS_RESOLVE_CACHE, DNS_UPSTREAM, GATEWAY_STATUS, HARDWARE_ADDRESS, HOST_DNS_CONFIG,
    NETWORK_STATUS, NF_TABLES_CHAIN, NODE_ADDRESS, RESOLVER_STATUS, ROUTING_RULE_SPEC, ROUTING_RULE_STATUS,
};
use super::block::{BLOCK_DEVICE, BLOCK_SYMLINK, DISCOVERED_VOLUME, DISK, SYSTEM_DISK, VOLUME_STATUS};
use super::definition::{PLAIN, column, same_name};
use super::facts::{
    ADJTIME_STATUS, BOOT_ID, BOOTED_ENTRY, CERT_SAN, CPU_CORE, DEVICES_STATUS, DIAGNOSTIC, ENVIRONMENT,
    ETC_FILE_SPEC, ETC_FILE_STATUS, EXTENSION_STATUS, KERNEL_CMDLINE, KERNEL_MODULE_STATUS,
    KERNEL_PARAM_DEFAULT_SPEC, KERNEL_PARAM_SPEC, LOADED_KERNEL_MODULE, PLATFORM_METADATA, SBOM_ITEM,
    SERVICE_PID, VOLUME_CONFIG, VOLUME_MOUNT_STATUS,
};
use super::hardware::{MEMORY_MODULE, PCI_DEVICE, PROCESSOR, SYSTEM_INFORMATION, TPM_KEY};
use super::kubernetes::{
    ADMISSION_CONTROL_CONFIG, AFFILIATE, API_SERVER_CONFIG, AUDIT_POLICY_CONFIG, AUTHORIZATION_CONFIG,
    BOOTSTRAP_MANIFESTS_CONFIG, BOOTSTRAP_STATUS, CERTIFICATE_STATUS, CONFIG_STATUS, CONTROL_PLANE_CONFIG,
    CONTROLLER_MANAGER_CONFIG, ENDPOINT, ETCD_CONFIG, ETCD_MEMBER, ETCD_PEER, ETCD_PKI_STATUS,
    ETCD_SNAPSHOT_STATUS, ETCD_SPEC, EXTRA_MANIFESTS_CONFIG, KUBE_PRISM_CONFIG, KUBE_PRISM_ENDPOINTS,
    KUBE_PRISM_STATUS, KUBELET_CONFIG, KUBELET_SPEC, KUBELET_STATUS, MANIFEST, MANIFEST_STATUS, MEMBER,
    NODE_ANNOTATION_SPEC, NODE_IP, NODE_IP_CONFIG, NODE_LABEL_SPEC, NODE_STATUS, NODE_TAINT_SPEC, NODENAME,
    SCHEDULER_CONFIG, SECRETS_STATUS, STATIC_POD, STATIC_POD_STATUS,
};
use super::network_specs::{
    ADDRESS_SPEC, ETHERNET_SPEC, ETHERNET_STATUS, HOSTNAME_SPEC, LINK_ALIAS_SPEC, LINK_SPEC, OPERATOR_SPEC,
    PROBE_SPEC, PROBE_STATUS, RESOLVER_SPEC, ROUTE_SPEC, STATIC_HOST, TIME_SERVER_SPEC,
};
use super::root_secrets::{KUBERNETES_ROOT_SECRET, OS_ROOT_SECRET};
use super::runtime::{
    CLUSTER_INFO, CONFIG_REFUSAL, EARLIER_BOOT, IDENTITY, KERNEL_MODULE_SPEC, KMSG_LOG_CONFIG,
    LOG_DESTINATION_STATUS, MACHINE_STATUS, META_KEY, SECURITY_STATE, TASK, UDEV_RULE_STATUS, UPGRADE_STATUS,
    VERSION,
};
use super::sections::{
    AUTHENTICATION_CONFIG, CUSTOMIZATION_CONFIG, EXTENSION_SERVICE_CONFIG, IMAGE_VERIFICATION_RULE,
};
use super::{Definition, Sensitivity};
use api::definitions::PUBLISHED;

/// Namespaces and what they are for.
pub const NAMESPACES: [(&str, &str); 18] = [
    ("cluster", "The cluster and this node in it"),
    ("config", "Machine configuration"),
    ("containers", "Containers of the node"),
    ("controlplane", "Kubernetes control plane"),
    ("cri", "Settings of the container runtime"),
    ("etcd", "The store of the control plane"),
    ("extras", "Additional Kubernetes manifests"),
    ("files", "Files that the node writes"),
    ("hardware", "What the machine is made of"),
    ("k8s", "Kubernetes on this node"),
    ("kubespan", "The network between the nodes"),
    ("meta", "Resource definitions and namespaces"),
    ("network", "State of the network"),
    ("perf", "Figures of the machine's use"),
    ("runtime", "State of the machine and its services"),
    ("secrets", "Keys and certificates"),
    ("security", "Rules about images"),
    ("storage", "Volume groups and arrays"),
];

/// The definitions themselves.
pub static RESOURCE_DEFINITION: Definition = Definition {
    kind: "ResourceDefinitions.meta.cosi.dev",
    display: "ResourceDefinition",
    namespace: "meta",
    aliases: &["api-resources"],
    writer: "registry",
    ..PLAIN
};

/// The namespaces themselves.
pub static NAMESPACE: Definition = Definition {
    kind: "Namespaces.meta.cosi.dev",
    display: "Namespace",
    namespace: "meta",
    aliases: &["ns"],
    writer: "registry",
    ..PLAIN
};

/// A running service.
pub static SERVICE: Definition = Definition {
    kind: "Services.v1alpha1.talos.dev",
    display: "Service",
    aliases: &["svc"],
    columns: &[
        column("Running", "{.running}"),
        column("Healthy", "{.healthy}"),
        column("Health Unknown", "{.unknown}"),
    ],
    writer: "v1alpha1.ServiceController",
    ..PLAIN
};

/// The machine's role.
pub static MACHINE_TYPE: Definition = Definition {
    kind: "MachineTypes.config.talos.dev",
    display: "MachineType",
    namespace: "config",
    columns: &[column("Type", "{@}")],
    writer: "config.MachineTypeController",
    ..PLAIN
};

/// The machine config as it was given.
pub static MACHINE_CONFIG: Definition = Definition {
    kind: "MachineConfigs.config.talos.dev",
    display: "MachineConfig",
    namespace: "config",
    sensitivity: Sensitivity::Sensitive,
    writer: "loadConfig",
    ..PLAIN
};

/// Of [`MACHINE_CONFIG`]: the one in force.
pub const IN_FORCE: &str = "v1alpha1";
/// Of [`MACHINE_CONFIG`]: the one that the next start of the machine takes.
pub const PERSISTENT: &str = "persistent";

/// Where the boot time went.
pub static BOOT_TIMELINE: Definition = Definition {
    kind: "BootTimelines.runtime.billet.dev",
    display: "BootTimeline",
    writer: "timeline",
    ..PLAIN
};

/// A layer of the root.
pub static ROOT_LAYER: Definition = Definition {
    kind: "RootLayers.runtime.billet.dev",
    display: "RootLayer",
    columns: &[
        column("Version", "{.version}"),
        column("Root Hash", "{.rootHash}"),
        column("Device", "{.device}"),
    ],
    writer: "boot-report",
    ..PLAIN
};

/// PID 1.
pub static INIT_STATUS: Definition = Definition {
    kind: "InitStatuses.runtime.billet.dev",
    display: "InitStatus",
    columns: &[column("Restarts", "{.restarts}"), column("Memory", "{.memoryInUseBytes}")],
    writer: "boot-report",
    ..PLAIN
};

/// A mount that machined made or found.
pub static MOUNT_STATUS: Definition = Definition {
    kind: "MountStatuses.runtime.talos.dev",
    display: "MountStatus",
    aliases: &["mounts"],
    columns: &[
        column("Source", "{.source}"),
        column("Target", "{.target}"),
        column("Filesystem Type", "{.filesystemType}"),
    ],
    writer: "runtime.MountStatusController",
    ..PLAIN
};

/// The node's name.
pub static HOSTNAME_STATUS: Definition = Definition {
    kind: "HostnameStatuses.net.talos.dev",
    display: "HostnameStatus",
    namespace: "network",
    aliases: &["hostname"],
    columns: &[column("Hostname", "{.hostname}"), column("Domainname", "{.domainname}")],
    writer: "network.HostnameController",
    ..PLAIN
};

/// An address of a link.
pub static ADDRESS_STATUS: Definition = Definition {
    kind: "AddressStatuses.net.talos.dev",
    display: "AddressStatus",
    namespace: "network",
    aliases: &["address", "addresses"],
    columns: &[column("Address", "{.address}"), column("Link", "{.linkName}")],
    writer: "network.StatusController",
    ..PLAIN
};

/// A network link.
pub static LINK_STATUS: Definition = Definition {
    kind: "LinkStatuses.net.talos.dev",
    display: "LinkStatus",
    namespace: "network",
    aliases: &["link", "links"],
    columns: &[
        column("Alias", "{.alias}"),
        column("Type", "{.type}"),
        column("Kind", "{.kind}"),
        column("Hw Addr", "{.hardwareAddr}"),
        column("Oper State", "{.operationalState}"),
        column("Link State", "{.linkState}"),
    ],
    writer: "network.StatusController",
    ..PLAIN
};

/// A route of the main table.
pub static ROUTE_STATUS: Definition = Definition {
    kind: "RouteStatuses.net.talos.dev",
    display: "RouteStatus",
    namespace: "network",
    aliases: &["route", "routes"],
    columns: &[
        column("Destination", "{.dst}"),
        column("Gateway", "{.gateway}"),
        column("Link", "{.outLinkName}"),
        column("Metric", "{.priority}"),
    ],
    writer: "network.StatusController",
    ..PLAIN
};

/// The routes of `RouteStatuses` without a destination, for those who are not to wake for every other one.
pub static DEFAULT_ROUTE: Definition = Definition {
    kind: "DefaultRoutes.net.billet.dev",
    display: "DefaultRoute",
    namespace: "network",
    internal: true,
    writer: "network.StatusController",
    ..PLAIN
};

/// What a DHCP server granted to a link: input of the hostname and resolver controllers.
pub static DHCP_LEASE: Definition = Definition {
    kind: "DhcpLeases.net.billet.dev",
    display: "DhcpLease",
    namespace: "network",
    columns: &[column("Address", "{.address}"), column("Server", "{.server}")],
    writer: "networkd",
    ..PLAIN
};

/// Names and addresses that apid's certificate must carry. Not visible through the API.
pub static API_CERTIFICATE: Definition = Definition {
    kind: "APICertificates.secrets.billet.dev",
    display: "APICertificate",
    namespace: "secrets",
    sensitivity: Sensitivity::Sensitive,
    internal: true,
    writer: "secrets.APICertificateController",
    ..PLAIN
};

/// Whether the clock can be relied on.
pub static TIME_STATUS: Definition = Definition {
    kind: "TimeStatuses.v1alpha1.talos.dev",
    display: "TimeStatus",
    aliases: &["ts"],
    columns: &[column("Synced", "{.synced}")],
    writer: "v1alpha1.TimeStatusController",
    ..PLAIN
};

/// The time servers that are asked.
pub static TIME_SERVER_STATUS: Definition = Definition {
    kind: "TimeServerStatuses.net.talos.dev",
    display: "TimeServerStatus",
    namespace: "network",
    aliases: &["timeserver", "timeservers"],
    columns: &[column("Timeservers", "{.timeServers}"), column("UseNTS", "{.useNTS}")],
    writer: "network.TimeServerController",
    ..PLAIN
};

/// What each time server said last.
pub static CLOCK_SOURCE: Definition = Definition {
    kind: "ClockSources.runtime.billet.dev",
    display: "ClockSource",
    columns: &[
        column("Server", "{.server}"),
        column("State", "{.state}"),
        column("Offset Ms", "{.offsetMs}"),
        column("Round Trip Ms", "{.roundTripMs}"),
    ],
    writer: "time.SyncController",
    ..PLAIN
};

/// A file that the config asked for.
pub static FILE_STATUS: Definition = Definition {
    kind: "FileStatuses.files.billet.dev",
    display: "FileStatus",
    columns: &[column("Written", "{.written}"), column("Size", "{.size}"), column("Mode", "{.mode}")],
    writer: "writeUserFiles",
    ..PLAIN
};

/// A kernel parameter that the node keeps at a value.
pub static KERNEL_PARAM_STATUS: Definition = Definition {
    kind: "KernelParamStatuses.runtime.talos.dev",
    display: "KernelParamStatus",
    aliases: &["sysctls", "kernelparameters", "kernelparams"],
    columns: &[
        column("Current", "{.current}"),
        column("Default", "{.default}"),
        column("Unsupported", "{.unsupported}"),
    ],
    writer: "runtime.KernelParamSpecController",
    ..PLAIN
};

/// The types that something of this node writes, sorted by name.
static WRITTEN: [&Definition; 137] = [
    &ADDRESS_SPEC,
    &ADDRESS_STATUS,
    &ADJTIME_STATUS,
    &ADMISSION_CONTROL_CONFIG,
    &AFFILIATE,
    &API_CERTIFICATE,
    &API_SERVER_CONFIG,
    &AUDIT_POLICY_CONFIG,
    &AUTHENTICATION_CONFIG,
    &AUTHORIZATION_CONFIG,
    &BLOCK_DEVICE,
    &BLOCK_SYMLINK,
    &BOOTED_ENTRY,
    &BOOT_ID,
    &BOOTSTRAP_MANIFESTS_CONFIG,
    &BOOTSTRAP_STATUS,
    &BOOT_TIMELINE,
    &CERTIFICATE_STATUS,
    &CERT_SAN,
    &CLOCK_SOURCE,
    &CONFIG_REFUSAL,
    &CONFIG_STATUS,
    &CONTROLLER_MANAGER_CONFIG,
    &CPU_CORE,
    &CUSTOMIZATION_CONFIG,
    &DEFAULT_ROUTE,
    &DEVICES_STATUS,
    &DHCP_LEASE,
    &DHCP_STATUS,
    &DIAGNOSTIC,
    &DISCOVERED_VOLUME,
    &DISK,
    &DNS_RESOLVE_CACHE,
    &DNS_UPSTREAM,
    &EARLIER_BOOT,
    &ENDPOINT,
    &ENVIRONMENT,
    &ETCD_CONFIG,
    &ETCD_MEMBER,
    &ETCD_PEER,
    &ETCD_SNAPSHOT_STATUS,
    &ETCD_SPEC,
    &ETC_FILE_SPEC,
    &ETC_FILE_STATUS,
    &ETHERNET_SPEC,
    &ETHERNET_STATUS,
    &EXTENSION_SERVICE_CONFIG,
    &EXTENSION_STATUS,
    &EXTRA_MANIFESTS_CONFIG,
    &FILE_STATUS,
    &GATEWAY_STATUS,
    &HARDWARE_ADDRESS,
    &HOST_DNS_CONFIG,
    &HOSTNAME_SPEC,
    &HOSTNAME_STATUS,
    &IDENTITY,
    &IMAGE_VERIFICATION_RULE,
    &CLUSTER_INFO,
    &INIT_STATUS,
    &KERNEL_CMDLINE,
    &KERNEL_MODULE_SPEC,
    &KERNEL_MODULE_STATUS,
    &KERNEL_PARAM_DEFAULT_SPEC,
    &KERNEL_PARAM_SPEC,
    &KERNEL_PARAM_STATUS,
    &KMSG_LOG_CONFIG,
    &KUBELET_CONFIG,
    &KUBELET_SPEC,
    &KUBELET_STATUS,
    &KUBE_PRISM_CONFIG,
    &KUBE_PRISM_ENDPOINTS,
    &KUBE_PRISM_STATUS,
    &CONTROL_PLANE_CONFIG,
    &KUBERNETES_ROOT_SECRET,
    &LINK_ALIAS_SPEC,
    &LINK_SPEC,
    &LINK_STATUS,
    &LOADED_KERNEL_MODULE,
    &LOG_DESTINATION_STATUS,
    &MACHINE_CONFIG,
    &MACHINE_STATUS,
    &MACHINE_TYPE,
    &MANIFEST,
    &MANIFEST_STATUS,
    &MEMBER,
    &MEMORY_MODULE,
    &META_KEY,
    &MOUNT_STATUS,
    &NAMESPACE,
    &NETWORK_STATUS,
    &NF_TABLES_CHAIN,
    &NODE_ADDRESS,
    &NODE_ANNOTATION_SPEC,
    &NODE_IP_CONFIG,
    &NODE_IP,
    &NODE_LABEL_SPEC,
    &NODENAME,
    &NODE_STATUS,
    &NODE_TAINT_SPEC,
    &OPERATOR_SPEC,
    &OS_ROOT_SECRET,
    &PCI_DEVICE,
    &ETCD_PKI_STATUS,
    &PLATFORM_METADATA,
    &PROBE_SPEC,
    &PROBE_STATUS,
    &PROCESSOR,
    &RESOLVER_SPEC,
    &RESOLVER_STATUS,
    &RESOURCE_DEFINITION,
    &ROOT_LAYER,
    &ROUTE_SPEC,
    &ROUTE_STATUS,
    &ROUTING_RULE_SPEC,
    &ROUTING_RULE_STATUS,
    &SBOM_ITEM,
    &SCHEDULER_CONFIG,
    &SECRETS_STATUS,
    &SECURITY_STATE,
    &SERVICE_PID,
    &SERVICE,
    &STATIC_HOST,
    &STATIC_POD,
    &STATIC_POD_STATUS,
    &SYSTEM_DISK,
    &SYSTEM_INFORMATION,
    &TASK,
    &TIME_SERVER_SPEC,
    &TIME_SERVER_STATUS,
    &TIME_STATUS,
    &TPM_KEY,
    &UDEV_RULE_STATUS,
    &UPGRADE_STATUS,
    &VERSION,
    &VOLUME_CONFIG,
    &VOLUME_MOUNT_STATUS,
    &VOLUME_STATUS,
];

/// Every type: those that are written, then those of the sheets that are not, each sorted by name.
pub static ALL: [&Definition; COUNT] = all();

const COUNT: usize = WRITTEN.len() + UNWRITTEN_COUNT;
const UNWRITTEN_COUNT: usize = unwritten_count();
/// The types of features that the node does not have: clients get an empty table and not an error.
static UNWRITTEN: [Definition; UNWRITTEN_COUNT] = unwritten();

const fn all() -> [&'static Definition; COUNT] {
    let mut all = [WRITTEN[0]; COUNT];
    let mut at = 0;
    while at < COUNT {
        all[at] = if at < WRITTEN.len() { WRITTEN[at] } else { &UNWRITTEN[at - WRITTEN.len()] };
        at += 1;
    }
    all
}

const fn unwritten_count() -> usize {
    let (mut count, mut at) = (0, 0);
    while at < PUBLISHED.len() {
        if !is_written(PUBLISHED[at].kind, false) {
            count += 1;
        }
        at += 1;
    }
    count
}

const fn unwritten() -> [Definition; UNWRITTEN_COUNT] {
    let mut found = [PLAIN; UNWRITTEN_COUNT];
    let (mut count, mut at) = (0, 0);
    while at < PUBLISHED.len() {
        let known = &PUBLISHED[at];
        if !is_written(known.kind, false) {
            found[count] = Definition::unwritten(known, is_written(known.kind, true));
            count += 1;
        }
        at += 1;
    }
    found
}

/// Whether a written type has this name, or this plural.
const fn is_written(kind: &str, plural: bool) -> bool {
    let mut at = 0;
    while at < WRITTEN.len() {
        if same_name(WRITTEN[at].kind.as_bytes(), kind.as_bytes(), plural) {
            return true;
        }
        at += 1;
    }
    false
}

/// A word that names no type or several.
#[derive(Debug, PartialEq, Eq)]
pub enum Unresolved {
    /// No type answers to it.
    Unknown,
    /// These do.
    Ambiguous(Vec<&'static str>),
}

/// The public type that a client's word names.
pub fn resolve(word: &str) -> Result<&'static Definition, Unresolved> {
    let found: Vec<_> = ALL.iter().copied().filter(|kind| !kind.internal && kind.answers_to(word)).collect();
    match found.as_slice() {
        [] => Err(Unresolved::Unknown),
        [only] => Ok(only),
        several => Err(Unresolved::Ambiguous(several.iter().map(|kind| kind.kind).collect())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_sorted_and_complete_words_are_unique() {
        assert!(WRITTEN.is_sorted_by_key(|kind| kind.id()));
        assert!(UNWRITTEN.is_sorted_by_key(|kind| kind.kind));
        for kind in ALL.iter().filter(|kind| !kind.internal) {
            for alias in kind.all_aliases() {
                assert_eq!(resolve(&alias), Ok(*kind), "{alias}");
            }
        }
    }

    #[test]
    fn every_published_type_is_registered_once() {
        for known in PUBLISHED {
            let found: Vec<_> = ALL.iter().filter(|kind| kind.kind == known.kind).collect();
            assert_eq!(found.len(), 1, "{}", known.kind);
            assert!(found[0].writer.is_empty() != WRITTEN.contains(found[0]), "{}", known.kind);
        }
        // Two types have this plural: the word stays with the one that is written.
        assert_eq!(resolve("mountstatuses").map(|kind| kind.kind), Ok("MountStatuses.runtime.talos.dev"));
        let other = resolve("mountstatuses.block").map(|kind| kind.kind);
        assert_eq!(other, Ok("MountStatuses.block.talos.dev"));
    }

    #[test]
    fn secrets_and_nonsense_are_unknown() {
        assert_eq!(resolve("apicertificates.secrets.billet"), Err(Unresolved::Unknown));
        assert_eq!(resolve("apicertificates").map(|kind| kind.sensitivity), Ok(Sensitivity::Sensitive));
        assert_eq!(resolve("teapots"), Err(Unresolved::Unknown));
    }

    #[test]
    fn every_namespace_of_a_type_is_registered() {
        for kind in ALL {
            assert!(NAMESPACES.iter().any(|(name, _)| *name == kind.namespace), "{}", kind.kind);
        }
    }
}
