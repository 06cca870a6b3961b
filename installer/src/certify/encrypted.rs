//! Encrypted volumes: STATE made, given a key, other keys in the place of old ones, a damaged header mended; keys that are
//! known, and keys that are sealed in a token.
//!
//! Does not: encrypt data: what lies behind the header is a file system as [`MemoryHost`] makes one, whole or not there.
//! Ask a TPM or a server: who seals is [`Turning`]; what is certified is that slot and token belong together.
//! Source: docs/formats/luks2.md for the order of writes.

use std::ops::Range;
use std::sync::Arc;

use ondisk::gpt::{Partition, Table};
use ondisk::luks2::{self, Cipher, Cost, Secret};
use serde_json::{Map, Value};
use unlock::{KeyKind, SealedKey};

use super::case::{Case, Rule, areas};
use super::host::{MemoryHost, formatted};
use super::later::{roomy, seed_of};
use super::model::System;
use super::nodes::{Node, Variant};
use super::{Fault, Numbers, place, table};
use crate::Error;
use crate::device::{BlockDevice, Memory, Part};
use crate::encryption::{self, HEADER_BYTES, Key, KeySecret, Protection, Seal, Vault, Wanted};
use crate::host::Host;
use crate::upgrade::Slot;
use crate::volumes::{Did, Volume, provision};

/// One copy of a header.
const COPY_BYTES: u64 = 16 << 10;
/// As cheap as LUKS2 allows: every state derives keys.
const COST: Cost = Cost::Pbkdf2(1000);

/// An installed disk whose STATE is to be encrypted.
struct EncryptedHost {
    inner: MemoryHost,
    keys: Vec<Key>,
    numbers: Numbers,
}

impl EncryptedHost {
    fn new(disk: Memory, seed: u64, keys: &[Key]) -> Self {
        Self { inner: MemoryHost::new(disk), keys: keys.to_vec(), numbers: Numbers::new(seed) }
    }
}

impl Host for EncryptedHost {
    fn disk(&mut self) -> &mut dyn BlockDevice {
        self.inner.disk()
    }

    fn open(&mut self, table: &Table, partition: &Partition) -> Result<Box<dyn BlockDevice + '_>, Error> {
        self.inner.open(table, partition)
    }

    fn open_shared(
        &mut self,
        table: &Table,
        partition: &Partition,
    ) -> Result<Box<dyn BlockDevice + '_>, Error> {
        self.inner.open(table, partition)
    }

    fn announce(&mut self, _table: &Table, _partition: &Partition) -> Result<(), Error> {
        Ok(())
    }

    fn encrypts(&self, partition: &Partition) -> bool {
        partition.name == Volume::State.name()
    }

    fn encrypt(&mut self, table: &Table, partition: &Partition) -> Result<(), Error> {
        let protection = Protection {
            cipher: Cipher::AesXts,
            key_bytes: 64,
            sector_bytes: None,
            flags: Vec::new(),
            keys: self.keys.clone(),
        };
        let mut random = random(&mut self.numbers);
        let mut part = self.inner.open(table, partition)?;
        encryption::format(&mut *part, &partition.name, &protection, &mut random).map(drop)
    }

    fn format(&mut self, table: &Table, partition: &Partition) -> Result<(), Error> {
        let bytes = formatted(&partition.name);
        Ok(self.inner.open(table, partition)?.write_at(HEADER_BYTES, &bytes)?)
    }
}

fn random(numbers: &mut Numbers) -> impl FnMut(&mut [u8]) + '_ {
    |bytes| bytes.copy_from_slice(&numbers.bytes(bytes.len()))
}

fn key(slot: u8, secret: &str) -> Key {
    let secret = KeySecret::Known(Secret::new(secret.as_bytes().to_vec()));
    Key { slot, kind: KeyKind::Static, secret, cost: COST }
}

/// Seals by turning bits over; a key is bound to its settings, as a TPM's is to registers, or it is not, as a server's.
struct Turning {
    settings: &'static str,
    binds: bool,
}

