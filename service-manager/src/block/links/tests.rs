use super::super::device::{devices, names};
use super::*;

/// Path below a directory and contents.
type Files<'f> = &'f [(&'f str, &'f [u8])];

/// Files below /sys/devices, each device's directory first.
fn machine(described: &[(&str, Files<'_>)]) -> (tempfile::TempDir, std::sync::Arc<Runtime>, Vec<Device>) {
    let dir = tempfile::tempdir().unwrap();
    let runtime = Runtime::detached(dir.path().canonicalize().unwrap());
    let class = runtime.path("/sys/class/block");
    fs::create_dir_all(&class).unwrap();
    fs::create_dir_all(runtime.path("/dev")).unwrap();
    for (directory, files) in described {
        let directory = runtime.path("/sys/devices").join(directory);
        fs::create_dir_all(&directory).unwrap();
        for (file, content) in *files {
            let file = directory.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, content).unwrap();
        }
        if directory.join("size").exists() {
            let name = directory.file_name().unwrap().to_str().unwrap();
            fs::write(runtime.path("/dev").join(name), "").unwrap();
            symlink(&directory, class.join(name)).unwrap();
        }
    }
    let found = devices(&runtime);
    (dir, runtime, found)
}

fn links(described: &[(&str, Files<'_>)], name: &str) -> Vec<String> {
    let (_dir, runtime, devices) = machine(described);
    let own = Claims::of_hardware(&runtime, &devices).of(name);
    own.into_iter().map(|link| link.strip_prefix("/dev/disk/").unwrap().to_owned()).collect()
}

/// One designator of page 83h.
fn page_83(kind: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u8::try_from(bytes.len()).unwrap();
    [&[0, 0x83, 0, length + 4, 2, kind, 0, length], bytes].concat()
}

/// What QEMU's IDE disks answer, as libata passes it on.
fn page_89(model: &str, serial: &str) -> Vec<u8> {
    let mut page = vec![b' '; 572];
    let swapped = |text: &str, length: usize| -> Vec<u8> {
        let padded = format!("{text:<length$}");
        padded.as_bytes().chunks_exact(2).flat_map(|pair| [pair[1], pair[0]]).collect()
    };
    page[60 + 20..60 + 40].copy_from_slice(&swapped(serial, 20));
    page[60 + 54..60 + 94].copy_from_slice(&swapped(model, 40));
    page[60 + 174..60 + 176].copy_from_slice(&[0, 0x41]);
    page[60 + 216..60 + 224].copy_from_slice(&[0x00, 0x50, 0x0c, 0x0a, 0x3e, 0x52, 0x6e, 0xb1]);
    page
}

#[test]
fn a_virtual_disk_and_its_partitions() {
    let disk = "pci0000:00/0000:00:04.0/virtio1/block/vda";
    let part = "pci0000:00/0000:00:04.0/virtio1/block/vda/vda2";
    let devices: [(&str, Files<'_>); 2] = [
        (disk, &[("size", b"9"), ("serial", b"my disk/1"), ("diskseq", b"7\n")]),
        (part, &[("size", b"9"), ("partition", b"2"), ("uevent", b"PARTN=2\n")]),
    ];
    let wanted = [
        "by-diskseq/7",
        "by-id/virtio-my_disk_1",
        "by-path/pci-0000:00:04.0",
        "by-path/virtio-pci-0000:00:04.0",
    ];
    assert_eq!(links(&devices, "vda"), wanted);
    assert_eq!(links(&devices, "vda2"), wanted.map(|link| format!("{link}-part2")));
}

#[test]
fn an_ata_disk_has_its_own_words() {
    let place = "pci0000:00/0000:00:1f.2/ata3";
    let disk = format!("{place}/host2/target2:0:0/2:0:0:0/block/sda");
    let (port, answer) =
        (format!("{place}/ata_port/ata3"), page_89("A model of thirty and more signs", " QM00005 "));
    let device: Files<'_> = &[
        ("size", b"9"),
        ("device/vendor", b"ATA     \n"),
        ("device/model", b"A model of thirt\n"),
        ("device/vpd_pg89", &answer),
    ];
    assert_eq!(
        links(&[(&disk, device), (&port, &[("port_no", b"1\n")])], "sda"),
        [
            "by-id/ata-A_model_of_thirty_and_more_signs_QM00005",
            "by-id/wwn-0x50000a0c523eb16e",
            "by-path/pci-0000:00:1f.2-ata-1",
            "by-path/pci-0000:00:1f.2-ata-1.0",
        ]
    );
    let (_dir, runtime, devices) = machine(&[(&disk, device)]);
    let listed = devices[0].disk(&runtime, &Claims::default());
    assert_eq!((listed.serial.as_str(), listed.model.as_str()), ("QM00005", "A model of thirt"));
    // A kernel or a bridge without the page.
    let device: Files<'_> = &[
        ("size", b"9"),
        ("device/vendor", b"ATA     \n"),
        ("device/model", b"QEMU HARDDISK   \n"),
        ("device/vpd_pg80", b"\0\x80\0\x14QM00005             "),
    ];
    assert_eq!(links(&[(&disk, device)], "sda"), ["by-id/ata-QEMU_HARDDISK_QM00005"]);
}

#[test]
fn a_scsi_disk_by_the_best_of_its_names() {
    let disk = "pci0000:00/0000:00:05.0/virtio2/host7/target7:0:1/7:0:1:3/block/sdb";
    let other = "pci0000:00/0000:00:05.0/virtio2/host6";
    let of = |page: &[u8]| {
        let files: Files<'_> = &[
            ("size", b"9"),
            ("device/vendor", b"QEMU    \n"),
            ("device/model", b"QEMU HARDDISK   \n"),
            ("device/vpd_pg83", page),
        ];
        links(&[(disk, files), (other, &[("x", b"")])], "sdb")
    };
    let place = "by-path/pci-0000:00:05.0-scsi-1:0:1:3";
    assert_eq!(of(&page_83(0, b"drive-scsi0")), ["by-id/scsi-0QEMU_QEMU_HARDDISK_drive-scsi0", place]);
    assert_eq!(of(&page_83(1, b"LIO-ORG disk  7")), ["by-id/scsi-1LIO-ORG_disk_7", place]);
    let mut both = page_83(1, b"LIO-ORG disk");
    both.extend([1, 3, 0, 8, 0x50, 0, 0xc5, 0, 1, 2, 3, 4]);
    assert_eq!(of(&both), ["by-id/scsi-35000c50001020304", "by-id/wwn-0x5000c50001020304", place]);
    // Of a port, and cut off.
    let mut port = page_83(0x13, &[0x50, 0, 0xc5, 0, 1, 2, 3, 4]);
    assert_eq!(of(&port), [place]);
    port.truncate(9);
    assert_eq!(of(&port), [place]);
    assert_eq!(of(&[]), [place]);
}

#[test]
fn disks_on_usb_nvme_cards_and_mappings() {
    let usb = "pci0000:00/0000:00:14.0/usb2/2-4";
    let disk = format!("{usb}/2-4:1.0/host3/target3:0:0/3:0:0:0/block/sdc");
    let scsi = format!("{usb}/2-4:1.0/host3/target3:0:0/3:0:0:0");
    let (dir, runtime, _) = machine(&[
        (usb, &[("idVendor", b"0781\n"), ("serial", b"4C53\n")]),
        (&scsi, &[("vendor", b"SanDisk \n"), ("model", b"Ultra Fit\n")]),
        (&disk, &[("size", b"9")]),
    ]);
    symlink(
        runtime.path("/sys/devices").join(&scsi),
        runtime.path("/sys/devices").join(&disk).join("device"),
    )
    .unwrap();
    let devices = devices(&runtime);
    assert_eq!(
        Claims::of_hardware(&runtime, &devices).of("sdc"),
        [
            "/dev/disk/by-id/usb-SanDisk_Ultra_Fit_4C53-0:0",
            "/dev/disk/by-path/pci-0000:00:14.0-usb-0:4:1.0-scsi-0:0:0:0",
        ]
    );
    drop(dir);
    let disk = "pci0000:00/0000:01:00.0/nvme/nvme0/nvme0n1";
    let files: Files<'_> = &[
        ("size", b"9"),
        ("wwid", b"eui.0025385b01\n"),
        ("nsid", b"1\n"),
        ("device/model", b"Samsung SSD 980   \n"),
        ("device/serial", b"S64  \n"),
    ];
    assert_eq!(
        links(&[(disk, files)], "nvme0n1"),
        [
            "by-id/nvme-Samsung_SSD_980_S64",
            "by-id/nvme-Samsung_SSD_980_S64_1",
            "by-id/nvme-eui.0025385b01",
            "by-path/pci-0000:01:00.0-nvme-1",
        ]
    );
    let disk = "platform/emmc2bus/fe340000.mmc/mmc_host/mmc0/mmc0:aaaa/block/mmcblk0";
    let files: Files<'_> = &[("size", b"9"), ("device/name", b"SC32G\n"), ("device/serial", b"0x1a2b\n")];
    assert_eq!(
        links(&[(disk, files)], "mmcblk0"),
        ["by-id/mmc-SC32G_0x1a2b", "by-path/platform-fe340000.mmc"]
    );
    let files: Files<'_> = &[("size", b"9"), ("dm/name", b"luks2-STATE\n"), ("dm/uuid", b"CRYPT-LUKS2-1\n")];
    assert_eq!(
        links(&[("virtual/block/dm-0", files)], "dm-0"),
        ["by-id/dm-name-luks2-STATE", "by-id/dm-uuid-CRYPT-LUKS2-1"]
    );
    assert_eq!(links(&[("virtual/block/loop0", &[("size", b"9")])], "loop0"), [""; 0]);
}

