//! The documents beside the v1alpha1 one: one kind for each concern, many of a kind by name.
//!
//! Owns: the kinds, their fields, and which of them say what the v1alpha1 document could say too (`fold`; `unfold` is the other way).
//! Fails by: a remark that names an unknown kind and the nearest known one.
//! Source: the published schema, `crates/config/testdata/documents-v1.13.txt` and `-v1.14.txt` (tests/sheet.rs).

mod bgp;
mod cluster;
mod control_plane;
mod fold;
mod fold_cluster;
mod host;
mod link;
mod network;
mod registry;
mod runtime;
mod storage;
mod unfold;
mod unfold_cluster;
mod volume;

pub use bgp::*;
pub use cluster::*;
pub use control_plane::*;
pub use host::*;
pub use link::*;
pub use network::*;
pub use registry::*;
pub use runtime::*;
pub use storage::*;
pub use volume::*;

pub(crate) use fold::{fold, one as fold_one};
pub(crate) use fold_cluster::networks_without_flannel;
pub(crate) use unfold::{Concern, SECTION_METRIC, beyond, concerns, device_of};
pub(crate) use unfold_cluster::{SECTION_NETWORKS, SECTION_PRISM_PORT, SECTION_PROXY_MODE};

use crate::{
    schema::{Decode, Section, Walk},
    v1alpha1::VERSION,
    yaml::{Content, Node},
};
use serde::{Serialize, Serializer};

/// Declares the kinds: `Kind: feature that is missing ("" if it has effect), named or single`.
macro_rules! documents {
    ($($kind:ident $later:literal $naming:ident;)+) => {
        /// A document beside the v1alpha1 one.
        #[derive(Clone, PartialEq)]
        #[allow(clippy::large_enum_variant, reason = "few of them exist, and they are not moved about")]
        pub enum Document {
            $(#[doc = concat!("`kind: ", stringify!($kind), "`")] $kind($kind),)+
        }

        impl Document {
            /// Every kind, with its description.
            pub const KINDS: &'static [(&'static str, &'static Section)] = &[$((stringify!($kind), $kind::SECTION)),+];

            /// `kind`.
            pub fn kind(&self) -> &'static str {
                match self { $(Self::$kind(_) => stringify!($kind)),+ }
            }

            /// `name`, where documents of this kind have one.
            pub fn name(&self) -> Option<&str> {
                match self { $(Self::$kind(_body) => documents!(@$naming _body)),+ }
            }

            fn body(kind: &str, node: &Node, walk: &mut Walk<'_>) -> Option<Self> {
                match kind {
                    $(stringify!($kind) => $kind::decode(node, walk).map(Self::$kind),)+
                    _ => None,
                }
            }
        }

        /// The feature that a kind needs and that this image does not have; empty if it has effect.
        pub fn later(kind: &str) -> &'static str {
            match kind { $(stringify!($kind) => $later,)+ _ => "" }
        }

        impl Serialize for Document {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self { $(Self::$kind(body) => Wire { api_version: VERSION, kind: stringify!($kind), body }.serialize(serializer)),+ }
            }
        }
    };
    (@named $body:ident) => { Some($body.name.as_str()) };
    (@single $body:ident) => { None };
}

