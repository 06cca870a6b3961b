//! The disks of this machine, as somebody who is about to overwrite one wants to see them.
//!
//! Owns: model, serial, size, what uses a disk, which ones are for flashing, the reasons against one.
//! Does not: open a disk.
//! Source: kernel Documentation/ABI/stable/sysfs-block; proc(5) on mountinfo and swaps.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use super::Error;

/// Whole block devices that are no disks of anybody.
const NOT_DISKS: [&str; 5] = ["ram", "zram", "sr", "fd", "dm-"];

/// Mount points whose disk this machine runs from.
const SYSTEM: [&str; 6] = ["/", "/usr", "/boot", "/boot/efi", "/efi", "/var"];

/// Bytes of the sectors that sysfs counts in, whatever the disk's are.
const SYSFS_SECTOR_BYTES: u64 = 512;

/// A whole disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// `sda`.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// Its sectors.
    pub sector_bytes: u32,
    /// Vendor and model.
    pub model: String,
    /// Serial number; empty if it tells none.
    pub serial: String,
    /// Whether another disk that is here tells the same serial number, model and size: sticks of one batch, slots of one
    /// card reader.
    pub has_twin: bool,
    /// Whether it can be taken out: a stick, a card, a disk on USB.
    pub is_removable: bool,
    /// Whether it takes no writes.
    pub is_read_only: bool,
    /// What uses it, in words.
    pub uses: Vec<String>,
    /// Whether this machine runs from it.
    pub is_system: bool,
    /// Whether it makes zeros without writing them, as it says of itself.
    pub zeroes_at_once: bool,
    /// The file that it is made of, if it is a loop device.
    pub backing_file: Option<PathBuf>,
}

impl Disk {
    /// Its device.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        Path::new("/dev").join(&self.name)
    }

    /// What tells it from other disks. The kernel's name is part of it only where the serial number does not: a stick that
    /// is put back often has another name.
    #[must_use]
    pub fn identity(&self) -> String {
        let Self { name, bytes, model, serial, has_twin, .. } = self;
        if *has_twin || serial.is_empty() {
            return format!("named {name}, {bytes} bytes, {model}");
        }
        format!("serial {serial}, {bytes} bytes, {model}")
    }

    /// Why it is not written to; `force` overrules what a person may overrule.
    #[must_use]
    pub fn refusal(&self, force: bool) -> Option<String> {
        if self.is_read_only {
            return Some("it is write-protected".to_owned());
        }
        if force {
            return None;
        }
        if self.is_system {
            return Some("this machine runs from it; --force overwrites it all the same".to_owned());
        }
        if !self.uses.is_empty() {
            let uses = self.uses.join(", ");
            return Some(format!("it is in use ({uses}): unmount it, or add --force"));
        }
        let fixed = "it is no removable disk; if you mean it, add --force";
        (!self.is_removable).then(|| fixed.to_owned())
    }
}

/// All disks, by name. `root` is `/`, or a directory with the `sys` and `proc` of another machine.
pub fn list(root: &Path) -> Result<Vec<Disk>, Error> {
    let directory = root.join("sys/block");
    let failed = |source| Error::Look { path: directory.clone(), source };
    let users = Users::read(root)?;
    let mut disks = Vec::new();
    for item in fs::read_dir(&directory).map_err(failed)? {
        let item = item.map_err(failed)?;
        let name = item.file_name().to_string_lossy().into_owned();
        if NOT_DISKS.iter().any(|prefix| name.starts_with(prefix)) {
            continue;
        }
        let disk = look(&item.path(), name, &users);
        if disk.bytes > 0 {
            disks.push(disk);
        }
    }
    disks.sort_by(|a, b| a.name.cmp(&b.name));
    mark_twins(&mut disks);
    Ok(disks)
}

