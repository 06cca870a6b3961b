//! From the machine config to keys: which volume is to be encrypted, and what opens each of its slots.
//!
//! Owns: the config's encryption as a [`Record`], which META keeps of STATE; the bytes of each key; what a slot costs.
//! Does not: read headers, or write anything.
//! Fails by: a reason a key: one that cannot be had does not keep the others from being tried.
//! Source: docs/users/encryption.md; RFC 9106 §4 for the cost.

use std::fs;

use installer::encryption::Lock;
use installer::volumes::{EPHEMERAL, STATE};
use ondisk::luks2::Cipher;
use ondisk::meta::tags;
use unlock::{IdentityError, Kind, Machine, Record, RecordKey, Refused, Secret, is_bound_kind, static_key};

use super::handle::Volumes;
use super::key::{Origin, VolumeKey};
use super::opening::Job;
use super::{salt, specs, wanted};
use crate::upgrade_record;

/// Why a key of STATE cannot be locked to STATE.
const LOCKED_TO_ITSELF: &str = "it is locked to STATE, and STATE is that: leave lockToState out";

/// How the config in force wants a volume, the system's or the user's; `None`: not encrypted.
pub(super) fn in_force(volumes: &Volumes, volume: &str) -> Option<Record> {
    match volume {
        STATE | EPHEMERAL => wanted::of_system(&*volumes.runtime.config()?, volume),
        _ => specs::find(volumes, volume)?.encryption,
    }
}

/// What this node brings to its keys.
pub(super) struct Own {
    /// Who the machine is.
    pub(super) machine: Result<Machine, IdentityError>,
    /// For keys that are locked to STATE.
    pub(super) salt: Result<Secret, String>,
    /// Whether sealed keys of other volumes than STATE are locked to it where the config does not say.
    pub(super) locks_by_default: bool,
    /// Whether the system is on trial.
    pub(super) is_on_trial: bool,
    /// Whether keys of the TPM are sealed for starts with an authenticated config; `None`: as they are.
    pub(super) demands_config: Option<bool>,
    /// Why no key of the TPM may be used in this start.
    pub(super) register: Result<(), String>,
}

impl Own {
    /// For opening or making a volume. A salt is made where a key wants the first. Blocks.
    pub(super) fn of(volumes: &Volumes, record: &Record, volume: &str) -> Self {
        // A plain STATE can be copied with its salt.
        let locks_by_default =
            volumes.runtime.config().is_some_and(|config| wanted::of_system(&config, STATE).is_some());
        let locks = |key| lock(key, volume, locks_by_default) != Lock::Never;
        let salt = if record.keys.iter().any(locks) { salt::of(volumes) } else { salt::kept(volumes) };
        let has_tpm_key = record.keys.iter().any(|key| matches!(key.kind, Kind::Tpm { .. }));
        Self {
            machine: machine(volumes),
            salt,
            locks_by_default,
            is_on_trial: upgrade_record::is_on_trial(&volumes.meta),
            // STATE is asked for while it is made.
            demands_config: volumes
                .register
                .next_is_authenticated(volume == STATE || volumes.state().is_some()),
            register: if has_tpm_key { volumes.register.close() } else { Ok(()) },
        }
    }

    /// For judging a config: its salt opens nothing.
    pub(super) fn to_judge(volumes: &Volumes) -> Self {
        Self {
            machine: machine(volumes),
            salt: Ok(salt::stand_in()),
            locks_by_default: false,
            is_on_trial: false,
            demands_config: None,
            register: Ok(()),
        }
    }
}

/// Whether the salt of STATE belongs to a key of this volume.
fn lock(key: &RecordKey, volume: &str, by_default: bool) -> Lock {
    match key.lock_to_state {
        Some(true) => Lock::Always,
        None if by_default && volume != STATE && is_bound_kind(&key.kind.name()) => Lock::Usual,
        Some(false) | None => Lock::Never,
    }
}

