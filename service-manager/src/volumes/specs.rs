//! What the documents of the machine config want of the user's volumes: `UserVolumeConfig`, `RawVolumeConfig`.
//!
//! Owns: names of partitions, places of mounts and their options, least sizes.
//! Does not: choose a disk, or look at one; judge: of what is not built validation warns.
//! Source: docs/users/disks.md (labels, /var/mnt); the second generation's defaults.

use config::Document;
use config::documents::{HEADER_BYTES, MaxSize, Provisioning, UserMount, XFS_LEAST_BYTES};
use config::selector::Expression;
use config::v1alpha1::Encryption;
use installer::volumes::{EPHEMERAL, Named, STATE};
use rustix::mount::MountFlags;
use unlock::Record;

use super::handle::Volumes;
use super::wanted::record;

/// What the node keeps on its system disk.
pub(super) const SYSTEM: [&str; 2] = [STATE, EPHEMERAL];
/// Where the user's volumes are mounted, by their names.
pub(super) const MOUNTS: &str = "/var/mnt";
/// What names of the partitions of such volumes begin with.
pub(super) const PREFIXES: [&str; 2] = ["u-", "r-"];

/// A volume as the config wants it.
#[derive(Clone)]
pub(super) struct VolumeSpec {
    /// Its partition: `u-data`.
    pub(super) name: String,
    /// Which disks are meant where it is to be made.
    pub(super) disk: Expression,
    pub(super) least_bytes: u64,
    pub(super) most: Option<MaxSize>,
    /// How it is encrypted.
    pub(super) encryption: Option<Record>,
    /// Where it goes; `None`: it has no file system.
    pub(super) mount: Option<Mount>,
}

/// Where a volume is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    /// `/var/mnt/data`
    pub(super) target: String,
    pub(super) flags: MountFlags,
}

impl VolumeSpec {
    /// The same for the installer, on a disk of this length.
    pub(super) fn named(&self, disk_bytes: u64) -> Named<'_> {
        let most_bytes = self.most.map(|most| most.bytes(disk_bytes));
        let has_filesystem = self.mount.is_some();
        Named { name: &self.name, least_bytes: self.least_bytes, most_bytes, has_filesystem }
    }
}

/// Every volume that the config in force wants.
pub(super) fn in_force(volumes: &Volumes) -> Vec<VolumeSpec> {
    volumes.runtime.document().map(|document| of(&document.documents)).unwrap_or_default()
}

/// The one of this name.
pub(super) fn find(volumes: &Volumes, name: &str) -> Option<VolumeSpec> {
    in_force(volumes).into_iter().find(|spec| spec.name == name)
}