/// The disk that a path leads to; `None`: it is no block device.
pub fn at(root: &Path, path: &Path) -> Result<Option<Disk>, Error> {
    let failed = |source| Error::Look { path: path.to_owned(), source };
    let device = fs::canonicalize(path).map_err(failed)?;
    if !fs::metadata(&device).map_err(failed)?.file_type().is_block_device() {
        return Ok(None);
    }
    let name = device.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let refused = |reason: String| Error::Refused { target: path.display().to_string(), reason };
    if let Some(disk) = list(root)?.into_iter().find(|disk| disk.name == name) {
        return Ok(Some(disk));
    }
    let class = root.join("sys/class/block").join(&name);
    let whole = fs::canonicalize(&class).ok().filter(|_| class.join("partition").exists());
    Err(match whole.as_deref().and_then(Path::parent).and_then(Path::file_name) {
        Some(disk) => refused(format!("it is a partition: name the whole disk, /dev/{}", disk.display())),
        None => refused("it is no disk, or one without a medium".to_owned()),
    })
}

/// Before it all go by their serial numbers.
fn mark_twins(disks: &mut [Disk]) {
    let identities: Vec<_> = disks.iter().map(Disk::identity).collect();
    for (disk, own) in disks.iter_mut().zip(&identities) {
        disk.has_twin = identities.iter().filter(|other| *other == own).count() > 1;
    }
}

fn look(directory: &Path, name: String, users: &Users) -> Disk {
    let number = |file: &str| text(&directory.join(file)).parse::<u64>().unwrap_or(0);
    let device = fs::canonicalize(directory.join("device")).unwrap_or_default();
    let vendor = text(&directory.join("device/vendor"));
    // PCI devices have numbers there.
    let vendor = if vendor.starts_with("0x") { String::new() } else { vendor };
    let model = [text(&directory.join("device/model")), text(&directory.join("device/name"))];
    let model = model.into_iter().find(|model| !model.is_empty()).unwrap_or_default();
    let on_usb = device.components().any(|part| part.as_os_str().to_string_lossy().starts_with("usb"));
    let is_card = name.starts_with("mmcblk") && text(&directory.join("device/type")) == "SD";
    let (uses, is_system) = users.of(directory, &name);
    Disk {
        bytes: number("size").saturating_mul(SYSFS_SECTOR_BYTES),
        sector_bytes: u32::try_from(number("queue/logical_block_size")).unwrap_or(0),
        model: format!("{vendor} {model}").trim().to_owned(),
        serial: serial(directory, &device),
        has_twin: false,
        is_removable: number("removable") == 1 || on_usb || is_card,
        is_read_only: number("ro") == 1,
        uses,
        is_system,
        zeroes_at_once: number("queue/write_zeroes_max_bytes") > 0,
        backing_file: Some(text(&directory.join("loop/backing_file")))
            .filter(|path| !path.is_empty())
            .map(Into::into),
        name,
    }
}

/// The disk's own, else the one of the USB device that it is in.
fn serial(directory: &Path, device: &Path) -> String {
    let own = [directory.join("device/serial"), directory.join("serial")];
    let usb = device.ancestors().filter(|directory| directory.join("idVendor").exists());
    let found = own.into_iter().chain(usb.map(|directory| directory.join("serial")));
    found.map(|path| text(&path)).find(|serial| !serial.is_empty()).unwrap_or_default()
}

fn text(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&bytes).trim_matches(['\0', ' ', '\n', '\t']).to_owned()
}

/// What is mounted or swapped to on this machine.
struct Users {
    /// Device number, source and mount point.
    mounts: Vec<(String, String, String)>,
    swaps: BTreeSet<String>,
}

impl Users {
    fn read(root: &Path) -> Result<Self, Error> {
        let path = root.join("proc/self/mountinfo");
        let mounts = fs::read_to_string(&path).map_err(|source| Error::Look { path, source })?;
        let mounts = mounts.lines().filter_map(|line| {
            let (front, back) = line.split_once(" - ")?;
            let mut front = front.split(' ');
            let (number, point) = (front.nth(2)?.to_owned(), front.nth(1)?.replace("\\040", " "));
            Some((number, back.split(' ').nth(1)?.to_owned(), point))
        });
        let swaps = fs::read_to_string(root.join("proc/swaps")).unwrap_or_default();
        let swaps = swaps.lines().skip(1).filter_map(|line| line.split_whitespace().next());
        Ok(Self { mounts: mounts.collect(), swaps: swaps.map(str::to_owned).collect() })
    }

