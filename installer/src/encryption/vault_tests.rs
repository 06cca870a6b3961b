use ondisk::luks2;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use unlock::SealedKey;

use super::tests::{CHEAP, key, made, opens, protection, random, slots, try_all};
use super::*;
use crate::device::{Memory, Recorder};

const VOLUME: &str = "EPHEMERAL";

/// Seals by turning bits over; can be out of reach, slow, or lie.
#[derive(Default)]
struct Vault {
    name: &'static str,
    binds: bool,
    is_down: AtomicBool,
    lies: AtomicBool,
    /// Whether the last key was sealed for an authenticated config.
    demanded: AtomicBool,
    delay: Duration,
    calls: AtomicU32,
}

impl Vault {
    fn named(name: &'static str) -> Arc<Self> {
        Arc::new(Self { name, ..Self::default() })
    }

    /// As a TPM is: a key belongs to the registers that its token names.
    fn bound(name: &'static str) -> Arc<Self> {
        Arc::new(Self { name, binds: true, ..Self::default() })
    }

    fn call(&self, bytes: &[u8]) -> Result<Vec<u8>, String> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(self.delay);
        match self.is_down.load(Ordering::Relaxed) {
            true => Err("connection refused".to_owned()),
            false => Ok(bytes.iter().map(|byte| !byte).collect()),
        }
    }

    fn calls(&self) -> u32 {
        self.calls.swap(0, Ordering::Relaxed)
    }
}

impl super::Vault for Vault {
    fn settings(&self) -> Map<String, Value> {
        json!({ "endpoint": self.name }).as_object().cloned().unwrap()
    }

    fn binds(&self) -> bool {
        self.binds
    }

    fn seal(&self, key: &[u8], demands_config: bool) -> Result<Map<String, Value>, String> {
        self.demanded.store(demands_config, Ordering::Relaxed);
        let empty = SealedKey { kind: KeyKind::Kms, settings: None, fields: Map::new() };
        Ok(empty.with_bytes("sealedData", &self.call(key)?).fields)
    }

    fn unseal(&self, sealed: &SealedKey) -> Result<Secret, String> {
        let mut key = self.call(&sealed.bytes("sealedData")?)?;
        if self.lies.load(Ordering::Relaxed) {
            key.reverse();
        }
        Ok(Secret::new(key))
    }
}

fn sealed(slot: u8, vault: &Arc<Vault>) -> Key {
    of(slot, Seal::new(vault.clone(), VOLUME))
}

fn of(slot: u8, seal: Seal) -> Key {
    Key { slot, kind: KeyKind::Kms, secret: KeySecret::Sealed(seal), cost: CHEAP }
}

/// As a system before this one knew it, or as one on trial leaves it.
fn old(slot: u8, vault: &Arc<Vault>) -> Key {
    bound_to(VOLUME, true, slot, vault)
}

fn bound_to(volume: &str, keeps_old: bool, slot: u8, vault: &Arc<Vault>) -> Key {
    of(slot, Seal { keeps_old, ..Seal::new(vault.clone(), volume) })
}

fn locked(slot: u8, vault: &Arc<Vault>) -> Key {
    of(slot, Seal { lock: Lock::Always, ..with_salt(vault, SALT) })
}

const SALT: &str = "salt of STATE";

fn with_salt(vault: &Arc<Vault>, salt: &str) -> Seal {
    Seal { salt: Ok(Secret::new(salt.as_bytes().to_vec())), ..Seal::new(vault.clone(), VOLUME) }
}

/// Of a config that encrypts STATE and says nothing of a lock.
fn usual(slot: u8, vault: &Arc<Vault>) -> Key {
    of(slot, Seal { lock: Lock::Usual, ..with_salt(vault, SALT) })
}

/// Opens with the last key, whose slot stays as it is.
fn follow(disk: &mut dyn BlockDevice, keys: &[Key], sealed_anew: &[u8]) -> Synchronised {
    let mut opened = try_all(disk, &keys[keys.len() - 1..]).unwrap();
    synchronise(disk, &mut opened, Wanted { keys, kept: &[], sealed_anew }, &mut random())
}

fn tokens(disk: &mut Memory) -> Vec<u8> {
    luks2::read(&mut &mut *disk).unwrap().header.metadata.tokens.keys().map(|id| id.0).collect()
}

