//! Resource types of the running system: its stage, identity, modules, device rules, log receivers.
//!
//! Source: the columns are those of the public reference of v1.13; the `billet.dev` types are ours.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Definition;
use super::definition::{PLAIN, column};

/// Where the machine is.
pub static MACHINE_STATUS: Definition = Definition {
    kind: "MachineStatuses.runtime.talos.dev",
    display: "MachineStatus",
    columns: &[column("Stage", "{.stage}"), column("Ready", "{.status.ready}")],
    abbreviated: false,
    writer: "runtime.MachineStatusController",
    ..PLAIN
};

/// The version that runs.
pub static VERSION: Definition = Definition {
    kind: "Versions.runtime.talos.dev",
    display: "Version",
    columns: &[column("Name", "{.name}"), column("Version", "{.version}")],
    writer: "boot-report",
    ..PLAIN
};

/// A task that lives as long as machined.
pub static TASK: Definition = Definition {
    kind: "Tasks.runtime.billet.dev",
    display: "Task",
    columns: &[column("State", "{.state}"), column("About", "{.about}")],
    writer: "runtime.TaskController",
    ..PLAIN
};

/// How far the machine's start can be trusted.
pub static SECURITY_STATE: Definition = Definition {
    kind: "SecurityStates.talos.dev",
    display: "SecurityState",
    columns: &[
        column("SecureBoot", "{.secureBoot}"),
        column("BootedWithUKI", "{.bootedWithUKI}"),
        column("ModuleSignatureEnforced", "{.moduleSignatureEnforced}"),
    ],
    abbreviated: false,
    writer: "runtime.SecurityStateController",
    ..PLAIN
};

/// A kernel module that the config names.
pub static KERNEL_MODULE_SPEC: Definition = Definition {
    kind: "KernelModuleSpecs.runtime.talos.dev",
    display: "KernelModuleSpec",
    columns: &[
        column("Parameters", "{.parameters}"),
        column("Loaded", "{.loaded}"),
        column("Error", "{.error}"),
    ],
    writer: "loadKernelModules",
    ..PLAIN
};

/// A device rule that the config gives.
pub static UDEV_RULE_STATUS: Definition = Definition {
    kind: "UdevRuleStatuses.files.talos.dev",
    display: "UdevRuleStatus",
    namespace: "files",
    aliases: &["udevrules", "udevrule"],
    columns: &[column("Active", "{.active}"), column("Rule", "{.rule}"), column("Problem", "{.problem}")],
    writer: "files.UdevRuleController",
    ..PLAIN
};

/// An upgrade.
pub static UPGRADE_STATUS: Definition = Definition {
    kind: "UpgradeStatuses.runtime.billet.dev",
    display: "UpgradeStatus",
    columns: &[
        column("State", "{.state}"),
        column("From", "{.from}"),
        column("To", "{.to}"),
        column("Starts", "{.boots}"),
        column("Stage", "{.stage}"),
        column("Reason", "{.reason}"),
    ],
    writer: "upgrade",
    ..PLAIN
};

/// A receiver of logs.
pub static LOG_DESTINATION_STATUS: Definition = Definition {
    kind: "LogDestinationStatuses.runtime.billet.dev",
    display: "LogDestinationStatus",
    columns: &[
        column("Log", "{.log}"),
        column("State", "{.state}"),
        column("Sent", "{.sent}"),
        column("Dropped", "{.dropped}"),
        column("Error", "{.error}"),
    ],
    writer: "runtime.LogSenderController",
    ..PLAIN
};

/// Where the kernel's log is sent.
pub static KMSG_LOG_CONFIG: Definition = Definition {
    kind: "KmsgLogConfigs.runtime.talos.dev",
    display: "KmsgLogConfig",
    writer: "runtime.KmsgLogConfigController",
    ..PLAIN
};

/// A value of META that clients may set.
pub static META_KEY: Definition = Definition {
    kind: "MetaKeys.runtime.talos.dev",
    display: "MetaKey",
    aliases: &["meta"],
    columns: &[column("Value", "{.value}")],
    writer: "runtime.MetaController",
    ..PLAIN
};

/// The node's identity, which outlives restarts.
pub static IDENTITY: Definition = Definition {
    kind: "Identities.cluster.talos.dev",
    display: "Identity",
    namespace: "cluster",
    columns: &[column("ID", "{.nodeId}")],
    writer: "cluster.NodeIdentityController",
    ..PLAIN
};

/// The cluster that the config names.
pub static CLUSTER_INFO: Definition = Definition {
    kind: "Infos.cluster.talos.dev",
    display: "Info",
    namespace: "cluster",
    columns: &[column("Cluster ID", "{.clusterId}"), column("Cluster Name", "{.clusterName}")],
    writer: "cluster.InfoController",
    ..PLAIN
};

/// An earlier boot, as the flight recorder has it.
pub static EARLIER_BOOT: Definition = Definition {
    kind: "EarlierBoots.runtime.billet.dev",
    display: "EarlierBoot",
    columns: &[
        column("Back", "{.back}"),
        column("Started", "{.started}"),
        column("Slot", "{.slot}"),
        column("Runs", "{.version}"),
        column("Stage", "{.stage}"),
        column("End", "{.end}"),
    ],
    writer: "runtime.FlightRecorderController",
    ..PLAIN
};