/// Who the machine is. Reads the firmware's tables.
fn machine(volumes: &Volumes) -> Result<Machine, IdentityError> {
    let table = |name: &str| {
        fs::read(volumes.runtime.path("/sys/firmware/dmi/tables").join(name)).unwrap_or_default()
    };
    let uuid = volumes.meta.get(tags::UUID_OVERRIDE);
    Machine::new(&table("DMI"), &table("smbios_entry_point"), uuid.as_deref())
}

/// The keys of a volume, in the order of their slots, and why the others cannot be had. A slot may have two: the first
/// is the one that it is made with.
pub(super) fn keys(record: &Record, own: &Own, volume: &str) -> Vec<Result<VolumeKey, Refused>> {
    let mut wanted: Vec<&RecordKey> = record.keys.iter().collect();
    wanted.sort_by_key(|key| key.slot);
    wanted.into_iter().flat_map(|key| keys_of(key, own, volume)).collect()
}

fn keys_of(key: &RecordKey, own: &Own, volume: &str) -> Vec<Result<VolumeKey, Refused>> {
    let slot = key.slot;
    let kind = key.kind.name();
    let refused = |why: String| vec![Err(Refused { slot, kind: kind.clone(), why })];
    let lock = lock(key, volume, own.locks_by_default);
    match (lock, &own.salt) {
        (Lock::Always, _) if volume == STATE => return refused(LOCKED_TO_ITSELF.to_owned()),
        // Of a sealed key the token says whether it takes a salt.
        (Lock::Always, Err(why)) if !is_bound_kind(&kind) => return refused(why.clone()),
        _ => {}
    }
    let made = |origin| {
        let made = VolumeKey::new(slot, &kind, origin, volume).on_trial(own.is_on_trial);
        Ok(made.locked(lock, &own.salt))
    };
    let known = |secret: Secret| made(Origin::Known(secret.to_vec()));
    let machine = || own.machine.as_ref().map_err(ToString::to_string);
    match &key.kind {
        Kind::Static(passphrase) => match static_key(passphrase) {
            Ok(secret) => vec![known(secret)],
            Err(why) => refused(why),
        },
        Kind::NodeId => {
            let keys = machine().and_then(|own| own.keys(volume).map_err(|error| error.to_string()));
            match keys {
                Ok(secrets) => secrets.into_iter().map(known).collect(),
                Err(why) => refused(why),
            }
        }
        Kind::Kms { endpoint } => {
            let node = machine().map(|machine| machine.uuid().to_owned());
            match (kms::Endpoint::parse(endpoint), node) {
                (Ok(_), Ok(node)) => vec![made(Origin::Kms { endpoint: endpoint.clone(), node })],
                (Err(error), _) => refused(error.to_string()),
                (_, Err(why)) => refused(why),
            }
        }
        Kind::Tpm { check_secure_boot, pcrs } => {
            let needs_secure_boot = *check_secure_boot == Some(true);
            match &own.register {
                Ok(()) => {
                    let key = made(Origin::Tpm { pcrs: pcrs.clone(), needs_secure_boot });
                    vec![key.map(|key| key.demanding(own.demands_config))]
                }
                Err(why) => refused(why.clone()),
            }
        }
        Kind::Recovery { recipients } => {
            vec![made(Origin::Recovery { recipients: recipients.clone() })]
        }
        Kind::Other(name) => refused(format!("{name} is not known here")),
    }
}

/// How a new volume is encrypted; in a sentence why it cannot be.
pub(super) fn format(record: &Record, keys: &[Result<VolumeKey, Refused>]) -> Result<Job, String> {
    let cipher = match record.cipher.as_str() {
        "" => Cipher::default(),
        name => Cipher::named(name).ok_or_else(|| unknown_cipher(name))?,
    };
    let key_bytes = key_bytes(cipher, record.key_bits)?;
    let sector_bytes = match record.sector_bytes {
        0 => None,
        bytes @ (512 | 1024 | 2048 | 4096) => u32::try_from(bytes).ok(),
        other => return Err(format!("blockSize {other} is no sector: 512, 1024, 2048 or 4096")),
    };
    // With a recovery key alone it would be locked from the next boot on.
    let opens_by_itself =
        |key: &Result<VolumeKey, Refused>| key.as_ref().is_ok_and(|key| !key.is_with_people());
    if !keys.iter().any(opens_by_itself) {
        return Err(format!("no key can be had: {}", reasons(keys)));
    }
    Ok(Job::Format { cipher, key_bytes, sector_bytes })
}

