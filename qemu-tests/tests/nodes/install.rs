//! docs/users/installing.md: from a medium and a blank disk to a node that starts by itself.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use api::proto::machine as proto;
use installer::image::Kind;
use proto::lifecycle_service_client::LifecycleServiceClient;
use proto::lifecycle_service_install_progress::Response;
use qemu_tests::cli::Billetctl;
use qemu_tests::credentials::{Credentials, HOSTNAME};
use qemu_tests::installer_image::{Parts, Registry};
use qemu_tests::node::{BOOT_LIMIT, Transport};
use qemu_tests::process::POLL_INTERVAL;
use qemu_tests::rpc::Rpc;
use qemu_tests::{Bus, Drive, TestNode, VmBuilder, deadline};

use crate::encryption::{BOOT, MACHINE, node_id, passphrase, section};
use crate::images::made;

/// Everything that an installed disk has, and a little of EPHEMERAL; nearly all of it is a hole.
const DISK_BYTES: u64 = 4 << 30;
/// Layers and boot files written and read back, by an emulated processor.
pub(crate) const INSTALL_LIMIT: Duration = Duration::from_secs(120);
const KEPT: &str = "/system/state/config.yaml";
/// Where a disk holds somebody's data.
const FOREIGN_AT: u64 = 70_000;

fn blank(path: &Path) -> File {
    let file = File::options().read(true).write(true).create(true).truncate(true).open(path).unwrap();
    file.set_len(DISK_BYTES).unwrap();
    file
}

pub(crate) fn with_blank(vm: VmBuilder, dir: &Path) -> VmBuilder {
    let disk = dir.join("disk.img");
    blank(&disk);
    vm.drive(Drive::writable(&disk, Bus::Sata))
}

/// The config with these lines in the place of the one that names the disk.
pub(crate) fn installing(config: &str, lines: &[&str]) -> String {
    let line = config.lines().find(|line| line.trim_start() == "disk: /dev/sda").unwrap();
    let indent = line.len() - line.trim_start().len();
    let lines: Vec<String> = lines.iter().map(|line| format!("{}{line}", " ".repeat(indent))).collect();
    config.replacen(line, &lines.join("\n"), 1)
}

/// A blank machine, started from a stick, that installs the image which its config names, and starts from its disk.
/// `said`: how the line about the installation goes on.
pub(crate) fn installed_from(registry: &Registry, image: &str, name: &str, said: &str) -> TestNode {
    let credentials = Credentials::generate().unwrap();
    let named = format!("image: {image}");
    let config = installing(&credentials.machine_config().unwrap(), &["disk: /dev/sda", &named]);
    let config = config.replacen("machine:\n", &format!("machine:\n{}", registry.machine_section()), 1);
    let node = TestNode::builder(name)
        .transport(Transport::Stick)
        .config(&config)
        .credentials(credentials)
        .machine(|vm, dir| Ok(with_blank(vm, dir)))
        .start()
        .unwrap();
    node.vm().expect(&format!("installed Billet {said}"), INSTALL_LIMIT * 2).unwrap();
    node.vm().expect("root from /dev/sda2 (ROOT-A)", INSTALL_LIMIT).unwrap();
    node
}

/// Applies a config to a node in maintenance mode. What is said about an installation goes to the person, not to a script.
fn apply(node: &TestNode, config: &str) -> Result<String, String> {
    let output = node.apply_in_maintenance(config).map_err(|error| format!("{error:#}"))?;
    if output.success { Ok(output.stderr) } else { Err(output.stderr) }
}

/// The ISO that `image build` makes, in a CD drive, as a board's remote console offers it.
#[test]
fn a_blank_machine_becomes_a_node_that_starts_by_itself() {
    let directory = tempfile::tempdir().unwrap();
    let iso = made(Kind::Iso, directory.path());
    let node = TestNode::builder("install-blank")
        .transport(Transport::Network)
        .no_config()
        .machine(move |vm, dir| Ok(with_blank(vm.drive(Drive::new(&iso, Bus::Cdrom)).uefi(), dir)))
        .start()
        .unwrap();
    node.wait_maintenance().unwrap();
    let said = apply(&node, &node.credentials().machine_config().unwrap()).unwrap();
    assert!(said.contains("Billet is installed to /dev/sda: model QEMU HARDDISK"), "{said}");
    for line in [
        "install plan: disk /dev/sda: model QEMU HARDDISK",
        "install plan: holds: nothing",
        "install plan:   3 ROOT-B",
        "install plan:   data  0..",
        "install plan: plan ",
        "install: boot files 100 %",
        "install: write 5",
        "install: verify 100 %",
        "installed Billet ",
        "the firmware starts /dev/sda first (Boot",
        "the machine config is kept on STATE of /dev/sda",
    ] {
        node.vm().expect(line, INSTALL_LIMIT).unwrap();
    }
    // The CD is still there: it is the firmware's entry that starts the disk.
    node.vm().expect("root from /dev/sda2 (ROOT-A)", INSTALL_LIMIT).unwrap();
    node.vm().expect("machine config: taken from STATE", BOOT_LIMIT).unwrap();
    node.wait_api(BOOT_LIMIT).unwrap();
    let kept = node.admin().ok(&["read", KEPT]).unwrap();
    assert!(kept.contains(HOSTNAME), "{kept}");
    let layers = node.admin().ok(&["get", "rootlayers"]).unwrap();
    assert!(layers.contains("kernel"), "{layers}");
}

