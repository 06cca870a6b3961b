//! Boots that must not succeed: one line that names the cause, the wait of `panic=`, a restart.

use ondisk::manifest::PATH;
use sys::Errno;

use super::world::{
    machine, root, short_life, with_disk, with_layers, with_loader, with_medium, with_volume,
};
use crate::kernel::End;
use crate::recording::{Event, Recording};

/// Runs to the failure and returns its line.
fn line(mut kernel: Recording) -> String {
    crate::run(&mut kernel);
    assert_eq!(kernel.ends, [End::Restart], "{:#?}", kernel.calls);
    assert_eq!(kernel.paused_ns, 10_000_000_000);
    let errors = kernel.errors();
    assert_eq!(errors.len(), 1, "{errors:?}");
    errors[0].strip_suffix("; restarting in 10 s").unwrap().to_string()
}

fn layered(command_line: &str) -> Recording {
    with_layers(machine(command_line), "/billet/layers")
}

#[test]
fn a_missing_or_wrong_manifest() {
    let mut kernel = layered("");
    kernel.files.remove(PATH);
    let text = "boot failed: read_root_manifest: read root manifest /etc/billet/root.json: ENOENT \
                (no such file or directory)";
    assert_eq!(line(kernel), text);
    let text = line(layered("").file(PATH, "{\"format\":1,"));
    assert!(
        text.starts_with("boot failed: read_root_manifest: read root manifest /etc/billet/root.json: "),
        "{text}"
    );
}

#[test]
fn a_kernel_of_another_release() {
    let mut manifest = root().0;
    manifest.layers[1].kernel_release = Some("6.1.0-other".to_string());
    let text = "boot failed: check_kernel_release: compare kernel release with /etc/billet/root.json: the kernel is \
                6.12.0-test, layer kernel holds modules for 6.1.0-other";
    assert_eq!(line(layered("").file(PATH, manifest.to_json())), text);
}

#[test]
fn a_truncated_layer_file() {
    let mut kernel = layered("");
    let path = format!("/billet/layers/{}", root().0.layers[1].file_name());
    kernel.sizes.insert(path.clone(), 8000);
    let text = line(kernel);
    assert_eq!(
        text,
        format!(
            "boot failed: check_layer_sizes: check layer kernel: is truncated: 8000 of 12288 bytes in {path}"
        )
    );
}

#[test]
fn a_missing_layer_file() {
    let mut kernel = layered("");
    let path = format!("/billet/layers/{}", root().0.layers[1].file_name());
    kernel.sizes.remove(&path);
    let text =
        format!("boot failed: check_layer_sizes: find layer file {path}: ENOENT (no such file or directory)");
    assert_eq!(line(kernel), text);
}

#[test]
fn a_wrong_slot_is_said_once_while_other_disks_are_awaited() {
    let mut slot = root().1;
    slot[8192] ^= 1;
    let mut kernel = with_disk(machine(""), "vda", 1, &slot);
    crate::run(&mut kernel);
    let wanted = "not the root: ROOT-A on /dev/vda: layer base: hash block 2 is corrupt or of another version; \
                  looking for another disk";
    let said = kernel.calls.iter().filter(|call| call.ends_with(wanted)).count();
    assert_eq!(said, 1, "{:#?}", kernel.calls);
}

#[test]
fn a_slot_with_a_flipped_hash_block() {
    let mut slot = root().1;
    slot[8192] ^= 1;
    let kernel = with_loader(with_disk(machine(""), "vda", 1, &slot), 1);
    let text = "boot failed: find_layers: find root slot on /dev/vda: ROOT-A on /dev/vda: layer base: hash block 2 is \
                corrupt or of another version; ROOT-B on /dev/vda: layer base: hash block 2 is corrupt or of another \
                version";
    assert_eq!(line(kernel), text);
}

#[test]
fn a_slot_too_small_for_its_layers() {
    let mut manifest = root().0;
    manifest.layers[1].offset = 8 << 20;
    let kernel = with_loader(with_disk(machine("billet.slot=A"), "vda", 1, &root().1), 1);
    let text = line(kernel.file(PATH, manifest.to_json()));
    assert!(
        text.ends_with("ROOT-A on /dev/vda: layer kernel is truncated: 8400896 bytes do not fit into it"),
        "{text}"
    );
}

