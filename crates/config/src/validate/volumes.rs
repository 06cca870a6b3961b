//! Rules of the documents for volumes: the system's, the user's, raw ones, swap.
//!
//! Owns: names and which of them exclude each other, disk selectors, sizes, what each type of volume may say.
//! Does not: look for the disk, or for room on it.
//! Source: docs/users/disks.md (labels, /var/mnt); the second generation's refusals, worded as there.

use super::{Problems, storage};
use crate::documents::{
    Document, FilesystemType, HEADER_BYTES, MaxSize, Provisioning, UserVolumeConfig, VolumeType,
    XFS_LEAST_BYTES,
};
use crate::schema::ByteSize;
use crate::selector::Expression;

/// A name in a partition table has 36 characters; two are for `u-`.
const MOST_NAME_BYTES: usize = 34;
const SELECTOR: &str = "provisioning.diskSelector.match";

/// What the partition of a volume says of its place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// It must say disk and size.
    Partition,
    /// It must say the disk and takes all of it.
    Disk,
    /// It says nothing: it is a directory.
    Directory,
    /// It may say what it likes: the system has defaults.
    System,
}

pub(super) fn check(document: &Document, problems: &mut Problems) {
    let (name, label, place) = match document {
        Document::VolumeConfig(d) => (&d.name, d.name.clone(), Place::System),
        Document::UserVolumeConfig(d) => (&d.name, format!("u-{}", d.name), place(d)),
        Document::RawVolumeConfig(d) => (&d.name, format!("r-{}", d.name), Place::Partition),
        Document::SwapVolumeConfig(d) => (&d.name, format!("s-{}", d.name), Place::Partition),
        _ => return,
    };
    if place == Place::System && !matches!(name.as_str(), "STATE" | "EPHEMERAL" | "IMAGECACHE" | "") {
        problems.add("name", format!("`{name}` is no volume of the system: STATE, EPHEMERAL, IMAGECACHE"));
    }
    if place != Place::System && !is_name(name) {
        let rule = format!("letters, digits and `-`, at most {MOST_NAME_BYTES}");
        problems.add("name", format!("`{name}` is not a volume name: {rule}"));
    }
    let (provisioning, encryption) = match document {
        Document::VolumeConfig(d) => (&d.provisioning, &d.encryption),
        Document::UserVolumeConfig(d) => (&d.provisioning, &d.encryption),
        Document::RawVolumeConfig(d) => (&d.provisioning, &d.encryption),
        Document::SwapVolumeConfig(d) => (&d.provisioning, &d.encryption),
        _ => return,
    };
    if let Some(settings) = encryption {
        storage::encryption(settings, &label, "encryption", problems);
        if label == "STATE" {
            storage::static_key_of_state(settings, "encryption", problems);
        }
    }
    if let Document::UserVolumeConfig(document) = document {
        user(document, problems);
    }
    if let Document::UserVolumeConfig(document) = document
        && place == Place::Partition
    {
        let header = if encryption.is_some() { HEADER_BYTES } else { 0 };
        room_for_files(document, XFS_LEAST_BYTES + header, problems);
    }
    if matches!(place, Place::Partition | Place::Disk)
        && provisioning.as_ref().is_some_and(|p| p.grow == Some(true))
    {
        let message = "it takes all the room up to maxSize when it is made; growing later is not built yet";
        problems.warn("provisioning.grow", message);
    }
    if place != Place::Directory {
        let nothing = Provisioning::default();
        provision(provisioning.as_ref().unwrap_or(&nothing), place, problems);
    }
}

fn place(document: &UserVolumeConfig) -> Place {
    match document.volume_type.unwrap_or_default() {
        VolumeType::Partition => Place::Partition,
        VolumeType::Disk => Place::Disk,
        VolumeType::Directory => Place::Directory,
    }
}