#[test]
fn somebodys_disk_is_refused_until_it_may_be_wiped() {
    let node = TestNode::builder("install-foreign")
        .installs()
        .source("")
        .no_config()
        .machine(|vm, dir| {
            let disk = dir.join("disk.img");
            blank(&disk).write_all_at(b"somebody's data", FOREIGN_AT).unwrap();
            let switched = dir.join("switched.img");
            blank(&switched);
            let drive = format!("if=none,id=switched,format=raw,readonly=on,file={}", switched.display());
            let vm = vm.extra(&["-drive", &drive, "-device", "virtio-blk-pci,drive=switched"]);
            Ok(vm.drive(Drive::writable(&disk, Bus::Sata)))
        })
        .start()
        .unwrap();
    node.wait_maintenance().unwrap();
    let config = node.credentials().machine_config().unwrap();
    let refused = apply(&node, &config).unwrap_err();
    for part in [
        "the disk /dev/sda of machine.install.disk cannot be installed to",
        "/dev/sda: model QEMU HARDDISK, serial ",
        "it holds data of an unknown kind, the first at byte 70000: machine.install.wipe: true has it erased",
    ] {
        assert!(refused.contains(part), "{part:?} is not in\n{refused}");
    }
    let refused = apply(&node, &installing(&config, &["disk: /dev/sdx"])).unwrap_err();
    assert!(refused.contains("specified install disk does not exist: \"/dev/sdx\""), "{refused}");
    let refused = apply(&node, &installing(&config, &["disk: /dev/vda"])).unwrap_err();
    assert!(refused.contains("/dev/vda") && refused.contains("it is read-only"), "{refused}");
    let mut start = vec![0; 1 << 20];
    File::open(node.files().join("disk.img")).unwrap().read_exact_at(&mut start, 0).unwrap();
    let at = usize::try_from(FOREIGN_AT).unwrap();
    assert!(start[at..].starts_with(b"somebody's data") && start[..at].iter().all(|byte| *byte == 0));

    // Named as udev names it.
    let (_, serial) = refused.split_once("/dev/sda: model QEMU HARDDISK, serial ").unwrap();
    let (serial, _) = serial.split_once(',').unwrap();
    let link = format!("ata-QEMU_HARDDISK_{serial}");
    let disk = format!("disk: /dev/disk/by-id/{link}");
    let said = apply(&node, &installing(&config, &[&disk, "wipe: true"])).unwrap();
    assert!(said.contains("Billet is installed to /dev/sda"), "{said}");
    // QEMU starts the same kernel again: it finds an installed disk, and leaves it alone.
    node.vm().expect("installed Billet ", INSTALL_LIMIT).unwrap();
    node.vm().expect("machine config: taken from STATE", INSTALL_LIMIT).unwrap();
    node.wait_api(BOOT_LIMIT).unwrap();
    let admin = node.admin();
    prints_soon(admin, &["get", "blocksymlinks", "-o", "yaml"], &format!("/dev/disk/by-id/{link}"));
    prints_soon(admin, &["ls", "/dev/disk/by-id"], &format!("{link}-part1"));
    prints_soon(admin, &["ls", "/dev/disk/by-partlabel"], "STATE");
    assert!(admin.ok(&["get", "disk", "sda", "-o", "yaml"]).unwrap().contains("by-path/pci-0000:00:"));
}

