//! What a new machine config may change about the encryption of a volume that is there.
//!
//! Owns: the rules, and the sentences that name the guide's way around each.
//! Does not: read disks: what a volume holds comes with [`Change`].
//! Order: asked before anything of the new config is written.
//! Source: docs/users/encryption.md.

use std::sync::Arc;

use config::{Config, Document};
use installer::volumes::{EPHEMERAL, Holds};
use runtime::errors::chain;
use unlock::{KeyKind, Kind, Record, RecordKey, is_bound_kind};

use super::handle::Volumes;
use super::host::NodeHost;
use super::place::{self, NoDisk};
use super::specs::{self, PREFIXES, VolumeSpec};
use super::{encryption, wanted};
use crate::system_disk;

/// One volume under an old and a new config.
#[derive(Clone, Copy)]
struct Change<'a> {
    volume: &'a str,
    holds: Holds,
    /// Keys that its slots are known to have, and those of configs that the node may return to.
    old: &'a [Record],
    /// What the new config wants.
    new: Option<&'a Record>,
    /// The config takes effect with the next restart: the volume can be wiped before.
    staged: bool,
}

/// Why a config is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// Plain → encrypted.
    #[error(
        "{volume} holds data that is not encrypted, and there is no in-place encryption: {}",
        flow(volume)
    )]
    ToEncrypted {
        /// Which one.
        volume: String,
    },
    /// Encrypted → plain.
    #[error("{volume} is encrypted, and there is no in-place decryption: {}", flow(volume))]
    ToPlain {
        /// Which one.
        volume: String,
    },
    /// Nothing would open it.
    #[error(
        "no key of {volume} stays as it is, so nothing could manage the new ones: keep at least one key unchanged, apply that, \
         then change the other"
    )]
    NoKeyStays {
        /// Which one.
        volume: String,
    },
    /// A key server's address that leaves open whether who listens has the key.
    #[error(
        "key {slot} of {volume}: {endpoint} does not say whether it is encrypted: write https://{endpoint}, or grpc://{endpoint} \
         where nobody can listen, since who does has the key"
    )]
    NoScheme {
        /// Which one.
        volume: String,
        /// Of the key.
        slot: u8,
        /// As the config has it.
        endpoint: String,
    },
    /// It could not be made or opened.
    #[error("encryption of {volume}: {reason}")]
    Keys {
        /// Which one.
        volume: String,
        /// Why.
        reason: String,
    },
    /// The disk could not be read.
    #[error("{0}")]
    Disk(String),
    /// There will never be a disk for it.
    #[error("{0}")]
    Place(String),
}

/// The guide's two ways.
fn flow(volume: &str) -> String {
    match volume {
        "STATE" => "wipe it first (billetctl reset --system-labels-to-wipe STATE --reboot), which takes the config with \
                    it, then apply this one in maintenance mode (billetctl apply-config --insecure)"
            .to_owned(),
        _ if PREFIXES.iter().any(|prefix| volume.starts_with(prefix)) => {
            "take its document out of the config, wipe its partition (billetctl wipe disk PARTITION --drop-partition), \
             then apply this one, which makes it anew"
                .to_owned()
        }
        _ => format!(
            "apply the config with --on-reboot (--mode=staged), then wipe it \
             (billetctl reset --system-labels-to-wipe {volume} --reboot); the next boot makes it anew"
        ),
    }
}

impl Change<'_> {
    fn check(self) -> Result<(), Refusal> {
        let volume = self.volume.to_owned();
        // STATE takes the staged config with it when it is wiped.
        let is_wiped_first = self.staged && self.volume == EPHEMERAL;
        match (self.holds, self.new) {
            (Holds::Nothing, _) | (Holds::Other, None) => Ok(()),
            (Holds::Encrypted, None) | (Holds::Other, Some(_)) if is_wiped_first => Ok(()),
            (Holds::Encrypted, None) => Err(Refusal::ToPlain { volume }),
            (Holds::Other, Some(_)) => Err(Refusal::ToEncrypted { volume }),
            (Holds::Encrypted, Some(new)) => match self.old.iter().all(|old| has_common_key(old, new)) {
                true => Ok(()),
                false => Err(Refusal::NoKeyStays { volume }),
            },
        }
    }
}