#[test]
fn a_sealed_key_is_in_its_slots_token() {
    let vault = Vault::named("kms");
    let mut disk = made(&[sealed(0, &vault), locked(2, &vault)]);
    assert_eq!((slots(&mut disk), tokens(&mut disk)), (vec![0, 2], vec![0, 2]));
    let opened = try_all(&mut disk, &[sealed(0, &vault)]).unwrap();
    assert_eq!((opened.unlocked.slot, opened.unlocked.kind), (0, KeyKind::Kms));
    assert!(opens(&mut disk, &locked(2, &vault)) && !opens(&mut disk, &sealed(2, &vault)));
    // The token says whether it is locked, whatever the config says by now.
    let unlocked = of(2, with_salt(&vault, SALT));
    assert!(opens(&mut disk, &unlocked) && opens(&mut disk, &locked(0, &vault)));
    vault.lies.store(true, Ordering::Relaxed);
    let error = try_all(&mut disk, &[sealed(0, &vault)]).unwrap_err().to_string();
    let expected = "kms key for slot 0: what was unsealed is not the slot's key, or not of EPHEMERAL";
    assert!(error.ends_with(expected), "{error}");
    let error = try_all(&mut disk, &[sealed(1, &vault)]).unwrap_err().to_string();
    assert!(error.ends_with("kms key for slot 1: its slot has no sealed key"), "{error}");
}

/// The whole of a volume copied over another: its keys, which this machine has, do not open it there.
#[test]
fn a_header_under_another_volumes_name_stays_closed() {
    let vault = Vault::named("kms");
    let mut disk = made(&[sealed(0, &vault)]);
    vault.calls();
    let error = try_all(&mut disk, &[bound_to("STATE", false, 0, &vault)]).unwrap_err().to_string();
    assert!(error.contains("it was sealed for EPHEMERAL, not for STATE"), "{error}");
    assert_eq!(vault.calls(), 0, "nobody is asked for it");
    // The token is not secret, and says what its thief wants it to.
    for settings in [None, bound_to("STATE", false, 0, &vault).settings(None)] {
        let mut header = luks2::read(&mut &mut disk).unwrap().header;
        let key = SealedKey::of(&header, 0).unwrap();
        let change = header.with_token(Id(0), SealedKey { settings, ..key }.token_of(Id(0))).unwrap();
        crate::device::apply(&mut disk, 0, &change.steps).unwrap();
        header = change.header;
        assert_eq!(header.metadata.tokens.len(), 1);
        let error = try_all(&mut disk, &[bound_to("STATE", false, 0, &vault)]).unwrap_err().to_string();
        assert!(error.contains("what was unsealed is not"), "{error}");
    }
}

/// An upgraded node: a key of the old rule opens, stays while the system before has to open it too, and is bound then.
#[test]
fn an_old_key_opens_and_is_bound_once_the_trial_has_ended() {
    for vault in [Vault::named("kms"), Vault::bound("7")] {
        for others in [vec![], vec![key(7, "local")]] {
            let with = |key: Key| [vec![key], others.clone()].concat();
            let mut disk = made(&with(old(0, &vault)));
            let before = luks2::read(&mut &mut disk).unwrap().header;
            assert!(!SealedKey::of(&before, 0).unwrap().is_bound());
            assert_eq!(follow(&mut disk, &with(old(0, &vault)), &[]), Synchronised::default());
            assert_eq!(luks2::read(&mut &mut disk).unwrap().header, before, "on trial nothing is written");
            assert!(opens(&mut disk, &sealed(0, &vault)), "the old rule");
            assert_eq!(follow(&mut disk, &with(sealed(0, &vault)), &[]).replaced, [0]);
            let after = luks2::read(&mut &mut disk).unwrap().header;
            assert!(SealedKey::of(&after, 0).unwrap().is_bound() && opens(&mut disk, &sealed(0, &vault)));
            assert!(!opens(&mut disk, &bound_to("STATE", false, 0, &vault)));
            // The next upgrade's trial: what is bound stays bound.
            assert_eq!(follow(&mut disk, &with(old(0, &vault)), &[]), Synchronised::default());
            assert_eq!(luks2::read(&mut &mut disk).unwrap().header, after);
        }
    }
}

