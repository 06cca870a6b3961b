//! Why an image was not written to a disk.

use std::io;
use std::path::PathBuf;

/// The operation that failed, its object, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The image could not be read.
    #[error("read the image {}", path.display())]
    ReadImage {
        /// The image.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is not something that can be written as it is.
    #[error("{} is {what}: {advice}", path.display())]
    Unsuitable {
        /// The image.
        path: PathBuf,
        /// What it is.
        what: String,
        /// What to do.
        advice: &'static str,
    },
    /// The image is longer than the disk.
    #[error("{} needs {needed_bytes} bytes, and {target} has {bytes}: choose a larger disk", path.display())]
    TooSmall {
        /// The image.
        path: PathBuf,
        /// The disk.
        target: String,
        /// What the image takes.
        needed_bytes: u64,
        /// What the disk has.
        bytes: u64,
    },
    /// Image and disk have different sectors.
    #[error(
        "{} is made for disks with sectors of {image_bytes} bytes, and those of {target} have {disk_bytes}: make the image with `billetctl image build --sector-size {disk_bytes}`, or choose another disk",
        path.display()
    )]
    Sectors {
        /// The image.
        path: PathBuf,
        /// The disk.
        target: String,
        /// Sectors of the image.
        image_bytes: u32,
        /// Sectors of the disk.
        disk_bytes: u32,
    },
    /// The disk is not one to be overwritten without a word.
    #[error("{target} is not written to: {reason}")]
    Refused {
        /// The disk.
        target: String,
        /// Why, and what to do.
        reason: String,
    },
    /// The target could not be looked at.
    #[error("look at {}", path.display())]
    Look {
        /// What was looked at.
        path: PathBuf,
        /// Why it could not be.
        source: io::Error,
    },
    /// The image changed while it was read.
    #[error("{} changed while it was written to the disk: run the same command again", path.display())]
    ImageChanged {
        /// The image.
        path: PathBuf,
    },
    /// The disk did not keep what was written.
    #[error(
        "{target} reads back differently from the image at byte {offset}: the disk is faulty, use another one"
    )]
    Differs {
        /// The disk.
        target: String,
        /// The first place.
        offset: u64,
    },
    /// The disk could not be written.
    #[error(
        "the disk stopped taking the image: run the same command again once it is there, and it goes on where it was"
    )]
    Write(#[source] crate::device::DeviceError),
    /// The disk could not be opened.
    #[error(transparent)]
    Open(crate::device::DeviceError),
    /// The disk could not be read back.
    #[error("read back {target}: run the same command again once the disk is there")]
    ReadBack {
        /// The disk.
        target: String,
        /// Why.
        source: ondisk::ReadError,
    },
    /// The partition table of the image does not fit the disk.
    #[error("move the image's partition table to the end of {target}")]
    Table {
        /// The disk.
        target: String,
        /// Why.
        source: ondisk::gpt::Error,
    },
    /// The note of how far the writing got could not be kept.
    #[error("keep the note {} of how far the writing got", path.display())]
    Note {
        /// The note.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}
