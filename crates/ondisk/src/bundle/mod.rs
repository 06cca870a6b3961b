//! The config bundle: one file that says which machine takes which machine config, under one signature.
//!
//! Owns: the bytes of the file, in both directions; which entries are a machine's.
//! Does not: check or make the signature, read a config.
//! Order: [`Frame::read`] finds signature and key; only then, once the caller has checked them, [`Frame::entries`]
//! looks at what was signed.
//! Fails by: [`Error`], which names the byte where it begins.
//! Source: docs/formats/config-bundle.md. Numbers are little-endian. A config holds secrets: what borrows one has no `Debug`.

mod alike;
mod sealed;
mod selector;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use zeroize::Zeroizing;

use crate::field::{array, bytes, le16, le32, u8_at};

pub use sealed::{Parts, Sealed, TAG_BYTES};
pub use selector::{NotASelector, Selector};

/// The file on an EFI system partition.
pub const PATH: &str = "EFI/billet/configs.bundle";

/// A new one, until the old one is gone. Where it alone is there, a change was cut off behind its last write.
pub const NEW_PATH: &str = "EFI/billet/configs.new";

/// The public key in the initramfs, hence under the signature of the UKI: its 32 bytes.
pub const KEY_PATH: &str = "/etc/billet/config.key";

/// Where init leaves it for machined.
pub const KEPT_KEY_PATH: &str = "/run/billet/config.key";

/// Bytes of an Ed25519 public key (RFC 8032 §5.1.5).
pub const KEY_BYTES: usize = 32;

/// Bytes of an Ed25519 signature (RFC 8032 §5.1.6).
pub const SIGNATURE_BYTES: usize = 64;

/// Longest file: a thousand configs of 8 KiB. An ISO keeps twice this free, for the old one and the new one.
pub const MAX_BYTES: usize = 8 << 20;

/// Most entries.
pub const MAX_ENTRIES: usize = 4096;

/// Most selectors of an entry: a machine with many cards has a MAC for each.
pub const MAX_SELECTORS: usize = 64;

/// An Ed25519 public key.
pub type PublicKey = [u8; KEY_BYTES];

/// The only version that is read.
const VERSION: u32 = 1;

const MAGIC: &[u8; 8] = b"BILLETCB";

/// Offset 0 magic (8), 8 version (4), 12 entries (4), 16 bytes of the file (4), 20 zeros (12), 32 public key (32).
const HEADER_BYTES: usize = 64;

/// Offset 0 bytes of the entry (4), 4 kind of the payload (1), 5 zero (1), 6 selectors (2), then these, each kind (1),
/// length (1) and value; the payload is the rest.
const ENTRY_HEAD_BYTES: usize = 8;

/// The payload is the config.
const PLAIN: u8 = 0;

/// The payload is encrypted for one device.
const SEALED: u8 = 1;

/// The config of some machines.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry<'b> {
    /// Any of these makes it a machine's; there is at least one.
    pub selectors: Vec<Selector>,
    /// The config.
    pub payload: Payload<'b>,
}

/// What an entry has for its machine.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Payload<'b> {
    /// The config's text.
    Plain(&'b [u8]),
    /// The same, encrypted for the device.
    Sealed(Sealed<'b>),
}

/// A file whose parts are found, and nothing more known of it.
#[derive(Clone, Copy)]
pub struct Frame<'b> {
    /// The key that it says to be signed with.
    pub key: PublicKey,
    /// What the signature covers: everything before it.
    pub message: &'b [u8],
    /// The signature.
    pub signature: [u8; SIGNATURE_BYTES],
    count: usize,
}