fn unknown_cipher(name: &str) -> String {
    let names = Cipher::ALL.map(Cipher::name).join(" or ");
    format!("cipher {name} is not supported: use {names}")
}

/// The cipher's usual length unless the config says otherwise.
fn key_bytes(cipher: Cipher, bits: u64) -> Result<usize, String> {
    let lengths = cipher.key_bytes().iter().copied();
    let mut fitting = lengths.clone().filter(|bytes| bits == 0 || u64::try_from(bytes * 8) == Ok(bits));
    fitting.next().ok_or_else(|| {
        let possible: Vec<String> = lengths.map(|bytes| (bytes * 8).to_string()).collect();
        format!("keySize {bits} is none of {}: {}", cipher.name(), possible.join(" or "))
    })
}

/// Why keys cannot be had, in one line.
pub(super) fn reasons(keys: &[Result<VolumeKey, Refused>]) -> String {
    let refused = keys.iter().filter_map(|key| key.as_ref().err());
    let reasons: Vec<String> = refused.map(Refused::to_string).collect();
    if reasons.is_empty() { "none is configured".to_owned() } else { reasons.join("; ") }
}

#[cfg(test)]
mod tests {
    use installer::encryption::KeySecret;

    use config::Config;

    use super::*;

    const UUID: &str = "bc94b891-0df9-47d8-a7d3-c7c199d66b0e";

    fn config(section: &str) -> Config {
        let text = format!("version: v1alpha1\nmachine:\n  type: worker\n{section}");
        config::load(text.as_bytes()).unwrap().config
    }

    fn own() -> Own {
        let machine = Machine::new(&[], &[], Some(UUID.as_bytes()));
        let salt = Ok(Secret::new(b"salt".to_vec()));
        let (demands_config, register) = (None, Ok(()));
        Own { machine, salt, locks_by_default: false, is_on_trial: false, demands_config, register }
    }

    fn passphrase(key: &VolumeKey) -> String {
        match key.key(std::path::Path::new("/dev/vda5")).secret {
            KeySecret::Known(secret) => String::from_utf8(secret.to_vec()).unwrap(),
            KeySecret::Sealed(seal) => format!("sealed {}", seal.vault.settings()["endpoint"]),
        }
    }

    fn ephemeral(keys: &str) -> Record {
        let section = format!("  systemDiskEncryption: {{ephemeral: {{provider: luks2, keys: [{keys}]}}}}\n");
        wanted::of_system(&config(&section), EPHEMERAL).unwrap()
    }

    #[test]
    fn a_config_says_which_volume_is_encrypted() {
        let plain = config("");
        assert!(wanted::of_system(&plain, STATE).is_none() && wanted::of_system(&plain, EPHEMERAL).is_none());
        let state = config(
            "  systemDiskEncryption: {state: {provider: luks2, keys: [{nodeID: {}}], options: [no_read_workqueue]}}\n",
        );
        assert!(wanted::of_system(&state, EPHEMERAL).is_none());
        let record = wanted::of_system(&state, STATE).unwrap();
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
        let keys: Vec<VolumeKey> =
            keys(&record, &own(), EPHEMERAL).into_iter().map(|key| key.unwrap()).collect();
        assert_eq!((keys[0].slot, passphrase(&keys[0])), (1, format!("{UUID}EPHEMERAL")));
        assert_eq!((keys[1].slot, passphrase(&keys[1])), (3, "supersecret".to_owned()));
        let record = ephemeral(
            "{static: {passphrase: a}, slot: 0, lockToState: true}, {kms: {endpoint: 'https://kms'}, slot: 1}",
        );
        let keys: Vec<VolumeKey> =
            keys_of_all(&record, EPHEMERAL).into_iter().map(|key| key.unwrap()).collect();
        assert_eq!(passphrase(&keys[0]), "asalt");
        assert_eq!(passphrase(&keys[1]), "sealed \"https://kms\"");
    }

