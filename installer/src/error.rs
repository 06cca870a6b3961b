//! Why an image could not be made or a disk not be changed.

use std::io;
use std::path::{Path, PathBuf};

/// The operation that failed and what it was working on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of the host could not be read.
    #[error("read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A folder of the host could not be listed.
    #[error("list {}", path.display())]
    List {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// An output could not be written.
    #[error("write {}", path.display())]
    Write {
        /// The output.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Something of the host that no image can hold: a socket, a name that is not UTF-8.
    #[error("{} is neither file, folder nor symbolic link with a UTF-8 name", path.display())]
    Unsupported {
        /// What it is.
        path: PathBuf,
    },
    /// A path that no tree can hold.
    #[error("/{path} cannot be a path in an image")]
    BadPath {
        /// The path.
        path: String,
    },
    /// Two entries have the same path.
    #[error("/{path} is given twice")]
    Duplicate {
        /// The path.
        path: String,
    },
    /// An entry lies below something that is not a folder.
    #[error("/{path} is no folder, but /{child} lies in it")]
    NotAFolder {
        /// What should be a folder.
        path: String,
        /// What lies in it.
        child: String,
    },
    /// The squashfs image could not be made.
    #[error("squash /{path}: {reason}")]
    Squash {
        /// The entry, or nothing for the image as a whole.
        path: String,
        /// What the squashfs writer says.
        reason: String,
    },
    /// A layer file is not the one that its manifest describes.
    #[error("{}: {reason}", path.display())]
    WrongLayer {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        reason: String,
    },
    /// The data could not be compressed.
    #[error("compress the initramfs")]
    Compress(#[source] io::Error),
    /// A kernel argument that cannot stand in a command line.
    #[error(
        "the kernel argument {argument:?} is empty or has a control character: correct machine.install.extraKernelArgs"
    )]
    KernelArgument {
        /// The argument.
        argument: String,
    },
    /// A hash tree could not be built.
    #[error(transparent)]
    Verity(#[from] ondisk::verity::Error),
    /// The manifest breaks a rule.
    #[error(transparent)]
    Manifest(#[from] ondisk::manifest::Error),
    /// A cpio entry could not be written.
    #[error(transparent)]
    Cpio(#[from] ondisk::cpio::Error),
    /// The UKI could not be assembled.
    #[error(transparent)]
    Pe(#[from] ondisk::pe::Error),
    /// The partition table could not be made.
    #[error(transparent)]
    Gpt(#[from] ondisk::gpt::Error),
    /// A FAT volume could not be made.
    #[error(transparent)]
    Fat(#[from] ondisk::fat::Error),
    /// A device of a node could not be written.
    #[error(transparent)]
    Device(#[from] crate::device::DeviceError),
    /// A device of a node could not be read.
    #[error(transparent)]
    ReadDevice(#[from] ondisk::ReadError),
    /// A layer of a new system could not be read.
    #[error("read layer {layer} of the new system")]
    ReadLayer {
        /// Its name.
        layer: String,
        /// Why.
        source: io::Error,
    },
    /// A layer of a new system is not what its manifest says, or the disk did not keep it.
    #[error("layer {layer} {reason}")]
    BadLayer {
        /// Its name.
        layer: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// A UKI that was just written reads back differently.
    #[error(
        "{name} on the EFI system partition reads back differently from what was written: the disk is faulty"
    )]
    BadUki {
        /// Its file name.
        name: String,
    },
    /// A partition that every installed disk has is missing, or there twice.
    #[error("the disk has no partition {name}, or several: it was not installed by Billet")]
    NoPartition {
        /// Its GPT name.
        name: &'static str,
    },
    /// The running system has not proved itself yet, and the other one is what it would fall back to.
    #[error("{name} is still on trial: wait until it is kept, or roll back")]
    OnTrial {
        /// Its UKI.
        name: String,
    },
    /// All numbers of boot entries are used up.
    #[error("boot entries are numbered up to 999999, and that one is taken: install anew")]
    NoGeneration,
    /// No other system that could run.
    #[error("there is no other system on this disk to roll back to")]
    NothingToRollBackTo,
    /// The disk to install to holds something, and nobody said that it may go.
    #[error("{device} holds {found}: choose another disk, or have it wiped (machine.install.wipe: true)")]
    Occupied {
        /// Its path.
        device: String,
        /// What it holds.
        found: String,
    },
    /// The disk or the system is not what the plan was made for.
    #[error("{what} since the plan for {device} was made: nothing was written; make a new plan")]
    Changed {
        /// Its path.
        device: String,
        /// What is different.
        what: &'static str,
    },
    /// The layers do not fit their partition.
    #[error("the layers take {needed_bytes} bytes, a slot has {slot_bytes}")]
    SlotTooSmall {
        /// What the layers take.
        needed_bytes: u64,
        /// What the slot has.
        slot_bytes: u64,
    },
}

impl Error {
    pub(crate) fn read(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Read { path: path.to_owned(), source }
    }

    pub(crate) fn list(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::List { path: path.to_owned(), source }
    }

    #[cfg(feature = "image")]
    pub(crate) fn write(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Write { path: path.to_owned(), source }
    }
}