/// Why a file is no bundle, or none can be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// It does not begin as one.
    Magic,
    /// Of a version that is not read.
    Version(u32),
    /// Longer than [`MAX_BYTES`].
    TooLong(usize),
    /// The header says that it is as long as this, and it is not.
    Length {
        /// What the header says.
        said: usize,
        /// What there is.
        there: usize,
    },
    /// More entries than [`MAX_ENTRIES`].
    TooMany(usize),
    /// An entry is not what it must be.
    Entry {
        /// Its number, from 1.
        number: usize,
        /// Where it begins.
        offset: usize,
        /// What is wrong.
        reason: &'static str,
    },
    /// Something follows the last entry.
    Behind(usize),
    /// Two entries have one selector: nobody could say which is the machine's.
    Twice {
        /// The selector.
        selector: String,
        /// Numbers of the entries, from 1.
        entries: [usize; 2],
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic => f.write_str("byte 0: it does not begin as a config bundle"),
            Self::Version(version) => {
                write!(f, "byte 8: it is of version {version}, and this program reads {VERSION}")
            }
            Self::TooLong(length) => write!(f, "it has {length} bytes, and {MAX_BYTES} are the most"),
            Self::Length { said, there } => {
                write!(f, "byte 16: it should have {said} bytes and has {there}: it was cut off or damaged")
            }
            Self::TooMany(count) => {
                write!(f, "byte 12: it has {count} entries, and {MAX_ENTRIES} are the most")
            }
            Self::Entry { number, offset, reason } => write!(f, "byte {offset}, entry {number}: {reason}"),
            Self::Behind(offset) => write!(f, "byte {offset}: something follows the last entry"),
            Self::Twice { selector, entries: [first, second] } => {
                write!(f, "{selector} is in entry {first} and in entry {second}")
            }
        }
    }
}

impl core::error::Error for Error {}

impl<'b> Frame<'b> {
    /// Finds key, signature and what is signed.
    pub fn read(file: &'b [u8]) -> Result<Self, Error> {
        if file.len() > MAX_BYTES {
            return Err(Error::TooLong(file.len()));
        }
        if bytes(file, 0, MAGIC.len()) != Some(MAGIC) {
            return Err(Error::Magic);
        }
        let cut = |said| Error::Length { said, there: file.len() };
        let number = |offset| le32(file, offset).ok_or(cut(HEADER_BYTES + SIGNATURE_BYTES));
        match number(8)? {
            VERSION => {}
            other => return Err(Error::Version(other)),
        }
        let (count, said) = (to_usize(number(12)?), to_usize(number(16)?));
        if said != file.len() {
            return Err(cut(said));
        }
        if count > MAX_ENTRIES {
            return Err(Error::TooMany(count));
        }
        let end = said.checked_sub(SIGNATURE_BYTES).filter(|end| *end >= HEADER_BYTES);
        let end = end.ok_or(cut(HEADER_BYTES + SIGNATURE_BYTES))?;
        let parts = (array(file, 32), file.get(..end), array(file, end));
        match parts {
            (Some(key), Some(message), Some(signature)) => Ok(Self { key, message, signature, count }),
            _ => Err(cut(said)),
        }
    }

    /// Whether it is one that an image is made with: without entries and signature, to be added to.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        self.count == 0 && self.signature == [0; SIGNATURE_BYTES] && self.message.len() == HEADER_BYTES
    }

    /// What is signed. To be called once the signature was checked.
    pub fn entries(&self) -> Result<Vec<Entry<'b>>, Error> {
        let mut entries = Vec::new();
        let mut offset = HEADER_BYTES;
        for number in 1..=self.count {
            let bad = |reason| Error::Entry { number, offset, reason };
            let length = le32(self.message, offset).map(to_usize).ok_or(bad("it is missing"))?;
            let entry =
                bytes(self.message, offset, length).ok_or(bad("it ends behind the file's entries"))?;
            entries.push(Entry::read(entry).map_err(bad)?);
            offset = offset.saturating_add(length);
        }
        if offset == self.message.len() { Ok(entries) } else { Err(Error::Behind(offset)) }
    }
}