documents! {
    BGPInstanceConfig "BGP" named;
    BlackholeRouteConfig "" named;
    BondConfig "" named;
    BridgeConfig "" named;
    CRIBaseRuntimeSpecConfig "changing what all containers start with" single;
    CRICustomizationConfig "" named;
    ContainerConfig "containers beside Kubernetes" named;
    DHCPv4Config "" named;
    DHCPv6Config "" named;
    DiscoveryIdentityConfig "discovery" single;
    DiscoveryServiceConfig "discovery" named;
    DummyLinkConfig "" named;
    EnvironmentConfig "" single;
    EtcFileConfig "" named;
    EthernetConfig "" named;
    EventSinkConfig "sending events" single;
    ExistingVolumeConfig "volumes that are there already" named;
    ExtensionServiceConfig "extension services" named;
    ExternalVolumeConfig "volumes of other machines" named;
    FilesystemScrubConfig "scrubbing file systems" single;
    FilesystemTrimConfig "trimming file systems" single;
    HCloudVIPConfig "addresses that a cloud moves" named;
    HTTPProbeConfig "" named;
    HostnameConfig "" single;
    ImageCacheConfig "the image cache" single;
    ImageVerificationConfig "" single;
    KernelModuleConfig "" named;
    KmsgLogConfig "" named;
    KubeAPIServerCAConfig "" single;
    KubeAPIServerConfig "" single;
    KubeAdmissionControlConfig "" named;
    KubeAggregatorCAConfig "" single;
    KubeAuditPolicyConfig "" single;
    KubeAuthenticationConfig "" single;
    KubeAuthorizerConfig "" named;
    KubeClusterConfig "" single;
    KubeControllerManagerConfig "" single;
    KubeCoreDNSConfig "" single;
    KubeCredentialProviderConfig "" single;
    KubeEtcdEncryptionConfig "" single;
    KubeExternalManifestConfig "" named;
    KubeFlannelCNIConfig "" single;
    KubeInlineManifestConfig "" named;
    KubeNetworkConfig "" single;
    KubeNodeConfig "" single;
    KubePrismConfig "" single;
    KubeProxyConfig "" single;
    KubeSchedulerConfig "" single;
    KubeServiceAccountConfig "" single;
    KubeSpanConfig "KubeSpan" single;
    KubeSpanEndpointsConfig "KubeSpan" single;
    KubeStaticPodConfig "" named;
    KubeTalosAPIAccessConfig "access to the API from pods" single;
    KubeletConfig "" single;
    LVMLogicalVolumeConfig "LVM" named;
    LVMVolumeGroupConfig "LVM" named;
    Layer2VIPConfig "" named;
    LinkAliasConfig "" named;
    LinkConfig "" named;
    NetworkDefaultActionConfig "" single;
    NetworkRuleConfig "" named;
    OOMConfig "the out-of-memory handler" single;
    PCIDriverRebindConfig "binding of PCI drivers" named;
    RAIDArrayConfig "software RAID" named;
    RawVolumeConfig "" named;
    RegistryAuthConfig "" named;
    RegistryMirrorConfig "" named;
    RegistryTLSConfig "" named;
    ResolverConfig "" single;
    RoutingRuleConfig "" named;
    SecurityProfileConfig "isolation of workloads" single;
    SideroLinkConfig "SideroLink" single;
    StaticHostConfig "" named;
    SwapVolumeConfig "swap" named;
    SysctlConfig "" single;
    SysfsConfig "" single;
    TCPProbeConfig "" named;
    TimeSyncConfig "" single;
    TrustedRootsConfig "trusted roots in documents" named;
    UdevRulesConfig "" single;
    UnattendedInstallConfig "" single;
    UserVolumeConfig "" named;
    VLANConfig "" named;
    VRFConfig "" named;
    VethConfig "" named;
    VolumeConfig "" named;
    WatchdogTimerConfig "the watchdog" single;
    WireguardConfig "" named;
    ZswapConfig "zswap" single;
}

/// How the names of extension services begin that are settings of the node itself (docs/decisions/0032).
pub const OWN_PREFIX: &str = "billet-";

#[derive(Serialize)]
struct Wire<'a, T> {
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    kind: &'static str,
    #[serde(flatten)]
    body: &'a T,
}

impl Document {
    /// Reads a document that has a `kind`.
    pub(crate) fn read(node: &Node, walk: &mut Walk<'_>) -> Option<Self> {
        let kind_node = node.get("kind")?;
        let known: Vec<_> = Self::KINDS.iter().map(|(kind, _)| *kind).collect();
        let Some(kind) = known.iter().find(|k| kind_node.text() == Some(k)) else {
            let given = kind_node.text().unwrap_or("");
            walk.unknown_kind(kind_node.mark, given, &known);
            return None;
        };
        match node.get("apiVersion") {
            Some(version) if version.text() == Some(VERSION) => {}
            Some(version) => {
                walk.error_at("apiVersion", version.mark, format!("write `apiVersion: {VERSION}`"))
            }
            None => walk.error_at(
                "apiVersion",
                node.mark,
                format!("missing version: write `apiVersion: {VERSION}`"),
            ),
        }
        let feature = later(kind);
        let is_own = node.get("name").and_then(Node::text).is_some_and(|name| name.starts_with(OWN_PREFIX));
        if !feature.is_empty() && !is_own {
            walk.not_built(feature, kind_node.mark, kind);
        }
        Self::body(kind, &without_header(node), walk)
    }
}

fn without_header(node: &Node) -> Node {
    let entries = node.entries().iter().filter(|e| !matches!(e.key.as_str(), "apiVersion" | "kind"));
    Node { content: Content::Map(entries.cloned().collect()), ..*node }
}
