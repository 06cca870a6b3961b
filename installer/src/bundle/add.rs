//! A config more in the bundle of an image.
//!
//! Owns: the key that signs, the order of writes.
//! Does not: touch anything else of the image: kernel, initramfs and layers stay as they were signed.
//! Order: the whole new file beside the old one; the old one's end; the new one's name. [`super::find`] takes the new one
//! where that was cut off.

use ondisk::bundle::{
    self, Entry, Frame, NEW_PATH, PATH, Payload, PublicKey, Sealed, Selector, TAG_BYTES, matching,
};
use ondisk::fat::{self, Reader};
use ring::signature::{Ed25519KeyPair, KeyPair};
use rustls_pki_types::SubjectPublicKeyInfoDer;
use rustls_pki_types::pem::PemObject;
use tpm::DeviceKey;
use zeroize::Zeroizing;

use super::{Error, entries, name_of, read, sealed};
use crate::boot_volume;
use crate::device::{BlockDevice, Part, apply};

/// SubjectPublicKeyInfo of an Ed25519 key up to its 32 bytes (RFC 8410 §4).
const PUBLIC_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// The key that configs are signed with.
pub struct SigningKey(Ed25519KeyPair);

impl SigningKey {
    /// Reads PKCS #8.
    pub fn from_pkcs8(der: &[u8]) -> Result<Self, Error> {
        // Keys of version 1 have no public half to compare with.
        let key = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der);
        key.map(Self).map_err(|_| Error::Key {
            what: "the signing key",
            reason: "it is no Ed25519 key; make one with `billetctl gen config-key`",
        })
    }

    /// Its public half.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        let mut key = PublicKey::default();
        for (to, from) in key.iter_mut().zip(self.0.public_key().as_ref()) {
            *to = *from;
        }
        key
    }

    /// The bundle of these entries.
    pub fn sign(&self, entries: &[Entry<'_>]) -> Result<Zeroizing<Vec<u8>>, Error> {
        let mut file = bundle::message(&self.public(), entries).map_err(Error::DoesNotFit)?;
        let signature = self.0.sign(&file);
        // There is room for it.
        file.extend(signature.as_ref());
        Ok(file)
    }
}

/// The public half from PEM (`-----BEGIN PUBLIC KEY-----`).
pub fn public_key_from_pem(text: &str) -> Result<PublicKey, Error> {
    let bad = |reason| Error::Key { what: "the public key of configs", reason };
    let der = SubjectPublicKeyInfoDer::from_pem_slice(text.as_bytes()).map_err(|_| {
        bad("no PEM block PUBLIC KEY is in it; `billetctl gen config-key` writes one to NAME.pub")
    })?;
    let key = der.strip_prefix(&PUBLIC_PREFIX).and_then(|key| PublicKey::try_from(key).ok());
    key.ok_or(bad("it is no Ed25519 key; make one with `billetctl gen config-key`"))
}

/// An entry as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// What makes it a machine's.
    pub selectors: Vec<String>,
    /// Length of the config.
    pub bytes: usize,
    /// The digest of the TPM's key that opens it; `None`: it is not encrypted.
    pub sealed_for: Option<String>,
}

/// Whose configs an image takes, and which it has. Without a key its own one is believed.
pub fn list(disk: &mut dyn BlockDevice, key: Option<&PublicKey>) -> Result<(PublicKey, Vec<Listed>), Error> {
    let (start, length) = place(disk)?;
    let file = read(&mut Part::new(disk, start, length))?;
    let own = Frame::read(&file)?.key;
    if let Some(key) = key.filter(|key| **key != own) {
        return Err(not_the_images(&own, "public key", key));
    }
    let listed = entries(&file, &own)?.into_iter().map(|entry| {
        let (bytes, sealed_for) = match entry.payload {
            Payload::Plain(text) => (text.len(), None),
            Payload::Sealed(sealed) => (sealed.body.len() - TAG_BYTES, Some(sealed.parts.device.to_string())),
        };
        Listed { selectors: names(&entry.selectors), bytes, sealed_for }
    });
    Ok((own, listed.collect()))
}

/// A config that is to be added.
#[derive(Clone, Copy)]
pub struct New<'c> {
    /// The machine that it is for has any of these.
    pub selectors: &'c [Selector],
    /// Its text.
    pub config: &'c [u8],
    /// Whose TPM alone is to open it; `None`: it is not encrypted.
    pub seal_for: Option<&'c DeviceKey>,
    /// It takes the place of the entries that have one of the selectors, which are an error else.
    pub replace: bool,
}

/// What adding a config came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Added {
    /// How many entries there are now.
    pub count: usize,
    /// Those whose place it took.
    pub replaced: Vec<Replaced>,
}

/// An entry that is no longer there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replaced {
    /// Its number, from 1, before.
    pub number: usize,
    /// What made it a machine's.
    pub selectors: Vec<String>,
    /// Those of them that lead to no config any more.
    pub lost: Vec<String>,
}

