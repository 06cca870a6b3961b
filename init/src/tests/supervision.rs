//! machined dying, hanging, misbehaving; and the end of the system.

use handoff::{Action, Exit, MAX_EXITS, ToInit, ToMachined};
use sys::Errno;

use super::golden;
use super::world::{machine, with_layers};
use crate::kernel::{End, Signal};
use crate::recording::{Event, Recording, message};

const SECOND: u64 = 1_000_000_000;

/// Boots, then plays the events, then is powered off by two signals.
fn life(events: impl IntoIterator<Item = Event>) -> Recording {
    let mut kernel = with_layers(machine(""), "/billet/layers");
    kernel.events.extend([message(&ToInit::Hello), message(&ToInit::Ready)]);
    kernel.events.extend(events);
    crate::run(&mut kernel);
    assert_eq!(kernel.errors(), Vec::<&str>::new());
    kernel
}

fn store(name: &'static str, descriptor: usize) -> Event {
    match message(&ToInit::Store { name }) {
        Event::Message(bytes, _) => Event::Message(bytes, Some(descriptor)),
        other => other,
    }
}

fn starts(kernel: &Recording) -> Vec<(u32, Option<i32>)> {
    kernel
        .sent
        .iter()
        .filter_map(|m| match m {
            ToMachined::Start(start) => Some((start.restarts, start.previous_status)),
            _ => None,
        })
        .collect()
}

#[test]
fn a_death_and_a_return_call_by_call() {
    let kernel = life([
        store("log/etcd", 5),
        Event::Exit(4711, 256),
        Event::Exit(0, 9),
        message(&ToInit::Hello),
        message(&ToInit::Ready),
        message(&ToInit::Acknowledge { number: 1 }),
        message(&ToInit::Finish { action: Action::PowerOff, reason: "test" }),
    ]);
    let after: Vec<String> =
        kernel.calls.iter().skip_while(|c| *c != "catch signals").map(|c| format!("{c}\n")).collect();
    golden("supervision.txt", &after.concat());
    assert_eq!(starts(&kernel), [(0, None), (1, Some(9))]);
    let exit = ToMachined::Exited(Exit { number: 1, pid: 4711, start_ticks: 7, status: 256 });
    assert_eq!(kernel.sent.iter().filter(|m| **m == exit).count(), 2);
    assert!(kernel.sent.contains(&ToMachined::Stored { name: "log/etcd" }));
}

#[test]
fn restarts_are_immediate_once_and_then_slower_until_ready() {
    const MS: u64 = 1_000_000;
    let kernel = life([
        Event::Exit(0, 9),
        Event::Exit(0, 9),
        Event::Time(249 * MS),
        Event::Time(MS),
        message(&ToInit::Ready),
        Event::Exit(0, 9),
        Event::Time(1),
    ]);
    let is_turn = |c: &&String| *c == "wait" || *c == "start machined" || c.contains("is ready");
    let turns: Vec<&str> = kernel
        .calls
        .iter()
        .skip_while(|c| !c.contains("is ready"))
        .filter(is_turn)
        .map(|c| c.split(' ').next().unwrap_or_default())
        .collect();
    let expected = ["log", "wait", "start", "wait", "wait", "wait", "start", "wait", "log", "wait", "start"];
    assert_eq!(turns[..expected.len()], expected);
}

/// machined is ready and crashes with a bus error, again and again, after `lives` of so many seconds.
fn crashes(lives: impl IntoIterator<Item = u64>) -> Recording {
    let mut kernel = with_layers(machine(""), "/billet/layers");
    for seconds in lives {
        let crash = [message(&ToInit::Ready), Event::Time(seconds * SECOND), Event::Exit(0, 7)];
        // The longest wait passes, then machined runs again.
        kernel.events.extend(crash.into_iter().chain([Event::Time(11 * SECOND)]));
    }
    crate::run(&mut kernel);
    kernel
}

#[test]
fn a_machined_that_only_crashes_ends_the_boot_and_names_the_corrupt_layer() {
    let kernel = crashes([1; 8]);
    let line = "boot failed: start_machined: machined ended 8 times in a row, the last time with signal 7; layer kernel: \
                blocks are corrupt; restarting in 10 s";
    assert_eq!(kernel.errors(), [line]);
    // Each of its ends says so, also where it goes on.
    let each = "machined ended: signal 7; layer kernel: blocks are corrupt";
    assert_eq!(kernel.warnings().iter().filter(|line| **line == each).count(), 8);
    assert_eq!(starts(&kernel).len(), 8);
    assert_eq!(kernel.ends.last(), Some(&End::Restart));
}