fn is_name(name: &str) -> bool {
    name.len() <= MOST_NAME_BYTES && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

/// The largest size must hold a file system.
fn room_for_files(document: &UserVolumeConfig, least: u64, problems: &mut Problems) {
    let most = document.provisioning.as_ref().and_then(Provisioning::most);
    if let Some(MaxSize::Bytes(bytes)) = most
        && bytes < least
    {
        let mib = least >> 20;
        let message =
            format!("xfs needs {mib} MiB here: write {mib}MiB or more, or make it a RawVolumeConfig");
        problems.add("provisioning.maxSize", message);
    }
}

/// Documents whose volumes would be mounted at the same place below /var/mnt.
pub(super) fn conflicts(documents: &[Document], problems: &mut Problems) {
    let mounted = |document: &Document| {
        let kinds = ["UserVolumeConfig", "ExistingVolumeConfig", "ExternalVolumeConfig"];
        document.name().filter(|name| !name.is_empty() && kinds.contains(&document.kind())).map(str::to_owned)
    };
    for (index, document) in documents.iter().enumerate() {
        let Some(name) = mounted(document) else { continue };
        let before = documents.iter().take(index).find(|other| mounted(other).as_ref() == Some(&name));
        if let Some(before) = before {
            problems.document = Some(index);
            let kind = before.kind();
            problems
                .add("name", format!("a {kind} is mounted at /var/mnt/{name}, too; give one another name"));
        }
    }
}

/// What only volumes of the user's have.
fn user(document: &UserVolumeConfig, problems: &mut Problems) {
    if document.volume_type == Some(VolumeType::Directory) {
        let no_atime = document.mount.as_ref().is_some_and(|mount| mount.disable_access_time.is_some());
        for (field, is_given) in [
            ("provisioning", document.provisioning.is_some()),
            ("encryption", document.encryption.is_some()),
            ("filesystem", document.filesystem.is_some()),
            ("mount.disableAccessTime", no_atime),
        ] {
            if is_given {
                let message = "a directory has none of its own: it lies on EPHEMERAL; leave it out";
                problems.add(field, message);
            }
        }
    }
    // A config of an earlier version may have them; warnings, so that it does not keep a machine from an upgrade.
    match document.volume_type {
        None | Some(VolumeType::Partition) => {}
        Some(VolumeType::Disk) => {
            let message = "a whole disk as a volume is not built yet, this one is not made: leave volumeType out \
                           and take all of the disk by a minSize without maxSize";
            problems.warn("volumeType", message);
        }
        Some(VolumeType::Directory) => {
            let message = "a directory as a volume is not built yet, this one is not made: use a directory below \
                           /var, or a partition";
            problems.warn("volumeType", message);
        }
    }
    let Some(filesystem) = &document.filesystem else { return };
    let other = filesystem.kind.filter(|kind| *kind != FilesystemType::Xfs);
    if let Some(kind) = other {
        let kind = kind.as_str();
        let message = format!("{kind} is not built yet, this volume is not made: leave it out, or write xfs");
        problems.warn("filesystem.type", message);
    }
    if filesystem.project_quota_support == Some(true) {
        let message = "quotas of projects are not built yet; the volume is made without: leave it out";
        problems.warn("filesystem.projectQuotaSupport", message);
    }
    if filesystem.project_quota_support == Some(true) && other.is_some() {
        let message = "project quota support is only available for xfs filesystem";
        problems.add("filesystem.projectQuotaSupport", message);
    }
}

fn provision(provisioning: &Provisioning, place: Place, problems: &mut Problems) {
    match provisioning.disk_selector.as_ref().map(|selector| selector.expression.as_str()) {
        None | Some("") if place != Place::System => {
            let message = "disk selector is required: which disk it is made on, `disk.transport == \"nvme\"`";
            problems.add(SELECTOR, message);
        }
        None => {}
        Some(expression) => {
            if let Err(fault) = Expression::read(expression) {
                problems.add(SELECTOR, format!("disk selector is invalid: {fault}"));
            }
        }
    }
    let (least, most) = (&provisioning.min_size, &provisioning.max_size);
    for (key, text) in [("minSize", least), ("maxSize", most)] {
        let field = format!("provisioning.{key}");
        if place == Place::Disk && !text.is_empty() {
            problems.add(field, "it takes the whole disk, whatever its size; leave it out");
        } else if !is_size(text, key == "maxSize") {
            let forms = if key == "maxSize" { "10GiB, 50% or -10GiB (left free)" } else { "10GiB" };
            problems.add(field, format!("`{text}` is not a size: {forms}"));
        }
    }
    if place == Place::Disk && provisioning.grow.is_some() {
        problems.add("provisioning.grow", "it takes the whole disk, whatever its size; leave it out");
    }
    if place == Place::Partition && least.is_empty() && most.is_empty() {
        problems.add("provisioning.minSize", "min size or max size is required: 10GiB");
    }
    let both = (ByteSize::parse(least), ByteSize::parse(most));
    if let (Some(least), Some(most)) = both
        && least.0 > most.0
    {
        problems.add("provisioning.minSize", "min size is greater than max size");
    }
}

fn is_size(text: &str, may_be_percent: bool) -> bool {
    text.is_empty() || ByteSize::parse(text).is_some() || (may_be_percent && MaxSize::parse(text).is_some())
}
