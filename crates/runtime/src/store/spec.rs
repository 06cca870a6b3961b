//! The specs of all resource types, and their YAML form.
//!
//! Owns: the shape of each spec as clients see it (crates/api/tests/data/resources.tsv).
//! Does not: print secrets: internal types have no YAML, a machine config is its own document.

use std::net::IpAddr;
use std::sync::Arc;

use serde::ser::Error as _;
use serde::{Deserialize, Serialize, Serializer};

use super::document::MachineDocument;
use super::{
    Addressing, Block, Definition, Fact, Hardware, KubernetesSpec, LinkStatus, NetworkSpec, RuntimeSpec,
    Sensitivity,
};

/// What a resource says, by type.
#[derive(Clone, PartialEq)]
pub enum Spec {
    /// `ResourceDefinitions`.
    Definition(&'static Definition),
    /// `Namespaces`.
    Namespace {
        /// What it is for.
        description: &'static str,
    },
    /// `Services`.
    Service(ServiceStatus),
    /// `MachineTypes`: `init`, `controlplane`, `worker`, `unknown`.
    MachineType(&'static str),
    /// `MachineConfigs`: the document.
    MachineConfig(Arc<MachineDocument>),
    /// `BootTimelines`.
    BootTimeline(BootTimeline),
    /// `RootLayers`.
    RootLayer(RootLayer),
    /// `InitStatuses`.
    InitStatus(InitStatus),
    /// `MountStatuses`.
    MountStatus(MountStatus),
    /// `HostnameStatuses`.
    HostnameStatus(HostnameStatus),
    /// `AddressStatuses`.
    AddressStatus(AddressStatus),
    /// `LinkStatuses`.
    LinkStatus(Box<LinkStatus>),
    /// `RouteStatuses`.
    RouteStatus(RouteStatus),
    /// `DhcpLeases`.
    DhcpLease(DhcpLease),
    /// `TimeStatuses`.
    TimeStatus(TimeStatus),
    /// `TimeServerStatuses`: the servers that are asked.
    TimeServerStatus(Vec<String>),
    /// `FileStatuses`.
    FileStatus(FileStatus),
    /// `KernelParamStatuses`.
    KernelParamStatus(KernelParamStatus),
    /// `ClockSources`.
    ClockSource(ClockSource),
    /// Types of [`super::hardware`].
    Hardware(Box<Hardware>),
    /// Types of [`super::block`].
    Block(Box<Block>),
    /// Types of [`super::runtime`].
    Runtime(RuntimeSpec),
    /// Types of [`super::addressing`].
    Addressing(Addressing),
    /// Types of [`super::facts`].
    Fact(Box<Fact>),
    /// Types of [`super::network_specs`].
    Network(Box<NetworkSpec>),
    /// Types of [`super::kubernetes`] that are more than their fields.
    Kubernetes(KubernetesSpec),
    /// A type that is no more than its fields, as the published message has them.
    Fields(serde_json::Value),
    /// Subject alternative names of apid's certificate (internal).
    ApiCertificate(Vec<String>),
}

impl From<KubernetesSpec> for Spec {
    fn from(spec: KubernetesSpec) -> Self {
        Self::Kubernetes(spec)
    }
}

/// Prints the kind only: a spec may hold secrets.
impl std::fmt::Debug for Spec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Spec")
    }
}

/// A service as `get services` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ServiceStatus {
    /// Its last event is Running.
    pub running: bool,
    /// Its last health check passed.
    pub healthy: bool,
    /// It has no health check, or none has run yet.
    pub unknown: bool,
}

/// Times of the boot on `CLOCK_BOOTTIME`; firmware and loader before it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BootTimeline {
    /// Time the firmware took, 0 when it does not say.
    pub firmware_ns: u64,
    /// Time the boot loader took, 0 when it does not say.
    pub loader_ns: u64,
    /// From the kernel's start to init's first task.
    pub kernel_ns: u64,
    /// One entry a task or service, by start.
    pub entries: Vec<TimelineEntry>,
}

/// One bar of the timeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TimelineEntry {
    /// `init`, `machined` or `service`.
    pub source: String,
    /// Phase, or the service's id.
    pub phase: String,
    /// Task, or what the service reached.
    pub task: String,
    /// Start.
    pub start_ns: u64,
    /// End.
    pub end_ns: u64,
}

/// A layer of the root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RootLayer {
    /// Place in the stack, 0 lowest.
    pub index: usize,
    /// Name in the manifest.
    pub name: String,
    /// Version in the manifest.
    pub version: String,
    /// dm-verity root hash.
    pub root_hash: String,
    /// Verity device.
    pub device: String,
}

/// What PID 1 says of itself and of machined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InitStatus {
    /// How many machineds ran before this one.
    pub restarts: u32,
    /// Wait status of the previous machined.
    pub previous_status: Option<i32>,
    /// Bytes that init's allocator has given out.
    pub memory_in_use_bytes: u64,
    /// Allocations since init started.
    pub allocations: u64,
    /// What init found odd while it booted.
    pub warnings: Vec<String>,
}