#[test]
fn a_machined_that_was_steady_is_started_for_as_long_as_it_takes() {
    let kernel = crashes([31].into_iter().chain([1; 20]));
    assert_eq!(kernel.errors(), Vec::<&str>::new());
    assert!(starts(&kernel).len() > 20);
}

#[test]
fn a_machined_that_stops_its_heartbeat_is_killed_and_started_again() {
    let kernel = life([Event::Time(61 * SECOND), message(&ToInit::Ready)]);
    assert!(
        kernel.warnings().contains(&"killing machined: no heartbeat for 60 s"),
        "{:?}",
        kernel.warnings()
    );
    assert_eq!(starts(&kernel)[1], (1, Some(9)));
}

#[test]
fn a_machined_that_closes_its_socket_and_lingers_is_killed() {
    let kernel = life([Event::Close, Event::Time(2 * SECOND), Event::Time(4 * SECOND), Event::Time(1)]);
    let text = "killing machined: it closed its socket and did not end within 5 s";
    assert_eq!(kernel.warnings().iter().filter(|w| **w == text).count(), 1, "{:?}", kernel.warnings());
}

#[test]
fn a_machined_that_speaks_another_version_is_killed() {
    let kernel = life([Event::Message(vec![9, 0, 0], Some(3)), Event::Time(1)]);
    assert!(kernel.warnings().contains(&"killing machined: it does not speak this protocol"));
    assert!(kernel.kept_to_the_end.is_empty(), "its descriptor leaks");
}

#[test]
fn descriptors_are_replaced_forgotten_and_never_leak() {
    let kernel = life([
        store("a", 1),
        store("a", 2),
        store("b", 3),
        message(&ToInit::Forget { name: "a" }),
        message(&ToInit::Forget { name: "unknown" }),
        store("", 4),
        message(&ToInit::Store { name: "nothing on it" }),
        Event::Message(frame(&ToInit::Heartbeat), Some(5)),
        Event::Time(1),
    ]);
    assert_eq!(kernel.kept_to_the_end, [3]);
    let refused = kernel.sent.iter().filter(|m| matches!(m, ToMachined::Refused { .. })).count();
    assert_eq!(refused, 2);
}

fn frame(message: &ToInit<'_>) -> Vec<u8> {
    let mut frame = [0; 64];
    handoff::encode(message, &mut frame).unwrap().to_vec()
}

#[test]
fn more_exits_than_fit_are_counted() {
    // Nobody reads: machined is dead and its successor's queue is full.
    let mut kernel = with_layers(machine(""), "/billet/layers");
    kernel.always_fail.push(("send", Errno::AGAIN));
    let orphans = i32::try_from(MAX_EXITS).unwrap() + 5;
    kernel.events.push_back(message(&ToInit::Ready));
    kernel.events.extend((0..orphans).map(|n| Event::Exit(5000 + n, 0)));
    let mut later = kernel.clone();
    crate::run(&mut kernel);
    assert_eq!(kernel.sent, []);
    later.always_fail.clear();
    crate::run(&mut later);
    let exits = later.sent.iter().filter(|m| matches!(m, ToMachined::Exited(_))).count();
    let lost: u32 =
        later.sent.iter().map(|m| if let ToMachined::ExitsLost { count } = m { *count } else { 0 }).sum();
    assert_eq!((exits, lost), (MAX_EXITS, 5));
}

#[test]
fn a_full_queue_is_tried_again_and_nothing_is_sent_twice() {
    let mut kernel = with_layers(machine(""), "/billet/layers");
    kernel.events.extend([message(&ToInit::Hello), message(&ToInit::Ready), Event::Time(1), Event::Time(1)]);
    let mut reference = kernel.clone();
    crate::run(&mut reference);
    let first_send = reference.calls.iter().position(|c| c == "send Start").unwrap();
    let count = reference.calls[..=first_send].iter().filter(|c| is_fallible(c)).count();
    kernel.fail = Some((count, Errno::AGAIN));
    crate::run(&mut kernel);
    assert!(kernel.calls.iter().any(|c| c.starts_with("send Start -> ")), "{:#?}", kernel.calls);
    assert_eq!(starts(&kernel).len(), 1);
    assert_eq!(kernel.sent, reference.sent);
}

