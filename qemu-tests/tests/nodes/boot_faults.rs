//! New systems that do not boot, whatever the reason: after at most three starts the old one runs again, says why, and
//! has its config. As upgrades, downgrades and reinstallations of one version, from either slot.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use installer::device::Disk;
use installer::entries::Entry;
use installer::esp::Esp;
use installer::upgrade::Slot;
use qemu_tests::artifacts::build;
use qemu_tests::installer_image::{Parts, Registry};
use qemu_tests::node::BOOT_LIMIT;
use qemu_tests::root::{copy_sparse, partition_offset};
use qemu_tests::settings::rounds;
use qemu_tests::{TestNode, Transport, paths};
use serde_json::json;

use crate::volumes::wait_until;

/// A layer image of 100 MB is pulled, written and read back.
const UPGRADE_LIMIT: Duration = Duration::from_secs(120);
/// One start that fails: the longest waits are those for a disk (45 s) and of a machined that crashes (26 s).
const START_LIMIT: Duration = Duration::from_secs(100);
const DISK_BYTES: u64 = 4 << 30;
/// `IMAGE_DOS_HEADER`, in which firmware finds where the program begins.
const PROGRAM_HEAD_BYTES: usize = 64;
const CONFIG: &str = "/system/state/config.yaml";

/// What is wrong with a new system.
struct Fault {
    name: &'static str,
    /// What each of its starts leaves on the console; `None`: the loader passes it over.
    line: Option<&'static str>,
    /// The firmware stops there: somebody must switch off and on.
    needs_power_cycle: bool,
    /// What is told afterwards, in the status.
    told: &'static [&'static str],
    /// Changes the image.
    image: fn(&mut Parts, &Registry) -> Result<()>,
    /// Changes what was written, between the upgrade and the restart.
    disk: fn(&Path, Slot) -> Result<()>,
}

/// The first one is tried in a short run too.
const FAULTS: [Fault; 7] = [
    Fault {
        name: "hang",
        line: Some("watchdog armed, 4 s"),
        needs_power_cycle: false,
        told: &["stage: init", "cut off: power, reset, watchdog or kernel panic"],
        image: init_hangs,
        disk: as_it_is,
    },
    Fault {
        name: "panic",
        line: Some("Kernel panic"),
        needs_power_cycle: false,
        told: &["before machined"],
        image: no_init,
        disk: as_it_is,
    },
    Fault {
        name: "kernel",
        line: Some("Bad kernel image: Load error"),
        needs_power_cycle: true,
        told: &["before machined"],
        image: no_kernel,
        disk: as_it_is,
    },
    Fault {
        name: "uki",
        line: None,
        needs_power_cycle: false,
        told: &["before machined"],
        image: |_, _| Ok(()),
        disk: torn_uki,
    },
    Fault {
        name: "crash",
        line: Some(
            "boot failed: start_machined: machined ended 8 times in a row, the last time with exit status 3",
        ),
        needs_power_cycle: false,
        // The reason, and the last lines of the flight recorder.
        told: &["failed in start_machined: machined ended 8", "billet: init: boot failed: start_machined"],
        image: |parts, registry| replace(parts, registry, "usr/bin/machined"),
        disk: as_it_is,
    },
    Fault {
        name: "api",
        line: Some("not well within 40 s (deadline trial): the API does not answer"),
        needs_power_cycle: false,
        told: &["not well within 40 s (deadline trial): the API does not answer"],
        image: api_never_ready,
        disk: as_it_is,
    },
    Fault {
        name: "root-hash",
        line: Some("boot failed: find_layers"),
        needs_power_cycle: false,
        told: &["stage: init", "failed in find_layers", "is corrupt or of another version"],
        image: another_layer,
        disk: wrong_root_hash,
    },
];

fn as_it_is(_: &Path, _: Slot) -> Result<()> {
    Ok(())
}