/// A config that says nothing of the lock, on a node that was upgraded: the slot opens, stays while the system before has
/// to open it too, and is locked then.
#[test]
fn a_key_is_locked_by_default_once_the_trial_has_ended() {
    for vault in [Vault::named("kms"), Vault::bound("7")] {
        let on_trial = |seal| of(0, Seal { keeps_old: true, lock: Lock::Usual, ..seal });
        for before in [sealed(0, &vault), old(0, &vault)] {
            let mut disk = made(std::slice::from_ref(&before));
            let header = luks2::read(&mut &mut disk).unwrap().header;
            let trial = on_trial(with_salt(&vault, SALT));
            assert_eq!(follow(&mut disk, std::slice::from_ref(&trial), &[]), Synchronised::default());
            let no_salt = of(0, Seal { lock: Lock::Usual, ..Seal::new(vault.clone(), VOLUME) });
            assert!(opens(&mut disk, &no_salt), "it is not needed");
            assert_eq!(luks2::read(&mut &mut disk).unwrap().header, header, "on trial nothing is written");
            // In one commit, though it is the only key and opened the volume.
            assert_eq!(follow(&mut disk, &[usual(0, &vault)], &[]).replaced, [0]);
            let header = luks2::read(&mut &mut disk).unwrap().header;
            assert_eq!(settings(&mut disk)["lockToState"], true);
            for again in [usual(0, &vault), trial, locked(0, &vault)] {
                assert_eq!(follow(&mut disk, &[again], &[]), Synchronised::default());
            }
            // Without a STATE nothing is opened, and no lock is taken away.
            vault.calls();
            let error = try_all(&mut disk, &[no_salt]).unwrap_err().to_string();
            assert!(error.ends_with("kms key for slot 0: there is no salt of STATE"), "{error}");
            assert_eq!(vault.calls(), 0, "nobody is asked in vain");
            assert_eq!(luks2::read(&mut &mut disk).unwrap().header, header);
        }
    }
}

/// Who deletes STATE has another one: what the vault gives opens nothing with its salt.
#[test]
fn a_locked_key_stays_closed_with_another_state() {
    let vault = Vault::named("kms");
    let mut disk = made(&[usual(0, &vault)]);
    for lock in [Lock::Usual, Lock::Never] {
        let thief = of(0, Seal { lock, ..with_salt(&vault, "salt of another") });
        let error = try_all(&mut disk, &[thief]).unwrap_err().to_string();
        assert!(error.contains("kms key for slot 0: it is locked to another STATE than this one"), "{error}");
    }
    assert!(opens(&mut disk, &usual(0, &vault)));
}

/// A lock is another passphrase also where the vault gives the same key for other settings.
#[test]
fn a_lock_that_the_config_takes_away_is_sealed_anew() {
    for vault in [Vault::named("kms"), Vault::bound("7")] {
        let mut disk = made(&[locked(0, &vault)]);
        let unlocked = of(0, with_salt(&vault, SALT));
        assert_eq!(follow(&mut disk, std::slice::from_ref(&unlocked), &[]).replaced, [0]);
        assert!(settings(&mut disk).get("lockToState").is_none() && opens(&mut disk, &sealed(0, &vault)));
        // A server that does not give back what it sealed takes no slot.
        let before = luks2::read(&mut &mut disk).unwrap().header;
        let mut opened = try_all(&mut disk, &[unlocked]).unwrap();
        vault.lies.store(true, Ordering::Relaxed);
        let keys = [usual(0, &vault)];
        let wanted = Wanted { keys: &keys, ..Wanted::default() };
        let done = synchronise(&mut disk, &mut opened, wanted, &mut random());
        assert_eq!(done.problems, [(0, "key slot 0: sealed, but another key was unsealed".to_owned())]);
        assert_eq!(luks2::read(&mut &mut disk).unwrap().header, before);
    }
}

/// Talos says nothing of a lock in its token: there the config counts.
#[test]
fn a_token_of_another_system_is_opened_as_the_config_says() {
    let vault = Vault::named("kms");
    let kept = |lock| of(0, Seal { keeps_old: true, lock, ..with_salt(&vault, SALT) });
    for (lock, other) in [(Lock::Always, Lock::Usual), (Lock::Never, Lock::Always)] {
        let mut disk = made(&[kept(lock)]);
        let header = luks2::read(&mut &mut disk).unwrap().header;
        let foreign = SealedKey { settings: None, ..SealedKey::of(&header, 0).unwrap() };
        let change = header.with_token(Id(0), foreign.token_of(Id(0))).unwrap();
        crate::device::apply(&mut disk, 0, &change.steps).unwrap();
        assert!(opens(&mut disk, &kept(lock)) && !opens(&mut disk, &kept(other)));
    }
}

