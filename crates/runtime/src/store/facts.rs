//! Resource types of what the kernel, the image and the config say, as clients of both generations know them.
//!
//! Names, namespaces, aliases, columns and sensitivity come from the table of published types.
//! Source: crates/api/tests/data/resources.tsv.

use serde::Serialize;

use super::definition::Definition;
use super::root_secrets::{KubernetesRoot, OsRoot};

/// The command line of the kernel.
pub static KERNEL_CMDLINE: Definition =
    Definition::published("KernelCmdlines.runtime.talos.dev", "runtime.KernelCmdlineController");

/// What tells this boot from every other.
pub static BOOT_ID: Definition =
    Definition::published("BootIDs.runtime.talos.dev", "runtime.BootIDController");

/// The boot entry that the loader started.
pub static BOOTED_ENTRY: Definition =
    Definition::published("BootedEntries.talos.dev", "runtime.BootedEntryController");

/// Variables that services get.
pub static ENVIRONMENT: Definition =
    Definition::published("Environments.runtime.talos.dev", "runtime.EnvironmentController");

/// A module in the kernel.
pub static LOADED_KERNEL_MODULE: Definition =
    Definition::published("LoadedKernelModules.runtime.talos.dev", "runtime.LoadedKernelModuleController");

/// The same, as v1.14 has it.
pub static KERNEL_MODULE_STATUS: Definition =
    Definition::published("KernelModuleStatuses.runtime.talos.dev", "runtime.KernelModuleStatusController");

/// Where the machine runs.
pub static PLATFORM_METADATA: Definition =
    Definition::published("PlatformMetadatas.talos.dev", "runtime.PlatformMetadataController");

/// Something that is wrong, and what to do.
pub static DIAGNOSTIC: Definition =
    Definition::published("Diagnostics.runtime.talos.dev", "runtime.DiagnosticsController");

/// A package in the image.
pub static SBOM_ITEM: Definition = Definition::published("SBOMItems.talos.dev", "runtime.SBOMItemController");

/// A core with its logical processors.
pub static CPU_CORE: Definition =
    Definition::published("CPUCores.hardware.talos.dev", "hardware.CPUCoreController");

/// What a volume is to be.
pub static VOLUME_CONFIG: Definition =
    Definition::published("VolumeConfigs.block.talos.dev", "block.VolumeConfigController");

/// Where a volume is mounted.
pub static VOLUME_MOUNT_STATUS: Definition =
    Definition::published("VolumeMountStatuses.block.talos.dev", "block.VolumeMountController");

/// A file of /etc that follows from resources: its content.
pub static ETC_FILE_SPEC: Definition =
    Definition::published("EtcFileSpecs.files.talos.dev", "files.EtcFileController");

/// The same: which content it has.
pub static ETC_FILE_STATUS: Definition =
    Definition::published("EtcFileStatuses.files.talos.dev", "files.EtcFileController");

/// Names and addresses in the API's certificate.
pub static CERT_SAN: Definition =
    Definition::published("CertSANs.secrets.talos.dev", "secrets.APICertSANsController");

/// A system extension: a layer of the image that a customisation added.
pub static EXTENSION_STATUS: Definition =
    Definition::published("ExtensionStatuses.runtime.talos.dev", "runtime.ExtensionStatusController");

/// Whether the devices that the machine started with are there.
pub static DEVICES_STATUS: Definition =
    Definition::published("DevicesStatuses.runtime.talos.dev", "runtime.DevicesStatusController");

/// A kernel parameter that the config gives.
pub static KERNEL_PARAM_SPEC: Definition =
    Definition::published("KernelParamSpecs.runtime.talos.dev", "runtime.KernelParamSpecController");

/// A kernel parameter that the node needs.
pub static KERNEL_PARAM_DEFAULT_SPEC: Definition =
    Definition::published("KernelParamDefaultSpecs.runtime.talos.dev", "runtime.KernelParamSpecController");

/// The process of a service.
pub static SERVICE_PID: Definition =
    Definition::published("ServicePIDs.runtime.talos.dev", "v1alpha1.ServiceController");