/// A recovery key does not count: nobody is there who could type it.
fn has_common_key(old: &Record, new: &Record) -> bool {
    let same = |a: &RecordKey, b: &RecordKey| {
        // What is sealed says itself to which registers, and whether it is locked to STATE: it opens, and is sealed anew in
        // one commit of the header.
        let both_of_tpm = matches!((&a.kind, &b.kind), (Kind::Tpm { .. }, Kind::Tpm { .. }));
        let is_locked = |key: &RecordKey| key.lock_to_state == Some(true) && !is_bound_kind(&key.kind.name());
        // An address with and without the scheme that it was taken for.
        let one_server = match (&a.kind, &b.kind) {
            (Kind::Kms { endpoint: a }, Kind::Kms { endpoint: b }) => {
                kms::Endpoint::parse(a).is_ok_and(|a| kms::Endpoint::parse(b) == Ok(a))
            }
            _ => false,
        };
        (a.slot, is_locked(a)) == (b.slot, is_locked(b)) && (both_of_tpm || one_server || a.kind == b.kind)
    };
    let mut at_hand = old.keys.iter().filter(|key| key.kind.name() != KeyKind::Recovery);
    at_hand.any(|key| new.keys.iter().any(|other| same(key, other)))
}

/// Refuses a key server's address without a scheme, unless one of these records has it: volumes that were made so go on opening
/// (decision 0023). Only what somebody applies is asked for it: what a boot finds is taken as it is, with a warning.
fn check_schemes(volume: &str, old: &[Option<&Record>], new: Option<&Record>) -> Result<(), Refusal> {
    let known: Vec<_> = old.iter().flatten().flat_map(|record| &record.keys).map(|key| &key.kind).collect();
    for key in new.iter().flat_map(|record| &record.keys) {
        let Kind::Kms { endpoint } = &key.kind else { continue };
        if !kms::Endpoint::has_scheme(endpoint) && !known.contains(&&key.kind) {
            let (volume, endpoint) = (volume.to_owned(), endpoint.clone());
            return Err(Refusal::NoScheme { volume, slot: key.slot, endpoint });
        }
    }
    Ok(())
}

/// A config that the node is to take.
pub(crate) struct Asked {
    pub(crate) config: Arc<Config>,
    pub(crate) documents: Vec<Document>,
    /// At the next restart.
    pub(crate) staged: bool,
    /// The config that the node may return to.
    pub(crate) way_back: Option<(Config, Vec<Document>)>,
}

/// Whether this node may take the config, with warnings.
pub(crate) async fn check(volumes: &Arc<Volumes>, asked: Asked) -> Result<Vec<String>, Refusal> {
    let volumes = volumes.clone();
    let work = move || {
        specs::SYSTEM.into_iter().try_for_each(|volume| check_one(&volumes, &asked, volume))?;
        let specs = specs::of(&asked.documents);
        let warnings = specs.iter().map(|spec| check_spec(&volumes, &asked, spec));
        warnings.filter_map(Result::transpose).collect()
    };
    runtime::request::blocking(work).await
}

fn check_one(volumes: &Volumes, asked: &Asked, volume: &str) -> Result<(), Refusal> {
    let new = wanted::of_system(&asked.config, volume);
    check_keys(volumes, volume, new.as_ref())?;
    let in_force = volumes.runtime.config();
    let before = in_force.as_ref().map(|config| wanted::of_system(config, volume));
    let in_step = volumes.in_step(volume);
    check_schemes(volume, &[before.as_ref().and_then(Option::as_ref), in_step.as_ref()], new.as_ref())?;
    // In maintenance EPHEMERAL is as the config before left it: the boot says what is wrong with it, and can be reset.
    if before.as_ref() == Some(&new) || before.is_none() && (volume == EPHEMERAL || new.is_none()) {
        return Ok(());
    }
    let Some(disk) = system_disk::find(&volumes.runtime).map_err(Refusal::Disk)? else { return Ok(()) };
    if in_force.is_none() && disk.slot.is_none() {
        // It is installed to, or what it holds belongs to another start of this machine.
        return Ok(());
    }
    let failed = |error: installer::Error| Refusal::Disk(chain(&error));
    let mut host = NodeHost::open(&disk.path).map_err(|error| failed(error.into()))?;
    let Some((holds, _)) = installer::volumes::holds(&mut host, volume).map_err(failed)? else {
        return Ok(());
    };
    let way_back = asked.way_back.as_ref().and_then(|(config, _)| wanted::of_system(config, volume));
    let old = old_keys(volumes, volume, before.flatten(), way_back);
    Change { volume, holds, old: &old, new: new.as_ref(), staged: asked.staged }.check()
}

