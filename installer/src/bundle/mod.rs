//! The config bundle of a disk or medium: where it lies, and what of it is proved.
//!
//! Owns: the file on the volume that firmware starts from ([`boot_volume`]); the check of the signature; what one device alone
//! can open. [`add`] changes a bundle and belongs to images.
//! Does not: know whose configs a machine takes ([`ondisk::bundle`] does), read a config.
//! Fails by: [`Error`], which says what to do; its causes are not repeated in its text.
//! Source: docs/formats/config-bundle.md.

#[cfg(feature = "image")]
mod add;
mod sealed;
#[cfg(test)]
mod tests;

use ondisk::bundle::{self, Entry, Frame, PublicKey};
use ondisk::{Digest, ReadAt, fat};
use ring::signature::{ED25519, UnparsedPublicKey};
use zeroize::Zeroizing;

use crate::boot_volume;

pub use ondisk::bundle::{NotASelector, Selector};

pub use sealed::{open, seal};
pub use tpm::{DeviceKey, NotADeviceKey};

#[cfg(feature = "image")]
pub use add::{Added, Listed, New, Replaced, SigningKey, add, list, public_key_from_pem};

/// Why there is no bundle, or why it is not used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The volume with the file could not be had.
    #[error(transparent)]
    BootVolume(#[from] boot_volume::Error),
    /// An image that takes no configs.
    #[error(
        "it has no {}: it was made without a key for configs; make it with `billetctl image build --config-key`",
        bundle::PATH
    )]
    NoBundle,
    /// The file is damaged.
    #[error("the config bundle is not used")]
    Damaged(#[from] bundle::Error),
    /// No bundle can be made of these configs.
    #[error("the image's config bundle cannot take it")]
    DoesNotFit(#[source] bundle::Error),
    /// Somebody changed the file, or signed it with a key of the same name only.
    #[error(
        "the config bundle is not used: its signature is wrong, so it was changed or damaged since it was signed; make the \
         image anew and add its configs with `billetctl image add-config`"
    )]
    Signature,
    /// The file is of another image.
    #[error(
        "the config bundle is signed with key {found}, and this image takes configs of key {wanted}: sign with that, or make the \
         image with the other's public half"
    )]
    OtherKey {
        /// Whose it is.
        found: String,
        /// Whose it should be.
        wanted: String,
    },
    /// Configs of another key than the image's were to be added, or looked for.
    #[error(
        "this image takes configs of key {image}, and the {given} is key {found}: give that of the image, or make the image \
         with the other's public half (`billetctl image build --config-key`)"
    )]
    NotTheImages {
        /// Whose configs the image takes.
        image: String,
        /// What was given.
        given: &'static str,
        /// Its key.
        found: String,
    },
    /// The machine has a config already.
    #[error("{taken}: `--replace` puts the new config in {place}; nothing was changed")]
    Taken {
        /// Which entries have which of the selectors.
        taken: String,
        /// In whose place it would be.
        place: &'static str,
    },
    /// A key that cannot be used.
    #[error("{what}: {reason}")]
    Key {
        /// Which.
        what: &'static str,
        /// What is wrong, and what to do.
        reason: &'static str,
    },
    /// A config that nobody would get.
    #[error("name the machine that the config is for: at least one of --mac, --serial, --uuid, --tpm-key")]
    ForNobody,
    /// A config that cannot be sealed.
    #[error("the config cannot be sealed: {0}")]
    CannotSeal(&'static str),
    /// The TPM does not give the config's key.
    #[error(transparent)]
    Tpm(#[from] tpm::Error),
    /// The TPM gave a key that the config is not encrypted with.
    #[error("the key that it carries does not open it: it was put together wrongly; add it anew")]
    NotThisKey,
    /// The volume is damaged or full.
    #[error("the volume of partition EFI")]
    Volume(#[from] fat::Error),
    /// The disk could not be written.
    #[error(transparent)]
    Device(#[from] crate::device::DeviceError),
    /// What was written is not what is there.
    #[error("the config bundle reads back differently from what was written: the disk is faulty")]
    ReadsBack,
}

/// The name of a key for people: the first 16 digits of its SHA-256.
#[must_use]
pub fn name_of(key: &PublicKey) -> String {
    Digest::sha256(&[key]).to_string().chars().take(16).collect()
}

/// The bundle of a disk or medium as it lies there, nothing of it checked. `None`: it has none, or is no disk of ours.
pub fn find(disk: &mut impl ReadAt, disk_bytes: u64) -> Result<Option<Zeroizing<Vec<u8>>>, Error> {
    let Some(mut volume) = boot_volume::open(disk, disk_bytes)? else { return Ok(None) };
    match read(&mut volume) {
        Ok(file) => Ok(Some(file)),
        Err(Error::NoBundle | Error::Volume(fat::Error::NotFat32)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The file of a volume; the new one where a change was cut off between the old one's end and its renaming.
fn read(volume: &mut impl ReadAt) -> Result<Zeroizing<Vec<u8>>, Error> {
    // One byte more, so that a longer file is refused for its length.
    let limit = u32::try_from(bundle::MAX_BYTES + 1).unwrap_or(u32::MAX);
    let mut reader = fat::Reader::open(volume)?;
    for path in [bundle::PATH, bundle::NEW_PATH] {
        match reader.read(path, limit) {
            Err(fat::Error::NotFound(_)) => {}
            Err(fat::Error::TooLong(length)) => {
                return Err(bundle::Error::TooLong(usize::try_from(length).unwrap_or(usize::MAX)).into());
            }
            file => return Ok(Zeroizing::new(file?)),
        }
    }
    Err(Error::NoBundle)
}

/// The entries of a bundle that this key signed.
pub fn entries<'b>(file: &'b [u8], key: &PublicKey) -> Result<Vec<Entry<'b>>, Error> {
    let frame = Frame::read(file)?;
    if frame.key != *key {
        return Err(Error::OtherKey { found: name_of(&frame.key), wanted: name_of(key) });
    }
    if frame.is_blank() {
        return Ok(Vec::new());
    }
    let signed = UnparsedPublicKey::new(&ED25519, key).verify(frame.message, &frame.signature);
    signed.map_err(|_| Error::Signature)?;
    Ok(frame.entries()?)
}
