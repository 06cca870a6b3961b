//! From the machine config to keys: which volume is to be encrypted, and what opens each of its slots.
//!
//! Owns: the config's encryption as a [`Record`], which META keeps of STATE; the bytes of each key; what a slot costs.
//! Does not: read headers, or write anything.
//! Fails by: a reason a key: one that cannot be had does not keep the others from being tried.
//! Source: spec/machine-facts.md §3.5; RFC 9106 §4 for the cost.

use std::fs;

use config::Config;
use config::v1alpha1::{Encryption, EncryptionKey};
use installer::encryption::{Key, Protection};
use installer::volumes::Volume;
use ondisk::luks2::{Argon2Cost, Cost};
use ondisk::meta::tags;
use unlock::{IdentityError, Kind, Machine, Record, RecordKey, Refused, static_key};
use zeroize::Zeroizing;

use crate::node::Node;

/// What a slot costs whoever guesses: the second recommendation of RFC 9106, for machines without much memory.
pub(super) const COST: Cost = Cost::Argon2id(Argon2Cost { memory_kib: 64 << 10, passes: 3, lanes: 4 });

/// The one cipher so far; an empty field means it.
const CIPHER: &str = "aes-xts-plain64";
/// Length of a volume key unless the config says otherwise: AES with 256 bits, twice.
const KEY_BITS: u64 = 512;

/// How the config wants a volume; `None`: not encrypted.
pub(crate) fn wanted(config: &Config, volume: Volume) -> Option<Record> {
    let both = &config.machine.system_disk_encryption;
    let settings = match volume {
        Volume::State => &both.state,
        Volume::Ephemeral => &both.ephemeral,
    };
    settings.as_ref().map(record)
}

fn record(settings: &Encryption) -> Record {
    let mut record = Record::default();
    record.keys = settings.keys.iter().map(record_key).collect();
    record.cipher = settings.cipher.map(|cipher| cipher.as_str().to_owned()).unwrap_or_default();
    record.key_bits = settings.key_size.into();
    record.sector_bytes = settings.block_size.into();
    record.options = settings.options.iter().map(|option| option.as_str().to_owned()).collect();
    record
}

fn record_key(key: &EncryptionKey) -> RecordKey {
    let kind = match (&key.static_key, &key.node_id, &key.kms, &key.tpm) {
        (Some(key), ..) => Kind::Static(Zeroizing::new(key.passphrase.expose_secret().to_owned())),
        (_, Some(_), ..) => Kind::NodeId,
        (_, _, Some(key), _) => Kind::Kms { endpoint: key.endpoint.clone() },
        (.., Some(key)) => Kind::Tpm {
            check_secure_boot: key.check_secureboot_status_on_enroll,
            pcrs: key.options.as_ref().and_then(|options| options.pcrs.clone()),
        },
        // Validation refuses it before.
        (None, None, None, None) => Kind::Other("a key without a kind".to_owned()),
    };
    let mut made = RecordKey::new(key.slot, kind);
    made.lock_to_state = key.lock_to_state == Some(true);
    made
}

/// Who the machine is. Reads the firmware's tables.
pub(crate) fn machine(node: &Node) -> Result<Machine, IdentityError> {
    let table = |name: &str| fs::read(node.path("/sys/firmware/dmi/tables").join(name)).unwrap_or_default();
    let uuid = node.meta.get(tags::UUID_OVERRIDE);
    Machine::new(&table("DMI"), &table("smbios_entry_point"), uuid.as_deref())
}

/// The keys of a volume, in the order of their slots, and why the others cannot be had. A slot may have two: the first
/// is the one that it is made with.
pub(super) fn keys(
    record: &Record,
    machine: &Result<Machine, IdentityError>,
    volume: Volume,
) -> Vec<Result<Key, Refused>> {
    let mut wanted: Vec<&RecordKey> = record.keys.iter().collect();
    wanted.sort_by_key(|key| key.slot);
    wanted.into_iter().flat_map(|key| keys_of(key, machine, volume)).collect()
}

fn keys_of(
    key: &RecordKey,
    machine: &Result<Machine, IdentityError>,
    volume: Volume,
) -> Vec<Result<Key, Refused>> {
    let slot = key.slot;
    let kind = key.kind.name();
    let refused = |why: String| vec![Err(Refused { slot, kind: kind.clone(), why })];
    let made = |secret| Ok(Key { slot, kind: kind.clone(), secret, cost: COST });
    if key.lock_to_state {
        return refused("lockToState is not supported yet: leave it out".to_owned());
    }
    match &key.kind {
        Kind::Static(passphrase) => match static_key(passphrase) {
            Ok(secret) => vec![made(secret)],
            Err(why) => refused(why),
        },
        Kind::NodeId => {
            match machine.as_ref().map_err(Clone::clone).and_then(|own| own.keys(volume.name())) {
                Ok(secrets) => secrets.into_iter().map(made).collect(),
                Err(error) => refused(error.to_string()),
            }
        }
        Kind::Kms { .. } | Kind::Tpm { .. } | Kind::Recovery => {
            refused(format!("{kind} keys are not supported yet: use nodeID or static"))
        }
        Kind::Other(name) => refused(format!("{name} is not known here")),
    }
}

