//! Why an image was not written to a disk.

use std::io;
use std::path::PathBuf;

use crate::device::{BlockDevice, DeviceError};

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
    /// The file is no image of a disk, as far as can be seen.
    #[error("{} is {what}: {advice}; --as-is writes the file as it is", path.display())]
    NoImage {
        /// The file.
        path: PathBuf,
        /// What it is.
        what: String,
        /// What to do.
        advice: String,
    },
    /// The file ends too early.
    #[error("{} is cut off: {reason}; fetch or build it again", path.display())]
    CutOff {
        /// The file.
        path: PathBuf,
        /// How that is known.
        reason: String,
    },
    /// What is packed cannot be unpacked.
    #[error("{} cannot be unpacked: it is damaged, fetch or build it again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: io::Error,
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
    /// No room is left for a file that stands for a disk.
    #[error(
        "the file system of {target} is full: make room there and run the same command again, and it goes on where it was"
    )]
    Full {
        /// The file.
        target: String,
        /// The write.
        source: DeviceError,
    },
    /// The disk was pulled out.
    #[error("{target} is gone: put it back and run the same command again, and it goes on where it was")]
    Gone {
        /// The disk.
        target: String,
        /// The write.
        source: DeviceError,
    },
    /// The disk could not be written.
    #[error(
        "the disk stopped taking the image: run the same command again once it is there, and it goes on where it was"
    )]
    Write(#[source] DeviceError),
    /// The disk could not be opened.
    #[error(transparent)]
    Open(DeviceError),
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

impl Error {
    /// A write to `target` that failed.
    ///
    /// Whatever number the kernel gives for a write to a disk that is not there any more: the one for a full file
    /// system is among them (Linux' `blkdev_write_iter`, of a disk without a length).
    pub(super) fn of_write(target: &str, device: &dyn BlockDevice, source: DeviceError) -> Self {
        let target = target.to_owned();
        match source.source.kind() {
            _ if device.is_gone() => Self::Gone { target, source },
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded if device.is_file() => {
                Self::Full { target, source }
            }
            _ => Self::Write(source),
        }
    }

    /// Whether the image is to blame: the same command would fail in the same way.
    #[must_use]
    pub fn is_of_image(&self) -> bool {
        matches!(
            self,
            Self::ReadImage { .. } | Self::CutOff { .. } | Self::Damaged { .. } | Self::ImageChanged { .. }
        )
    }
}
