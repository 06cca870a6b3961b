//! Recovery keys: made and encrypted when a slot is, offered as files of age, taken back from a person.
//!
//! Owns: the fields of the token; where the files of this node's volumes are; what is told to whom.
//! Does not: decrypt (nobody on the node can); keep a key; choose the slot: a key is tried on every slot with a recovery
//! token.
//! Order of an unlocking: the key opens and maps the volume, its other slots are brought in step, those that a server or a
//! TPM sealed are sealed anew; then whoever waits for the volume is woken, and mounts it.
//! Fails by: [`NotUnlocked`]; what keeps a slot from being sealed anew is told, the volume is open all the same.
//! Source: docs/decisions/0011, docs/formats/luks2.md ("Sealed keys").

use std::path::Path;
use std::sync::PoisonError;

use installer::device::Disk;
use installer::volumes::{EPHEMERAL, Holds, STATE, Volume};
use recovery::{KeyError, RecoveryKey};
use runtime::errors::chain;
use unlock::{KeyKind, Record, SealedKey, passphrase};

use super::handle::Volumes;
use super::host::NodeHost;
use super::key::{Origin, VolumeKey};
use super::make::{Layout, What};
use super::opening::{self, Done, Job, Request};
use super::place::{self, Found};
use super::recovery_vault::{FILE, RECIPIENTS};
use super::{encryption, make, record, specs, status, told};

/// A recovery key as the node has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Offered {
    /// Its volume.
    pub(crate) volume: String,
    /// Its slot.
    pub(crate) slot: u8,
    /// The file of age with it.
    pub(crate) file: Vec<u8>,
    /// The public keys that it is encrypted to.
    pub(crate) recipients: Vec<String>,
}

/// The recovery keys of this node's volumes, which may be locked. Blocks.
pub(crate) fn offered(volumes: &Volumes) -> Result<Vec<Offered>, String> {
    let mut keys = Vec::new();
    for volume in specs::all(volumes) {
        let found = match place::find(volumes, &volume) {
            // One of the user's that is there twice must not hide the others.
            Err(_) if Volume::named(&volume).is_none() => None,
            found => found?,
        };
        keys.extend(found.iter().flat_map(|found| of_partition(&volume, &found.device())));
    }
    Ok(keys)
}

fn of_partition(volume: &str, partition: &Path) -> Vec<Offered> {
    let Ok(mut part) = Disk::open_shared(partition) else { return Vec::new() };
    // What has no header is not encrypted.
    let Ok(found) = ondisk::luks2::read(&mut part) else { return Vec::new() };
    let slots = found.header.metadata.tokens.keys().map(|id| id.0);
    let keys = slots.filter_map(|slot| Some((slot, SealedKey::of(&found.header, slot)?)));
    let keys = keys.filter(|(_, key)| key.kind == KeyKind::Recovery);
    let offered = keys.filter_map(|(slot, key)| {
        let recipients = key.settings.as_ref().and_then(|settings| settings.get(RECIPIENTS)?.as_array());
        let recipients = recipients.into_iter().flatten().filter_map(|one| one.as_str().map(str::to_owned));
        let recipients = recipients.collect();
        Some(Offered { volume: volume.to_owned(), slot, file: key.bytes(FILE).ok()?, recipients })
    });
    offered.collect()
}

/// Whether a volume is locked that a person could unlock. Blocks.
pub(crate) fn waits_for_an_operator(volumes: &Volumes, volume: &str) -> bool {
    volumes.problem(volume).is_some()
        && offered(volumes).is_ok_and(|keys| keys.iter().any(|key| key.volume == volume))
}

/// What an unlocking did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unlocked {
    /// The recovery key's slot.
    pub(crate) slot: u8,
    /// Slots with a new key.
    pub(crate) replaced: Vec<u8>,
    /// Slots that are not as the config wants them, and why.
    pub(crate) failed: Vec<String>,
    /// What comes next, for people.
    pub(crate) next: &'static str,
}

/// Why a volume was not unlocked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotUnlocked {
    /// What was typed.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The name.
    #[error("{0:?} is no volume of this node: STATE, EPHEMERAL, u-NAME or r-NAME of the machine config")]
    Volume(String),
    /// The volume.
    #[error("{0}")]
    Refused(String),
}