    /// What uses a disk, its partitions and what is made of them; whether the system does.
    fn of(&self, directory: &Path, name: &str) -> (Vec<String>, bool) {
        let (mut uses, mut is_system) = (Vec::new(), false);
        for (path, name) in parts(directory, name) {
            let number = text(&path.join("dev"));
            let device = format!("/dev/{name}");
            let here = |mount: &&(String, String, String)| mount.0 == number || mount.1 == device;
            for (_, _, point) in self.mounts.iter().filter(here) {
                uses.push(format!("{name} is mounted at {point}"));
                is_system |= SYSTEM.contains(&point.as_str());
            }
            if self.swaps.contains(&device) {
                uses.push(format!("{name} is swap"));
            }
            for holder in names(&path.join("holders")) {
                let holding = path.join("holders").join(&holder);
                let (theirs, system) = self.of(&holding, &holder);
                uses.push(format!("{name} is part of {holder}"));
                uses.extend(theirs);
                is_system |= system;
            }
        }
        (uses, is_system)
    }
}

/// A disk and its partitions.
fn parts(directory: &Path, name: &str) -> Vec<(PathBuf, String)> {
    let mut parts = vec![(directory.to_owned(), name.to_owned())];
    for item in names(directory) {
        if directory.join(&item).join("partition").exists() {
            parts.push((directory.join(&item), item));
        }
    }
    parts
}