/// Every volume that this node has, or that the config wants.
pub(super) fn all(volumes: &Volumes) -> Vec<String> {
    let mut names: Vec<String> = SYSTEM.map(str::to_owned).into();
    let further = in_force(volumes).into_iter().map(|spec| spec.name).chain(volumes.names());
    for name in further {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Every volume that these documents want, in their order.
pub(super) fn of(documents: &[Document]) -> Vec<VolumeSpec> {
    documents.iter().filter_map(spec).collect()
}

fn spec(document: &Document) -> Option<VolumeSpec> {
    match document {
        Document::UserVolumeConfig(volume) if volume.is_built() => {
            let mount = Mount {
                target: format!("{MOUNTS}/{}", volume.name),
                flags: flags(volume.mount.as_ref().unwrap_or(&UserMount::default())),
            };
            made(&format!("u-{}", volume.name), &volume.provisioning, &volume.encryption, Some(mount))
        }
        Document::RawVolumeConfig(volume) => {
            made(&format!("r-{}", volume.name), &volume.provisioning, &volume.encryption, None)
        }
        _ => None,
    }
}

fn made(
    name: &str,
    provisioning: &Option<Provisioning>,
    encryption: &Option<Encryption>,
    mount: Option<Mount>,
) -> Option<VolumeSpec> {
    let provisioning = provisioning.as_ref()?;
    let header = if encryption.is_some() { HEADER_BYTES } else { 0 };
    let content = if mount.is_some() { XFS_LEAST_BYTES } else { 1 };
    Some(VolumeSpec {
        name: name.to_owned(),
        // Validation has read both.
        disk: Expression::read(provisioning.selector()?).ok()?,
        least_bytes: provisioning.least_bytes().max(content + header),
        most: provisioning.most(),
        encryption: encryption.as_ref().map(record),
        mount,
    })
}

fn flags(mount: &UserMount) -> MountFlags {
    let secure = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::NOATIME, mount.disable_access_time == Some(true));
    flags.set(secure, mount.secure != Some(false));
    flags
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The volumes of a config with these documents.
    pub(crate) fn specs(documents: &[&str]) -> Vec<VolumeSpec> {
        let head = "version: v1alpha1\nmachine: {type: worker, token: a.b}\n";
        let documents = documents.iter().map(|text| format!("---\napiVersion: v1alpha1\nkind: {text}\n"));
        let text = format!("{head}{}", documents.collect::<String>());
        of(&config::load(text.as_bytes()).unwrap_or_else(|error| panic!("{error}")).documents)
    }

    #[test]
    fn documents_say_where_how_large_and_how_mounted() {
        let all = specs(&[
            "UserVolumeConfig\nname: data\nprovisioning: {diskSelector: {match: '!system_disk'}, minSize: 1GiB, maxSize: \
             50%}",
            "UserVolumeConfig\nname: bin\nprovisioning: {diskSelector: {match: '!system_disk'}, minSize: 1MiB}\nmount: \
             {disableAccessTime: true, secure: false}\nencryption: {provider: luks2, keys: [{nodeID: {}}]}",
            "RawVolumeConfig\nname: ceph\nprovisioning: {diskSelector: {match: 'disk.rotational'}, maxSize: 20GiB}",
            "UserVolumeConfig\nname: disk\nvolumeType: disk\nprovisioning: {diskSelector: {match: '!system_disk'}}",
            "UserVolumeConfig\nname: directory\nvolumeType: directory",
            "UserVolumeConfig\nname: old\nfilesystem: {type: ext4}\nprovisioning: {diskSelector: {match: '!system_disk'}, \
             minSize: 1GiB}",
            "SwapVolumeConfig\nname: swap\nprovisioning: {diskSelector: {match: 'disk.rotational'}, maxSize: 20GiB}",
        ]);
        let names: Vec<&str> = all.iter().map(|spec| spec.name.as_str()).collect();
        assert_eq!(names, ["u-data", "u-bin", "r-ceph"]);
        let secure = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        let mount = all[0].mount.as_ref().unwrap();
        assert_eq!((mount.target.as_str(), mount.flags), ("/var/mnt/data", secure));
        assert_eq!(all[1].mount.as_ref().unwrap().flags, MountFlags::NOATIME);
        assert!(all[0].encryption.is_none() && all[1].encryption.is_some() && all[2].mount.is_none());
        let data = all[0].named(10 << 30);
        assert_eq!(
            (data.least_bytes, data.most_bytes, data.has_filesystem),
            (1 << 30, Some(5368709100), true)
        );
        let bin = all[1].named(10 << 30);
        assert_eq!((bin.least_bytes, bin.most_bytes), (316 << 20, None), "what xfs and the header need");
        let ceph = all[2].named(10 << 30);
        assert_eq!((ceph.least_bytes, ceph.most_bytes, ceph.has_filesystem), (1, Some(20 << 30), false));
        assert_eq!(HEADER_BYTES, installer::encryption::HEADER_BYTES);
    }
    #[test]
    fn the_encryption_of_a_document_is_that_of_the_section() {
        const SETTINGS: &str = "{provider: luks2, cipher: aes-xts-plain64, keySize: 256, blockSize: 4096, options: \
            [no_read_workqueue], keys: [{static: {passphrase: secret}, slot: 3}, {nodeID: {}, slot: 1, lockToState: true}]}";
        let section = format!(
            "version: v1alpha1\nmachine: {{type: worker, token: a.b, systemDiskEncryption: {{ephemeral: {SETTINGS}}}}}\n"
        );
        let section = config::load(section.as_bytes()).unwrap_or_else(|error| panic!("{error}")).config;
        let section = super::super::wanted::of_system(&section, "EPHEMERAL").unwrap();
        let place = "provisioning: {diskSelector: {match: '!system_disk'}, minSize: 1GiB}";
        for kind in ["UserVolumeConfig", "RawVolumeConfig"] {
            let all = specs(&[&format!("{kind}\nname: a\n{place}\nencryption: {SETTINGS}")]);
            assert!(all[0].encryption.as_ref() == Some(&section), "{kind}");
        }
    }
}