/// Calls that the recording kernel counts.
fn is_fallible(call: &str) -> bool {
    let infallible = ["log ", "pause ", "end ", "sync", "ignore devices", "disconnect", "close ", "disarm "];
    !infallible.iter().any(|prefix| call.starts_with(prefix))
}

#[test]
fn ctrl_alt_del_asks_machined_and_the_second_one_does_not() {
    let asked = life([Event::Signal(Signal::Interrupt), Event::Time(1), Event::Signal(Signal::Interrupt)]);
    assert!(asked.sent.contains(&ToMachined::Requested(Action::Reboot)));
    assert_eq!(asked.ends.first(), Some(&End::Restart));
}

#[test]
fn a_request_that_machined_ignores_is_carried_out_after_its_deadline() {
    let mut events = vec![Event::Signal(Signal::Power)];
    for _ in 0..21 {
        events.extend([Event::Time(30 * SECOND), message(&ToInit::Heartbeat)]);
    }
    let kernel = life(events);
    assert!(
        kernel.logs.iter().any(|(_, t)| t.ends_with("machined did not end the system within 10 minutes"))
    );
    assert_eq!(kernel.ends.first(), Some(&End::PowerOff));
}

#[test]
fn a_system_that_never_becomes_ready_restarts() {
    let mut kernel = with_layers(machine(""), "/billet/layers");
    for _ in 0..31 {
        kernel.events.extend([Event::Time(30 * SECOND), message(&ToInit::Heartbeat)]);
    }
    crate::run(&mut kernel);
    assert_eq!(kernel.errors(), ["machined was not ready within 15 minutes"]);
    assert_eq!(kernel.ends.first(), Some(&End::Restart));
}

#[test]
fn the_watchdog_is_fed_while_heartbeats_come_and_only_then() {
    let mut events = Vec::new();
    for _ in 0..8 {
        events.extend([Event::Time(15 * SECOND), message(&ToInit::Heartbeat)]);
    }
    let kernel = life(events);
    let fed = kernel.calls.iter().filter(|c| *c == "feed watchdog").count();
    assert!((8..=12).contains(&fed), "{fed}");

    let mut dead = with_layers(machine(""), "/billet/layers");
    dead.events.extend([message(&ToInit::Ready)]);
    dead.always_fail.push(("kill 101", Errno::PERM));
    dead.events.extend((0..8).map(|_| Event::Time(15 * SECOND)));
    crate::run(&mut dead);
    let until_end: Vec<_> = dead.calls.iter().take_while(|c| !c.starts_with("log Info final")).collect();
    let fed = until_end.iter().filter(|c| **c == "feed watchdog").count();
    assert!(fed <= 4, "{fed}");
}

#[test]
fn the_end_comes_even_if_nothing_works() {
    for prefix in ["kill everyone", "start helper", "write /proc/sysrq-trigger", "feed watchdog", "reap"] {
        let mut kernel = with_layers(machine(""), "/billet/layers");
        kernel.events.extend([message(&ToInit::Ready)]);
        kernel.events.push_back(message(&ToInit::Finish { action: Action::Reboot, reason: "test" }));
        kernel.always_fail.push((prefix, Errno::IO));
        crate::run(&mut kernel);
        assert_eq!(kernel.ends.first(), Some(&End::Restart), "{prefix}");
    }
}

#[test]
fn unmounting_goes_backwards_and_leaves_the_root_alone() {
    let mut kernel = machine("");
    kernel.always_fail.push(("unmount /var", Errno::BUSY));
    assert_eq!(crate::finish::unmount_everything(&mut kernel), 1);
    let calls: Vec<_> = kernel.calls.iter().filter(|c| !c.starts_with("read ")).collect();
    assert_eq!(
        calls[..4],
        [
            "unmount /var/lib/with space -> EBUSY",
            "unmount /var -> EBUSY",
            "unmount /system",
            "unmount /var/lib/kubelet/pods/a/nfs lazily -> EBUSY"
        ]
    );
    let place = |call: &str| calls.iter().position(|c| *c == call).unwrap_or_else(|| panic!("no {call}"));
    assert!(place("unmap luks2-STATE") < place("remount read-only /var"));
    assert_eq!(place("sync"), calls.len() - 1);
    assert!(
        !calls
            .iter()
            .any(|c| c.contains("billet-base") || c.starts_with("remount read-only /var/lib/kubelet"))
    );
}