/// A mount point.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MountStatus {
    /// What is mounted.
    pub source: String,
    /// Where.
    pub target: String,
    /// File system type.
    pub filesystem_type: String,
    /// Options as the kernel prints them.
    pub options: Vec<String>,
}

/// The node's name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostnameStatus {
    /// Up to the first dot.
    pub hostname: String,
    /// The rest.
    pub domainname: String,
}

/// An address of a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressStatus {
    /// CIDR text.
    pub address: String,
    /// Index of the link.
    pub link_index: u32,
    /// Name of the link.
    pub link_name: String,
    /// `inet4` or `inet6`.
    pub family: &'static str,
    /// `global`, `link`, `host`, …
    pub scope: String,
}

/// A route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteStatus {
    /// `inet4` or `inet6`.
    pub family: &'static str,
    /// CIDR text, empty for the default route.
    pub dst: String,
    /// Source hint.
    pub src: String,
    /// Next hop.
    pub gateway: String,
    /// Link name.
    pub out_link_name: String,
    /// `main`, `local`, `default`, or a number.
    pub table: Box<str>,
    /// Metric.
    pub priority: u32,
    /// `global`, `link`, …
    pub scope: String,
    /// `unicast`, `local`, `broadcast`, …
    #[serde(rename = "type")]
    pub kind: String,
    /// Who installed it.
    pub protocol: String,
}

/// What a DHCP server granted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DhcpLease {
    /// CIDR text.
    pub address: String,
    /// The server that granted it.
    pub server: String,
    /// Next hop of the default route.
    pub gateway: Option<String>,
    /// Name servers.
    pub resolvers: Vec<String>,
    /// Time servers.
    pub time_servers: Vec<String>,
    /// Name given by the server.
    pub hostname: Option<String>,
    /// Domain given by the server.
    pub domain: Option<String>,
    /// Where names without a dot are looked for.
    pub search_domains: Vec<String>,
    /// Seconds.
    pub lease_seconds: u32,
}

impl DhcpLease {
    /// The address without its prefix length.
    pub fn ip(&self) -> Option<IpAddr> {
        self.address.split('/').next()?.parse().ok()
    }
}

/// Whether the clock can be relied on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TimeStatus {
    /// A majority of time servers confirmed it, or nobody is asked.
    pub synced: bool,
    /// How often it was set.
    pub epoch: u64,
    /// `machine.time.disabled`.
    pub sync_disabled: bool,
}

/// What one time server said last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClockSource {
    /// As the config names it.
    pub server: String,
    /// `believed`, `disagrees` or `silent`.
    pub state: &'static str,
    /// Distance to a reference clock.
    pub stratum: u8,
    /// Its clock minus ours, before ours was corrected.
    pub offset_ms: i64,
    /// Both ways.
    pub round_trip_ms: i64,
    /// Why it is silent.
    pub error: String,
}

/// A file that the config asked for. Its content is not shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FileStatus {
    /// Where programs find it.
    pub path: String,
    /// Where it was written.
    pub written: String,
    /// Its length in bytes.
    pub size: usize,
    /// Permission bits, octal.
    pub mode: String,
}