/// Unlocks a volume with what a person typed, and seals its other keys anew; one that is open already has the latter done
/// alone. Blocks.
pub(crate) fn unlock(volumes: &Volumes, name: &str, typed: &str) -> Result<Unlocked, NotUnlocked> {
    let spec = specs::find(volumes, name);
    let layout = match Volume::named(name) {
        Some(volume) => Layout::System(volume),
        None => Layout::Named(spec.as_ref().ok_or_else(|| NotUnlocked::Volume(name.to_owned()))?),
    };
    let key = RecoveryKey::parse(typed)?;
    let unlocked = unlock_now(volumes, name, layout, &key).map_err(|reason| {
        volumes.runtime.journal.warn(&format!("unlock {name}: {reason}"));
        NotUnlocked::Refused(reason)
    })?;
    let anew: Vec<String> = unlocked.replaced.iter().map(u8::to_string).collect();
    let anew = if anew.is_empty() {
        "no slot is new".to_owned()
    } else {
        format!("new in slots: {}", anew.join(", "))
    };
    let slot = unlocked.slot;
    volumes.runtime.journal.say(&format!("{name} was unlocked by the recovery key in slot {slot}; {anew}"));
    Ok(unlocked)
}

fn unlock_now(
    volumes: &Volumes,
    name: &str,
    layout: Layout<'_>,
    key: &RecoveryKey,
) -> Result<Unlocked, String> {
    let found = place::find(volumes, name)?.ok_or_else(|| format!("this machine has no partition {name}"))?;
    check(&found, name)?;
    let secret = passphrase(key.bytes(), None);
    let typed = |offered: Offered| {
        VolumeKey::new(offered.slot, &KeyKind::Recovery, Origin::Known(secret.to_vec()), name)
    };
    let candidates: Vec<VolumeKey> = of_partition(name, &found.device()).into_iter().map(typed).collect();
    if candidates.is_empty() {
        return Err(format!("{name} has no recovery key"));
    }
    let wanted = wanted(volumes, name)?;
    let done = match volumes.open(name) {
        Some(open) => reseal(volumes, name, &open.partition, &wanted, &candidates)?,
        None => {
            let what = What { disk: &found.disk, layout, encryption: Some(&wanted) };
            let made = make::make_with(volumes, &what, &candidates);
            made.map_err(|error| chain(&error))?.done.ok_or_else(|| format!("{name} is open already"))?
        }
    };
    let next = match (name, volumes.runtime.config().is_some()) {
        (STATE, true) => "STATE is used from the next start on: a machine config is in force without it",
        (STATE | EPHEMERAL, _) => "the node goes on with its boot",
        _ => "it is mounted where the machine config wants it",
    };
    let failed = done.failed.into_iter().map(|(_, why)| why).collect();
    Ok(Unlocked { slot: done.slot, replaced: done.replaced, failed, next })
}

/// Only a volume that is whole: half made ones, and those that are being wiped, belong to the boot that goes on with that.
fn check(found: &Found, name: &str) -> Result<(), String> {
    let failed = |error: installer::Error| chain(&error);
    let mut host = NodeHost::open(&found.disk).map_err(|error| chain(&error))?;
    let is_system = Volume::named(name).is_some();
    if is_system && installer::reset::pending(&mut host).map_err(failed)?.is_some() {
        let disk = found.disk.display();
        return Err(format!("a reset of {disk} was cut off: restart the machine to finish it"));
    }
    let held = match is_system {
        true => installer::volumes::holds(&mut host, name),
        false => installer::volumes::holds_named(&mut host, name),
    };
    match held.map_err(failed)? {
        Some((Holds::Encrypted, _)) => Ok(()),
        _ => Err(format!("{name} is not encrypted")),
    }
}

/// The keys that the volume is to have.
fn wanted(volumes: &Volumes, volume: &str) -> Result<Record, String> {
    let by_config = encryption::in_force(volumes, volume);
    let wanted = match (by_config, volume) {
        (Some(wanted), _) => Some(wanted),
        (None, STATE) => record::read(volumes)?,
        (None, _) => None,
    };
    wanted.ok_or_else(|| match volume {
        STATE => "neither META nor a machine config says how STATE is encrypted".to_owned(),
        EPHEMERAL => {
            "EPHEMERAL is opened with a machine config that has its keys: unlock STATE first".to_owned()
        }
        _ => format!("the machine config in force does not want {volume} encrypted"),
    })
}