impl Vault for Turning {
    fn settings(&self) -> Map<String, Value> {
        Map::from_iter([("settings".to_owned(), Value::from(self.settings))])
    }

    fn binds(&self) -> bool {
        self.binds
    }

    fn seal(&self, key: &[u8], _demands_config: bool) -> Result<Map<String, Value>, String> {
        let turned: Vec<u8> = key.iter().map(|byte| !byte).collect();
        let empty = SealedKey { kind: KeyKind::Tpm, settings: None, fields: Map::new() };
        Ok(empty.with_bytes("sealed", &turned).fields)
    }

    fn unseal(&self, sealed: &SealedKey) -> Result<Secret, String> {
        let bytes = sealed.bytes("sealed")?;
        Ok(Secret::new(bytes.into_iter().map(|byte| !byte).collect()))
    }
}

fn sealed(slot: u8, settings: &'static str, binds: bool) -> Key {
    let secret = KeySecret::Sealed(Seal::new(Arc::new(Turning { settings, binds }), "STATE"));
    Key { slot, kind: KeyKind::Tpm, secret, cost: COST }
}

/// STATE is made and encrypted.
pub(super) fn format(variant: Variant<'_>) -> Result<Case, Fault> {
    format_with(variant, key(0, "first"))
}

/// The same with a key that nobody has but in its sealed form.
pub(super) fn format_sealed(variant: Variant<'_>) -> Result<Case, Fault> {
    format_with(variant, sealed(0, "7", true))
}

fn format_with(variant: Variant<'_>, key: Key) -> Result<Case, Fault> {
    let variant = roomy(variant);
    let system = variant.system("v1");
    let node = Node::fresh(variant, &system)?;
    let (seed, keys) = (seed_of(variant), [key]);
    let mut host = EncryptedHost::new(node.disk.clone(), variant.seed, &keys);
    provision(&mut host, Volume::State, &seed)?;
    let kept = [node.range("EFI")?, node.range("ROOT-A")?, node.range("ROOT-B")?];
    let rule = Rule::always("v1", Slot::A).keeping(kept).demanding(move |disk, promises| {
        let mut host = EncryptedHost::new(disk.clone(), 77, &keys);
        next_boot(&mut host, promises, &seed).map_err(|error| error.to_string())
    });
    let recorder = host.inner.disk;
    let after = recorder.now().clone();
    Ok(Case::of(recorder, encrypted_areas(&after)?, &[&system], Rule { esp: false, ..rule }))
}

/// The next boot ends with a STATE that its key opens, and does not make it again if it was promised.
fn next_boot(host: &mut EncryptedHost, promises: &[&str], seed: &[u8; 32]) -> Result<(), Fault> {
    let ready = provision(host, Volume::State, seed)?;
    let keys = host.keys.iter().cloned().map(Ok).collect();
    let mut part = host.open(&ready.table, &ready.partition)?;
    encryption::open(&mut *part, "STATE", keys)?;
    let expected = formatted("STATE");
    let mut start = vec![0; expected.len()];
    part.read_at(HEADER_BYTES, &mut start)?;
    if start != expected {
        return Err("STATE is not whole".into());
    }
    if promises.contains(&"STATE") && ready.did != Did::Nothing {
        return Err(format!("STATE was made before, and was {:?} again", ready.did).into());
    }
    Ok(())
}

/// A key is added.
pub(super) fn add_key(variant: Variant<'_>) -> Result<Case, Fault> {
    let keys = [key(0, "first"), key(1, "second")];
    change(variant, &keys[..1], &keys)
}

/// One slot gets another key, one goes: the second half of a rotation.
pub(super) fn rotation(variant: Variant<'_>) -> Result<Case, Fault> {
    let before = [key(0, "stays"), key(1, "old"), key(2, "goes")];
    change(variant, &before, &[key(0, "stays"), key(1, "new")])
}

/// A sealed key is added: slot and token at once.
pub(super) fn add_sealed(variant: Variant<'_>) -> Result<Case, Fault> {
    change(variant, &[key(0, "first")], &[key(0, "first"), sealed(1, "7", true)])
}

