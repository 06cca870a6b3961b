//! The watchdog before machined: armed early, fed while the boot goes on, never in the way of a message.

use super::world::{machine, root, short_life, with_disk, with_layers};
use crate::kernel::End;
use crate::recording::Recording;

fn place(kernel: &Recording, call: &str) -> usize {
    kernel.calls.iter().position(|c| c.starts_with(call)).unwrap_or_else(|| panic!("no {call}"))
}

fn fed(kernel: &Recording) -> usize {
    kernel.calls.iter().filter(|c| *c == "feed watchdog").count()
}

#[test]
fn it_is_armed_before_the_root_is_looked_for() {
    let mut kernel = short_life(with_disk(machine(""), "vda", 1, &root().1));
    crate::run(&mut kernel);
    assert!(place(&kernel, "open watchdog /dev/watchdog0 60") < place(&kernel, "list /sys/block"));
    assert_eq!(kernel.calls.iter().filter(|c| c.starts_with("open watchdog")).count(), 1);
}

#[test]
fn a_boot_that_waits_for_its_disk_is_alive() {
    let mut kernel = machine("billet.watchdog=8 billet.root=disk panic=20");
    crate::run(&mut kernel);
    assert!(kernel.errors()[0].starts_with("boot failed: find_layers"), "{:?}", kernel.errors());
    // Every 2 s of 45 s, and of the 20 s in which the message can be read.
    assert!((30..=34).contains(&fed(&kernel)), "{}", fed(&kernel));
    assert_eq!((kernel.paused_ns, kernel.ends.first()), (20_000_000_000, Some(&End::Restart)));
}

#[test]
fn a_message_that_stays_for_ever_is_not_ended_by_it() {
    let mut kernel = machine("billet.root=disk panic=0");
    crate::run(&mut kernel);
    assert!(place(&kernel, "disarm watchdog") > place(&kernel, "open watchdog"));
    assert_eq!(kernel.ends, []);
}

#[test]
fn without_a_device_the_boot_goes_on_and_machined_may_bring_the_driver() {
    let mut kernel = with_layers(machine(""), "/billet/layers");
    kernel.files.remove("/dev/watchdog0");
    let mut kernel = short_life(kernel);
    crate::run(&mut kernel);
    assert!(kernel.calls.iter().filter(|c| c.starts_with("open watchdog")).count() >= 2);
    assert!(place(&kernel, "start machined") > place(&kernel, "open watchdog"));
    assert_eq!(kernel.ends.first(), Some(&End::PowerOff));
}