/// How a new volume is encrypted; in a sentence why it cannot be.
pub(super) fn protection(record: &Record, keys: &[Result<Key, Refused>]) -> Result<Protection, String> {
    if !matches!(record.cipher.as_str(), "" | CIPHER) {
        return Err(format!("cipher {} is not supported yet: use {CIPHER}, or leave it out", record.cipher));
    }
    let key_bits = if record.key_bits == 0 { KEY_BITS } else { record.key_bits };
    let key_bytes = match key_bits {
        256 => 32,
        512 => 64,
        other => return Err(format!("keySize {other} is none of {CIPHER}: 256 or 512")),
    };
    let sector_bytes = match record.sector_bytes {
        0 => None,
        bytes @ (512 | 1024 | 2048 | 4096) => u32::try_from(bytes).ok(),
        other => return Err(format!("blockSize {other} is no sector: 512, 1024, 2048 or 4096")),
    };
    let usable: Vec<Key> = keys.iter().filter_map(|key| key.as_ref().ok().cloned()).collect();
    if usable.is_empty() {
        return Err(format!("no key can be had: {}", reasons(keys)));
    }
    // Switches for speed are the config's, at every opening, and not the header's.
    Ok(Protection { key_bytes, sector_bytes, flags: Vec::new(), keys: usable })
}

/// Why keys cannot be had, in one line.
pub(super) fn reasons(keys: &[Result<Key, Refused>]) -> String {
    let refused = keys.iter().filter_map(|key| key.as_ref().err());
    let reasons: Vec<String> = refused.map(Refused::to_string).collect();
    if reasons.is_empty() { "none is configured".to_owned() } else { reasons.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "bc94b891-0df9-47d8-a7d3-c7c199d66b0e";

    fn config(section: &str) -> Config {
        let text = format!("version: v1alpha1\nmachine:\n  type: worker\n{section}");
        config::load(text.as_bytes()).unwrap().config
    }

    fn own() -> Result<Machine, IdentityError> {
        Machine::new(&[], &[], Some(UUID.as_bytes()))
    }

    fn ephemeral(keys: &str) -> Record {
        let section = format!("  systemDiskEncryption: {{ephemeral: {{provider: luks2, keys: [{keys}]}}}}\n");
        wanted(&config(&section), Volume::Ephemeral).unwrap()
    }

    #[test]
    fn a_config_says_which_volume_is_encrypted() {
        let plain = config("");
        assert!(wanted(&plain, Volume::State).is_none() && wanted(&plain, Volume::Ephemeral).is_none());
        let state = config(
            "  systemDiskEncryption: {state: {provider: luks2, keys: [{nodeID: {}}], options: [no_read_workqueue]}}\n",
        );
        assert!(wanted(&state, Volume::Ephemeral).is_none());
        let record = wanted(&state, Volume::State).unwrap();
        assert_eq!(record.options, ["no_read_workqueue"]);
        assert!(record.keys.len() == 1 && record.keys[0].kind == Kind::NodeId);
        let text = String::from_utf8(record.write().to_vec()).unwrap();
        assert!(
            text.contains(r#""KeyNodeID":{}"#) && text.contains(r#""EncryptionProvider":"luks2""#),
            "{text}"
        );
    }

    #[test]
    fn keys_are_what_the_reference_makes_of_them() {
        let record = ephemeral("{static: {passphrase: supersecret}, slot: 3}, {nodeID: {}, slot: 1}");
        let keys: Vec<Key> =
            keys(&record, &own(), Volume::Ephemeral).into_iter().map(|key| key.unwrap()).collect();
        assert_eq!((keys[0].slot, keys[0].secret.as_slice()), (1, format!("{UUID}EPHEMERAL").as_bytes()));
        assert_eq!((keys[1].slot, keys[1].secret.as_slice()), (3, &b"supersecret"[..]));
    }

    #[test]
    fn what_cannot_be_had_has_a_reason_and_the_rest_is_used() {
        let record = ephemeral(
            "{tpm: {}, slot: 0}, {nodeID: {}, slot: 1}, {static: {passphrase: a}, slot: 2, lockToState: true}",
        );
        let found = keys(&record, &Err(IdentityError::NotPopulated), Volume::Ephemeral);
        assert_eq!(
            reasons(&found),
            "tpm key for slot 0: tpm keys are not supported yet: use nodeID or static; nodeID key for slot 1: machine \
             UUID is not populated; static key for slot 2: lockToState is not supported yet: leave it out"
        );
        let error = protection(&record, &found).unwrap_err();
        assert!(error.starts_with("no key can be had: tpm key"), "{error}");
        assert_eq!(protection(&record, &keys(&record, &own(), Volume::Ephemeral)).unwrap().keys.len(), 1);
    }

    #[test]
    fn what_is_asked_of_a_volume_is_checked() {
        let with = |change: fn(&mut Record)| {
            let mut record = ephemeral("{nodeID: {}}");
            change(&mut record);
            let keys = keys(&record, &own(), Volume::Ephemeral);
            protection(&record, &keys)
        };
        let usual = with(|_| {}).unwrap();
        assert_eq!((usual.key_bytes, usual.sector_bytes), (64, None));
        let small = with(|record| (record.key_bits, record.sector_bytes) = (256, 4096)).unwrap();
        assert_eq!((small.key_bytes, small.sector_bytes), (32, Some(4096)));
        assert!(with(|record| record.key_bits = 384).unwrap_err().contains("256 or 512"));
        assert!(with(|record| record.sector_bytes = 100).unwrap_err().contains("no sector"));
        let other = with(|record| record.cipher = "xchacha12,aes-adiantum-plain64".into());
        assert!(other.unwrap_err().contains("not supported yet: use aes-xts-plain64"));
    }
}