/// Waits until a command prints something: devices are listed once all drivers are there.
fn prints_soon(admin: &Billetctl, command: &[&str], wanted: &str) {
    let end = Instant::now() + deadline(BOOT_LIMIT);
    loop {
        // A directory of links is there with its first link.
        let printed = admin.ok(command);
        if printed.as_ref().is_ok_and(|text| text.contains(wanted)) {
            return;
        }
        assert!(Instant::now() < end, "{command:?} does not print {wanted:?}: {printed:?}");
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// A config from a volume, a disk by its properties, sectors of 4096 bytes, both volumes encrypted from the start, STATE
/// with Adiantum.
#[test]
#[ignore = "long run"]
fn a_machine_with_a_config_volume_installs_itself_without_anybody() {
    let credentials = Credentials::generate().unwrap();
    let selector = ["diskSelector:", "  type: nvme", "  size: '>= 3GiB'", "  serial: late*"];
    let config = installing(&credentials.machine_config().unwrap(), &selector);
    let keys = section(&node_id(0), &passphrase(0, "not for anybody"));
    let keys = keys.replacen("      keys", "      cipher: xchacha12,aes-adiantum-plain64\n      keys", 1);
    let config = config.replacen("machine:\n", &format!("machine:\n{keys}"), 1);
    // Under UEFI: older firmware starts nothing from such sectors.
    let node = TestNode::builder("install-unattended")
        .transport(Transport::Stick)
        .config(&config)
        .credentials(credentials)
        .machine(|vm, dir| {
            let disk = dir.join("disk.img");
            blank(&disk);
            let drive = format!("if=none,id=late,format=raw,file={}", disk.display());
            let device = "nvme,serial=late-disk,drive=late,logical_block_size=4096,physical_block_size=4096";
            Ok(vm.extra(&["-drive", &drive, "-device", device, "-uuid", MACHINE]))
        })
        .start()
        .unwrap();
    for line in [
        "install plan: disk /dev/nvme0n1: model QEMU NVMe Ctrl, serial late-disk, 1048576 sectors of 4096 bytes",
        "installed Billet ",
        "STATE is /dev/mapper/luks2-STATE",
        "the machine config is kept on STATE of /dev/nvme0n1",
        // The system that was installed.
        "STATE on /dev/nvme0n1p5 opened by the nodeID key in slot 0",
        "machine config: taken from STATE",
    ] {
        node.vm().expect(line, INSTALL_LIMIT).unwrap();
    }
    node.wait_api(BOOT).unwrap();
    node.vm().wait_for("EPHEMERAL is encrypted, opened by the static key in slot 0", BOOT).unwrap();
    prints_soon(node.admin(), &["get", "systemdisk"], "nvme0n1");
}

/// The medium only has to start: the config's image is what the disk gets.
#[test]
#[ignore = "long run"]
fn the_image_that_the_config_names_is_installed_and_not_the_mediums_system() {
    let registry = Registry::start().unwrap();
    let image = registry.keep("0.2.0", &Parts::of_build().unwrap().image("0.2.0")).unwrap();
    let node = installed_from(&registry, &image, "install-image", "0.2.0 ");
    node.answers(BOOT_LIMIT).unwrap();
    assert!(node.admin().ok(&["version"]).unwrap().contains("0.2.0"));
}

/// What newer clients call in maintenance mode: the caller hears every step and then the end.
#[test]
#[ignore = "long run"]
fn a_machine_is_installed_by_the_lifecycle_service() {
    let node =
        TestNode::builder("install-lifecycle").machine(|vm, dir| Ok(with_blank(vm, dir))).start().unwrap();
    node.expect("billet: boot sequence: done").unwrap();
    let admin = node.credentials().client(Some("os:admin")).unwrap();
    let rpc = Rpc::connect(&node, Some(&admin)).unwrap();
    let install = |disk: &str| {
        let request = proto::LifecycleServiceInstallRequest {
            containerd: None,
            source: None,
            destination: Some(proto::InstallDestination { disk: disk.to_owned() }),
        };
        rpc.call(|client| async move {
            let mut answers =
                LifecycleServiceClient::new(client.channel()).install(request).await?.into_inner();
            let (mut said, mut code) = (Vec::new(), None);
            while let Some(answer) = answers.message().await? {
                match answer.progress.and_then(|progress| progress.response) {
                    Some(Response::Message(line)) => said.push(line),
                    Some(Response::ExitCode(number)) => code = Some(number),
                    None => {}
                }
            }
            Ok((said.join("\n"), code))
        })
        .unwrap()
    };
    let (said, code) = install("/dev/sdx");
    assert!(code == Some(1) && said.contains("does not exist: \"/dev/sdx\""), "{code:?} {said}");
    let (said, code) = install("/dev/sda");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("write") && said.contains("verify"), "{said}");
    let (said, code) = install("/dev/sda");
    assert!(code == Some(1) && said.contains("this machine is installed"), "{code:?} {said}");
    assert!(node.admin().ok(&["read", KEPT]).unwrap().contains(HOSTNAME));
}