/// Of a volume that is open: only its slots.
fn reseal(
    volumes: &Volumes,
    volume: &str,
    partition: &Path,
    wanted: &Record,
    candidates: &[VolumeKey],
) -> Result<Done, String> {
    let _one_at_a_time = volumes.changing.lock().unwrap_or_else(PoisonError::into_inner);
    let keys = encryption::keys(wanted, &encryption::Own::of(volumes, wanted, volume), volume);
    let request = Request::new(Job::Synchronise, volume, partition, &keys, &wanted.options);
    let done = opening::ask(&request.with_recovery(candidates))?;
    told::header(volumes, volume, &done);
    status::synchronised(volumes, volume, wanted, &done);
    Ok(done)
}

#[cfg(test)]
mod tests {
    use installer::encryption::Vault;
    use ondisk::luks2::Cipher;
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use unlock::{Kind, RecordKey};

    use super::super::recovery_vault::RecoveryVault;
    use super::super::told::new_keys;
    use super::*;

    const SOMEBODY: &str = "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj";

    /// A device that is to be encrypted, a pair of age's in `identity`, and its public half.
    fn directory() -> (tempfile::TempDir, std::path::PathBuf, String) {
        let dir = tempfile::tempdir().unwrap();
        let device = dir.path().join("volume.img");
        let file = std::fs::File::create(&device).unwrap();
        file.set_len(installer::encryption::HEADER_BYTES + (1 << 20)).unwrap();
        let identity = dir.path().join("identity");
        assert!(
            Command::new("age-keygen")
                .arg("-o")
                .arg(&identity)
                .stderr(Stdio::null())
                .status()
                .unwrap()
                .success()
        );
        let public = Command::new("age-keygen").arg("-y").arg(&identity).output().unwrap().stdout;
        (dir, device, String::from_utf8(public).unwrap().trim().to_owned())
    }

    fn decrypted(identity: &Path, file: &[u8]) -> String {
        let mut age = Command::new("age");
        age.arg("-d").arg("-i").arg(identity).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = age.spawn().unwrap();
        child.stdin.take().unwrap().write_all(file).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    }

    fn fixed(slot: u8, text: &str) -> VolumeKey {
        VolumeKey::new(slot, &KeyKind::Static, Origin::Known(text.as_bytes().to_vec()), "EPHEMERAL")
            .with_cost(ondisk::luks2::Cost::Pbkdf2(1000))
    }

    fn with_people(slot: u8, recipients: &[&str]) -> VolumeKey {
        let recipients = recipients.iter().map(|one| (*one).to_owned()).collect();
        VolumeKey::new(slot, &KeyKind::Recovery, Origin::Recovery { recipients }, "EPHEMERAL")
    }

    fn ask(device: &Path, job: Job, keys: &[VolumeKey], typed: &[VolumeKey]) -> Result<Done, String> {
        let keys: Vec<_> = keys.iter().cloned().map(Ok).collect();
        let request = Request::new(job, "EPHEMERAL", device, &keys, &[]).with_recovery(typed);
        opening::tests::does(&request, &mut 0)
    }

    fn typed(text: &str, slot: u8) -> VolumeKey {
        let secret = passphrase(RecoveryKey::parse(text).unwrap().bytes(), None);
        VolumeKey::new(slot, &KeyKind::Recovery, Origin::Known(secret.to_vec()), "EPHEMERAL")
    }