    fn keys_of_all(record: &Record, volume: &str) -> Vec<Result<VolumeKey, Refused>> {
        keys(record, &own(), volume)
    }

    #[test]
    fn what_cannot_be_had_has_a_reason_and_the_rest_is_used() {
        let record = ephemeral(
            "{nodeID: {}, slot: 1}, {static: {passphrase: a}, slot: 2, lockToState: true}, {kms: \
             {endpoint: 'http://kms'}, slot: 3}, {kms: {endpoint: 'kms:1'}, slot: 4}",
        );
        let nobody = Own {
            machine: Err(IdentityError::NotPopulated),
            salt: Err("STATE is not there".to_owned()),
            ..own()
        };
        let found = keys(&record, &nobody, EPHEMERAL);
        assert_eq!(
            reasons(&found),
            "nodeID key for slot 1: machine UUID is not populated; static key for slot 2: STATE is not there; kms key for slot 3: http:// is \
             not supported: write https://HOST:PORT, or grpc://HOST:PORT without encryption; kms key for slot 4: \
             machine UUID is not populated"
        );
        let error = format(&record, &found).unwrap_err();
        assert!(error.starts_with("no key can be had: nodeID key"), "{error}");
        assert!(format(&record, &keys_of_all(&record, EPHEMERAL)).is_ok());
        let locked = keys_of_all(&record, STATE);
        assert!(reasons(&locked).contains("static key for slot 2: it is locked to STATE, and STATE is that"));
    }

    fn locks(keys: &[Result<VolumeKey, Refused>]) -> Vec<Option<Lock>> {
        let lock =
            |key: &Result<VolumeKey, Refused>| match key.as_ref().ok()?.key("/dev/vda5".as_ref()).secret {
                KeySecret::Known(_) => None,
                KeySecret::Sealed(seal) => Some(seal.lock),
            };
        keys.iter().map(lock).collect()
    }

    /// Keys that somebody seals, of every volume but STATE, and not where the config says otherwise.
    #[test]
    fn sealed_keys_are_locked_to_an_encrypted_state_by_default() {
        let record = ephemeral(
            "{tpm: {}, slot: 0}, {kms: {endpoint: 'https://kms'}, slot: 1}, {nodeID: {}, slot: 2}, {tpm: {}, slot: 3, \
             lockToState: false}, {tpm: {}, slot: 4, lockToState: true}, {recovery: {recipients: \
             [age1e7cahvd0e6rexnshazk8n02yrz04k74l8ugxwwfvvfnz72aufspqf4h8cd]}, slot: 5}",
        );
        let with =
            |locks_by_default, volume| locks(&keys(&record, &Own { locks_by_default, ..own() }, volume));
        let (usual, never, always) = (Some(Lock::Usual), Some(Lock::Never), Some(Lock::Always));
        assert_eq!(with(true, EPHEMERAL), [usual, usual, None, never, always, never]);
        assert_eq!(with(true, "u-data"), [usual, usual, None, never, always, never]);
        assert_eq!(with(false, EPHEMERAL), [never, never, None, never, always, never]);
        assert_eq!(
            with(true, STATE),
            [never, never, None, never, None, never],
            "the last but one is refused"
        );
        // A slot that is not locked opens without the salt: none of them is refused for want of it.
        let nothing = Own { salt: Err("STATE is not there".to_owned()), locks_by_default: true, ..own() };
        assert_eq!(reasons(&keys(&record, &nothing, EPHEMERAL)), "none is configured");
    }