/// init opens machined before it leaves its own root: a pipe that nobody writes to keeps it there for ever.
fn init_hangs(parts: &mut Parts, registry: &Registry) -> Result<()> {
    let directory = registry.new_directory("pipe")?;
    std::fs::create_dir_all(directory.join("usr/bin"))?;
    let made =
        Command::new("mkfifo").arg(directory.join("usr/bin/machined")).status().context("run mkfifo")?;
    ensure!(made.success(), "mkfifo ended with {made}");
    parts.cover(&directory, registry)?;
    parts.add_arguments("billet.watchdog=4")
}

/// The kernel has nothing to start.
fn no_init(parts: &mut Parts, _: &Registry) -> Result<()> {
    parts.boot_part("init.cpio.zst")?.clear();
    Ok(())
}

/// The firmware and the stub find no kernel to start in the UKI: it has a kernel's header, which a node looks at, and no
/// program's.
fn no_kernel(parts: &mut Parts, _: &Registry) -> Result<()> {
    let head = parts.boot_part("vmlinuz")?.get_mut(..PROGRAM_HEAD_BYTES);
    head.context("the kernel is shorter than a program's head")?.fill(0x5a);
    Ok(())
}

/// Without this the running slot would hold the very same layers, and the new system would start from there.
fn another_layer(parts: &mut Parts, registry: &Registry) -> Result<()> {
    let directory = registry.new_directory("another")?;
    std::fs::create_dir_all(directory.join("usr/share"))?;
    std::fs::write(directory.join("usr/share/another"), "another system\n")?;
    parts.cover(&directory, registry)
}

/// The API's program ends at once, again and again. machined is well.
fn api_never_ready(parts: &mut Parts, registry: &Registry) -> Result<()> {
    parts.add_arguments("billet.trial=40")?;
    replace(parts, registry, "usr/bin/apid")
}

/// Has a program of the root end with status 3.
fn replace(parts: &mut Parts, registry: &Registry, path: &str) -> Result<()> {
    let directory = registry.new_directory(&path.replace('/', "-"))?;
    let file = directory.join(path);
    std::fs::create_dir_all(file.parent().context("a path with directories")?)?;
    std::fs::write(&file, program_that_ends_with_3())?;
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    parts.cover(&directory, registry)
}

