//! Documents for what lies above single disks: volume groups, arrays; and the care of file systems.

use super::Matcher;
use crate::schema::{GoDuration, choice, section};

section! {
    /// How often blocks that hold nothing are given back to the disks.
    FilesystemTrimConfig {
        /// Between two times.
        interval "interval": Option<GoDuration> { newer true, example "168h" };
    }
}

section! {
    /// How often file systems are checked while they are mounted.
    FilesystemScrubConfig {
        /// Between two times.
        interval "interval": Option<GoDuration> { newer true, example "168h" };
    }
}

section! {
    /// Give back blocks of this volume that hold nothing.
    Trim {
        /// Whether it is done.
        enabled "enabled": Option<bool> { newer true };
        /// Between two times.
        interval "interval": Option<GoDuration> { newer true, example "168h" };
    }
}

section! {
    /// Check this volume's file system while it is mounted.
    Scrub {
        /// Whether it is done.
        enabled "enabled": Option<bool> { newer true };
        /// Between two times.
        interval "interval": Option<GoDuration> { newer true, example "168h" };
    }
}

section! {
    /// A volume group of LVM.
    LVMVolumeGroupConfig {
        /// Its name.
        name "name": String { newer true, example "vg0" };
        /// What it is made of.
        provisioning "provisioning": Option<VolumeMembers> { newer true };
    }
}

section! {
    /// A logical volume of LVM.
    LVMLogicalVolumeConfig {
        /// Its name.
        name "name": String { newer true, example "data" };
        /// Its kind.
        kind "type": String { newer true, example "linear" };
        /// Copies.
        mirrors "mirrors": Option<u32> { newer true };
        /// Stripes.
        stripes "stripes": Option<u32> { newer true };
        /// Where and how large it is.
        provisioning "provisioning": Option<LogicalVolumePlace> { newer true };
    }
}

section! {
    /// Where and how large a logical volume is.
    LogicalVolumePlace {
        /// The group.
        volume_group "volumeGroup": String { newer true, example "vg0" };
        /// Least size.
        min_size "minSize": String { newer true, example "2.5GiB" };
        /// Largest size.
        max_size "maxSize": String { newer true, example "50GiB" };
    }
}

section! {
    /// An array of disks.
    RAIDArrayConfig {
        /// Its name.
        name "name": String { newer true, example "md0" };
        /// Its level.
        level "level": Option<RaidLevel> { newer true };
        /// Version of what is written to the disks.
        metadata "metadata": Option<RaidMetadata> { newer true };
        /// What it is made of.
        provisioning "provisioning": Option<VolumeMembers> { newer true };
    }
}

section! {
    /// What a group or an array is made of.
    VolumeMembers {
        /// Which volumes.
        volume_selector "volumeSelector": Option<Matcher> { newer true };
    }
}

choice! {
    /// Levels of arrays.
    RaidLevel {
        /// Each disk holds everything.
        Raid1 "raid1";
    }
}

choice! {
    /// Versions of what an array writes to its disks.
    RaidMetadata {
        /// At the end.
        V10 "1.0";
        /// Near the start.
        V12 "1.2";
    }
}