/// A key of the TPM demands an authenticated config once the trial has ended, and not any more where the next start has
/// none.
#[test]
fn a_key_demands_a_config_once_the_trial_has_ended() {
    let vault = Vault::bound("7");
    let with = |demands_config| of(0, Seal { demands_config, ..Seal::new(vault.clone(), VOLUME) });
    let (yes, no) = (with(Some(true)), with(Some(false)));
    for before in [sealed(0, &vault), old(0, &vault)] {
        let mut disk = made(std::slice::from_ref(&before));
        let header = luks2::read(&mut &mut disk).unwrap().header;
        let trial =
            of(0, Seal { keeps_old: true, demands_config: Some(true), ..Seal::new(vault.clone(), VOLUME) });
        assert_eq!(follow(&mut disk, std::slice::from_ref(&trial), &[]), Synchronised::default());
        assert_eq!(luks2::read(&mut &mut disk).unwrap().header, header, "on trial nothing is written");
        assert_eq!(follow(&mut disk, std::slice::from_ref(&yes), &[]).replaced, [0]);
        assert!(vault.demanded.load(Ordering::Relaxed));
        assert_eq!(settings(&mut disk)["version"], 3);
        let header = luks2::read(&mut &mut disk).unwrap().header;
        assert_eq!(
            bindings(&header),
            [(
                0,
                "the kms key in slot 0 is bound to this volume, configs from STATE or a signed image"
                    .to_owned()
            )]
        );
        // The next trial, and a start of which nothing is known, leave it as it is.
        for again in [trial, with(None), yes.clone()] {
            assert_eq!(follow(&mut disk, &[again], &[]), Synchronised::default());
        }
        assert_eq!(follow(&mut disk, std::slice::from_ref(&no), &[]).replaced, [0]);
        assert!(!vault.demanded.load(Ordering::Relaxed));
        assert_eq!(settings(&mut disk)["version"], 2);
    }
}

/// A server that seals and does not give back would take the only key of a volume.
#[test]
fn an_old_key_is_not_given_away_for_one_that_does_not_open() {
    let (vault, local) = (Vault::named("kms"), key(7, "local"));
    let mut disk = made(&[old(0, &vault), local.clone()]);
    let before = luks2::read(&mut &mut disk).unwrap().header;
    vault.lies.store(true, Ordering::Relaxed);
    let done = follow(&mut disk, &[sealed(0, &vault), local], &[]);
    assert_eq!(done.problems, [(0, "key slot 0: sealed, but another key was unsealed".to_owned())]);
    assert_eq!(luks2::read(&mut &mut disk).unwrap().header, before);
}