#[test]
fn two_disks_that_could_be_the_root() {
    let slot = root().1;
    let kernel = with_disk(with_disk(machine(""), "vda", 1, &slot), "vdb", 2, &slot);
    let text = "boot failed: find_layers: choose root disk of several: /dev/vda (ROOT-A), /dev/vdb (ROOT-A) all hold \
                these layers; remove the wrong ones";
    assert_eq!(line(kernel), text);
}

#[test]
fn a_clone_of_the_disk_that_the_loader_names() {
    let slot = root().1;
    let kernel = with_loader(with_disk(with_disk(machine(""), "vda", 1, &slot), "vdb", 1, &slot), 1);
    let text = line(kernel);
    assert!(text.contains("/dev/vda (ROOT-A), /dev/vdb (ROOT-A) all hold these layers"), "{text}");
}

#[test]
fn no_disk_at_all_within_the_deadline() {
    let text = "boot failed: find_layers: wait for a disk slot with the layers of the manifest: not there after 45 s";
    assert_eq!(line(machine("billet.root=disk")), text);
    let text = line(with_medium(machine("billet.root=label:OTHER"), "BILLET"));
    assert_eq!(text, "boot failed: find_layers: wait for a medium labelled OTHER: not there after 45 s");
}

#[test]
fn media_that_are_not_the_root() {
    for (parameters, what) in [
        ("billet.root=label:BILLET", "a medium labelled BILLET"),
        ("", "a disk slot or a medium labelled BILLET with the layers of the manifest"),
    ] {
        let mut kernel = with_volume(with_medium(machine(parameters), "BILLET"), "sdb", "BILLET");
        kernel.empty = vec!["/dev/sr0"];
        kernel.always_fail.push(("mount /dev/sdb", Errno::IO));
        let text = format!(
            "boot failed: find_layers: wait for {what}: /dev/sdb: it cannot be mounted: EIO (input/output error); \
             /dev/sr0: layer base is not there, or of another version"
        );
        assert_eq!(line(kernel), text);
    }
    let directory = "/run/billet/medium/billet/layers";
    let path = format!("{directory}/{}", root().0.layers[1].file_name());
    let mut kernel = with_medium(machine(""), "BILLET");
    let bytes = kernel.sizes[&path];
    kernel.sizes.insert(path, bytes - 1);
    let text = line(kernel);
    let wanted = format!("/dev/sr0: layer kernel is truncated: {} of {bytes} bytes", bytes - 1);
    assert!(text.ends_with(&wanted), "{text}");
    let mut kernel = with_medium(machine(""), "BILLET");
    kernel.always_fail.push(("status /run/billet/medium/billet/layers", Errno::IO));
    let text = line(kernel);
    assert!(text.ends_with("/dev/sr0: layer base: EIO (input/output error)"), "{text}");
}

/// What was seen before does not hide what failed.
#[test]
fn a_failure_beside_a_disk_of_another_version() {
    let (mut medium, slot) = (with_medium(machine(""), "BILLET"), vec![0; 8192]);
    medium.empty = vec!["/dev/sr0"];
    medium.always_fail.push(("unmount /run/billet/medium", Errno::IO));
    let text = line(with_disk(medium, "vda", 1, &slot));
    assert_eq!(text, "boot failed: find_layers: unmount /run/billet/medium: EIO (input/output error)");
}

#[test]
fn an_initramfs_that_was_asked_for_and_has_no_layers() {
    let path = format!("/billet/layers/{}", root().0.layers[0].file_name());
    let text =
        format!("boot failed: look_in_initramfs: find layer file {path}: ENOENT (no such file or directory)");
    assert_eq!(line(machine("billet.root=initramfs")), text);
}

#[test]
fn contradicting_parameters() {
    let text = "boot failed: read_command_line: read kernel parameter talos.root: has two values, disk and initramfs; \
                give one";
    assert_eq!(line(layered("billet.root=disk talos.root=initramfs")), text);
}