#[test]
fn a_name_of_two_disks_leads_nowhere() {
    let one = "pci0000:00/0000:00:04.0/virtio1/block/vda";
    let two = "pci0000:00/0000:00:05.0/virtio2/block/vdb";
    let files: Files<'_> = &[("size", b"9"), ("serial", b"same")];
    let (_dir, runtime, devices) = machine(&[(one, files), (two, files)]);
    let mut claims = Claims::of_hardware(&runtime, &devices);
    let volume = DiscoveredVolume { label: "EFI".into(), uuid: "1".into(), ..DiscoveredVolume::default() };
    devices.iter().for_each(|device| claims.add_contents(device, &volume));
    for device in ["vda", "vdb"] {
        assert!(claims.of(device).iter().all(|link| link.starts_with("/dev/disk/by-path/")), "{claims:?}");
    }
    // Labels may be the same; identifiers may not.
    assert_eq!(
        claims.doubled(),
        [
            "/dev/disk/by-id/virtio-same leads nowhere: these devices have that name: vda, vdb",
            "/dev/disk/by-uuid/1 leads nowhere: these devices have that name: vda, vdb",
        ]
    );
}

#[test]
fn what_a_disk_holds_leads_out_of_no_directory() {
    let disk = "pci0000:00/0000:00:04.0/virtio1/block/vda";
    let (_dir, runtime, devices) = machine(&[(disk, &[("size", b"9")])]);
    let mut claims = Claims::default();
    let long = "é".repeat(200);
    for label in ["..", ".", "../../shadow", "a b", "ünï", "\n", long.as_str()] {
        let volume = DiscoveredVolume { label: label.into(), ..DiscoveredVolume::default() };
        claims.add_contents(&devices[0], &volume);
    }
    let table = DiscoveredVolume { name: "gpt".into(), uuid: "2".into(), ..DiscoveredVolume::default() };
    claims.add_contents(&devices[0], &table);
    let wanted = [
        "/dev/disk/by-label/..\\x2f..\\x2fshadow",
        "/dev/disk/by-label/\\x0a",
        "/dev/disk/by-label/a\\x20b",
        "/dev/disk/by-label/ünï",
    ];
    assert_eq!(claims.of("vda"), wanted);
    claims.write(&runtime, &[]).unwrap();
    assert_eq!(names(&runtime.path("/dev/disk")), ["by-label"]);
    assert_eq!(fs::canonicalize(runtime.path(wanted[2])).unwrap(), runtime.path("/dev/vda"));
}