/// A machine config that this node does not take (internal: `Diagnostics` says it).
pub static CONFIG_REFUSAL: Definition = Definition {
    kind: "ConfigRefusals.config.billet.dev",
    display: "ConfigRefusal",
    namespace: "config",
    internal: true,
    writer: "configuration",
    ..PLAIN
};

/// What a resource of these types says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum RuntimeSpec {
    /// `MachineStatuses`.
    MachineStatus(MachineStatus),
    /// `Versions`.
    Version(Version),
    /// `SecurityStates`.
    SecurityState(SecurityState),
    /// `KernelModuleSpecs`.
    KernelModule(KernelModule),
    /// `UdevRuleStatuses`.
    UdevRule(UdevRule),
    /// `LogDestinationStatuses`.
    LogDestination(LogDestination),
    /// `KmsgLogConfigs`.
    KmsgLog(KmsgLog),
    /// `Identities`.
    Identity(Identity),
    /// `MetaKeys`.
    MetaKey(MetaKey),
    /// `Infos`.
    Cluster(Cluster),
    /// `UpgradeStatuses`.
    UpgradeStatus(Box<UpgradeStatus>),
    /// `EarlierBoots`.
    EarlierBoot(EarlierBoot),
    /// `ConfigRefusals`.
    ConfigRefusal(ConfigRefusal),
}

/// Why a machine config is not taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConfigRefusal {
    /// In words, several lines at most; without secrets.
    pub reason: String,
}

/// An upgrade under way, or what became of the last one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeStatus {
    /// `running`, `failed`, `trial`, `kept`, `fell back`, `interrupted`, `rolled back`.
    pub state: &'static str,
    /// The version before.
    pub from: String,
    /// The version after.
    pub to: String,
    /// Its image.
    pub image: String,
    /// How far it is, or came.
    pub stage: String,
    /// Why it failed.
    pub reason: String,
    /// How often the new system was started.
    pub boots: u32,
    /// The last lines of its last start.
    pub last_lines: Vec<String>,
}

/// Where the machine is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MachineStatus {
    /// `booting`, `running`, …
    pub stage: &'static str,
    /// How far it got there.
    pub status: StageStatus,
}

/// How far a machine got in its stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StageStatus {
    /// All is well.
    pub ready: bool,
    /// What is not.
    pub unmet_conditions: Vec<UnmetCondition>,
}

/// Something that is not well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnmetCondition {
    /// What it concerns.
    pub name: String,
    /// What is wrong.
    pub reason: String,
}

/// The version that runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Version {
    /// The system's name.
    pub name: &'static str,
    /// The tag that `Version` answers with (`api::version`).
    pub version: String,
}

/// How far the machine's start can be trusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SecurityState {
    /// The firmware checks what it starts.
    pub secure_boot: bool,
    /// The kernel came in one signed file with its command line.
    #[serde(rename = "bootedWithUKI")]
    pub booted_with_uki: bool,
    /// The kernel takes signed modules only.
    pub module_signature_enforced: bool,
}

/// A kernel module that the config names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KernelModule {
    /// Its name.
    #[serde(rename = "string")]
    pub name: String,
    /// Its parameters.
    pub parameters: Vec<String>,
    /// It is there.
    pub loaded: bool,
    /// Why it is not, or which parameter has no effect.
    pub error: String,
}

/// A device rule that the config gives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UdevRule {
    /// The line.
    pub rule: String,
    /// It is applied to devices.
    pub active: bool,
    /// Why it is not, or what of it is not.
    pub problem: String,
}

/// A receiver of logs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LogDestination {
    /// Its address.
    pub endpoint: String,
    /// `services` or `kernel`.
    pub log: &'static str,
    /// `sending`, `waiting`.
    pub state: &'static str,
    /// Lines that were handed over.
    pub sent: u64,
    /// Lines that were given up.
    pub dropped: u64,
    /// What keeps it from sending.
    pub error: String,
    /// Fields that each line gets.
    pub extra_tags: BTreeMap<String, String>,
}

/// Where the kernel's log is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KmsgLog {
    /// Addresses.
    pub destinations: Vec<String>,
}

/// The node's identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// 32 bytes in base 62.
    pub node_id: String,
}

/// The cluster that the config names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cluster {
    /// Its identifier.
    pub cluster_id: String,
    /// Its name.
    pub cluster_name: String,
}

/// A value of META.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MetaKey {
    /// As text.
    pub value: String,
}

/// An earlier boot, as the flight recorder has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EarlierBoot {
    /// 1: the boot before this one.
    pub back: u32,
    /// The version that ran; empty: unknown.
    pub version: String,
    /// The slot it was started from; empty: unknown.
    pub slot: String,
    /// When its kernel started, by its own clock.
    pub started: String,
    /// The last sign of it.
    pub last_heard_of: String,
    /// How far it came: `init`, `machined`, `services`, `running`.
    pub stage: &'static str,
    /// How it ended.
    pub end: String,
    /// How often machined ended by itself.
    pub machined_ends: usize,
    /// What it said last.
    pub last_lines: Vec<String>,
}