/// An ELF file for x86-64: header, one segment, three instructions.
fn program_that_ends_with_3() -> Vec<u8> {
    const BASE: u64 = 0x40_0000;
    // mov edi, 3; mov eax, 60 (exit); syscall
    let code = [0xbf, 3, 0, 0, 0, 0xb8, 60, 0, 0, 0, 0x0f, 0x05];
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    for half in [2_u16, 62] {
        file.extend(half.to_le_bytes());
    }
    file.extend(1_u32.to_le_bytes());
    for word in [BASE + 120, 64, 0] {
        file.extend(word.to_le_bytes());
    }
    file.extend(0_u32.to_le_bytes());
    for half in [64_u16, 56, 1, 0, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    // A segment that is loaded, readable and executable.
    for word in [1_u32, 5] {
        file.extend(word.to_le_bytes());
    }
    let bytes = 120 + code.len() as u64;
    for word in [0, BASE, BASE, bytes, bytes, 0x1000] {
        file.extend(word.to_le_bytes());
    }
    file.extend(code);
    file
}

/// The hash tree's top block in the slot that was just written: no disk has what the manifest names.
fn wrong_root_hash(image: &Path, slot: Slot) -> Result<()> {
    let file = File::options().read(true).write(true).open(image)?;
    let slot = partition_offset(&file, slot.partition())?;
    let layer = &Parts::of_build()?.manifest.layers[0];
    file.write_all_at(&[0x5a; 4096], slot + layer.offset + layer.hash_offset)?;
    Ok(())
}

fn on_trial(image: &Path) -> Result<Entry> {
    with_esp(image, |esp| {
        let entries = esp.entries()?;
        entries.into_iter().find(|entry| entry.trial.is_some()).context("no entry is on trial")
    })
}

/// What is left of the UKI's first sectors after somebody else wrote there.
fn torn_uki(image: &Path, _: Slot) -> Result<()> {
    let entry = on_trial(image)?;
    with_esp(image, |esp| {
        let mut uki = esp.read(entry)?;
        uki[..4096].fill(0x5a);
        esp.remove(entry)?;
        Ok(esp.add(entry, &uki, &mut |_| {})?)
    })
}

fn with_esp<T>(image: &Path, work: impl FnOnce(&mut Esp<'_, Disk>) -> Result<T>) -> Result<T> {
    let start = partition_offset(&File::open(image)?, "EFI")?;
    let end = partition_offset(&File::open(image)?, "ROOT-A")?;
    let mut disk = Disk::open_shared(image)?;
    work(&mut Esp::new(&mut disk, start, end - start))
}

/// A node on a disk that the test can change while it runs.
struct Upgraded {
    node: TestNode,
    registry: Registry,
    image: PathBuf,
    config: String,
    _dir: tempfile::TempDir,
}

impl Upgraded {
    fn start(name: &str) -> Self {
        let dir = paths::temporary_dir().unwrap();
        let image = dir.path().join("disk.img");
        copy_sparse(&build().test.disk, &image).unwrap();
        // Room for STATE and EPHEMERAL.
        File::options().write(true).open(&image).unwrap().set_len(DISK_BYTES).unwrap();
        let registry = Registry::start().unwrap();
        let builder = TestNode::builder(name).transport(Transport::Firmware).disk(&image);
        let builder = builder.machine_section(&registry.machine_section());
        let node = builder.machine(|vm, _| Ok(vm.watchdog())).boot().unwrap();
        node.expect("billet: boot sequence: done").unwrap();
        let config = node.admin().ok(&["read", CONFIG]).unwrap();
        Self { node, registry, image, config, _dir: dir }
    }

    /// Where the running system's root is. Not to be told from what was written where: a system starts from either slot
    /// that has its layers, and one that was written on top of the same layers has them too.
    fn slot(&self) -> Slot {
        let text = self.node.vm().console().text();
        // Not a line of an earlier boot that the report of a fallback repeats.
        let line = text.lines().rfind(|line| line.contains("] billet: init: root from ")).unwrap();
        [Slot::A, Slot::B].into_iter().find(|slot| line.contains(slot.partition())).unwrap()
    }

    /// Asks for an upgrade and waits until it is written.
    fn write(&self, image: &str) {
        let words = ["upgrade", "--wait=false", "--image", image];
        self.node.admin().ok_within(&words, UPGRADE_LIMIT).unwrap();
        self.node.vm().expect("will be tried at the next start", UPGRADE_LIMIT).unwrap();
    }

    /// Whether the machine stands still where it would start again: then nobody reads the disk while it is changed.
    fn holds_at_its_restart(&self, holds: bool) {
        let (reboot, shutdown) = if holds { ("shutdown", "pause") } else { ("reset", "poweroff") };
        let actions = json!({ "reboot": reboot, "shutdown": shutdown });
        self.node.vm().qmp().execute("set-action", actions).unwrap();
    }

    fn status(&self) -> String {
        self.node.answers(BOOT_LIMIT).unwrap();
        self.node.admin().ok(&["get", "upgradestatus", "-o", "yaml"]).unwrap()
    }

    /// A system without a fault, of this tag, is tried and kept.
    fn is_kept(&self, image: &str, version: &str) {
        self.write(image);
        let line = format!("version {version} proved itself and is kept");
        self.node.vm().expect(&line, UPGRADE_LIMIT).unwrap();
        let status = self.status();
        assert!(status.contains("state: kept"), "{status}");
        self.is_as_before(version);
    }

    fn is_as_before(&self, version: &str) {
        assert!(self.node.admin().ok(&["version"]).unwrap().contains(version));
        assert_eq!(self.node.admin().ok(&["read", CONFIG]).unwrap(), self.config);
    }

    /// Upgrades, and changes what was written before the machine starts again.
    fn write_and_spoil(&self, image: &str, spoil: fn(&Path, Slot) -> Result<()>) {
        let running = self.slot();
        self.holds_at_its_restart(true);
        self.write(image);
        let is_held = || {
            let status = self.node.vm().qmp().execute("query-status", json!({})).unwrap();
            status["status"] == "shutdown"
        };
        wait_until("the machine to end", UPGRADE_LIMIT, is_held);
        spoil(&self.image, running.other()).unwrap();
        self.holds_at_its_restart(false);
        self.node.vm().qmp().execute("system_reset", json!({})).unwrap();
        self.node.vm().qmp().execute("cont", json!({})).unwrap();
    }

    /// A new system whose own slot is broken starts from the running slot where that has the very same layers.
    fn is_healed(&self, image: &str, version: &str) {
        let running = self.slot();
        self.write_and_spoil(image, wrong_root_hash);
        let root = self.node.vm().expect("root from ", START_LIMIT).unwrap();
        assert!(root.contains(running.partition()), "{root}");
        let line = format!("version {version} proved itself and is kept");
        self.node.vm().expect(&line, UPGRADE_LIMIT).unwrap();
        self.node.answers(BOOT_LIMIT).unwrap();
        self.is_as_before(version);
    }

    /// A system of this version with a fault is left, and `from` runs again.
    fn falls_back(&self, fault: &Fault, version: &str, from: &str) {
        let mut parts = Parts::of_build().unwrap();
        (fault.image)(&mut parts, &self.registry).unwrap();
        let image = self.registry.keep(fault.name, &parts.image(version)).unwrap();
        self.write_and_spoil(&image, fault.disk);
        let starts = if fault.line.is_some() { 3 } else { 0 };
        for _ in 0..starts {
            self.node.vm().expect(fault.line.unwrap(), START_LIMIT).unwrap();
            if fault.needs_power_cycle {
                self.node.vm().qmp().execute("system_reset", json!({})).unwrap();
            }
        }
        let line = format!("{from} is back after {starts} start(s) of {version}");
        self.node.vm().expect(&line, START_LIMIT).unwrap();
        let status = self.status();
        for part in fault.told.iter().chain(&["state: fell back", &format!("boots: {starts}")[..]]) {
            assert!(status.contains(part), "{}: {part:?} is not in\n{status}", fault.name);
        }
        self.is_as_before(from);
    }
}

#[test]
fn a_new_system_that_does_not_boot_is_left_with_the_reason() {
    let node = Upgraded::start("boot-faults");
    let count = usize::try_from(rounds(1, u32::MAX)).unwrap();
    for fault in FAULTS.iter().take(count) {
        node.falls_back(fault, "0.2.0", &build().version);
    }
}

/// The image of the build as another build of the same version, which is watched from its first second.
fn same_version(node: &Upgraded) -> String {
    let mut parts = Parts::of_build().unwrap();
    parts.add_arguments("billet.watchdog=50").unwrap();
    node.registry.keep("same", &parts.image(&build().version)).unwrap()
}

fn fault(name: &str) -> &'static Fault {
    FAULTS.iter().find(|fault| fault.name == name).unwrap()
}

/// A version may follow itself, as another build or the very same image, and what is broken leads back from either slot.
#[test]
#[ignore = "long run"]
fn either_slot_survives_a_reinstallation_and_a_broken_downgrade() {
    let node = Upgraded::start("boot-faults-again");
    let own = build().version.as_str();
    let same = same_version(&node);
    node.is_kept(&same, own);
    node.is_healed(&same, own);
    node.falls_back(fault("crash"), "0.0.9", own);
    node.falls_back(fault("root-hash"), own, own);
}

#[test]
#[ignore = "long run"]
fn either_slot_survives_what_does_not_start() {
    let node = Upgraded::start("boot-faults-slots");
    let own = build().version.as_str();
    node.falls_back(fault("uki"), "0.2.0", own);
    node.is_kept(&same_version(&node), own);
    node.falls_back(fault("hang"), own, own);
}
