//! The `machine.install` and `machine.disks` sections.

use crate::schema::{ByteSize, section};

section! {
    /// Where the system is installed.
    Install {
        /// Device path of the disk.
        disk "disk": String { example "/dev/sda" };
        /// Properties to find the disk by, instead of its path.
        disk_selector "diskSelector": Option<DiskSelector> { newer true };
        /// Words appended to the kernel command line.
        extra_kernel_args "extraKernelArgs": Vec<String> { example "[console=ttyS0]" };
        /// Image of the installer. Another image of Billet than the running one is pulled and installed; Talos' is passed over.
        image "image": String { default "the running version's", example "registry.example.org/billet/installer:0.2.0" };
        /// System extensions; they are part of the image since long.
        extensions "extensions": Vec<InstallExtension> { newer true, later "system extensions" };
        /// Write a boot loader.
        bootloader "bootloader": Option<bool> { default "true", later "installing without a boot loader" };
        /// Clear the whole disk first.
        wipe "wipe": bool { default "false" };
        /// Also make the disk bootable for firmware of the old kind, though this machine has UEFI.
        legacy_bios_support "legacyBIOSSupport": Option<bool> { newer true };
        /// Take the kernel command line from the image, as is always done.
        grub_use_uki_cmdline "grubUseUKICmdline": Option<bool> { newer true, later "a command line for GRUB alone" };
    }
    folded {
        /// Which disks are meant, in CEL, of an UnattendedInstallConfig; empty where there is none.
        disk_expression: String;
    }
}

impl Install {
    /// Whether a disk is named in any of the three ways.
    #[must_use]
    pub fn names_a_disk(&self) -> bool {
        !self.disk.is_empty() || self.disk_selector.is_some() || !self.disk_expression.is_empty()
    }
}

section! {
    /// Properties to find a disk by; all that are given must match. `*` stands for anything.
    DiskSelector {
        /// Its size, with `<=`, `>=`, `<`, `>` or `==` before it.
        size "size": String { newer true, example "\">= 100GB\"" };
        /// Name of the product.
        name "name": String { newer true };
        /// Model.
        model "model": String { newer true, example "\"Samsung*\"" };
        /// Serial number.
        serial "serial": String { newer true };
        /// Alias of its driver.
        modalias "modalias": String { newer true };
        /// Its UUID.
        uuid "uuid": String { newer true };
        /// Its world wide name.
        wwid "wwid": String { newer true, example "\"eui.*\"" };
        /// Kind of disk: ssd, hdd, nvme or sd.
        kind "type": String { newer true, example "ssd" };
        /// Place on the bus.
        bus_path "busPath": String { newer true, example "\"/pci0000:00/*\"" };
    }
}

section! {
    /// A system extension.
    InstallExtension {
        /// Its image.
        image "image": String { newer true, example "registry.example.org/gvisor:20251110.0" };
    }
}

section! {
    /// A further disk, partitioned once while it is empty.
    Disk {
        /// Device path.
        device "device": String { example "/dev/sdb" };
        /// Its partitions, in order.
        partitions "partitions": Vec<DiskPartition> {};
    }
}

section! {
    /// A partition of a further disk.
    DiskPartition {
        /// Its size; 0 takes the rest and is for the last one only.
        size "size": ByteSize { default "0" };
        /// Where it is mounted, below /var.
        mountpoint "mountpoint": String { example "/var/mnt/extra" };
    }
}