/// A volume of the user's; a warning where it could not be made today.
fn check_spec(volumes: &Volumes, asked: &Asked, spec: &VolumeSpec) -> Result<Option<String>, Refusal> {
    let (volume, new) = (spec.name.as_str(), spec.encryption.as_ref());
    check_keys(volumes, volume, new)?;
    let before = specs::find(volumes, volume).map(|spec| spec.encryption);
    check_schemes(volume, &[before.as_ref().and_then(Option::as_ref)], new)?;
    if volumes.runtime.config().is_none() {
        // Its disks, and which of them will be the system's, are looked at by the boot that follows.
        return Ok(None);
    }
    let Some(found) = place::find(volumes, volume).map_err(Refusal::Disk)? else {
        return match place::choose(volumes, spec) {
            Ok(_) => Ok(None),
            Err(NoDisk::Now(reason)) => Ok(Some(format!("{reason}; it is made once there is one"))),
            Err(never @ NoDisk::OnlySystem(_)) => Err(Refusal::Place(never.to_string())),
        };
    };
    let is_theirs = spec.mount.is_none() && new.is_none() && before.as_ref().is_none_or(Option::is_none);
    if is_theirs || before.as_ref().map(Option::as_ref) == Some(new) {
        // What is on a raw volume that is not encrypted here is its user's affair.
        return Ok(None);
    }
    let failed = |error: installer::Error| Refusal::Disk(chain(&error));
    let mut host = NodeHost::open(&found.disk).map_err(|error| failed(error.into()))?;
    let Some((holds, _)) = installer::volumes::holds_named(&mut host, volume).map_err(failed)? else {
        return Ok(None);
    };
    let way_back = asked.way_back.as_ref().map(|(_, documents)| specs::of(documents));
    let way_back = way_back.into_iter().flatten().find(|spec| spec.name == volume);
    let old = old_keys(volumes, volume, before.flatten(), way_back.and_then(|spec| spec.encryption));
    Change { volume, holds, old: &old, new, staged: asked.staged }.check().map(|()| None)
}

/// Whether the volume could be made with these keys.
fn check_keys(volumes: &Volumes, volume: &str, new: Option<&Record>) -> Result<(), Refusal> {
    let Some(new) = new else { return Ok(()) };
    let keys = encryption::keys(new, &encryption::Own::to_judge(volumes), volume);
    let done = encryption::format(new, &keys);
    done.map(drop).map_err(|reason| Refusal::Keys { volume: volume.to_owned(), reason })
}

/// Keys that the volume has, or may have again.
fn old_keys(
    volumes: &Volumes,
    volume: &str,
    before: Option<Record>,
    way_back: Option<Record>,
) -> Vec<Record> {
    let known = volumes.in_step(volume).or(before);
    // The keys of one that is locked are what is wrong: the new config may bring a better one.
    let known = known.filter(|_| volumes.problem(volume).is_none());
    known.into_iter().chain(way_back).collect()
}

#[cfg(test)]
mod tests {
    use installer::volumes::STATE;
    use zeroize::Zeroizing;

    use super::*;

    fn record(keys: &[(u8, &str)]) -> Record {
        let mut record = Record::default();
        record.keys = keys
            .iter()
            .map(|(slot, passphrase)| {
                let kind = match *passphrase {
                    "" => Kind::NodeId,
                    text => Kind::Static(Zeroizing::new(text.to_owned())),
                };
                RecordKey::new(*slot, kind)
            })
            .collect();
        record
    }