    #[test]
    fn the_default_follows_from_the_config_in_force() {
        let dir = tempfile::tempdir().unwrap();
        let volumes = crate::server::tests_node(dir.path().join("root")).volumes.clone();
        let (record, state) = (ephemeral("{tpm: {}}"), dir.path().join("state"));
        fs::create_dir(&state).unwrap();
        volumes.set_state(super::super::State::at(&state));
        let in_force =
            |section: &str| volumes.runtime.config.send_replace(Some(std::sync::Arc::new(config(section))));
        in_force("");
        let plain = Own::of(&volumes, &record, EPHEMERAL);
        assert!(!plain.locks_by_default && plain.salt.is_err(), "no salt is made where nothing is locked");
        in_force("  systemDiskEncryption: {state: {provider: luks2, keys: [{tpm: {}}]}}\n");
        assert!(Own::of(&volumes, &record, STATE).salt.is_err());
        let own = Own::of(&volumes, &record, EPHEMERAL);
        assert!(own.locks_by_default && own.salt.is_ok());
        assert_eq!(
            Own::of(&volumes, &ephemeral("{nodeID: {}}"), EPHEMERAL).salt,
            own.salt,
            "a slot may be locked"
        );
    }

    /// A register that the TPM did not extend: its keys are neither tried nor made, the others are.
    #[test]
    fn a_register_that_was_not_extended_refuses_keys_of_the_tpm() {
        let record = ephemeral("{tpm: {}, slot: 0}, {nodeID: {}, slot: 1}");
        let failed = Own { register: Err("PCR 15 could not be extended".to_owned()), ..own() };
        let found = keys(&record, &failed, EPHEMERAL);
        assert_eq!(reasons(&found), "tpm key for slot 0: PCR 15 could not be extended");
        assert!(format(&record, &found).is_ok(), "by the other");
        let alone = keys(&ephemeral("{tpm: {}}"), &failed, EPHEMERAL);
        assert!(
            format(&record, &alone).unwrap_err().starts_with("no key can be had: tpm key for slot 0: PCR 15")
        );
    }

    #[test]
    fn only_keys_of_the_tpm_demand_an_authenticated_config() {
        let record = ephemeral("{tpm: {}, slot: 0}, {kms: {endpoint: 'https://kms'}, slot: 1}");
        for wanted in [None, Some(false), Some(true)] {
            let found = keys(&record, &Own { demands_config: wanted, ..own() }, EPHEMERAL);
            let demands = |key: &Result<VolumeKey, Refused>| match key
                .as_ref()
                .unwrap()
                .key("/dev/vda5".as_ref())
                .secret
            {
                KeySecret::Known(_) => panic!("a sealed key"),
                KeySecret::Sealed(seal) => seal.demands_config,
            };
            assert_eq!(found.iter().map(demands).collect::<Vec<_>>(), [wanted, None]);
        }
    }

    #[test]
    fn what_is_asked_of_a_volume_is_checked() {
        let with = |change: fn(&mut Record)| {
            let mut record = ephemeral("{nodeID: {}}");
            change(&mut record);
            let keys = keys(&record, &own(), EPHEMERAL);
            format(&record, &keys)
        };
        let usual = with(|_| {}).unwrap();
        assert_eq!(usual, Job::Format { cipher: Cipher::AesXts, key_bytes: 64, sector_bytes: None });
        let small = with(|record| (record.key_bits, record.sector_bytes) = (256, 4096)).unwrap();
        assert_eq!(small, Job::Format { cipher: Cipher::AesXts, key_bytes: 32, sector_bytes: Some(4096) });
        assert!(with(|record| record.key_bits = 384).unwrap_err().contains("512 or 256"));
        assert!(with(|record| record.sector_bytes = 100).unwrap_err().contains("no sector"));
        let adiantum = with(|record| record.cipher = "xchacha12,aes-adiantum-plain64".into()).unwrap();
        let (cipher, sector_bytes) = (Cipher::Adiantum12, None);
        assert_eq!(adiantum, Job::Format { cipher, key_bytes: 32, sector_bytes });
        let long = |record: &mut Record| {
            (record.cipher, record.key_bits) = ("xchacha20,aes-adiantum-plain64".into(), 512);
        };
        let error = with(long).unwrap_err();
        assert_eq!(error, "keySize 512 is none of xchacha20,aes-adiantum-plain64: 256");
        assert!(
            with(|record| record.cipher = "rot13".into())
                .unwrap_err()
                .contains("use aes-xts-plain64 or xchacha12")
        );
    }
}