/// A sealed key takes the place of one that was known.
pub(super) fn rotation_to_sealed(variant: Variant<'_>) -> Result<Case, Fault> {
    change(variant, &[key(0, "stays"), key(1, "old")], &[key(0, "stays"), sealed(1, "7", true)])
}

/// The only key of a volume is sealed anew.
pub(super) fn rotation_of_the_only_sealed(variant: Variant<'_>) -> Result<Case, Fault> {
    change(variant, &[sealed(0, "7", true)], &[sealed(0, "7, 11", true)])
}

/// The token alone changes, as it does for a server's new name and for the system of an upgrade.
pub(super) fn token(variant: Variant<'_>) -> Result<Case, Fault> {
    let with = |settings| [key(0, "stays"), sealed(1, settings, false)];
    change(variant, &with("old"), &with("new"))
}

/// The slots follow other keys: the key that stays opens at any time; after the promise the new ones do, and the old
/// ones no more. A token and its slot belong together at any time.
fn change(variant: Variant<'_>, before: &[Key], after: &[Key]) -> Result<Case, Fault> {
    let (mut node, system) = made(variant, before)?;
    let state = node.range("STATE")?;
    let stays = |key: &Key| after.iter().any(|new| is_same(new, key));
    let gone = before.iter().filter(|key| !stays(key)).map(|key| revealed(&mut node.disk, key));
    let (gone, after) = (gone.collect::<Result<Vec<_>, Fault>>()?, after.to_vec());
    let wanted = after.clone();
    let demand = move |disk: &mut Memory, promises: &[&str]| {
        let mut part = state_of(disk)?;
        if !opens(&mut part, &after[0]) {
            return Err("the key that stays does not open it".into());
        }
        tokens_fit(&mut part, &after)?;
        if promises.is_empty() {
            return Ok(());
        }
        for key in &after {
            if !opens(&mut part, key) {
                return Err(format!("the new key of slot {} does not open it", key.slot));
            }
        }
        match gone.iter().find(|key| opens(&mut part, key)) {
            Some(key) => Err(format!("the old key of slot {} still opens it", key.slot)),
            None => Ok(()),
        }
    };
    let rule = alone(&node, &state)?.demanding(demand);
    Case::record(&node.disk, encrypted_areas(&node.disk)?, &[&system], rule, |disk| {
        let mut numbers = Numbers::new(variant.seed << 8 | 9);
        {
            let mut part = Part::new(&mut *disk, state.start, state.end - state.start);
            let first = wanted.iter().take(1).cloned().map(Ok).collect();
            let mut opened = encryption::open(&mut part, "STATE", first)?;
            let wanted = Wanted { keys: &wanted, ..Wanted::default() };
            let done = encryption::synchronise(&mut part, &mut opened, wanted, &mut random(&mut numbers));
            if !done.problems.is_empty() {
                return Err(format!("{:?}", done.problems).into());
            }
        }
        disk.acknowledge("keys");
        Ok(())
    })
}

pub(super) fn repair_first(variant: Variant<'_>) -> Result<Case, Fault> {
    repair(variant, 0)
}

pub(super) fn repair_second(variant: Variant<'_>) -> Result<Case, Fault> {
    repair(variant, COPY_BYTES)
}

/// A copy of the header is damaged, and is written anew from the other.
fn repair(variant: Variant<'_>, copy: u64) -> Result<Case, Fault> {
    let first = key(0, "first");
    let (mut node, system) = made(variant, std::slice::from_ref(&first))?;
    let state = node.range("STATE")?;
    let at = state.start + copy + 4096 + variant.numbers(5).below(4096);
    node.disk.write_at(at, b"damage")?;
    let opener = first.clone();
    let rule = alone(&node, &state)?.demanding(move |disk, promises| {
        let mut part = state_of(disk)?;
        if !opens(&mut part, &first) {
            return Err("its key does not open it".into());
        }
        let found = luks2::read(&mut part).map_err(|error| error.to_string())?;
        match found.stale {
            Some(_) if !promises.is_empty() => Err("a copy is still damaged".into()),
            _ => Ok(()),
        }
    });
    Case::record(&node.disk, encrypted_areas(&node.disk)?, &[&system], rule, |disk| {
        let mut part = Part::new(&mut *disk, state.start, state.end - state.start);
        let mut opened = encryption::open(&mut part, "STATE", vec![Ok(opener.clone())])?;
        encryption::mend(&mut part, &mut opened)?;
        disk.acknowledge("header");
        Ok(())
    })
}