    fn check(
        volume: &str,
        holds: Holds,
        old: &[Record],
        new: Option<&Record>,
        staged: bool,
    ) -> Result<(), String> {
        Change { volume, holds, old, new, staged }.check().map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn one_key_must_stay_as_it_is() {
        let ephemeral =
            |old: &[Record], new: &Record| check(EPHEMERAL, Holds::Encrypted, old, Some(new), false);
        let old = [record(&[(0, "old"), (1, "")])];
        for same in [record(&[(0, "old")]), record(&[(1, ""), (0, "new")]), record(&[(0, "old"), (2, "x")])] {
            assert_eq!(ephemeral(&old, &same), Ok(()));
        }
        for other in [record(&[(0, "new")]), record(&[(3, "old")]), record(&[(0, "")])] {
            let error = ephemeral(&old, &other).unwrap_err();
            assert!(error.starts_with("no key of EPHEMERAL stays as it is"), "{error}");
        }
        // A key of the TPM is the same key with other registers.
        let of_tpm = |slot, pcrs: &[u8]| {
            let kind = Kind::Tpm { check_secure_boot: None, pcrs: Some(pcrs.to_vec()) };
            let mut record = Record::default();
            record.keys = vec![RecordKey::new(slot, kind)];
            record
        };
        assert_eq!(ephemeral(&[of_tpm(0, &[7])], &of_tpm(0, &[7, 11])), Ok(()));
        assert!(ephemeral(&[of_tpm(0, &[7])], &of_tpm(1, &[7, 11])).is_err());
        // A sealed key is the same key with another lock; a passphrase is not.
        let locked = |record: &Record| {
            let mut record = record.clone();
            record.keys[0].lock_to_state = Some(true);
            record
        };
        assert_eq!(ephemeral(&[of_tpm(0, &[7])], &locked(&of_tpm(0, &[7]))), Ok(()));
        assert!(ephemeral(&[record(&[(0, "old")])], &locked(&record(&[(0, "old")]))).is_err());
        // With a recovery key alone nothing could be changed while the node runs.
        let people = |passphrase: &str| {
            let mut record = record(&[(0, passphrase)]);
            record.keys.push(RecordKey::new(3, Kind::Recovery { recipients: vec!["age1".into()] }));
            record
        };
        assert!(ephemeral(&[people("old")], &people("new")).is_err());
        assert_eq!(ephemeral(&[people("old")], &record(&[(0, "old")])), Ok(()));
        // A config that the node may return to counts as well.
        let both = [record(&[(0, "a"), (1, "b")]), record(&[(0, "a")])];
        assert!(ephemeral(&both, &record(&[(1, "b")])).is_err());
        // Nothing is known of a volume that no key has opened: the new config may bring one.
        assert_eq!(ephemeral(&[], &record(&[(0, "new")])), Ok(()));
    }

    fn of_server(endpoint: &str) -> Record {
        let mut record = Record::default();
        record.keys = vec![RecordKey::new(3, Kind::Kms { endpoint: endpoint.to_owned() })];
        record
    }

    #[test]
    fn a_new_address_says_whether_it_is_encrypted_and_an_old_one_stays() {
        let (open, plain, other) =
            (of_server("10.0.0.5:4050"), of_server("grpc://10.0.0.5:4050"), of_server("kms:1"));
        let checked =
            |old: &[Option<&Record>], new| check_schemes(EPHEMERAL, old, new).map_err(|e| e.to_string());
        for old in [&[][..], &[None], &[Some(&plain)], &[Some(&other), None]] {
            let error = checked(old, Some(&open)).unwrap_err();
            assert!(
                error.starts_with("key 3 of EPHEMERAL: 10.0.0.5:4050 does not say whether it is encrypted"),
                "{error}"
            );
            assert!(error.contains("write https://10.0.0.5:4050, or grpc://10.0.0.5:4050"), "{error}");
        }
        assert_eq!(checked(&[None, Some(&open)], Some(&open)), Ok(()));
        for new in [None, Some(&plain), Some(&of_server("https://kms")), Some(&record(&[(0, "")]))] {
            assert_eq!(checked(&[], new), Ok(()));
        }
    }

    /// The way from one to the other needs no other key, and no wipe.
    #[test]
    fn an_address_gets_the_scheme_that_it_was_taken_for() {
        let change = |from: &str, to: &str| {
            check(EPHEMERAL, Holds::Encrypted, &[of_server(from)], Some(&of_server(to)), false)
        };
        assert_eq!(change("10.0.0.5:4050", "grpc://10.0.0.5:4050"), Ok(()));
        assert_eq!(change("kms", "grpc://kms:443"), Ok(()));
        assert!(change("10.0.0.5:4050", "https://10.0.0.5:4050").is_err());
        assert!(change("10.0.0.5:4050", "grpc://10.0.0.6:4050").is_err());
    }

    #[test]
    fn encrypted_and_plain_change_by_a_wipe_only() {
        let key = record(&[(0, "")]);
        let old = [key.clone()];
        let error = check(EPHEMERAL, Holds::Other, &[], Some(&key), false).unwrap_err();
        assert!(
            error.contains("--mode=staged") && error.contains("--system-labels-to-wipe EPHEMERAL"),
            "{error}"
        );
        let error = check(STATE, Holds::Other, &[], Some(&key), true).unwrap_err();
        assert!(error.contains("--system-labels-to-wipe STATE") && error.contains("--insecure"), "{error}");
        let error = check(EPHEMERAL, Holds::Encrypted, &old, None, false).unwrap_err();
        assert!(error.starts_with("EPHEMERAL is encrypted"), "{error}");
        assert!(check(STATE, Holds::Encrypted, &old, None, true).is_err());
    }

    #[test]
    fn what_is_wiped_before_or_empty_may_become_either() {
        let key = record(&[(0, "")]);
        for (holds, new) in [(Holds::Other, Some(&key)), (Holds::Encrypted, None)] {
            assert_eq!(check(EPHEMERAL, holds, &[], new, true), Ok(()));
        }
        for volume in [STATE, EPHEMERAL] {
            assert_eq!(check(volume, Holds::Nothing, &[], Some(&key), false), Ok(()));
            assert_eq!(check(volume, Holds::Nothing, &[], None, false), Ok(()));
            assert_eq!(check(volume, Holds::Other, &[], None, false), Ok(()));
        }
    }
    #[tokio::test]
    async fn volumes_of_documents_are_checked_too() {
        let dir = tempfile::tempdir().unwrap();
        let volumes = crate::server::tests_node(dir.path().to_owned()).volumes.clone();
        let given = |encryption: &str| {
            let text = format!(
                "version: v1alpha1\nmachine: {{type: worker, token: a.b}}\n---\napiVersion: v1alpha1\nkind: \
                 UserVolumeConfig\nname: data\nprovisioning: {{diskSelector: {{match: '!system_disk'}}, minSize: \
                 1GiB}}\n{encryption}"
            );
            config::load(text.as_bytes()).unwrap_or_else(|error| panic!("{error}"))
        };
        let checked = async |encryption: &str| {
            let given = given(encryption);
            let asked = Asked {
                config: Arc::new(given.config),
                documents: given.documents,
                staged: false,
                way_back: None,
            };
            super::check(&volumes, asked).await
        };
        // This machine has no firmware that would tell who it is.
        let error = checked("encryption: {provider: luks2, keys: [{nodeID: {}}]}\n").await.unwrap_err();
        assert!(error.to_string().starts_with("encryption of u-data: no key can be had"), "{error}");
        assert_eq!(checked("").await, Ok(Vec::new()), "in maintenance");
        volumes.runtime.config.send_replace(Some(Arc::new(given("").config)));
        let warnings = checked("").await.unwrap();
        assert!(warnings[0].starts_with("u-data: no disk of this machine is meant by"), "{warnings:?}");
        assert!(warnings[0].ends_with("it is made once there is one"), "{warnings:?}");
    }

    #[test]
    fn a_volume_of_the_users_has_a_way_of_its_own() {
        let old = [record(&[(0, "a")])];
        let error = check("u-data", Holds::Encrypted, &old, None, true).unwrap_err();
        assert!(error.to_string().contains("billetctl wipe disk PARTITION --drop-partition"), "{error}");
        let new = record(&[(0, "b")]);
        let error = check("u-data", Holds::Encrypted, &old, Some(&new), false).unwrap_err();
        assert!(error.to_string().starts_with("no key of u-data stays as it is"), "{error}");
    }
}
