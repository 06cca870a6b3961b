//! Every single call fails once.
//!
//! For each transport, for each call that can fail, for several errors: the run must end in an allowed outcome. Either
//! the system came up and was shut down as asked, without an error line; or exactly one line says what failed, the
//! wait of `panic=` passed, and the machine restarted.

use sys::Errno;

use netroot::peer::Manner;

use super::world::{
    RECORD, encrypted, machine, root, short_life, site, with_disk, with_layers, with_loader, with_medium,
    with_network,
};
use crate::kernel::End;
use crate::recording::Recording;

/// Failures that change nothing a person should know: looking for something that need not be there, a disk that is
/// looked at again, a watchdog that is tried again.
const SILENT: &[&str] = &[
    "read /sys/bus/",
    "list /sys/bus/",
    "read /lib/modules/6.12.0-test/modules.alias",
    "read /lib/modules/6.12.0-test/modules.softdep",
    "read /lib/modules/6.12.0-test/modules.builtin",
    "status /billet/layers/",
    "status /sys/firmware/efi",
    // Most images have none.
    "status /etc/billet/config.key",
    "status /etc/billet/authorities.pem",
    "mount efivarfs",
    "read /sys/firmware/efi/efivars",
    "read /sys/block/",
    "list /sys/block/",
    "status /dev/",
    "read 512 bytes of /dev/",
    "read 72 bytes of /dev/",
    "read 4096 bytes of /dev/",
    "read 16384 bytes of /dev/",
    "add partition",
    "open watchdog",
    "feed watchdog",
    "next device event",
    "signal ",
    // The second copy of META, or of the header, says the same; a machine without a version has a newer one.
    "read 262144 bytes of /dev/vda4",
    "read /sys/firmware/dmi/tables/smbios_entry_point",
    "read /proc/meminfo",
    // Frames get lost, on cables and here; merged ones are only slower; without this file there is no IPv6.
    "send frame",
    "receive frame",
    "merging of ",
    "set merging of eth0: kernel false",
    "read /proc/sys/net/ipv6/conf/eth0/disable_ipv6",
    "list /sys/class/net",
    "read /sys/class/net/",
    "status /sys/class/net/",
    "read /proc/sys/kernel/random/uuid",
    // The kernel did not unpack it, init did.
    "load module /lib/modules/6.12.0-test/kernel/virtio_blk.ko.xz compressed",
];

/// "Not ready yet" is an answer here, not a failure.
const SILENT_WHEN_NOT_READY: &[&str] = &["receive ", "send "];

fn is_silent(call: &str, errno: Errno) -> bool {
    let starts = |list: &[&str]| list.iter().any(|prefix| call.starts_with(prefix));
    starts(SILENT) || (errno == Errno::AGAIN && starts(SILENT_WHEN_NOT_READY))
}

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    CameUp,
    FailedByName,
}

fn outcome(kernel: &Recording) -> Result<Outcome, String> {
    let errors = kernel.errors();
    match (errors.as_slice(), kernel.ends.first()) {
        ([], Some(End::PowerOff)) => Ok(Outcome::CameUp),
        ([line], Some(End::Restart)) if line.starts_with("boot failed: ") => {
            let waited = kernel.paused_ns >= 10_000_000_000;
            if waited && line.lines().count() == 1 {
                Ok(Outcome::FailedByName)
            } else {
                Err(format!("did not wait: {line}"))
            }
        }
        _ => Err(format!("{errors:?}, {:?}", kernel.ends)),
    }
}

fn sweep(name: &str, scenario: &Recording) {
    let mut reference = scenario.clone();
    crate::run(&mut reference);
    assert_eq!(outcome(&reference), Ok(Outcome::CameUp), "{name}: {:#?}", reference.calls);
    let (mut came_up, mut failed) = (0, 0);
    for errno in [Errno::IO, Errno::NOENT, Errno::NOMEM, Errno::AGAIN] {
        for at in 1..=reference.count {
            let mut kernel = scenario.clone();
            kernel.fail = Some((at, errno));
            crate::run(&mut kernel);
            assert!(kernel.calls.iter().any(|c| c.contains(" -> ")), "{name}: call {at} was not reached");
            let call = kernel.calls.iter().find(|c| c.contains(" -> ")).cloned().unwrap_or_default();
            match outcome(&kernel) {
                Ok(Outcome::CameUp) => {
                    came_up += 1;
                    assert!(
                        is_silent(&call, errno) || !kernel.warnings().is_empty(),
                        "{name}: nobody heard of {call}"
                    );
                }
                Ok(Outcome::FailedByName) => failed += 1,
                Err(what) => panic!("{name}: {call}: {what}\n{:#?}", kernel.calls),
            }
        }
    }
    assert!(came_up > 0 && failed > 0, "{name}: {came_up} came up, {failed} failed");
}

#[test]
fn every_call_of_a_boot_from_the_initramfs_fails_once() {
    sweep("initramfs", &short_life(with_layers(machine(""), "/billet/layers")));
}

#[test]
fn every_call_of_a_boot_from_a_disk_fails_once() {
    let kernel = with_disk(machine("billet.root=disk"), "vda", 1, &root().1);
    sweep("disk", &short_life(with_loader(kernel, 1)));
}

#[test]
fn every_call_of_a_boot_from_a_medium_fails_once() {
    sweep("label", &short_life(with_medium(machine("billet.root=label:BILLET"), "BILLET")));
}

#[test]
fn every_call_of_a_boot_with_an_encrypted_state_fails_once() {
    sweep("encrypted", &short_life(encrypted(RECORD)));
}

#[test]
fn every_call_of_a_boot_from_the_network_fails_once() {
    let kernel = machine("billet.root=http://10.77.0.1/layers");
    sweep("network", &short_life(with_network(kernel, [site(80, Manner::Good)])));
}