fn names(directory: &Path) -> Vec<String> {
    let items = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<_> = items.map(|item| item.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with a system disk under LUKS, a stick and a card reader without a card.
    fn machine() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for (name, size, removable, dev) in
            [("sda", "1000000", "0", "8:0"), ("sdb", "60000", "1", "8:16"), ("sdc", "0", "1", "8:32")]
        {
            put(&format!("sys/block/{name}/size"), size);
            put(&format!("sys/block/{name}/removable"), removable);
            put(&format!("sys/block/{name}/dev"), dev);
            put(&format!("sys/block/{name}/ro"), "0");
            put(&format!("sys/block/{name}/queue/logical_block_size"), "512\n");
            put(&format!("sys/block/{name}/device/model"), &format!("Model {name}  \n"));
            put(&format!("sys/block/{name}/device/vendor"), "ACME    ");
        }
        put("sys/block/sda/queue/write_zeroes_max_bytes", "2147450880\n");
        put("sys/block/sdb/queue/write_zeroes_max_bytes", "0\n");
        put("sys/block/sdb/device/serial", "4C53");
        put("sys/block/sda/sda2/partition", "2");
        put("sys/block/sda/sda2/dev", "8:2");
        put("sys/block/sda/sda2/holders/dm-0/dev", "253:0");
        put("sys/block/sdb/sdb1/partition", "1");
        put("sys/block/sdb/sdb1/dev", "8:17");
        put("sys/block/loop0/size", "0");
        put("sys/block/loop1/size", "100");
        put("sys/block/loop1/loop/backing_file", "/images/a disk.raw\n");
        put("proc/self/mountinfo", "22 1 253:0 / / rw shared:1 - ext4 /dev/mapper/root rw\n");
        put("proc/swaps", "Filename Type Size Used Priority\n");
        root
    }

    #[test]
    fn disks_are_told_with_what_uses_them() {
        let root = machine();
        let disks = list(root.path()).unwrap();
        let names: Vec<_> = disks.iter().map(|disk| disk.name.as_str()).collect();
        assert_eq!(names, ["loop1", "sda", "sdb"], "no empty drives");
        let [made, system, stick] = &disks[..] else { panic!() };
        assert_eq!(made.backing_file.as_deref(), Some(Path::new("/images/a disk.raw")));
        assert_eq!(stick.backing_file, None);
        assert!(system.is_system && !system.is_removable);
        assert_eq!(system.uses, ["sda2 is part of dm-0", "dm-0 is mounted at /"]);
        assert!(system.refusal(false).unwrap().contains("runs from it"));
        assert_eq!((stick.model.as_str(), stick.serial.as_str()), ("ACME Model sdb", "4C53"));
        assert_eq!((stick.bytes, stick.sector_bytes), (60000 * 512, 512));
        assert_eq!(stick.refusal(false), None);
        assert!(system.zeroes_at_once && !stick.zeroes_at_once);
    }

    /// Its note is found again then, as the users' page says.
    #[test]
    fn a_stick_with_a_serial_number_is_the_same_under_another_name() {
        let root = machine();
        let identity = |name: &str| {
            let disks = list(root.path()).unwrap();
            disks.iter().find(|disk| disk.name == name).unwrap().identity()
        };
        let block = root.path().join("sys/block");
        let rename = |from: &str, to: &str| fs::rename(block.join(from), block.join(to)).unwrap();
        let before = identity("sdb");
        rename("sdb", "sdd");
        assert_eq!(identity("sdd"), before);
        for (file, other) in [("size", "60001"), ("device/model", "Another"), ("device/serial", "4C54")] {
            let file = block.join("sdd").join(file);
            let kept = fs::read(&file).unwrap();
            fs::write(&file, other).unwrap();
            assert_ne!(identity("sdd"), before, "{}", file.display());
            fs::write(&file, kept).unwrap();
        }
        assert_eq!(identity("sdd"), before);
        // Without a number nothing else tells two of a kind apart.
        fs::remove_file(block.join("sdd/device/serial")).unwrap();
        let before = identity("sdd");
        rename("sdd", "sdb");
        assert_ne!(identity("sdb"), before);
    }

    /// Each has a note of its own then: the first that is done takes its own away.
    #[test]
    fn two_that_tell_the_same_are_told_apart_by_name() {
        let root = machine();
        let block = root.path().join("sys/block");
        let put = |name: &str, file: &str, text: &str| fs::write(block.join(name).join(file), text).unwrap();
        let identities = || {
            let disks = list(root.path()).unwrap();
            let sticks = disks.iter().filter(|disk| disk.is_removable);
            sticks.map(Disk::identity).collect::<Vec<_>>()
        };
        let alone = identities();
        assert_eq!(alone, ["serial 4C53, 30720000 bytes, ACME Model sdb"]);
        // The other slot of a card reader: no card, then one.
        for (file, text) in [("device/serial", "4C53"), ("device/model", "Model sdb")] {
            put("sdc", file, text);
        }
        assert_eq!(identities(), alone);
        put("sdc", "size", "60000");
        let named = ["sdb", "sdc"].map(|name| format!("named {name}, 30720000 bytes, ACME Model sdb"));
        assert_eq!(identities(), named);
        for (file, same, other) in [
            ("size", "60000", "60001"),
            ("device/model", "Model sdb", "Other"),
            ("device/serial", "4C53", "4"),
        ] {
            put("sdc", file, other);
            let [first, second] = &identities()[..] else { panic!() };
            assert_eq!(first, &alone[0], "{file}");
            assert!(second.starts_with("serial "), "{second}");
            put("sdc", file, same);
        }
        assert_eq!(identities(), named);
    }

    #[test]
    fn a_mounted_stick_and_a_fixed_disk_need_force() {
        let root = machine();
        let mounts = root.path().join("proc/self/mountinfo");
        fs::write(&mounts, "30 1 8:17 / /media/a\\040b rw - vfat /dev/sdb1 rw\n").unwrap();
        fs::remove_dir_all(root.path().join("sys/block/sda/sda2/holders")).unwrap();
        let disks = list(root.path()).unwrap().split_off(1);
        let reason = disks[1].refusal(false).unwrap();
        assert!(reason.contains("sdb1 is mounted at /media/a b") && reason.contains("--force"), "{reason}");
        assert!(disks[0].refusal(false).unwrap().contains("no removable disk"));
        assert_eq!((disks[0].refusal(true), disks[1].refusal(true)), (None, None));
        fs::write(root.path().join("sys/block/sdb/ro"), "1\n").unwrap();
        let disks = list(root.path()).unwrap().split_off(1);
        assert!(disks[1].refusal(true).unwrap().contains("write-protected"));
    }

    #[test]
    fn the_disks_of_this_machine_can_be_listed() {
        for disk in list(Path::new("/")).unwrap() {
            assert!(disk.bytes > 0 && matches!(disk.sector_bytes, 512..=4096), "{disk:?}");
        }
        assert!(at(Path::new("/"), Path::new("/dev/null")).unwrap().is_none());
        assert!(at(Path::new("/"), Path::new("/dev/no-such-disk")).is_err());
    }
}