#[test]
fn links_follow_the_devices_and_others_stay() {
    let one = "pci0000:00/0000:00:04.0/virtio1/block/vda";
    let two = "pci0000:00/0000:00:05.0/virtio2/block/vdb";
    let (_dir, runtime, devices) =
        machine(&[(one, &[("size", b"9"), ("serial", b"a")]), (two, &[("size", b"9"), ("serial", b"b")])]);
    let target = |link: &str| fs::read_link(runtime.path("/dev/disk/by-id").join(link)).ok();
    let made = Claims::of_hardware(&runtime, &devices).write(&runtime, &[]).unwrap();
    assert_eq!(target("virtio-a"), Some("../../vda".into()));
    symlink("../../vda", runtime.path("/dev/disk/by-id/of-a-rule")).unwrap();
    // The first one is gone, and the second one has its name now.
    fs::write(runtime.path("/sys/devices").join(two).join("serial"), "a").unwrap();
    let made = Claims::of_hardware(&runtime, &devices[1..]).write(&runtime, &made).unwrap();
    assert_eq!((target("virtio-a"), target("virtio-b")), (Some("../../vdb".into()), None));
    // Without a node there is nothing to lead to.
    fs::remove_file(runtime.path("/dev/vdb")).unwrap();
    assert_eq!(Claims::of_hardware(&runtime, &devices[1..]).write(&runtime, &made).unwrap(), [""; 0]);
    assert_eq!(names(&runtime.path("/dev/disk/by-id")), ["of-a-rule"]);
}