/// Adds a config.
pub fn add(disk: &mut dyn BlockDevice, key: &SigningKey, new: &New<'_>) -> Result<Added, Error> {
    if new.selectors.is_empty() {
        return Err(Error::ForNobody);
    }
    let sealed = new.seal_for.map(|device| sealed::seal(device, new.config)).transpose()?;
    let payload = match &sealed {
        Some(payload) => Payload::Sealed(Sealed::read(payload).map_err(Error::CannotSeal)?),
        None => Payload::Plain(new.config),
    };
    let (start, length) = place(disk)?;
    let mut part = Part::new(disk, start, length);
    let old = read(&mut part)?;
    let wanted = Frame::read(&old)?.key;
    if wanted != key.public() {
        return Err(not_the_images(&wanted, "signing key", &key.public()));
    }
    let mut all = entries(&old, &wanted)?;
    let replaced = make_room(&mut all, new)?;
    all.push(Entry { selectors: new.selectors.to_vec(), payload });
    let file = key.sign(&all)?;
    put(&mut part, &file)?;
    if *read(&mut part)? != *file {
        return Err(Error::ReadsBack);
    }
    Ok(Added { count: all.len(), replaced })
}

/// Takes the entries out that are for the machine of a new one.
fn make_room(all: &mut Vec<Entry<'_>>, new: &New<'_>) -> Result<Vec<Replaced>, Error> {
    let found: Vec<usize> = matching(all, new.selectors).into_iter().map(|(index, _)| index).collect();
    if !found.is_empty() && !new.replace {
        return Err(taken(all, new.selectors));
    }
    let entries = found.iter().filter_map(|index| Some((*index, all.get(*index)?)));
    let gone = entries.map(|(index, entry)| replaced(index, entry, new.selectors)).collect();
    let mut index = 0..;
    all.retain(|_| !index.next().is_some_and(|index| found.contains(&index)));
    Ok(gone)
}

fn not_the_images(image: &PublicKey, given: &'static str, found: &PublicKey) -> Error {
    Error::NotTheImages { image: name_of(image), given, found: name_of(found) }
}

/// Which entries are for a machine with these selectors, and what else they are for.
fn taken(all: &[Entry<'_>], selectors: &[Selector]) -> Error {
    let found = matching(all, selectors);
    let each = found.iter().filter_map(|(index, selector)| {
        let entry = all.get(*index)?;
        Some(format!(
            "{selector} has a config already, entry {} ({})",
            index + 1,
            names(&entry.selectors).join(", ")
        ))
    });
    let place = if found.len() == 1 { "its place" } else { "the place of all of them" };
    Error::Taken { taken: each.collect::<Vec<_>>().join("; "), place }
}

fn replaced(index: usize, entry: &Entry<'_>, new: &[Selector]) -> Replaced {
    let lost = entry.selectors.iter().filter(|selector| !new.contains(selector));
    Replaced {
        number: index + 1,
        selectors: names(&entry.selectors),
        lost: lost.map(ToString::to_string).collect(),
    }
}

fn names(selectors: &[Selector]) -> Vec<String> {
    selectors.iter().map(ToString::to_string).collect()
}

fn place(disk: &mut dyn BlockDevice) -> Result<(u64, u64), Error> {
    let bytes = disk.bytes();
    Ok(boot_volume::place(&mut &mut *disk, bytes)?)
}

fn put(volume: &mut Part<'_, dyn BlockDevice + '_>, content: &[u8]) -> Result<(), Error> {
    // What a change left that was cut off: beside the old file it counts for nothing, alone it is the old file.
    match remove(volume, PATH, NEW_PATH) {
        Err(Error::NoBundle) => rename(volume)?,
        done => done?,
    }
    let steps = Reader::open(&mut *volume)?.add(NEW_PATH, content)?;
    apply(volume, 0, &steps)?;
    remove(volume, NEW_PATH, PATH)?;
    rename(volume)
}

/// Removes a file if `other` is there.
fn remove(volume: &mut Part<'_, dyn BlockDevice + '_>, other: &str, path: &str) -> Result<(), Error> {
    let (directory, other) = other.rsplit_once('/').unwrap_or(("", other));
    let names = Reader::open(&mut *volume)?.list(directory)?;
    if !names.iter().any(|entry| entry.name.eq_ignore_ascii_case(other)) {
        return Err(Error::NoBundle);
    }
    let steps = match Reader::open(&mut *volume)?.remove(path) {
        Err(fat::Error::NotFound(_)) => return Ok(()),
        steps => steps?,
    };
    Ok(apply(volume, 0, &steps)?)
}

fn rename(volume: &mut Part<'_, dyn BlockDevice + '_>) -> Result<(), Error> {
    let name = PATH.rsplit_once('/').map_or(PATH, |(_, name)| name);
    let steps = Reader::open(&mut *volume)?.rename(NEW_PATH, name)?;
    Ok(apply(volume, 0, &steps)?)
}
