//! The `machine` section.

use super::{Network, is_default};
use crate::{CertificateAndKey, EncodedPem, Secret};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// What concerns this machine.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Machine {
    /// The role in the cluster.
    #[serde(rename = "type", default)]
    pub machine_type: MachineType,
    /// Shared secret with which nodes ask trustd for certificates.
    #[serde(default = "no_secret", skip_serializing_if = "Secret::is_empty")]
    pub token: Secret,
    /// CA of the node API. Workers hold the certificate only.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ca: CertificateAndKey,
    /// Further names and addresses for the API's server certificate.
    #[serde(rename = "certSANs", default, skip_serializing_if = "is_default")]
    pub cert_sans: Vec<String>,
    /// Host name, resolvers, interfaces.
    #[serde(default, skip_serializing_if = "is_default")]
    pub network: Network,
    /// Where the system is installed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub install: Install,
    /// Time synchronisation.
    #[serde(default, skip_serializing_if = "is_default")]
    pub time: Time,
    /// Files to write at boot, in this order.
    #[serde(default, skip_serializing_if = "is_default")]
    pub files: Vec<File>,
    /// Environment of all services: proxies and the like.
    #[serde(default, skip_serializing_if = "is_default")]
    pub env: BTreeMap<String, String>,
    /// Kernel parameters below /proc/sys; dots stand for slashes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub sysctls: BTreeMap<String, String>,
    /// Values below /sys; dots stand for slashes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub sysfs: BTreeMap<String, String>,
    /// Where container images come from.
    #[serde(default, skip_serializing_if = "is_default")]
    pub registries: Registries,
    /// The kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<Kernel>,
    /// Rules for devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udev: Option<Udev>,
}

/// A file to write at boot.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct File {
    /// Its text.
    #[serde(default)]
    pub content: String,
    /// Its permissions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<FileMode>,
    /// Where it is.
    pub path: String,
    /// How it is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub op: Option<FileOp>,
}

/// Permission bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileMode(pub u32);

impl Serialize for FileMode {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("0o{:o}", self.0))
    }
}

impl<'de> Deserialize<'de> for FileMode {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits = text.trim_start_matches("0o");
        u32::from_str_radix(digits, 8)
            .ok()
            .filter(|mode| *mode <= 0o7777)
            .map(Self)
            .ok_or_else(|| serde::de::Error::custom(format!("permissions `{text}`: write them like 0644")))
    }
}

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileOp {
    /// A new file, below /var only.
    Create,
    /// Behind what the file holds already.
    Append,
    /// Instead of what the file holds.
    Overwrite,
}

/// Where container images come from.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Registries {
    /// By registry, `*` for all others: who is asked instead.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mirrors: BTreeMap<String, RegistryMirror>,
    /// By host of a registry or mirror: how it is spoken to.
    #[serde(default, skip_serializing_if = "is_default")]
    pub config: BTreeMap<String, RegistryConfig>,
}

/// Who is asked instead of a registry.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct RegistryMirror {
    /// Addresses, by preference.
    #[serde(default)]
    pub endpoints: Vec<String>,
    /// The address holds the whole path already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub override_path: Option<bool>,
    /// Do not ask the registry itself when no mirror answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip_fallback: Option<bool>,
}

/// How a registry is spoken to.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct RegistryConfig {
    /// Certificates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<RegistryTls>,
    /// Who we are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<RegistryAuth>,
}

/// Certificates for a registry.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct RegistryTls {
    /// Our own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_identity: Option<CertificateAndKey>,
    /// The CA of the registry's.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ca: EncodedPem,
    /// Take any certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub insecure_skip_verify: Option<bool>,
}

/// Who we are to a registry.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct RegistryAuth {
    /// Name.
    #[serde(default, skip_serializing_if = "is_default")]
    pub username: String,
    /// Password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<Secret>,
    /// Both, base64 of `name:password`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Secret>,
    /// A token instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity_token: Option<Secret>,
}

/// The kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Kernel {
    /// Modules to load.
    #[serde(default)]
    pub modules: Vec<KernelModule>,
}

/// A kernel module to load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct KernelModule {
    /// Its name.
    pub name: String,
    /// Its parameters.
    #[serde(default, skip_serializing_if = "is_default")]
    pub parameters: Vec<String>,
}

/// Rules for devices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Udev {
    /// Lines in udev's language.
    #[serde(default)]
    pub rules: Vec<String>,
}

fn no_secret() -> Secret {
    Secret::new("")
}

/// Where the system is installed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Install {
    /// Device path of the disk.
    #[serde(default, skip_serializing_if = "is_default")]
    pub disk: String,
    /// Image reference of the installer.
    #[serde(default, skip_serializing_if = "is_default")]
    pub image: String,
    /// Clear the whole disk first.
    #[serde(default, skip_serializing_if = "is_default")]
    pub wipe: bool,
    /// Words appended to the kernel command line.
    #[serde(default, skip_serializing_if = "is_default")]
    pub extra_kernel_args: Vec<String>,
}

/// Time synchronisation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Time {
    /// Neither ask a time server nor wait for one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub disabled: bool,
    /// Time servers, by preference.
    #[serde(default, skip_serializing_if = "is_default")]
    pub servers: Vec<String>,
}

/// The role of a machine in its cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MachineType {
    /// A control plane node that bootstraps etcd by itself.
    Init,
    /// A control plane node.
    ControlPlane,
    /// A worker. The first generation's generator and status outputs call it `join`.
    #[default]
    #[serde(alias = "join", alias = "")]
    Worker,
}

impl MachineType {
    /// Whether etcd, trustd and the Kubernetes control plane run here.
    pub fn is_control_plane(self) -> bool {
        matches!(self, Self::Init | Self::ControlPlane)
    }
}

impl fmt::Display for MachineType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Init => "init",
            Self::ControlPlane => "controlplane",
            Self::Worker => "worker",
        })
    }
}
