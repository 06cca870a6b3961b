//! The fixture tested on a bare kernel: no image of ours is involved.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use qemu_tests::{Bus, Drive, Vm, VmBuilder, accel};

const PANIC_LIMIT: Duration = Duration::from_secs(10);

/// A kernel without a root: it looks for one, panics, and does with `panic` as told.
fn rootless(name: &str, panic: &str) -> VmBuilder {
    let kernel = accel::kernel().expect("a kernel to boot");
    let line = format!("console=ttyS0 {panic}");
    Vm::builder(name).memory_mib(256).cpus(1).kernel(&kernel, None, &line)
}

#[test]
fn the_console_is_read_in_order_and_a_reboot_can_end_the_vm() {
    let vm = rootless("fixture-console", "panic=-1").no_network().reboot_ends().start().unwrap();
    let version = vm.expect("Linux version", PANIC_LIMIT).unwrap();
    assert!(version.contains("Debian"), "{version}");
    vm.expect("Unable to mount root fs", PANIC_LIMIT).unwrap();
    assert!(vm.wait_exit(PANIC_LIMIT).unwrap().success());
    let error = vm.expect("never printed", PANIC_LIMIT).unwrap_err();
    assert!(format!("{error:#}").contains("QEMU ended"), "{error:#}");
}

#[test]
fn a_kernel_panic_ends_a_wait_early() {
    let vm = rootless("fixture-panic", "panic=0").no_network().start().unwrap();
    vm.expect("Linux version", PANIC_LIMIT).unwrap();
    let start = Instant::now();
    let error = vm.expect("login:", Duration::from_secs(3600)).unwrap_err();
    assert!(format!("{error:#}").contains("the kernel panicked"), "{error:#}");
    assert!(start.elapsed() < Duration::from_secs(600));
}

#[test]
fn ports_devices_and_the_monitor_work() {
    let image = tempfile::NamedTempFile::new().unwrap();
    image.as_file().set_len(1 << 20).unwrap();
    let vm = rootless("fixture-devices", "panic=0")
        .forward(50000)
        .forward(50099)
        .drive(Drive::new(image.path(), Bus::Virtio))
        .drive(Drive::new(image.path(), Bus::Cdrom))
        .drive(Drive::new(image.path(), Bus::Nvme))
        .drive(Drive::new(image.path(), Bus::Usb))
        .tpm()
        .watchdog()
        .start()
        .unwrap();
    assert_ne!(vm.port(50000).unwrap(), vm.port(50099).unwrap());
    assert!(vm.port(1).is_err());
    let devices = vm.qmp().human("info qtree").unwrap();
    for device in ["virtio-blk-pci", "scsi-cd", "nvme", "usb-storage", "i6300esb", "virtio-rng-pci"] {
        assert!(devices.contains(device), "no {device} in\n{devices}");
    }
    assert!(vm.qmp().human("info tpm").unwrap().contains("tpm-crb"));
    vm.plug_in("late", image.path()).unwrap();
    assert!(vm.qmp().human("info block").unwrap().contains("late"));
    vm.quit().unwrap();
    assert!(vm.over().unwrap().contains("exit status: 0"));
}

#[test]
fn a_dropped_vm_is_gone() {
    let vm = rootless("fixture-drop", "panic=0").no_network().start().unwrap();
    let (pid, files) = (vm.pid().unwrap(), vm.files().to_path_buf());
    drop(vm);
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    assert!(!files.exists());
}

#[test]
fn a_reset_is_an_event() {
    let vm = rootless("fixture-reset", "panic=-1").no_network().start().unwrap();
    let event = vm.wait_event("RESET", PANIC_LIMIT).unwrap();
    assert_eq!(event["data"]["guest"], true, "{event}");
}
