//! The `machine` section.

use super::{Network, is_default};
use crate::{CertificateAndKey, Secret};
use serde::{Deserialize, Serialize};
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