    #[test]
    fn an_operator_reads_the_key_that_opens_the_slot() {
        let (dir, device, public) = directory();
        let identity = dir.path().join("identity");
        let format = Job::Format { cipher: Cipher::AesXts, key_bytes: 64, sector_bytes: None };
        let keys = [fixed(0, "first"), with_people(3, &[&public])];
        ask(&device, format, &keys, &[]).unwrap();
        let [offered] = <[Offered; 1]>::try_from(of_partition(EPHEMERAL, &device)).unwrap();
        assert_eq!(
            (offered.volume, offered.slot, &offered.recipients),
            ("EPHEMERAL".to_owned(), 3, &vec![public.clone()])
        );
        let text = decrypted(&identity, recovery::armored(&offered.file).as_bytes());
        assert!(text.starts_with("recovery1-") && text.ends_with('\n'), "a key of another form");
        // Its slot opens, also with cryptsetup.
        let secret = passphrase(RecoveryKey::parse(&text).unwrap().bytes(), None);
        let mut cryptsetup = Command::new("cryptsetup");
        cryptsetup.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").stdin(Stdio::piped());
        cryptsetup.args([
            "open",
            "--test-passphrase",
            "--type",
            "luks2",
            "--key-file",
            "-",
            "--key-slot",
            "3",
        ]);
        let mut child = cryptsetup.arg(&device).spawn().unwrap();
        child.stdin.take().unwrap().write_all(&secret).unwrap();
        assert!(child.wait().unwrap().success());
        // By itself the node opens with the other key, and asks for nobody.
        let done = ask(&device, Job::Open, &keys, &[]).unwrap();
        assert_eq!((done.slot, done.refused, done.replaced), (0, vec![], vec![]));
        // That key is lost: a person opens, and the slot gets the one of the config.
        let keys = [fixed(0, "another"), with_people(3, &[&public])];
        let error = ask(&device, Job::Open, &keys, &[]).unwrap_err();
        assert!(
            error.contains("recovery key for slot 3: it needs a person: billetctl disk recovery-key"),
            "{error}"
        );
        let done = ask(&device, Job::Open, &keys, &[typed(&text, 3)]).unwrap();
        assert_eq!((done.slot, done.kind.as_str(), done.replaced), (3, "recovery", vec![0]));
        assert_eq!(ask(&device, Job::Open, &keys, &[]).unwrap().slot, 0);
        let wrong = RecoveryKey::new(&[1; 32]).unwrap().text();
        let error = ask(&device, Job::Open, &keys, &[typed(&wrong, 3)]).unwrap_err();
        assert!(error.ends_with("it is another volume's recovery key, or one that was replaced"), "{error}");
        // The key is nowhere on the disk.
        let bytes = std::fs::read(&device).unwrap();
        for plain in [text.trim().as_bytes(), text.trim().replace('-', "").as_bytes(), &secret] {
            assert!(!bytes.windows(plain.len()).any(|window| window == plain));
        }
    }

    #[test]
    fn other_recipients_get_another_key() {
        let (dir, device, public) = directory();
        let format = Job::Format { cipher: Cipher::AesXts, key_bytes: 64, sector_bytes: None };
        let first = fixed(0, "first");
        ask(&device, format, &[first.clone(), with_people(3, &[&public, SOMEBODY])], &[]).unwrap();
        let file = |device: &Path| of_partition(EPHEMERAL, device).pop().unwrap().file;
        let before = file(&device);
        // Another order is the same.
        let done =
            ask(&device, Job::Open, &[first.clone(), with_people(3, &[SOMEBODY, &public])], &[]).unwrap();
        assert_eq!((done.replaced, file(&device) == before), (vec![], true));
        let done = ask(&device, Job::Synchronise, &[first.clone(), with_people(3, &[&public])], &[]).unwrap();
        assert_eq!(done.replaced, [3]);
        let mut wanted = Record::default();
        wanted.keys = vec![RecordKey::new(3, Kind::Recovery { recipients: vec![public] })];
        assert_eq!(new_keys(&wanted, &done, false), [3]);
        assert!(new_keys(&wanted, &Done::default(), false).is_empty());
        assert_eq!(new_keys(&wanted, &Done::default(), true), [3]);
        assert_ne!(file(&device), before);
        let old = typed(&decrypted(&dir.path().join("identity"), &before), 3);
        assert!(ask(&device, Job::Open, std::slice::from_ref(&first), &[old]).is_err());
        // Without it in the config the slot goes, and the token with it.
        ask(&device, Job::Synchronise, &[first], &[]).unwrap();
        assert!(of_partition(EPHEMERAL, &device).is_empty());
    }

    #[test]
    fn what_cannot_be_unlocked_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let volumes = crate::server::tests_node(dir.path().to_owned()).volumes.clone();
        let key = RecoveryKey::new(&[1; 32]).unwrap().text();
        let refused = |name: &str, key: &str| unlock(&volumes, name, key).unwrap_err();
        assert_eq!(refused("var", &key), NotUnlocked::Volume("var".into()));
        assert_eq!(refused("STATE", "supersecret"), NotUnlocked::Key(KeyError::Prefix));
        assert_eq!(refused("STATE", &key).to_string(), "this machine has no partition STATE");
        assert_eq!(offered(&volumes), Ok(Vec::new()));
        assert!(!waits_for_an_operator(&volumes, STATE));
        let nobody = RecoveryVault { recipients: vec!["age1x".into()] };
        assert!(nobody.seal(&[1; 32], false).unwrap_err().starts_with("age1x: no public key of age: "));
        assert_eq!(
            RecoveryVault { recipients: vec![] }.seal(&[1; 32], false).unwrap_err(),
            "there is no recipient"
        );
    }
}
