//! Documents for volumes: the system's, the user's, raw, existing, external, swap.

use super::{Matcher, Scrub, Trim};
use crate::{
    schema::{ByteSize, choice, section},
    v1alpha1::Encryption,
};

/// mkfs.xfs makes nothing smaller.
pub const XFS_LEAST_BYTES: u64 = 300 << 20;
/// What the header of an encrypted volume takes of its partition.
pub const HEADER_BYTES: u64 = 16 << 20;

section! {
    /// A volume of the system: STATE, EPHEMERAL or IMAGECACHE.
    VolumeConfig {
        /// Which one.
        name "name": String { newer true, example "EPHEMERAL" };
        /// Where and how large it is.
        provisioning "provisioning": Option<Provisioning> { newer true, later "placing the system's volumes" };
        /// What is on it.
        filesystem "filesystem": Option<SystemFilesystem> { newer true, later "settings of file systems" };
        /// Its encryption.
        encryption "encryption": Option<Encryption> { newer true };
        /// How it is mounted.
        mount "mount": Option<SystemMount> { newer true, later "mount options of the system's volumes" };
        /// Giving back blocks that hold nothing.
        trim "trim": Option<Trim> { newer true, later "trimming file systems" };
        /// Checks of its file system.
        scrub "scrub": Option<Scrub> { newer true, later "scrubbing file systems" };
    }
}

section! {
    /// How a volume of the system is mounted.
    SystemMount {
        /// Nothing on it can be run, and no set-user-id has effect.
        secure "secure": Option<bool> { newer true };
        /// Do not note when a file was read.
        disable_access_time "disableAccessTime": Option<bool> { newer true };
    }
}

section! {
    /// What is on a volume of the system.
    SystemFilesystem {
        /// Settings of XFS.
        xfs "xfs": Option<XfsSettings> { newer true };
    }
}

section! {
    /// Settings of XFS, of a file system that is made.
    XfsSettings {
        /// Least size of its allocation groups.
        min_allocation_group_size "minAllocationGroupSize": String { newer true, example "1GiB" };
    }
}

section! {
    /// Where and how large a volume is.
    Provisioning {
        /// The disk: the first with room that is meant.
        disk_selector "diskSelector": Option<DiskMatcher> { newer true };
        /// Grow with the disk. Not built for volumes that are there, which a warning says.
        grow "grow": Option<bool> { newer true };
        /// Least size.
        min_size "minSize": String { newer true, example "2.5GiB" };
        /// Largest size: bytes, or percent of the disk, or with `-` before it what is left free.
        max_size "maxSize": String { newer true, example "50GiB" };
    }
}

/// A largest size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaxSize {
    /// So many bytes.
    Bytes(u64),
    /// So much of the disk.
    Percent(u8),
    /// All of the disk but so many bytes.
    AllBut(u64),
}

impl MaxSize {
    /// Reads it; `None` for what is none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let percent = |text: &str| text.trim().parse::<u8>().ok().filter(|percent| *percent <= 100);
        let bytes = |text: &str| ByteSize::parse(text).map(|size| size.0);
        match (text.trim().strip_suffix('%'), text.trim().strip_prefix('-')) {
            (Some(number), _) => percent(number).map(Self::Percent),
            (None, Some(free)) => bytes(free).map(Self::AllBut),
            (None, None) => bytes(text).map(Self::Bytes),
        }
    }

    /// Bytes, on a disk of this length.
    #[must_use]
    pub fn bytes(self, disk_bytes: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => disk_bytes / 100 * u64::from(percent),
            Self::AllBut(free) => disk_bytes.saturating_sub(free),
        }
    }
}

impl Provisioning {
    /// Which disks are meant; `None` where it is not said.
    #[must_use]
    pub fn selector(&self) -> Option<&str> {
        let text = self.disk_selector.as_ref().map(|selector| selector.expression.as_str());
        text.filter(|text| !text.is_empty())
    }

    /// Least size in bytes; 0 where it is not said.
    #[must_use]
    pub fn least_bytes(&self) -> u64 {
        ByteSize::parse(&self.min_size).map_or(0, |size| size.0)
    }

    /// Largest size; `None`: all the room that there is.
    #[must_use]
    pub fn most(&self) -> Option<MaxSize> {
        MaxSize::parse(&self.max_size)
    }
}

section! {
    /// Which disks are meant.
    DiskMatcher {
        /// An expression in CEL that is true for them. [Disks](disks.md#which-disk) has the language.
        expression "match": String { newer true, example "'disk.transport == \"nvme\"'" };
    }
}

section! {
    /// A volume of the user, mounted below /var/mnt.
    UserVolumeConfig {
        /// Its name.
        name "name": String { newer true, example "local-volume" };
        /// What it is made of. Only partitions are built; one of the others is warned of and not made.
        volume_type "volumeType": Option<VolumeType> { newer true, default "partition" };
        /// Where and how large it is.
        provisioning "provisioning": Option<Provisioning> { newer true };
        /// What is on it. Only xfs without quotas of projects is built; a volume with another one is warned of and not made.
        filesystem "filesystem": Option<FilesystemSpec> { newer true };
        /// Its encryption.
        encryption "encryption": Option<Encryption> { newer true };
        /// How it is mounted.
        mount "mount": Option<UserMount> { newer true };
        /// Giving back blocks that hold nothing.
        trim "trim": Option<Trim> { newer true, later "trimming file systems" };
        /// Checks of its file system.
        scrub "scrub": Option<Scrub> { newer true, later "scrubbing file systems" };
    }
}