#[test]
fn a_corrupt_block_while_mounting() {
    let mut kernel = layered("");
    kernel.always_fail.push(("mount /dev/dm-0", Errno::IO));
    // The kernel's event is there before the error is seen; here it waits in the queue from the start.
    kernel.happen_now(Event::Device(&["DEVNAME=dm-0", "DM_VERITY_ERR_BLOCK_NR=0,1"]));
    let text = "boot failed: mount_layers: layer base: data block 1 is corrupt: mount layer base from /dev/dm-0 on \
                /run/billet/layers/0: EIO (input/output error)";
    assert_eq!(line(kernel), text);
}

#[test]
fn a_corrupt_block_while_machined_starts() {
    let mut kernel = layered("");
    kernel.events.push_back(Event::Device(&["DEVNAME=dm-1", "DM_VERITY_ERR_BLOCK_NR=0,7"]));
    assert_eq!(line(kernel), "boot failed: start_machined: layer kernel: data block 7 is corrupt");
}

#[test]
fn a_root_without_machined_or_with_something_else() {
    let mut kernel = layered("");
    kernel.files.remove("/usr/bin/machined");
    let text = "boot failed: check_machined: read /usr/bin/machined: ENOENT (no such file or directory)";
    assert_eq!(line(kernel), text);
    let text = line(layered("").file("/usr/bin/machined", "#!/bin/sh\n"));
    assert_eq!(text, "boot failed: check_machined: check /usr/bin/machined: is not a program");
}

#[test]
fn a_machined_that_cannot_start() {
    let mut kernel = layered("");
    kernel.always_fail.push(("start machined", Errno::NOEXEC));
    let text =
        "boot failed: start_machined: start /usr/bin/machined: ENOEXEC (wrong program or module format)";
    assert_eq!(line(kernel), text);
}

#[test]
fn panic_zero_waits_for_ever() {
    let mut kernel = machine("panic=0 billet.root=initramfs");
    crate::run(&mut kernel);
    assert_eq!(kernel.ends, []);
    assert_eq!(kernel.paused_ns, u64::MAX);
    assert!(kernel.errors()[0].ends_with("; waiting for ever"));
}

#[test]
fn missing_modules_are_warnings_and_the_step_that_needs_them_fails_by_name() {
    let mut kernel = layered("").file("/lib/modules/6.12.0-test/modules.dep", "kernel/loop.ko:\n");
    kernel.always_fail.push(("mount /dev/dm-0", Errno::NODEV));
    crate::run(&mut kernel);
    let missing = "load module squashfs: /lib/modules/6.12.0-test/modules.dep does not list it";
    assert!(kernel.warnings().contains(&missing), "{:?}", kernel.warnings());
    let text = "boot failed: mount_layers: mount layer base from /dev/dm-0 on /run/billet/layers/0: ENODEV (no such \
                device or file system type); restarting in 10 s";
    assert_eq!(kernel.errors(), [text]);
}

#[test]
fn unknown_parameters_are_reported_and_the_boot_goes_on() {
    let mut kernel = short_life(layered("billet.rooot=disk"));
    crate::run(&mut kernel);
    assert_eq!(kernel.errors(), Vec::<&str>::new());
    let Some(handoff::ToMachined::Start(start)) = kernel.sent.first() else { panic!("no start") };
    assert_eq!(start.report.warnings, ["kernel parameter billet.rooot is not known and has no effect"]);
}

#[test]
fn compressed_modules_are_unpacked_here_when_the_kernel_cannot() {
    let packed = include_bytes!("../../testdata/text.xz").to_vec();
    let mut kernel = with_disk(machine(""), "vda", 1, &root().1)
        .file("/lib/modules/6.12.0-test/kernel/virtio_blk.ko.xz", packed);
    kernel
        .always_fail
        .push(("load module /lib/modules/6.12.0-test/kernel/virtio_blk.ko.xz", Errno::OPNOTSUPP));
    let mut kernel = short_life(kernel);
    crate::run(&mut kernel);
    assert!(kernel.calls.iter().any(|c| c == "load module image of 34 bytes"));
    assert_eq!(kernel.errors(), Vec::<&str>::new());
}