/// A node with an encrypted STATE.
fn made(variant: Variant<'_>, keys: &[Key]) -> Result<(Node, System), Fault> {
    let variant = roomy(variant);
    let system = variant.system("v1");
    let mut node = Node::fresh(variant, &system)?;
    let mut host = EncryptedHost::new(node.disk, variant.seed, keys);
    provision(&mut host, Volume::State, &seed_of(variant))?;
    node.disk = host.inner.disk.finish().1;
    node.table = table(&mut node.disk)?;
    Ok((node, system))
}

/// Whether a slot keeps its secret when the one key takes the place of the other.
fn is_same(new: &Key, old: &Key) -> bool {
    match (&new.secret, &old.secret) {
        (KeySecret::Known(new), KeySecret::Known(old)) => new == old,
        (KeySecret::Sealed(new), KeySecret::Sealed(old)) => {
            !new.vault.binds() || new.vault.settings() == old.vault.settings()
        }
        _ => false,
    }
}

/// A key with its passphrase, as it can be had now.
fn revealed(disk: &mut Memory, key: &Key) -> Result<Key, Fault> {
    let KeySecret::Sealed(seal) = &key.secret else { return Ok(key.clone()) };
    let header = luks2::read(&mut state_of(disk)?)?.header;
    let sealed = SealedKey::of(&header, key.slot).ok_or("a slot has no token")?;
    let secret = sealed.passphrase("STATE", &seal.vault.unseal(&sealed)?, None)?;
    Ok(Key { secret: KeySecret::Known(secret), ..key.clone() })
}

/// A token is there with its slot and opens that.
fn tokens_fit(part: &mut Part<'_, Memory>, keys: &[Key]) -> Result<(), String> {
    let header = luks2::read(&mut *part).map_err(|error| error.to_string())?.header;
    let slots = |id| header.metadata.keyslots.contains_key(&id);
    for id in header.metadata.tokens.keys() {
        let key = keys.iter().find(|key| key.slot == id.0);
        if !slots(*id) || !key.is_some_and(|key| opens(&mut *part, key)) {
            return Err(format!("the token of slot {id} does not open it"));
        }
    }
    Ok(())
}

/// Nothing but the header of STATE changes.
fn alone(node: &Node, state: &Range<u64>) -> Result<Rule, Fault> {
    let behind = state.start + HEADER_BYTES..node.disk.bytes();
    let before = node.range("EFI")?.start..state.start;
    Ok(Rule { esp: false, ..Rule::always("v1", Slot::A).keeping([before, behind]) })
}

fn state_of(disk: &mut Memory) -> Result<Part<'_, Memory>, String> {
    let (start, length) = place(&table(disk)?, "STATE")?;
    Ok(Part::new(disk, start, length))
}

fn opens(part: &mut dyn BlockDevice, key: &Key) -> bool {
    encryption::open(part, "STATE", vec![Ok(key.clone())]).is_ok()
}

/// The copies of the header may be torn; a key slot's area is there or not.
fn encrypted_areas(disk: &Memory) -> Result<Vec<(String, Range<u64>)>, Fault> {
    let (start, _) = place(&table(&mut disk.clone())?, "STATE")?;
    let copy = |number: u64| start + number * COPY_BYTES..start + (number + 1) * COPY_BYTES;
    let mut all = vec![("LUKS2 first copy".to_owned(), copy(0)), ("LUKS2 second copy".to_owned(), copy(1))];
    all.extend(areas(disk)?);
    Ok(all)
}
