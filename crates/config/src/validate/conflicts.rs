//! What a document and the v1alpha1 document both say, differently: neither can be silently dropped.
//!
//! Source: the second generation's refusals, worded as there; equal values are no conflict.

use super::Problems;
use crate::{documents::Document, v1alpha1::Config};

/// `own` is the v1alpha1 document as it stands, without what documents put into it.
pub(super) fn check(document: &Document, own: &Config, problems: &mut Problems) {
    let network = &own.machine.network;
    match document {
        Document::HostnameConfig(d) if !network.hostname.is_empty() && network.hostname != d.hostname => {
            let field = if d.hostname.is_empty() { "auto" } else { "hostname" };
            let message = "static hostname is already set in v1alpha1 config; \
                           keep one of `machine.network.hostname` and this document";
            problems.add(field, message);
        }
        Document::ResolverConfig(d) if !network.nameservers.is_empty() && !d.nameservers.is_empty() => {
            let same = d.nameservers.iter().filter_map(|n| n.address).eq(network.nameservers.iter().copied());
            if !same {
                let message =
                    ".machine.network.nameservers is already set in v1alpha1 config; keep one of both";
                problems.add("nameservers", message);
            }
        }
        Document::KubeSpanConfig(_) if network.kubespan.is_some() => {
            let message =
                "kubespan is already configured in v1alpha1 machine.network.kubespan; keep one of both";
            problems.add("enabled", message);
        }
        Document::VolumeConfig(d) if d.encryption.is_some() => {
            let legacy = &own.machine.system_disk_encryption;
            let both = match d.name.as_str() {
                "STATE" => legacy.state.is_some(),
                "EPHEMERAL" => legacy.ephemeral.is_some(),
                _ => false,
            };
            if both {
                let message = format!(
                    "system disk encryption for {:?} is configured in both v1alpha1.Config and VolumeConfig",
                    d.name
                );
                problems.add("encryption", message);
            }
        }
        Document::UserVolumeConfig(d) => {
            let place = format!("/var/mnt/{}", d.name);
            let mut legacy = own.machine.disks.iter().flat_map(|disk| &disk.partitions);
            if legacy.any(|partition| partition.mountpoint == place) {
                let message =
                    format!("machine.disks mounts a partition at {place}, too; give one another name");
                problems.add("name", message);
            }
        }
        _ => {}
    }
}