impl UserVolumeConfig {
    /// Whether volumes like this are made: partitions with xfs are, of others validation warns.
    #[must_use]
    pub fn is_built(&self) -> bool {
        let kind = self.filesystem.as_ref().and_then(|filesystem| filesystem.kind);
        matches!(self.volume_type, None | Some(VolumeType::Partition))
            && matches!(kind, None | Some(FilesystemType::Xfs))
    }
}

choice! {
    /// What a volume is made of.
    VolumeType {
        /// A partition.
        Partition "partition";
        /// A whole disk.
        Disk "disk";
        /// A directory of EPHEMERAL.
        Directory "directory";
    }
}

section! {
    /// What is on a volume.
    FilesystemSpec {
        /// The file system.
        kind "type": Option<FilesystemType> { newer true, default "xfs" };
        /// Count the space of projects.
        project_quota_support "projectQuotaSupport": Option<bool> { newer true };
        /// Settings of XFS.
        xfs "xfs": Option<XfsSettings> { newer true, later "settings of file systems" };
    }
}

choice! {
    /// A file system.
    FilesystemType {
        /// XFS.
        Xfs "xfs";
        /// ext4.
        Ext4 "ext4";
        /// Btrfs.
        Btrfs "btrfs";
    }
}

section! {
    /// How a volume of the user is mounted.
    UserMount {
        /// Do not note when a file was read.
        disable_access_time "disableAccessTime": Option<bool> { newer true, default "false" };
        /// Nothing on it can be run, and neither set-user-id nor devices have effect.
        secure "secure": Option<bool> { newer true, default "true" };
    }
}

section! {
    /// A volume without a file system.
    RawVolumeConfig {
        /// Its name.
        name "name": String { newer true, example "local-device" };
        /// Where and how large it is.
        provisioning "provisioning": Option<Provisioning> { newer true };
        /// Its encryption.
        encryption "encryption": Option<Encryption> { newer true };
    }
}

section! {
    /// A volume that is there already.
    ExistingVolumeConfig {
        /// Its name.
        name "name": String { newer true, example "my-existing-volume" };
        /// How it is found.
        discovery "discovery": Option<VolumeDiscovery> { newer true };
        /// How it is mounted.
        mount "mount": Option<ExistingMount> { newer true };
        /// Giving back blocks that hold nothing.
        trim "trim": Option<Trim> { newer true, later "trimming file systems" };
        /// Checks of its file system.
        scrub "scrub": Option<Scrub> { newer true, later "scrubbing file systems" };
    }
}

section! {
    /// How a volume is found.
    VolumeDiscovery {
        /// By an expression.
        volume_selector "volumeSelector": Option<Matcher> { newer true };
    }
}

section! {
    /// How a volume that is there already is mounted.
    ExistingMount {
        /// Without leave to write.
        read_only "readOnly": Option<bool> { newer true };
        /// Do not note when a file was read.
        disable_access_time "disableAccessTime": Option<bool> { newer true };
        /// Nothing on it can be run, and no set-user-id has effect.
        secure "secure": Option<bool> { newer true };
    }
}

section! {
    /// A volume of another machine.
    ExternalVolumeConfig {
        /// Its name.
        name "name": String { newer true, example "shared" };
        /// How it is reached.
        filesystem_type "filesystemType": String { newer true, example "virtiofs" };
        /// How it is mounted.
        mount "mount": Option<ExternalMount> { newer true };
    }
}

section! {
    /// How a volume of another machine is mounted.
    ExternalMount {
        /// Without leave to write.
        read_only "readOnly": Option<bool> { newer true };
        /// Do not note when a file was read.
        disable_access_time "disableAccessTime": Option<bool> { newer true };
        /// Nothing on it can be run, and no set-user-id has effect.
        secure "secure": Option<bool> { newer true };
        /// From the hypervisor.
        virtiofs "virtiofs": Option<Virtiofs> { newer true };
    }
}

section! {
    /// A directory of the hypervisor.
    Virtiofs {
        /// Its tag.
        tag "tag": String { newer true, example "Data" };
    }
}

section! {
    /// A volume for memory that is not used.
    SwapVolumeConfig {
        /// Its name.
        name "name": String { newer true, example "swap1" };
        /// Where and how large it is.
        provisioning "provisioning": Option<Provisioning> { newer true };
        /// Its encryption.
        encryption "encryption": Option<Encryption> { newer true };
    }
}

section! {
    /// Compressed memory before swap.
    ZswapConfig {
        /// Its share of the memory.
        max_pool_percent "maxPoolPercent": Option<u8> { newer true, default "20", example "25" };
        /// Write cold pages to swap.
        shrinker_enabled "shrinkerEnabled": Option<bool> { newer true };
    }
}
