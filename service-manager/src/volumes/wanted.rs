//! How a config wants a volume encrypted, as a [`Record`].

use config::Config;
use config::v1alpha1::{Encryption, EncryptionKey};
use installer::volumes::{EPHEMERAL, STATE};
use unlock::{Kind, Record, RecordKey};
use zeroize::Zeroizing;

/// How the config wants a volume of the system; `None`: not encrypted.
pub(super) fn of_system(config: &Config, volume: &str) -> Option<Record> {
    let both = &config.machine.system_disk_encryption;
    let settings = match volume {
        STATE => &both.state,
        EPHEMERAL => &both.ephemeral,
        _ => return None,
    };
    settings.as_ref().map(record)
}

/// An encryption of the config.
pub(super) fn record(settings: &Encryption) -> Record {
    let mut record = Record::default();
    record.keys = settings.keys.iter().map(record_key).collect();
    record.cipher = settings.cipher.map(|cipher| cipher.as_str().to_owned()).unwrap_or_default();
    record.key_bits = settings.key_size.into();
    record.sector_bytes = settings.block_size.into();
    record.options = settings.options.iter().map(|option| option.as_str().to_owned()).collect();
    record
}

fn record_key(key: &EncryptionKey) -> RecordKey {
    let kind = match (&key.static_key, &key.node_id, &key.kms, &key.tpm, &key.recovery) {
        (Some(key), ..) => Kind::Static(Zeroizing::new(key.passphrase.expose_secret().to_owned())),
        (_, Some(_), ..) => Kind::NodeId,
        (_, _, Some(key), ..) => Kind::Kms { endpoint: key.endpoint.clone() },
        (_, _, _, Some(key), _) => Kind::Tpm {
            check_secure_boot: key.check_secureboot_status_on_enroll,
            pcrs: key.options.as_ref().and_then(|options| options.pcrs.clone()),
        },
        (.., Some(key)) => Kind::Recovery { recipients: key.recipients.clone() },
        // Validation refuses it before.
        (None, None, None, None, None) => Kind::Other("a key without a kind".to_owned()),
    };
    let mut made = RecordKey::new(key.slot, kind);
    made.lock_to_state = key.lock_to_state;
    made
}

/// Whether a key of the record needs more than the machine itself, so that another try may end otherwise.
pub(super) fn needs_others(record: &Record) -> bool {
    record.keys.iter().any(|key| matches!(key.kind, Kind::Kms { .. }))
}

/// Whether a person can open it when nothing else does.
pub(super) fn has_recovery_key(record: &Record) -> bool {
    record.keys.iter().any(|key| matches!(key.kind, Kind::Recovery { .. }))
}