/// A kernel parameter that the node keeps at a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KernelParamStatus {
    /// Its value now.
    pub current: String,
    /// Its value when this machined first looked.
    pub default: String,
    /// The kernel has no such parameter, or refused the value.
    pub unsupported: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TimeServersYaml<'a> {
    time_servers: &'a [String],
    /// The node asks by plain NTP only.
    #[serde(rename = "useNTS")]
    use_nts: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DefinitionYaml {
    #[serde(rename = "type")]
    kind: &'static str,
    display_type: &'static str,
    aliases: Vec<String>,
    all_aliases: Vec<String>,
    print_columns: Vec<ColumnYaml>,
    default_namespace: &'static str,
    sensitivity: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ColumnYaml {
    name: &'static str,
    json_path: &'static str,
}

impl DefinitionYaml {
    fn new(kind: &'static Definition) -> Self {
        let columns = kind.columns.iter();
        Self {
            kind: kind.kind,
            display_type: kind.display,
            aliases: kind.short_aliases(),
            all_aliases: kind.all_aliases(),
            print_columns: columns.map(|c| ColumnYaml { name: c.name, json_path: c.path }).collect(),
            default_namespace: kind.namespace,
            sensitivity: match kind.sensitivity {
                Sensitivity::NonSensitive => "",
                Sensitivity::Sensitive => "sensitive",
            },
        }
    }
}

#[derive(Serialize)]
struct NamespaceYaml {
    description: &'static str,
}

/// A spec that cannot be written as YAML.
#[derive(Debug, thiserror::Error)]
pub enum YamlError {
    /// The type never leaves machined.
    #[error("resources of this type are internal")]
    Internal,
    /// The serializer refused.
    #[error("write the spec as YAML")]
    Write(#[source] serde_saphyr::ser::Error),
}

impl Spec {
    /// The YAML document that clients get.
    pub fn yaml(&self) -> Result<String, YamlError> {
        match self {
            Self::MachineType(name) => Ok(format!("{name}\n")),
            Self::MachineConfig(document) => Ok(document.text.as_str().to_owned()),
            Self::ApiCertificate(_) => Err(YamlError::Internal),
            tree => serde_saphyr::to_string(&Tree(tree)).map_err(YamlError::Write),
        }
    }
}

/// What both forms of a spec are written from. A machine config is not shown: its YAML form is its own text.
pub(super) struct Tree<'a>(pub(super) &'a Spec);

impl Serialize for Tree<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Spec::Definition(kind) => DefinitionYaml::new(kind).serialize(to),
            Spec::Namespace { description } => NamespaceYaml { description }.serialize(to),
            Spec::Service(spec) => spec.serialize(to),
            Spec::MachineType(name) => name.serialize(to),
            Spec::BootTimeline(spec) => spec.serialize(to),
            Spec::RootLayer(spec) => spec.serialize(to),
            Spec::InitStatus(spec) => spec.serialize(to),
            Spec::MountStatus(spec) => spec.serialize(to),
            Spec::HostnameStatus(spec) => spec.serialize(to),
            Spec::AddressStatus(spec) => spec.serialize(to),
            Spec::LinkStatus(spec) => spec.serialize(to),
            Spec::RouteStatus(spec) => spec.serialize(to),
            Spec::DhcpLease(spec) => spec.serialize(to),
            Spec::TimeStatus(spec) => spec.serialize(to),
            Spec::TimeServerStatus(time_servers) => {
                TimeServersYaml { time_servers, use_nts: false }.serialize(to)
            }
            Spec::ClockSource(spec) => spec.serialize(to),
            Spec::FileStatus(spec) => spec.serialize(to),
            Spec::KernelParamStatus(spec) => spec.serialize(to),
            Spec::Hardware(spec) => spec.serialize(to),
            Spec::Block(spec) => spec.serialize(to),
            Spec::Runtime(spec) => spec.serialize(to),
            Spec::Addressing(spec) => spec.serialize(to),
            Spec::Fact(spec) => spec.serialize(to),
            Spec::Network(spec) => spec.serialize(to),
            Spec::Kubernetes(spec) => spec.serialize(to),
            Spec::Fields(fields) => fields.serialize(to),
            Spec::MachineConfig(_) | Spec::ApiCertificate(_) => {
                Err(S::Error::custom("never shown as a tree"))
            }
        }
    }
}

impl Spec {
    /// The link and the shared address of an `OperatorSpecs` that is about one.
    #[must_use]
    pub fn shared_address(&self) -> Option<(&str, IpAddr)> {
        let Self::Network(network) = self else { return None };
        let NetworkSpec::Operator(operator) = network.as_ref() else { return None };
        Some((&operator.link_name, operator.vip.as_ref()?.ip.parse().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{MACHINE_TYPE, ROOT_LAYER};

    #[test]
    fn definitions_print_lists_even_when_empty() {
        let text = Spec::Definition(&ROOT_LAYER).yaml().unwrap();
        assert!(text.contains("type: RootLayers.runtime.billet.dev\n"), "{text}");
        assert!(text.contains("jsonPath:"), "{text}");
        static BARE: Definition = Definition { columns: &[], ..copy(&MACHINE_TYPE) };
        assert!(Spec::Definition(&BARE).yaml().unwrap().contains("printColumns: []\n"));
    }

    const fn copy(of: &Definition) -> Definition {
        Definition {
            kind: of.kind,
            display: of.display,
            namespace: of.namespace,
            aliases: of.aliases,
            columns: &[],
            sensitivity: of.sensitivity,
            abbreviated: of.abbreviated,
            qualified: of.qualified,
            internal: of.internal,
            writer: of.writer,
        }
    }

    #[test]
    fn keys_are_camel_case_and_scalars_stay_scalars() {
        let timeline = BootTimeline {
            kernel_ns: 5,
            entries: vec![TimelineEntry {
                source: "init".into(),
                phase: "root".into(),
                task: "find_root".into(),
                start_ns: 1,
                end_ns: 2,
            }],
            ..BootTimeline::default()
        };
        let text = Spec::BootTimeline(timeline).yaml().unwrap();
        assert!(text.contains("kernelNs: 5") && text.contains("startNs: 1"), "{text}");
        assert_eq!(Spec::MachineType("controlplane").yaml().unwrap(), "controlplane\n");
        assert!(Spec::ApiCertificate(vec![]).yaml().is_err());
    }

    #[test]
    fn debug_output_hides_the_contents() {
        assert_eq!(format!("{:?}", Spec::ApiCertificate(vec!["hush".into()])), "Spec");
    }
}
