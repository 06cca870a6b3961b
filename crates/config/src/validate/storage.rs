//! Rules of disks and their encryption.

use super::Problems;
use crate::v1alpha1::{Encryption, EncryptionKey, Machine};
use recovery::{MOST_RECIPIENTS, Recipient};
use std::collections::BTreeSet;

/// What the firmware and a loader measured of what they started, which nobody knows beforehand. Of 11 it is known.
const CHANGED_BY_UPGRADES: [u8; 4] = [4, 9, 12, 13];

pub(super) fn check(machine: &Machine, problems: &mut Problems) {
    disks(machine, problems);
    let both = &machine.system_disk_encryption;
    for (label, settings) in [("state", &both.state), ("ephemeral", &both.ephemeral)] {
        if let Some(settings) = settings {
            encryption(settings, label, &format!("machine.systemDiskEncryption.{label}"), problems);
        }
    }
    if let Some(state) = &both.state {
        static_key_of_state(state, "machine.systemDiskEncryption.state", problems);
    }
}

/// Warns of a passphrase that must be known before STATE is open.
pub(super) fn static_key_of_state(settings: &Encryption, field: &str, problems: &mut Problems) {
    if settings.keys.iter().any(|key| key.static_key.is_some()) {
        let message = "a static key of STATE is stored unencrypted in META; use it for EPHEMERAL only";
        problems.warn(format!("{field}.keys"), message);
    }
}

fn disks(machine: &Machine, problems: &mut Problems) {
    for (index, disk) in machine.disks.iter().enumerate() {
        let field = format!("machine.disks[{index}]");
        if !disk.device.starts_with("/dev/") {
            problems.add(format!("{field}.device"), format!("`{}` is not a device: /dev/sdb", disk.device));
        }
        for (place, partition) in disk.partitions.iter().enumerate() {
            let field = format!("{field}.partitions[{place}]");
            if partition.size.0 == 0 && place + 1 != disk.partitions.len() {
                let message = format!(
                    "partition for disk {:?} is set to occupy full disk, but it's not the last partition in the list",
                    disk.device
                );
                problems.add(format!("{field}.size"), message);
            }
            if !partition.mountpoint.starts_with("/var/") {
                problems.add(
                    format!("{field}.mountpoint"),
                    format!("`{}` is not below /var", partition.mountpoint),
                );
            }
        }
    }
}

/// The rules of one volume, also of a document.
pub(super) fn encryption(settings: &Encryption, label: &str, field: &str, problems: &mut Problems) {
    if settings.keys.is_empty() {
        problems.add(
            format!("{field}.keys"),
            format!("no encryption keys provided for the {label} partition encryption"),
        );
    }
    if !settings.keys.is_empty() && settings.keys.iter().all(|key| key.recovery.is_some()) {
        problems.add(
            format!("{field}.keys"),
            "a recovery key alone would leave it locked at every boot; add a nodeID, static, kms or tpm key",
        );
    }
    let mut slots = BTreeSet::new();
    for (index, key) in settings.keys.iter().enumerate() {
        let field = format!("{field}.keys[{index}]");
        if key.slot > 31 {
            problems.add(format!("{field}.slot"), format!("{} is no key slot: LUKS2 has 0 to 31", key.slot));
        } else if !slots.insert(key.slot) {
            problems
                .add(format!("{field}.slot"), format!("encryption key slot {} is already in use", key.slot));
        }
        if key.lock_to_state == Some(true) && label.eq_ignore_ascii_case("state") {
            problems.add(
                format!("{field}.lockToState"),
                "a key of STATE cannot be locked to STATE; leave it out",
            );
        }
        key_kind(key, &field, problems);
        recovery_key(key, &field, problems);
    }
}

fn recovery_key(key: &EncryptionKey, field: &str, problems: &mut Problems) {
    let Some(recovery) = &key.recovery else { return };
    if key.lock_to_state == Some(true) {
        let message = "a recovery key opens the volume alone, whatever became of STATE; leave it out";
        problems.add(format!("{field}.lockToState"), message);
    }
    let field = format!("{field}.recovery.recipients");
    let recipients = &recovery.recipients;
    if recipients.is_empty() {
        problems
            .add(field.as_str(), "nobody could decrypt the key; name the public key that age-keygen prints");
    } else if recipients.len() > MOST_RECIPIENTS {
        let message = format!("{} are too many: {MOST_RECIPIENTS} at most", recipients.len());
        problems.add(field.as_str(), message);
    }
    for (index, recipient) in recipients.iter().enumerate() {
        if let Err(error) = recipient.parse::<Recipient>() {
            problems.add(format!("{field}[{index}]"), error.to_string());
        }
    }
}

fn key_kind(key: &EncryptionKey, field: &str, problems: &mut Problems) {
    let given = [
        key.static_key.is_some(),
        key.node_id.is_some(),
        key.kms.is_some(),
        key.tpm.is_some(),
        key.recovery.is_some(),
    ];
    match given.iter().filter(|g| **g).count() {
        0 => problems.add(field, format!("encryption key at slot {} doesn't have any settings", key.slot)),
        1 => {}
        _ => problems.add(
            field,
            format!(
                "encryption key at slot {} has more than one of static, nodeID, kms, tpm, recovery",
                key.slot
            ),
        ),
    }
    if key.static_key.as_ref().is_some_and(|k| k.passphrase.is_empty()) {
        problems.add(format!("{field}.static.passphrase"), "an empty passphrase protects nothing");
    }
    match key.kms.as_ref().map(|kms| kms.endpoint.as_str()) {
        Some("") => {
            problems.add(format!("{field}.kms.endpoint"), "missing; write where the key server answers");
        }
        Some(endpoint) if endpoint.split_once("://").is_some_and(|(s, _)| !matches!(s, "https" | "grpc")) => {
            let message = format!("`{endpoint}` is neither https://HOST:PORT nor grpc://HOST:PORT");
            problems.add(format!("{field}.kms.endpoint"), message);
        }
        // Volumes that were made under such a config go on opening; a new one is refused by the node (decision 0023).
        Some(endpoint) if !endpoint.contains("://") => {
            let message = format!(
                "`{endpoint}` is taken as grpc://{endpoint}, which is not encrypted: who listens has the key; write https:// or \
                 grpc:// before it"
            );
            problems.warn(format!("{field}.kms.endpoint"), message);
        }
        _ => {}
    }
    let pcrs = key.tpm.iter().flat_map(|t| &t.options).flat_map(|o| &o.pcrs).flatten();
    for pcr in pcrs {
        let field = format!("{field}.tpm.options.pcrs");
        if *pcr > 23 {
            problems.add(field, format!("{pcr} is no register: 0 to 23"));
        } else if CHANGED_BY_UPGRADES.contains(pcr) {
            problems.warn(
                field,
                format!("an upgrade changes register {pcr}, and the key opens no more: keep another key"),
            );
        }
    }
}
