//! What the flight recorder holds after a boot.

use handoff::{ToInit, ToMachined};
use ondisk::recorder::{Boot, Kind, Packer, SLOT_BYTES, Writer, boots};
use sys::Errno;

use super::world::{machine, root, short_life, with_disk, with_layers, with_loader, with_medium};
use crate::kernel::{End, Level};
use crate::recording::{Event, Recording, message};

const BOOT: [u8; 16] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];

fn disk(command_line: &str) -> Recording {
    with_disk(machine(command_line), "vda", 1, &root().1)
}

fn recorded(kernel: &Recording) -> Vec<Boot> {
    boots(&mut kernel.files["/dev/vda4"].as_slice()).unwrap()
}

fn texts(boot: &Boot) -> Vec<&str> {
    boot.lines.iter().map(|line| line.text.as_str()).collect()
}

fn writes(calls: &[String]) -> usize {
    calls.iter().filter(|call| call.starts_with("write 512 bytes to recorder")).count()
}

#[test]
fn a_boot_leaves_its_beginning_its_lines_and_its_end() {
    let mut kernel = short_life(disk(""));
    crate::run(&mut kernel);
    let found = recorded(&kernel);
    assert_eq!(found.len(), 1);
    let (begin, end) = (found[0].begin.clone().unwrap(), found[0].end.clone().unwrap());
    assert_eq!(found[0].id, BOOT);
    assert_eq!(found[0].started_us, 1_700_000_000_000_000);
    let fact = |name| begin.get(name).unwrap_or_default();
    assert_eq!([fact("version"), fact("slot"), fact("kernel")], ["0.1.0", "ROOT-A", "6.12.0-test"]);
    assert_eq!(end.get("action"), Some("PowerOff"));
    let logged: Vec<String> = kernel.logs.iter().map(|(_, text)| format!("billet: init: {text}")).collect();
    let lines = texts(&found[0]);
    assert_eq!(lines, logged[..lines.len()], "each line of the log once, in its order");
    assert!(lines.last().unwrap().contains("final action PowerOff"), "{lines:?}");
    let Some(ToMachined::Start(start)) = kernel.sent.first() else { panic!("no start") };
    assert_eq!(start.report.recorder.as_deref(), Some("/dev/vda4"));
}

/// The kernel prints its command line into its log; META can be read without a key.
#[test]
fn what_is_recorded_has_no_secret_of_the_command_line() {
    let mut kernel = short_life(disk(""));
    let printed =
        "Kernel command line: billet.config.inline=c2VjcmV0 billet.config=https://u:secret@h/c quiet";
    kernel.logs.push((Level::Info, printed.to_string()));
    crate::run(&mut kernel);
    let shown = "billet: init: Kernel command line: billet.config.inline=<hidden> \
                 billet.config=https://<hidden>@h/c quiet";
    let found = recorded(&kernel);
    assert!(texts(&found[0]).contains(&shown), "{found:?}");
    let meta = String::from_utf8_lossy(&kernel.files["/dev/vda4"]);
    assert!(!meta.contains("c2VjcmV0") && !meta.contains("secret"));
}

#[test]
fn a_boot_without_a_slot_leaves_every_disk_alone() {
    let present = with_disk(with_layers(machine(""), "/billet/layers"), "vda", 1, &root().1);
    let medium = with_disk(with_medium(machine("billet.root=label:BILLET"), "BILLET"), "vda", 1, &root().1);
    let failing = with_disk(machine("billet.root=label:OTHER"), "vda", 1, &root().1);
    for kernel in [short_life(present), short_life(medium), failing] {
        let mut kernel = kernel;
        crate::run(&mut kernel);
        assert!(!kernel.calls.iter().any(|call| call.contains("recorder")), "{:#?}", kernel.calls);
        assert_eq!(recorded(&kernel), []);
    }
}

#[test]
fn a_boot_that_finds_no_root_leaves_its_failure() {
    let mut slot = root().1;
    slot[8192] ^= 1;
    let broken = || with_disk(machine(""), "vda", 1, &slot);
    for kernel in [with_loader(broken(), 1), broken()] {
        let mut kernel = kernel;
        crate::run(&mut kernel);
        let found = recorded(&kernel);
        let end = found[0].end.clone().unwrap();
        assert_eq!(end.get("failed"), Some("find_layers"));
        assert!(texts(&found[0]).last().unwrap().contains("boot failed: find_layers: "), "{found:?}");
        assert_eq!(kernel.ends, [End::Restart]);
    }
    // Which of two disks failed nobody knows: neither is written to.
    let mut kernel = with_disk(broken(), "vdb", 2, &slot);
    crate::run(&mut kernel);
    assert!(!kernel.calls.iter().any(|call| call.contains("recorder")), "{:#?}", kernel.calls);
}

#[test]
fn a_boot_that_fails_behind_the_root_leaves_its_failure() {
    let mut kernel = disk("");
    kernel.files.remove("/usr/bin/machined");
    crate::run(&mut kernel);
    let end = recorded(&kernel)[0].end.clone().unwrap();
    assert_eq!(end.get("failed"), Some("check_machined"));
    assert!(end.get("reason").unwrap().starts_with("read /usr/bin/machined: ENOENT"), "{end:?}");
}