#[test]
fn a_vault_that_is_down_costs_nothing_while_another_key_works() {
    let vault = Arc::new(Vault { name: "kms", delay: Duration::from_secs(20), ..Vault::default() });
    let quick = Vault::named("kms");
    let mut disk = made(&[sealed(0, &quick), key(1, "local")]);
    let start = Instant::now();
    let opened = try_all(&mut disk, &[sealed(0, &vault), key(1, "local")]).unwrap();
    assert_eq!(opened.unlocked.slot, 1);
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    quick.is_down.store(true, Ordering::Relaxed);
    let error = try_all(&mut disk, &[sealed(0, &quick), key(1, "wrong")]).unwrap_err().to_string();
    for reason in
        ["kms key for slot 0: connection refused", "static key for slot 1: the passphrase is not its own"]
    {
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn a_volume_is_made_with_the_keys_that_can_be_had() {
    let vault = Vault::named("kms");
    vault.is_down.store(true, Ordering::Relaxed);
    let mut disk = Memory::new(HEADER_BYTES + (1 << 20), 512);
    let keys = [sealed(0, &vault), key(1, "local")];
    let opened = format(&mut disk, "STATE", &protection(&keys), &mut random()).unwrap();
    assert_eq!((opened.unlocked.slot, opened.refused.len()), (1, 1));
    // The next opening with the server makes the slot.
    vault.is_down.store(false, Ordering::Relaxed);
    assert_eq!(follow(&mut disk, &keys, &[]).added, [0]);
    assert_eq!(tokens(&mut disk), [0]);
    vault.is_down.store(true, Ordering::Relaxed);
    let mut disk = Memory::new(HEADER_BYTES + (1 << 20), 512);
    let error = format(&mut disk, "STATE", &protection(&keys[..1]), &mut random()).unwrap_err().to_string();
    assert_eq!(error, "encrypt STATE: no key can be had: kms key for slot 0: connection refused");
}

#[test]
fn a_slot_is_sealed_anew_only_when_its_settings_say_so() {
    let (vault, local) = (Vault::named("kms"), key(7, "local"));
    let mut disk = made(&[sealed(0, &vault), local.clone()]);
    let with = |key: Key| [key, local.clone()];
    vault.calls();
    // Unchanged: nobody is asked but by the opening, and the header stays as it is.
    let before = luks2::read(&mut &mut disk).unwrap().header;
    assert_eq!(follow(&mut disk, &with(sealed(0, &vault)), &[]), Synchronised::default());
    assert_eq!((luks2::read(&mut &mut disk).unwrap().header, vault.calls()), (before.clone(), 0));
    // The same server by another name: the token learns that, the slot stays.
    let renamed = Vault::named("https://kms");
    assert_eq!(follow(&mut disk, &with(sealed(0, &renamed)), &[]), Synchronised::default());
    let header = luks2::read(&mut &mut disk).unwrap().header;
    assert_eq!(header.metadata.keyslots, before.metadata.keyslots);
    assert_eq!(SealedKey::of(&header, 0).unwrap().settings.unwrap()["endpoint"], "https://kms");
    // Another server, another kind of key, a lock to STATE: another secret.
    let other = Vault::named("other");
    other.lies.store(true, Ordering::Relaxed);
    assert_eq!(follow(&mut disk, &with(sealed(0, &other)), &[]).replaced, [0]);
    other.lies.store(false, Ordering::Relaxed);
    assert!(opens(&mut disk, &sealed(0, &other)));
    assert_eq!(follow(&mut disk, &with(locked(0, &other)), &[]).replaced, [0]);
    assert!(opens(&mut disk, &locked(0, &other)) && !opens(&mut disk, &sealed(0, &other)));
    assert_eq!(follow(&mut disk, &with(key(0, "plain")), &[]).replaced, [0]);
    assert!(tokens(&mut disk).is_empty());
    // One that is of no use any more, by order; and one that goes takes its token along.
    assert_eq!(follow(&mut disk, &with(sealed(0, &other)), &[]).replaced, [0]);
    assert_eq!(follow(&mut disk, &with(sealed(0, &other)), &[0]).replaced, [0]);
    assert_eq!(follow(&mut disk, std::slice::from_ref(&local), &[]).removed, [0]);
    assert!(tokens(&mut disk).is_empty());
}

fn settings(disk: &mut Memory) -> Value {
    let header = luks2::read(&mut &mut *disk).unwrap().header;
    Value::Object(SealedKey::of(&header, 0).unwrap().settings.unwrap())
}

#[test]
fn a_bound_key_is_sealed_anew_under_other_settings_even_if_it_is_the_only_one() {
    let (old, new, local) = (Vault::bound("7"), Vault::bound("7, 11"), key(7, "local"));
    let mut disk = made(&[sealed(0, &old), local.clone()]);
    let before = luks2::read(&mut &mut disk).unwrap().header;
    assert_eq!(follow(&mut disk, &[sealed(0, &old), local.clone()], &[]), Synchronised::default());
    assert_eq!(luks2::read(&mut &mut disk).unwrap().header, before, "unchanged settings write nothing");
    // Another key opened the volume.
    assert_eq!(follow(&mut disk, &[sealed(0, &new), local], &[]).replaced, [0]);
    let bound = |pcrs| json!({ "endpoint": pcrs, "version": 2, "volume": VOLUME });
    assert_eq!(settings(&mut disk), bound("7, 11"));
    // It opens the volume itself, and is then of no other slot: each commit has a key that opens.
    let only = [sealed(0, &old)];
    let mut disk = made(&[sealed(0, &new)]);
    assert_eq!(follow(&mut disk, &only, &[]).replaced, [0]);
    assert_eq!((settings(&mut disk), slots(&mut disk)), (bound("7"), vec![0]));
    assert_eq!(follow(&mut disk, &only, &[]), Synchronised::default());
    assert!(opens(&mut disk, &only[0]));
}

/// What was sealed to a state that does not hold is found before the slot is given away.
#[test]
fn a_bound_key_that_is_not_unsealed_again_takes_no_slot() {
    let (old, new) = (Vault::bound("7"), Vault::bound("4"));
    new.lies.store(true, Ordering::Relaxed);
    let local = key(7, "local");
    let mut disk = made(&[sealed(0, &old), local.clone()]);
    let before = luks2::read(&mut &mut disk).unwrap().header;
    let done = follow(&mut disk, &[sealed(0, &new), local], &[]);
    assert_eq!(done.problems, [(0, "key slot 0: sealed, but another key was unsealed".to_owned())]);
    assert_eq!(luks2::read(&mut &mut disk).unwrap().header, before);
    let mut disk = Memory::new(HEADER_BYTES + (1 << 20), 512);
    let error = format(&mut disk, "STATE", &protection(&[sealed(0, &new)]), &mut random()).unwrap_err();
    assert!(error.to_string().contains("no key can be had: kms key for slot 0: sealed, but"), "{error}");
}

#[test]
fn a_vault_that_is_down_leaves_a_slot_as_it_is() {
    let (vault, local) = (Vault::named("kms"), key(7, "local"));
    let mut disk = made(&[sealed(0, &vault), local.clone()]);
    let down = Vault::named("other");
    down.is_down.store(true, Ordering::Relaxed);
    let keys = [sealed(0, &down), sealed(1, &down), local];
    let done = follow(&mut disk, &keys, &[]);
    assert_eq!(done.problems.len(), 2, "{done:?}");
    assert_eq!(done.problems[0].1, "key slot 0: connection refused");
    assert!(opens(&mut disk, &sealed(0, &vault)));
    assert_eq!(slots(&mut disk), [0, 7]);
}

/// At every moment of a new sealing the slot opens with what its token says.
#[test]
fn every_cut_leaves_a_token_that_fits_its_slot() {
    let (vault, local) = (Vault::named("kms"), key(7, "local"));
    let (bound, bound_otherwise) = (Vault::bound("7"), Vault::bound("7, 11"));
    let demanding = of(0, Seal { demands_config: Some(true), ..Seal::new(bound.clone(), VOLUME) });
    for (start, keys) in [
        (vec![local.clone()], vec![sealed(0, &vault), local.clone()]),
        (vec![sealed(0, &vault), local.clone()], vec![usual(0, &vault), local.clone()]),
        (vec![sealed(0, &bound), local.clone()], vec![usual(0, &bound), local.clone()]),
        (vec![old(0, &bound), local.clone()], vec![demanding, local.clone()]),
        (vec![sealed(0, &bound), local.clone()], vec![sealed(0, &bound_otherwise), local.clone()]),
    ] {
        let mut disk = Recorder::new(made(&start));
        let done = follow(&mut disk, &keys, &[]);
        assert_eq!(done.problems, []);
        disk.acknowledge("sealed");
        let count = disk.finish().0.each_state(&|_| true, |mut state| {
            let disk = &mut state.disk;
            assert!(opens(disk, &local), "{:?}", state.cut);
            let is_there = slots(disk).contains(&0);
            let fits = opens(disk, &sealed(0, &vault)) || opens(disk, &locked(0, &vault));
            assert_eq!((is_there, is_there), (fits, tokens(disk) == [0]), "{:?}", state.cut);
            assert!(state.promises.is_empty() || opens(disk, &keys[0]), "{:?}", state.cut);
        });
        assert!(count > 5, "{count}");
    }
}

/// A recovery key as the config has it: nobody is there to type it.
fn with_people(slot: u8) -> Key {
    let vault = Vault::named("people");
    Key { kind: KeyKind::Recovery, ..sealed(slot, &vault) }
}

/// What somebody typed.
fn typed(slot: u8, secret: &Secret) -> Key {
    Key { slot, kind: KeyKind::Recovery, secret: KeySecret::Known(secret.clone()), cost: CHEAP }
}

#[test]
fn a_recovery_key_is_made_and_never_tried_unless_somebody_gives_it() {
    let local = key(0, "local");
    let mut disk = made(&[local.clone(), with_people(3)]);
    assert_eq!((slots(&mut disk), tokens(&mut disk)), (vec![0, 3], vec![3]));
    let opened = try_all(&mut disk, &[with_people(3), local.clone()]).unwrap();
    assert_eq!((opened.unlocked.slot, opened.refused.len()), (0, 0));
    let error = try_all(&mut disk, &[with_people(3), key(0, "wrong")]).unwrap_err().to_string();
    assert!(
        error.ends_with(
            "static key for slot 0: the passphrase is not its own; recovery key for slot 3: it needs a person: \
             billetctl disk recovery-key EPHEMERAL, then billetctl unlock EPHEMERAL"
        ),
        "{error}"
    );
    let header = luks2::read(&mut &mut disk).unwrap().header;
    let secret = with_people(3).unseal(SealedKey::of(&header, 3).as_ref()).unwrap();
    let opened = try_all(&mut disk, &[typed(3, &secret)]).unwrap();
    assert_eq!((opened.unlocked.slot, opened.unlocked.kind), (3, KeyKind::Recovery));
    let wrong = typed(3, &Secret::new(b"wrong".to_vec()));
    let error = try_all(&mut disk, &[wrong]).unwrap_err().to_string();
    assert!(error.ends_with("it is another volume's recovery key, or one that was replaced"), "{error}");
}

#[test]
fn a_volume_is_not_made_with_a_recovery_key_alone() {
    let vault = Vault::named("kms");
    vault.is_down.store(true, Ordering::Relaxed);
    let mut disk = Memory::new(HEADER_BYTES + (1 << 20), 512);
    let keys = [with_people(0), sealed(1, &vault)];
    let error = format(&mut disk, "STATE", &protection(&keys), &mut random()).unwrap_err().to_string();
    assert_eq!(error, "encrypt STATE: no key can be had: kms key for slot 1: connection refused");
    assert!(luks2::read(&mut &mut disk).is_err());
}

/// A server that lost its key: who has the recovery key opens the volume, and the slot is sealed by what the server has
/// now. At every moment of that the recovery key opens it.
#[test]
fn a_recovery_key_seals_the_failed_slots_anew() {
    let (lost, there) = (Vault::named("kms"), Vault::named("kms"));
    let mut disk = made(&[sealed(0, &lost), with_people(3)]);
    let header = luks2::read(&mut &mut disk).unwrap().header;
    let secret = with_people(3).unseal(SealedKey::of(&header, 3).as_ref()).unwrap();
    there.lies.store(true, Ordering::Relaxed);
    assert!(!opens(&mut disk, &sealed(0, &there)));
    let keys = [sealed(0, &there), with_people(3)];
    let wanted = Wanted { keys: &keys, kept: &[], sealed_anew: &[0] };
    // Down as well: the slot stays as it is, and is told.
    there.is_down.store(true, Ordering::Relaxed);
    let mut opened = try_all(&mut disk, &[typed(3, &secret)]).unwrap();
    let done = synchronise(&mut disk, &mut opened, wanted, &mut random());
    assert_eq!(done.problems, [(0, "key slot 0: connection refused".to_owned())]);
    assert!(opens(&mut disk, &sealed(0, &lost)));
    there.is_down.store(false, Ordering::Relaxed);
    there.lies.store(false, Ordering::Relaxed);
    let mut disk = Recorder::new(disk);
    let mut opened = try_all(&mut disk, &[typed(3, &secret)]).unwrap();
    let done = synchronise(&mut disk, &mut opened, wanted, &mut random());
    assert_eq!((done.replaced, done.problems, done.removed), (vec![0], vec![], vec![]));
    disk.acknowledge("sealed anew");
    let count = disk.finish().0.each_state(&|_| true, |mut state| {
        let disk = &mut state.disk;
        assert!(opens(disk, &typed(3, &secret)), "{:?}", state.cut);
        assert!(state.promises.is_empty() || opens(disk, &sealed(0, &there)), "{:?}", state.cut);
    });
    assert!(count > 5, "{count}");
}