/// How the kernel steers the clock.
pub static ADJTIME_STATUS: Definition =
    Definition::published("AdjtimeStatuses.v1alpha1.talos.dev", "time.AdjtimeStatusController");

/// What a resource of these types says.
#[derive(Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Fact {
    /// `KernelCmdlines`.
    Cmdline {
        /// As the kernel has it.
        cmdline: String,
    },
    /// `BootIDs`.
    BootId {
        /// A UUID.
        #[serde(rename = "bootID")]
        boot_id: String,
    },
    /// `BootedEntries`.
    BootedEntry {
        /// File name on the ESP.
        #[serde(rename = "bootedEntry")]
        booted_entry: String,
    },
    /// `Environments`.
    Environment {
        /// `NAME=value`.
        variables: Vec<String>,
    },
    /// `LoadedKernelModules`.
    LoadedModule(LoadedModule),
    /// `KernelModuleStatuses`.
    ModuleStatus(ModuleStatus),
    /// `PlatformMetadatas`.
    Platform(PlatformMetadata),
    /// `Diagnostics`.
    Diagnostic(Diagnostic),
    /// `SBOMItems`.
    SbomItem(SbomItem),
    /// `CPUCores`.
    CpuCore(Box<CpuCore>),
    /// `VolumeConfigs`.
    VolumeConfig(Box<VolumeConfig>),
    /// `VolumeMountStatuses`.
    VolumeMount(VolumeMount),
    /// `EtcFileSpecs`.
    EtcFile(EtcFile),
    /// `EtcFileStatuses`.
    EtcFileStatus {
        /// Version of the content's resource.
        #[serde(rename = "specVersion")]
        spec_version: String,
    },
    /// `OSRootSecrets`.
    OsRoot(OsRoot),
    /// `KubernetesRootSecrets`.
    KubernetesRoot(KubernetesRoot),
    /// `CertSANs`.
    CertSans(CertSans),
    /// `ExtensionStatuses`.
    Extension(Extension),
    /// `DevicesStatuses`.
    Devices {
        /// Every device has its driver, or was asked for one in vain.
        ready: bool,
    },
    /// `KernelParamSpecs` and `KernelParamDefaultSpecs`.
    KernelParam(KernelParam),
    /// `ServicePIDs`.
    ServicePid(ServicePid),
    /// `AdjtimeStatuses`.
    Adjtime(Box<Adjtime>),
}

/// A system extension. Author and description are not kept in an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Extension {
    /// File name of its layer.
    pub image: String,
    /// What its manifest says.
    pub metadata: ExtensionMetadata,
}

/// What an extension's manifest says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExtensionMetadata {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// A kernel parameter that is to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KernelParam {
    /// The value.
    pub value: String,
    /// A kernel that lacks it, or refuses the value, stops nothing: always so here.
    pub ignore_errors: bool,
}

/// The process of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServicePid {
    /// Its number on the host.
    pub pid: i32,
    /// `mnt:[4026531832]`; empty where it is gone already.
    pub mount_namespace: String,
}

/// How the kernel steers the clock (adjtimex(2)). Durations as Go writes them.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Adjtime {
    /// What is still to be corrected.
    pub offset: String,
    /// Speed of the clock; 1: as the hardware counts.
    pub frequency_adjustment_ratio: f64,
    /// Largest error.
    pub max_error: String,
    /// Estimated error.
    pub est_error: String,
    /// Flags: `STA_PLL | STA_NANO`.
    pub status: String,
    /// Time constant of the loop.
    pub constant: i64,
    /// Something steers the clock.
    pub sync_status: bool,
    /// `TIME_OK`, or what is done about a leap second; `TIME_ERROR`: nothing steers.
    pub state: &'static str,
}

/// A module in the kernel, as /proc/modules has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadedModule {
    /// Bytes.
    pub size: u64,
    /// Users of it; -1 where it cannot be unloaded.
    pub reference_count: i64,
    /// Modules that use it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<String>,
    /// `Live`, `Loading`, `Unloading`.
    pub state: String,
    /// Zero to those who may not know.
    pub address: String,
}

/// The same with its kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ModuleStatus {
    /// `dynamic`: what is built in is not listed.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The rest, its state in small letters.
    #[serde(flatten)]
    pub module: LoadedModule,
}