/// What shares a page with lines that are on their way to the disk is left out of the first try.
#[test]
fn the_kernel_is_asked_for_the_failure_until_the_restart() {
    let mut kernel = disk("panic=1");
    kernel.files.remove("/usr/bin/machined");
    crate::run(&mut kernel);
    let place = |start: &str| kernel.calls.iter().rposition(|call| call.starts_with(start)).unwrap();
    let after = &kernel.calls[place("write 512 bytes to recorder")..place("end Restart")];
    let hastened = after.iter().filter(|call| *call == "hasten 523264 bytes of recorder at 524288").count();
    assert_eq!((hastened, kernel.paused_ns), (4, 1_000_000_000), "{after:#?}");
}

#[test]
fn init_writes_only_while_no_machined_does() {
    let mut kernel = disk("");
    kernel.events.extend([message(&ToInit::Ready), Event::Time(1), Event::Exit(4711, 0), Event::Exit(0, 9)]);
    kernel.events.extend([Event::Time(1_000_000_000), message(&ToInit::Ready)]);
    crate::run(&mut kernel);
    let place = |wanted: &str, from: usize| {
        from + kernel.calls[from..]
            .iter()
            .position(|call| call == wanted)
            .unwrap_or_else(|| panic!("no {wanted} from {from}"))
    };
    let started = place("start machined", 0);
    let ended = place("log Warning machined ended: signal 9", started);
    let again = place("start machined", ended);
    let stopped = place("disconnect", again + 1);
    assert_eq!(writes(&kernel.calls[..started]), 1, "the boot's beginning");
    assert_eq!(writes(&kernel.calls[started..ended]), 0);
    assert!(writes(&kernel.calls[ended..again]) > 0);
    assert_eq!(writes(&kernel.calls[again..stopped]), 0);
    let found = recorded(&kernel);
    assert!(texts(&found[0]).contains(&"billet: init: machined ended: signal 9"), "{found:?}");
}

/// machined recorded lines while it ran: init goes on behind them.
#[test]
fn what_machined_recorded_is_not_recorded_again() {
    let mut kernel = disk("");
    let mut meta = kernel.files["/dev/vda4"].clone();
    let mut packer = Packer::new(BOOT, Writer::Machined, 7, 0);
    let line = ondisk::kmsg::Record { prefix: 6, sequence: 1, stamp_us: 5, text: "by machined" };
    let mut put = |offset: u64, slot: &[u8; SLOT_BYTES]| {
        meta[usize::try_from(offset).unwrap()..][..SLOT_BYTES].copy_from_slice(slot);
        Ok::<(), Errno>(())
    };
    packer.line(&line, &mut put).unwrap();
    packer.facts(Kind::Lines, 5, "", &mut put).unwrap();
    kernel.events.extend([message(&ToInit::Ready), Event::File("/dev/vda4", meta), Event::Exit(0, 9)]);
    crate::run(&mut kernel);
    let found = recorded(&kernel);
    let logged: Vec<String> = kernel.logs.iter().map(|(_, text)| format!("billet: init: {text}")).collect();
    let lines = texts(&found[0]);
    assert_eq!((lines[0], lines[1]), ("by machined", logged[2].as_str()), "sequence 2 follows 1");
}

#[test]
fn a_recorder_that_fails_is_a_warning_and_the_system_lives() {
    // Reads of many slots at once, and of the pages one by one: whole ones, and those at the ends of the former.
    let reads = [
        "read 65536 bytes of /dev/vda4",
        "read 64512 bytes of /dev/vda4",
        "read 4096 bytes of /dev/vda4",
        "read 3072 bytes of /dev/vda4",
        "read 1024 bytes of /dev/vda4",
    ];
    for calls in [&["open recorder"] as &[_], &reads, &["write 512 bytes to recorder"], &["next log record"]]
    {
        let mut kernel = short_life(disk(""));
        kernel.always_fail.extend(calls.iter().map(|call| (*call, Errno::IO)));
        crate::run(&mut kernel);
        assert_eq!(kernel.errors(), Vec::<&str>::new(), "{calls:?}");
        assert_eq!(kernel.ends.first(), Some(&End::PowerOff), "{calls:?}");
        let said = kernel.warnings().iter().filter(|text| text.contains("flight recorder")).count();
        assert_eq!(said, 1, "{calls:?}: {:?}", kernel.warnings());
    }
}

#[test]
fn the_end_of_a_boot_whose_machined_crashes_is_the_crash_and_not_the_restart() {
    let mut kernel = disk("");
    for _ in 0..8 {
        let crash = [message(&ToInit::Ready), Event::Time(1_000_000_000), Event::Exit(0, 7)];
        kernel.events.extend(crash.into_iter().chain([Event::Time(11_000_000_000)]));
    }
    crate::run(&mut kernel);
    let found = recorded(&kernel);
    let end = found[0].end.clone().unwrap();
    assert_eq!((end.get("failed"), end.get("action")), (Some("start_machined"), None));
    assert!(texts(&found[0]).last().unwrap().contains("final action Reboot"), "{found:?}");
}

#[test]
fn a_recorder_goes_on_beside_what_cannot_be_read() {
    let mut kernel = short_life(disk(""));
    kernel.always_fail.push(("read 65536 bytes of /dev/vda4", Errno::IO));
    crate::run(&mut kernel);
    assert!(
        !kernel.warnings().iter().any(|text| text.contains("flight recorder")),
        "{:?}",
        kernel.warnings()
    );
    let found = recorded(&kernel);
    assert!(found.len() == 1 && found[0].begin.is_some() && found[0].end.is_some(), "{found:?}");
}
