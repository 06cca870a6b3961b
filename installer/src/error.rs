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
    /// A directory of the host could not be listed.
    #[error("list {}", path.display())]
    List {
        /// The directory.
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
    #[error("{} is neither file, directory nor symbolic link with a UTF-8 name", path.display())]
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
    /// An entry lies below something that is not a directory.
    #[error("/{path} is no directory, but /{child} lies in it")]
    NotADirectory {
        /// What should be a directory.
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
    /// An image that was just made holds something else than it was to.
    #[error(
        "/{path} of the image that was just made {reason}: what was to be packed does not read back, and nothing of it is kept; \
             leave that entry out, or report it"
    )]
    ReadBack {
        /// The first entry that differs, shortened where it is long; nothing for the image as a whole.
        path: String,
        /// How.
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
        "the kernel argument {argument:?} is empty, has a control character, or is a -name with more behind it: correct {place}"
    )]
    KernelArgument {
        /// The argument.
        argument: String,
        /// Where it comes from.
        place: &'static str,
    },
    /// An argument of init with two values.
    #[error(
        "the kernel argument {name} has two values, and a machine with both does not start: leave one out of {place}"
    )]
    TwoValues {
        /// Its name. Not its values, which may be configs.
        name: String,
        /// Where the second one comes from.
        place: &'static str,
    },
    /// A kernel argument that says where an image runs.
    #[error(
        "the kernel argument {argument:?} changes the platform, which an image names once: use --platform NAME, in a profile platform = \"NAME\""
    )]
    PlatformArgument {
        /// The argument.
        argument: String,
    },
    /// More than the kernel takes.
    #[error(
        "the kernel's command line has {bytes} bytes and may have {most_bytes}, since the kernel cuts off what is behind: shorten kernel arguments or leave some out; the longest is {longest}"
    )]
    LongCommandLine {
        /// Its length.
        bytes: usize,
        /// How long it may be.
        most_bytes: usize,
        /// The longest argument's name and length. Not its value, which may be a config.
        longest: String,
    },
    /// An addon that cannot be made, or that nothing would load.
    #[error("the addon {name:?}: {reason}")]
    Addon {
        /// Its file, or what was to be in it.
        name: String,
        /// What is wrong, and what to do.
        reason: &'static str,
    },
    /// A kernel argument that does not reach the kernel unchanged through GRUB.
    #[error(
        "the kernel argument {argument:?} has a quotation mark or a backslash, which GRUB changes: a machine without UEFI cannot have it; correct machine.install.extraKernelArgs"
    )]
    GrubArgument {
        /// The argument.
        argument: String,
    },
    /// A UKI without a section, or with one that GRUB cannot point to.
    #[error("the UKI has no section {name} that begins at a whole sector of 512 bytes")]
    UkiSection {
        /// Its name.
        name: &'static str,
    },
    /// A disk that a BIOS does not start.
    #[error(
        "this machine has no UEFI and starts from disks with sectors of 512 bytes only; the disk's have {sector_bytes}: choose another disk"
    )]
    BiosSectors {
        /// Bytes of a sector.
        sector_bytes: u32,
    },
    /// GRUB's images are not what they should be.
    #[error(transparent)]
    Grub(#[from] ondisk::grub::Error),
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
    /// A partition that somebody named is not there.
    #[error("failed location partition with label {name:?}: the system disk has no such partition")]
    NoSuchPartition {
        /// The GPT name.
        name: String,
    },
    /// Several partitions of a name that every disk has at most once.
    #[error("{count} partitions are named {name}: none is used; rename or remove all but one")]
    SeveralPartitions {
        /// The GPT name.
        name: String,
        /// How many there are.
        count: usize,
    },
    /// The disk is too small for what the node keeps on it.
    #[error("no room for {name} on the disk: {room_bytes} bytes are free, {needed_bytes} are needed")]
    NoRoom {
        /// The GPT name.
        name: String,
        /// Bytes that it and what comes behind it take at least.
        needed_bytes: u64,
        /// Bytes that are free.
        room_bytes: u64,
    },
    /// A partition of ours holds what nobody of us put there.
    #[error(
        "{name} holds {found}, and no note says that Billet began it: it is left alone; reset it to use it"
    )]
    ForeignVolume {
        /// The GPT name.
        name: String,
        /// What it holds.
        found: String,
    },
    /// A partition has the signatures of several formats.
    #[error(
        "{name} holds {found}, and only one of them can be real: nothing was opened or written. Take the stale one away with \
         its own tool, or wipe the partition if nothing of it is needed (on the system disk: billetctl reset \
         --system-labels-to-wipe {name}; on another one: billetctl wipe disk)"
    )]
    Contradiction {
        /// The GPT name.
        name: String,
        /// What it holds, each with its place.
        found: String,
    },
    /// A partition that is to be encrypted holds data.
    #[error(
        "failed to encrypt the partition {name}, because it is not empty: it holds {found}. There is no in-place encryption: \
         copy what you need, then wipe it (billetctl reset --system-labels-to-wipe {name}), and the next boot encrypts it"
    )]
    NotEmpty {
        /// The GPT name.
        name: String,
        /// What it holds.
        found: String,
    },
    /// A partition that is to be plain is encrypted.
    #[error(
        "{name} is encrypted, and the machine config has no encryption for it: put its keys back into the config, or wipe \
         it (billetctl reset --system-labels-to-wipe {name}) to have it unencrypted"
    )]
    Encrypted {
        /// The GPT name.
        name: String,
    },
    /// No key of the config opens an encrypted volume.
    #[error("failed to open encrypted device {name}, no key matched: {reasons}")]
    NoKeyMatched {
        /// The GPT name.
        name: String,
        /// Each key's slot and what was wrong with it.
        reasons: String,
    },
    /// An encrypted volume could not be made.
    #[error("encrypt {name}: {reason}")]
    Encrypt {
        /// The GPT name.
        name: String,
        /// Why.
        reason: String,
    },
    /// A LUKS2 header could not be read.
    #[error(transparent)]
    LuksHeader(#[from] ondisk::luks2::HeaderError),
    /// A LUKS2 header could not be changed.
    #[error(transparent)]
    LuksChange(#[from] ondisk::luks2::ChangeError),
    /// A reset has begun and is not through: what was to be wiped is not used again.
    #[error("{name} is not used: a reset of its disk is not through")]
    ResetPending {
        /// The GPT name.
        name: String,
    },
    /// A file system could not be made.
    #[error("format {name}: {reason}")]
    Format {
        /// The GPT name.
        name: String,
        /// What the program said.
        reason: String,
    },
    /// A partition could not be made known to the kernel.
    #[error("tell the kernel about partition {name}")]
    Announce {
        /// The GPT name.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// What was wiped does not read as zeros.
    #[error("{name} was wiped, but reads back other than zeros at byte {offset}: the disk is faulty")]
    NotWiped {
        /// The GPT name, or what else was wiped.
        name: String,
        /// Where, from its start.
        offset: u64,
    },
    /// A value of META could not be changed.
    #[error(transparent)]
    Meta(#[from] ondisk::meta::Error),
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
    /// A disk that volumes of the user's were to be made on holds something else.
    #[error(
        "{device} holds {found}: volumes are made on empty disks and beside each other; choose another disk, or wipe it \
         (billetctl wipe disk)"
    )]
    ForeignDisk {
        /// Its path.
        device: String,
        /// What it holds.
        found: String,
    },
    /// A volume of the user's is not as the config wants it.
    #[error(
        "{name} on {device} holds {found}, and the machine config wants it {wanted}: change the config, or copy what you need \
         and wipe the partition (billetctl wipe disk)"
    )]
    OtherVolume {
        /// The GPT name.
        name: String,
        /// The disk's path.
        device: String,
        /// What it holds.
        found: String,
        /// How it is wanted.
        wanted: &'static str,
    },
    /// The disk or the system is not what the plan was made for.
    #[error("{what} since the plan for {device} was made: nothing was written; make a new plan")]
    Changed {
        /// Its path.
        device: String,
        /// What is different.
        what: &'static str,
    },
    /// An image without the initramfs segment with these: nothing says that the kernel has any.
    #[error(
        "the image has no drivers of network cards: an installer image of `cargo xtask build` has them; with a kernel of your \
         own name the directory of `make modules_install` with --kernel-modules, also where everything is built in, since its \
         modules.builtin says what is"
    )]
    NoNetworkDrivers,
    /// Something that images are made of is not there.
    #[error("{from} has no {part}: `cargo xtask build` writes an installer image with all parts")]
    MissingPart {
        /// Directory or image.
        from: String,
        /// What is missing.
        part: String,
    },
    /// A directory of a build, which has the parts in another form.
    #[error("{} is the directory of a build, and images are made of an installer image: give {}", directory.display(), image.display())]
    BuildDirectory {
        /// The directory.
        directory: PathBuf,
        /// The installer image in it.
        image: PathBuf,
    },
    /// A profile that says something that cannot be.
    #[error("{}: {reason}", path.display())]
    BadProfile {
        /// The profile.
        path: PathBuf,
        /// What is wrong, and where.
        reason: String,
    },
    /// Sources of a customisation contradict each other.
    #[error("these layers conflict:\n  {}", list.join("\n  "))]
    Conflicts {
        /// Path and sources, one a line.
        list: Vec<String>,
    },
    /// Something is added where something of another kind is.
    #[error("/{path} of {source_name}: {reason}")]
    Clash {
        /// Where it would go.
        path: String,
        /// Where it comes from.
        source_name: String,
        /// What is there, and what to do.
        reason: &'static str,
    },
    /// A hard link in a tar file whose target does not come before it.
    #[error(
        "{}: /{name} is a hard link to {target}, which does not come before it there: make the tar file with both, or with the \
         link as a file of its own (tar --hard-dereference)", path.display()
    )]
    HardLink {
        /// The tar file.
        path: PathBuf,
        /// The link.
        name: String,
        /// What it leads to.
        target: String,
    },
    /// An entry that no image can hold, or that cannot be read right.
    #[error("{}: /{name} {reason}", path.display())]
    TarEntry {
        /// The tar file.
        path: PathBuf,
        /// The entry, shortened where it is long.
        name: String,
        /// What is wrong, and what to do.
        reason: &'static str,
    },
    /// An entry that squashfs or the kernel cannot hold.
    #[error("/{path} {reason}")]
    Unfit {
        /// The entry, shortened where it is long.
        path: String,
        /// What is wrong, and what to do.
        reason: &'static str,
    },
    /// A path in a tar file that leads out of directories by `..`.
    #[error(
        "{}: {name} has .. in it: make the tar file in the directory that it is of (tar -C DIRECTORY -cf FILE .)", path.display()
    )]
    Climbs {
        /// The tar file.
        path: PathBuf,
        /// The path in it.
        name: String,
    },
    /// A container image where files are wanted.
    #[error(
        "{} is a container image, and its blobs would be added as files: add what is in it by a profile ([[add]] image = …), a \
         system extension by --system-extension-image", path.display()
    )]
    ImageAsFiles {
        /// Its file or directory.
        path: PathBuf,
    },
    /// A file for a directory of the image that may be meant as one, or unpacked.
    #[error(
        "{} is {found}: {advice}; to have it in {to} as it is, name it in a profile ([[add]] file = …, to = \"{to}\")",
        path.display()
    )]
    FileOrTar {
        /// The file.
        path: PathBuf,
        /// Where it would go.
        to: String,
        /// What it is.
        found: &'static str,
        /// What to do for its content.
        advice: &'static str,
    },
    /// A container image for other machines than what is made.
    #[error("{image} is for {offered}, and what is made is for {wanted}: give one for that")]
    ForeignImage {
        /// The image.
        image: String,
        /// What is made.
        wanted: String,
        /// What the image is for.
        offered: String,
    },
    /// Something is added where the parts lie that a node's UKI is made of.
    #[error(
        "/{path} of {source_name}: what lies there is made with the image. Give a kernel by --kernel-path ([kernel] in a profile, \
         /usr/install/vmlinuz behind FROM), kernel arguments by --extra-kernel-arg (kernel-arguments)"
    )]
    BootPart {
        /// Where it would go.
        path: String,
        /// Where it comes from.
        source_name: String,
    },
    /// A path that a system cannot be without.
    #[error("{path} cannot be removed: nothing starts without it; name what lies in it")]
    NotRemovable {
        /// As it was given.
        path: String,
    },
    /// A file that should have a certificate.
    #[error("{} has no certificate in PEM form (-----BEGIN CERTIFICATE-----)", path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// A file with certificates that has something else, too.
    #[error("{}: {reason}", path.display())]
    BadCertificate {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// A kernel that cannot be used, or its modules.
    #[error("kernel {kernel}: {reason}")]
    Kernel {
        /// Its release, file or directory.
        kernel: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// A kernel without options that a node needs.
    #[error("kernel {kernel} will not do: its configuration lacks what a node needs:{report}")]
    KernelLacks {
        /// Its release.
        kernel: String,
        /// A line for each option.
        report: String,
    },
    /// Kernel and modules of different builds.
    #[error("the kernel is {kernel} and the modules are for {modules}: give both from one build")]
    KernelMismatch {
        /// What the kernel says.
        kernel: String,
        /// What the modules' directory says.
        modules: String,
    },
    /// Modules were changed, and no kernel came with them.
    #[error(
        "{system} has no kernel: its modules were removed or are for another kernel now, and none came with that. COPY the \
         kernel to /usr/install/vmlinuz behind FROM, or name it (--kernel-path; in a profile [kernel] path)"
    )]
    NoKernel {
        /// The image or system.
        system: String,
    },
    /// A system extension that is none, or for another system.
    #[error("extension {name}: {reason}")]
    Extension {
        /// Its name, or where it lies as long as that is not known.
        name: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// A list of this repository that is not as it must be.
    #[error("{name}: {reason}")]
    BadList {
        /// Its name.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// The key of configs of single machines cannot be used.
    #[error("read {}", path.display())]
    BadConfigKey {
        /// Its file.
        path: PathBuf,
        /// Why.
        source: crate::bundle::Error,
    },
    /// The volume that firmware starts a disk from could not be read.
    #[error("read the EFI system partition")]
    BootVolume(#[from] crate::boot_volume::Error),
    /// An ISO 9660 image could not be laid out.
    #[error(transparent)]
    Iso(#[from] ondisk::iso9660::Error),
    /// What firmware with Secure Boot would not start.
    #[error(transparent)]
    Distrust(#[from] crate::distrust::Distrust),
    /// What firmware starts could not be signed.
    #[cfg(feature = "image")]
    #[error(transparent)]
    Sign(#[from] crate::secure_boot::Error),
    /// An installer image could not be read or written.
    #[cfg(feature = "image")]
    #[error(transparent)]
    Oci(#[from] oci::Error),
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

/// An error with its causes, as it is printed.
#[cfg(test)]
pub(crate) fn in_full(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