/// Where the machine runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PlatformMetadata {
    /// `metal`.
    pub platform: String,
    /// The name that the platform gives.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hostname: String,
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// What.
    pub message: String,
    /// Since when, and what to do.
    pub details: Vec<String>,
}

/// A package in the image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SbomItem {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// As the package declares it; empty: it does not.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub license: String,
    /// Package URLs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub purls: Vec<String>,
}

/// A core.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CpuCore {
    /// Number of its socket.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub socket: String,
    /// Its number in the socket.
    #[serde(rename = "coreID", skip_serializing_if = "String::is_empty")]
    pub core_id: String,
    /// Processors as the kernel counts them.
    #[serde(rename = "logicalCPUs")]
    pub logical_cpus: Vec<u32>,
    /// `GenuineIntel`.
    #[serde(rename = "vendorID", skip_serializing_if = "String::is_empty")]
    pub vendor_id: String,
    /// Family.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cpu_family: String,
    /// Model.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// Name for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub model_name: String,
    /// Stepping.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub stepping: String,
    /// Version of the microcode.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub microcode: String,
    /// With its unit.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cache_size: String,
    /// Cores of the socket.
    pub cores_per_socket: u32,
    /// Logical processors of the socket.
    pub threads_per_socket: u32,
    /// Features.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
    /// Known faults.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bugs: Vec<String>,
    /// The kernel's measure of a delay loop.
    pub bogo_mips: f64,
    /// Bits of addresses.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub address_sizes: String,
}

/// Where a volume is mounted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeMount {
    /// The volume.
    #[serde(rename = "volumeID")]
    pub volume_id: String,
    /// Who uses it.
    pub requester: String,
    /// Where.
    pub target: String,
    /// It cannot be written.
    pub read_only: bool,
    /// It is in no tree of files: never here.
    pub detached: bool,
    /// Reading a file leaves no time in it.
    pub disable_access_time: bool,
    /// Set-user-id bits and devices have no effect.
    pub secure: bool,
    /// Nothing runs from it.
    pub no_exec: bool,
}

/// A file of /etc.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EtcFile {
    /// Its content in base64.
    pub contents: String,
    /// Permission bits.
    pub mode: u32,
    /// None here.
    pub selinux_label: &'static str,
}

/// Names and addresses of a certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CertSans {
    /// Addresses.
    pub ips: Vec<String>,
    /// Names.
    pub dns_names: Vec<String>,
    /// The longest name of the node.
    pub fqdn: String,
}

/// What a volume is to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VolumeConfig {
    /// `partition`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// How it is made where it is missing.
    pub provisioning: VolumeProvisioning,
    /// Where it goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mount: Option<VolumeTarget>,
    /// How it is encrypted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encryption: Option<VolumeEncryption>,
}

/// How a volume is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeProvisioning {
    /// Its partition.
    pub partition_spec: VolumePartition,
    /// What is on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filesystem_spec: Option<VolumeFilesystem>,
}

/// A partition that is to be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumePartition {
    /// Its name.
    pub label: String,
    /// Least bytes.
    pub min_size: u64,
    /// Most bytes, or with `negativeMaxSize` what of the disk stays free; 0: no bound.
    pub max_size: u64,
    /// Percent of the disk at most; 0: no bound.
    pub relative_max_size: u64,
    /// See `maxSize`.
    pub negative_max_size: bool,
    /// It fills the disk.
    pub grow: bool,
}

/// A file system that is to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VolumeFilesystem {
    /// `xfs`.
    #[serde(rename = "type")]
    pub kind: &'static str,
}

/// Where a volume goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeTarget {
    /// The directory.
    pub target_path: String,
}

/// How a volume is encrypted. Without keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VolumeEncryption {
    /// `luks2`.
    pub provider: &'static str,
    /// Its slots.
    pub keys: Vec<VolumeKey>,
}

/// A slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VolumeKey {
    /// Its number.
    pub slot: u8,
    /// Where its key comes from: `static`, `nodeID`, `kms`, `tpm`.
    #[serde(rename = "type")]
    pub kind: String,
}