impl<'b> Entry<'b> {
    fn read(entry: &'b [u8]) -> Result<Self, &'static str> {
        const SHORT: &str = "it is too short for what it says to hold";
        let kind = u8_at(entry, 4).ok_or(SHORT)?;
        let count = usize::from(le16(entry, 6).ok_or(SHORT)?);
        if count == 0 || count > MAX_SELECTORS {
            return Err("it has no selector, or more than 64");
        }
        let mut selectors = Vec::new();
        let mut at = ENTRY_HEAD_BYTES;
        for _ in 0..count {
            let length = usize::from(u8_at(entry, at + 1).ok_or(SHORT)?);
            let value = bytes(entry, at + 2, length).ok_or(SHORT)?;
            let kind = u8_at(entry, at).ok_or(SHORT)?;
            selectors
                .push(Selector::read(kind, value).ok_or("it has a selector of an unknown kind or length")?);
            at += 2 + length;
        }
        let rest = entry.get(at..).filter(|rest| !rest.is_empty()).ok_or("it has no config")?;
        let payload = match (kind, u8_at(entry, 5)) {
            (PLAIN, Some(0)) => Payload::Plain(rest),
            (SEALED, Some(0)) => Payload::Sealed(Sealed::read(rest)?),
            _ => return Err("its config is of an unknown kind"),
        };
        Ok(Self { selectors, payload })
    }

    fn write(&self, to: &mut Vec<u8>) -> Result<(), &'static str> {
        let (kind, payload) = match self.payload {
            Payload::Plain(text) => (PLAIN, text),
            Payload::Sealed(sealed) => (SEALED, sealed.all),
        };
        let count = u16::try_from(self.selectors.len()).unwrap_or(u16::MAX);
        if payload.is_empty() {
            return Err("it has no config");
        }
        if count == 0 || usize::from(count) > MAX_SELECTORS {
            return Err("it has no selector, or more than 64");
        }
        let start = to.len();
        to.extend([0, 0, 0, 0, kind, 0]);
        to.extend(count.to_le_bytes());
        for selector in &self.selectors {
            let (kind, value) = selector.stored();
            let length = u8::try_from(value.len()).map_err(|_| "a selector is longer than 255 bytes")?;
            to.extend([kind, length]);
            to.extend(value);
        }
        to.extend(payload);
        let length = u32::try_from(to.len() - start).map_err(|_| "it is too long")?;
        crate::field::put(to, start, &length.to_le_bytes());
        Ok(())
    }
}

/// What is to be signed for these entries: the file but for its signature.
pub fn message(key: &PublicKey, entries: &[Entry<'_>]) -> Result<Zeroizing<Vec<u8>>, Error> {
    if entries.len() > MAX_ENTRIES {
        return Err(Error::TooMany(entries.len()));
    }
    check_apart(entries)?;
    let payloads = entries.iter().map(|entry| match entry.payload {
        Payload::Plain(text) => text.len(),
        Payload::Sealed(sealed) => sealed.all.len(),
    });
    // Room for all of it: a buffer that grows would leave configs behind in the memory.
    let selectors: usize = entries.iter().map(|entry| entry.selectors.len() * (2 + 255)).sum();
    let room = payloads.sum::<usize>() + selectors + HEADER_BYTES + entries.len() * ENTRY_HEAD_BYTES;
    let mut to = Zeroizing::new(Vec::with_capacity(room + SIGNATURE_BYTES));
    to.extend(MAGIC);
    to.extend(VERSION.to_le_bytes());
    to.extend(u32::try_from(entries.len()).unwrap_or(u32::MAX).to_le_bytes());
    to.extend([0; 16]);
    to.extend(key);
    for (number, entry) in (1..).zip(entries) {
        let offset = to.len();
        entry.write(&mut to).map_err(|reason| Error::Entry { number, offset, reason })?;
    }
    let length = to.len() + SIGNATURE_BYTES;
    if length > MAX_BYTES {
        return Err(Error::TooLong(length));
    }
    crate::field::put(&mut to, 16, &u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    Ok(to)
}

/// A bundle without entries, for images that are to take some.
#[must_use]
pub fn blank(key: &PublicKey) -> Vec<u8> {
    // No entry can be wrong.
    let mut file = message(key, &[]).map(|message| message.to_vec()).unwrap_or_default();
    file.extend([0; SIGNATURE_BYTES]);
    file
}

/// Refuses entries of which two have one selector.
fn check_apart(entries: &[Entry<'_>]) -> Result<(), Error> {
    let all = (1..).zip(entries).flat_map(|(number, entry)| entry.selectors.iter().map(move |s| (s, number)));
    let mut all: Vec<(&Selector, usize)> = all.collect();
    all.sort();
    let twice = all.windows(2).find_map(|pair| match pair {
        [(a, first), (b, second)] if a == b && first != second => Some((a, [*first, *second])),
        _ => None,
    });
    match twice {
        Some((selector, entries)) => Err(Error::Twice { selector: alloc::format!("{selector}"), entries }),
        None => Ok(()),
    }
}

/// Places of the entries that are for a machine, with what makes them so. More than one is a mistake of the bundle's.
#[must_use]
pub fn matching<'e>(entries: &'e [Entry<'_>], machine: &[Selector]) -> Vec<(usize, &'e Selector)> {
    let found = entries.iter().enumerate().filter_map(|(index, entry)| {
        Some((index, entry.selectors.iter().find(|selector| machine.contains(selector))?))
    });
    found.collect()
}

fn to_usize(value: u32) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
